"""Notices of a run about its records, by the results of ticks."""

from __future__ import annotations

import pytest

from watersmeet.runtime.coordinator.results import Broken, RoundedDecimals, TickResult
from watersmeet.runtime.messages.reports import BrokenFile
from watersmeet.runtime.spark.job.listeners import RunListeners
from watersmeet.runtime.spark.job.settings import RunSettings


def test_all_broken_tick_after_a_good_tick_is_reported_again():
    """Such as a file that another program wrote; but not each of many."""
    notes: list[str] = []
    telling = RunListeners(RunSettings("nowhere", on_notice=notes.append))
    for tick, (rows, broken) in enumerate([(9, 1), (5, 5), (4, 4), (0, 0), (3, 3), (7, 0), (2, 2), (6, 1)]):
        found = {"a": Broken(broken, "{x", broken == rows)} if broken else {}
        telling.ended(TickResult(tick, 0, {}, False, {"a": rows}, found), dict)
    told = [note.partition(" did")[0] for note in notes]
    assert told == [
        '"a": 1 of 9 records of tick 0',
        '"a": 5 of 5 records of tick 1',
        '"a": 2 of 2 records of tick 6',
    ]


def test_files_without_a_record_that_parses_are_named_and_less_often_where_they_are_many():
    notes: list[str] = []
    telling = RunListeners(RunSettings("nowhere", on_notice=notes.append))
    for tick, files in enumerate([1, 0, 1, 1, 2, 9]):
        named = tuple(BrokenFile(name=f"/in/{tick}{n}", rows=2, text="{x") for n in range(files))
        broken = Broken(5, "{y", False, named, tick == 5)
        telling.ended(TickResult(tick, 0, {}, False, {"a": 9}, {"a": broken}), dict)
    assert notes[1:] == [
        '"a": tick 0: no row of /in/00 (2 records) parses, such as {x',
        '"a": tick 2: no row of /in/20 (2 records) parses, such as {x; 2 such files so far',
        '"a": tick 4: no row of 2 files, first /in/40 (2 records), parses, such as {x; 5 such files so far',
        '"a": tick 5: no row of 9 or more files, first /in/50 (2 records), parses, such as {x; 14 such'
        " files so far",
    ]


@pytest.mark.parametrize("of_files", [False, True])
def test_first_tick_with_rounded_decimals_is_reported(of_files):
    notes: list[str] = []
    telling = RunListeners(RunSettings("nowhere", on_notice=notes.append))
    for tick, rows in enumerate([1, 1_000]):
        rounded = {"a": RoundedDecimals(rows, "price 1.239", of_files)}
        telling.ended(TickResult(tick, 0, {}, False, {"a": rows}, rounded=rounded), dict)
    twice = "; files of ticks with exact halves, such as 1.005 for DECIMAL(9,2), are read twice"
    assert notes == [
        '"a": decimals of 1 row of tick 0 have more digits after the point than declared and were'
        " rounded, for example price 1.239. To keep all digits, declare a larger"
        f" scale{twice * of_files}"
    ]
