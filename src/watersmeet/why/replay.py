"""Run the ticks of a query again in this process, over rows that were read again.

The watermarks come from the history, so each joined row leaves in its original tick, and so do rows padded
with NULLs.

Rows are numbered by input, branch after branch; the output rows of a replay have these numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
from sqlglot import exp

from watersmeet.event_time import Mask, Watermark
from watersmeet.names import DIFF, PARTITION, SHOWN_DIFF, ours
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.sides import SidePlan, joined_name
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.local.input_rows import add_utc_zone
from watersmeet.spec.change_kinds import ChangeColumn
from watersmeet.spec.model import (
    Branch,
    Column,
    Input,
    Insert,
    Job,
    JoinKind,
    OnIdle,
    Options,
    OutputColumn,
    OutputMode,
    Query,
    Relation,
    Sink,
    Source,
    StageBranch,
    inputs_of,
    visible_inputs,
    with_inputs,
)
from watersmeet.state.manifest import Arrangement
from watersmeet.state.marks import read_marks
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.store import MemoryStore
from watersmeet.types.sql_type import BIGINT
from watersmeet.whatif.pairs import ROW, apart_name, number_rows
from watersmeet.why.rows import InputRows, Numbers, goes_by_clock, joins_of
from watersmeet.why.ticks import TickHistory

NOBODY = -1
"""In place of a row's number: NULLs."""

_TIMES = ours("why_diff")
"""The column that says how often a row of a source of changes comes, or goes."""

KINDS = (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL, JoinKind.SEMI, JoinKind.ANTI)


@dataclass(frozen=True)
class Joined:
    """Rows that left a join or a query.

    Attributes:
        slots: the slot of each row's tick.
        rows: per alias, the number of its row, or `NOBODY`.
        diffs: the multiplicity of each row; negative: it was deleted.
    """

    slots: Numbers
    rows: Mapping[str, Numbers]
    diffs: Numbers

    @classmethod
    def of(cls, tables: Sequence[tuple[int, pa.Table]], aliases: Sequence[str]) -> Joined:
        """Collect the output of ticks, each with its slot."""
        none: Numbers = np.zeros(0, dtype=np.int64)
        slots, diffs, rows = [none], [none], {alias: [none] for alias in aliases}
        for slot, table in tables:
            ones: Numbers = np.ones(table.num_rows, dtype=np.int64)
            slots.append(ones * slot)
            changes = SHOWN_DIFF in table.column_names
            diffs.append(table.column(SHOWN_DIFF).to_numpy() if changes else ones)
            for place, alias in enumerate(aliases):
                rows[alias].append(table.column(place).fill_null(NOBODY).to_numpy())
        by_alias = {alias: np.concatenate(own) for alias, own in rows.items()}
        return cls(np.concatenate(slots), by_alias, np.concatenate(diffs))

    def with_row(self, alias: str, number: int) -> list[tuple[int, dict[str, int]]]:
        """Return those that have this row, by their ticks: slot, and per alias the number."""
        if alias not in self.rows:
            return []
        at = np.flatnonzero(self.rows[alias] == number)
        at = at[np.argsort(self.slots[at], kind="stable")].tolist()
        return [(int(self.slots[n]), {name: int(own[n]) for name, own in self.rows.items()}) for n in at]


@dataclass(frozen=True)
class TickWise:
    """Ticks to replay.

    Attributes:
        marks: per watermark key, the watermark after each tick.
        ended: the slot of the tick that ended the input.
        clocks: the clock of each tick, where something depends on it.
    """

    count: int
    marks: Mapping[str, Sequence[Watermark]]
    ended: int | None
    clocks: Sequence[int] | None = None

    @classmethod
    def of(cls, query: QueryPlan, history: TickHistory, sources: Iterable[Source]) -> TickWise:
        """Take all ticks of a history. ``sources``: as they are declared."""
        clocks = [clock or 0 for clock in history.clocks()] if goes_by_clock(sources) else None
        marks = {
            side.watermark_key(column): history.mark(query.name, side.name, column, "watermark")
            for side in query.sides
            for column in side.event_times
        }
        return cls(len(history), marks, history.ended, clocks)


def is_chain(query: QueryPlan, insert: Insert) -> bool:
    """Return whether a query is joins of three or more streams and nothing else, none of them ASOF."""
    joins = joins_of(insert.query.relation)
    inputs = list(inputs_of(insert.query.relation))
    return (
        len(joins) > 1
        and insert.query.aggregation is None
        and not query.taken
        and all(join.kind in KINDS and not join.is_lookup for join in joins)
        and all(isinstance(branch, Branch) for own in inputs for branch in own.branches)
        and not any(own.is_table or any(source.changes for source in own.sources) for own in inputs)
        and not any(node.grouped is not None or node.changes or node.left_to_spark for node in query.nodes)
    )


def shape_of(query: QueryPlan) -> list[tuple[str, list[str]]]:
    """Return the joins of a query and the names of their sides; joins release the rows of streams.

    The records of a table with a primary key have a name that ends with their source, which is omitted.
    """

    def name_of(side: SidePlan) -> str:
        return side.name if side.feed is not None else side.name.partition(".")[0]

    return [(node.noun, [name_of(side) for side in node.sides]) for node in query.alone.nodes]


def aliases_of(relation: Relation) -> list[str]:
    """Return the inputs whose columns its rows have."""
    return [own.alias for own in visible_inputs(relation)]


class Replay:
    """Replay of a query.

    Args:
        masks: per alias, which rows exist.
        mode: whether rows of the output are retracted.
        numbers: per alias the numbers of its rows, where they differ from their positions: equal rows
            of a source of changes have one number.
    """

    def __init__(
        self,
        insert: Insert,
        job: Job,
        inputs: Mapping[str, Sequence[InputRows]],
        masks: Mapping[str, Mask],
        mode: OutputMode = OutputMode.APPEND,
        numbers: Mapping[str, Numbers] | None = None,
    ) -> None:
        self._insert, self._job, self._inputs, self._mode = insert, job, inputs, mode
        self._rows: dict[str, tuple[pa.Table, Numbers]] = {}
        for alias, mask in masks.items():
            first = 0
            for branch in inputs[alias]:
                count = len(branch.came_to)
                chosen = np.flatnonzero(mask[first : first + count])
                chosen = chosen[np.argsort(branch.of.slot[chosen], kind="stable")]
                rows = branch.of.rows.take(pa.array(chosen))
                diffs, rows = rows.column(DIFF), rows.drop_columns([DIFF, PARTITION])
                own = chosen + first
                own = own if numbers is None or alias not in numbers else numbers[alias][own]
                rows = rows.append_column(ROW, pa.array(own))
                if branch.of.reread.source.changes:
                    rows = rows.append_column(_TIMES, diffs.cast(pa.int64()))
                self._rows[apart_name(alias, branch.number)] = rows, branch.of.slot[chosen]
                first += count

    def run_query(self, ticks: TickWise | None, query: Query | None = None) -> Joined:
        """Return what the query, or another one over its inputs, emits.

        Args:
            ticks: None: process all rows in one tick, without watermarks.

        Raises:
            EngineError: a tick fails as in a run.
            PlanError, SeveralErrors: the query cannot be planned.
        """
        query = query or self._insert.query
        (tables,) = self._run(self.plan(query), ticks).values()
        return Joined.of(tables, aliases_of(query.relation))

    def with_release(self, ticks: TickWise, alias: str, numbers: Numbers) -> tuple[Joined, dict[int, int]]:
        """Return what the query emits, and when it releases the given rows of an input.

        Returns:
            The output; per row number, the slot of the tick after which nothing of the row is retained.
            Rows of which something is still retained are not included.
        """
        of_input: Numbers = np.concatenate([own.of.slot for own in self._inputs[alias]])
        retained = _Retained(alias, dict(zip(numbers.tolist(), of_input[numbers].tolist(), strict=True)))
        (tables,) = self._run(self.plan(), ticks, retained).values()
        return Joined.of(tables, aliases_of(self._insert.query.relation)), retained.released

    def run_outputs(self, ticks: TickWise, kept: QueryPlan) -> pa.Table | None:
        """Return what the query emits, with its own columns, over all ticks.

        Returns:
            None if the query by itself runs its joins in another way than in ``kept``.

        Raises:
            EngineError: a tick fails as in a run.
            PlanError, SeveralErrors: the query cannot be planned.
        """
        plan = self.plan(outputs=self._insert.query.outputs)
        if shape_of(plan.queries[0]) != shape_of(kept):
            return None
        (tables,) = self._run(plan, ticks, keep_empty=True).values()
        return pa.concat_tables([table for _, table in tables])

    def plan(self, query: Query | None = None, outputs: Sequence[OutputColumn] | None = None) -> JobPlan:
        """Plan the query alone.

        Args:
            outputs: the output columns; None: the numbers of the query's rows.

        Raises:
            PlanError, SeveralErrors: the query cannot be planned.
        """
        query = query or self._insert.query
        if outputs is None:
            outputs = [
                OutputColumn(f"r{number}", exp.column(ROW, table=alias), f"{alias}.{ROW}")
                for number, alias in enumerate(aliases_of(query.relation))
            ]
        query = replace(
            query,
            relation=with_inputs(query.relation, lambda own: _with_times(number_rows(own, apart=True))),
            outputs=tuple(outputs),
            mode=self._mode if query.mode is None else query.mode,
        )
        given = self._job.options
        options = Options(
            watermark_rule=given.watermark_rule,
            allowed_lateness=given.allowed_lateness,
            plan=given.plan,
            time_zone=given.time_zone,
        )
        insert = replace(self._insert, sink=Sink("replayed", "memory"), query=query)
        return plan_job(replace(self._job, inserts=(insert,), options=options, run={}, sinks=(), explains=()))

    def _push(self, engine: LocalJob, plan: JobPlan, slot: int | None) -> bool:
        """Push the rows of one tick, or of all; return whether there were some."""
        pushed = False
        for source in plan.sources:
            rows, slots = self._rows[source.name]
            first, end = (
                (0, len(slots)) if slot is None else np.searchsorted(slots, [slot, slot + 1]).tolist()
            )
            if first < end:
                engine.push(source.name, add_utc_zone(rows.slice(first, end - first), source.columns))
                pushed = True
        return pushed

    def _run(
        self,
        plan: JobPlan,
        ticks: TickWise | None,
        retained: _Retained | None = None,
        *,
        keep_empty: bool = False,
    ) -> dict[str, list[tuple[int, pa.Table]]]:
        """Return per query the slots and the output of ticks."""
        tables: dict[str, list[tuple[int, pa.Table]]] = {
            query.name: [] for query in plan.queries if not query.is_index
        }
        with closing(LocalJob(plan, MemoryStore(), given=True)) as engine:
            if ticks is None:
                self._push(engine, plan, None)
                return {name: [(0, table)] for name, table in engine.tick(clock_us=0).tables.items()}
            for slot in self._moving(engine, plan, ticks):
                clock_us = 0 if ticks.clocks is None else ticks.clocks[slot]
                output = engine.tick(clock_us=clock_us, end=slot == ticks.ended)
                for name, table in output.tables.items():
                    if table.num_rows or keep_empty:
                        tables[name].append((slot, table))
                if retained is not None:
                    retained.look(engine, plan.queries[0], slot)
            if keep_empty and not all(tables.values()):  # of no tick, for its columns
                for name, table in engine.tick(clock_us=0).tables.items():
                    tables[name].append((ticks.count, table))
        return tables

    def _moving(self, engine: LocalJob, plan: JobPlan, ticks: TickWise) -> Iterator[int]:
        """Push the input of each tick to the engine, and yield the slots in which it changes something.

        The caller does not run the other ticks.
        """
        keys = {
            side.watermark_key(column)
            for query in plan.queries
            for side in query.alone.sides
            for column in side.event_times
        }
        every = ticks.clocks is not None and any(b < a for a, b in pairwise(ticks.clocks))
        """A clock that was set back counts as the greatest one so far."""
        come = {slot for _, slots in self._rows.values() for slot in np.unique(slots).tolist()}
        reached: dict[str, Watermark] = {}
        keeps = remembers = False
        for slot in range(ticks.count):
            is_end = slot == ticks.ended
            moves = self._push(engine, plan, slot) or is_end or every
            if not moves and not keeps:  # watermarks have nothing to release
                continue
            for key in () if is_end else keys:
                mark = ticks.marks[key][slot]
                if isinstance(mark, int) and mark > reached.get(key, mark - 1):
                    reached[key] = mark
                    engine.advance_key(key, mark)
                    moves = True
            if not moves and not (remembers and slot + 1 in come):
                continue
            yield slot
            if is_end:
                return
            kept = _arrangements(engine)
            keeps = any(own.stored for own in kept)
            # What is stored and is no row is a delete. A tick forgets it by its clock, which shows when
            # the next rows come.
            remembers = ticks.clocks is not None and any(own.stored > own.retained for own in kept)


class _Retained:
    """Observer of the retained rows of an input after every tick.

    Attributes:
        released: per row, the slot of the tick after which none of it is retained.
    """

    def __init__(self, alias: str, came: Mapping[int, int]) -> None:
        self._alias, self._came = alias, dict(came)
        self.released: dict[int, int] = {}

    def look(self, engine: LocalJob, query: QueryPlan, slot: int) -> None:
        """Note which rows are released after a tick."""
        come = [number for number, came in self._came.items() if came <= slot]
        if come:
            retained = self._retained(engine, query)
            for number in np.array(come)[~np.isin(come, retained)].tolist():
                self.released[number] = slot
                del self._came[number]

    def _retained(self, engine: LocalJob, query: QueryPlan) -> Numbers:
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
                    gone = read_marks(store, "gone", live.marks.get("gone", ()), 0, live.run.rows) > 0
                    numbers = run.sorted_rows.batch.column(column).fill_null(NOBODY)
                    stays = run.live(arrangement.limits, 0, live.run.rows) & ~gone
                    of_runs.append(numbers.to_numpy(zero_copy_only=False)[stays])
        return np.concatenate(of_runs)


def _arrangements(engine: LocalJob) -> list[Arrangement]:
    """Return what is retained of all queries, none before the first tick."""
    manifest = engine.driver.manifest
    states = [] if manifest is None else manifest.queries.values()
    return [own for state in states for node in state.nodes for own in node.arrangements.values()]


def _with_times(given: Input) -> Input:
    """Add to an input's sources of changes a column with the multiplicity of each row."""

    def branch(own: Branch | StageBranch) -> Branch | StageBranch:
        assert isinstance(own, Branch)
        source = replace(own.source, idle_timeout_us=None, on_idle=OnIdle.HOLD)
        if source.changes:
            columns = (*source.columns, Column(_TIMES, BIGINT))
            source = replace(source, columns=columns, change_column=ChangeColumn(_TIMES))
        return replace(own, source=source)

    return replace(given, branches=tuple(map(branch, given.branches)))


def without_filters(given: Input) -> Input:
    branches = [own for own in given.branches if isinstance(own, Branch)]
    return replace(given, branches=tuple(replace(own, above=None, beneath=None) for own in branches))
