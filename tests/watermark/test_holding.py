"""Who holds a watermark back: said only where it is true."""

from __future__ import annotations

from watersmeet.watermark.holders import SILENT_US, find_holders, find_unheard_partitions
from watersmeet.watermark.tracker import BranchProgress, BranchRules, advance, fresh_input

S = 1_000_000
SILENT = SILENT_US // S


class Input:
    def __init__(self, *rules: BranchRules) -> None:
        self.rules = list(rules)
        self.state = fresh_input(rules, 0)

    def tick(self, clock, *branches, idle=None):
        """The partitions named, after a tick of rows per branch: {partition: time}."""
        seen = {
            ("a", number): BranchProgress(greatest={p: {"t": t} for p, t in rows.items()}, idle=idle)
            for number, rows in enumerate(branches)
        }
        advance({"a": self.state}, {"a": self.rules}, seen, clock * S)
        names = ["s", "u"][: len(self.rules)]
        return {
            f"{each.source}/{each.partition}": each.since_us
            for each in find_holders(self.state, self.rules, names, clock * S)
        }


def rules(*partitions, timeout=None):
    return BranchRules({"t": 0}, timeout, partitions=partitions)


def test_nobody_before_there_are_rows():
    assert Input(rules("p", "q")).tick(0, {}) == {}


def test_a_partition_without_any_row_where_another_has_some():
    source = Input(rules("p", "q", "r"))
    assert source.tick(0, {"p": 10}) == {"s/q": None, "s/r": None}
    assert source.tick(0, {"q": 10}) == {"s/r": None}
    assert source.tick(0, {"r": 5}) == {}


def test_a_partition_that_falls_silent_and_is_least():
    source = Input(rules("p", "q"))
    source.tick(0, {"p": 10, "q": 5})
    assert source.tick(SILENT - 1, {"p": 20}) == {}
    assert source.tick(SILENT, {"p": 30}) == {"s/q": 0}
    assert source.tick(SILENT + 1, {"q": 25}) == {}, "it is least, but has rows"


def test_a_silent_one_that_is_ahead_holds_nothing():
    source = Input(rules("p", "q"))
    source.tick(0, {"p": 10, "q": 500})
    assert source.tick(SILENT, {"p": 20}) == {}


def test_equal_ones_hold_nothing_back():
    source = Input(rules("p", "q"))
    source.tick(0, {"p": 10, "q": 10})
    assert source.tick(SILENT, {}) == {}


def test_idle_ones_hold_nothing():
    source = Input(rules("p", "q", timeout=SILENT * S))
    source.tick(0, {"p": 10, "q": 5})
    assert source.tick(SILENT, {"p": 20}) == {}
    assert source.tick(2 * SILENT, {}) == {}, "all are idle"


def test_slowest_branch_holds_the_union_watermark():
    union = Input(rules(), rules())
    assert union.tick(0, {"": 10}, {}) == {"u/": None}
    assert union.tick(0, {}, {"": 4}) == {}
    assert union.tick(SILENT, {"": 20}, {}) == {"u/": 0}
    assert union.tick(SILENT, {}, {"": 30}) == {}


def test_who_has_nothing_to_be_read_at_the_start():
    source = Input(rules("p", "q", "r"))

    def list_silent_partitions(**unread):
        return [each.partition for each in find_unheard_partitions(source.state, source.rules, ["s"], unread)]

    assert list_silent_partitions(s=("p",)) == ["q", "r"]
    assert list_silent_partitions() == [], "nothing is known of the source"
    source.tick(0, {"p": 1, "q": 1})
    assert list_silent_partitions(s=()) == ["r"]
    source.tick(0, {}, idle=("r",))
    assert list_silent_partitions(s=()) == []
