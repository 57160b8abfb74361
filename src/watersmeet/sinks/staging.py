"""Stage rows of a tick: frames staged within Spark's tasks, and files until they are published."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, TypeVar

import pyarrow as pa

from watersmeet.errors import EngineError, WatersmeetError, error_from, plain_of
from watersmeet.sinks.base import ArrowPart, Files, Frame, Sink, StagedPart
from watersmeet.spec.model import Sink as SinkSpec

# Rows of a tick until they go out: files beside the job's state, written by tasks.
#
# Names say the tick, so that those of attempts that were killed are removed with what else ticks leave.

MAX_FILE_BYTES, MAX_FILE_ROWS = 32 << 20, 500_000
"""Size at which a staged file is closed and the next one begins."""

Staged = tuple[str, int]
"""A file, and how many rows it has."""

Key = tuple[str, int, str]
"""INSERT, tick and attempt."""

Waiting = TypeVar("Waiting")
"""What a sink keeps of the rows that an attempt staged."""


@dataclass(frozen=True)
class RowsPart:
    """Stages rows as they are.

    Args:
        files: where to.
        folder: how names of the files begin.
        lasting: they are read after a crash, too.

    What it tells: ``files``, a list of [name, rows]; see `staged_files`.
    """

    files: Files = field(repr=False)
    folder: str
    lasting: bool = False

    def write(self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stage all rows of a partition, in order."""
        return {"files": [self._file(piece) for piece in _pieces(rows)]}

    def _file(self, batches: Sequence[pa.RecordBatch]) -> list[object]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        name = f"{self.folder}{uuid.uuid4().hex}.arrow"
        self.files.write(name, sink.getvalue(), lasting=self.lasting)
        return [name, sum(batch.num_rows for batch in batches)]


def staged_files(parts: Sequence[StagedPart]) -> list[Staged]:
    """Return the files that `RowsPart` reported, in the order of the parts."""
    return [(str(name), int(rows)) for part in parts for name, rows in part["files"]]


class StagingSink(Sink, Generic[Waiting]):
    """Base of sinks whose rows wait until their tick is published.

    ``_staged`` has what waits, by INSERT, tick and attempt.
    """

    idempotent = True
    stages = True
    tells_rows = True

    def __init__(self, spec: SinkSpec) -> None:
        self._spec = spec
        self._staged: dict[Key, Waiting] = {}

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        self.take_parts(insert, tick, attempt, staged_by_tasks(frame, self._part(insert, tick, attempt)))

    def _part(self, insert: str, tick: int, attempt: str) -> ArrowPart:
        """Return the part with which tasks stage rows."""
        raise NotImplementedError

    def discard(self, attempt: str) -> None:
        for key in [key for key in self._staged if key[2] == attempt]:
            self._remove(key)

    def _remove(self, key: Key) -> None:
        """Forget what waits, and delete its rows."""
        del self._staged[key]


class PartsSink(StagingSink[list[StagedPart]]):
    """Base of sinks that keep what each part said of the rows that it staged."""

    def arrow_part(self, schema: Any, insert: str, tick: int, attempt: str) -> ArrowPart | None:
        return self._part(insert, tick, attempt)

    def take_parts(self, insert: str, tick: int, attempt: str, parts: Sequence[StagedPart]) -> None:
        self._staged[insert, tick, attempt] = [part for part in parts if part]

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        return sum(int(part["rows"]) for part in self._staged[insert, tick, attempt])


class StagedFilesSink(StagingSink[list[Staged]]):
    """Base of sinks whose rows stay in files beside the job's state until their tick is published."""

    def __init__(self, spec: SinkSpec) -> None:
        super().__init__(spec)
        self._files: Files | None = None

    def stage_in(self, files: Files) -> None:
        """See `StagesInState`."""
        self._files = files

    def take_parts(self, insert: str, tick: int, attempt: str, parts: Sequence[StagedPart]) -> None:
        self._staged[insert, tick, attempt] = staged_files(parts)

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        return sum(rows for _, rows in self._staged[insert, tick, attempt])

    def _there(self) -> Files:
        if self._files is None:
            raise EngineError(
                "the sink was not prepared",
                code="internal",
                hint="this is a bug in watersmeet: please report it with this message",
            )
        return self._files

    def _remove(self, key: Key) -> None:
        staged = self._staged.pop(key, [])
        if self._files is not None and staged:
            self._files.delete_all([name for name, _ in staged])


def schema_in(files: Files, name: str) -> pa.Schema:
    """Read the schema of a staged file."""
    return pa.ipc.open_stream(files.read(name)).schema


def batches_in(files: Files, name: str, rows: int, sink: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a staged file, in order.

    Raises:
        EngineError: The file no longer has the number of rows that was staged.
    """
    there = 0
    for batch in pa.ipc.open_stream(files.read(name)):
        there += batch.num_rows
        yield batch
    if there != rows:
        raise EngineError(
            f'{name} has only {there:,} of {rows:,} staged rows (sink "{sink}"); nothing was published',
            code="staged-rows-gone",
            hint="run again, which repeats the tick, and please report this bug",
        )


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    held: list[pa.RecordBatch] = []
    for batch in _cut(batches):
        held.append(batch)
        if sum(b.nbytes for b in held) >= MAX_FILE_BYTES or sum(b.num_rows for b in held) >= MAX_FILE_ROWS:
            yield held
            held = []
    if held:
        yield held


def _cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Split batches of very wide rows into batches of about the maximum file size."""
    for batch in batches:
        step = max(1, min(MAX_FILE_ROWS, batch.num_rows * MAX_FILE_BYTES // max(batch.nbytes, 1)))
        yield from (batch.slice(first, step) for first in range(0, batch.num_rows, step))


# Frames that a sink stages by its own part (`ArrowPart`) within Spark's tasks.
#
# A task may run more than once, at the same time even: when it failed, or was slow, or its machine went.
# Each attempt stages what it has under a name of its own, and says so in one row of text; of these rows
# Spark gives the driver those of one attempt per task. What other attempts staged is not named, and does
# not count.
#
# A WatersmeetError within a task arrives as such a row, too: running the task again would not help.

_STAGED, _ERROR = "staged", "error"


def staged_by_tasks(frame: Frame, part: ArrowPart) -> list[StagedPart]:
    """Stage all rows of a frame with ``part``, and return its report of each task that had rows.

    Args:
        part: Sent to tasks unchanged, including its secrets; Spark does not show it. It receives no
            partition numbers (always 0) and must distinguish attempts by itself.

    Raises:
        WatersmeetError: The first error that a part raised.
    """
    said = [json.loads(row[0]) for row in frame.mapInArrow(_StageRows(part), f"{_STAGED} STRING").collect()]
    for row in said:
        if _ERROR in row:
            raise error_from(row[_ERROR])
    return [row[_STAGED] for row in said]


def write_numbered_parts(part: ArrowPart, count: int) -> list[StagedPart]:
    """See `Numbered`: one after the other, in this process."""
    rows = [pa.record_batch({"id": pa.array([number], pa.int64())}) for number in range(count)]
    said = [part.write(0, row.schema, iter([row])) for row in rows]
    return [staged for staged in said if staged is not None]


@dataclass(frozen=True, repr=False)
class _StageRows:
    """The function given to `mapInArrow`."""

    part: ArrowPart

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        rows = (batch for batch in chain([first], batches) if batch.num_rows)
        try:
            staged = self.part.write(0, first.schema, rows)
            said = {_STAGED: {} if staged is None else dict(staged)}
        except WatersmeetError as error:
            said = {_ERROR: plain_of(error)}
        yield pa.record_batch({_STAGED: pa.array([json.dumps(said)])})
