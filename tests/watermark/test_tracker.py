"""Watermarks from sources: each rule of semantics.md, section 4, as a table of ticks.

A tick is (clock in s, {partition: greatest time}, what else, the watermark expected after it).
"""

from __future__ import annotations

from copy import deepcopy

import pytest

from watersmeet.event_time import ENDED, MAX_TIME, MIN_TIME, NEVER
from watersmeet.watermark.tracker import (
    BranchProgress,
    BranchRules,
    BranchState,
    InputState,
    PartitionState,
    advance,
    branches_going_idle,
    end,
    fresh_input,
    pause,
    wake,
)

S = 1_000_000


class Input:
    """One input with one branch per rules, moved tick by tick."""

    def __init__(self, *rules: BranchRules, started: int = 0) -> None:
        self.rules = {"a": list(rules)}
        self.inputs = {"a": fresh_input(rules, started * S)}

    def tick(self, clock, *seen: BranchProgress | None):
        per_branch = {("a", number): each for number, each in enumerate(seen) if each is not None}
        advance(self.inputs, self.rules, per_branch, clock * S)
        return self.inputs["a"].watermarks["t"]


def rules(lag=0, **more):
    return BranchRules(lags={"t": lag}, **more)


def rows(idle=None, busy=(), advances=None, **greatest):
    return BranchProgress(
        greatest={"" if name == "none" else name: {"t": time} for name, time in greatest.items()},
        idle=idle,
        busy=busy,
        advances=advances or {},
    )


def run(table, *, lag=0, **more):
    source = Input(rules(lag, **more))
    for number, (clock, seen, expected) in enumerate(table):
        assert source.tick(clock, seen) == expected, f"tick {number}"


def test_before_the_first_row_there_is_none():
    run([(0, None, NEVER), (100, None, NEVER)])


def test_it_is_the_greatest_time_less_the_lag():
    run([(0, rows(none=10), 7), (0, rows(none=12), 9)], lag=3)


def test_it_never_goes_back():
    run([(0, rows(none=10), 10), (0, rows(none=4), 10), (0, rows(none=11), 11)])


def test_the_lag_saturates():
    run([(0, rows(none=MIN_TIME + 2), MIN_TIME)], lag=5)
    run([(0, rows(none=MAX_TIME), MAX_TIME - 5)], lag=5)


def test_it_is_the_least_over_the_partitions():
    run([(0, rows(p=10, q=4), 4), (0, rows(q=20), 10), (0, rows(p=30), 20)])


def test_a_partition_is_known_from_its_first_row():
    run([(0, rows(p=10), 10), (0, rows(q=3), 10), (0, rows(p=50), 10), (0, rows(q=30), 30)])


def test_declared_partitions_hold_from_the_start():
    run([(0, rows(p=10), NEVER), (0, rows(q=4), 4)], partitions=("p", "q"))


def test_a_partition_declared_later_holds_from_then_on():
    source = Input(rules())
    assert source.tick(0, rows(p=10)) == 10
    source.rules["a"][0] = rules(partitions=("p", "q"))
    assert source.tick(0, rows(p=20)) == 10
    assert source.tick(0, rows(q=15)) == 15


def test_a_row_without_a_time_makes_its_partition_known():
    source = Input(rules())
    source.tick(0, BranchProgress(greatest={"p": {}}))
    assert source.tick(0, rows(q=10)) == NEVER
    assert source.tick(0, rows(p=4)) == 4


@pytest.mark.parametrize("seconds", [9, 10])
def test_a_partition_is_idle_from_its_timeout_on(seconds):
    after = 50 if seconds >= 10 else 4
    run(
        [(0, rows(p=10, q=4), 4), (1, rows(p=50), 4), (seconds, rows(p=50), after)],
        idle_timeout_us=10 * S,
    )


def test_declared_silent_partitions_go_idle_counted_from_the_start():
    run(
        [(0, rows(p=10), NEVER), (4, rows(p=11), NEVER), (5, rows(p=12), 12)],
        partitions=("p", "q"),
        idle_timeout_us=5 * S,
    )


def test_a_row_makes_its_partition_active_again():
    run(
        [
            (0, rows(p=10, q=4), 4),
            (5, rows(p=20), 20),
            (6, rows(q=7), 20),
            (6, rows(p=30), 20),
            (7, rows(q=25), 25),
        ],
        idle_timeout_us=5 * S,
    )


def test_when_the_last_one_goes_idle_the_highest_counts():
    run([(0, rows(p=10, q=4), 4), (5, None, 10)], idle_timeout_us=5 * S)


def test_watermark_of_idle_partitions_does_not_reverse():
    run([(0, rows(p=10, q=4), 4), (5, None, 10), (9, rows(q=6), 10), (20, None, 10)], idle_timeout_us=5 * S)


def test_without_a_timeout_silence_holds_for_ever():
    run([(0, rows(p=10, q=4), 4), (10**6, rows(p=99), 4)])


def test_a_partition_with_unread_rows_is_never_idle():
    run(
        [
            (0, rows(p=10, q=4), 4),
            (9, rows(p=20, busy=("q",)), 4),
            (13, rows(p=30), 4),  # its time starts when it was last known to be busy
            (14, rows(p=40), 40),
        ],
        idle_timeout_us=5 * S,
    )


def test_one_that_was_idle_and_has_unread_rows_again_holds():
    run(
        [(0, rows(p=10, q=4), 4), (5, rows(p=20), 20), (6, rows(p=30, busy=("q",)), 20)],
        idle_timeout_us=5 * S,
    )


def test_partitions_declared_idle():
    run([(0, rows(p=10, q=4), 4), (0, rows(idle=("q",)), 10), (0, rows(q=12, p=11), 11)])


def test_all_of_a_source_declared_idle():
    run([(0, rows(p=10, q=4), 4), (0, rows(idle=()), 10)])


def test_rows_of_the_same_step_come_before_the_declaration():
    run([(0, rows(p=10, q=4), 4), (0, rows(q=6, idle=("q",)), 10)])


def test_explicit_advances_move_a_source_without_a_lag():
    run(
        [(0, rows(none=99), NEVER), (0, rows(advances={"t": 5}), 5), (0, rows(advances={"t": 3}), 5)],
        lag=None,
    )


def test_an_explicit_advance_makes_active_again():
    first, second = BranchRules({"t": None}), BranchRules({"t": None})
    source = Input(first, second)
    source.tick(0, rows(advances={"t": 5}), rows(advances={"t": 8}, idle=()))
    assert source.tick(0, rows(idle=()), None) == 8
    assert source.tick(0, rows(advances={"t": 6}), rows(advances={"t": 20})) == 8
    assert source.tick(0, rows(advances={"t": 9}), None) == 9


def test_the_end_of_input_is_above_all_times():
    source = Input(rules())
    source.tick(0, rows(none=MAX_TIME))
    end(source.inputs, source.rules)
    assert source.inputs["a"].watermarks == {"t": ENDED}
    assert source.tick(1) == ENDED


# several event-time columns


def test_columns_of_one_source_never_mix():
    source = Input(BranchRules({"t": 1, "u": 10}))
    source.tick(0, BranchProgress(greatest={"p": {"t": 100, "u": 50}, "q": {"t": 90, "u": 80}}))
    assert source.inputs["a"].watermarks == {"t": 89, "u": 40}


# UNION ALL


def test_a_union_is_the_least_over_its_branches():
    union = Input(rules(), rules(lag=2))
    assert union.tick(0, rows(p=10), None) == NEVER
    assert union.tick(0, None, rows(p=9)) == 7
    assert union.tick(0, None, rows(p=30)) == 10


def test_a_union_leaves_idle_branches_out_and_takes_the_highest_when_all_are():
    union = Input(rules(), rules())
    union.tick(0, rows(p=10), rows(p=4))
    assert union.tick(0, None, rows(idle=())) == 10
    assert union.tick(0, rows(p=12, idle=()), None) == 12
    assert union.tick(0, None, rows(p=6)) == 12


def test_a_branch_of_one_partition_goes_idle_without_ever_a_row():
    one = rules(idle_timeout_us=2 * S, partitions=("",))
    union = Input(one, one)
    assert union.tick(0, rows(none=10), None) == NEVER
    assert union.tick(1, rows(none=11), None) == NEVER
    assert union.tick(2, rows(none=12), None) == 12
    assert union.tick(3, rows(none=13), rows(none=4)) == 12, "it holds again"
    assert union.tick(4, rows(none=14), rows(none=20)) == 14


def test_a_branch_with_partitions_that_has_shown_none_holds():
    """Which there are is known from their first rows: nothing says yet that one is silent."""
    union = Input(rules(idle_timeout_us=S), rules(idle_timeout_us=S))
    assert union.tick(0, rows(p=10), None) == NEVER
    assert union.tick(100, rows(p=11), None) == NEVER


# on_idle = "follow"


def two_inputs(**follower):
    own = {"a": [rules()], "b": [rules(**follower)]}
    states = {alias: fresh_input(each, 0) for alias, each in own.items()}

    def tick(a=None, b=None):
        seen = {(alias, 0): each for alias, each in (("a", a), ("b", b)) if each is not None}
        advance(states, own, seen, 0)
        return states["b"].watermarks["t"]

    return states, tick


def test_an_idle_follower_goes_with_the_least_active_one():
    _, tick = two_inputs(follow_when_idle=True)
    assert tick(rows(p=10), rows(p=4)) == 4
    assert tick(rows(p=20), rows(idle=())) == 20
    assert tick(rows(p=30)) == 30
    assert tick(rows(p=40), rows(p=5)) == 30  # active: its own again, never back


def test_a_follower_keeps_its_own_when_that_is_higher():
    _, tick = two_inputs(follow_when_idle=True)
    tick(rows(p=10), rows(p=50))
    assert tick(None, rows(idle=())) == 50


def test_a_follower_stays_when_no_source_is_active():
    _, tick = two_inputs(follow_when_idle=True)
    tick(rows(p=10), rows(p=4))
    assert tick(rows(idle=()), rows(idle=())) == 4


def test_who_holds_does_not_follow():
    _, tick = two_inputs()
    tick(rows(p=10), rows(p=4))
    assert tick(rows(p=20), rows(idle=())) == 4


def test_the_least_over_all_event_times_of_the_active_ones_is_followed():
    own = {"a": [BranchRules({"t": 0, "u": 0})], "b": [rules(follow_when_idle=True)]}
    states = {alias: fresh_input(each, 0) for alias, each in own.items()}
    seen = {("a", 0): BranchProgress(greatest={"": {"t": 30, "u": 20}}), ("b", 0): rows(p=4, idle=())}
    advance(states, own, seen, 0)
    assert states["b"].watermarks["t"] == 20


# restart


def test_restart_resets_idle_time_of_active_partitions():
    source = Input(rules(idle_timeout_us=5 * S))
    source.tick(0, rows(p=10, q=4))
    wake(source.inputs.values(), 100 * S)
    assert source.tick(104, rows(p=11)) == 4
    assert source.tick(105, rows(p=12)) == 12


def test_after_a_restart_idle_partitions_are_still_idle():
    source = Input(rules(idle_timeout_us=5 * S))
    source.tick(0, rows(p=10, q=4))
    assert source.tick(5, rows(p=11)) == 11
    wake(source.inputs.values(), 100 * S)
    assert source.tick(100, rows(p=12)) == 12


# what is no silence


def test_of_a_pause_half_a_timeout_counts():
    source = Input(rules(idle_timeout_us=10 * S))
    source.tick(0, rows(p=10, q=4))
    pause(source.inputs, source.rules, 3600 * S)
    assert source.tick(3600, rows(p=20)) == 4
    assert source.tick(3604, rows(p=30)) == 4
    assert source.tick(3605, rows(p=40)) == 40


def test_a_pause_within_half_a_timeout_counts_in_full():
    source = Input(rules(idle_timeout_us=10 * S))
    source.tick(0, rows(p=10, q=4))
    for second in (5, 10):
        pause(source.inputs, source.rules, 5 * S)
        found = source.tick(second, rows(p=10 + second))
    assert found == 20


def test_who_would_go_idle_is_known_before():
    source = Input(rules(idle_timeout_us=5 * S), rules())
    source.tick(0, rows(p=10, q=4), rows(p=1))

    def find_idle_branches(clock, **greatest):
        return branches_going_idle(source.inputs, source.rules, {("a", 0): rows(**greatest)}, clock * S)

    assert find_idle_branches(4) == []
    assert find_idle_branches(5, p=11) == [("a", 0)]
    assert find_idle_branches(5, p=11, q=11) == []
    source.tick(5, rows(p=20), rows(p=20))
    assert find_idle_branches(9, p=30) == [], "q is idle already"


def test_what_an_earlier_attempt_decided_counts():
    source = Input(rules(idle_timeout_us=5 * S, partitions=("p", "q", "new")))
    source.tick(0, BranchProgress(greatest={"p": {"t": 10}, "q": {"t": 4}}, decided={"p": False, "q": False}))
    assert source.inputs["a"].watermarks == {"t": 4}, "what is new waits for the next tick"
    decided = BranchProgress(greatest={"p": {"t": 20}}, decided={"p": False, "q": True})
    assert source.tick(1, decided) == 20
    assert source.tick(2, rows(q=30)) == 20
    assert set(source.inputs["a"].branches[0].partitions) == {"p", "q", "new"}


def test_a_copy_of_a_state_moves_by_itself():
    state = InputState([BranchState({"p": PartitionState({"t": 3}, heard_at_us=2)}, {"t": 1})], {"t": 1})
    before = deepcopy(state)
    copy = state.copy()
    assert copy == state
    copy.watermarks["t"] = copy.branches[0].watermarks["t"] = 9
    copy.branches[0].partitions["p"].greatest["t"] = 9
    copy.branches[0].partitions["p"].idle = True
    copy.branches[0].partitions["q"] = PartitionState()
    assert state == before
