"""What tables hold, for a query of changes that comes to a job with state: it is given the rows that another
query keeps, as if they came in its first tick.

Whoever keeps a table for a query of changes has all of its rows, but for those that its own conditions and
NULL keys leave out. So the rows are the table's where these say the same, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.engine.driver.opening.held_anew import written_anew
from watersmeet.engine.driver.opening.made_of import MadeOf, made_of
from watersmeet.engine.messages.reports import IngestReport
from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.engine.messages.work import TickStart
from watersmeet.engine.tasks.ingest import IngestWriter
from watersmeet.kernel.batches import take_rows
from watersmeet.kernel.pieces import whole
from watersmeet.names import DIFF, called
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.identity.origins import side_origins
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.sides import BranchPlan, SidePlan
from watersmeet.state.manifest import Arrangement, LiveRun, Manifest
from watersmeet.state.marks import read_marks
from watersmeet.state.runs.columns import StoredColumn, lacking
from watersmeet.state.runs.opened import OpenRun, schema_of
from watersmeet.state.store import Store

_BEFORE_ALL = -1
"""The number of an ingest task whose rows come before those of all others."""

_CHUNK = 65_536


@dataclass(frozen=True)
class Contents:
    """The rows of a table for ``side``, of a query that comes. ``runs``: in which another query keeps them;
    ``deletes``: copies of the deletes that it remembers, and up to when, where the order of changes counts;
    ``made``: how rows are made of what is kept; None: they are kept so."""

    side: SideShape
    branch: int
    runs: tuple[LiveRun, ...]
    deletes: Arrangement
    made: MadeOf | None = None

    @property
    def rows(self) -> int:
        return sum(live.stored for live in self.runs)

    def report(self, start: TickStart, store: Store) -> IngestReport:
        """Have them written as rows of the tick; what an ingest task says of it. Cost: the table."""
        writer = IngestWriter(start, self.side.arrangement, self.branch, store, _BEFORE_ALL)
        columns = self.side.layout.columns if self.made is None else self.made.source
        names = self.side.schema.names if self.made is None else [column.name for column in columns]
        # runs are sorted as the other needs it
        layout = replace(self.side.layout, indexes=(), by_value=False, found_by=(), columns=columns)
        for live in self.runs:
            opened = OpenRun.open(store, live.run, layout)
            held = whole(opened.sorted_rows.batch).select(names)
            gone = read_marks(store, "gone", live.marks.get("gone", ()), 0, live.run.rows)
            alive = np.flatnonzero(~gone)
            for low in range(0, len(alive), _CHUNK):
                rows = take_rows(held, alive[low : low + _CHUNK])
                ones = pa.array(np.ones(rows.num_rows, dtype=np.int64))
                if self.made is None:
                    writer.add(pa.RecordBatch.from_arrays([*rows.columns, ones], names=[*names, DIFF]))
                else:
                    writer.add(self.made.rows(rows, ones))
        writer.finish()
        return writer.report


def contents_of(
    side: SidePlan,
    shape: SideShape,
    table: SideShape,
    stay: Sequence[QueryPlan],
    shapes: Mapping[str, Sequence[NodeShape]],
    manifest: Manifest,
    store: Store,
    *,
    zone: str,
    zoned: bool,
) -> Contents | str:
    """What a side of a table begins with, or why no query keeps it.

    Args:
        shape: how ingest writes the side's rows; ``table``: how its node stores them.
        stay: the queries that were there before, and go on.
        zone: the time zone of the side's query; zoned: TIMESTAMPs carry UTC.
    """
    if len(side.branches) != 1:
        return "it is a UNION ALL of several sources"
    nobody = why = "no other query stores them in the form it needs"
    ((number, branch),) = side.sources
    for name, own, own_shape, arrangement in _tables(stay, shapes, manifest):
        ((_, held),) = own.sources
        if held.source.name != branch.source.name:
            continue
        if (lacks := _left_out(own, held, side, branch)) is not None:
            why = f"{called(name)} {lacks}" if why == nobody else why
            continue
        runs = [live for live in arrangement.runs if live.run.stands_for != 0]
        made: MadeOf | None = None
        missing = _missing(store, arrangement, shape.layout.columns)
        if missing or _flag(held) != _flag(branch):
            others = made_of(side, branch, shape, held, own_shape, zone=zone, zoned=zoned)
            made = None if isinstance(others, str) else others
            missing = others if isinstance(others, str) else _missing(store, arrangement, others.source)
        if missing:
            why = f"the rows that {called(name)} stores {missing}"
            continue
        deletes = _copy_deletes(arrangement, table, store, manifest.tick + 1)
        return Contents(shape, number, tuple(runs), deletes, made)
    return why


def _copy_deletes(kept: Arrangement, table: SideShape, store: Store, made_in: int) -> Arrangement:
    """Write the deletes that ``kept`` remembers as ``table`` stores them. Cost: these, in the driver.

    A delete has the columns of the key, the sequence and its time. The others are NULL in it, so that it does
    not matter which of them the other query keeps.
    """
    runs = []
    for live in kept.runs:
        if live.run.stands_for != 0:
            continue
        missing = lacking(schema_of(store, live.run), table.layout.columns)
        there = tuple(column for column in table.layout.columns if column not in missing)
        layout = replace(table.layout, indexes=(), by_value=False, found_by=(), columns=there)
        opened = OpenRun.open(store, live.run, layout)
        gone = read_marks(store, "gone", live.marks.get("gone", ()), 0, live.run.rows)
        rows = np.flatnonzero(~gone & opened.live(kept.limits, 0, live.run.rows))
        if not len(rows):
            continue
        held, names = opened.sorted_rows, {column.name for column in there}
        stored = take_rows(whole(held.batch), rows)
        arrays = [
            stored.column(field.name) if field.name in names else pa.nulls(len(rows), field.type)
            for field in table.stored_schema
        ]
        batch = pa.RecordBatch.from_arrays(arrays, names=table.stored_schema.names)
        slots = held.slots[rows]
        runs.append(LiveRun(run=written_anew(live.run, batch, slots, table, store, made_in, stands_for=0)))
    return Arrangement(runs=runs, limits=dict(kept.limits))


def _tables(
    stay: Sequence[QueryPlan], shapes: Mapping[str, Sequence[NodeShape]], manifest: Manifest
) -> Iterator[tuple[str, SidePlan, SideShape, Arrangement]]:
    """All sides of nodes of changes that keep the rows of one table, as they are: not as sums."""
    for query in stay:
        for node in query.nodes:
            if not node.changes:
                continue
            shape = shapes[query.name][node.number]
            kept = manifest.queries[query.name].nodes[node.number].arrangements
            for side, of_side in zip(node.sides, shape.sides, strict=False):
                is_table = side.feed is None and len(side.branches) == 1 and bool(side.ingested)
                if is_table and not (shape.combines or side.passes or side.copy_of or side.event_times):
                    yield query.name, side, of_side, kept.get(side.name, Arrangement())


def _left_out(own: SidePlan, held: BranchPlan, side: SidePlan, branch: BranchPlan) -> str | None:
    """Which rows ``own`` may not keep of which ``side`` makes something, or keeps beside them, in words;
    None: there are none."""
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


def _missing(store: Store, kept: Arrangement, columns: Sequence[StoredColumn]) -> str:
    """What the rows lack of these columns, or do not tell any more (`check_columns`); empty: nothing."""
    missing = [column for column in columns if kept.columns and column.origin not in kept.columns]
    for live in kept.runs:
        if live.run.stands_for != 0 and not missing:
            missing = lacking(schema_of(store, live.run), columns)
    return f"lack {', '.join(column.text for column in missing)}" if missing else ""
