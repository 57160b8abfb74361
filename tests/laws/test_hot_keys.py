"""With keys split over tasks, rows, state and account of every tick equal those of one task.

Each key is split, runs are merged all the time, and the number of tasks changes from tick to tick. The seed
is the run's (``--seed``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.laws.test_laws import KEYED, RICH, Streams
from tests.support.effort import at_effort
from tests.support.split_keys import Splits, settle_without_asking, split_every_key
from tests.support.ticks import QUERY, arriving, bag, check_account, plan_of, stream
from watersmeet.event_time import Side
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator import merge_policy, retained_runs
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.local.tick import SinkStaging
from watersmeet.runtime.operators import broadcast, join, repartition
from watersmeet.runtime.tasks.side import HashRange
from watersmeet.state.manifest import load_newest
from watersmeet.state.marks import MarkWriter, read_marks
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.store import MemoryStore

KINDS = ["INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"]
CHAIN = (
    "SELECT l.i AS li, r.i AS ri, s.i AS si FROM l {kind} JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 40 AND"
    " l.t + 25 {kind} JOIN s ON s.k = l.k AND s.t BETWEEN l.t - 20 AND l.t + 20"
)
FROM_ABOVE = (
    "SELECT l.i AS li, r.i AS ri, s.i AS si FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 64 AND l.t + 70"
    " JOIN s ON s.k = r.k AND s.t BETWEEN r.t - 4 AND r.t + 8 AND s.t >= l.t - 2"
)
"""Rows of ``l`` and ``r`` are released by bounds of the join above, where they may still match each other."""
SELF = "SELECT l.i AS li, m.i AS mi FROM l {kind} JOIN l m ON l.k = m.k AND m.t BETWEEN l.t - 20 AND l.t"
HOT_TASKS = (3, 2, 1, 5, 2)


class Crash(Exception):
    """The job is gone, after its tasks ran and before anything was committed."""


@pytest.fixture(autouse=True)
def splits(monkeypatch: pytest.MonkeyPatch) -> Splits:
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    return split_every_key(monkeypatch)


@pytest.fixture
def streams(seed: int) -> Streams:
    return Streams(seed, 800)


def build_join_query(kind: str, on: str = KEYED) -> str:
    columns = "l.i AS li" if kind in ("LEFT SEMI", "LEFT ANTI") else "l.i AS li, r.i AS ri"
    return f"SELECT {columns} FROM l {kind} JOIN r ON {on}"


def read_retained_rows(job: LocalJob, store: MemoryStore) -> dict[str, Counter[Any]]:
    """Per arrangement the rows that are retained, and which of them are marked as matched."""
    manifest = load_newest(store)
    assert manifest is not None
    contents: dict[str, Counter[Any]] = {}
    for shape, node in zip(job.driver.shapes[QUERY], manifest.queries[QUERY].nodes, strict=True):
        for side in shape.stored:
            rows: Counter[Any] = Counter()
            arrangement = node.arrangements[side.name]
            for live in arrangement.runs:
                opened = OpenRun.open(store, live.run, side.layout)
                count = live.run.rows
                gone, matched = (
                    read_marks(store, mark, live.marks.get(mark, ()), 0, count)
                    for mark in ("gone", "matched")
                )
                stays = opened.live(arrangement.limits, 0, count) & ~gone
                held = opened.sorted_rows.batch.to_pylist()
                rows.update((repr(held[n]), bool(matched[n])) for n in np.flatnonzero(stays).tolist())
            assert rows.total() == arrangement.retained
            contents[side.name] = rows
    return contents


Tick = tuple[Any, dict[str, Counter[Any]], Any]


def run(
    plan: JobPlan,
    ticks: Sequence[dict[str, Sequence[dict[str, Any]]]],
    tasks: Callable[[int], int],
    *,
    crashes: bool = False,
) -> list[Tick]:
    """Of every tick the rows, what is kept after it, and the account. ``crashes``: each is repeated by
    another job with one task more."""
    store, found = MemoryStore(), []

    def crash(*_: Any) -> Any:
        raise Crash

    for number, rows in enumerate([*ticks, {}]):
        end = number == len(ticks)
        if crashes:
            with pytest.raises(Crash):
                LocalJob(plan, store, partitions=tasks(number)).tick(
                    arriving(**rows), end=end, to_sinks=SinkStaging(crash)
                )
        job = LocalJob(plan, store, partitions=tasks(number) + crashes)
        output = job.tick(arriving(**rows), end=end)
        check_account(output)
        account = output.result.queries[QUERY].account
        found.append((bag(output), read_retained_rows(job, store), account))
    return found


def cut(streams: Streams, names: str) -> list[dict[str, Sequence[dict[str, Any]]]]:
    left, right = streams.cut()
    rows = {"l": left, "r": right, "s": [streams.right[n::8] for n in range(8)]}
    by_name = {name: rows[name] for name in names}
    return [{name: ticks[n] for name, ticks in by_name.items()} for n in range(8)]


def plan_for(text: str, names: str) -> JobPlan:
    return plan_of(text, {name: stream(100) for name in names})


def split_as_unsplit(text: str, names: str, streams: Streams, *, crashes: bool = False) -> bool:
    ticks, plan = cut(streams, names), plan_for(text, names)
    want = run(plan, ticks, lambda number: 1)
    got = run(plan, ticks, lambda number: HOT_TASKS[number % len(HOT_TASKS)], crashes=crashes)
    return want == got


@pytest.mark.parametrize("on", [KEYED, pytest.param(RICH, marks=pytest.mark.full)], ids=["keyed", "rich"])
@pytest.mark.parametrize("kind", at_effort(quick=["FULL", "LEFT ANTI"], full=KINDS))
def test_every_tick_is_as_of_one_task(streams: Streams, kind: str, on: str, splits: Splits) -> None:
    assert split_as_unsplit(build_join_query(kind, on), "lr", streams)
    assert len(splits.keys) > 20


@pytest.mark.full
@pytest.mark.parametrize("kind", ["INNER", "LEFT", "FULL"])
def test_chains(streams: Streams, kind: str, splits: Splits) -> None:
    assert split_as_unsplit(CHAIN.format(kind=kind), "lrs", streams)
    assert splits.keys


def test_rows_that_come_below_limits_from_above_match(streams: Streams, splits: Splits) -> None:
    """In their own tick: what they match counts as matched, though its owner found that out by asking."""
    assert split_as_unsplit(FROM_ABOVE, "lrs", streams)
    assert splits.keys


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_joined_with_itself(streams: Streams, kind: str, splits: Splits) -> None:
    text = SELF.format(kind=kind)
    if kind in ("LEFT SEMI", "LEFT ANTI"):
        text = text.replace(", m.i AS mi", "")
    assert split_as_unsplit(text, "l", streams)


@pytest.mark.parametrize("kind", at_effort(quick=["FULL"], full=KINDS))
def test_ticks_that_crashed_are_repeated_by_other_tasks(streams: Streams, kind: str, splits: Splits) -> None:
    assert split_as_unsplit(build_join_query(kind), "lr", streams, crashes=True)
    assert splits.keys


@pytest.mark.parametrize("hot", ["l", "r"])
@pytest.mark.parametrize("kind", at_effort(quick=["LEFT"], full=KINDS))
def test_the_lesser_side_of_a_key_is_whole(streams: Streams, kind: str, hot: str, splits: Splits) -> None:
    """One side has a tenth of its rows only: all tasks have it, but for the left one of a SEMI join."""
    few = "r" if hot == "l" else "l"
    rows = streams.left if few == "l" else streams.right
    rows[:] = rows[::10]
    assert split_as_unsplit(build_join_query(kind), "lr", streams)
    sides = Counter(key.whole for key in splits.keys)
    wanted = Side.RIGHT if few == "r" or kind == "LEFT SEMI" else Side.LEFT
    assert sides[wanted] > sides[wanted.other]


# Planted bugs: each is found.


@pytest.mark.full
def test_rows_that_two_tasks_own_are_found(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    real = repartition.SplitRows.parts

    def with_those_before(self: repartition.SplitRows, rows: Any) -> Sequence[tuple[int, int]]:
        parts: list[tuple[int, int]] = []
        owners = [replace(self, partition=number) for number in range(self.partition + 1)]
        for first, end in sorted(part for owner in owners for part in real(owner, rows)):
            if parts and first <= parts[-1][1]:
                first, end = parts[-1][0], max(parts.pop()[1], end)
            parts.append((first, end))
        return parts

    monkeypatch.setattr(repartition.SplitRows, "parts", with_those_before)
    with pytest.raises(Exception):  # noqa: B017, PT011 the account, or a check before it
        assert split_as_unsplit(build_join_query("FULL"), "lr", streams)


@pytest.mark.full
def test_parts_that_nobody_looks_through_are_found(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "split_hot_keys", lambda *args: (repartition.split_hot_keys(*args)[0], {}))
    assert not split_as_unsplit(build_join_query("INNER"), "lr", streams)


@pytest.mark.full
def test_marks_that_are_lost_are_found(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = broadcast.settle_broadcast_marks
    monkeypatch.setattr(join, "settle_broadcast_marks", lambda *args: settle(*args[:-1], MarkWriter()))
    assert not split_as_unsplit(build_join_query("FULL"), "lr", streams)


@pytest.mark.full
def test_marks_of_the_last_task_alone_are_found(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_runs, "overlap", lambda segments: False)
    real = broadcast.settle_broadcast_marks

    def settle(shape: Any, share: Any, side: Any, *more: Any) -> None:
        real(shape, share, side, *more)
        share.report.side(side).together = False

    monkeypatch.setattr(join, "settle_broadcast_marks", settle)
    assert not split_as_unsplit(build_join_query("FULL", RICH), "lr", streams)


@pytest.mark.full
def test_matches_that_owners_do_not_ask_for_are_found(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "settle_broadcast_marks", settle_without_asking)
    assert not split_as_unsplit(build_join_query("FULL"), "lr", streams)


@pytest.mark.full
def test_hashes_that_are_not_left_to_the_parts_are_found(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = repartition.SplitRows.parts

    def parts(self: repartition.SplitRows, rows: Any) -> Sequence[tuple[int, int]]:
        low, high = HashRange.of(self.own, rows)
        return [*real(self, rows), (low, high)] if low < high else real(self, rows)

    monkeypatch.setattr(repartition.SplitRows, "parts", parts)
    with pytest.raises(Exception):  # noqa: B017, PT011 the account, or a check before it
        assert split_as_unsplit(build_join_query("FULL"), "lr", streams)
