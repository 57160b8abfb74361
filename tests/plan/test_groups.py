"""Groups over all rows: what is refused, and what EXPLAIN says is kept."""

from __future__ import annotations

import pytest

import watersmeet
from watersmeet.errors import WatersmeetError

TABLES = """
CREATE TABLE a (k STRING, v INT, x DOUBLE, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE s (k STRING, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
"""


def plan_with_mode(sql: str, mode: str = "changelog") -> watersmeet.JobPlan:
    return watersmeet.plan_job(watersmeet.parse_job(f"SET output_mode = {mode};{TABLES}{sql}"))


@pytest.mark.parametrize(
    ("sql", "clause"),
    [
        ("SELECT k, count(*) AS n FROM s GROUP BY k", "GROUP BY k"),
        ("SELECT count(*) AS n FROM s", "count(*)"),
        ("SELECT DISTINCT k FROM s", "SELECT DISTINCT"),
        ("SELECT x.n FROM (SELECT count(*) AS n FROM s) x", "count(*)"),
        ("SELECT x.n FROM s JOIN (SELECT k, count(*) AS n FROM s GROUP BY k) x ON x.k = s.k", "GROUP BY k"),
    ],
)
def test_results_that_are_never_final_are_refused_in_append_mode(sql: str, clause: str) -> None:
    with pytest.raises(WatersmeetError, match="has no final result") as caught:
        plan_with_mode(sql, "append")
    assert caught.value.message.startswith(f'{clause} over the stream "s"')
    assert caught.value.location is not None


def test_groups_of_a_stream_are_refused() -> None:
    with pytest.raises(WatersmeetError, match=r"groups of input .* could never be dropped"):
        plan_with_mode("SELECT k, count(*) AS n FROM s GROUP BY k")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("stddev(v)", "is not supported yet"),
        ("bit_xor(v)", "is not supported yet"),
        ("percentile(v, 0.5)", "is not supported yet"),
        ("first(v)", "rows of a stream have no order"),
        ("sum(count(*))", "cannot contain the aggregate function"),
    ],
)
def test_aggregates_that_are_refused(call: str, words: str) -> None:
    with pytest.raises(WatersmeetError, match=words):
        plan_with_mode(f"SELECT k, {call} AS n FROM a GROUP BY k")


def test_columns_that_are_not_grouped_by() -> None:
    with pytest.raises(WatersmeetError, match="neither in GROUP BY"):
        plan_with_mode("SELECT k, v, count(*) AS n FROM a GROUP BY k")
    with pytest.raises(WatersmeetError, match="ROLLUP is not supported"):
        plan_with_mode("SELECT k, count(*) AS n FROM a GROUP BY ROLLUP (k)")
    with pytest.raises(WatersmeetError, match="DISTINCT with GROUP BY"):
        plan_with_mode("SELECT DISTINCT k, count(*) AS n FROM a GROUP BY k")


def test_names_of_windows_are_free_where_there_is_none() -> None:
    plan = plan_with_mode(
        "SELECT k AS window_start, count(*) AS window_end FROM a GROUP BY k HAVING window_end > 1"
    )
    assert plan.queries[0].root.watermark_keys == ()


@pytest.mark.parametrize(
    ("argument", "wanted"),
    [
        ("p * (1 - p)", "DECIMAL(36,4)"),
        ("p + v", "DECIMAL(23,2)"),
        ("p / 3", "DECIMAL(26,6)"),
        ("v * v", "BIGINT"),
        ("x * p", "DOUBLE"),
    ],
)
def test_types_of_sums_over_arithmetic(argument: str, wanted: str) -> None:
    """As `result_type` says, which is asked against Spark; a whole number has as many digits as it is written
    with."""
    table = "CREATE TABLE t (p DECIMAL(12,2), v INT, x DOUBLE, d INT)"
    table += " WITH ('connector' = 'memory', 'diff.column' = 'd');"
    plan = plan_with_mode(f"{table} SELECT sum({argument}) AS s FROM t")
    root = plan.queries[0].root
    assert [str(column.type) for column in root.columns] == [wanted]


def test_reserved_name_error_shows_the_aliased_expression() -> None:
    with pytest.raises(WatersmeetError, match=r'"_tick" \(COUNT\(\*\)\) is reserved'):
        plan_with_mode("SELECT k, count(*) AS _tick FROM a GROUP BY k")
    with pytest.raises(WatersmeetError, match=r'"_diff" \(a.v \+ 1\) is reserved'):
        plan_with_mode("SELECT v + 1 AS _diff FROM a GROUP BY v + 1")
