"""The states of queries that come to a job with state.

Such a query begins with the next tick: rows from then on meet each other, and those that another query
retains which keeps the same rows (`plan.common_subplans`); of a table these are all that it has. Rows from
before never meet each other in it, are never padded or put out by ANTI, and are in no window. Of sources that
come with it (`restore.changed_sources`) it has all rows, and of tables that are read as a whole.

A query of changes needs all rows of its tables: it is given the rows that another query keeps, as if they
came in its first tick. Whoever keeps a table for a query of changes has all of its rows, but for those that
its own conditions and NULL keys leave out. So the rows are the table's where these say the same, or nothing.
What the new query makes of the rows of its source (kept columns, keys and conditions) tasks compute of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.expressions.compiler import compile_in_run
from watersmeet.expressions.evaluate import Computed
from watersmeet.expressions.physical_types import fits
from watersmeet.expressions.trees import tree_of
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.kernel.batches import one_array, take_rows
from watersmeet.kernel.gather import as_one_batch
from watersmeet.names import DIFF, FLAG, format_query_name
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.identity.origins import side_origins
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.sides import BranchPlan, SidePlan
from watersmeet.plan.query_inputs import mentioned_columns, source_inputs, unquoted_text, words_of
from watersmeet.runtime.coordinator.restore.state_transfer import (
    RunRewriter,
    Shapes,
    rewrite_run,
    stored_rows,
)
from watersmeet.runtime.messages.reports import IngestReport
from watersmeet.runtime.messages.shapes import NodeShape, SideShape
from watersmeet.runtime.messages.work import TickStart
from watersmeet.runtime.tasks.ingest import IngestWriter
from watersmeet.state.manifest import Arrangement, LiveRun, Manifest, NodeState, QueryState
from watersmeet.state.marks import MarkWriter, read_marks
from watersmeet.state.runs.layout import StoredColumn, missing_columns
from watersmeet.state.runs.reader import OpenRun, schema_of
from watersmeet.state.store import Store

_BEFORE_ALL = -1
"""The number of an ingest task whose rows come before those of all others."""

_CHUNK = 65_536


@dataclass(frozen=True)
class DerivedRows:
    """Derivation of an input's rows from rows that another query retains.

    Args:
        source: the needed columns of the source, as stored.
        plain: maps a retained column to its column of the source.
        computed: the other columns, and `FLAG`.
        schema: the schema of the retained columns.
    """

    source: tuple[StoredColumn, ...]
    plain: Mapping[str, str]
    computed: tuple[Computed, ...]
    schema: pa.Schema

    def compute(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return what ingest takes. Raises: EngineError as in a query."""
        table = pa.Table.from_batches([stored])
        columns = {name: table.column(column) for name, column in self.plain.items()}
        columns |= {computed.name: computed.of(table) for computed in self.computed}
        fields = [*self.schema, *([pa.field(FLAG, pa.int8())] if FLAG in columns else [])]
        arrays = []
        for field in fields:
            column = columns[field.name]
            array = one_array(column) if isinstance(column, pa.ChunkedArray) else column
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])


@dataclass(frozen=True)
class Contents:
    """Retained rows of a table, with which ``side`` of a new query begins.

    Attributes:
        runs: the runs in which another query retains the rows.
        deletes: copies of the deletes that the other query remembers, if the order of changes counts.
        derived: computes the side's rows from the retained rows; None: the rows are stored in the same form.
    """

    side: SideShape
    branch: int
    runs: tuple[LiveRun, ...]
    deletes: Arrangement
    derived: DerivedRows | None = None

    @property
    def rows(self) -> int:
        return sum(live.stored for live in self.runs)

    def report(self, start: TickStart, store: Store) -> IngestReport:
        """Write the rows as rows of the tick and return the report of an ingest task.

        Cost: the table.
        """
        writer = IngestWriter(start, self.side.arrangement, self.branch, store, _BEFORE_ALL)
        columns = self.side.layout.columns if self.derived is None else self.derived.source
        names = self.side.schema.names if self.derived is None else [column.name for column in columns]
        shape = replace(self.side, layout=replace(self.side.layout, columns=columns))
        for live in self.runs:
            held, alive = stored_rows(live, shape, store)
            for low in range(0, len(alive), _CHUNK):
                rows = take_rows(held.select(names), alive[low : low + _CHUNK])
                rows = rows if self.derived is None else self.derived.compute(rows)
                ones = pa.array(np.ones(rows.num_rows, dtype=np.int64))
                named = [*rows.schema.names, DIFF]
                writer.add(pa.RecordBatch.from_arrays([*rows.columns, ones], names=named))
        return writer.finish()


class NewQueries:
    """Makes the states with which queries begin, from those of the queries that ``stay``.

    ``read_before``: the sources of which rows were read already. ``said``, ``problems``, ``contents``: what
    tables hold, of all that were asked for.
    """

    def __init__(
        self,
        manifest: Manifest,
        stay: Sequence[QueryPlan],
        read_before: Collection[str],
        shapes: Shapes,
        store: Store,
        *,
        zoned: bool,
    ) -> None:
        self._manifest = manifest
        self._stay = stay
        self._read_before = read_before
        self._shapes = shapes
        self._store, self._zoned = store, zoned
        self._rewriter = RunRewriter(manifest, store)
        self._settled: dict[str, list[LiveRun]] = {}
        self.said: list[str] = []
        self.problems: list[str] = []
        self.contents: list[Contents] = []

    def state(self, query: QueryPlan, shapes: Sequence[NodeShape]) -> QueryState:
        """Return that of a query which has seen nothing but what others retain."""
        nodes = [NodeState(arrangements={s.name: Arrangement() for s in shape.sides}) for shape in shapes]
        state = QueryState(nodes=nodes)
        for node in query.nodes:
            for side, shape in zip(node.sides, shapes[node.number].sides, strict=True):
                if side.feed is not None or side.copy_of is not None:
                    continue
                if side.kept_by is not None:
                    self._report_shared_state_lookup(query, side)
                elif node.changes and self._has_missed(side):
                    (table,) = (own for own in shapes[node.number].stored if own.name == side.name)
                    self._begin_with_contents(query, side, shape, table, nodes[node.number])
                elif side.sources or not node.changes:
                    nodes[node.number].arrangements[side.name] = self._begin(query, side, shape, state)
        return state

    def _report_shared_state_lookup(self, query: QueryPlan, side: SidePlan) -> None:
        """Report a new query that looks up rows in the state of another query."""
        by = side.kept_by
        if by is None or all(by.query != other.name for other in self._stay):
            return  # that one begins, too
        rows = self._manifest.queries[by.query].nodes[by.node].arrangements.get(by.side, Arrangement())
        self.said.append(
            f"{format_query_name(query.name)} starts with all rows of {side.title} "
            f"({rows.retained} stored) and looks"
            f" them up in the state of {format_query_name(by.query)}"
        )

    def _begin_with_contents(
        self, query: QueryPlan, side: SidePlan, shape: SideShape, table: SideShape, node: NodeState
    ) -> None:
        """Backfill a new query over changes with all rows of a table, or record why it cannot start.

        Args:
            table: how the side's node stores the rows.
        """
        contents: Contents | str = "the state stores all rows of tables only, not of streams"
        if all(branch.source.is_table for _, branch in side.sources):
            contents = self._contents_of(query, side, shape, table)
        if isinstance(contents, str):
            self.problems.append(
                f"{format_query_name(query.name)} cannot be added to a job with state: its "
                "rows can be retracted,"
                f' so it needs all rows of "{side.title}", and the job has already read some:'
                f" {contents}"
            )
            return
        self.contents.append(contents)
        node.arrangements[side.name] = contents.deletes
        self.said.append(
            f"{format_query_name(query.name)} starts with all {contents.rows} rows of {side.title}"
        )

    def _begin(self, query: QueryPlan, side: SidePlan, shape: SideShape, state: QueryState) -> Arrangement:
        other = None if side.stages else next(self.donors(side), None)
        rows, why = Arrangement(), "no other query stores them in the form it needs"
        if other is not None:
            name, _, own = other
            before = self._manifest.queries[name]
            state.inputs[side.name] = deepcopy(before.inputs[own.name])
            for column in side.event_times:
                late = before.late_below.get(own.watermark_key(column))
                if late is not None:
                    state.late_below[side.watermark_key(column)] = late
            if shape.shared is not None and shape.shared == self._shared(*other):
                rows, why = self._retained(self._get_arrangement(*other), shape)
        state.account[side.name] = {"in": rows.retained}
        if not self._has_missed(side) and not side.stages:
            self.said.append(f'query "{query.name}" starts with all rows of {side.title}')
            return rows
        if why and any(branch.source.is_table for _, branch in side.sources):
            self.problems.append(
                f'query "{query.name}" cannot be added to a job with state: the rows of table'
                f' "{side.title}" are not available to it, because {why}'
            )
        with_rows = f"with {rows.retained} retained rows of {side.title}"
        without = f"without earlier rows of {side.title}: {why}"
        self.said.append(f'query "{query.name}" starts {without if why else with_rows}')
        return rows

    def _has_missed(self, side: SidePlan) -> bool:
        """Return True if the job may have read rows of the side before the query was added."""
        return any(
            not branch.source.compared and branch.source.name in self._read_before
            for _, branch in side.sources
        )

    def donors(self, side: SidePlan) -> Iterator[tuple[str, int, SidePlan]]:
        """Yield inputs of queries that stay and have the side's watermarks, the best ones first.

        Each is a query, the number of its node and the input. Inputs that share the side's rows come before
        all others, and those that retain more rows before those that retain fewer.
        """
        asked = _times_of(side)
        candidates = [
            (query.name, node.number, own)
            for query in self._stay
            for node in query.nodes
            for own in node.sides
            if own.feed is None and not own.stages and own.copy_of is None and _times_of(own) == asked
        ]
        yield from sorted(
            candidates,
            key=lambda other: (
                f"{other[0]}/{other[2].name}" not in side.sharers,
                -self._get_arrangement(*other).retained,
            ),
        )

    def _get_arrangement(self, name: str, node: int, side: SidePlan) -> Arrangement:
        return self._manifest.queries[name].nodes[node].arrangements.get(side.name, Arrangement())

    def _shared(self, query: str, number: int, side: SidePlan) -> SideShape | None:
        """Return the shape with which shared runs of a side are written; None if it is not shared.

        The types in it are those that its engine made.
        """
        (shape,) = (s for s in self._shapes[query][number].sides if s.name == side.name)
        return shape.shared

    def _retained(self, other: Arrangement, shape: SideShape) -> tuple[Arrangement, str]:
        """Return the rows that another query retains, without rows to pad; or the reason for none.

        The other query's limits follow its own bounds and may be above those of this query; they would
        release rows that are still to arrive. So this query starts without limits. It gets its own runs in
        place of those from which the other query released rows, and of those that are to be adopted
        together with such runs.
        """
        for live in other.runs:
            missing = missing_columns(schema_of(self._store, live.run), shape.layout.columns)
            if missing:
                return Arrangement(), f"the stored rows lack {', '.join(c.text for c in missing)}"
        bare = [live.model_copy(update={"marks": {}}) for live in other.runs]
        kept = other.model_copy(update={"runs": bare})
        kept = self._rewriter.retained(kept, shape, {}, is_longer=True)
        runs = [LiveRun(run=live.run) for live in kept.runs]
        for live in runs if shape.padded else ():
            self._settled.setdefault(live.run.name, []).append(live)
        return kept.model_copy(update={"runs": runs, "unknown_below": {}, "gone_below": {}}), ""

    def write_marks(self) -> None:
        """Mark all rows of padded sides as matched."""
        marks = MarkWriter()
        for name, lives in self._settled.items():
            marks.add(name, "matched", 0, np.ones(lives[0].run.rows, dtype=np.bool_))
        written = marks.write(self._store, self._manifest.tick + 1)
        for name, lives in self._settled.items():
            for live in lives:
                live.marks = written[name]

    def _contents_of(
        self, query: QueryPlan, side: SidePlan, shape: SideShape, table: SideShape
    ) -> Contents | str:
        """Return what a side of a table begins with, or why no query keeps it.

        Args:
            shape: how ingest writes the side's rows.
            table: how its node stores them.
        """
        if len(side.branches) != 1:
            return "it is a UNION ALL of several sources"
        nobody = why = "no other query stores them in the form it needs"
        ((number, branch),) = side.sources
        for name, own, own_shape, kept in self._tables():
            ((_, held),) = own.sources
            if held.source.name != branch.source.name:
                continue
            if (lacks := _left_out(own, held, side, branch)) is not None:
                why = f"{format_query_name(name)} {lacks}" if why == nobody else why
                continue
            missing, derived = self._missing(kept, shape.layout.columns), None
            if missing or _flag(held) != _flag(branch):
                zone = query.options.time_zone
                derived = _derived_rows(branch, shape, held, own_shape, zone=zone, zoned=self._zoned)
                missing = derived if isinstance(derived, str) else self._missing(kept, derived.source)
            if missing or isinstance(derived, str):
                why = f"the rows that {format_query_name(name)} stores {missing}"
                continue
            runs = tuple(live for live in kept.runs if live.run.stands_for != 0)
            return Contents(shape, number, runs, self._copy_deletes(kept, table), derived)
        return why

    def _tables(self) -> Iterator[tuple[str, SidePlan, SideShape, Arrangement]]:
        """Yield the sides of nodes over changes that retain the rows of one table, not sums."""
        for query in self._stay:
            for node in query.nodes:
                if not node.changes:
                    continue
                shape = self._shapes[query.name][node.number]
                for side, of_side in zip(node.sides, shape.sides, strict=False):
                    is_table = side.feed is None and len(side.branches) == 1 and bool(side.ingested)
                    if is_table and not (shape.combines or side.passes or side.copy_of or side.event_times):
                        yield query.name, side, of_side, self._get_arrangement(query.name, node.number, side)

    def _copy_deletes(self, kept: Arrangement, table: SideShape) -> Arrangement:
        """Write the deletes that ``kept`` remembers as ``table`` stores them. Cost: these, in the driver.

        A delete has the columns of the key, the sequence and its time. The others are NULL in it, so that it
        does not matter which of them the other query keeps.
        """
        runs, store, made_in = [], self._store, self._manifest.tick + 1
        for live in kept.runs:
            if live.run.stands_for != 0:
                continue
            missing = missing_columns(schema_of(store, live.run), table.layout.columns)
            there = tuple(column for column in table.layout.columns if column not in missing)
            layout = replace(table.layout, indexes=(), by_value=False, found_by=(), columns=there)
            opened = OpenRun.open(store, live.run, layout)
            gone = read_marks(store, "gone", live.marks.get("gone", ()), 0, live.run.rows)
            rows = np.flatnonzero(~gone & opened.live(kept.limits, 0, live.run.rows))
            if not len(rows):
                continue
            held, names = opened.sorted_rows, {column.name for column in there}
            stored = take_rows(as_one_batch(held.batch), rows)
            arrays = [
                stored.column(field.name) if field.name in names else pa.nulls(len(rows), field.type)
                for field in table.stored_schema
            ]
            batch = pa.RecordBatch.from_arrays(arrays, names=table.stored_schema.names)
            written = rewrite_run(live.run, batch, held.slots[rows], table, store, made_in, stands_for=0)
            runs.append(LiveRun(run=written[0]))
        return Arrangement(runs=runs, limits=dict(kept.limits))

    def _missing(self, kept: Arrangement, columns: Sequence[StoredColumn]) -> str:
        """Describe the columns that the stored rows lack; "" if none.

        This includes columns that can no longer be read from the stored rows; see `check_columns`.
        """
        missing = [column for column in columns if kept.columns and column.origin not in kept.columns]
        for live in kept.runs:
            if live.run.stands_for != 0 and not missing:
                missing = missing_columns(schema_of(self._store, live.run), columns)
        return f"lack {', '.join(column.text for column in missing)}" if missing else ""


def _derived_rows(
    branch: BranchPlan, shape: SideShape, held: BranchPlan, held_shape: SideShape, *, zone: str, zoned: bool
) -> DerivedRows | str:
    """Return how rows of ``branch`` are made of those that another side keeps; or why they cannot be.

    Args:
        held, held_shape: the branch of the side that keeps them, and how.
        zone: the query's time zone.
        zoned: TIMESTAMPs carry UTC.
    """
    stored = {column.name: column for column in held_shape.layout.columns}
    there = {
        expr.name: stored[name]
        for name, expr in held.columns
        if expr.key == "column" and name in stored and name in held_shape.stored_schema.names
    }
    exprs = dict(branch.columns) | ({} if branch.flag is None else {FLAG: branch.flag})
    needed = mentioned_columns(branch)
    missing = sorted(needed - there.keys())
    if missing:
        return f"lack {', '.join(missing)}"
    declared = {column.name: column for column in branch.source.columns}
    for name in sorted(needed):
        if not fits(held_shape.stored_schema.field(there[name].name).type, declared[name].type):
            return f"have {name} with another type than declared"
    inputs, computed = source_inputs(branch.source, zone), []
    for name, expr in exprs.items():
        if expr.key == "column" and name != FLAG:
            continue
        try:
            made = compile_in_run(expr, inputs)
        except UnsupportedExpression as why:
            return f"would need Spark, which alone computes {unquoted_text(expr)} ({why})"
        words = words_of(branch, name, expr)
        computed.append(Computed(name, tree_of(made.tree), made.type, words, zoned))
    return DerivedRows(
        tuple(StoredColumn(name, there[name].origin, there[name].text) for name in sorted(needed)),
        {name: expr.name for name, expr in branch.columns if expr.key == "column"},
        tuple(computed),
        shape.schema,
    )


def _left_out(own: SidePlan, held: BranchPlan, side: SidePlan, branch: BranchPlan) -> str | None:
    """Describe the rows that ``own`` may not store but ``side`` needs; None if there are none."""
    nulls = _not_null(own)
    if held.flag is not None and (_flag(held) != _flag(branch) or side.padded):
        return "stores only rows that meet its conditions on the table"
    if nulls if side.padded else not nulls <= _not_null(side):
        return "stores no rows with NULL in its join keys"
    return None


def _flag(branch: BranchPlan) -> str | None:
    return None if branch.flag is None else text_of(branch.flag)


def _not_null(side: SidePlan) -> set[str]:
    origins = side_origins(side)
    return {origins[name].digest for name in side.not_null}


def _times_of(side: SidePlan) -> object:
    """Return a value that identifies how the watermarks of an input are computed."""
    origins = side_origins(side)
    return (
        [(branch.source.name, branch.lags) for _, branch in side.sources],
        [(column, origins[column].digest) for column in side.event_times],
        bool(side.stages) or side.copy_of,
    )
