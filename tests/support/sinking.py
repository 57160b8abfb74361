"""Rows of a tick of `LocalJob` into a sink, as tasks stage them: each a share of the rows, by attempts of
which one counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tests.sinks.postgres_frames import ArrowFrame
from watersmeet.runtime.messages.work import TickStart
from watersmeet.sinks.base import Sink
from watersmeet.sinks.registry import is_known_part, part_from, plain_part

Run = Callable[..., Any]


def once(task: Callable[..., Any], *arguments: Any) -> Any:
    """A task that runs once, here."""
    return task(*arguments)


class JsonFrame(ArrowFrame):
    """One whose only expression is that of its rows as JSON."""

    def selectExpr(self, text: str) -> ArrowFrame:
        assert text.startswith("to_json("), text
        assert text.endswith(" AS value"), text
        values = pa.array([json.dumps(row) for row in self._rows.to_pylist()], pa.string())
        return ArrowFrame(pa.table({"value": values}), ["STRING"], self._partitions)


def stage(
    sink: Sink,
    insert: str,
    start: TickStart,
    names: Sequence[str],
    table: pa.Table,
    tasks: int,
    run: Run = once,
) -> None:
    """Stage ``table``, whose columns are called ``names``, by so many tasks.

    A sink that has no part for tasks is given them as a frame, also where the driver has one.

    Args:
        run: runs an attempt at a task, or several, and gives what one of them gave.
    """
    rows = table.rename_columns(list(names)).combine_chunks()
    part = sink.arrow_part(rows.schema, insert, start.tick, start.attempt)
    if part is None or not is_known_part(part):
        types = ["STRING" if pa.types.is_string(field.type) else "BIGINT" for field in rows.schema]
        sink.write(JsonFrame(rows, types, tasks), insert, start.tick, start.attempt)
        staged = sink.staged_rows(insert, start.tick, start.attempt)
        assert staged == rows.num_rows, (staged, rows.num_rows)
        return
    plain, secrets = json.dumps(plain_part(part)), dict(sink.secrets)
    said = [
        run(write_part, plain, secrets, task, rows.schema, _share(rows, task, tasks)) for task in range(tasks)
    ]
    sink.take_parts(insert, start.tick, start.attempt, [report for report in said if report is not None])
    staged = sink.staged_rows(insert, start.tick, start.attempt)
    assert staged == rows.num_rows, (staged, rows.num_rows)


def _share(rows: pa.Table, task: int, tasks: int) -> pa.Table:
    return rows.take(pa.array(range(task, rows.num_rows, tasks), pa.int64()))


def write_part(plain: str, secrets: dict[str, str], task: int, schema: pa.Schema, rows: pa.Table) -> Any:
    part = part_from(json.loads(plain), secrets)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches()

    return part.write(task, schema, batches())
