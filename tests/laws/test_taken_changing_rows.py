"""Queries that join streams in the same way and put out changes put out, keep, count and promise what each of
them does alone, tick by tick; and one of them joins.

Each job is drawn: two to four queries of one or two kinds of joins of streams, of which rows come and go or
only come, with tables among them, other aliases, columns, conditions above, windows over them that change or
are final, and queries of final rows beside them. Tasks are one to three, the job is opened again between
ticks, ticks fail before they are committed and are repeated, partitions are idle, and queries go and change
places.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

import watersmeet
from tests.laws.test_taken_final_rows import Ticks, check_each_as_alone
from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import StateError
from watersmeet.plan import planner
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.runtime.coordinator.tick_phases import RunningTick

pytestmark = pytest.mark.usefixtures("merge_often")

CASES = at_effort(quick=1, full=12)
CHUNKS = at_effort(quick=1, full=4)
SECOND = 1_000_000

SOURCES = (
    "".join(
        f"CREATE TABLE {name} (k INT, t BIGINT, v INT, w STRING{column}, WATERMARK FOR t AS t - {lag}) WITH"
        f" ('connector' = 'file', 'path' = 'in/{name}', 'format' = 'json', 'idle_timeout' = '20 s'{more});\n"
        for name, column, lag, more in (
            ("s", ", d INT", 3, ", 'diff.column' = 'd'"),
            ("u", "", 5, ", 'on_idle' = 'follow'"),
            ("r", ", op STRING", 0, ", 'op.column' = 'op'"),
        )
    )
    + "CREATE TABLE b (k INT, v INT, w STRING, d INT)"
    " WITH ('connector' = 'file', 'path' = 'in/b', 'format' = 'json', 'diff.column' = 'd');\n"
    "CREATE TABLE c (k INT PRIMARY KEY NOT ENFORCED, v INT, w STRING, op STRING)"
    " WITH ('connector' = 'file', 'path' = 'in/c', 'format' = 'json', 'op.column' = 'op');\n"
)
KINDS = (
    ("s {0} {join} u {1} ON {0}.k = {1}.k AND {1}.t BETWEEN {0}.t - 4 AND {0}.t + 20", 2),
    ("u {0} {join} r {1} ON {0}.k = {1}.k AND {1}.t BETWEEN {0}.t AND {0}.t + 9 AND {0}.v <> {1}.v", 2),
    ("u {0} {join} u {1} ON {0}.k + 1 = {1}.k AND {1}.t BETWEEN {0}.t - 9 AND {0}.t", 2),
    ("s {0} {join} s {1} ON {0}.k + 1 = {1}.k AND {1}.t BETWEEN {0}.t - 9 AND {0}.t", 2),
    ("s {0} {join} r {1} ON {1}.t BETWEEN {0}.t - 2 AND {0}.t AND {1}.v > 1", 2),
    ("(SELECT k, t, v + 1 AS v, w FROM s WHERE v > 0) {0} {join} u {1} ON {0}.k <=> {1}.k"
     " AND {1}.t BETWEEN {0}.t AND {0}.t + 9", 2),
    ("(SELECT k, t, v, w FROM s UNION ALL SELECT k, t, v, w FROM u) {0} {join} r {1}"
     " ON {0}.k = {1}.k AND {1}.t BETWEEN {0}.t - 5 AND {0}.t + 5", 2),
    ("s {0} {join} u {1} ON {0}.k = {1}.k AND {1}.t BETWEEN {0}.t - 4 AND {0}.t + 9 {join} r {2}"
     " ON {0}.k = {2}.k AND {2}.t BETWEEN {0}.t AND {0}.t + 9", 3),
    ("s {0} JOIN u {1} ON {0}.k = {1}.k AND {1}.t BETWEEN {0}.t - 4 AND {0}.t + 9 JOIN b {2}"
     " ON {0}.k = {2}.k", 3),
    ("s {0} JOIN r {1} ON {0}.k = {1}.k AND {1}.t BETWEEN {0}.t AND {0}.t + 9 JOIN c {2}"
     " ON {1}.k = {2}.k AND {2}.v < 3", 3),
    ("s {0}", 1),
    ("(SELECT k, t, v, w FROM r WHERE v > 0 UNION ALL SELECT k, t, v, w FROM u) {0}", 1),
)  # fmt: skip
"""Texts with aliases and a kind of join; how many inputs there are."""
HINTS = ("", "", "", "BROADCAST({0})", "BROADCAST({1})")
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")

Kind = tuple[str, int, str, str]


def draw_kind(rng: random.Random) -> Kind:
    text, count = rng.choice(KINDS)
    join = rng.choice(JOINS[:2] if count == 3 else JOINS)
    return text, count, join, "" if count == 1 or " JOIN " in text else rng.choice(HINTS)


def draw_query(rng: random.Random, number: int, kind: Kind) -> str:
    text, count, join, hint = kind
    aliases = list(rng.choice(["xyz", "xyz", "efg", ("xyz"[0] + str(number), "y", "z")]))
    rows = text.format(*aliases, join=join)
    shown = aliases[: 1 if "SEMI" in rows or "ANTI" in rows else count]
    columns = [f"{alias}.{column}" for alias in shown for column in "kvw" if rng.random() < 0.5]
    columns = columns or [f"{shown[-1]}.v"]
    columns += [f"{shown[0]}.v * {shown[-1]}.v"] if rng.random() < 0.3 else []
    where = rng.choice(["", "", "", f" WHERE {shown[-1]}.v > 1", f" WHERE {shown[0]}.v + {shown[-1]}.v > 2"])
    listed = ", ".join(f"{column} AS c{place}" for place, column in enumerate(columns))
    select = f"{'/*+ ' + hint.format(*aliases) + ' */ ' if hint else ''}{listed} FROM {rows}{where}"
    only_come = {"s", "r", "b", "c"}.isdisjoint(rows.replace("(", " ").split())
    emits = " EMIT FINAL" if only_come and rng.random() < 0.3 else ""
    if rng.random() < 0.3 and not hint:
        size = rng.choice(
            [
                "TUMBLE(TABLE ({0}), DESCRIPTOR(at), 5)",
                "HOP(TABLE ({0}), DESCRIPTOR(at), 5, 10)",
                "SESSION(TABLE ({0}), DESCRIPTOR(at), 3)",
            ]
        )
        inner = f"SELECT {shown[0]}.t AS at, {shown[0]}.w AS w, {shown[-1]}.v AS v FROM {rows}{where}"
        select = (
            f"window_end, w, count(*) AS n, max(v) AS most FROM TABLE({size.format(inner)})"
            f" GROUP BY window_start, window_end, w"
        )
        emits = rng.choice(["", "", " EMIT FINAL"])
    return (
        f"CREATE TABLE out{number} WITH ('connector' = 'file', 'path' = 'out/{number}', 'format' = 'json');\n"
        f"INSERT INTO out{number} SELECT {select}{emits};\n"
    )


def draw_queries(rng: random.Random) -> list[str]:
    kinds = [draw_kind(rng) for _ in range(rng.choice([1, 1, 2]))]
    return [draw_query(rng, place, rng.choice(kinds)) for place in range(rng.choice([2, 2, 3, 4]))]


def draw_ticks(rng: random.Random) -> Ticks:
    """Changes of rows that are there, and of some that never were."""
    ticks, now = [], 0
    came: dict[str, list[dict[str, Any]]] = {name: [] for name in "srb"}

    def draw_change(name: str, row: dict[str, Any]) -> dict[str, Any]:
        is_delete = rng.random() < 0.4
        if is_delete and came[name] and rng.random() < 0.8:
            row = came[name].pop(rng.randrange(max(0, len(came[name]) - 6), len(came[name])))
        elif not is_delete:
            came[name].append(row)
        if name == "r":
            return row | {"op": "D" if is_delete else "I"}
        return row | {"d": -1 if is_delete else rng.choice([1, 1, 2])}

    for _ in range(rng.randrange(6, 14)):
        now += rng.randrange(0, 12)
        silent = rng.choice(["", "", "s", "u", "ur"])

        def values(timed: bool = True, now: int = now) -> dict[str, Any]:
            time = rng.choice([now, now, None]) if rng.random() < 0.1 else now - rng.randrange(12)
            return {
                "k": rng.choice([0, 1, 2, None]),
                **({"t": time} if timed else {}),
                "v": rng.randrange(4),
                "w": rng.choice(["p", "q", None]),
            }

        rows: dict[str, Any] = {"u": [(values(), 1) for _ in range(rng.randrange(5))]}
        for name in "sr":
            rows[name] = [(draw_change(name, values()), 1) for _ in range(rng.randrange(6))]
        for name in silent:
            rows[name] = []
        rows["b"] = [(draw_change("b", values(False)), 1) for _ in range(rng.randrange(3))]
        rows["c"] = [
            (values(False) | {"k": rng.randrange(3), "op": rng.choice("IID")}, 1)
            for _ in range(rng.randrange(3))
        ]
        ticks.append(rows)
    return ticks


def plan_changelog_queries(texts: list[str], settings: str = "") -> JobPlan:
    text = "SET output_mode = changelog;\n" + settings + SOURCES + "".join(texts)
    return watersmeet.plan_job(watersmeet.parse_job(text))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_query_is_what_it_is_alone(seed: int, chunk: int) -> None:
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        rng = random.Random(number)
        texts = draw_queries(rng)
        ticks = draw_ticks(rng)
        check_each_as_alone(number, rng, texts, ticks, plan_changelog_queries)


@pytest.mark.full
def test_random_cases_cover_each_kind(seed: int) -> None:
    """Without these kinds, agreement proves little."""
    seen: Counter[str] = Counter()
    for number in range(seed, seed + 120):
        plan = plan_changelog_queries(draw_queries(random.Random(number)))
        modes = {query.name: query.options.mode for query in plan.queries}
        for query in plan.queries:
            for taken in query.taken:
                nodes = [query.alone.nodes[node.number] for node in taken.nodes]
                if isinstance(nodes[0], JoinPlan):
                    seen.update({node.kind.value for node in nodes if isinstance(node, JoinPlan)})
                seen.update({type(node).__name__ for node in nodes})
                seen["changes"] += nodes[0].changes
                seen["chains"] += sum(isinstance(node, JoinPlan) for node in nodes) > 1
                seen["windows"] += taken.number != query.root.number
                seen["other aliases"] += any(own != there for own, there in taken.aliases)
                seen["filtered"] += query.where is not None
                seen["both modes"] += modes[query.name] is not modes[taken.query]
                seen["hints"] += any(
                    i.broadcast for node in nodes for side in node.sides for i in side.inputs
                )
    kinds = {join.replace(" JOIN", "") for join in JOINS[1:]}  # INNER ones are run as delta joins
    nodes_taken = {"DeltaPlan", "ArrangePlan", "UpsertPlan", "TablePlan"}
    for what in (
        *kinds,
        *nodes_taken,
        "changes",
        "windows",
        "other aliases",
        "filtered",
        "both modes",
        "hints",
    ):
        assert seen[what] > 0, (what, seen)


JOINED = "{3} {0} {2} u {1} ON {0}.k = {1}.k AND {1}.t BETWEEN {0}.t AND {0}.t + 9"
OUT = "CREATE TABLE out{0} WITH ('connector' = 'file', 'path' = 'out/{0}', 'format' = 'json');\n"


def build_join_query(
    number: int, left: str = "a", right: str = "b", join: str = "LEFT JOIN", rest: str = ""
) -> str:
    rows = JOINED.format(left, right, join, "s") + rest
    return OUT.format(number) + f"INSERT INTO out{number} SELECT {left}.v AS c, {right}.w FROM {rows};\n"


def windows(number: int, emit: str, source: str = "s") -> str:
    rows = JOINED.format("a", "b", "LEFT JOIN", source)
    return OUT.format(number) + (
        f"INSERT INTO out{number} SELECT window_end, count(*) AS n FROM TABLE(TUMBLE(TABLE (SELECT a.t AS at"
        f" FROM {rows}), DESCRIPTOR(at), 5)) GROUP BY window_start, window_end EMIT {emit};\n"
    )


def rows_of(tick: int) -> dict[str, Any]:
    """Also a late row, a delete of one that is there, and one of nothing."""

    def row(time: int, diff: int, w: str = "x") -> tuple[dict[str, Any], int]:
        return {"k": time % 3, "t": time, "v": time, "w": w, "d": diff}, 1

    came = row(5 * tick + 2, 1)
    del came[0]["d"]
    rows = [row(5 * tick, 1), row(5 * tick + 1, 1), row(5 * tick - 40, 1), row(5 * tick, -1, "y")]
    return {"s": [*rows, *([row(5 * tick - 4, -1)] if tick else [])], "u": [came]}


def takes(plan: JobPlan) -> list[bool]:
    return [bool(query.taken) for query in plan.queries]


CHAIN = " {2} JOIN r {1}r ON {0}.k = {1}r.k AND {1}r.t BETWEEN {0}.t AND {0}.t + 9"
UNITED = (
    "(SELECT a.t, a.v, b.k FROM s a JOIN u b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 9"
    " UNION ALL SELECT t, v, k FROM s) a JOIN r b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 9"
)


@pytest.mark.parametrize(
    ("first", "other", "is_same"),
    [
        (build_join_query(0), build_join_query(1, "x", "y"), True),
        (
            build_join_query(0),
            build_join_query(1, rest=" WHERE b.v > 1 OR b.k IS NULL"),
            True,
        ),  # asked of rows that leave
        (build_join_query(0), build_join_query(1, rest=" WHERE a.v > 1"), False),  # asked of rows that come
        (build_join_query(0), build_join_query(1, join="JOIN"), False),
        (build_join_query(0), build_join_query(1, rest=" AND a.v = 1"), False),
        (build_join_query(0), build_join_query(1).replace("FROM s a", "FROM r a"), False),
        (
            build_join_query(0),
            build_join_query(1).replace("FROM s a", "FROM (SELECT k, t, v, w FROM s WHERE v > 0) a"),
            False,
        ),
        (build_join_query(0), windows(1, "CHANGES"), True),
        (build_join_query(0), windows(1, "FINAL"), True),  # what is final comes of changes
        (windows(0, "FINAL"), windows(1, "CHANGES"), True),
        (windows(0, "FINAL", "u"), windows(1, "CHANGES", "u"), False),  # of rows that only come
        (windows(0, "CHANGES", "u"), windows(1, "CHANGES", "u"), True),
        *(
            (
                build_join_query(0, join=join, rest=CHAIN.format("a", "b", kind)),
                build_join_query(1, left, right, join=join, rest=CHAIN.format(left, right, kind)),
                is_same,
            )
            for join, kind, left, right, is_same in (
                ("LEFT JOIN", "LEFT", "a", "b", True),
                ("LEFT JOIN", "LEFT", "x", "y", False),  # what is kept above is known by names of inputs
                ("JOIN", "", "x", "y", True),  # a delta join keeps inputs alone
            )
        ),
        (  # its rows may be late for the union, and each query says so of its own
            OUT.format(0) + f"INSERT INTO out0 SELECT a.v FROM {UNITED};\n",
            OUT.format(1) + f"INSERT INTO out1 SELECT b.v FROM {UNITED};\n",
            False,
        ),
        (
            OUT.format(0) + "INSERT INTO out0 SELECT v FROM s;\n",
            OUT.format(1) + "INSERT INTO out1 SELECT x.w FROM s x;\n",
            True,
        ),
    ],
)
def test_which_rows_are_the_same(first: str, other: str, is_same: bool) -> None:
    plan = plan_changelog_queries([first, other])
    assert takes(plan) == [False, is_same]
    assert [query.fingerprint for query in plan.queries] == [
        plan_changelog_queries([text]).queries[0].fingerprint for text in (first, other)
    ]


def test_one_of_them_joins_and_keeps() -> None:
    def count_state_files(texts: list[str]) -> int:
        store = MemoryStore()
        job = LocalJob(plan_changelog_queries(texts), store)
        ran: list[str] = []
        of_node = RunningTick.node_task

        def record_node_task(tick: RunningTick, query: str, number: int) -> Any:
            ran.append(type(job.driver.shapes[query][number]).__name__)
            return of_node(tick, query, number)

        with patch.object(RunningTick, "node_task", record_node_task):
            for tick in range(20):
                job.tick(rows_of(tick))
        assert ran.count("JoinShape") == 20
        return len([*store.names("runs"), *store.names("marks")])

    assert count_state_files([build_join_query(0), build_join_query(1, "x", "y")]) == count_state_files(
        [build_join_query(0)]
    )


def test_a_query_that_comes_is_refused_whoever_keeps_the_rows() -> None:
    """What the others joined before it was not put out to it."""
    texts, store = [build_join_query(0), build_join_query(1, "x", "y")], MemoryStore()
    job = LocalJob(plan_changelog_queries(texts), store)
    for tick in range(4):
        accounts = [told.account for told in job.tick(rows_of(tick)).result.queries.values()]
    assert [list(told.values()) for told in accounts[:1]] == [list(told.values()) for told in accounts[1:]]
    assert accounts[0]["a"]["late"] > 0
    assert accounts[0]["a"]["missing_deletes"] > 0
    with pytest.raises(StateError, match=r'query "out2" cannot be added .* rows can be retracted'):
        LocalJob(plan_changelog_queries([*texts, build_join_query(2)]), store, change_queries=True)


def test_queries_with_separate_states_resume_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a version in which each joined for itself."""
    texts, store = [build_join_query(0), windows(1, "FINAL"), build_join_query(2, "x", "y")], MemoryStore()
    with monkeypatch.context() as patched:
        patched.setattr(planner, "share_rows", lambda queries, *_: tuple(queries))
        job = LocalJob(plan_changelog_queries(texts), store)
        assert takes(job.plan) == [False] * 3
        for tick in range(4):
            job.tick(rows_of(tick))
    alone = [LocalJob(plan_changelog_queries([text]), MemoryStore()) for text in texts]
    for tick in range(9):
        expected = [job.tick(rows_of(tick)).rows[f"out{place}"] for place, job in enumerate(alone)]
        if tick >= 4:
            job = LocalJob(plan_changelog_queries(texts), store)
            assert takes(job.plan) == [False] * 3
            rows = job.tick(rows_of(tick)).rows
            assert [Counter(map(repr, rows[f"out{place}"])) for place in range(3)] == [
                Counter(map(repr, own)) for own in expected
            ]


def test_explain_says_so() -> None:
    text = watersmeet.explain(
        plan_changelog_queries([build_join_query(0), windows(1, "FINAL"), build_join_query(2, "x", "y")])
    )
    assert "join (a LEFT OUTER JOIN b): for out1, out2, too" in text
    assert "join (x LEFT OUTER JOIN y): out0 makes and keeps them" in text
