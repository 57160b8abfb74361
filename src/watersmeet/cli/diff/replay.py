"""Replay the ticks of a query in this process to learn what it emitted."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.cli.diff.source_rows import SourceFiles, WholeTables
from watersmeet.cli.why.sources import reread
from watersmeet.diff.bags import fetch_rows, quote_identifier, types_of
from watersmeet.diff.statement import PENDING, column_name
from watersmeet.errors import EngineError, PlanError, SeveralErrors, SpecError, WatersmeetError
from watersmeet.names import SHOWN_DIFF, ours
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.spec.model import Input, Insert, Job, Lateness, Source
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Store
from watersmeet.why.question import record_queries, sources_of
from watersmeet.why.replay import Replay, TickWise
from watersmeet.why.rows import QueryRows
from watersmeet.why.tables import Kind, Records, is_of_records, records_of
from watersmeet.why.ticks import TickHistory

# Of which queries over changing data the batch answer over all that was read is what they have put out.

_FINAL = ", which changes, and what became of a stream's row is final once it was dropped"


def reads_changes(insert: Insert) -> bool:
    """Return True if any source of the query has retractions."""
    return any(source.changes or source.compared for given in inputs_of(insert) for source in given.sources)


def tick_dependence(insert: Insert, tables: WholeTables) -> str | None:
    """Return why a query's output depends on what its sources contained in each tick.

    Returns:
        The reason; None if the output depends only on the final contents.

    Raises:
        SpecError: The output depends on contents that are not retained; the error names them.
    """
    for given in inputs_of(insert):
        for source in given.sources:
            refused = tables.refused(insert.name, source.name) if given.as_of or source.compared else None
            if refused is not None:
                raise SpecError(
                    f'"{insert.name}": "{source.name}" is a table that the job reads again in each tick:'
                    f" {refused}",
                    code="not-compared",
                    hint="keep what it held as rows with times, and join them by ASOF, to compare",
                )
    for query in insert.query.every:
        streams = [given for given in query.inputs if given.event_times]
        if not streams:
            continue
        if any(source.changes for given in streams for source in given.sources):
            return f'"{streams[0].alias}" is a stream{_FINAL}'
        changing = [given for given in query.inputs if given.changes]
        if changing:
            return f'"{streams[0].alias}" is a stream beside "{changing[0].alias}"{_FINAL}'
    return None


def inputs_of(insert: Insert) -> list[Input]:
    """Return the inputs of a query and of its subqueries."""
    return [given for query in insert.query.every for given in query.inputs]


# What the ticks of a query have put out, by running them once more in this process: over the rows that
# were read again, with the watermarks and clocks that the history has (`why.replay`). So rows of a stream
# meet what a changing table held in their ticks, until they were let go, and closed windows stay as they
# were.
#
# It is told only where it follows from all that: where each tick is known, and all rows can be read
# again; and where no delete was of what was not there, for whether such a delete counted goes by what
# else is kept.


class UnknownOutput(Exception):
    """Error when the output cannot be derived from known facts; its text says what is missing."""


def replay_output(rows: QueryRows, job: Job, sources: Mapping[str, Source], kept: QueryPlan) -> pa.Table:
    """Compute all rows that the query emitted, tick by tick.

    Args:
        sources: Sources as they are declared.
        kept: The query as the job runs it.

    Returns:
        The rows with the query's columns, and ``_diff`` if there are retractions.

    Raises:
        UnknownOutput: The rows cannot be determined.
    """
    query = rows.query
    lacking = rows.lacks([side.name for side in query.sides], sources.values())
    if lacking is not None:
        raise UnknownOutput(lacking)
    if rows.shed:
        raise UnknownOutput("rows of it were shed")
    if any(side.stages or not side.sources for side in query.sides) or not all(
        map(is_of_records, rows.insert.query.inputs)
    ):
        raise UnknownOutput("rows of its inputs are made by queries beneath")
    if any(node.left_to_spark for node in query.nodes):
        raise UnknownOutput("only Spark computes its conditions")
    if query.options.lateness is not Lateness.COLUMN:
        raise UnknownOutput("rows are late by joins")
    try:
        records = {
            side.name: records_of(
                side, rows.inputs[side.name], sources[rows.inputs[side.name][0].own.source], rows.zone
            )
            for side in query.sides
        }
        for alias, own in records.items():
            if own.kind is not Kind.EQUAL:
                continue
            if len(rows.inputs[alias]) > 1 and (own.diffs[own.taken] < 0).any():
                raise UnknownOutput(
                    f'rows of "{alias}" were deleted, which is made of several branches: whether all of them'
                    " were there is not looked at"
                )
            if _is_below_zero(own):
                raise UnknownOutput(
                    f'rows of "{alias}" were deleted more often than they had come, and whether these deletes'
                    " counted goes by what is kept"
                )
        masks = {alias: own.counts for alias, own in records.items()}
        numbers = {alias: own.numbers for alias, own in records.items()}
        replay = Replay(rows.insert, job, rows.inputs, masks, query.options.mode, numbers)
        ticks = TickWise.of(query, rows.history, sources.values())
        table = replay.run_outputs(ticks, kept)
    except (EngineError, PlanError, SeveralErrors) as error:
        raise UnknownOutput(f"its ticks cannot be run again: {error.message}") from None
    if table is None:
        raise UnknownOutput("its joins are run in another way by themselves")
    return table


def _is_below_zero(records: Records) -> bool:
    """Return True if, after some tick, a row has more deletes than inserts.

    Rows that are equal in all their columns count as one row.
    """
    at = np.flatnonzero(records.taken)
    whole, slots, diffs = (own[at] for own in (records.whole, records.slots, records.diffs))
    order = np.lexsort((-diffs, slots, whole))  # of a tick those first that come: it is summed
    sums = np.cumsum(diffs[order])
    begins = np.flatnonzero(np.diff(whole[order], prepend=-1))
    before = np.repeat(np.r_[0, sums][begins], np.diff(np.r_[begins, len(order)]))
    return bool((sums - before < 0).any())


# Answers of queries whose rows of streams meet what changes, by running their ticks once more: what
# became of a stream's row is final once it was let go, so that it goes by what tables held in its ticks.
#
# It takes that the history has each tick of the state, and that all files are as they were read.

MAX_REPLAYED_BYTES = 200 << 20
"""Of the files of a query, whose records are read one by one."""


class ReplayedTicks:
    """Replay of the ticks of one job.

    Args:
        planned: Plan of the job's text.
        kept: Plan that the job runs.
    """

    def __init__(
        self,
        job: Job,
        planned: JobPlan,
        kept: JobPlan,
        read: Mapping[str, SourceFiles],
        manifest: Manifest | None,
        store: Store,
        history: Callable[[], TickHistory],
    ) -> None:
        self._job, self._planned, self._kept, self._read = job, planned, kept, read
        self._manifest, self._store, self._history = manifest, store, history

    def answer(self, db: Any, insert: Insert, table: str, why: str) -> str:
        """Compute the relation that results from a query's ticks.

        Args:
            table: Name for the relation.
            why: Reason why the ticks matter, for an error.

        Raises:
            SpecError: The rows cannot be determined.
        """
        try:
            return _consolidate_output(db, self._emit_rows(insert), len(insert.query.outputs), table)
        except (UnknownOutput, WatersmeetError) as error:
            said = error.message if isinstance(error, WatersmeetError) else str(error)
            raise SpecError(
                f'"{insert.name}": {why}, but diff cannot tell which rows each tick had: {said}',
                code="not-compared",
                hint="diff supports a query that reads only streams, or only changing tables, but not both",
            ) from None

    def _emit_rows(self, insert: Insert) -> pa.Table:
        if self._manifest is None:
            raise UnknownOutput("there is no state")
        history = self._history()
        if not len(history) or history.ticks[-1] != self._manifest.tick:
            raise UnknownOutput(f"the history does not have tick {self._manifest.tick:,}, that of the state")
        query = next((q for q in self._recorded_queries if q.name == insert.name), None)
        if query is None:
            raise UnknownOutput("it is not planned by itself")
        names = {branch.source.name for side in query.sides for _, branch in side.sources}
        declared = {name: own for name, own in sources_of(self._job).items() if name in names}
        read = [self._read[name] for name in names if name in self._read]
        if any(own.named for own in read):
            raise UnknownOutput("of files that are named it is not known which tick read them")
        if sum(os.path.getsize(file) for own in read for file in own.local_files or ()) > MAX_REPLAYED_BYTES:
            raise UnknownOutput(f"its files have more than {MAX_REPLAYED_BYTES >> 20} MB")
        rows = reread(declared, [query], self._store, self._manifest.host, history)
        kept = next(own for own in self._kept.queries if own.name == insert.name)
        return replay_output(QueryRows.of(query, insert, history, rows), self._job, declared, kept)

    @cached_property
    def _recorded_queries(self) -> list[QueryPlan]:
        return record_queries(self._job, self._planned)


def _consolidate_output(db: Any, put_out: pa.Table, columns: int, table: str) -> str:
    """Consolidate emitted rows into the final result, as a DuckDB table.

    Raises:
        UnknownOutput: The result cannot be determined.
    """
    given, count = ours("given"), ours("n")
    names = [column_name(n) for n in range(columns)]
    rows = put_out.select(range(columns)).rename_columns(names)
    changes = SHOWN_DIFF in put_out.column_names
    diffs = put_out.column(SHOWN_DIFF) if changes else pa.array([1] * len(put_out), pa.int64())
    db.register(given, rows.append_column(count, diffs))
    zoned = [name for name, kind in types_of(db, given).items() if kind == "TIMESTAMP WITH TIME ZONE"]
    shown = ", ".join(f"timezone('UTC', {n}) AS {n}" if n in zoned else n for n in names)
    fetch_rows(
        db,
        f"CREATE OR REPLACE TABLE {quote_identifier(table)} AS SELECT {', '.join(names)}, "
        f"CAST(sum({count}) AS BIGINT)"
        f" AS {count} FROM (SELECT {shown}, {count} FROM {given}) r GROUP BY {', '.join(names)}",
    )
    db.unregister(given)
    ((below,),) = fetch_rows(db, f"SELECT count(*) FROM {quote_identifier(table)} WHERE {count} < 0")
    if below:
        raise UnknownOutput("rows go more often than they come")
    return (
        f"(SELECT {', '.join(names)}, FALSE AS {PENDING} FROM {quote_identifier(table)} r, "
        f"unnest(range({count})))"
    )
