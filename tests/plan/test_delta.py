"""Which joins are run as delta joins, by which paths, and what EXPLAIN says of them."""

from __future__ import annotations

import random

import pytest

from tests.support.effort import at_effort
from watersmeet.errors import SqlError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.delta.paths import Counts
from watersmeet.plan.explain import explain
from watersmeet.plan.explain.graph import mermaid
from watersmeet.plan.identity.settings import settings_of
from watersmeet.plan.model.nodes import ArrangePlan, CountedKey, DeltaPlan
from watersmeet.plan.planner import plan_job, reorder_by_counts

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


def plan_first_query(sql):
    return plan_job(parse_job(TABLES + STREAMS + sql)).queries[0]


def is_delta(sql):
    return bool(plan_first_query(sql).every(ArrangePlan))


def test_paths_of_the_core_of_q3():
    """As in Materialize: each input looks up what it has an equality with."""
    text = explain(plan_job(parse_job(f"{TABLES} SELECT o.no, l.price {Q3}")))
    lines = [line.strip() for line in text.splitlines()]
    for line in (
        "c -> o (before) -> l (before)",
        "o -> l (before) -> c (after)",
        "l -> o (after) -> c (after)",
        "o: key o.no; time none",
        "o: found by o.cust, too, in the same rows",
        "c: c.seg = 'B'",
    ):
        assert line in lines, text


def test_delta_join_retains_only_its_inputs():
    query = plan_first_query(f"SELECT o.no, l.price {Q3}")
    (arrangements,) = query.every(ArrangePlan)
    steps = query.every(DeltaPlan)
    assert [(side.name, side.copy_of) for side in arrangements.sides] == [
        ("c", None),
        ("o", None),
        ("l", None),
    ]
    assert [[other.keys for other in own.others] for own in arrangements.arranged] == [[], [("cust",)], []]
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
        ("SELECT o.no FROM c JOIN o ON c.id = o.cust", True),
        ("SELECT /*+ PLAN(cascade) */ o.no FROM c JOIN o ON c.id = o.cust", False),
        ("SELECT o.no FROM c JOIN o ON c.id > o.cust", False),
        ("SELECT o.no FROM c JOIN o ON c.id = o.cust JOIN l ON l.no > o.no", False),
        ("SELECT /*+ PLAN(delta) */ o.no FROM c JOIN o ON c.id = o.cust JOIN l ON l.no > o.no", True),
        ("SELECT o.no FROM c JOIN o ON c.id = o.cust LEFT JOIN l ON l.no = o.no", True),
        ("SELECT o.no FROM c JOIN o ON c.id = o.cust JOIN c e ON e.id = c.id LEFT JOIN l USING (no)", True),
    ],
)  # fmt: skip
def test_which_joins_are_delta_joins(sql, delta):
    assert is_delta(sql) is delta


def test_why_there_is_none_is_a_warning():
    query = plan_first_query("SET plan = delta; SELECT o.no FROM o LEFT JOIN l ON l.no = o.no")
    assert query.warnings == (
        "plan = delta is not possible, so the job uses a cascade: there are fewer than three inputs"
        " joined only by inner joins, and no two tables",
    )
    assert plan_first_query(f"SET plan = delta; SELECT l.price {Q3}").warnings == ()


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("PLAN(fast)", "PLAN needs one of auto, cascade, delta"),
        ("PLAN", "PLAN needs one of auto, cascade, delta"),
        ("PLAN(delta, cascade)", "PLAN needs one of auto, cascade, delta"),
    ],
)
def test_hints_that_name_no_plan_are_refused(hint, said):
    with pytest.raises(SqlError, match=said):
        plan_first_query(f"SELECT /*+ {hint} */ l.price {Q3}")


def test_a_hint_of_a_select_that_joins_nothing_is_refused():
    with pytest.raises(SqlError, match="this SELECT has no join"):
        plan_first_query("SELECT /*+ PLAN(delta) */ id FROM c")


def test_delta_join_with_tables_rejects_a_single_stream():
    from watersmeet.errors import PlanError

    two = "SELECT x.t, c.seg FROM x JOIN y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 5 JOIN c ON c.id = y.k"
    assert is_delta(two)
    assert "of a stream's row are final when it is released" in explain(
        plan_job(parse_job(TABLES + STREAMS + two))
    )
    with pytest.raises(PlanError, match='rows of input "x"'):
        plan_first_query("SELECT x.t, c.seg FROM x JOIN c ON c.id = x.k JOIN l ON l.no = c.id")


def test_explain_shows_retention_and_watermark_holders():
    sql = f"SELECT /*+ PLAN(delta) */ x.t {BOUND}"
    lines = [line.strip() for line in explain(plan_job(parse_job(STREAMS + sql))).splitlines()]
    kept = "x: until the watermark of y.t is above x.t + 5 and that of z.t is above x.t + 10; then dropped"
    assert kept in lines
    held = "x.t: lag 1 -> arrangements 1: held back by retained rows, at most 10 behind z.t (11)"
    assert held in lines
    assert "z.t: lag 1 -> arrangements 1: passes through" in lines


def test_the_flowchart_draws_a_delta_join_as_one():
    text = mermaid(plan_job(parse_job(f"{TABLES} SELECT o.no, l.price {Q3}")))
    assert text.count("delta join") == 1
    assert [line.strip() for line in text.splitlines() if "--> q0j" in line] == [
        "q0i0 --> q0j0",
        "q0i1 --> q0j0",
        "q0i2 --> q0j0",
    ]
    assert "q0j0 --> q0k" in text


def keys_of(sql):
    """Per input the keys by which its rows are found, as EXPLAIN names them."""
    (arrangements,) = plan_first_query(sql).every(ArrangePlan)
    return sorted(key.key for own in arrangements.arranged for key in (own, *own.others))


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


def test_lookup_uses_fewer_keys_to_share_an_arrangement():
    """Items are found by their order alone, as an order's changes find them, and not by the supplier, too.
    Suppliers are found by nation alone from n alone: from an order's customer nobody finds them so."""
    kept = keys_of(CYCLE + Q5)
    assert kept == ["e.id", "e.nation", "i.no", "n.id", "o.cust", "o.no", "s.id, s.nation", "s.nation"]


def steps(sql):
    return [line.strip() for line in explain(plan_job(parse_job(TABLES + sql))).splitlines()]


def test_remaining_equalities_filter_lookup_results():
    assert "s: i by o.no = i.no and s.id = i.supplier" in steps(CYCLE + Q5)


def test_what_makes_one_row_known_comes_first_and_needs_no_other_equality():
    """So suppliers are found by their key alone, and right after items."""
    declared = "s (id BIGINT, nation BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd')"
    keyed = declared.replace("d INT", "op STRING, PRIMARY KEY (id) NOT ENFORCED").replace("diff", "op")
    keyed = keyed.replace("'d'", "'op'")
    job = CYCLE.replace(declared, keyed) + Q5
    assert keys_of(job) == ["e.id", "e.nation", "i.no", "n.id", "o.cust", "o.no", "s.id", "s.nation"]
    assert "o -> i (before) -> s (before) -> e (after) -> n (before)" in steps(job)
    assert "i -> s (before) -> o (after) -> e (after) -> n (before)" in steps(job)
    assert "i -> o (after) -> e (after) -> s (before) -> n (before)" in steps(CYCLE + Q5)


def test_explain_says_which_plan_it_is_and_why():
    delta = (
        "c, o, l: delta, by auto (changes are joined, and each look-up has an equality): nothing is kept but"
    )
    assert f"{delta} the inputs' rows and o.cust as a further key of o" in steps(f"SELECT o.no {Q3}")
    hinted = steps(f"SELECT /*+ PLAN(cascade) */ o.no {Q3}")
    assert "c, o, l: cascade, as asked: each join keeps the rows of those beneath" in hinted
    final = "results are final, and rows between joins are evicted by their time bounds"
    told = f"x, y, z: cascade, by auto ({final}): each join keeps the rows of those beneath"
    assert told in steps(f"{STREAMS} SELECT x.t {BOUND}")
    unequal = "SELECT o.no FROM c JOIN o ON c.id = o.cust JOIN l ON l.no > o.no"
    told = "c, o, l: cascade, by auto (a look-up would have no equality)"
    assert f"{told}: each join keeps the rows of those beneath" in steps(unequal)
    assert not any("by auto" in line for line in steps("SELECT o.no FROM c LEFT JOIN o ON c.id = o.cust"))


def test_explain_forecasts_retained_rows_and_bytes():
    """Of streams by the latest of the bounds: z is up to 5 after y, which is up to 5 after x, each 1 late."""
    tables = steps(f"SELECT o.no, l.price {Q3}")
    key = "at most 8 of them to be found by o.cust, too"
    assert f"arrangements 1, o: until the row is deleted, 36 bytes a row, {key}" in tables
    assert "arrangements 1, l: until the row is deleted, 20 bytes a row" in tables
    streams = steps(f"{STREAMS} SELECT /*+ PLAN(delta) */ x.t {BOUND}")
    assert "arrangements 1, x: a row for at most 11 (10 by its bound, 1 delay of z.t)" in streams
    assert "arrangements 1, z: a row for at most 1 (0 by its bound, 1 delay of y.t)" in streams


def test_stream_with_two_keys_is_stored_once_more():
    """Its rows are sorted by time within each key."""
    job = STREAMS.replace("k BIGINT", "k BIGINT, m BIGINT")
    bound = BOUND.replace("z.k = y.k", "z.m = y.m")
    plan = plan_job(parse_job(f"{job} SELECT /*+ PLAN(delta) */ x.t {bound}"))
    (kept,) = plan.queries[0].every(ArrangePlan)
    assert [
        (side.copy_of, own.keys, own.others) for side, own in zip(kept.sides, kept.arranged, strict=True)
    ] == [
        (None, ("k",), ()),
        (None, ("k",), ()),
        (None, ("m",), ()),
        ("y", ("m",), ()),
    ]
    assert "arrangements 1, y once more, by y.m: a row for" in explain(plan)


def reorder_with_counts(plan, **rows_of_keys):
    """The plan by counts: per input (rows, rows per key) of each of its keys."""
    (kept,) = plan.queries[0].every(ArrangePlan)
    keys = [
        CountedKey(side.name, key.keys, *rows_of_keys[side.name][number])
        for side, own in zip(kept.sides, kept.arranged, strict=True)
        for number, key in enumerate((own, *own.others))
        if side.name in rows_of_keys
    ]
    return reorder_by_counts(plan, {"console": Counts(tuple(keys))})


STAR = (
    "SELECT f.k FROM f JOIN a ON a.k = f.k JOIN b ON b.m = f.m JOIN e ON e.n = f.n",
    "".join(
        f"CREATE TABLE {name} (k BIGINT, m BIGINT, n BIGINT, d INT)"
        " WITH ('connector' = 'memory', 'diff.column' = 'd');"
        for name in "fabe"
    ),
)


def paths_of(plan):
    steps = plan.queries[0].every(DeltaPlan)
    return [
        "".join([start, *(step.lookups[number].join.right.name for step in steps)])
        for number, start in enumerate(steps[0].path_names)
    ]


def test_what_has_fewest_rows_of_a_key_is_looked_up_first():
    plan = plan_job(parse_job(STAR[1] + STAR[0]))
    assert paths_of(plan) == ["fabe", "afbe", "bfae", "efab"]
    other = reorder_with_counts(plan, a=[(100, 10.0)], b=[(100, 1.04)], e=[(30, 1.0)], f=[(100, 4.0)] * 3)
    assert paths_of(other) == ["feba", "afeb", "bfea", "efba"]  # 1.04 rows are one, and e has fewer rows
    assert other.queries[0].fingerprint == plan.queries[0].fingerprint
    assert settings_of(other) == settings_of(plan)
    assert other.queries[0].every(ArrangePlan) == plan.queries[0].every(ArrangePlan)
    lines = [line.strip() for line in explain(other).splitlines()]
    assert "f -> e (before) -> b (before) -> a (before)" in lines
    assert "b: key b.m; time none; now 100 rows, 1.0 of a key" in lines
    assert paths_of(
        reorder_with_counts(plan, a=[(7, 1.0)], b=[(7, 1.0)], e=[(7, 1.0)], f=[(7, 7.0)] * 3)
    ) == paths_of(plan)


def test_cardinalities_do_not_change_the_arrangements():
    """Whatever is counted in a circle of equalities: the keys are those of the plan without."""
    plan = plan_job(parse_job(TABLES + CYCLE + Q5))
    (kept,) = plan.queries[0].every(ArrangePlan)
    draw, changed = random.Random(5), 0
    for _ in range(at_effort(quick=5, full=12)):
        other = reorder_with_counts(
            plan,
            **{
                side.name: [
                    (draw.randrange(100), draw.choice([0.0, 1.0, 5.0, 20.0])) for _ in (own, *own.others)
                ]
                for side, own in zip(kept.sides, kept.arranged, strict=True)
            },
        )
        assert other.queries[0].every(ArrangePlan) == (kept,)
        changed += paths_of(other) != paths_of(plan)
    assert changed
