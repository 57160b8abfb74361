"""What a delta join does not do: paths that come to nothing are not begun, and nodes with few rows are run by
the driver, to the same end."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
from watersmeet.parser.case_file import case_job
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.runtime.coordinator import node_cost as amount_module
from watersmeet.runtime.coordinator import tick_phases
from watersmeet.runtime.coordinator.node_cost import FETCHED_BYTES, CostEstimate, inline_row_limit
from watersmeet.runtime.coordinator.operators.registry import find_driver
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.coordinator.tick_phases import RunningTick
from watersmeet.runtime.local.tick import LocalTick
from watersmeet.runtime.messages.reports import NodeReport
from watersmeet.runtime.operators.task import InlineResult, NodeTask
from watersmeet.runtime.spark.tick.task_placement import TaskCounts
from watersmeet.runtime.spark.tick.tick import run_node_inline
from watersmeet.runtime.tasks import side as share_module
from watersmeet.runtime.tick import NodeResult
from watersmeet.state.store import Meter

JOB = """SET output_mode = changelog; SET plan = delta;
CREATE TABLE c (id BIGINT, name STRING, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE o (no BIGINT, cust BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE l (no BIGINT, item BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
"""
ROWS = "SELECT c.name, o.no, l.item FROM c, o, l WHERE c.id = o.cust AND l.no = o.no"
GROUPS = "SELECT c.name, count(*) AS lines FROM c, o, l WHERE c.id = o.cust AND l.no = o.no GROUP BY c.name"

COLUMNS = {"c": ("id", "name"), "o": ("no", "cust"), "l": ("no", "item")}
Bags = dict[str, Counter[tuple[Any, ...]]]


class Works:
    """A watcher: per tick what the tasks of each node were told."""

    def __init__(self) -> None:
        self.ticks: list[list[Any]] = []

    def began(self, start: Any) -> None:
        self.ticks.append([])

    def judged(self, *_: Any) -> None: ...

    def ran(self, query: str, task: NodeTask) -> None:
        self.ticks[-1].append(task.work)

    def of(self, tick: int) -> tuple[list[int], list[list[int]]]:
        """The paths that were closed, and per step how many rows came along each."""
        arranged, *steps = self.ticks[tick]
        return arranged.closed, [
            [sum(run.rows for run in side.new_runs) for side in step.sides] for step in steps
        ]


class HandedOver(LocalJob):
    """Runs what is small as the engine on Spark does, the last node too where ``whole``; ``alone``: how many
    nodes were run so, ``nodes``: of how many."""

    alone = nodes = most_shares = 0

    def __init__(self, *of: Any, whole: bool = False, **named: Any) -> None:
        super().__init__(*of, **named)
        self.whole = whole

    def backend(self, *of: Any) -> LocalTick:  # type: ignore[override]
        return OneHandedOver(*of, job=self)


@dataclass(frozen=True)
class OneHandedOver(LocalTick):
    job: HandedOver = field(kw_only=True)

    def run(self, tick: RunningTick, query: QueryPlan, node: NodePlan) -> NodeResult:
        job = self.job
        if node is query.root and not job.whole:
            return super().run(tick, query, node)
        task = tick.node_task(query.name, node.number)
        ran = tick.run_inline(query.name, node.number, task)
        job.alone += ran is not None
        job.nodes += 1
        shares = self.task_count if ran is None else len(ran.reports)
        job.most_shares = max(job.most_shares, shares if ran is not None else 0)
        told: Any = task if ran is None else Told(task, ran)
        with patch.object(RunningTick, "node_task", lambda *_: told):
            return LocalTick.run(replace(self, partitions=shares), tick, query, node)


def whole(text: str, few: int = 60, store: MemoryStore | None = None) -> HandedOver:
    """A job of which the driver runs all that has so few rows."""
    settings = TickSettings(small_rows=few)
    return HandedOver(plan_job(parse_job(text)), store or MemoryStore(), whole=True, settings=settings)


class Told:
    """A task that was run: its rows and reports."""

    def __init__(self, task: NodeTask, ran: InlineResult) -> None:
        self.shape, self.tick, self.ran = task.shape, task.tick, ran

    def collect(self, partition: int, partitions: int) -> tuple[list[pa.RecordBatch], NodeReport]:
        assert partitions == len(self.ran.reports)
        return self.ran.shares[partition], self.ran.reports[partition]


def draw_changes(rng: random.Random, bags: Bags, most: int) -> dict[str, list[tuple[dict[str, Any], int]]]:
    """Random changes of a tick, and the bags after it."""
    given: dict[str, list[tuple[dict[str, Any], int]]] = {}
    for name, columns in COLUMNS.items():
        for _ in range(rng.randrange(most)):
            bag = bags[name]
            if bag and rng.random() < 0.4:
                row, diff = rng.choice(sorted(bag)), -1
            else:
                row, diff = (rng.randrange(4), rng.randrange(4)), 1
                if name == "c":
                    row = (row[0], f"n{row[1]}")
            bag[row] += diff
            bags[name] = +bag
            given.setdefault(name, []).append((dict(zip(columns, row, strict=True)) | {"d": diff}, 1))
    return given


def join_bags(bags: Bags) -> Counter[tuple[Any, ...]]:
    rows: Counter[tuple[Any, ...]] = Counter()
    for (of, name), customers in bags["c"].items():
        for (no, cust), orders in bags["o"].items():
            for (of_line, item), lines in bags["l"].items():
                if of == cust and no == of_line:
                    rows[name, no, item] += customers * orders * lines
    return rows


def rows(name: str, *rows: tuple[Any, ...]) -> dict[str, list[tuple[dict[str, Any], int]]]:
    return {name: [(dict(zip(COLUMNS[name], row, strict=True)) | {"d": 1}, 1) for row in rows]}


def test_a_first_load_takes_the_last_path_alone():
    works = Works()
    job = LocalJob(plan_job(parse_job(JOB + ROWS)), MemoryStore(), watcher=works)
    loaded = job.tick(rows("c", (1, "Ada")) | rows("o", (7, 1)) | rows("l", (7, 3), (8, 3)))
    assert loaded.rows["console"] == [{"name": "Ada", "no": 7, "item": 3, "_diff": 1, "_tick": 1}]
    assert works.of(0) == ([0, 1], [[0, 0, 2], [0, 0, 1]])
    job.tick(rows("o", (8, 1)))
    assert works.of(1) == ([0, 2], [[0, 1, 0], [0, 1, 0]])


def test_a_path_is_open_as_soon_as_the_others_can_have_partners():
    """c came first, then l: changes of c find nothing while o is empty; those of o see l as it was before."""
    works = Works()
    job = LocalJob(plan_job(parse_job(JOB + ROWS)), MemoryStore(), watcher=works)
    job.tick(rows("c", (1, "Ada")))
    job.tick(rows("l", (7, 3)))
    assert [works.of(tick)[0] for tick in (0, 1)] == [[0, 1, 2], [0, 1, 2]]
    out = job.tick(rows("c", (1, "Bea")) | rows("o", (7, 1)))
    assert works.of(2) == ([0, 2], [[0, 1, 0], [0, 1, 0]])
    assert sorted(row["name"] for row in out.rows["console"]) == ["Ada", "Bea"]


@pytest.mark.parametrize("most", [2_000_000, 12, 0])
@pytest.mark.parametrize("seed", range(at_effort(quick=1, full=4)))
def test_inline_ticks_give_the_join(seed: int, most: int, monkeypatch: pytest.MonkeyPatch):
    """``most``: matches after which it gives up; all ticks, some, and none are handed over."""
    monkeypatch.setattr(tick_phases, "MAX_INLINE_MATCHES", most)
    rng, bags = random.Random(seed), {name: Counter[tuple[Any, ...]]() for name in COLUMNS}
    plan = plan_job(parse_job(JOB + ROWS))
    job = HandedOver(plan, MemoryStore(), settings=TickSettings(small_rows=14))
    sums: Counter[tuple[Any, ...]] = Counter()
    for _ in range(25):
        out = job.tick(draw_changes(rng, bags, 9))
        for row in out.rows["console"]:
            sums[row["name"], row["no"], row["item"]] += row["_diff"]
        assert +sums == join_bags(bags), (seed, out.result.tick)
        assert min(sums.values(), default=0) >= 0
    assert 0 < job.alone < 50, job.alone


def test_groups_above_take_what_the_driver_ran():
    job = HandedOver(plan_job(parse_job(JOB + GROUPS)), MemoryStore())
    out = job.tick(rows("c", (1, "Ada")) | rows("o", (7, 1)) | rows("l", (7, 3), (7, 4)))
    assert [(row["name"], row["lines"]) for row in out.rows["console"]] == [("Ada", 2)]
    assert job.alone == 3


class Passing(MemoryStore):
    """A store that knows what was not to last."""

    def __init__(self) -> None:
        super().__init__()
        self.passing: set[str] = set()

    def write(self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True) -> None:
        if not lasting:
            self.passing.add(name)
        super().write(name, data, lasting=lasting)


@pytest.mark.parametrize("plan", ["delta", "cascade"])
def test_state_holds_nothing_that_was_not_to_last(plan: str):
    """And what brings rows within a tick, from step to step, does not wait for the disk."""
    store, rng, bags = Passing(), random.Random(5), {name: Counter[tuple[Any, ...]]() for name in COLUMNS}
    job = LocalJob(plan_job(parse_job(JOB.replace("delta", plan) + GROUPS)), store, partitions=2)
    for _ in range(at_effort(quick=8, full=20)):
        job.tick(draw_changes(rng, bags, 9))
        manifest = job.driver.manifest
        assert manifest is not None
        assert not manifest.files() & store.passing
        assert all(
            live.run.name not in store.passing
            for node in manifest.queries["console"].nodes
            for kept in node.arrangements.values()
            for live in kept.runs
        )
    assert {name.split("/")[0] for name in store.passing} == {"runs"}


def test_inline_run_is_abandoned_if_its_output_is_too_large(monkeypatch: pytest.MonkeyPatch):
    job = LocalJob(plan_job(parse_job(JOB + ROWS)), MemoryStore())
    node_task, seen = RunningTick.node_task, []

    def create_task_and_run_inline(tick: RunningTick, name: str, number: int) -> NodeTask:
        task = node_task(tick, name, number)
        if number == job.plan.queries[0].root.number:
            seen.append(tick.run_inline(name, number, task, lambda ran: None))
            seen.append(tick.run_inline(name, number, task, lambda ran: replace(ran, shares=[])))
        return task

    monkeypatch.setattr(RunningTick, "node_task", create_task_and_run_inline)
    out = job.tick(rows("c", (1, "Ada")) | rows("o", (7, 1)) | rows("l", (7, 3), (7, 4)))
    assert len(out.rows["console"]) == 2
    first, second = seen
    assert first is None
    assert second.rows == []


@pytest.mark.parametrize(("few", "is_alone"), [(14, True), (1, False)])
def test_few_rows_that_another_query_made_go_out_by_the_driver(
    few: int, is_alone: bool, monkeypatch: pytest.MonkeyPatch
):
    sinks = "".join(f"CREATE TABLE out{n} WITH ('connector' = 'memory'); " for n in range(2))
    inserts = "".join(f"INSERT INTO out{n} {ROWS}; " for n in range(2))
    plan = plan_job(parse_job(JOB + sinks + inserts))
    job = LocalJob(plan, MemoryStore(), settings=TickSettings(small_rows=few))
    node_task, alone = RunningTick.node_task, []

    def create_task_and_record_inline_run(tick: RunningTick, name: str, number: int) -> NodeTask:
        task = node_task(tick, name, number)
        if name == "out1":
            alone.append(tick.run_inline(name, number, task))
        return task

    monkeypatch.setattr(RunningTick, "node_task", create_task_and_record_inline_run)
    out = job.tick(rows("c", (1, "Ada")) | rows("o", (7, 1)) | rows("l", (7, 3), (7, 4)))
    assert len(out.rows["out1"]) == 2
    assert [ran is not None for ran in alone] == [is_alone]
    if is_alone:
        assert sum(batch.num_rows for batch in alone[0].rows) == 2


RETAINED = """
CREATE TABLE l (t BIGINT, k STRING, v BIGINT, WATERMARK FOR t AS t - 20) WITH ('connector' = 'memory');
CREATE TABLE r (t BIGINT, k STRING, v BIGINT, WATERMARK FOR t AS t - 20) WITH ('connector' = 'memory');
"""
PAIRS = "SELECT l.v, r.v AS w FROM l {kind} JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 9 AND l.t + 30{more}"
CHAIN = """SELECT l.v, r.v AS w, x.v AS u FROM l {kind} JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 9 AND l.t
    LEFT JOIN r AS x ON x.k = l.k AND x.t BETWEEN l.t AND l.t + 20 AND x.v > l.v - 40"""


def draw_stream_rows(
    rng: random.Random, tick: int, count: int
) -> dict[str, list[tuple[dict[str, Any], int]]]:
    """Draw ``count`` rows a side for a tick: some are late, some have no key."""
    return {
        name: [
            ({"t": 10 * tick + rng.randrange(-25, 10), "k": rng.choice([*"abc", None]), "v": number}, 1)
            for number in (100 * tick + n for n in range(count))
        ]
        for name in "lr"
    }


EXISTS = "SELECT l.v, l.t FROM l {kind} JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 9 AND l.t + 30{more}"
NO_KEY = PAIRS.replace("l.k = r.k AND ", "")
EXISTS_NO_KEY = """SELECT l.v, l.t FROM l {kind} JOIN r
    ON r.t BETWEEN l.t AND l.t + 1 AND (l.v + r.v) % 2 = 0{more}"""
TWO_BANDS = NO_KEY.replace("{more}", " AND r.v BETWEEN l.v - 40 AND l.v + 40{more}")
NEAREST = """SELECT l.v, r.v AS w FROM l {kind} ASOF JOIN r
    MATCH_CONDITION (l.t {by} r.t) ON l.k = r.k AND r.t <= l.t + 10"""
WINDOW = """SELECT k, window_start, {kind} k) AS c, max(v) AS m FROM TABLE({by}) GROUP BY k, window_start,
    window_end"""
TUMBLE = "TUMBLE(TABLE l, DESCRIPTOR(t), 15)"
HOP = "HOP(TABLE r, DESCRIPTOR(t), 5, 20)"


INLINE = {
    "inner": ("INNER", PAIRS, ""),
    "left": ("LEFT", PAIRS, ""),
    "full": ("FULL", PAIRS, ""),
    "chain": ("FULL", CHAIN, ""),
    "semi": ("LEFT SEMI", EXISTS, ""),
    "anti": ("LEFT ANTI", EXISTS, ""),
    "no key": ("FULL", NO_KEY, ""),
    "two bands": ("FULL", TWO_BANDS, ""),
    "semi no key": ("LEFT SEMI", EXISTS_NO_KEY, ""),
    "anti no key": ("LEFT ANTI", EXISTS_NO_KEY, ""),
    "last": ("LEFT", NEAREST, ">="),
    "inner last": ("", NEAREST, ">="),
    "first": ("LEFT", NEAREST, "<="),
    "tumble": ("count(", WINDOW, TUMBLE),
    "hop": ("count(", WINDOW, HOP),
    "tumble of rows": ("count(DISTINCT", WINDOW, TUMBLE),
    "hop of rows": ("count(DISTINCT", WINDOW, HOP),
}
AT_FULL_EFFORT = ("semi no key", "inner last", "hop", "tumble of rows")
LIMITS = ((2_000_000, 1), (12, 1), (2_000_000, 3))
"""(most matches, threads) of inline execution."""


@pytest.mark.parametrize(
    ("kind", "text", "by", "most", "threads"),
    [
        pytest.param(
            *query,
            *limits,
            marks=() if place % len(LIMITS) == number and name not in AT_FULL_EFFORT else pytest.mark.full,
            id=f"{name}-{limits[0]}-{limits[1]}",
        )
        for place, (name, query) in enumerate(INLINE.items())
        for number, limits in enumerate(LIMITS)
    ],
)
def test_inline_execution_gives_what_tasks_give(
    seed: int, kind: str, text: str, by: str, most: int, threads: int, monkeypatch: pytest.MonkeyPatch
):
    """Rows (by one thread in order), late ones, watermarks, accounts and what is retained, tick by tick."""
    monkeypatch.setattr(tick_phases, "MAX_INLINE_MATCHES", most)
    monkeypatch.setattr(amount_module, "MIN_TASK_ROWS", 5)
    plan = plan_job(parse_job(RETAINED + text.format(kind=kind, by=by, more=" AND l.v + r.v <> 7")))
    rng = random.Random(f"{seed} {kind} {text} {by}")
    by_pairs = (PAIRS, CHAIN, EXISTS, NO_KEY, EXISTS_NO_KEY, TWO_BANDS)
    # of rows that a SEMI join has matched it retains none, so its ticks are smaller
    small_rows = 50 if text == EXISTS else 60 if text in by_pairs else 30
    settings = TickSettings(small_rows=small_rows, threads=threads)
    ours = HandedOver(plan, MemoryStore(), partitions=threads, whole=True, settings=settings)
    plain = LocalJob(plan, MemoryStore())
    put_out, counts = 0, [count for _ in range(4) for count in rng.sample((0, 3, 8, 16, 40), 5)]
    for tick in range(20):
        rows, end = draw_stream_rows(rng, tick, counts[tick]), tick == 19
        one, other = ours.tick(rows, end=end), plain.tick(rows, end=end)
        if threads == 1:
            assert one.rows == other.rows, (seed, tick)
        else:
            found, wanted = (sorted(map(repr, each.rows["console"])) for each in (one, other))
            assert found == wanted, (seed, tick)
        assert one.late == other.late
        put_out += len(one.rows["console"])
        mine, theirs = one.result.queries["console"], other.result.queries["console"]
        for told in ("account", "state", "matches", "rows_out", "output_watermarks", "input_watermarks"):
            assert getattr(mine, told) == getattr(theirs, told), (seed, tick, told)
    assert put_out > (100 if text in (PAIRS, CHAIN) else 25)
    assert ours.most_shares == threads
    assert ours.alone < ours.nodes, "large ticks are not the driver's"
    assert ours.alone > ours.nodes / 2 or most < 2_000_000


@pytest.mark.parametrize("text", [PAIRS, NO_KEY], ids=["key", "no key"])
def test_conditions_that_spark_computes_are_not_the_drivers(text: str):
    """Such as those over other types than were planned with."""
    plan = plan_job(parse_job(RETAINED + text.format(kind="LEFT", more=" AND l.v + r.v <> 7")))
    (query,) = plan.queries
    for number, is_the_drivers in ((pa.int64(), True), (pa.int32(), False)):
        types = {"t": pa.int64(), "k": pa.string(), "v": number}
        schemas = {
            f"{query.name}/{side.name}": pa.schema([(name, types[name]) for name in side.kept])
            for side in query.sides
        }
        (shape,) = restore(plan, schemas, MemoryStore()).context.shapes[query.name]
        assert find_driver(query.root).costs_by_new_rows(shape) is is_the_drivers


@pytest.mark.parametrize(("most", "alone"), [(2_000_000, 7), (1, 0)])
@pytest.mark.parametrize("kind", ["LEFT", "INNER", "LEFT SEMI", "LEFT ANTI"])
def test_look_ups_that_the_driver_runs_come_to_the_same(
    kind: str, most: int, alone: int, monkeypatch: pytest.MonkeyPatch
):
    """6 rows of a tick ask for a key of 2 rows and more: 12 candidates, where 2 are allowed, or very many."""
    monkeypatch.setattr(tick_phases, "MAX_INLINE_MATCHES", most)
    stream = {"columns": {"t": "BIGINT", "k": "BIGINT"}, "time": {"t": {"lag": 0}}}
    table = "a FOR SYSTEM_TIME AS OF now() AS c"
    query = f"SELECT l.t{{}} FROM l {kind} JOIN {table} ON c.k = l.k AND c.v <> 'w'"
    case = {
        "streams": {"l": stream},
        "tables": {"a": {"columns": {"k": "BIGINT", "v": "STRING"}}},
        "query": query.format("" if "LEFT " in kind else ", c.v"),
    }
    plan = plan_job(case_job(case))
    ours = HandedOver(plan, MemoryStore(), whole=True, settings=TickSettings(small_rows=60))
    other = LocalJob(plan, MemoryStore())
    name = plan.queries[0].name
    for tick in range(8):
        count = 140 if tick == 5 else 12
        rows: Any = {"l": [({"t": tick, "k": n % 2 or None}, 1) for n in range(count)]}
        if tick in (0, 3):
            rows["a"] = [({"k": 1, "v": v}, 1) for v in ("uvw" if tick == 0 else "xyz")]
        mine, theirs = ours.tick(rows), other.tick(rows)
        assert mine.rows == theirs.rows
        told = [each.result.queries[name] for each in (mine, theirs)]
        assert told[0].account == told[1].account
        assert told[0].matches == told[1].matches
    assert ours.alone == alone


def test_what_is_released_counts_as_rows_that_come():
    plan = plan_job(parse_job(RETAINED + PAIRS.format(kind="LEFT", more="")))
    job = HandedOver(plan, MemoryStore(), whole=True, settings=TickSettings(small_rows=60))
    rows = [({"t": t, "k": "a", "v": t}, 1) for t in range(1000)]
    job.tick({"l": rows})
    assert job.alone == 0
    few = {name: [({"t": t, "k": "b", "v": 1}, 1)] for name, t in (("l", 1001), ("r", 200))}
    job.tick(few)
    assert job.alone == 0, "170 rows or so are put out"
    job.tick({"r": [({"t": 220, "k": "b", "v": 1}, 1)]})
    assert job.alone == 1
    settings = TickSettings(small_rows=60, tasks_asked=True)
    asked = HandedOver(plan, job.store, whole=True, settings=settings)
    asked.tick({"r": [({"t": 221, "k": "b", "v": 1}, 1)]})
    assert asked.alone == 0, "so many tasks as the user says, in every tick"


def test_what_a_run_fetches_is_bounded():
    few = CostEstimate(rows=1, nbytes=1, pairs=0, memory=1, few=1, kept=FETCHED_BYTES + 1)
    assert few.is_small(1)
    assert not few.is_small(1, fetched=True)
    assert not replace(few, pairs=tick_phases.MAX_INLINE_MATCHES + 1.0).is_small(1)
    assert not few.is_small(inline_row_limit({"small_ticks": "spark"}))
    assert few.is_small(inline_row_limit({}))


@pytest.mark.parametrize(("customers", "alone"), [(300, True), (720, False)])
def test_what_one_share_may_not_hold_is_left_to_tasks(customers: int, alone: bool):
    """18 and 44 MiB come, where a task may hold 40."""
    job = HandedOver(
        plan_job(parse_job(f"SET max_task_memory = '40 MB'; {JOB}{ROWS}")), MemoryStore(), partitions=4
    )
    job.tick(rows("c", *((number, f"{number}" + "x" * 64_000) for number in range(customers))))
    assert (job.alone == job.nodes) is alone


def test_the_driver_does_not_begin_what_it_left_to_tasks_before():
    counts = TaskCounts(SimpleNamespace(sparkContext=None), 2)  # type: ignore[arg-type]
    few = CostEstimate(rows=10, nbytes=1, pairs=0, memory=1, few=10)
    asked = []

    class Tick:
        amount = staticmethod(lambda query, number: few)

        def run_inline(self, query: str, number: int, task: None, then: None) -> None:
            asked.append(query)

    def count_inline_attempts(found: int) -> int:
        """``found``: in the tick before."""
        asked.clear()
        counts.begin()
        counts.of("q", 0, few)
        counts.learn({"q": SimpleNamespace(matches=found, rows_out=1)})  # type: ignore[dict-item]
        counts.begin()
        assert run_node_inline(Tick(), counts, ("q", 0), None) is None  # type: ignore[arg-type]
        return len(asked)

    assert counts.estimate_rows("q", few) == 0
    most = tick_phases.MAX_INLINE_MATCHES
    assert [count_inline_attempts(found) for found in (most, most + 10, 3)] == [1, 0, 1]
    assert counts.estimate_rows("q", replace(few, rows=20)) == 6


def one_by_one(*given: tuple[int, str, int]) -> list[tuple[dict[str, Any], int]]:
    return [({"t": t, "k": k, "v": v}, 1) for t, k, v in given]


@pytest.mark.parametrize(("most", "is_alone"), [(9, False), (16, True)])
@pytest.mark.parametrize("what", ["candidates", "released"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("LEFT", PAIRS), ("LEFT SEMI", EXISTS), ("LEFT ANTI", EXISTS), ("LEFT", NEAREST)),
        *(("LEFT", NO_KEY), ("LEFT SEMI", EXISTS_NO_KEY), ("LEFT ANTI", EXISTS_NO_KEY)),
    ],
    ids=["left", "semi", "anti", "asof", "left no key", "semi no key", "anti no key"],
)
def test_work_that_finds_no_match_is_bounded(
    kind: str, text: str, what: str, most: int, is_alone: bool, monkeypatch: Any
):
    """20 pairs that the condition refuses (ASOF takes them), or 20 rows that go: for each match 2 of these
    are allowed."""
    monkeypatch.setattr(tick_phases, "MAX_INLINE_MATCHES", most)
    query = text.format(kind=kind, by=">=", more=" AND l.v + r.v < 0")
    job = HandedOver(
        plan_job(parse_job(RETAINED + query)), MemoryStore(), whole=True, settings=TickSettings(small_rows=60)
    )
    job.tick({"l": one_by_one(*((5, "a", n) for n in range(20)))})
    assert job.alone == 1
    then = {"r": one_by_one((5, "a", 1))}
    if what == "released":
        then = {"l": one_by_one((500, "b", 1)), "r": one_by_one((500, "c", 1))}
    job.tick(then)
    assert job.alone - 1 == is_alone


@pytest.mark.parametrize(
    ("runs", "most", "is_alone"), [(1, 9, False), (1, 16, True), (4, 4, False), (4, 5, True)]
)
def test_candidates_of_a_path_are_bounded(runs: int, most: int, is_alone: bool, monkeypatch: Any):
    """20 orders of a customer, none of which the condition takes: for each match 2 of these are allowed in
    one run, and 4 in all."""
    monkeypatch.setattr(tick_phases, "MAX_INLINE_MATCHES", most)
    plan = plan_job(parse_job(JOB + ROWS + " AND c.name < CAST(o.no AS STRING)"))
    job = HandedOver(plan, MemoryStore(), whole=True, settings=TickSettings(small_rows=60))
    orders = [({"no": n, "cust": 1, "d": 1}, 1) for n in range(20)]
    for run in range(runs):
        job.tick({"o": orders[run::runs], "l": [({"no": 0, "item": 1, "d": 1}, 1)]})
    alone, nodes = job.alone, job.nodes
    assert alone == nodes
    job.tick({"c": [({"id": 1, "name": "z", "d": 1}, 1)]})
    assert job.alone - alone == job.nodes - nodes - (not is_alone)


@pytest.mark.parametrize(("most", "is_alone"), [(50, False), (100, True)])
@pytest.mark.parametrize("more", ["", " AND l.v + r.v < 0"], ids=["found", "refused"])
def test_inline_sort_of_retained_rows_is_bounded(most: int, is_alone: bool, more: str, monkeypatch: Any):
    """101 rows are kept in order of time, by which each of the tick's 60 asks for all; by number, for one."""
    monkeypatch.setattr(tick_phases, "MAX_INLINE_MATCHES", most)
    query = NO_KEY.format(kind="INNER", more=" AND r.v BETWEEN l.v AND l.v" + more)
    job = HandedOver(
        plan_job(parse_job(RETAINED + query)),
        MemoryStore(),
        whole=True,
        settings=TickSettings(small_rows=1000),
    )
    job.tick({"l": one_by_one(*((5, "a", n) for n in range(101)))})
    assert job.alone == 1
    out = job.tick({"r": one_by_one(*((5, "a", n) for n in range(60)))})
    assert job.alone - 1 == is_alone
    assert len(out.rows["console"]) == (0 if more else 60)


@pytest.mark.parametrize(("most", "alone"), [(100, 0), (100_000, 2)])
def test_bytes_that_leave_are_bounded_wherever_they_go(most: int, alone: int, monkeypatch: Any):
    """Ten rows go from the first join to the second, and out of that: both give up, or none does."""
    monkeypatch.setattr(share_module, "INLINE_BYTES", most)
    job = HandedOver(
        plan_job(parse_job(RETAINED + CHAIN.format(kind="LEFT"))),
        MemoryStore(),
        whole=True,
        settings=TickSettings(small_rows=60),
    )
    rows = one_by_one(*((5, "a", n) for n in range(10)))
    job.tick({"l": rows, "r": one_by_one((5, "a", 1))})
    assert (job.alone, job.nodes) == (alone, 2)


@pytest.mark.parametrize(("most", "is_alone"), [(60_000, False), (100_000, True)])
def test_bytes_that_go_along_a_path_are_bounded(most: int, is_alone: bool, monkeypatch: Any):
    """A customer with a name of 4,000 bytes has 20 orders, none of which has a line: nothing leaves."""
    monkeypatch.setattr(share_module, "INLINE_BYTES", most)
    job = HandedOver(
        plan_job(parse_job(JOB + ROWS)), MemoryStore(), whole=True, settings=TickSettings(small_rows=60)
    )
    orders = [({"no": n, "cust": 1, "d": 1}, 1) for n in range(20)]
    job.tick({"o": orders, "l": [({"no": 99, "item": 1, "d": 1}, 1)]})
    alone, nodes = job.alone, job.nodes
    out = job.tick({"c": [({"id": 1, "name": "z" * 4000, "d": 1}, 1)]})
    assert not out.rows["console"]
    assert job.alone - alone == job.nodes - nodes - (not is_alone)


@pytest.mark.parametrize(("most", "is_alone"), [(30_000, False), (100_000, True)])
def test_bytes_that_several_queries_take_are_bounded_for_each(most: int, is_alone: bool, monkeypatch: Any):
    """A join of 10 rows of 1,000 bytes, run once, which goes out and into three more queries."""
    monkeypatch.setattr(share_module, "INLINE_BYTES", most)
    sinks = "".join(f"CREATE TABLE out{n} WITH ('connector' = 'memory'); " for n in range(4))
    inserts = "".join(f"INSERT INTO out{n} {ROWS}; " for n in range(4))
    job = HandedOver(
        plan_job(parse_job(JOB + sinks + inserts)),
        MemoryStore(),
        whole=True,
        settings=TickSettings(small_rows=60),
    )
    lines = [({"no": 7, "item": n, "d": 1}, 1) for n in range(10)]
    out = job.tick(rows("c", (1, "z" * 1000)) | rows("o", (7, 1)) | {"l": lines})
    assert [len(out.rows[f"out{n}"]) for n in range(4)] == [10] * 4
    assert (job.nodes - job.alone == 0) == is_alone


@pytest.mark.parametrize("calls", ["count(", "count(DISTINCT"])
@pytest.mark.parametrize(("most", "is_alone"), [(100_000, False), (300_000, True)])
def test_bytes_of_rows_with_their_windows_are_bounded(
    calls: str, most: int, is_alone: bool, monkeypatch: Any
):
    """A row of about 10,000 bytes is in 20 windows that close."""
    monkeypatch.setattr(share_module, "INLINE_BYTES", most)
    query = f"SELECT window_start, {calls} k) AS n FROM TABLE(HOP(TABLE r, DESCRIPTOR(t), 1, 20)) GROUP BY k"
    query += ", window_start, window_end"
    job = HandedOver(
        plan_job(parse_job(RETAINED + query)), MemoryStore(), whole=True, settings=TickSettings(small_rows=60)
    )
    job.tick({"r": one_by_one((100, "k" * 10_000, 1))})
    assert job.alone == 1
    out = job.tick({"r": one_by_one((500, "e", 1))})
    assert len(out.rows["console"]) == 20
    assert job.alone - 1 == is_alone


@pytest.mark.parametrize(("most", "is_alone"), [(4, False), (128, True)])
def test_rows_that_many_ask_for_again_are_bounded(most: int, is_alone: bool, monkeypatch: Any):
    """Each of 10 rows of the right side is in the reach of all 20 of the left: 200 hits, of 20 rows."""
    monkeypatch.setattr(tick_phases, "MAX_INLINE_MATCHES", most)
    job = HandedOver(
        plan_job(parse_job(RETAINED + NEAREST.format(kind="LEFT", by=">="))),
        MemoryStore(),
        whole=True,
        settings=TickSettings(small_rows=60),
    )
    job.tick({"l": one_by_one(*((5, "a", n) for n in range(20)))})
    assert job.alone == 1
    job.tick({"r": one_by_one(*((5 - n, "a", n) for n in range(3)), *((5, "a", n) for n in range(7)))})
    assert job.alone - 1 == is_alone


@pytest.mark.parametrize("calls", ["count(", "count(DISTINCT"])
def test_rows_in_windows_that_close_are_bounded(calls: str, monkeypatch: Any):
    """A row is in 20 windows; 16 pairs of a row and a window that closes are allowed."""
    monkeypatch.setattr(tick_phases, "MAX_INLINE_MATCHES", 8)
    query = WINDOW.format(kind=calls, by="HOP(TABLE r, DESCRIPTOR(t), 1, 20)")
    job = HandedOver(
        plan_job(parse_job(RETAINED + query)), MemoryStore(), whole=True, settings=TickSettings(small_rows=60)
    )
    kept = ((100, k, 1) for k in "abc")
    ticks = [[*kept], [(120, "d", 1)], [(121, "d", 1)], [(139, "d", 1)], [(200, "e", 1), (500, "e", 1)]]
    alone = []
    for rows in ticks:
        before = job.alone
        job.tick({"r": one_by_one(*rows)})
        alone.append(job.alone - before)
    assert alone == [1, 1, 1, 0, 0], "one window of three rows; 18 of them; all of rows, of the tick's too"


def test_rows_of_a_tick_in_windows_that_it_closes_are_bounded(monkeypatch: Any):
    monkeypatch.setattr(tick_phases, "MAX_INLINE_MATCHES", 8)
    query = WINDOW.format(kind="count(", by="HOP(TABLE r, DESCRIPTOR(t), 1, 20)")
    job = HandedOver(
        plan_job(parse_job(RETAINED + query)), MemoryStore(), whole=True, settings=TickSettings(small_rows=60)
    )
    job.tick({"r": one_by_one((5, "a", 1), (500, "b", 1))})
    assert job.alone == 0


class Remote(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.traffic = Meter()  # type: ignore[assignment]


@pytest.mark.parametrize(("store", "alone"), [(MemoryStore, 2), (Remote, 1)])
def test_remote_retained_runs_count_as_fetched_bytes(store: Any, alone: int, monkeypatch: Any):
    monkeypatch.setattr(amount_module, "FETCHED_BYTES", 10)
    job = HandedOver(
        plan_job(parse_job(RETAINED + PAIRS.format(kind="INNER", more=""))),
        store(),
        whole=True,
        settings=TickSettings(small_rows=60),
    )
    for side in "lr":
        job.tick({side: one_by_one((5, "a", 1))})
    assert job.alone == alone


@pytest.mark.parametrize(("store", "alone"), [(MemoryStore, 2), (Remote, 0)])
def test_a_table_counts_where_it_would_be_fetched(store: Any, alone: int, monkeypatch: Any):
    monkeypatch.setattr(amount_module, "FETCHED_BYTES", 10)
    case = {
        "streams": {"l": {"columns": {"t": "BIGINT", "k": "BIGINT"}, "time": {"t": {"lag": 0}}}},
        "tables": {"a": {"columns": {"k": "BIGINT", "v": "STRING"}}},
        "query": "SELECT l.t, c.v FROM l LEFT JOIN a FOR SYSTEM_TIME AS OF PROCTIME() AS c ON c.k = l.k",
    }
    job = HandedOver(plan_job(case_job(case)), store(), whole=True, settings=TickSettings(small_rows=60))
    for tick in range(2):
        table: Any = {} if tick else {"a": [({"k": 1, "v": "u"}, 1)]}
        job.tick({"l": [({"t": tick, "k": 1}, 1)]} | table)
    assert job.alone == alone


@pytest.mark.parametrize(("cores", "own", "threads"), [(1, 8, 1), (8, 8, 4), (2, 8, 2), (8, 3, 3)])
def test_threads_are_no_more_than_there_are_cores_for(
    cores: int, own: int, threads: int, monkeypatch: pytest.MonkeyPatch
):
    """Also where nobody says which cores a process has, as on macOS."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(own)), raising=False)
    assert amount_module.count_driver_threads(cores) == threads
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: own)
    assert amount_module.count_driver_threads(cores) == threads
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert amount_module.count_driver_threads(cores) == 1
