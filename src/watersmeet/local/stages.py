"""What a run asks before and after its ticks: which rows, and where the answers go."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from watersmeet.engine.local.given import zoned
from watersmeet.engine.local.job import LocalJob
from watersmeet.engine.local.output import Output
from watersmeet.engine.local.taken_in import rows_of
from watersmeet.errors import SpecError, WatersmeetError, near_names, raise_all
from watersmeet.local.asked import Asking, AsyncMap
from watersmeet.names import DIFF, PARTITION
from watersmeet.spec.model import Source

Result = TypeVar("Result")


class Stages:
    """Of one run.

    Args:
        before: per source.
        after: per query.

    Raises:
        SpecError, or SeveralErrors: there is no such source or query, or the columns of the answers are not
        declared, or there already.
    """

    def __init__(self, job: LocalJob, before: Mapping[str, AsyncMap], after: Mapping[str, AsyncMap]) -> None:
        self._job = job
        raise_all([*_wrong_before(job, before), *_wrong_after(job, after)])
        self._before = {
            name: (_without(job.source(name), asked), Asking(asked, f'source "{name}"', job.store))
            for name, asked in before.items()
        }
        self._after = {name: Asking(asked, f'query "{name}"', job.store) for name, asked in after.items()}
        self._waiting: list[tuple[str, pa.Table]] = []

    @property
    def asks(self) -> bool:
        """Whether anything is asked."""
        return bool(self._before or self._after)

    def take(self, name: str, batch: Any) -> bool:
        """Rows of a source; whether something is to be asked about them before they are pushed."""
        if name not in self._before:
            return False
        source, _ = self._before[name]
        rows = rows_of(source, batch, naive_is_utc=self._job.plan.is_in_utc).drop_columns([PARTITION, DIFF])
        self._waiting.append((name, zoned(rows, source.columns)))
        return True

    async def before(self) -> None:
        """Push what was taken, with its answers, in the order in which it came."""
        tick = self._job.driver.tick + 1
        for name, rows in self._waiting:
            _, asking = self._before[name]
            self._job.push(name, await asking.answered(rows, tick))
        self._waiting = []

    async def after(self, output: Output) -> Output:
        """The output with its answers."""
        if not self._after:
            return output
        tables = dict(output.tables)
        for name, asking in self._after.items():
            tables[name] = await asking.answered(tables[name], output.tick)
        return replace(output, tables=tables)

    def run(self, loop: asyncio.Runner, stage: Coroutine[Any, Any, Result]) -> Result:
        """The stage to its end, in a loop of the run's own."""
        if self.asks:
            return loop.run(stage)
        try:
            stage.send(None)  # nothing is asked, so that nothing is awaited
        except StopIteration as done:
            result: Result = done.value
            return result
        raise AssertionError("a run without async functions waits for one")


def _without(source: Source, asked: AsyncMap) -> Source:
    names = {column.name for column in asked.columns}
    return replace(source, columns=tuple(column for column in source.columns if column.name not in names))


def _wrong_before(job: LocalJob, before: Mapping[str, AsyncMap]) -> list[WatersmeetError]:
    problems: list[WatersmeetError] = []
    for name, asked in before.items():
        if name not in job.sources or name in job.tables:
            streams = [source for source in job.sources if source not in job.tables]
            problems.append(_unknown("source", name, streams))
            continue
        source = job.source(name)
        problems += [
            SpecError(
                f'before: the answers have a column "{column.name}" {column.type}, which source'
                f' "{name}" does not declare',
                code="unknown-column",
                hint=f"declare the column: {column.name} {column.type}",
            )
            for column in asked.columns
            if column not in source.columns
        ]
        if source.change_column is not None or source.primary_key is not None:
            problems.append(
                SpecError(
                    f'before: rows of "{name}" are inserts and deletes',
                    code="not-supported",
                    hint="use after: a delete would need the same answer as its insert",
                )
            )
    return problems


def _wrong_after(job: LocalJob, after: Mapping[str, AsyncMap]) -> list[WatersmeetError]:
    problems: list[WatersmeetError] = []
    outputs = {
        query.name: [output.name for output in query.outputs]
        for query in job.plan.queries
        if not query.is_index
    }
    for name, asked in after.items():
        if name not in outputs:
            problems.append(_unknown("query", name, outputs))
            continue
        problems += [
            SpecError(
                f'after: query "{name}" already has a column "{column.name}"',
                code="duplicate-column",
                hint="rename the column of the answers",
            )
            for column in asked.columns
            if column.name.lower() in {output.lower() for output in outputs[name]}
        ]
    return problems


def _unknown(what: str, name: str, names: Any) -> SpecError:
    return SpecError(
        f'there is no {what} "{name}" in this job', code=f"unknown-{what}", hint=near_names(name, names)
    )
