"""Joins that would grow without limit are refused, with a hint that would do."""

from dataclasses import replace

import pytest

from tests.plan.building import INTS, STAMPS, job, plan_sql, plan_two_way_join, stream
from watersmeet.errors import PlanError, SeveralErrors
from watersmeet.plan.planner import plan_job
from watersmeet.spec.model import Options, OutputMode

LIMITLESS = "state would grow without limit"


def message(on, left=INTS, right=INTS, kind=""):
    with pytest.raises((PlanError, SeveralErrors)) as caught:
        plan_two_way_join(on, left, right, kind)
    return str(caught.value)


def test_error_names_both_unbounded_sides():
    text = message("l.k = r.k")
    assert text.count(LIMITLESS) == 1
    assert 'input "l" (source "l_source") and input "r" (source "r_source")' in text
    assert "AND r.t BETWEEN l.t - 10 AND l.t + 10" in text


def test_error_names_only_the_unbounded_side():
    text = message("l.t >= r.t")
    assert text.count(LIMITLESS) == 1
    assert 'input "r"' in text


@pytest.mark.parametrize(
    ("on", "reason"),
    [
        ("l.t = r.t OR l.k = r.k", "it is part of an OR"),
        ("NOT l.t = r.t", "it is negated"),
        ("r.t BETWEEN l.t AND l.t + l.v", "its distance is not constant (l.v)"),
        ("l.v BETWEEN r.t - 1 AND r.t + 1", "l.v has no watermark"),
        ("2 * l.t >= r.t", "does not have the form"),
        ("r.t >= r.v", "it mentions r alone"),
    ],
)
def test_why_a_condition_does_not_count(on, reason):
    assert reason in message(on)


def test_months_have_no_length():
    assert "months and years" in message("l.ts BETWEEN r.ts - INTERVAL '1' MONTH AND r.ts", STAMPS, STAMPS)


def test_hints_are_in_the_units_of_the_times():
    assert "AND r.ts BETWEEN l.ts - INTERVAL '1' HOUR AND" in message("l.k = r.k", STAMPS, STAMPS)
    assert "AND r.day BETWEEN l.day - INTERVAL '1' DAY AND" in message(
        "l.k = r.k", *[{"*day": "DATE", "k": "STRING"}] * 2
    )
    assert "to the same type" in message("l.k = r.k", INTS, STAMPS)


def test_an_input_without_event_time():
    text = message("l.t = r.t", {"t": "BIGINT"}, INTS)
    assert "has no event time" in text
    assert "WATERMARK FOR" in text


def test_the_hint_would_do():
    hint = message("l.t >= r.t").rsplit("AND ", 1)[1]
    assert plan_two_way_join(f"l.t >= r.t AND {hint}").bounds


APPEND = Options(output_mode=OutputMode.APPEND)
CHANGELOG = Options(output_mode=OutputMode.CHANGELOG)


def test_tables_need_no_bound_but_cannot_append():
    tables = stream("l", {"k": "STRING"}, is_table=True), stream("r", {"k": "STRING"}, is_table=True)
    plan = plan_sql("SELECT l.k FROM l FULL JOIN r ON l.k = r.k", *tables, options=CHANGELOG)
    assert plan.root.bounds == ()
    with pytest.raises(PlanError, match="append-of-updates"):
        plan_sql("SELECT l.k FROM l FULL JOIN r ON l.k = r.k", *tables, options=APPEND)
    assert plan_sql("SELECT l.k FROM l FULL JOIN r ON l.k = r.k", *tables).options == CHANGELOG


def test_stream_joined_with_table_has_an_as_of_hint():
    with pytest.raises(PlanError, match=LIMITLESS) as caught:
        plan_sql(
            "SELECT l.k FROM l JOIN r ON l.k = r.k",
            stream("l", INTS),
            stream("r", {"k": "STRING"}, is_table=True),
            options=CHANGELOG,
        )
    assert "FOR SYSTEM_TIME AS OF" in (caught.value.hint or "")


def test_join_with_deletes_retains_whole_rows():
    inputs = stream("l", INTS, changes=True), stream("r", INTS)
    plan = plan_sql("SELECT l.t FROM l JOIN r ON l.t = r.t", *inputs, options=CHANGELOG)
    assert plan.root.left.kept == ("t", "k", "v")
    assert plan.root.right.kept == ("t",)


def test_every_join_of_many_inputs_has_to_be_bounded():
    inputs = [stream(alias, INTS) for alias in "abc"]
    plan_sql("SELECT a.t FROM a JOIN b ON a.t = b.t JOIN c ON c.t = b.t", *inputs)
    plan_sql("SELECT a.t FROM a JOIN b ON a.t = b.t JOIN c ON c.t = b.t", *inputs, options=CHANGELOG)
    with pytest.raises(PlanError, match=LIMITLESS):
        plan_sql("SELECT a.t FROM a JOIN b ON a.t = b.t JOIN c ON c.k = b.k", *inputs)


def test_a_sink_of_topics_needs_unique_names():
    asked = job(
        "SELECT l.t, r.t FROM l JOIN r ON l.t = r.t", stream("l", INTS), stream("r", INTS), connector="kafka"
    )
    with pytest.raises(SeveralErrors, match=r"comes from l\.t and r\.t"):  # its topic is missing, too
        plan_job(asked)


def test_problems_of_all_queries_come_together():
    asked = job("SELECT l.t FROM l JOIN r ON l.k = r.k", stream("l", INTS), stream("r", INTS))
    (insert,) = asked.inserts
    both = (replace(insert, name="first"), replace(insert, name="second"))
    with pytest.raises(SeveralErrors) as caught:
        plan_job(type(asked)(both))
    named = [error.message.split(":")[0] for error in caught.value.errors]
    assert named == ['query "first"', 'query "second"']
