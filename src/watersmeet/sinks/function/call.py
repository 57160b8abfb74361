"""The call of a user's function with one part of a tick, in whatever process a task runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.errors import EngineError, WatersmeetError, counted, failure_text
from watersmeet.names import DELETED
from watersmeet.sinks.base import Files, StagedPart
from watersmeet.sinks.function.loading import load
from watersmeet.sinks.function.recorded import SHOWN_DELETED
from watersmeet.sinks.staged_rows import Staged, batches_in, schema_in

_AGAIN = "; then run the job again: the tick is repeated, with the same parts"


@dataclass
class Part:
    """One part of a tick, as a function gets it beside its rows. ``job``, ``insert``, ``tick`` and ``number``
    name it: whenever it comes again, all of this and its rows are the same.

    Args:
        job: identifies the job's state: another one has other ticks.
        insert: the name of the INSERT.
        tick: from 1.
        number: from 0, among ``parts`` of this INSERT and tick.
        rows: how many there are, one at least.
        schema: their columns.

    >>> seen = set()
    >>> def put(part, rows):
    ...     if (part.tick, part.number) in seen:
    ...         return part.skip()
    ...     seen.add((part.tick, part.number))
    ...     return rows.read_all().num_rows
    >>> table = pa.table({"id": [1, 2]})
    >>> part = Part("job", "orders", tick=1, number=0, parts=1, rows=2, schema=table.schema)
    >>> put(part, table.to_reader())
    2
    >>> put(part, table.to_reader())
    >>> part.is_skipped
    True
    """

    job: str
    insert: str
    tick: int
    number: int
    parts: int
    rows: int
    schema: pa.Schema
    _skipped: bool = field(default=False, init=False, repr=False)

    def skip(self) -> None:
        """Its rows need not be read: they are where they are to be."""
        self._skipped = True

    @property
    def is_skipped(self) -> bool:
        return self._skipped


@dataclass(frozen=True)
class Calling:
    """Calls a function with parts, whose numbers come as rows; an `ArrowPart`. A part whose call fails fails
    the tick; it is not tried again here, as a task would be.

    Args:
        written: the function, as the option has it.
        staged: the files of all parts, in order.
    """

    files: Files = field(repr=False)
    written: str
    sink: str
    job: str
    insert: str
    tick: int
    staged: tuple[Staged, ...]

    def write(self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> StagedPart:
        """Call it with the parts of these numbers, one after the other."""
        function = load(self.written, self.sink)
        numbers = [int(number) for batch in rows for number in batch.column(0).to_pylist()]
        for number in numbers:
            name, count = self.staged[number]
            columns = _shown(schema_in(self.files, name))
            part = Part(self.job, self.insert, self.tick, number, len(self.staged), count, columns)
            source = _Source(self.files, name, count, self.sink, columns)
            reader = pa.RecordBatchReader.from_batches(part.schema, source.batches())
            try:
                function(part, reader)
            except BaseException as error:  # whatever it raises, SystemExit, too, the tick failed
                raise source.failed or self._failed(number, failure_text(error)) from None
            if source.failed is not None:
                raise source.failed
            if source.given < count and not part.is_skipped:
                raise self._left(number, source.given, count)
        return {"called": numbers}

    def _failed(self, number: int, text: str) -> EngineError:
        return EngineError(
            f'the function {self.written} of sink "{self.sink}" failed at {self._named(number)}: {text}',
            code="function-failed",
            hint=f"correct the function or the service it calls{_AGAIN}",
        )

    def _left(self, number: int, given: int, count: int) -> EngineError:
        return EngineError(
            f'the function {self.written} of sink "{self.sink}" returned at {self._named(number)} after'
            f" reading {given:,} of {counted(count, 'row')}",
            code="function-left-rows",
            hint=f"let it read all rows, or call part.skip() if it already has them{_AGAIN}",
        )

    def _named(self, number: int) -> str:
        return f'tick {self.tick} of "{self.insert}", part {number} of {len(self.staged)}'


def _shown(schema: pa.Schema) -> pa.Schema:
    """With names that a user knows."""
    names = [SHOWN_DELETED if name == DELETED else name for name in schema.names]
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


class _Source:
    """The rows of a part, and how many of them were read."""

    def __init__(self, files: Files, name: str, rows: int, sink: str, schema: pa.Schema) -> None:
        self._files, self._name, self._rows, self._sink = files, name, rows, sink
        self._schema = schema
        self.given = 0
        self.failed: WatersmeetError | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches_in(self._files, self._name, self._rows, self._sink):
                self.given += batch.num_rows
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        except WatersmeetError as error:
            self.failed = error
            raise
