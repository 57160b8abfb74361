"""Which joins are run as delta joins, by which paths, and what EXPLAIN says of them."""

from __future__ import annotations

import pytest

from watersmeet.errors import SqlError
from watersmeet.front.sql import parse_job
from watersmeet.plan.explain import explain
from watersmeet.plan.explain.mermaid import mermaid
from watersmeet.plan.model.delta import ArrangePlan, DeltaPlan
from watersmeet.plan.planner import plan_job

TABLES = """
CREATE TABLE c (id BIGINT, seg STRING, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE o (no BIGINT, cust BIGINT, day DATE, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE l (no BIGINT, price INT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
"""
STREAMS = "".join(
    f"CREATE TABLE {name} (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 1) WITH ('connector' = 'memory');"
    for name in ("x", "y", "z")
)
Q3 = "FROM c, o, l WHERE c.seg = 'B' AND c.id = o.cust AND l.no = o.no"
BOUND = (
    "FROM x JOIN y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 5"
    " JOIN z ON z.k = y.k AND z.t BETWEEN y.t AND y.t + 5"
)


def planned(sql):
    return plan_job(parse_job(TABLES + STREAMS + sql)).queries[0]


def is_delta(sql):
    return bool(planned(sql).every(ArrangePlan))


def test_paths_of_the_core_of_q3():
    """As in Materialize: each input looks up what it has an equality with."""
    text = explain(plan_job(parse_job(f"{TABLES} SELECT o.no, l.price {Q3}")))
    lines = [line.strip() for line in text.splitlines()]
    for line in (
        "c -> o (before) -> l (before)",
        "o -> l (before) -> c (after)",
        "l -> o (after) -> c (after)",
        "o: key o.cust; time none",
        "o: key o.no; time none",
        "c: c.seg = 'B'",
    ):
        assert line in lines, text


def test_nothing_is_kept_but_the_inputs():
    query = planned(f"SELECT o.no, l.price {Q3}")
    (arrangements,) = query.every(ArrangePlan)
    steps = query.every(DeltaPlan)
    assert [(side.name, side.copy_of) for side in arrangements.sides][:3] == [
        ("c", None),
        ("o", None),
        ("l", None),
    ]
    assert [side.copy_of for side in arrangements.sides[3:]] == ["o"]
    assert [step.is_last for step in steps] == [False, True]
    assert query.root is steps[-1]


@pytest.mark.parametrize(
    ("sql", "delta"),
    [
        (f"SELECT l.price {Q3}", True),
        (f"SELECT /*+ PLAN(cascade) */ l.price {Q3}", False),
        (f"SET plan = cascade; SELECT l.price {Q3}", False),
        (f"SET plan = cascade; SELECT /*+ PLAN(delta) */ l.price {Q3}", True),
        (f"SET plan = cascade; SELECT /*+ plan(AUTO) */ l.price {Q3}", True),
        (f"SELECT x.t {BOUND}", False),
        (f"SELECT /*+ PLAN(delta) */ x.t {BOUND}", True),
        ("SELECT o.no FROM c JOIN o ON c.id = o.cust", False),
        ("SELECT /*+ PLAN(delta) */ o.no FROM c JOIN o ON c.id = o.cust", True),
        ("SELECT o.no FROM c JOIN o ON c.id = o.cust JOIN l ON l.no > o.no", False),
        ("SELECT /*+ PLAN(delta) */ o.no FROM c JOIN o ON c.id = o.cust JOIN l ON l.no > o.no", True),
        ("SELECT o.no FROM c JOIN o ON c.id = o.cust LEFT JOIN l ON l.no = o.no", False),
        ("SELECT o.no FROM c JOIN o ON c.id = o.cust JOIN c e ON e.id = c.id LEFT JOIN l USING (no)", True),
    ],
)  # fmt: skip
def test_which_joins_are_delta_joins(sql, delta):
    assert is_delta(sql) is delta


def test_why_there_is_none_is_a_warning():
    query = planned("SET plan = delta; SELECT o.no FROM o LEFT JOIN l ON l.no = o.no")
    assert query.warnings == (
        "plan = delta: run as a cascade, for there are no three inputs that inner joins alone join, and no"
        " two tables",
    )
    assert planned(f"SET plan = delta; SELECT l.price {Q3}").warnings == ()


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("PLAN(fast)", "PLAN names one of auto, cascade, delta"),
        ("PLAN", "PLAN names one of auto, cascade, delta"),
        ("PLAN(delta, cascade)", "PLAN names one of auto, cascade, delta"),
    ],
)
def test_hints_that_name_no_plan_are_refused(hint, said):
    with pytest.raises(SqlError, match=said):
        planned(f"SELECT /*+ {hint} */ l.price {Q3}")


def test_a_hint_of_a_select_that_joins_nothing_is_refused():
    with pytest.raises(SqlError, match="joins nothing"):
        planned("SELECT /*+ PLAN(delta) */ id FROM c")


def test_two_streams_beside_tables_are_one_and_one_stream_is_refused():
    from watersmeet.errors import PlanError

    two = "SELECT x.t, c.seg FROM x JOIN y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 5 JOIN c ON c.id = y.k"
    assert is_delta(two)
    assert "of a stream's row are final when it is released" in explain(
        plan_job(parse_job(TABLES + STREAMS + two))
    )
    with pytest.raises(PlanError, match='rows of input "x"'):
        planned("SELECT x.t, c.seg FROM x JOIN c ON c.id = x.k JOIN l ON l.no = c.id")


def test_explain_of_streams_says_how_long_rows_are_kept_and_what_holds_watermarks_back():
    sql = f"SELECT /*+ PLAN(delta) */ x.t {BOUND}"
    lines = [line.strip() for line in explain(plan_job(parse_job(STREAMS + sql))).splitlines()]
    kept = "x: until the watermark of y.t is above x.t + 5 and that of z.t is above x.t + 10; then dropped"
    assert kept in lines
    held = "x.t: lag 1 -> arrangements 1: held back by the rows kept, at most 10 behind z.t (11)"
    assert held in lines
    assert "z.t: lag 1 -> arrangements 1: passes as it is" in lines


def test_the_flowchart_draws_a_delta_join_as_one():
    text = mermaid(plan_job(parse_job(f"{TABLES} SELECT o.no, l.price {Q3}")))
    assert text.count("delta join") == 1
    assert [line.strip() for line in text.splitlines() if "--> q0j" in line] == [
        "q0i0 --> q0j0",
        "q0i1 --> q0j0",
        "q0i2 --> q0j0",
    ]
    assert "q0j0 --> q0k" in text


def copies(sql):
    """Per input the keys by which it is kept, as EXPLAIN names them."""
    (arrangements,) = planned(sql).every(ArrangePlan)
    return sorted(arranged.key for arranged in arrangements.arranged)


CYCLE = """
CREATE TABLE s (id BIGINT, nation BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE n (id BIGINT, name STRING, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE e (id BIGINT, nation BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE i (no BIGINT, supplier BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
"""
Q5 = (
    "SELECT i.no FROM e, o, i, s, n WHERE e.id = o.cust AND i.no = o.no AND i.supplier = s.id"
    " AND e.nation = s.nation AND s.nation = n.id"
)


def test_a_look_up_goes_by_fewer_equalities_where_so_an_input_is_kept_once_less():
    """Items are found by their order alone, as an order's changes find them, and not by the supplier, too.
    Suppliers are found by nation alone from n alone: from an order's customer nobody finds them so."""
    kept = copies(CYCLE + Q5)
    assert kept == ["e.id", "e.nation", "i.no", "n.id", "o.cust", "o.no", "s.id, s.nation", "s.nation"]


def steps(sql):
    return [line.strip() for line in explain(plan_job(parse_job(TABLES + sql))).splitlines()]


def test_the_other_equalities_are_asked_of_what_is_found():
    assert "s: i by o.no = i.no and s.id = i.supplier" in steps(CYCLE + Q5)


def test_what_makes_one_row_known_comes_first_and_needs_no_other_equality():
    """So suppliers are found by their key alone, and right after items."""
    declared = "s (id BIGINT, nation BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd')"
    keyed = declared.replace("d INT", "op STRING, PRIMARY KEY (id) NOT ENFORCED").replace("diff", "op")
    keyed = keyed.replace("'d'", "'op'")
    job = CYCLE.replace(declared, keyed) + Q5
    assert copies(job) == ["e.id", "e.nation", "i.no", "n.id", "o.cust", "o.no", "s.id", "s.nation"]
    assert "o -> i (before) -> s (before) -> e (after) -> n (before)" in steps(job)
    assert "i -> s (before) -> o (after) -> e (after) -> n (before)" in steps(job)
    assert "i -> o (after) -> e (after) -> s (before) -> n (before)" in steps(CYCLE + Q5)
