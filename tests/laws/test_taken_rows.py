"""Queries of changes that make rows in the same way put out, keep and count what each of them does alone,
tick by tick; and one of them makes the rows.

Each job is drawn: two to four queries of one or two kinds of joins, groups and tables, with other aliases,
columns and conditions above. Tasks are one to three, the job is opened again between ticks, ticks
fail before they are committed and are repeated, and queries go.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

import watersmeet
from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import StateError
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick
from watersmeet.runtime.values import InMemoryTables

pytestmark = pytest.mark.usefixtures("merge_often")

CASES = at_effort(quick=1, full=20)
CHUNKS = at_effort(quick=1, full=4)

SOURCES = """SET output_mode = changelog;
CREATE TABLE c (k INT PRIMARY KEY NOT ENFORCED, v INT, w STRING, op STRING)
    WITH ('connector' = 'file', 'path' = 'c', 'format' = 'json', 'op.column' = 'op');
CREATE TABLE s (k INT PRIMARY KEY NOT ENFORCED, v INT, w STRING, n INT, op STRING)
    WITH ('connector' = 'file', 'path' = 's', 'format' = 'json', 'op.column' = 'op', 'sequence.by' = 'n');
CREATE TABLE o (k INT, j INT, v INT, w STRING, d INT)
    WITH ('connector' = 'file', 'path' = 'o', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE l (j INT, v INT, w STRING, d INT)
    WITH ('connector' = 'file', 'path' = 'l', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE p (k INT PRIMARY KEY NOT ENFORCED, v INT, w STRING)
    WITH ('connector' = 'memory', 'changes' = 'snapshot');
"""
KINDS = (
    ("{t} {0}", 1),
    ("{t} {0} {join} o {1} ON {0}.k = {1}.k", 2),
    ("{t} {0} JOIN o {1} ON {0}.k = {1}.k AND {0}.v <= {1}.v + 1", 2),
    ("{t} {0} JOIN o {1} ON {0}.k = {1}.k JOIN l {2} ON {1}.j = {2}.j", 3),
    ("o {0} JOIN {t} {1} ON {0}.k = {1}.k LEFT JOIN l {2} ON {0}.j = {2}.j", 3),
    ("(SELECT k, max(v) AS v, min(w) AS w FROM {t} GROUP BY k) {0} JOIN o {1} ON {0}.k = {1}.k", 2),
    ("(SELECT * FROM {t} WHERE v > 1) {0} LEFT JOIN o {1} ON {0}.k = {1}.k", 2),
    ("(SELECT k, v, w FROM {t} UNION ALL SELECT a.k, b.v, b.w FROM {t} a JOIN l b ON b.v = a.v) {0}", 1),
    ("o {0}", 1),
)
"""Texts with a table, aliases and a kind of join; how many inputs there are."""


def draw_kind(rng: random.Random) -> tuple[str, int, str, str]:
    text, count = rng.choice(KINDS)
    join = rng.choice(["JOIN", "LEFT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
    return text, count, rng.choice(["c", "c", "s", "p"]), join


def draw_query(rng: random.Random, number: int, kind: tuple[str, int, str, str]) -> str:
    text, count, table, join = kind
    aliases = [f"{letter}{rng.choice(['', number])}" for letter in rng.choice(["xyz", "efg"])]
    rows = text.format(*aliases, t=table, join=join)
    shown = aliases[: 1 if "SEMI" in rows or "ANTI" in rows else count]
    columns = [f"{alias}.{column}" for alias in shown for column in "vw" if rng.random() < 0.5]
    columns = columns or [f"{shown[-1]}.v"]
    columns += [f"{shown[0]}.v * {shown[-1]}.v"] if rng.random() < 0.3 else []
    where = rng.choice(["", "", "", f" WHERE {shown[-1]}.v > 1", f" WHERE coalesce({shown[0]}.v, 0) < 3"])
    if rng.random() < 0.4:
        calls = rng.sample(
            [
                f"sum({shown[0]}.v * 2) AS a",
                f"max({shown[-1]}.w) AS b",
                "count(*) AS e",
                f"sum({shown[-1]}.v) AS f",
            ],
            2,
        )
        having = rng.choice(["", " HAVING count(*) > 1"])
        select = f"{shown[0]}.w, {', '.join(calls)} FROM {rows}{where} GROUP BY {shown[0]}.w{having}"
    else:
        listed = ", ".join(f"{column} AS c{place}" for place, column in enumerate(columns))
        select = f"{listed} FROM {rows}{where}"
    return (
        f"CREATE TABLE out{number} WITH ('connector' = 'file', 'path' = 'out/{number}', 'format' = 'json');\n"
        f"INSERT INTO out{number} SELECT {select};\n"
    )


def draw_queries(rng: random.Random) -> list[str]:
    kinds = [draw_kind(rng) for _ in range(rng.choice([1, 1, 2]))]
    return [draw_query(rng, place, rng.choice(kinds)) for place in range(rng.choice([2, 2, 3, 4]))]


def draw_ticks(rng: random.Random) -> list[dict[str, list[tuple[dict[str, Any], int]]]]:
    """Valid changes and deletes of what is not there."""
    ticks, held = [], dict[int, dict[str, Any]]()
    for tick in range(rng.randrange(4, 9)):

        def values() -> dict[str, Any]:
            return {"k": rng.choice([0, 1, 2, 3]), "v": rng.randrange(4), "w": rng.choice(["p", "q", None])}

        rows: dict[str, list[tuple[dict[str, Any], int]]] = {}
        for name in "cs":
            rows[name] = [
                (values() | {"n": tick * 3 + rng.randrange(6), "op": rng.choice("IID")}, 1)
                for _ in range(rng.randrange(4))
            ]
        for name in "ol":
            rows[name] = [
                (values() | {"j": rng.randrange(3), "d": rng.choice([1, 1, 2, -1])}, 1)
                for _ in range(rng.randrange(5))
            ]
        for row in rows["c"]:
            del row[0]["n"]
        for row in rows["l"]:
            del row[0]["k"]
        changes = []
        for _ in range(rng.randrange(3)):
            key = rng.randrange(4)
            if key in held:
                changes.append((held.pop(key), -1))
            if rng.random() < 0.7:
                held[key] = values() | {"k": key}
                changes.append((held[key], 1))
        rows["p"] = changes
        ticks.append(rows)
    return ticks


def plan_queries(texts: list[str]) -> JobPlan:
    return watersmeet.plan_job(watersmeet.parse_job(SOURCES + "".join(texts)))


class Killed(Exception):
    pass


class Played:
    """A job over ticks. ``rough``: it is opened again, fails and is repeated, by chance."""

    def __init__(self, texts: list[str], rng: random.Random, *, rough: bool) -> None:
        self._rng, self._rough = rng, rough
        self._store, self._tables = MemoryStore(), InMemoryTables()
        self._texts, self._changed = texts, False
        self.job = self._opened(texts)

    def _opened(self, texts: list[str], *, repeats: bool = False) -> LocalJob:
        return LocalJob(
            plan_queries(texts),
            self._store,
            tables=self._tables,
            change_queries=self._changed,
            drive=partial(TickDriver, repeats=repeats),
        )

    def goes(self, text: str) -> bool:
        """Whether a query could go."""
        self._texts = [other for other in self._texts if other is not text]
        self._changed = True
        try:
            self.job = self._opened(self._texts)
        except StateError as error:
            if "lack" not in error.message:
                raise
            return False
        return True

    def tick(self, rows: Any) -> dict[str, Any]:
        rng = self._rng
        if self._rough and rng.random() < 0.3:
            self.job = self._opened(self._texts)
        self.job.partitions = rng.choice([1, 2, 3])
        if self._rough and rng.random() < 0.3:
            self._fails(rows)
            rows = rows | {"p": []}  # it holds them now
        result = self.job.tick(rows)
        return {
            name: (
                Counter(map(repr, result.rows[name])),
                told.state,
                told.account,
                Counter(alias for alias, _ in told.missing_deletes),
            )
            for name, told in result.result.queries.items()
        }

    def _fails(self, rows: Any) -> None:
        """A tick ends before it is committed, and an attempt of another run repeats it."""

        def raise_killed(*_: Any) -> None:
            raise Killed

        with patch.object(ConcludedTick, "commit", raise_killed), pytest.raises(Killed):
            self.job.tick(rows)
        self.job = self._opened(self._texts, repeats=True)
        self.job.partitions = self._rng.choice([1, 2, 3])


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_query_is_what_it_is_alone(seed: int, chunk: int) -> None:
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        rng = random.Random(number)
        texts = draw_queries(rng)
        ticks = draw_ticks(rng)
        goes = rng.choice([None, rng.randrange(len(texts))])
        leaves = rng.randrange(1, len(ticks))
        alone = [Played([text], rng, rough=False) for text in texts]
        together = Played(texts, rng, rough=True)
        for tick, rows in enumerate(ticks):
            if goes is not None and tick == leaves and not together.goes(texts[goes]):
                break
            found = together.tick(rows)
            for place, own in enumerate(alone):
                name = f"out{place}"
                expected = own.tick(rows)[name]
                if goes == place and tick >= leaves:
                    continue
                if " p " in texts[place]:  # changes of columns that only others keep are counted, too
                    found[name], expected = ((*told[:2], told[3]) for told in (found[name], expected))
                assert found[name] == expected, f"random-{number}, tick {tick + 1}: {''.join(texts)}"


def shared(plan: JobPlan) -> list[str]:
    """Per query that takes rows of another one, the kinds of nodes that rest."""
    nodes = [
        query.alone.nodes[node.number] for query in plan.queries for t in query.taken for node in t.nodes
    ]
    return [type(node).__name__ for node in nodes]


@pytest.mark.full
def test_random_cases_cover_each_kind(seed: int) -> None:
    """Without these kinds, agreement proves little."""
    seen: Counter[str] = Counter()
    for number in range(seed, seed + 60):
        rng = random.Random(number)
        plan = plan_queries(draw_queries(rng))
        seen.update(set(shared(plan)))
        seen["jobs"] += any(query.taken for query in plan.queries)
        seen["whole results"] += any(
            taken.number == query.root.number for query in plan.queries for taken in query.taken
        )
        seen["stages"] += any(
            side.stages and side.stages[0][1].query for query in plan.queries for side in query.sides
        )
    for what in (
        "UpsertPlan",
        "SnapshotPlan",
        "TablePlan",
        "JoinPlan",
        "GroupPlan",
        "ArrangePlan",
        "DeltaPlan",
    ):
        assert seen[what] > 0, (what, seen)
    assert min(seen["jobs"], seen["whole results"], seen["stages"]) > 4, seen


ONE = "INSERT INTO out{0} SELECT {1}.v, {2}.w FROM c {1} JOIN o {2} ON {1}.k = {2}.k;\n"
TABLE = "CREATE TABLE out{0} WITH ('connector' = 'file', 'path' = 'out/{0}', 'format' = 'json');\n"


def build_join_query(number: int, left: str, right: str) -> str:
    return TABLE.format(number) + ONE.format(number, left, right)


def rows_of(tick: int) -> dict[str, Any]:
    return {
        "c": [({"k": k, "v": tick, "w": "p", "op": "I"}, 1) for k in range(3)],
        "o": [({"k": tick % 3, "j": 0, "v": 1, "w": "q", "d": 1}, 1)],
    }


def test_other_queries_change_no_fingerprint() -> None:
    texts = [
        build_join_query(0, "a", "b"),
        build_join_query(1, "x", "y"),
        build_join_query(2, "a", "b").replace("SELECT a.v,", "SELECT a.w AS u,"),
    ]
    together = plan_queries(texts)
    assert [query.fingerprint for query in together.queries] == [
        plan_queries([text]).queries[0].fingerprint for text in texts
    ]
    assert all(node.rests for query in together.queries[1:] for node in query.nodes[:-1])


def test_state_is_there_once() -> None:
    def measure_state_bytes(texts: list[str]) -> int:
        store = MemoryStore()
        job = LocalJob(plan_queries(texts), store)
        for tick in range(12):
            job.tick(rows_of(tick))
        manifest = job.driver.manifest
        assert manifest is not None
        return sum({live.run.name: live.run.nbytes for live in manifest.runs()}.values())

    first, second = build_join_query(0, "a", "b"), build_join_query(1, "x", "y")
    assert measure_state_bytes([first, second]) == measure_state_bytes([first])
    assert (
        1.05
        < measure_state_bytes([first, second.replace("x.k = y.k", "x.v = y.v")])
        / measure_state_bytes([first])
        < 1.3
    )  # a key
    assert measure_state_bytes(
        [first, second.replace("x.k = y.k", "x.k = y.k AND y.v > 0")]
    ) > 1.3 * measure_state_bytes([first])


def outputs(job: LocalJob, tick: int) -> dict[str, Counter[str]]:
    return {name: Counter(map(repr, rows)) for name, rows in job.tick(rows_of(tick)).rows.items()}


@pytest.mark.parametrize(
    "goes",
    [
        pytest.param("other order", marks=pytest.mark.full),
        "the maker",
        pytest.param("one that takes", marks=pytest.mark.full),
    ],
)
def test_who_makes_the_rows_may_change(goes: str) -> None:
    texts = [build_join_query(number, "a", "b") for number in range(3)]
    store, alone = MemoryStore(), LocalJob(plan_queries(texts[:1]), MemoryStore())
    job = LocalJob(plan_queries(texts), store)
    left = {"other order": [2, 1, 0], "the maker": [1, 2], "one that takes": [0, 2]}[goes]
    for tick in range(9):
        if tick >= 5:
            job = LocalJob(plan_queries([texts[number] for number in left]), store, change_queries=True)
        expected = outputs(alone, tick)["out0"]
        assert all(own == expected for own in outputs(job, tick).values()), tick
        assert sum(bool(query.taken) for query in job.plan.queries) == len(job.plan.queries) - 1


def test_a_maker_may_go_that_took_rows_itself() -> None:
    """The first query makes the rows of the table, the second those of a join with it, for the third."""
    first = TABLE.format(0) + "INSERT INTO out0 SELECT t.v FROM c t;\n"
    texts = [first, build_join_query(1, "a", "b"), build_join_query(2, "a", "b")]
    store, alone = MemoryStore(), LocalJob(plan_queries(texts[1:2]), MemoryStore())
    job = LocalJob(plan_queries(texts), store)
    for tick in range(8):
        if tick >= 4:
            job = LocalJob(plan_queries([texts[0], texts[2]]), store, change_queries=True)
        expected = outputs(alone, tick)["out1"]
        assert outputs(job, tick)["out2"] == expected, tick
        assert job.state["out2"] == {"a.c": 3, "a": 3, "b": tick + 1}


def test_a_maker_may_go_if_others_call_its_inputs_otherwise() -> None:
    """Stored rows of a join over keyed tables are known by what they are, whatever inputs are called."""
    texts = [build_join_query(0, "a", "b"), build_join_query(1, "x", "y")]
    store, alone = MemoryStore(), LocalJob(plan_queries(texts[1:]), MemoryStore())
    job = LocalJob(plan_queries(texts), store)
    for tick in range(6):
        if tick >= 3:
            job = LocalJob(plan_queries(texts[1:]), store, change_queries=True)
        assert outputs(job, tick)["out1"] == outputs(alone, tick)["out1"], tick


def test_a_query_that_comes_makes_its_rows_itself() -> None:
    """What others have was made before it came."""
    texts = [TABLE.format(n) + f"INSERT INTO out{n} SELECT x.k, x.v FROM p x;\n" for n in range(2)]
    store, tables = MemoryStore(), InMemoryTables()
    job = LocalJob(plan_queries(texts[:1]), store, tables=tables)
    first = job.tick({"p": [({"k": 1, "v": 5, "w": "p"}, 1)]}).rows["out0"]
    for tick in range(3):
        job = LocalJob(plan_queries(texts), store, tables=tables, change_queries=True)
        assert not any(query.taken for query in job.plan.queries)
        rows = job.tick({}).rows
        assert not rows["out0"]
        assert [row["v"] for row in rows["out1"]] == ([5] if tick == 0 else [])
    assert [row["v"] for row in first] == [5]
    assert any(query.taken for query in plan_queries(texts).queries)


def test_missing_deletes_are_reported_without_computed_columns() -> None:
    """Not even for another query."""
    texts = [
        TABLE.format(n) + f"INSERT INTO out{n} SELECT x.k{more} FROM o x GROUP BY x.k;\n"
        for n, more in enumerate([", count(*) AS n", ", sum(x.v * 2) AS s"])
    ]
    job = LocalJob(plan_queries(texts), MemoryStore())
    told = job.tick({"o": [({"k": 1, "j": 2, "v": 3, "w": "q", "d": -1}, 1)]}).result.queries
    row = '{"k": 1, "j": 2, "v": 3, "w": "q"}'
    assert [told[name].missing_deletes for name in ("out0", "out1")] == [(("x", row),)] * 2


def test_explain_says_so() -> None:
    text = watersmeet.explain(plan_queries([build_join_query(0, "a", "b"), build_join_query(1, "x", "y")]))
    assert "delta step 3 (a with b; b with a): for out1, too" in text
    assert "delta step 3 (x with y; y with x): out0 makes and keeps them" in text


def test_deletes_of_joined_rows_that_are_not_there() -> None:
    """A delete that no row of its join answers goes on to the next join, which counts it."""
    own = "SELECT o.w, c.v FROM o LEFT JOIN c ON c.k = o.k LEFT JOIN l ON l.j = o.j"
    texts = [
        TABLE.format(0) + "INSERT INTO out0 SELECT k, v FROM c;\n",
        TABLE.format(1) + f"INSERT INTO out1 {own};\n",
    ]
    job, alone = (
        LocalJob(plan_queries(texts), MemoryStore()),
        LocalJob(plan_queries(texts[1:]), MemoryStore()),
    )
    assert job.plan.queries[1].taken
    rows = {"o": [({"k": None, "j": 7, "v": 1, "w": "q", "d": -1}, 1)]}
    told = [one.tick(rows).result.queries["out1"].missing_deletes for one in (job, alone)]
    assert told[0] == told[1] != ()


@pytest.mark.parametrize("table", ["c", "s"])
def test_places_of_queries_may_change(table: str) -> None:
    """Also over a table of which deletes are remembered, and forgotten at a time."""
    texts = [
        TABLE.format(0) + f"INSERT INTO out0 SELECT k, v FROM {table};\n",
        TABLE.format(1) + f"INSERT INTO out1 SELECT v, count(*) AS n FROM {table} GROUP BY v;\n",
    ]
    store = MemoryStore()
    for tick in range(6):
        order = texts if tick // 2 % 2 else texts[::-1]
        job = LocalJob(plan_queries(order), store)
        row = {"k": tick, "v": 1, "w": "q", "n": tick, "op": "I"}
        out = job.tick({table: [(row, 1)]}, clock_us=tick).rows
        assert [change["k"] for change in out["out0"]] == [tick]
        assert {change["n"]: change["_diff"] for change in out["out1"]} == {
            tick + 1: 1,
            **({tick: -1} if tick else {}),
        }
