"""A job over iterables of Arrow batches, in this process, tick by tick."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa

from watersmeet.errors import SpecError, StateError, WatersmeetError, near_names, raise_all
from watersmeet.local.async_lookup import Asking, AsyncMap
from watersmeet.local.jobs import Asked, Place, job
from watersmeet.names import DIFF, PARTITION
from watersmeet.runtime.local.input_rows import add_utc_zone, coerce_rows
from watersmeet.runtime.local.job import LocalJob
from watersmeet.runtime.local.output import Output
from watersmeet.spec.model import Source

# What a run asks before and after its ticks: which rows, and where the answers go.

Result = TypeVar("Result")


class Stages:
    """Asynchronous lookups of one run.

    Args:
        before: lookups per source.
        after: lookups per query.

    Raises:
        SpecError: a source or query does not exist, or the answers' columns are undeclared or already
            exist.
        SeveralErrors: there are several of these problems.
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
        """True if the run has any lookups."""
        return bool(self._before or self._after)

    def take(self, name: str, batch: Any) -> bool:
        """Take rows of a source; return True if a lookup must precede their push."""
        if name not in self._before:
            return False
        source, _ = self._before[name]
        rows = coerce_rows(source, batch, naive_is_utc=self._job.plan.is_in_utc).drop_columns(
            [PARTITION, DIFF]
        )
        self._waiting.append((name, add_utc_zone(rows, source.columns)))
        return True

    async def before(self) -> None:
        """Push what was taken, with its answers, in the order in which it came."""
        tick = self._job.driver.tick + 1
        for name, rows in self._waiting:
            _, asking = self._before[name]
            self._job.push(name, await asking.answered(rows, tick))
        self._waiting = []

    async def after(self, output: Output) -> Output:
        """Return the output with the answers of the queries' lookups."""
        if not self._after:
            return output
        tables = dict(output.tables)
        for name, asking in self._after.items():
            tables[name] = await asking.answered(tables[name], output.tick)
        return replace(output, tables=tables)

    def run(self, loop: asyncio.Runner, stage: Coroutine[Any, Any, Result]) -> Result:
        """Run a stage to its end, in the run's own event loop."""
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


# A job over iterables of Arrow batches, in this process: one pass, tick by tick, as its rows are asked
# for.
#
# A round takes what every input has now, one batch of each, and makes a tick of it. Nothing is read
# before the consumer asks for the next output, and of each input one batch at most is on its way: whoever
# consumes slowly is read for slowly. Inputs that are awaited are read at the same time, and a tick takes
# what came first.
#
# When all inputs have ended there is one more tick, in which every watermark becomes +∞: what is retained
# goes out, padded where it is to be. Where the run is left before that, by an error of a source or of the
# consumer or because it is cancelled, what was committed stays, and no task and no open source is left.
#
# With a store, a run goes on where the last one ended. How many batches of each input were taken is
# stored with each tick, and the output of the last one with it: a consumer that was killed with an output
# in its hands gets it again, first of all, and knows it by its number.

Batches = Iterable[Any] | AsyncIterable[Any]
Batch = Any
"""What `LocalJob.push` takes, or an `Advance`."""

_TAKEN = "batches"
_END = object()


@dataclass(frozen=True)
class Advance:
    """Between batches of an input: no later row of it has a lower time in this column.

    >>> Advance("order_time", 1_646_128_800_000_000).column
    'order_time'
    """

    column: str
    to: int | datetime | date


def run(
    query: Asked,
    /,
    *,
    store: Place | None = None,
    settings: Mapping[str, str] | None = None,
    tables: Mapping[str, Any] | None = None,
    partitions: int = 1,
    clock: Callable[[], int] | None = None,
    end: bool = True,
    before: Mapping[str, AsyncMap] | None = None,
    after: Mapping[str, AsyncMap] | None = None,
    inputs: Mapping[str, Batches | Callable[[int], Batches]] | None = None,
    **more_inputs: Batches | Callable[[int], Batches],
) -> Run:
    """Run a job over inputs; iterate over its ticks with ``for`` or ``async for``.

    Args:
        query, store, settings, tables, partitions, clock: as `watersmeet.local.job`.
        end: True: when all inputs end, the streams end too: a last tick emits the retained rows and the
            job is finished. False: the rows stay for the next run.
        before: per source, the lookup for its rows (`map_async`): batches have the declared columns
            except those of the answers.
        after: per query, the lookup for its rows: answers are further columns of its output.
        inputs, more_inputs: per source, its batches: an iterable (read in the caller's thread) or an
            async iterable (only with ``async for``) of anything that `LocalJob.push` accepts, and of
            `Advance`. With a store, a function that returns the batches from the n-th one on, where n
            is the number of batches already processed.

    Raises:
        SpecError: an input is not one of the job's, an input is missing, or a run over a store with
            state cannot determine where to continue reading.

    >>> from watersmeet import local
    >>> orders = [[{"t": 1, "k": "x"}, {"t": 2, "k": "y"}], [{"t": 40, "k": "z"}]]
    >>> deliveries = [[{"t": 3, "k": "x"}]]
    >>> spec = local.JoinSpec(
    ...     left={"t": "BIGINT", "k": "STRING"}, right={"t": "BIGINT", "k": "STRING"}, how="left",
    ...     left_times={"t": 5}, right_times={"t": 5}, names=("orders", "deliveries"),
    ...     condition=local.AllOf(
    ...         local.Equal(local.left("k"), local.right("k")),
    ...         local.Between(local.right("t"), local.left("t"), local.left("t") + 9)),
    ...     outputs={"k": local.left("k"), "t": local.right("t")})
    >>> for output in local.run(spec, orders=orders, deliveries=deliveries):
    ...     print(output.tick, output.table.to_pylist())
    1 [{'k': 'x', 't': 3}]
    2 []
    3 [{'k': 'y', 't': None}, {'k': 'z', 't': None}]
    """
    if twice := sorted({*(inputs or {})} & {*more_inputs}):
        raise SpecError(
            f'the batches of "{twice[0]}" are passed twice',
            code="bad-value",
            hint="pass them either in inputs or by name",
        )
    opened = job(query, store=store, settings=settings, tables=tables, partitions=partitions, clock=clock)
    try:
        stages = Stages(opened, before or {}, after or {})
        return Run(opened, {**(inputs or {}), **more_inputs}, stages, end=end)
    except BaseException:
        opened.close()
        raise


class Run:
    """Ticks of a job, which can be iterated once.

    As a context (``with``, ``async with``), a run is closed when the block ends. A run whose loop ends early
    is otherwise closed when no reference to it remains.

    Attributes:
        job: the job; only this run may execute its ticks.

    >>> from watersmeet import local
    >>> text = '''
    ...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     SELECT x.t, y.t AS u FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t + 1 AND x.t + 3'''
    >>> with local.run(text, a=[[{"t": 1, "k": "x"}, {"t": 2, "k": "x"}], [{"t": 3, "k": "x"}]]) as run:
    ...     for output in run:
    ...         if output.table.num_rows:
    ...             break
    >>> output.tick, output.table.to_pylist()
    (1, [{'t': 1, 'u': 2}])
    """

    def __init__(
        self,
        opened: LocalJob,
        inputs: Mapping[str, Batches | Callable[[int], Batches]],
        stages: Stages,
        *,
        end: bool,
    ) -> None:
        self.job, self._stages = opened, stages
        self._end = end
        self._taken = _count_consumed_batches(opened)
        self._inputs = _validate_inputs(opened, inputs, self._taken)
        self._sync: Generator[Output, None, None] | None = None
        self._async: AsyncIterator[Output] | None = None

    def __iter__(self) -> Iterator[Output]:
        waiting = [name for name, batches in self._inputs.items() if isinstance(batches, AsyncIterable)]
        if waiting:
            raise SpecError(
                f"the batches of {', '.join(waiting)} come from an async iterable",
                code="bad-value",
                hint="use `async for output in local.run(…)`",
            )
        if self._stages.asks and _is_within_a_loop():
            raise SpecError(
                "the run awaits async functions, but an asyncio event loop is already running",
                code="bad-value",
                hint="use `async for output in local.run(…)`",
            )
        self._once()
        self._sync = self._ticks()
        return self._sync

    def __aiter__(self) -> AsyncIterator[Output]:
        self._once()
        self._async = self._awaited_ticks()
        return self._async

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def close(self) -> None:
        """End a ``for`` loop: close the sources and read nothing more."""
        if self._sync is not None:
            self._sync.close()
        self._close_job()

    async def aclose(self) -> None:
        """End an ``async for`` loop: close the sources and read nothing more.

        When the call returns, no asynchronous task of the run remains.
        """
        if self._async is not None:
            await self._async.aclose()  # type: ignore[attr-defined]
        self._close_job()

    def _close_job(self) -> None:
        """Close the job, also of a run over which nobody iterates."""
        self.job.clear()
        self.job.close()

    def _once(self) -> None:
        if self._sync is not None or self._async is not None:
            raise SpecError("a run can be iterated only once", code="run-twice", hint="call local.run again")

    def _ticks(self) -> Generator[Output, None, None]:
        live: dict[str, Iterator[Batch]] = {}
        loop = asyncio.Runner()
        try:
            last = self.job.last
            if last is not None:
                yield self._stages.run(loop, self._stages.after(last))
            if self._is_finished:
                return
            live = {name: iter(batches) for name, batches in self._inputs.items()}  # type: ignore[arg-type]
            while live:
                for name in list(live):
                    batch = next(live[name], _END)
                    if batch is _END:
                        del live[name]
                    else:
                        self._take(name, batch)
                if self._has_taken:
                    self._stages.run(loop, self._stages.before())
                    yield self._stages.run(loop, self._stages.after(self._tick()))
            if self._end:
                yield self._stages.run(loop, self._stages.after(self._tick(end=True)))
        finally:
            for batches in live.values():
                _close(batches)
            loop.close()
            self._close_job()

    async def _awaited_ticks(self) -> AsyncIterator[Output]:
        live: dict[str, Iterator[Batch] | AsyncIterator[Batch]] = {}
        reading: dict[str, asyncio.Task[Batch]] = {}
        try:
            last = await asyncio.to_thread(lambda: self.job.last)
            if last is not None:
                yield await self._stages.after(last)
            if self._is_finished:
                return
            live = {
                name: aiter(batches) if isinstance(batches, AsyncIterable) else iter(batches)
                for name, batches in self._inputs.items()
            }
            while live:
                came: dict[str, Batch] = {}
                for name, batches in live.items():
                    if not isinstance(batches, AsyncIterator):
                        came[name] = next(batches, _END)
                    elif name not in reading:
                        reading[name] = asyncio.create_task(_next(batches))
                if reading:
                    at_once = bool(came)
                    await asyncio.wait(
                        reading.values(), timeout=0 if at_once else None, return_when=asyncio.FIRST_COMPLETED
                    )
                for name in [name for name, task in reading.items() if task.done()]:
                    came[name] = reading.pop(name).result()
                for name in (name for name in self._inputs if name in came):
                    if came[name] is _END:
                        del live[name]
                    else:
                        self._take(name, came[name])
                if self._has_taken:
                    yield await self._run_tick_in_thread()
            if self._end:
                yield await self._run_tick_in_thread(end=True)
        finally:
            await _cancel_tasks(reading.values())
            for batches in live.values():
                if isinstance(batches, AsyncIterator):
                    await _aclose(batches)
                else:
                    _close(batches)
            self._close_job()

    async def _run_tick_in_thread(self, *, end: bool = False) -> Output:
        """Run a tick in a thread, with the lookups before and after it.

        A caller that is cancelled during the tick waits for it to commit or fail.
        """
        await self._stages.before()
        ticking = asyncio.ensure_future(asyncio.to_thread(self._tick, end=end))
        try:
            output = await asyncio.shield(ticking)
        except asyncio.CancelledError:
            while not ticking.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([ticking])
            if not ticking.cancelled():
                ticking.exception()  # nobody is there to be told
            raise
        return await self._stages.after(output)

    def _take(self, name: str, batch: Batch) -> None:
        if isinstance(batch, Advance):
            self.job.advance(name, batch.column, batch.to)
        elif not self._stages.take(name, batch):
            self.job.push(name, batch)
        self._taken[name] += 1
        self._has_taken = True

    _has_taken = False

    def _tick(self, *, end: bool = False) -> Output:
        output = self.job.tick(end=end, position={_TAKEN: self._taken})
        self._has_taken = False
        return output

    @property
    def _is_finished(self) -> bool:
        manifest = self.job.driver.manifest
        return manifest is not None and manifest.finished


def _is_within_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _count_consumed_batches(opened: LocalJob) -> dict[str, int]:
    """Return, per source, the number of its batches that are in the state."""
    taken = dict.fromkeys(opened.sources, 0)
    if opened.driver.manifest is None:
        return taken
    position = opened.position
    if not isinstance(position, Mapping) or _TAKEN not in position:
        raise StateError(
            "the state does not record how far the inputs were read, because local.run did not write it",
            code="no-position",
            hint="continue it with local.job(…), push and tick",
        )
    return taken | {name: count for name, count in position[_TAKEN].items() if name in taken}


def _validate_inputs(
    opened: LocalJob, inputs: Mapping[str, Any], taken: Mapping[str, int]
) -> dict[str, Batches]:
    missing = [name for name in opened.sources if name not in inputs and name not in opened.tables]
    surplus = [name for name in inputs if name not in opened.sources]
    if missing or surplus:
        raise SpecError(
            f"the job reads {', '.join(opened.sources)}, but the inputs are {', '.join(inputs) or 'missing'}",
            code="unknown-source" if surplus else "missing-source",
            hint="pass batches for each source, or an empty list",
        )
    by_name: dict[str, Batches] = {}
    for name, batches in inputs.items():
        if callable(batches):
            batches = batches(taken[name])
        elif taken[name]:
            raise SpecError(
                f'the state already has {taken[name]} batches of "{name}", but the input cannot start'
                " after them",
                code="no-position",
                hint=f"pass a function of their number: {name}=lambda taken: batches[taken:]",
            )
        if _is_table(batches):
            raise SpecError(
                f'the input of "{name}" is a table, not a list of batches',
                code="bad-value",
                hint="pass [table], or table.to_batches()",
            )
        if isinstance(batches, str | bytes | Mapping) or not isinstance(batches, Iterable | AsyncIterable):
            raise SpecError(
                f'the batches of "{name}" are {type(batches).__name__}, which is not iterable',
                code="bad-value",
                hint="pass an iterable of Arrow batches, such as a list",
            )
        by_name[name] = batches
    return by_name


def _is_table(batches: Any) -> bool:
    """Return True if the object is a table, whose iteration is by column."""
    return hasattr(batches, "column_names") or (hasattr(batches, "columns") and hasattr(batches, "shape"))


async def _next(batches: AsyncIterator[Batch]) -> Batch:
    return await anext(batches, _END)


async def _cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, wait until they are done, and ignore their results."""
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def _close(batches: Any) -> None:
    if hasattr(batches, "close"):
        batches.close()


async def _aclose(batches: Any) -> None:
    if hasattr(batches, "aclose"):
        await batches.aclose()
