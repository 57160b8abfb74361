"""Ticks that are refused because too many records do not parse."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tests.support.ticks import QUERY, plan_of
from watersmeet.errors import EngineError, SqlError
from watersmeet.parser.ddl.settings import Settings
from watersmeet.runtime.coordinator.limits import check_broken
from watersmeet.runtime.coordinator.results import rows_read
from watersmeet.runtime.messages.reports import IngestReport

JOIN = "SELECT l.i AS a, r.i AS b FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5"


def check(refused, now, *, before=None, limit="none", ends=None):
    """A tick is refused with that code, or not; ``now``, ``before``: counts of the input l."""
    settings = Settings()
    settings.set("max_broken", limit)
    plan = plan_of(JOIN)
    for query in plan.queries:
        object.__setattr__(query, "options", settings.options)
    report = IngestReport(arrangement=f"{QUERY}/l", branch=0, counts=now, broken_text="{x")
    state = SimpleNamespace(queries={QUERY: SimpleNamespace(account={"l": before})}) if before else None
    with pytest.raises(EngineError, match=r"\{x") if refused else nullcontext() as error:
        check_broken(plan, state, rows_read(plan, [report]), [report], ends)
    assert error is None or (error.value.code, bool(error.value.hint)) == (refused, True)


ALL, MAX = "all-records-broken", "max-broken"


@pytest.mark.parametrize(
    ("now", "before", "is_last", "code"),
    [
        ({"in": 100, "broken": 100}, None, False, ALL),
        ({"in": 99, "broken": 99}, None, False, None),
        ({"in": 99, "broken": 99}, None, True, ALL),
        ({"in": 1, "broken": 1}, None, True, ALL),
        ({"in": 3, "broken": 1, "skipped": 2}, None, True, ALL),
        ({"in": 2, "broken": 1, "kept": 1}, None, True, None),
        ({"in": 5, "broken": 5}, {"in": 4, "broken": 3, "skipped": 1}, True, ALL),
        ({"in": 5, "broken": 5}, {"in": 4, "broken": 3, "matched": 1}, True, None),
        ({"in": 500, "broken": 500}, {"in": 4, "broken": 4}, False, None),
        ({"in": 2, "skipped": 2}, None, True, None),
    ],
)
def test_a_source_none_of_whose_records_parses(now, before, is_last, code):
    """From 100 records of its first tick on, or where a bounded run has read all that there is."""
    check(code, now, before=before, ends=lambda name: is_last and name == "l")
    if not is_last:
        check(code, now, before=before)


@pytest.mark.parametrize(
    ("limit", "now", "before", "code"),
    [
        ("3", {"in": 9, "broken": 3}, None, None),
        ("3", {"in": 9, "broken": 4}, None, MAX),
        ("0", {"in": 9, "broken": 1}, None, MAX),
        ("3", {"in": 9, "broken": 1}, {"in": 9, "broken": 3}, MAX),
        ("3", {"in": 9}, {"in": 9, "broken": 4}, None),  # it was higher when they came
        ("10 %", {"in": 99, "broken": 50}, None, None),  # too few to tell
        ("10 %", {"in": 100, "broken": 10}, None, None),
        ("10 %", {"in": 100, "broken": 11}, None, MAX),
        ("0.1", {"in": 10, "broken": 2}, {"in": 90, "broken": 9}, MAX),
        ("none", {"in": 1_000, "broken": 999}, None, None),
    ],
)
def test_max_broken_counts_since_the_start(limit, now, before, code):
    check(code, now, before=before, limit=limit)


@pytest.mark.parametrize("wrong", ["many", "-1", "101 %", "1.5", ""])
def test_what_max_broken_cannot_be(wrong):
    with pytest.raises(SqlError, match="max_broken") as refused:
        Settings().set("max_broken", wrong)
    assert "'1 %'" in (refused.value.hint or "")
