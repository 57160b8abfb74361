"""Which runs are merged when; and that merging changes nothing but the runs."""

from __future__ import annotations

import pytest

from tests.support.ticks import (
    QUERY,
    arriving,
    bag,
    check_account,
    plan_of,
)
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.coordinator.merge_policy import (
    COMBINING_FAN_IN,
    FAN_IN,
    SMALL_ROWS,
    choose_merges,
)
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.tasks import merge
from watersmeet.runtime.tasks.merge import GROUP_ROWS
from watersmeet.state.manifest import LiveRun
from watersmeet.state.runs.layout import Run
from watersmeet.state.store import MemoryStore


def live(name, rows, *, group=None, released=0, stands_for=None):
    run = Run(
        name=name, rows=rows, nbytes=1, checksum=0, tick=1, index="t", base=0, shift=0, low=0, high=0,
        spans={}, group=group or name, stands_for=stands_for,
    )  # fmt: skip
    return LiveRun(run=run, released=released)


def runs(count, rows, prefix="r"):
    return [live(f"{prefix}{number}", rows) for number in range(count)]


def names(live_runs):
    return [each.run.name for each in live_runs]


def test_fewer_than_the_fan_in_are_left_alone():
    assert choose_merges(runs(FAN_IN - 1, 10)) == []


def test_small_runs_are_of_one_tier():
    some = [*runs(FAN_IN - 1, 1, "a"), live("b", SMALL_ROWS)]
    assert choose_merges(some) == [names(some)]


def test_tiers_are_merged_apart():
    small, large = runs(FAN_IN, 10, "s"), runs(FAN_IN, SMALL_ROWS * 2, "l")
    mixed = [run for pair in zip(small, large, strict=True) for run in pair]
    assert sorted(choose_merges(mixed)) == sorted([names(small), names(large)])
    assert choose_merges([*small[:4], *large[:4]]) == []


def test_runs_of_one_merge_count_as_one_group():
    parts = [
        live(f"m{number}/{part}", 10, group=f"m{number}") for number in range(FAN_IN) for part in range(3)
    ]
    assert choose_merges(parts[: 3 * (FAN_IN - 1)]) == []
    assert choose_merges(parts) == [names(parts)]


def test_only_rows_that_are_left_count():
    large = SMALL_ROWS * FAN_IN
    mostly_gone = [live(f"r{number}", large, released=large - 1) for number in range(FAN_IN - 1)]
    assert choose_merges([*mostly_gone, live("small", 1)]) != []


def test_partial_rows_of_no_row_in_sum_are_merged_with_all_others():
    some = [live(f"r{number}", 10, stands_for=number % 2) for number in range(COMBINING_FAN_IN)]
    assert choose_merges(some, combining=True) == [names(some)]


def test_groups_are_not_grown_beyond_the_cap():
    size = GROUP_ROWS // 5
    found = choose_merges(runs(FAN_IN, size))
    assert found == [[f"r{number}" for number in range(5)]]


def test_full_group_does_not_block_later_merges():
    full, others = live("full", GROUP_ROWS - 1), runs(FAN_IN, GROUP_ROWS // 7)
    found = choose_merges([full, *others])
    assert found == [names(others[:7])]


def test_groups_near_the_cap_are_left_alone():
    assert choose_merges(runs(3 * FAN_IN, GROUP_ROWS // 2 + 1)) == []


@pytest.mark.parametrize("sizes", [(1, 5, 40), (100, 5000, 40_000), (300_000, 1_500_000, 2_500_000)])
def test_every_run_is_in_at_most_one_merge(sizes):
    many = [live(f"r{n}", sizes[n % 3], group=f"g{n // 2}") for n in range(100)]
    merged = [name for group in choose_merges(many) for name in group]
    assert len(merged) == len(set(merged))
    assert set(merged) <= set(names(many))


def test_the_number_of_groups_stays_logarithmic():
    """Ticks of 1,000 rows for ever, nothing released: what merging leaves."""
    state: list[LiveRun] = []
    rewritten = 0
    for tick in range(1000):
        for chosen in choose_merges(state):
            gone = [each for each in state if each.run.name in chosen]
            total = sum(each.run.rows for each in gone)
            rewritten += total
            state = [*(each for each in state if each not in gone), live(f"m{tick}-{chosen[0]}", total)]
        state.append(live(f"t{tick}", 1000))
    assert len(state) <= 4 * FAN_IN
    assert rewritten <= 4 * 1_000_000


def test_partial_aggregates_are_combined_sooner_and_however_many_there_are():
    assert choose_merges(runs(COMBINING_FAN_IN - 1, 10), combining=True) == []
    full = runs(COMBINING_FAN_IN, 2 * GROUP_ROWS)
    assert choose_merges(full, combining=True) == [names(full)]


def test_partial_aggregates_of_a_row_each_are_merged_as_seldom_as_rows():
    """Where each is looked up in every tick they are not; nor small ones, nor those that were combined."""
    alone = [live(f"r{n}", 10_000, stands_for=11_000) for n in range(FAN_IN)]
    assert choose_merges(alone[:-1], combining=True, read_once=True) == []
    assert choose_merges(alone, combining=True, read_once=True) == [names(alone)]
    assert choose_merges(alone[:COMBINING_FAN_IN], combining=True) == [names(alone[:COMBINING_FAN_IN])]
    for rows, stands_for in ((SMALL_ROWS, SMALL_ROWS), (10_000, 13_000)):
        others = [live(f"s{n}", rows, stands_for=stands_for) for n in range(COMBINING_FAN_IN)]
        assert choose_merges(others, combining=True, read_once=True) == [names(others)]
    large = [live(f"r{n}", 2 * GROUP_ROWS, stands_for=2 * GROUP_ROWS) for n in range(FAN_IN)]
    assert choose_merges(large, combining=True, read_once=True) == [names(large)], "however many there are"


def test_the_same_groups_for_ever_stay_few_rows():
    """Ticks with partial aggregates of 1,000 of 100,000 groups, and of all of them; none is released."""
    state: list[LiveRun] = []
    groups, rewritten, written = 100_000, 0, 0
    for tick in range(600):
        for chosen in choose_merges(state, combining=True):
            gone = [each for each in state if each.run.name in chosen]
            total = sum(each.run.rows for each in gone)
            rewritten += total
            left = live(f"m{tick}-{chosen[0]}", min(total, groups))
            state = [*(each for each in state if each not in gone), left]
        rows = groups if tick % 50 == 49 else 1000
        state.append(live(f"t{tick}", rows))
        written += rows
        assert sum(each.run.rows for each in state) <= 2.5 * COMBINING_FAN_IN * groups
    assert rewritten <= 5 * written


def test_a_large_merge_of_partial_aggregates_is_done_in_parts(monkeypatch):
    """By ranges of hashes: a group is in one of them."""
    sql = "SELECT k, count(*) AS n FROM TABLE(TUMBLE(TABLE l, DESCRIPTOR(t), 10)) GROUP BY window_end, k"
    job = LocalJob(plan_of(sql), MemoryStore(), partitions=2)
    for _ in range(COMBINING_FAN_IN):
        job.tick(arriving(l=[{"t": 1, "k": f"k{number}"} for number in range(40)]))
    monkeypatch.setattr(merge, "GROUP_ROWS", 30)
    job.tick({})
    found = job.driver.manifest.queries[QUERY].nodes[0].arrangements["l"].runs
    assert len({each.run.group for each in found}) == 1
    assert 5 <= len(found) <= 8
    assert (sum(each.run.rows for each in found), sum(each.run.stands_for for each in found)) == (40, 160)
    assert bag(job.tick({}, end=True)) == {(f"k{number}", COMBINING_FAN_IN): 1 for number in range(40)}


@pytest.fixture
def eager(monkeypatch):
    """Every tick merges all that there is."""
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    monkeypatch.setattr(merge_policy, "SMALL_ROWS", 10**9)


BAND = "l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5"


def row(number, time, key="a"):
    return {"t": time, "k": key, "v": number, "i": number}


@pytest.mark.parametrize("partitions", [1, 3])
def test_merged_runs_keep_rows_marks_and_limits(eager, partitions):
    """A row that matched long ago, two merges later, is not padded; one that did not is, once."""
    plan = plan_of(f"SELECT l.i AS a, r.i AS b FROM l FULL JOIN r ON {BAND}")
    job = LocalJob(plan, MemoryStore(), partitions=partitions)
    job.tick(arriving(l=[row(1, 100), row(2, 100, "b")], r=[row(1, 100)]))
    for number in range(3, 7):
        job.tick(arriving(l=[row(number, 100, f"x{number}")]))
        check_account(job.tick({}))
    runs = job.driver.manifest.queries[QUERY].nodes[0].arrangements["l"].runs
    assert len(runs) < 5
    assert max(each.run.level for each in runs) >= 2
    last = job.tick({}, end=True)
    assert bag(last) == {(number, None): 1 for number in range(2, 7)}
    check_account(last)


def test_a_merge_drops_released_rows(eager):
    plan = plan_of(f"SELECT l.i AS a FROM l JOIN r ON {BAND}")
    job = LocalJob(plan, MemoryStore())
    job.tick(arriving(l=[row(1, 0), row(2, 1000)], r=[row(1, 0)]))
    job.tick(arriving(l=[row(3, 1000)]))
    job.tick(arriving(r=[row(2, 500)]))  # releases row 1 of l
    job.tick({})
    runs = job.driver.manifest.queries[QUERY].nodes[0].arrangements["l"].runs
    assert [(each.run.rows, each.released) for each in runs] == [(2, 0)]
    assert job.state[QUERY] == {"l": 2, "r": 0}


def test_a_merge_in_which_nothing_is_left_leaves_no_run(eager):
    plan = plan_of(f"SELECT l.i AS a FROM l JOIN r ON {BAND}")
    job = LocalJob(plan, MemoryStore())
    job.tick(arriving(l=[row(1, 0)], r=[row(1, 0)]))
    job.tick(arriving(l=[row(2, 1)]))
    job.tick(arriving(l=[row(3, 900)], r=[row(2, 900)]))
    job.tick({})
    runs = job.driver.manifest.queries[QUERY].nodes[0].arrangements["l"].runs
    assert sum(each.run.rows for each in runs) == 1
    assert job.state[QUERY] == {"l": 1, "r": 1}


def test_runs_with_many_released_rows_are_rewritten_for_changing_rows():
    """When one in six of all rows is gone, until it is fewer than one in eleven."""
    often, seldom = live("often", 50_000, released=20_000), live("seldom", 100_000, released=5_000)
    parts = [live(f"part {n}", 25_000, group="parts", released=5_000) for n in range(2)]
    state = [often, *parts, seldom]
    assert choose_merges(state) == []
    assert choose_merges(state, changing=True) == [["often"]]
    halved = [live("often", 50_000, released=10_000), *parts, seldom]
    assert choose_merges(halved, changing=True) == []
    more = [often, *parts, live("seldom", 100_000, released=11_000)]
    assert choose_merges(more, changing=True) == [["often", "part 0", "part 1"]]
    few = [live("few", 3_000, released=2_900)]
    assert choose_merges(few, changing=True) == []


def test_what_is_merged_anyway_is_not_cleared_twice():
    state = [live(f"small {n}", 9_000, released=8_000) for n in range(FAN_IN)]
    assert choose_merges(state, changing=True) == [names(state)]


def test_runs_that_stand_for_no_row_are_cleared_by_themselves():
    rows, deletes = live("rows", 20_000, released=9_000), live("deletes", 20_000, released=9_000)
    deletes.run = deletes.run.model_copy(update={"stands_for": 0})
    assert choose_merges([rows, deletes], changing=True) == [["rows"], ["deletes"]]
