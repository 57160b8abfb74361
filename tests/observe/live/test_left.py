"""How much is left, as ticks tell."""

from __future__ import annotations

import pytest

from watersmeet.observe.live.totals import RemainingInput
from watersmeet.observe.progress import Backlog, TickReport


def after(*ticks: tuple[dict[str, int], dict[str, tuple[int, str]]]) -> RemainingInput:
    left = RemainingInput()
    for n, (rows, backlog) in enumerate(ticks):
        told = {name: Backlog(count, of) for name, (count, of) in backlog.items()}
        left = left.after(TickReport(n, 1.0, (), rows, {}, backlog=told))
    return left


def test_rows_are_known_at_once():
    left = after(({"a": 100}, {"a": (300, "rows")}))
    assert (left.done, left.seconds(50), left.seconds(0)) == (0.25, 6.0, None)


def test_files_are_reckoned_by_those_that_were_read():
    """Ten files of 50 rows each, of which two were read in the first tick: how many is not told."""
    first = after(({"a": 100}, {"a": (8, "files")}))
    assert (first.unread, first.done, first.seconds(9)) == (None, None, None)
    second = after(({"a": 100}, {"a": (8, "files")}), ({"a": 150}, {"a": (5, "files")}))
    assert (second.unread, second.done) == (250.0, 0.5)


def test_newly_listed_files_are_added_to_the_backlog():
    ticks = [({"a": 100}, {"a": (8, "files")}), ({"a": 100}, {"a": (6, "files")})]
    more = after(*ticks, ({"a": 100}, {"a": (20, "files")}))
    assert more.unread == pytest.approx(20 * 50)
    assert after(*ticks, ({"a": 300}, {"a": (0, "files")})).done == 1.0


def test_what_nobody_tells_is_not_known():
    assert after(({"a": 5}, {})).done is None
    assert after(({}, {"a": (0, "files")})).done == 1.0
    both = after(({"a": 5, "b": 5}, {"a": (2, "files"), "b": (5, "rows")}))
    assert both.done is None
