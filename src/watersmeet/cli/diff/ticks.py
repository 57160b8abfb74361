"""Answers of queries whose rows of streams meet what changes, by running their ticks once more: what became
of a stream's row is final once it was let go, so that it goes by what tables held in its ticks.

It takes that the history has each tick of the state, and that all files are as they were read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa

from watersmeet.cli.diff.put_out import NotKnown, put_out
from watersmeet.cli.diff.read import Read
from watersmeet.cli.why.reading import reread
from watersmeet.diff.database import quoted, ran, types_of
from watersmeet.diff.statement import PENDING, column_name
from watersmeet.errors import SpecError, WatersmeetError
from watersmeet.names import SHOWN_DIFF, ours
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.spec.model import Insert, Job
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Store
from watersmeet.why.question import record_queries, sources_of
from watersmeet.why.rows import QueryRows
from watersmeet.why.ticks import TickHistory

MOST_BYTES = 200 << 20
"""Of the files of a query, whose records are read one by one."""


class Ticks:
    """Of one job. ``planned``: as its text says; ``kept``: as it runs."""

    def __init__(
        self,
        job: Job,
        planned: JobPlan,
        kept: JobPlan,
        read: Mapping[str, Read],
        manifest: Manifest | None,
        store: Store,
        history: Callable[[], TickHistory],
    ) -> None:
        self._job, self._planned, self._kept, self._read = job, planned, kept, read
        self._manifest, self._store, self._history = manifest, store, history

    def answer(self, db: Any, insert: Insert, table: str, why: str) -> str:
        """The relation of what a query's ticks come to.

        Args:
            table: the name that it is given.
            why: its ticks matter, for an error.

        Raises:
            SpecError: that is not known.
        """
        try:
            return _summed(db, self._put_out(insert), len(insert.query.outputs), table)
        except (NotKnown, WatersmeetError) as error:
            said = error.message if isinstance(error, WatersmeetError) else str(error)
            raise SpecError(
                f'"{insert.name}": {why}, but diff cannot tell which rows each tick had: {said}',
                code="not-compared",
                hint="diff supports a query that reads only streams, or only changing tables, but not both",
            ) from None

    def _put_out(self, insert: Insert) -> pa.Table:
        if self._manifest is None:
            raise NotKnown("there is no state")
        history = self._history()
        if not len(history) or history.ticks[-1] != self._manifest.tick:
            raise NotKnown(f"the history does not have tick {self._manifest.tick:,}, that of the state")
        query = next((q for q in self._asked if q.name == insert.name), None)
        if query is None:
            raise NotKnown("it is not planned by itself")
        names = {branch.source.name for side in query.sides for _, branch in side.sources}
        declared = {name: own for name, own in sources_of(self._job).items() if name in names}
        read = [self._read[name] for name in names if name in self._read]
        if any(own.named for own in read):
            raise NotKnown("of files that are named it is not known which tick read them")
        if sum(os.path.getsize(file) for own in read for file in own.local_files or ()) > MOST_BYTES:
            raise NotKnown(f"its files have more than {MOST_BYTES >> 20} MB")
        rows = reread(declared, [query], self._store, self._manifest.host, history)
        kept = next(own for own in self._kept.queries if own.name == insert.name)
        return put_out(QueryRows.of(query, insert, history, rows), self._job, declared, kept)

    @cached_property
    def _asked(self) -> list[QueryPlan]:
        return record_queries(self._job, self._planned)


def _summed(db: Any, put_out: pa.Table, columns: int, table: str) -> str:
    """What is there in the end. Raises: NotKnown."""
    given, count = ours("given"), ours("n")
    names = [column_name(n) for n in range(columns)]
    rows = put_out.select(range(columns)).rename_columns(names)
    changes = SHOWN_DIFF in put_out.column_names
    diffs = put_out.column(SHOWN_DIFF) if changes else pa.array([1] * len(put_out), pa.int64())
    db.register(given, rows.append_column(count, diffs))
    zoned = [name for name, kind in types_of(db, given).items() if kind == "TIMESTAMP WITH TIME ZONE"]
    shown = ", ".join(f"timezone('UTC', {n}) AS {n}" if n in zoned else n for n in names)
    ran(
        db,
        f"CREATE OR REPLACE TABLE {quoted(table)} AS SELECT {', '.join(names)}, CAST(sum({count}) AS BIGINT)"
        f" AS {count} FROM (SELECT {shown}, {count} FROM {given}) r GROUP BY {', '.join(names)}",
    )
    db.unregister(given)
    ((below,),) = ran(db, f"SELECT count(*) FROM {quoted(table)} WHERE {count} < 0")
    if below:
        raise NotKnown("rows go more often than they come")
    return f"(SELECT {', '.join(names)}, FALSE AS {PENDING} FROM {quoted(table)} r, unnest(range({count})))"
