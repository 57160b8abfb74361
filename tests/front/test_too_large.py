"""Texts that are too much: views that double each other, and what is nested too deeply."""

from __future__ import annotations

import time

import pytest

from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import EngineError, SqlError, WatersmeetError
from watersmeet.parser.query import flow, inline, joins
from watersmeet.parser.statements import parse_job
from watersmeet.plan.conditions.bands import closure_of
from watersmeet.plan.planner import plan_job

TABLE = "CREATE TABLE t (a INT, s TIMESTAMP, WATERMARK FOR s AS s) TYPE Memory;\n"


def build_view_chain(views: int) -> str:
    later = "".join(f"CREATE VIEW v{n + 1} AS SELECT a + a AS a, s FROM v{n};\n" for n in range(views))
    return f"{TABLE}CREATE VIEW v0 AS SELECT a, s FROM t;\n{later}SELECT a FROM v{views};"


def seconds_to_read(columns: int) -> float:
    listed = ", ".join(f"c{number} BIGINT" for number in range(columns))
    before = time.process_time()
    job = parse_job(TABLE.replace("a INT", f"a INT, {listed}") + "SELECT * FROM t;")
    assert len(job.inserts[0].query.outputs) == columns + 2
    return time.process_time() - before


def test_ten_thousand_columns_take_ten_times_as_long_as_a_thousand():
    seconds_to_read(10)
    of_one = max(seconds_to_read(1_000) for _ in range(3))
    assert seconds_to_read(10_000) < 100 * of_one, "each is compared with all others: 600 times as long"


def test_views_that_double_each_other_are_refused(monkeypatch):
    monkeypatch.setattr(inline, "MAX_PARTS", 100)
    parse_job(build_view_chain(3))
    with pytest.raises(WatersmeetError, match="more than 100 parts"):
        parse_job(build_view_chain(60))


def test_a_long_list_may_be_written_in_a_view(monkeypatch):
    monkeypatch.setattr(inline, "MAX_PARTS", 100)
    listed = ", ".join(map(str, range(500)))
    parse_job(
        f"{TABLE}CREATE VIEW v AS SELECT a IN ({listed}) AS is_in FROM t;\nSELECT is_in FROM v WHERE is_in;"
    )


@pytest.mark.parametrize(
    "sql",
    [
        f"{TABLE}SELECT {'(' * 400}a{')' * 400} AS b FROM t;",
        TABLE.replace("a INT", f"a {'ARRAY<' * 400}INT{'>' * 400}") + "SELECT a FROM t;",
    ],
)
def test_too_deep_nesting_is_refused(sql):
    with pytest.raises(SqlError, match="nested too deeply"):
        parse_job(sql)


def test_what_is_planned_is_run_or_refused_from_further_within():
    def open_job_at_stack_depth(plan, frames):
        return open_job_at_stack_depth(plan, frames - 1) if frames else LocalJob(plan, MemoryStore())

    plan = plan_job(parse_job(f"{TABLE}SELECT {'abs(' * 15}a{')' * 15} AS b FROM t;"))
    open_job_at_stack_depth(plan, 0)
    with pytest.raises(EngineError, match="nested too deeply"):
        open_job_at_stack_depth(plan, 600)


def test_chain_of_hundreds_of_views_is_refused_as_too_deep():
    job = parse_job(build_view_chain(400).replace("a + a AS a", "a + 1 AS a"))
    with pytest.raises(SqlError, match="nested too deeply"):
        plan_job(job)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ("SELECT a, s FROM v{0} UNION ALL SELECT a, s FROM v{0}", "UNION ALL has 16 branches"),
        ("SELECT x.a, x.s FROM v{0} x JOIN v{0} y ON x.s = y.s", "join of 16 inputs"),
    ],
)
def test_views_that_double_their_branches_or_inputs_are_refused(monkeypatch, view, message):
    monkeypatch.setattr(flow, "MAX_BRANCHES", 10)
    monkeypatch.setattr(joins, "MAX_INPUTS", 10)
    text = f"{TABLE}CREATE VIEW v0 AS SELECT a, s FROM t;\n"
    text += "".join(f"CREATE VIEW v{n + 1} AS {view.format(n)};\n" for n in range(40))
    parse_job(f"{text.partition('CREATE VIEW v4')[0]}SELECT a FROM v3;")
    with pytest.raises(WatersmeetError, match=message):
        parse_job(f"{text}SELECT a FROM v40;")


def test_join_bounds_are_computed_once_for_equal_subjoins():
    """Of k inputs a closure costs k³, and three are asked for of each join."""
    inner = " ".join(f"JOIN t t{n + 1} ON t{n + 1}.s = t{n}.s" for n in range(12))
    closure_of.cache_clear()
    plan_job(parse_job(f"{TABLE}SELECT t0.a FROM t t0 {inner};"))
    assert closure_of.cache_info().misses <= 12


def test_a_chain_of_hundreds_of_conditions_over_both_sides_is_refused():
    chain = " OR ".join(f"x.a <> y.a + {number}" for number in range(700))
    with pytest.raises(SqlError, match="a chain of AND, OR or"):
        plan_job(parse_job(f"{TABLE}SELECT x.a FROM t x JOIN t y ON x.s = y.s AND ({chain});"))


@pytest.mark.parametrize(
    "text",
    [
        "SET max_drift = INTERVAL '{0}' HOUR; {1} SELECT a FROM t;",
        "SET allowed_lateness = '{0} seconds'; {1} SELECT a FROM t;",
        "CREATE TABLE t (s TIMESTAMP, WATERMARK FOR s AS s - INTERVAL '{0}' SECONDS) TYPE Memory;"
        "SELECT s FROM t;",
        "CREATE TABLE t (s BIGINT, WATERMARK FOR s AS s - {0}) TYPE Memory; SELECT s FROM t;",
        "{1} SELECT a FROM t WHERE a = {0};",
        "{1} SELECT a FROM t WHERE a = {0}.5D;",
        "{1} SELECT a FROM t WHERE s > s - INTERVAL {0} DAYS;",
    ],
)
def test_amounts_of_very_many_digits_are_refused_in_few_words(text):
    """Python reads no whole number of more than 4,300 digits."""
    with pytest.raises(SqlError, match="characters") as refused:
        parse_job(text.format("9" * 5_000, TABLE))
    assert len(str(refused.value)) < 400
