"""Divide the memory that a task may use at once (``SET max_task_memory``), and check its use.

Tasks emit rows in batches and write runs in parts, and a tick's rows stay in their runs if they are many. So
memory depends on the setting and not on the amount of input. Data that must be in memory at once (rows of
closing windows, a tick's changes, one row) is rejected if it exceeds the limit.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.kernel.batches import MAX_COLUMN_BYTES, size

OUTPUT_BYTES = 64 << 20
"""Rows leave a task in batches of at most so many bytes, or of one row."""
RUN_BYTES = 256 << 20
"""Runs are written of about so many bytes at most."""


def max_output_bytes(memory: int) -> int:
    """Return the maximum bytes of a batch that a task emits."""
    return min(OUTPUT_BYTES, memory // 16)


def max_run_bytes(memory: int) -> int:
    """Return the maximum bytes of a run, and of copies that sort rows of several runs together."""
    return min(RUN_BYTES, memory // 8)


def check_batches(what: str, batches: Sequence[pa.RecordBatch], memory: int, most: int | None = None) -> None:
    """Check that a task may hold the rows of batches at once.

    Raises:
        EngineError: the rows have more bytes than the task may hold.
    """
    check_bytes(what, sum(size(batch.columns) for batch in batches), memory, most)


def check_bytes(what: str, held: int, memory: int, most: int | None = None) -> None:
    """Check that rows of ``held`` bytes fit into a task; the rows need not exist yet.

    Raises:
        EngineError: ``held`` exceeds ``memory``, or ``most`` if given.
    """
    allowed = memory if most is None else min(memory, most)
    if held > allowed:
        raise EngineError(
            f"{what} need {format_bytes(held)} in one task, but a task may hold {format_bytes(allowed)}",
            code="task-memory",
            hint=(
                "read fewer rows per tick (maxFilesPerTrigger, maxOffsetsPerTrigger), or use more tasks"
                " (SET partitions)"
                + (", or raise max_task_memory if the machine has memory" if allowed == memory else "")
            ),
        )


def check_row(columns: Sequence[tuple[str, int]], memory: int) -> None:
    """Check that one emitted row fits in memory.

    Spark receives a row as a whole, and cannot hold 2 GiB either.

    Args:
        columns: name and bytes of each column of the row.
        memory: memory of the task in bytes.

    Raises:
        EngineError: the row is too large.
    """
    most = min(memory // 2, MAX_COLUMN_BYTES)
    total = sum(held for _, held in columns)
    if total > most:
        name, widest = max(columns, key=lambda column: column[1])
        raise EngineError(
            f"a result row has {format_bytes(total)} ({format_bytes(widest)} of them in "
            f"column {name}), more than the"
            f" allowed {format_bytes(most)}",
            code="row-too-large",
            hint="remove the column, or shorten its values in a view (left(…), substring(…))"
            + ("; or raise max_task_memory" if most < MAX_COLUMN_BYTES else ""),
        )


def format_bytes(held: int) -> str:
    """Format a number of bytes for people."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if held >= scale:
            return f"{held / scale:,.1f} {unit}"
    return f"{held} bytes"
