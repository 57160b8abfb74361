"""Inner joins in another order than the query's: when, and that the rows stay the same."""

from __future__ import annotations

import random
from collections import Counter
from itertools import permutations

import pytest

import watersmeet
from watersmeet.plan import passes
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.order.forecast import state_bytes
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

UNCONNECTED = "SELECT a.n AS an, b.n AS bn, c.n AS cn FROM a, b, c WHERE {ac} AND {cb}"
AC = "a.k = c.k AND c.t BETWEEN a.t - 5 AND a.t + 5"
CB = "c.k = b.k AND b.t BETWEEN c.t - 3 AND c.t + 3"


def plan(query: str, rates: tuple[int, ...] = (), choice: str = "auto", type_: str = "BIGINT") -> JobPlan:
    lag = "INTERVAL '10' SECONDS" if type_ == "TIMESTAMP" else "4"
    text = f"SET plan = {choice};\n"
    for n, name in enumerate("abcd"):
        rate = f", 'rows_per_second' = '{rates[n]}'" if rates else ""
        text += (
            f"CREATE TABLE {name} (n BIGINT, k BIGINT, t {type_}, WATERMARK FOR t AS t - {lag})"
            f" WITH ('connector' = 'memory'{rate});\n"
        )
    return watersmeet.plan_job(watersmeet.parse_job(text + query))


def chain(width: str = "1", type_: str = "TIMESTAMP") -> str:
    """a with b, and that with c."""
    unit = f"INTERVAL '{width}' MINUTE"
    return (
        "SELECT a.n AS an, b.n AS bn, c.n AS cn FROM a"
        f" JOIN b ON b.k = a.k AND b.t BETWEEN a.t AND a.t + {unit}"
        f" JOIN c ON c.k = a.k AND c.t BETWEEN a.t - {unit} AND a.t + {unit}"
    )


def test_a_join_without_a_condition_of_its_own_is_avoided():
    query = UNCONNECTED.format(ac=AC, cb=CB)
    (found,) = plan(query).queries
    assert found.reordered == (("a", "c", "b"),)
    assert all(join.keys for join in found.nodes)
    (kept,) = plan(query, choice="cascade").queries
    assert kept.reordered == ()
    assert [side.name for side in kept.sides] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("rates", "order"),
    [
        ((), ()),
        ((1000, 900, 5, 1), (("a", "c", "b"),)),  # few pairs of a and c
        ((1000, 5, 900, 1), ()),  # few pairs of a and b: as written
    ],
)
def test_declared_rates_decide(rates, order):
    (found,) = plan(chain(), rates, type_="TIMESTAMP").queries
    assert found.reordered == order


def test_rates_of_integer_times_say_nothing():
    query = "SELECT a.n AS an FROM a JOIN b ON b.k = a.k AND b.t = a.t JOIN c ON c.k = a.k AND c.t = a.t"
    (found,) = plan(query, (1000, 900, 5, 1)).queries
    assert found.reordered == ()


def test_outer_joins_keep_their_place():
    query = f"SELECT d.n AS dn, x.an FROM d LEFT JOIN ({chain()}) x ON x.an = d.n AND x.t = d.t"
    query = query.replace("SELECT a.n AS an", "SELECT a.t, a.n AS an")
    (found,) = plan(query, (1000, 900, 5, 1), type_="TIMESTAMP").queries
    assert found.reordered == (("d", "x.a", "x.c", "x.b"),)
    assert [join.kind.name for join in found.nodes] == ["INNER", "INNER", "LEFT"]
    query = (
        "SELECT a.n AS an FROM a LEFT JOIN b ON b.k = a.k AND b.t = a.t"
        " LEFT JOIN c ON c.k = a.k AND c.t = a.t"
    )
    (found,) = plan(query).queries
    assert found.reordered == ()


def test_what_is_refused_as_it_stands_stays_refused_and_says_why():
    beneath = UNCONNECTED.format(ac=AC, cb=CB).replace("SELECT", "SELECT c.t,")
    query = f"SELECT x.an, d.n AS dn FROM d LEFT JOIN ({beneath}) x ON x.t BETWEEN d.t AND d.t + 2"
    with pytest.raises(watersmeet.WatersmeetError) as caught:
        plan(query)
    why = (
        "x.c.t <= x.a.t + 5 does not bound them: it belongs to a join above that of x.a; join x.a"
        " with x.c first"
    )
    assert why in str(caught.value)


def union(branch: str) -> str:
    return f"{branch} UNION ALL SELECT t, n, n, n FROM d"


def windows(query: str, size: str = "10") -> str:
    return (
        f"SELECT window_end, count(*) AS m FROM TABLE(TUMBLE(({query}), DESCRIPTOR(t), {size}))"
        " GROUP BY window_start, window_end"
    )


def join_window_stage(query: str) -> str:
    """With windows beneath a join, so that they are a stage."""
    return f"SELECT w.m, d.n AS dn FROM ({query}) w JOIN d ON d.t = w.window_end"


TIMED = UNCONNECTED.format(ac=AC, cb=CB).replace("SELECT", "SELECT c.t,")


@pytest.mark.parametrize(
    ("query", "order"),
    [
        (union(TIMED), ("union.1.a", "union.1.c", "union.1.b")),
        (windows(TIMED), ("a", "c", "b")),
        (join_window_stage(windows(TIMED)), ("w.a", "w.c", "w.b")),
        (join_window_stage(windows(union(TIMED))), ("w.tumble.1.a", "w.tumble.1.c", "w.tumble.1.b")),
    ],
)
def test_each_stage_reorders_its_own_joins(query, order):
    (found,) = plan(query).queries
    assert found.reordered == (order,)
    assert all(join.keys for join in found.nodes[:2])
    (kept,) = plan(query, choice="cascade").queries
    assert kept.reordered == ()
    assert kept.outputs == found.outputs


@pytest.mark.parametrize("wrapped", [union, lambda query: windows(query, "INTERVAL '1' HOUR")])
@pytest.mark.parametrize(
    ("rates", "aliases"), [((), None), ((1000, 900, 5, 1), "acb"), ((1000, 5, 900, 1), None)]
)
def test_declared_rates_decide_in_a_stage(wrapped, rates, aliases):
    query = wrapped(chain().replace("SELECT", "SELECT a.t,"))
    (found,) = plan(query, rates, type_="TIMESTAMP").queries
    joined_as = ["".join(alias[-1] for alias in order) for order in found.reordered]
    assert joined_as == ([] if aliases is None else [aliases])


def test_rates_of_one_stage_need_not_those_of_others():
    """What is made of windows has no forecast; the joins beneath have."""
    beneath = windows(chain().replace("SELECT", "SELECT a.t,"), "INTERVAL '1' HOUR")
    (found,) = plan(join_window_stage(beneath), (1000, 900, 5, 1), type_="TIMESTAMP").queries
    assert found.reordered == (("w.a", "w.c", "w.b"),)
    assert state_bytes(found) is None
    assert state_bytes(found, frozenset(found.reordered[0])) > 0


def test_rates_of_branches_that_join_are_known_above():
    """u makes few rows: at most five a second of its join, and d's one."""
    few = "SELECT a.t, a.k, a.n FROM a JOIN b ON b.k = a.k AND b.t = a.t"
    query = (
        f"SELECT x.n AS xn, y.n AS yn, u.n AS un FROM a x JOIN a y ON y.k = x.k AND y.t = x.t"
        f" JOIN ({few} UNION ALL SELECT t, k, n FROM d) u ON u.k = x.k AND u.t = x.t"
    )
    (found,) = plan(query, (1000, 5, 900, 1), type_="TIMESTAMP").queries
    assert found.reordered == (("x", "u", "y"),)
    (found,) = plan(query.replace("FROM d)", "FROM c)"), (1000, 1000, 9000, 1), type_="TIMESTAMP").queries
    assert found.reordered == ()


def test_a_query_and_its_stages_each_have_their_order():
    query = (
        f"CREATE VIEW u AS {union(TIMED)} UNION ALL {TIMED};"
        "SELECT u.an, b.n AS bn, c.n AS cn FROM u, b, c"
        f" WHERE u.an = c.k AND c.t BETWEEN u.t - 5 AND u.t + 5 AND {CB}"
    )
    found = plan(query)
    first, third = (tuple(f"u.{branch}.{alias}" for alias in "acb") for branch in (1, 3))
    assert found.queries[0].reordered == (("u", "c", "b"), first, third)
    text = watersmeet.explain(found)
    assert "  u, c, b: it retains less than the query's order\n  u.1.a, u.1.c, u.1.b: it retains less" in text


def test_explain_says_so():
    text = watersmeet.explain(plan(UNCONNECTED.format(ac=AC, cb=CB)))
    assert "Order of the joins" in text
    assert "a, c, b: it retains less" in text
    assert "Order of the joins" not in watersmeet.explain(plan(chain(), type_="TIMESTAMP"))


def test_the_rows_of_every_tick_are_the_same(seed):
    draw = random.Random(seed)
    query = UNCONNECTED.format(ac=AC, cb=CB)
    auto, cascade = (LocalJob(plan(query, choice=choice), MemoryStore()) for choice in ("auto", "cascade"))
    number = 0
    found = 0
    for tick in range(12):
        given: dict[str, list[tuple[dict[str, int], int]]] = {}
        for name in draw.choices("abc", k=25):
            number += 1
            row = {"n": number, "k": draw.randrange(3), "t": tick * 3 + draw.randrange(-5, 6)}
            given.setdefault(name, []).append((row, 1))
        outputs = [job.tick(given, clock_us=0).rows["console"] for job in (auto, cascade)]
        first, second = (Counter(tuple(row.values()) for row in rows) for rows in outputs)
        assert first == second
        found += first.total()
    assert found > 100


def test_a_table_as_of_the_tick_keeps_its_place():
    query = UNCONNECTED.format(ac=AC, cb=CB).replace(
        "FROM a, b, c", "FROM a JOIN places FOR SYSTEM_TIME AS OF PROCTIME() AS p ON p.k = a.k, b, c"
    )
    table = "CREATE TABLE places (k BIGINT) WITH ('connector' = 'file', 'path' = 'x', 'format' = 'json');\n"
    (found,) = plan(table + query).queries
    assert found.reordered == (("a", "p", "c", "b"),)


def test_planner_picks_the_order_with_the_least_state():
    """The best by writing every order down."""
    unit = "INTERVAL '1' MINUTE"
    joins = {
        "b": f" JOIN b ON b.k = a.k AND b.t BETWEEN a.t AND a.t + {unit}",
        "c": f" JOIN c ON c.k = a.k AND c.t BETWEEN a.t - {unit} AND a.t + {unit}",
        "d": f" JOIN d ON d.k = a.k AND d.t BETWEEN a.t - {unit} AND a.t + {unit}",
    }
    rates, kept = (1000, 900, 50, 1), {}
    for order in permutations("bcd"):
        query = "SELECT a.n AS an FROM a" + "".join(joins[name] for name in order)
        (written,) = plan(query, rates, choice="cascade", type_="TIMESTAMP").queries
        kept["a", *order] = state_bytes(written)
    (found,) = plan("SELECT a.n AS an FROM a" + "".join(joins.values()), rates, type_="TIMESTAMP").queries
    assert len(set(kept.values())) > 2
    assert found.reordered == (min(kept, key=kept.__getitem__),)


def test_a_hint_goes_where_its_input_goes():
    query = UNCONNECTED.format(ac=AC, cb=CB)
    for name in "abc":
        (found,) = plan(query.replace("SELECT", f"SELECT /*+ BROADCAST({name}) */")).queries
        assert found.reordered == (("a", "c", "b"),)
        hinted = [join.side(join.broadcast).name for join in found.nodes if join.broadcast is not None]
        assert hinted == [name]


def test_no_order_broadcasts_both_sides_of_a_join():
    """As written it is a with b, and that with c, where a and c would be the first."""
    (found,) = plan(
        chain().replace("SELECT", "SELECT /*+ BROADCAST(a, c) */"), (1000, 900, 5, 1), type_="TIMESTAMP"
    ).queries
    assert ("a", "c", "b") not in found.reordered
    for join in found.nodes:
        assert sum(side.feed is None and side.input.broadcast for side in join.sides) < 2
    (without,) = plan(chain(), (1000, 900, 5, 1), type_="TIMESTAMP").queries
    assert without.reordered == (("a", "c", "b"),)


def test_without_a_reason_no_other_order_is_planned(monkeypatch):
    calls = []

    def record_planning_call(*args, own=passes.plan_nodes):
        calls.append(args)
        return own(*args)

    monkeypatch.setattr(passes, "plan_nodes", record_planning_call)
    plan(chain(), type_="TIMESTAMP")
    assert len(calls) == 1
