"""Queries of final rows that join streams in the same way put out, keep, count and promise what each of them
does alone, tick by tick; and one of them joins.

Each job is drawn: two to four queries of one or two kinds of joins of streams, with other aliases, columns,
conditions above, and windows over them. Tasks are one to three, the job is opened again between ticks, ticks
fail before they are committed and are repeated, partitions are idle, and queries go, come, and change places.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

import watersmeet
from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore
from watersmeet.errors import EngineError
from watersmeet.plan import planner
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick, RunningTick
from watersmeet.testing.memory_job import MemoryJob

pytestmark = pytest.mark.usefixtures("merge_often")

CASES = at_effort(quick=1, full=20)
CHUNKS = at_effort(quick=1, full=4)
SECOND = 1_000_000

SOURCES = "".join(
    f"CREATE MAPPING {name} (k INT, t BIGINT, v INT, w STRING, WATERMARK FOR t AS t - {lag}) TYPE File "
    f"OPTIONS ('path' = 'in/{name}', 'format' = 'json', 'idle_timeout' = '20 s'{more});\n"
    for name, lag, more in (("s", 3, ""), ("u", 5, ", 'on_idle' = 'follow'"), ("w", 0, ""))
)
KINDS = (
    ("s {0} {join} u {1} ON {0}.k = {1}.k AND {1}.t BETWEEN {0}.t - 4 AND {0}.t + 20", 2),
    ("s {0} {join} w {1} ON {0}.k = {1}.k AND {1}.t BETWEEN {0}.t AND {0}.t + 9 AND {0}.v <> {1}.v", 2),
    ("s {0} {join} s {1} ON {0}.k + 1 = {1}.k AND {1}.t BETWEEN {0}.t - 9 AND {0}.t", 2),
    ("s {0} {join} u {1} ON {1}.t BETWEEN {0}.t - 2 AND {0}.t AND {1}.v > 1", 2),
    ("(SELECT k, t, v + 1 AS v, w FROM s WHERE v > 0) {0} {join} u {1} ON {0}.k <=> {1}.k"
     " AND {1}.t BETWEEN {0}.t AND {0}.t + 9", 2),
    ("(SELECT k, t, v, w FROM s UNION ALL SELECT k, t, v, w FROM u) {0} {join} w {1}"
     " ON {0}.k = {1}.k AND {1}.t BETWEEN {0}.t - 5 AND {0}.t + 5", 2),
    ("s {0} LEFT ASOF JOIN u {1} MATCH_CONDITION ({0}.t >= {1}.t) ON {0}.k = {1}.k", 2),
    ("s {0} {join} u {1} ON {0}.k = {1}.k AND {1}.t BETWEEN {0}.t - 4 AND {0}.t + 9 {join} w {2}"
     " ON {0}.k = {2}.k AND {2}.t BETWEEN {0}.t AND {0}.t + 9", 3),
)  # fmt: skip
"""Texts with aliases and a kind of join; how many inputs there are."""
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")

Ticks = list[dict[str, Any]]


def draw_kind(rng: random.Random) -> tuple[str, int, str, str]:
    text, count = rng.choice(KINDS)
    join = rng.choice(JOINS[:2] if count == 3 else JOINS)
    hints = ["", "", "", "BROADCAST({0})", "BROADCAST({1})"]
    return text, count, join, "" if "ASOF" in text else rng.choice(hints)


def draw_query(rng: random.Random, number: int, kind: tuple[str, int, str, str]) -> str:
    text, count, join, hint = kind
    aliases = list(rng.choice(["xyz", "xyz", "efg", ("xyz"[0] + str(number), "y", "z")]))
    rows = text.format(*aliases, join=join)
    shown = aliases[: 1 if "SEMI" in rows or "ANTI" in rows else count]
    columns = [f"{alias}.{column}" for alias in shown for column in "ktvw" if rng.random() < 0.5]
    columns = columns or [f"{shown[-1]}.v"]
    columns += [f"{shown[0]}.v * {shown[-1]}.v"] if rng.random() < 0.3 else []
    where = rng.choice(["", "", "", f" WHERE {shown[-1]}.v > 1", f" WHERE {shown[0]}.v + {shown[-1]}.v > 2"])
    listed = ", ".join(f"{column} AS c{place}" for place, column in enumerate(columns))
    select = f"{'/*+ ' + hint.format(*aliases) + ' */ ' if hint else ''}{listed} FROM {rows}{where}"
    if rng.random() < 0.25 and not hint:
        size = rng.choice([5, 20])
        inner = f"SELECT {shown[0]}.t AS at, {shown[0]}.w AS w, {shown[-1]}.v AS v FROM {rows}{where}"
        select = (
            f"window_end, w, count(*) AS n, max(v) AS most FROM TABLE(TUMBLE(TABLE ({inner}),"
            f" DESCRIPTOR(at), {size})) GROUP BY window_start, window_end, w"
        )
    return (
        f"CREATE MAPPING out{number} TYPE File OPTIONS ('path' = 'out/{number}', 'format' = 'json');\n"
        f"INSERT INTO out{number} SELECT {select};\n"
    )


def draw_queries(rng: random.Random) -> list[str]:
    kinds = [draw_kind(rng) for _ in range(rng.choice([1, 1, 2]))]
    return [draw_query(rng, place, rng.choice(kinds)) for place in range(rng.choice([2, 2, 3, 4]))]


def draw_ticks(rng: random.Random) -> Ticks:
    ticks, now = [], 0
    for _ in range(rng.randrange(6, 14)):
        now += rng.randrange(0, 15)
        silent = rng.choice(["", "", "s", "u", "uw"])
        rows: dict[str, Any] = {}
        for name in "suw":
            rows[name] = [
                (
                    {
                        "k": rng.choice([0, 1, 2, None]),
                        "t": rng.choice([now, now, None]) if rng.random() < 0.1 else now - rng.randrange(12),
                        "v": rng.randrange(4),
                        "w": rng.choice(["p", "q", None]),
                    },
                    1,
                )
                for _ in range(0 if name in silent else rng.randrange(5))
            ]
        ticks.append(rows)
    return ticks


def plan_queries(texts: list[str], settings: str = "") -> JobPlan:
    return watersmeet.plan_job(watersmeet.parse_job(settings + SOURCES + "".join(texts)))


class Killed(Exception):
    pass


class Played:
    """A job over ticks. ``plans``: its texts, by its settings."""

    def __init__(
        self,
        texts: list[str],
        settings: str,
        rng: random.Random,
        plans: Callable[[list[str], str], JobPlan] = plan_queries,
    ) -> None:
        self._settings, self._rng, self._plans = settings, rng, plans
        self._store, self._texts, self._changed = MemoryStore(), texts, False
        self.job = self._opened()

    def _opened(self, clock_us: int = 0, *, repeats: bool = False) -> LocalJob:
        plan = self._plans(self._texts, self._settings)
        change = self._changed
        return LocalJob(
            plan,
            self._store,
            clock_us=clock_us,
            change_queries=change,
            drive=partial(TickDriver, repeats=repeats),
        )

    def others(self, texts: list[str], clock_us: int) -> None:
        """The job has other queries, or they stand in another order."""
        self._texts, self._changed = texts, True
        self.job = self._opened(clock_us)

    def tick(self, rows: Any, clock_us: int, *, end: bool, rough: str) -> dict[str, Any]:
        """``rough``: before it the job is "opened" again; or it "fails", and is repeated by another run."""
        if rough == "opened":
            self.job = self._opened(clock_us)
        self.job.driver.look(clock_us)
        self.job.partitions = self._rng.choice([1, 2, 3])
        if rough == "fails":
            self._fails(rows, clock_us, end=end)
        result = self.job.tick(rows, clock_us=clock_us, end=end)
        return {
            name: {
                "rows": Counter(map(repr, result.rows[name])),
                "state": told.state,
                "account": told.account,
                "counts": told.counts,
                "out": dict(told.output_watermarks),
                "risen": dict(told.risen_watermarks),
                "in": dict(told.input_watermarks),
                "late": told.late,
                "idle": told.idle,
                "deletes of nothing": Counter(told.missing_deletes),
                "total": told.total_rows_out,
            }
            for name, told in result.result.queries.items()
        }

    def _fails(self, rows: Any, clock_us: int, *, end: bool) -> None:
        """A tick ends before it is committed, and an attempt of another run repeats it."""

        def raise_killed(*_: Any) -> None:
            raise Killed

        with patch.object(ConcludedTick, "commit", raise_killed), pytest.raises(Killed):
            self.job.tick(rows, clock_us=clock_us, end=end)
        self.job = self._opened(clock_us, repeats=True)
        self.job.driver.look(clock_us)
        self.job.partitions = self._rng.choice([1, 2, 3])


def check_each_as_alone(
    number: int,
    rng: random.Random,
    texts: list[str],
    ticks: Ticks,
    plans: Callable[[list[str], str], JobPlan] = plan_queries,
) -> None:
    """A job of all ``texts`` puts out, keeps and tells of each what one of that alone does, tick by tick."""
    live, changes = list(texts), rng.randrange(1, len(ticks))
    settings = rng.choice(["", "SET allowed_lateness = 3;\n", "SET watermark_rule = limit;\n"])
    alone = [Played([text], settings, rng, plans) for text in texts]
    together = Played(live, settings, rng, plans)
    for tick, rows in enumerate(ticks):
        clock_us, end = tick * 7 * SECOND, tick == len(ticks) - 1
        rough = rng.choice(["", "", "opened", "fails"])
        if tick == changes and rng.random() < 0.7:
            live, rough = rng.sample(live, rng.choice([len(live), len(live) - 1])), "opened"
            together.others(live, clock_us)
        found = together.tick(rows, clock_us, end=end, rough=rough)
        for place, own in enumerate(alone):
            expected = own.tick(rows, clock_us, end=end, rough=rough)[f"out{place}"]
            if texts[place] in live:
                for what, told in expected.items():
                    said = f"random-{number}, tick {tick + 1}, {what}: {''.join(live)}"
                    assert found[f"out{place}"][what] == told, said


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_query_is_what_it_is_alone(seed: int, chunk: int) -> None:
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        rng = random.Random(number)
        texts = draw_queries(rng)
        ticks = draw_ticks(rng)
        check_each_as_alone(number, rng, texts, ticks)


@pytest.mark.full
def test_random_cases_cover_each_kind(seed: int) -> None:
    """Without these kinds, agreement proves little."""
    seen: Counter[str] = Counter()
    for number in range(seed, seed + 60):
        plan = plan_queries(draw_queries(random.Random(number)))
        for query in plan.queries:
            for taken in query.taken:
                nodes = [query.alone.nodes[node.number] for node in taken.nodes]
                seen.update({node.kind.value for node in nodes})  # type: ignore[attr-defined]
                seen["chains"] += len(nodes) > 1
                seen["windows"] += taken.number != query.root.number
                seen["other aliases"] += any(own != there for own, there in taken.aliases)
                seen["filtered"] += query.where is not None
                seen["hints"] += any(
                    i.broadcast for node in nodes for side in node.sides for i in side.inputs
                )
    kinds = {join.replace(" JOIN", "") for join in JOINS[1:]} | {"INNER", "LEFT ASOF"}
    for what in (*kinds, "chains", "windows", "other aliases", "filtered", "hints"):
        assert seen[what] > 0, (what, seen)


JOINED = "s {0} {2} u {1} ON {0}.k = {1}.k AND {1}.t BETWEEN {0}.t AND {0}.t + 9"
OUT = "CREATE MAPPING out{0} TYPE File OPTIONS ('path' = 'out/{0}', 'format' = 'json');\n"


def build_join_query(
    number: int, left: str = "a", right: str = "b", where: str = "", join: str = "LEFT JOIN"
) -> str:
    rows = JOINED.format(left, right, join)
    return (
        OUT.format(number) + f"INSERT INTO out{number} SELECT {left}.v AS c, {right}.w FROM {rows}{where};\n"
    )


def rows_of(tick: int) -> dict[str, Any]:
    def row(time: int) -> tuple[dict[str, Any], int]:
        return {"k": tick % 3, "t": time, "v": tick, "w": "x"}, 1

    return {"s": [row(5 * tick), row(5 * tick - 40)], "u": [row(5 * tick + 2)]}


def takes(plan: JobPlan) -> list[bool]:
    return [bool(query.taken) for query in plan.queries]


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (build_join_query(1, "x", "y"), True),
        (build_join_query(1, where=" WHERE b.v > 1"), True),  # asked of rows that leave
        (build_join_query(1, where=" WHERE a.v > 1"), False),  # asked of rows that come
        (build_join_query(1, join="JOIN"), False),
        (build_join_query(1).replace("+ 9", "+ 8"), False),
        (build_join_query(1).replace("FROM s a", "FROM w a"), False),
        (build_join_query(1).replace("SELECT a", "SELECT /*+ BROADCAST(b) */ a"), False),
        (build_join_query(1).replace("FROM s a", "FROM (SELECT * FROM s WHERE v > 0) a"), False),
    ],
)
def test_which_joins_are_the_same(other: str, is_same: bool) -> None:
    plan = plan_queries([build_join_query(0), other])
    assert takes(plan) == [False, is_same]
    assert [query.fingerprint for query in plan.queries] == [
        plan_queries([text]).queries[0].fingerprint for text in (build_join_query(0), other)
    ]


def test_inner_join_conditions_are_evaluated_inside_the_join() -> None:
    inner = [build_join_query(0, join="JOIN"), build_join_query(1, where=" WHERE b.v > 1", join="JOIN")]
    assert takes(plan_queries(inner)) == [False, False]
    assert takes(plan_queries([*inner, inner[1].replace("out1", "out2").replace("out/1", "out/2")])) == [
        False,
        False,
        True,
    ]


def test_lags_are_of_the_rows() -> None:
    lagging = OUT.format(1) + (
        "CREATE VIEW late AS SELECT * FROM s;\n"
        "INSERT INTO out1 SELECT a.v AS c, b.w FROM TABLE(IMPOSE_ORDER(TABLE late, DESCRIPTOR(t), 30)) a"
        " LEFT JOIN u b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 9;\n"
    )
    sources = SOURCES.replace(", WATERMARK FOR t AS t - 3", "", 1)
    first = build_join_query(0).replace("FROM s a", "FROM TABLE(IMPOSE_ORDER(TABLE s, DESCRIPTOR(t), 3)) a")
    plan = watersmeet.plan_job(watersmeet.parse_job(sources + first + lagging))
    assert takes(plan) == [False, False]
    same = lagging.replace(", 30)", ", 3)")
    assert takes(watersmeet.plan_job(watersmeet.parse_job(sources + first + same))) == [False, True]


def test_joins_of_three_by_other_names_are_not_the_same() -> None:
    """What is kept above the first join is known by these names: nobody could go on without the other."""
    chain = JOINED + " JOIN w {3} ON {0}.k = {3}.k AND {3}.t BETWEEN {0}.t AND {0}.t + 9"
    texts = [
        OUT.format(n)
        + f"INSERT INTO out{n} SELECT {names[0]}.v FROM {chain.format(*names[:2], 'JOIN', names[2])};\n"
        for n, names in enumerate(["abc", "abc", "xyz"])
    ]
    assert takes(plan_queries(texts)) == [False, True, False]


def test_state_is_there_once() -> None:
    def list_state_files(texts: list[str]) -> set[str]:
        store = MemoryStore()
        job = LocalJob(plan_queries(texts), store)
        for tick in range(20):
            job.tick(rows_of(tick))
        return set(store.names("runs")) | set(store.names("marks"))

    assert len(list_state_files([build_join_query(0), build_join_query(1, "x", "y")])) == len(
        list_state_files([build_join_query(0)])
    )


def test_one_of_them_joins() -> None:
    job = LocalJob(
        plan_queries([build_join_query(0), build_join_query(1, "x", "y"), build_join_query(2)]), MemoryStore()
    )
    ran: list[str] = []
    of_node = RunningTick.node_task

    def record_node_task(tick: RunningTick, query: str, number: int) -> Any:
        ran.append(type(job.driver.shapes[query][number]).__name__)
        return of_node(tick, query, number)

    with patch.object(RunningTick, "node_task", record_node_task):
        job.tick(rows_of(0))
    assert ran == ["JoinShape", "PassShape", "PassShape"]


@pytest.mark.parametrize("first", [pytest.param("as before", marks=pytest.mark.full), "by another name"])
def test_a_query_that_comes_joins_itself(first: str) -> None:
    """What the others joined before it was not there for it; those that come together join once."""
    texts = [
        build_join_query(0),
        build_join_query(1),
        *(
            [build_join_query(2), build_join_query(3)]
            if first == "as before"
            else [build_join_query(2, "x", "y"), build_join_query(3)]
        ),
    ]
    store, alone = MemoryStore(), LocalJob(plan_queries(texts[:1]), MemoryStore())
    job = LocalJob(plan_queries(texts[:2]), store)
    for tick in range(3):
        job.tick(rows_of(tick))
        alone.tick(rows_of(tick))
    for tick in range(3, 12):
        job = LocalJob(plan_queries(texts), store, change_queries=tick == 3)
        assert takes(job.plan) == [False, True, False, True]
        output, expected = job.tick(rows_of(tick)), alone.tick(rows_of(tick))
        accounts = [told.account for told in output.result.queries.values()]
        assert [list(told.values()) for told in accounts[2:]] == [list(accounts[2].values())] * 2
        for own in accounts:
            for rows in own.values():
                assert rows["in"] == sum(rows.values()) - rows["in"], (tick, own)
        assert output.rows["out1"] == expected.rows["out0"]
        assert Counter(map(repr, output.rows["out2"])) == Counter(map(repr, output.rows["out3"]))


def test_queries_with_separate_states_resume_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a version in which each joined for itself."""
    texts, store = [build_join_query(0), build_join_query(1, "x", "y")], MemoryStore()
    apart = plan_queries(texts)
    plan = watersmeet.plan_job(watersmeet.parse_job(SOURCES + "".join(texts)))
    with monkeypatch.context() as patched:
        patched.setattr(planner, "share_rows", lambda queries, *_: tuple(queries))
        apart = plan_queries(texts)
        assert takes(apart) == [False, False]
        job = LocalJob(apart, store)
        for tick in range(4):
            job.tick(rows_of(tick))
    assert takes(plan) == [False, True]
    alone = LocalJob(plan_queries(texts[:1]), MemoryStore())
    for tick in range(8):
        expected = alone.tick(rows_of(tick)).rows["out0"]
        if tick >= 4:
            job = LocalJob(plan, store)
            assert takes(job.plan) == [False, False]
            rows = job.tick(rows_of(tick)).rows
            assert rows["out0"] == rows["out1"] == expected


def test_runs_are_shared_with_joins_that_are_not_the_same() -> None:
    texts = [
        build_join_query(0),
        build_join_query(1, "x", "y"),
        build_join_query(2, "x", "y").replace("+ 9", "+ 12"),
    ]
    plan = plan_queries(texts)
    assert takes(plan) == [False, True, False]
    assert [side.sharers for query in plan.queries for side in query.sides if side.name in "ax"] == [
        ("out0/a", "out2/x")
    ] * 2


def test_what_was_late_stays_late_for_whom_goes_on_alone() -> None:
    """Also if rows may be later from then on: their partners may be gone."""
    texts, stores = [build_join_query(0), build_join_query(1, "x", "y")], [MemoryStore(), MemoryStore()]
    jobs = [LocalJob(plan_queries(texts), stores[0]), LocalJob(plan_queries(texts[1:]), stores[1])]
    for job in jobs:
        for tick in range(4):
            job.tick(rows_of(tick))
    later = plan_queries(texts[1:], "SET allowed_lateness = 60;\n")
    accounts = []
    for store in stores:
        job = LocalJob(later, store, change_queries=True)
        accounts.append(job.tick(rows_of(4)).result.queries["out1"].account)
    assert accounts[0] == accounts[1]
    assert accounts[0]["x"]["late"] == 4


def test_max_rows_counts_rows_of_the_query_that_retains_them() -> None:
    texts = [build_join_query(0), build_join_query(1)]
    job = LocalJob(plan_queries(texts, "SET max_rows = 3;\n"), MemoryStore())
    for tick in range(3):
        job.tick({"s": rows_of(tick)["s"][:1]})
    with pytest.raises(EngineError, match='"out0" retains 4 rows'):
        job.tick({"s": rows_of(3)["s"][:1]})


def test_watermark_holders_are_reported_for_each_sharing_query() -> None:
    texts = [build_join_query(0), build_join_query(1, "x", "y")]
    job = LocalJob(plan_queries(texts), MemoryStore())
    result = job.tick({"s": [({"k": 1, "t": 1, "v": 1, "w": ""}, 1)]}).result.queries
    assert list(result["out0"].holding.values()) == list(result["out1"].holding.values())
    assert list(result["out1"].holding) == ["x", "y"]
    waiting = job.driver.waiting(0, {})
    assert list(waiting["out1"]) == ["x", "y"]


def test_watermarks_are_shown_as_times() -> None:
    sources = SOURCES.replace("t BIGINT", "t TIMESTAMP")
    for lag in (0, 3, 5):
        sources = sources.replace(f"AS t - {lag}", f"AS t - INTERVAL '{lag}' SECONDS")
    texts = [
        text.replace("+ 9", "+ INTERVAL '9' SECONDS")
        for text in (build_join_query(0), build_join_query(1, "x", "y"))
    ]
    job = MemoryJob(sources + "".join(texts))
    assert takes(job.plan) == [False, True]
    row = {"k": 1, "t": datetime(2024, 1, 1, tzinfo=UTC), "v": 1, "w": ""}
    watermarks = job.tick({"s": [row], "u": [row]}).watermarks
    assert watermarks["out0"] == {"a.t": "2023-12-31 23:59:57", "b.t": "2023-12-31 23:59:55"}
    assert watermarks["out1"] == {"x.t": "2023-12-31 23:59:57", "y.t": "2023-12-31 23:59:55"}


def test_explain_says_so() -> None:
    text = watersmeet.explain(plan_queries([build_join_query(0), build_join_query(1, "x", "y")]))
    assert "join (a LEFT OUTER JOIN b): for out1, too" in text
    assert "join (x LEFT OUTER JOIN y): out0 makes and keeps them" in text
