"""A user's function that is found by its name, and called with each part of a tick by Spark's tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from watersmeet.errors import EngineError, raise_all
from watersmeet.sinks.base import ArrowPart, RowPrinter
from watersmeet.sinks.function.call import Calling
from watersmeet.sinks.function.loading import load
from watersmeet.sinks.function.recorded import RecordedSink
from watersmeet.sinks.staged_rows import Staged
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.function import FunctionOptions, sink_problems


class FunctionSink(RecordedSink):
    """See the module. Option: ``function``."""

    def __init__(self, spec: SinkSpec, console: RowPrinter | None = None) -> None:
        super().__init__(spec)
        raise_all(list(sink_problems(spec)))
        self._written = FunctionOptions.of(spec.options).function
        load(self._written, spec.name)

    def arrow_part(self, schema: Any, insert: str, tick: int, attempt: str) -> ArrowPart | None:
        return self._part(tick, attempt)

    def give_out(self, insert: str, tick: int, parts: Sequence[Staged]) -> None:
        calling = Calling(
            self._there(), self._written, self._spec.name, self._owner, insert, tick, tuple(parts)
        )
        called = {number for said in self._tasks(calling, len(parts)) for number in said["called"]}
        if called != {*range(len(parts))}:
            raise EngineError(
                f'only {len(called)} of {len(parts)} parts of tick {tick} of "{insert}" were written'
                f' (sink "{self._spec.name}")',
                code="internal",
                hint="run again, which repeats the tick, and please report this bug",
            )
