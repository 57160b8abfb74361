"""ROW_NUMBER: how many rows are wanted, what is refused, which results have one row per key."""

from __future__ import annotations

import pytest

import watersmeet
from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.plan.model.nodes import RankPlan

TABLES = """
CREATE TABLE a (k STRING, v INT, x DOUBLE, m MAP<STRING, INT>, l ARRAY<INT>, d INT)
    WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE b (k STRING, w INT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE s (k STRING, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
CREATE TABLE u (id INT PRIMARY KEY NOT ENFORCED, k STRING, op STRING)
    WITH ('connector' = 'memory', 'op.column' = 'op');
"""
RANKED = "(SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM a) r"


def plan_with_mode(sql: str, mode: str = "changelog") -> watersmeet.JobPlan:
    return watersmeet.plan_job(watersmeet.parse_job(f"SET output_mode = {mode};{TABLES}{sql}"))


def ranking_of(sql: str) -> RankPlan:
    (node,) = plan_with_mode(sql).queries[0].every(RankPlan)
    return node


@pytest.mark.parametrize(
    ("where", "most", "is_left"),
    [
        ("rn <= 3", 3, False),
        ("rn < 3", 2, False),
        ("rn = 1", 1, False),
        ("3 >= rn", 3, False),
        ("(rn <= (3))", 3, False),
        ("rn <= 3 AND rn <= 2", 2, False),
        ("rn <= 3 AND rn = 2", 2, True),
        ("rn BETWEEN 2 AND 4", 4, True),
        ("rn = 2", 2, True),
        ("rn <= 3 AND v > 1", 3, True),
        ("rn <= -1", 0, True),
        ("rn <= 99999999999", 2**31 - 1, False),
        ("rn = 0", 0, True),
        ("NOT rn > 3", 3, False),
        ("NOT (rn > 3 OR v < 1)", 3, True),
        ("(rn <= 3 AND v > 1) OR (rn <= 3 AND v < 0)", 3, True),
        ("rn <= 3 AND NOT rn > 2", 3, True),
    ],
)
def test_how_many_rows_are_wanted(where: str, most: int, is_left: bool) -> None:
    """A filter that says nothing more falls away."""
    plan = plan_with_mode(f"SELECT k, v FROM {RANKED} WHERE {where}").queries[0]
    (node,) = plan.every(RankPlan)
    assert node.most == most
    assert (plan.where is not None) is is_left
    assert node.numbered == ("rn" in str(plan.where))


def test_it_is_found_in_views_and_above_joins() -> None:
    view = f"SELECT * FROM (SELECT k AS c, rn AS place, v FROM {RANKED}) q WHERE place <= 4"
    assert ranking_of(view).most == 4
    joined = ranking_of(f"SELECT r.k, b.w FROM b LEFT JOIN {RANKED} ON r.k = b.k WHERE r.rn <= 2")
    assert (joined.most, joined.numbered) == (2, True)
    on = ranking_of(f"SELECT b.k, r.v FROM b LEFT JOIN {RANKED} ON r.k = b.k AND r.rn < 4")
    assert (on.most, on.numbered) == (3, True)
    exists = f"SELECT b.k FROM b WHERE EXISTS (SELECT 1 FROM {RANKED} WHERE r.k = b.k AND r.rn = 1)"
    assert ranking_of(exists).most == 1
    within = f"(SELECT r.k, r.rn FROM {RANKED} JOIN b ON r.k = b.k) q"
    inner = ranking_of(f"SELECT q.k FROM {within} WHERE q.rn = 1")
    assert inner.most == 1
    grouped = ranking_of(f"SELECT k, count(*) AS n FROM {RANKED} WHERE rn <= 5 GROUP BY k")
    assert (grouped.most, grouped.numbered) == (5, False)


def test_a_view_that_numbers_is_limited_where_it_is_read() -> None:
    views = f"""CREATE VIEW ranked AS SELECT * FROM {RANKED};
        CREATE VIEW both AS SELECT k FROM ranked WHERE rn <= 2 UNION ALL SELECT k FROM ranked WHERE rn = 1;
        CREATE VIEW several AS SELECT * FROM ranked UNION ALL SELECT * FROM ranked;
    """
    plan = plan_with_mode(f"{views} SELECT k FROM both").queries[0]
    assert sorted(node.most for node in plan.every(RankPlan)) == [1, 2]
    plan = plan_with_mode(f"{views} SELECT k FROM several WHERE rn <= 7").queries[0]
    assert [node.most for node in plan.every(RankPlan)] == [7, 7]
    with pytest.raises(WatersmeetError, match="numbers all rows"):
        plan_with_mode(f"{views} SELECT k FROM several")


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT * FROM {RANKED}",
        f"SELECT * FROM {RANKED} WHERE rn >= 3",
        f"SELECT * FROM {RANKED} WHERE rn <= 3 OR v = 1",
        f"SELECT * FROM {RANKED} WHERE rn <= v",
        f"SELECT * FROM {RANKED} WHERE v <= 3",
        f"SELECT r.k FROM {RANKED} JOIN b ON r.k = b.k",
        f"SELECT r.k FROM {RANKED} LEFT JOIN b ON r.k = b.k AND r.rn <= 3",
        "SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS rn FROM a",
    ],
)
def test_all_rows_are_not_numbered(sql: str) -> None:
    with pytest.raises(WatersmeetError, match="numbers all rows") as caught:
        plan_with_mode(sql)
    assert caught.value.code == "ranking-without-limit"


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ("RANK() OVER (PARTITION BY k ORDER BY v)", "RANK.* is not supported"),
        ("DENSE_RANK() OVER (PARTITION BY k ORDER BY v)", "DENSE_RANK.* is not supported"),
        ("sum(v) OVER (PARTITION BY k)", "SUM.* is not supported"),
        ("lag(v) OVER (PARTITION BY k ORDER BY v)", "LAG.* is not supported"),
        ("ROW_NUMBER() OVER (PARTITION BY k)", "needs an ORDER BY"),
        ("ROW_NUMBER() OVER (PARTITION BY k ORDER BY 1)", "is a constant"),
        ("ROW_NUMBER() OVER (PARTITION BY 'k' ORDER BY v)", "is a constant"),
        ("ROW_NUMBER() OVER (ORDER BY sum(v))", "aggregate"),
        ("ROW_NUMBER() OVER (ORDER BY rand())", "a different value each time"),
        ("ROW_NUMBER() OVER (ORDER BY nothing)", "unknown column"),
        ("1 + ROW_NUMBER() OVER (ORDER BY v)", "is not supported"),
        ("ROW_NUMBER() OVER (ORDER BY v), ROW_NUMBER() OVER (ORDER BY k)", "a second ROW_NUMBER"),
        ("count(*), ROW_NUMBER() OVER (ORDER BY v)", "group in a subquery"),
        ("ROW_NUMBER() OVER (ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)", "a frame"),
    ],
)
def test_what_is_refused(over: str, words: str) -> None:
    with pytest.raises(WatersmeetError, match=words):
        plan_with_mode(f"SELECT * FROM (SELECT k, {over} AS rn FROM a) r WHERE rn <= 2")


def test_final_rows_are_not_numbered_and_streams_neither() -> None:
    over = (
        "SELECT k FROM (SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY t) AS rn FROM s) r WHERE rn = 1"
    )
    with pytest.raises(WatersmeetError, match="cannot retract results"):
        plan_with_mode(over, "append")
    with pytest.raises(WatersmeetError, match="could never be dropped"):
        plan_with_mode(over)


@pytest.mark.parametrize("column", ["m", "l"])
def test_values_without_an_order(column: str) -> None:
    plan = plan_with_mode(
        f"SELECT k FROM (SELECT k, {column}, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS rn FROM a) r"
        " WHERE rn = 1"
    )
    with pytest.raises(EngineError, match="which has no order"):
        watersmeet.LocalJob(plan, watersmeet.MemoryStore())


def test_ranking_resolves_aliases_and_rejects_duplicate_names() -> None:
    node = ranking_of(
        "SELECT * FROM (SELECT k AS rn_2, v AS rn, v AS w, k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v)"
        " AS place FROM a) r WHERE place = 1"
    )
    assert [name for name, _ in node.keys] == ["k", "v"]
    with pytest.raises(WatersmeetError, match='two columns are named "rn"'):
        plan_with_mode(
            "SELECT * FROM (SELECT v AS rn, ROW_NUMBER() OVER (ORDER BY v) AS rn FROM a) r WHERE r.rn = 1"
        )


@pytest.mark.parametrize(
    ("outputs", "key", "known"),
    [
        ("k, v FROM {r} WHERE rn = 1", "k", "known"),
        ("k, rn FROM {r} WHERE rn <= 2", "k, rn", "known"),
        ("k, rn FROM {r} WHERE rn <= 2", "k", "counted"),
        ("k, v FROM {r} WHERE rn <= 2", "k, v", "counted"),
        ("id, k FROM {u} WHERE rn <= 2", "id", "known"),
    ],
)
def test_which_results_have_one_row_per_key(outputs: str, key: str, known: str) -> None:
    """Those that nothing says of are counted."""
    u = "(SELECT id, k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) AS rn FROM u) r"
    columns = ", ".join(f"{c} INT" if c in ("v", "rn", "id") else f"{c} STRING"
                        for c in outputs.split(" FROM")[0].split(", "))  # fmt: skip
    sql = (
        f"CREATE SINK o ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = 'kafka',"
        " 'topic' = 'o', 'bootstrap.servers' = 'x:9092', 'format' = 'upsert-json');"
        f"INSERT INTO o SELECT {outputs.format(r=RANKED, u=u)};"
    )
    plan = plan_with_mode(sql).queries[0]
    assert plan.key_rows is not None
    assert plan.key_rows.name.lower() == known


def test_what_the_state_depends_on() -> None:
    def fingerprint(over: str, most: int = 2, outputs: str = "k") -> str:
        ranked = f"(SELECT k, v, x, ROW_NUMBER() OVER ({over}) AS rn FROM a) r"
        return plan_with_mode(f"SELECT {outputs} FROM {ranked} WHERE rn <= {most}").queries[0].fingerprint

    first = fingerprint("PARTITION BY k ORDER BY v")
    assert first == fingerprint("PARTITION BY k ORDER BY v ASC NULLS FIRST", outputs="v, rn")
    others = [
        fingerprint("PARTITION BY k ORDER BY v", 3),
        fingerprint("PARTITION BY k ORDER BY v DESC"),
        fingerprint("PARTITION BY k ORDER BY v NULLS LAST"),
        fingerprint("PARTITION BY k ORDER BY x"),
        fingerprint("PARTITION BY x ORDER BY v"),
        fingerprint("ORDER BY v"),
    ]
    assert len({first, *others}) == 7
