"""A user's function that is called in the job's own process, with a frame of a tick's rows, and its number.

What it is called with is recorded and read again as that of a function in tasks (`recorded`): whenever a tick
comes again, its rows and their partitions are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.errors import EngineError, SpecError, failure_text
from watersmeet.names import DELETED
from watersmeet.sinks.base import Files, Frame, Schema, Session
from watersmeet.sinks.function.recorded import SHOWN_DELETED, RecordedSink
from watersmeet.sinks.staged_rows import Staged, batches_in
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.function import NAMED, OfBatches, left_undone, named_among


class ForeachBatchSink(RecordedSink):
    """See the module. ``function``: none in a process that has not made the job."""

    def __init__(self, spec: SinkSpec, function: OfBatches | None) -> None:
        super().__init__(spec)
        if function is None:
            raise SpecError(
                f'sink "{spec.name}" needs the function of the Python program that defines the job',
                code="no-function",
                hint="run the job in the Python program that calls relation.foreach_batch(function)",
            )
        self._function = function
        self._session: Session = None
        self._schemas: dict[str, Schema] = {}

    def use(self, session: Session) -> None:
        """See `NeedsSession`."""
        self._session = session

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        self._schemas[insert] = frame.schema
        super().write(frame, insert, tick, attempt)

    def give_out(self, insert: str, tick: int, parts: Sequence[Staged]) -> None:
        numbers = self._session.range(0, len(parts), 1, len(parts))
        reading = _Reading(self._there(), self._spec.name, tuple(parts))
        rows = numbers.mapInArrow(reading, self._schemas[insert])
        if self.keyed:
            rows = rows.withColumnRenamed(DELETED, SHOWN_DELETED)
        try:
            named = {"job": self._owner, "insert": insert}
            asked = {name: named[name] for name in named_among(self._function, NAMED)}
            undone = left_undone(self._function(rows, tick, **asked))
        except BaseException as error:  # whatever it raises, SystemExit, too, the tick failed
            raise self._failed(insert, tick, failure_text(error)) from error
        if undone is not None:
            raise self._failed(insert, tick, undone)

    def _failed(self, insert: str, tick: int, why: str) -> EngineError:
        return EngineError(
            f'the function of sink "{self._spec.name}" failed at tick {tick} of "{insert}": {why}',
            code="function-failed",
            hint="correct the function or the service it calls, and run again: the tick is repeated"
            " with the same rows",
        )


@dataclass(frozen=True)
class _Reading:
    """The function given to `mapInArrow`: numbers of parts come, and their rows go."""

    files: Files = field(repr=False)
    sink: str
    parts: tuple[Staged, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                name, rows = self.parts[number]
                yield from batches_in(self.files, name, rows, self.sink)
