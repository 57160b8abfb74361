"""A chain of joins run once more in this process: over the rows that were read again, tick by tick, with the
watermarks that the history has. So each joined row comes out in the tick in which it did, pads included.

Rows are numbered by input, branch after branch; in what comes out there are the numbers of the rows in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from sqlglot import exp

from watersmeet.engine.local import LocalJob
from watersmeet.engine.local.given import zoned
from watersmeet.errors import PlanError, SeveralErrors
from watersmeet.event_time import Mask, Watermark
from watersmeet.names import DIFF, PARTITION, SHOWN_DIFF, ours
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.sides import SidePlan, joined_name
from watersmeet.plan.planner import plan_job
from watersmeet.spec.changing import ChangeColumn
from watersmeet.spec.model import (
    Branch,
    Column,
    Input,
    Insert,
    Job,
    Join,
    JoinKind,
    OnIdle,
    Options,
    OutputColumn,
    OutputMode,
    Query,
    Relation,
    Sink,
    StageBranch,
    inputs_of,
    visible_inputs,
    with_inputs,
)
from watersmeet.state.manifest import Arrangement, LiveRun
from watersmeet.state.marks import read_marks
from watersmeet.state.runs.opened import OpenRun
from watersmeet.state.store import MemoryStore, Store
from watersmeet.types.sql_type import BIGINT
from watersmeet.whatif.pairs import ROW, apart_name, numbered
from watersmeet.why.judged import InputRows
from watersmeet.why.recorded import Recorded
from watersmeet.why.reread import Numbers

NOBODY = -1
"""In place of a row's number: NULLs."""

_TIMES = ours("why_diff")
"""The column that says how often a row of a source of changes comes, or goes."""

KINDS = (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL, JoinKind.SEMI, JoinKind.ANTI)


@dataclass(frozen=True)
class Joined:
    """What left a join, or a query, row by row. ``slots``: that of the tick; ``rows``: per alias the number
    of its row, or `NOBODY`; ``diffs``: how often it came, or went."""

    slots: Numbers
    rows: Mapping[str, Numbers]
    diffs: Numbers

    def of(self, alias: str, number: int) -> Iterator[tuple[int, dict[str, int]]]:
        """Those that have this row: slot, and per alias the number."""
        if alias not in self.rows:
            return
        for at in np.flatnonzero(self.rows[alias] == number).tolist():
            yield int(self.slots[at]), {name: int(own[at]) for name, own in self.rows.items()}


@dataclass(frozen=True)
class TickWise:
    """The ticks to run. ``marks``: per watermark key, after each of them; ``ended``: the slot of the tick
    that ended the input; ``clocks``: of each of them, where something goes by it."""

    count: int
    marks: Mapping[str, Sequence[Watermark]]
    ended: int | None
    clocks: Sequence[int] | None = None

    @classmethod
    def of(cls, query: QueryPlan, history: Recorded, clocks: Sequence[int] | None = None) -> TickWise:
        """All ticks of a history."""
        marks = {
            side.watermark_key(column): history.mark(query.name, side.name, column, "watermark")
            for side in query.sides
            for column in side.event_times
        }
        return cls(len(history), marks, history.ended, clocks)


def is_chain(query: QueryPlan, insert: Insert) -> bool:
    """Whether a query is joins of three or more streams and nothing else, none of them ASOF."""
    joins = joins_of(insert.query.relation)
    if len(joins) < 2 or insert.query.aggregation is not None or query.taken:
        return False
    inputs = list(inputs_of(insert.query.relation))
    sources = [branch.source for own in inputs for branch in own.branches if isinstance(branch, Branch)]
    return (
        all(join.kind in KINDS and not join.is_lookup for join in joins)
        and len(sources) == sum(len(own.branches) for own in inputs)
        and not any(own.is_table for own in inputs)
        and not any(source.changes for source in sources)
        and all(node.grouped is None for node in query.nodes)
        and not any(node.changes or node.left_to_spark for node in query.nodes)
    )


def joins_of(relation: Relation) -> list[Join]:
    """Each after those beneath it."""
    if isinstance(relation, Input):
        return []
    return [*joins_of(relation.left), *joins_of(relation.right), relation]


def shape_of(query: QueryPlan) -> list[tuple[str, list[str]]]:
    """How its joins are run: rows of streams are let go by joins. Records of a primary key are called by
    their source, too, which is left out."""

    def named(side: SidePlan) -> str:
        return side.name if side.feed is not None else side.name.partition(".")[0]

    return [(node.noun, [named(side) for side in node.sides]) for node in query.alone.nodes]


def aliases_of(relation: Relation) -> list[str]:
    """Of the inputs whose columns its rows have."""
    return [own.alias for own in visible_inputs(relation)]


def in_branches(mask: Mask, branches: Sequence[InputRows]) -> list[Mask]:
    """What is of an input's rows, branch by branch."""
    return np.split(mask, np.cumsum([len(own.came_to) for own in branches])[:-1])


class Replay:
    """Runs a chain again. ``masks``: per alias and branch, which rows there are. ``mode``: whether rows of
    the output are taken back. ``numbers``: per alias those of its rows, where they are others than their
    places: equal rows of a source of changes have one."""

    def __init__(
        self,
        insert: Insert,
        job: Job,
        inputs: Mapping[str, Sequence[InputRows]],
        masks: Mapping[str, Sequence[Mask]],
        mode: OutputMode = OutputMode.APPEND,
        numbers: Mapping[str, Numbers] | None = None,
    ) -> None:
        self._insert, self._job, self._inputs, self._mode = insert, job, inputs, mode
        self._rows: dict[str, tuple[pa.Table, Numbers]] = {}
        for alias, branches in inputs.items():
            first = 0
            for branch, mask in zip(branches, masks[alias], strict=True):
                chosen = np.flatnonzero(mask)
                chosen = chosen[np.argsort(branch.of.slot[chosen], kind="stable")]
                rows = branch.of.rows.take(pa.array(chosen))
                diffs = rows.column(DIFF)
                rows = rows.drop_columns([DIFF, PARTITION])
                own = chosen + first
                own = own if numbers is None or alias not in numbers else numbers[alias][own]
                rows = rows.append_column(ROW, pa.array(own))
                if branch.of.reread.source.changes:
                    rows = rows.append_column(_TIMES, diffs.cast(pa.int64()))
                self._rows[apart_name(alias, branch.number)] = rows, branch.of.slot[chosen]
                first += len(mask)

    def at_once(self) -> Joined:
        """What comes of all rows in one tick, without watermarks. Raises: EngineError, as a run."""
        plan = self.plan()
        (query,) = plan.queries
        engine = LocalJob(plan, MemoryStore(), given=True)
        try:
            self._push(engine, plan, None)
            table = engine.tick(clock_us=0).tables[query.name]
        finally:
            engine.close()
        return _joined([(0, table)], aliases_of(self._insert.query.relation))

    def in_ticks(self, ticks: TickWise, alias: str, numbers: Numbers) -> tuple[Joined, dict[int, int]]:
        """What the query put out; and of these rows of an input the slot of the tick from whose end on
        nothing is kept of each. Rows of which something still is are not among them."""
        plan = self.plan()
        watch = _Kept(alias, numbers, self._slots_of(alias, numbers))
        (tables,) = self._run(plan, ticks, watch).values()
        return _joined(tables, aliases_of(self._insert.query.relation)), watch.gone

    def put_out(self, ticks: TickWise, kept: QueryPlan) -> pa.Table | None:
        """What the query put out, with its own columns, of all ticks. None: by itself its joins are run in
        another way than in ``kept``. Raises: EngineError, as a run; PlanError."""
        query = replace(
            self._insert.query,
            relation=with_inputs(
                self._insert.query.relation, lambda own: _with_times(numbered(own, apart=True))
            ),
            mode=self._mode if self._insert.query.mode is None else self._insert.query.mode,
        )
        plan = plan_job(self._with([replace(self._insert, sink=Sink("replayed", "memory"), query=query)]))
        if shape_of(plan.queries[0]) != shape_of(kept):
            return None
        (tables,) = self._run(plan, ticks, None, keep_empty=True).values()
        return pa.concat_tables([table for _, table in tables])

    def held(self, ticks: TickWise, aliases: Sequence[str]) -> dict[str, Joined]:
        """What inputs held, each by itself and without its filters: per alias the rows that came into it, and
        those that went. Raises: EngineError, as a run; PlanError."""
        inserts, named = [], dict[str, str]()
        for number, given in enumerate(self._insert.query.inputs):
            if given.alias in aliases:
                alone = Query(_unfiltered(given), None, (), "", mode=OutputMode.CHANGELOG)
                name = named[given.alias] = f"input{number}"
                inserts.append(self._numbered(Insert(name, Sink(name, "memory"), alone)))
        tables = self._run(plan_job(self._with(inserts)), ticks, None)
        return {alias: _joined(tables[name], [alias]) for alias, name in named.items()}

    def stages(self, ticks: TickWise) -> list[tuple[Join, Joined]]:
        """What left each of the joins, those first that are beneath others; of the uppermost one before
        WHERE. Joins that by their own condition alone would keep rows for ever are left out."""
        relation = self._insert.query.relation
        named: dict[str, Join] = {}
        inserts: list[Insert] = []
        for number, join in enumerate(joins_of(relation)):
            query = Query(join, None, (), "")
            own = self._numbered(Insert(f"stage{number}", Sink(f"stage{number}", "memory"), query))
            try:
                plan_job(self._with([own]))
            except (PlanError, SeveralErrors):
                continue
            inserts.append(own)
            named[own.name] = join
        if not inserts:
            return []
        tables = self._run(plan_job(self._with(inserts)), ticks, None)
        return [(join, _joined(tables[name], aliases_of(join))) for name, join in named.items()]

    def meetings(self, ticks: TickWise, join: Join) -> Joined:
        """The rows of both sides of a SEMI or ANTI join that meet, each in its tick. Raises: EngineError, as
        a run; PlanError, SeveralErrors: such a join cannot be run by itself."""
        query = Query(replace(join, kind=JoinKind.INNER, where=None), None, (), "")
        insert = self._numbered(Insert("met", Sink("met", "memory"), query))
        (tables,) = self._run(plan_job(self._with([insert])), ticks, None).values()
        return _joined(tables, aliases_of(query.relation))

    def plan(self) -> JobPlan:
        """That of the chain alone. Raises: PlanError."""
        insert = replace(self._insert, sink=Sink("replayed", "memory"))
        return plan_job(self._with([self._numbered(insert)]))

    def _numbered(self, insert: Insert) -> Insert:
        relation = insert.query.relation
        outputs = tuple(
            OutputColumn(f"r{number}", exp.column(ROW, table=alias), f"{alias}.{ROW}")
            for number, alias in enumerate(aliases_of(relation))
        )
        query = replace(
            insert.query,
            relation=with_inputs(relation, lambda own: _with_times(numbered(own, apart=True))),
            outputs=outputs,
            mode=self._mode if insert.query.mode is None else insert.query.mode,
        )
        return replace(insert, query=query)

    def _with(self, inserts: Sequence[Insert]) -> Job:
        given = self._job.options
        options = Options(
            watermark_rule=given.watermark_rule,
            allowed_lateness=given.allowed_lateness,
            plan=given.plan,
            time_zone=given.time_zone,
        )
        return replace(self._job, inserts=tuple(inserts), options=options, run={}, sinks=(), explains=())

    def _slots_of(self, alias: str, numbers: Numbers) -> Numbers:
        return np.concatenate([own.of.slot for own in self._inputs[alias]])[numbers]

    def _push(self, engine: LocalJob, plan: JobPlan, slot: int | None) -> bool:
        """The rows of one tick, or of all; whether there were some."""
        pushed = False
        for source in plan.sources:
            rows, slots = self._rows[source.name]
            first, end = 0, len(slots)
            if slot is not None:
                first, end = np.searchsorted(slots, [slot, slot + 1]).tolist()
            if first < end:
                engine.push(source.name, zoned(rows.slice(first, end - first), source.columns))
                pushed = True
        return pushed

    def _run(
        self, plan: JobPlan, ticks: TickWise, watch: _Kept | None, *, keep_empty: bool = False
    ) -> dict[str, list[tuple[int, pa.Table]]]:
        names = {query.name for query in plan.queries if not query.is_index}
        of_plan = {
            side.watermark_key(column)
            for query in plan.queries
            for side in query.alone.sides
            for column in side.event_times
        }
        all_of_them = ticks.clocks is not None and any(b < a for a, b in pairwise(ticks.clocks))
        """A clock that was set back counts as the greatest one so far."""
        come = {slot for _, slots in self._rows.values() for slot in np.unique(slots).tolist()}
        reached: dict[str, Watermark] = {}
        tables: dict[str, list[tuple[int, pa.Table]]] = {name: [] for name in names}
        engine, keeps, remembers = LocalJob(plan, MemoryStore(), given=True), False, False
        try:
            for slot in range(ticks.count):
                is_end = slot == ticks.ended
                moves = self._push(engine, plan, slot) or is_end or all_of_them
                if not moves and not keeps:  # watermarks have nothing to let go
                    continue
                for key in () if is_end else of_plan:
                    mark = ticks.marks[key][slot]
                    if isinstance(mark, int) and mark > reached.get(key, mark - 1):
                        reached[key] = mark
                        engine.advance_key(key, mark)
                        moves = True
                if not moves and not (remembers and slot + 1 in come):
                    continue
                clock_us = 0 if ticks.clocks is None else ticks.clocks[slot]
                output = engine.tick(clock_us=clock_us, end=is_end)
                for name, table in output.tables.items():
                    if table.num_rows or keep_empty:
                        tables[name].append((slot, table))
                if watch is not None:
                    watch.look(engine, plan.queries[0], slot)
                kept = _kept_by(engine)
                keeps = any(own.stored for own in kept)
                # What is stored and is no row is a delete. A tick forgets it by its clock, which shows when
                # the next rows come.
                remembers = ticks.clocks is not None and any(own.stored > own.retained for own in kept)
                if is_end:
                    break
            if keep_empty and not all(tables.values()):  # of no tick, for its columns
                for name, table in engine.tick(clock_us=0).tables.items():
                    tables[name].append((ticks.count, table))
        finally:
            engine.close()
        return tables


class _Kept:
    """Looks after every tick at what is kept of rows of an input. ``gone``: the slot of the tick after which
    nothing is, per row."""

    def __init__(self, alias: str, numbers: Numbers, slots: Numbers) -> None:
        self._alias, self._there = alias, dict(zip(numbers.tolist(), slots.tolist(), strict=True))
        self.gone: dict[int, int] = {}

    def look(self, engine: LocalJob, query: QueryPlan, slot: int) -> None:
        asked = [number for number, came in self._there.items() if came <= slot]
        if not asked:
            return
        kept = self._kept(engine, query)
        for number in np.array(asked)[~np.isin(asked, kept)].tolist():
            self.gone[number] = slot
            del self._there[number]

    def _kept(self, engine: LocalJob, query: QueryPlan) -> Numbers:
        manifest, store = engine.driver.manifest, engine.driver.store
        assert manifest is not None
        of_runs: list[Numbers] = [np.zeros(0, dtype=np.int64)]
        for node, state in zip(query.nodes, manifest.queries[query.name].nodes, strict=True):
            shapes = {shape.name: shape for shape in engine.driver.shapes[query.name][node.number].sides}
            for side in node.sides:
                column = ROW if side.feed is None else joined_name(self._alias, ROW)
                arrangement = state.arrangements.get(side.name)
                is_own = side.feed is not None or side.name == self._alias
                if arrangement is None or not is_own or column not in side.kept:
                    continue
                for live in arrangement.runs:
                    run = OpenRun.open(store, live.run, shapes[side.name].layout)
                    stays = run.live(arrangement.limits, 0, live.run.rows) & ~_is_gone(store, live)
                    numbers = run.sorted_rows.batch.column(column).fill_null(NOBODY)
                    of_runs.append(numbers.to_numpy(zero_copy_only=False)[stays])
        return np.concatenate(of_runs)


def _kept_by(engine: LocalJob) -> list[Arrangement]:
    """What is kept of all queries, none before the first tick."""
    manifest = engine.driver.manifest
    states = [] if manifest is None else manifest.queries.values()
    return [own for state in states for node in state.nodes for own in node.arrangements.values()]


def _is_gone(store: Store, live: LiveRun) -> Mask:
    marks = read_marks(store, "gone", live.marks.get("gone", ()), 0, live.run.rows)
    gone: Mask = marks > 0
    return gone


def _with_times(given: Input) -> Input:
    """The input with a column of its sources of changes that says how often a row comes."""

    def branch(own: Branch | StageBranch) -> Branch | StageBranch:
        assert isinstance(own, Branch)
        source = replace(own.source, idle_timeout_us=None, on_idle=OnIdle.HOLD)
        if source.changes:
            columns = (*source.columns, Column(_TIMES, BIGINT))
            source = replace(source, columns=columns, change_column=ChangeColumn(_TIMES))
        return replace(own, source=source)

    return replace(given, branches=tuple(map(branch, given.branches)))


def _unfiltered(given: Input) -> Input:
    branches = [own for own in given.branches if isinstance(own, Branch)]
    return replace(given, branches=tuple(replace(own, above=None, beneath=None) for own in branches))


def _joined(tables: Sequence[tuple[int, pa.Table]], aliases: Sequence[str]) -> Joined:
    slots, diffs = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    rows: dict[str, list[Numbers]] = {alias: [np.zeros(0, dtype=np.int64)] for alias in aliases}
    for slot, table in tables:
        slots.append(np.full(table.num_rows, slot, dtype=np.int64))
        changes = SHOWN_DIFF in table.column_names
        diffs.append(table.column(SHOWN_DIFF).to_numpy() if changes else np.ones(table.num_rows, np.int64))
        for place, alias in enumerate(aliases):
            column = table.column(place).fill_null(NOBODY)
            rows[alias].append(column.to_numpy())
    by_alias = {alias: np.concatenate(own) for alias, own in rows.items()}
    return Joined(np.concatenate(slots), by_alias, np.concatenate(diffs))
