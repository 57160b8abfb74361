"""Ticks over iterables and async iterables: what is read when, and what is left when a run is left."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.local.joins import left_join
from watersmeet import LocalJob, SpecError, StateError, local

SPEC = left_join(names=("a", "b"))


def batch(*pairs: tuple[int, str]) -> pa.RecordBatch:
    return pa.record_batch({"t": [t for t, _ in pairs], "k": [k for _, k in pairs]})


A = [batch((1, "x"), (2, "y")), batch((20, "z")), batch((40, "w"))]
B = [batch((2, "x")), batch((21, "z"))]
WANTED = {("x", 2), ("y", None), ("z", 21), ("w", None)}


def pairs(outputs: list[Any]) -> list[tuple[Any, Any]]:
    return [tuple(row.values()) for output in outputs for row in output.table.to_pylist()]


class Source:
    """An async iterable that tells how far it was read, and whether it was closed."""

    def __init__(self, batches: list[Any], *, fails: bool = False, hangs: bool = False) -> None:
        self.batches, self.fails, self.hangs = batches, fails, hangs
        self.read, self.closed = 0, False

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            for each in self.batches:
                await asyncio.sleep(0)
                self.read += 1
                yield each
            if self.hangs:
                await asyncio.sleep(3600)
            if self.fails:
                raise OSError("gone")
        finally:
            self.closed = True


async def collect_outputs(run: local.Run, outputs: list[Any]) -> None:
    async for output in run:
        outputs.append(output)  # noqa: PERF401 - as far as they came


async def breaking_off(run: local.Run) -> None:
    async with run:
        async for _ in run:
            raise ZeroDivisionError


def left_alone() -> None:
    """No task of a run goes on."""
    gc.collect()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


def test_rows_of_iterables() -> None:
    outputs = list(local.run(SPEC, a=A, b=iter(B)))
    assert [output.tick for output in outputs] == [1, 2, 3, 4]
    found = pairs(outputs)
    assert set(found) == WANTED
    assert len(found) == len(WANTED)
    assert outputs[-1].finished


def test_rows_of_async_iterables_and_of_both() -> None:
    async def all_of(**inputs: Any) -> list[Any]:
        outputs = [output async for output in local.run(SPEC, **inputs)]
        left_alone()
        return outputs

    for inputs in ({"a": Source(A), "b": Source(B)}, {"a": A, "b": Source(B)}, {"a": A, "b": B}):
        found = pairs(asyncio.run(all_of(**inputs)))
        assert sorted(found, key=str) == sorted(WANTED, key=str)


def test_it_reads_no_faster_than_it_is_consumed() -> None:
    read = []

    def yield_and_record_reads() -> Iterator[Any]:
        for number, each in enumerate(A):
            read.append(number)
            yield each

    ticks = iter(local.run(SPEC, a=yield_and_record_reads(), b=[]))
    assert read == []
    next(ticks)
    assert read == [0]
    next(ticks)
    assert read == [0, 1]

    async def check_async_read_rate() -> None:
        source = Source([batch((number, "x")) for number in range(50)])
        async with local.run(SPEC, a=source, b=Source([])) as run:
            async for output in run:
                await asyncio.sleep(0.01)
                assert source.read <= output.tick + 1
                if output.tick == 5:
                    break
        assert source.closed
        left_alone()

    asyncio.run(check_async_read_rate())


@pytest.mark.parametrize("other", ["hangs", "list"])
def test_source_error_closes_sources_and_retains_committed_ticks(other: str, tmp_path: Path) -> None:
    async def run_until_source_error() -> None:
        bad = Source(A[:1], fails=True)
        good: Any = Source([], hangs=True) if other == "hangs" else B
        outputs: list[Any] = []
        with pytest.raises(OSError, match="gone"):
            await collect_outputs(local.run(SPEC, store=tmp_path, a=bad, b=good), outputs)
        left_alone()
        assert bad.closed
        last = local.job(SPEC, store=tmp_path).last
        assert last is not None
        assert last.tick == outputs[-1].tick

    asyncio.run(run_until_source_error())


def test_consumer_error_closes_every_source() -> None:
    async def run_until_consumer_error() -> None:
        a, b = Source(A, hangs=True), Source(B, hangs=True)
        with pytest.raises(ZeroDivisionError):
            await breaking_off(local.run(SPEC, a=a, b=b))
        assert (a.closed, b.closed) == (True, True)
        left_alone()

    asyncio.run(run_until_consumer_error())
    closed = []

    def closing() -> Iterator[Any]:
        try:
            yield from A
        finally:
            closed.append(True)

    def breaking() -> None:
        with local.run(SPEC, a=closing(), b=[]) as run:
            for _ in run:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        breaking()
    assert closed == [True]


def test_cancelling_closes_sources_and_retains_committed_ticks(tmp_path: Path) -> None:
    """Wherever it comes: while sources are awaited, or a tick runs."""

    async def consume(got: list[int], name: str) -> None:
        a, b = Source(A, hangs=True), Source(B, hangs=True)
        async for output in local.run(SPEC, store=tmp_path / name, a=a, b=b):
            got.append(output.tick)  # noqa: PERF401 - as far as they came

    async def cancel_after_each_delay() -> None:
        for steps in range(0, 30, 2):
            got: list[int] = []
            task = asyncio.create_task(consume(got, str(steps)))
            for _ in range(steps):
                await asyncio.sleep(0.002)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            left_alone()
            job = local.job(SPEC, store=tmp_path / str(steps))
            last = job.last
            assert (0 if last is None else last.tick) in (len(got), len(got) + 1)
            job.close()

    asyncio.run(cancel_after_each_delay())


def test_a_run_goes_on_where_the_last_one_was_killed(tmp_path: Path) -> None:
    """Every output by its number once, whatever was killed with it in its hands."""
    for stop in range(1, 6):
        seen: dict[int, list[tuple[Any, Any]]] = {}
        for _ in range(10):
            run = local.run(
                SPEC, store=tmp_path / str(stop), a=lambda taken: A[taken:], b=lambda taken: B[taken:]
            )
            finished = False
            for count, output in enumerate(run, 1):
                rows = pairs([output])
                assert seen.setdefault(output.tick, rows) == rows
                finished = output.finished
                if count > stop:
                    break
            run.close()
            if finished:
                break
        found = [row for rows in seen.values() for row in rows]
        assert sorted(found, key=str) == sorted(WANTED, key=str)


def test_run_over_existing_state_requires_inputs_that_can_resume(tmp_path: Path) -> None:
    list(local.run(SPEC, store=tmp_path, end=False, a=A, b=B))
    with pytest.raises(SpecError, match="the input cannot start after them"):
        local.run(SPEC, store=tmp_path, a=A, b=B)
    other = tmp_path / "other"
    job = local.job(SPEC, store=other)
    job.tick()
    with pytest.raises(StateError, match=r"local\.run did not write it"):
        local.run(SPEC, store=other, a=A, b=B)


def test_a_run_that_is_not_to_end_keeps_its_rows(tmp_path: Path) -> None:
    first = list(local.run(SPEC, store=tmp_path, end=False, a=A[:1], b=B[:1]))
    assert pairs(first) == [("x", 2)]
    again = list(local.run(SPEC, store=tmp_path, a=lambda n: A[n:], b=lambda n: B[n:]))
    assert pairs(again[:1]) == [("x", 2)]  # the last output, once more
    assert set(pairs(again)) == WANTED
    finished = list(local.run(SPEC, store=tmp_path, a=lambda n: A[n:], b=lambda n: B[n:]))
    assert [output.tick for output in finished] == [again[-1].tick]


def test_watermarks_between_batches() -> None:
    moved = [*A[:1], local.Advance("t", 30)]
    outputs = list(local.run(SPEC, end=False, a=moved, b=[*B[:1], local.Advance("t", 30)]))
    assert set(pairs(outputs)) == {("x", 2), ("y", None)}


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"a": A}, "the job reads a, b, but the inputs are a"),
        ({"a": A, "b": B, "c": B}, "the job reads a, b"),
        ({"a": A, "b": "rows"}, "which is not iterable"),
        ({"a": A, "b": None}, "which is not iterable"),
        ({"a": A, "b": pa.table({"t": [1], "k": ["x"]})}, "a table, not a list of batches"),
        ({"a": A, "b": A[0]}, "a table, not a list of batches"),
    ],
    ids=str,
)
def test_inputs_that_are_none(inputs: Any, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        local.run(SPEC, **inputs)


def test_awaited_inputs_need_an_async_loop() -> None:
    with pytest.raises(SpecError, match="async for"):
        iter(local.run(SPEC, a=Source(A), b=B))
    run = local.run(SPEC, a=A, b=B)
    list(run)
    with pytest.raises(SpecError, match="once"):
        list(run)


@pytest.mark.parametrize("left", [False, True])
def test_who_has_looped_over_a_run_has_closed_its_job(monkeypatch: pytest.MonkeyPatch, left: bool) -> None:
    """To the end, or not; by ``for`` and by ``async for``."""
    closed: list[LocalJob] = []
    monkeypatch.setattr(LocalJob, "close", lambda job: closed.append(job))

    def run_in_sync_loop() -> LocalJob:
        run = local.run(SPEC, a=A, b=B)
        outputs = iter(run)
        next(outputs)
        run.close() if left else list(outputs)
        return run.job

    async def run_in_async_loop() -> LocalJob:
        run = local.run(SPEC, a=A, b=B)
        outputs = aiter(run)
        await anext(outputs)
        await run.aclose() if left else [output async for output in outputs]
        return run.job

    for job in (run_in_sync_loop(), asyncio.run(run_in_async_loop())):
        assert job in closed


def test_a_run_that_nobody_loops_over_closes_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[LocalJob] = []
    monkeypatch.setattr(LocalJob, "close", lambda job: closed.append(job))
    with local.run(SPEC, a=A, b=B) as run, local.run(SPEC, a=A, b=B) as begun:
        iter(begun)
    assert run.job in closed
    assert begun.job in closed
    with pytest.raises(SpecError):
        local.run(SPEC, a=A, b=B, before={"c": local.map_async(print, answers={"x": "INT"})})
    assert len(set(map(id, closed))) == 3
