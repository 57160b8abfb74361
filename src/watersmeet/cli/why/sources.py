"""A job's sources, read again for `why`: files and topics are; what else there is is said not to be."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.cli.why.records import as_changes
from watersmeet.cli.why.topics import topics_again
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.query_inputs import needed_source_columns
from watersmeet.runtime.files.first_rows import FirstRows
from watersmeet.runtime.spark.sources.files.reread import reread_files
from watersmeet.runtime.values import to_table
from watersmeet.spec.model import Source
from watersmeet.state.store import Store
from watersmeet.why.rows import UNREAD, Missing, Portion, Reread
from watersmeet.why.ticks import TickHistory

FILES = "files"
"""How far files were read is told by this name."""


def reread(
    sources: Mapping[str, Source],
    queries: Iterable[QueryPlan],
    store: Store,
    host: Mapping[str, Any],
    history: TickHistory,
) -> dict[str, Reread]:
    """Read all of these sources again, as far as possible.

    Raises:
        EngineError: Only Spark can read a file; the error names it.
        StateError: The list of the files that were read is damaged.
    """
    every, silent = list(queries), set[str]()
    return {name: _reread(source, every, store, host, history, silent) for name, source in sources.items()}


def _reread(
    source: Source,
    queries: list[QueryPlan],
    store: Store,
    host: Mapping[str, Any],
    history: TickHistory,
    silent: set[str],
) -> Reread:
    if not (source.traits.files or source.traits.log):
        return Reread(source, (), (Missing(f"a {source.connector} source is not read again"),))
    branches = [
        branch
        for query in queries
        for side in query.sides
        for _, branch in side.sources
        if branch.source.name == source.name
    ]
    needed = needed_source_columns(source, branches)
    zone = queries[0].options.time_zone
    if source.traits.log:
        return topics_again(source, host, history, zone, needed, silent)

    def tick_of(position: int) -> int:
        read_by = history.slot_of(source.name, FILES, position)
        return len(history) if read_by is None else read_by[0]

    again = reread_files(source, store, host, zone, needed, tick_of)
    portions = [_portion(source, rows, position, path, zone) for path, position, rows in again.read]
    portions += [_portion(source, rows, UNREAD, path, zone) for path, rows in again.unread]
    missing = [Missing(words, FILES, position) for words, position in again.missing]
    for path, position, rows in [*again.read, *((path, UNREAD, rows) for path, rows in again.unread)]:
        if rows.left_out > len(rows.records):
            more = rows.left_out - len(rows.records)
            missing.append(Missing(f"{path} has {more:,} more records that were not read", FILES, position))
    return Reread(source, tuple(portions), tuple(missing))


def _portion(source: Source, rows: FirstRows, position: int, path: str, zone: str) -> Portion:
    table, says = as_changes(source, to_table(source.columns, rows.rows, [1] * len(rows.rows)), zone)
    unclear = [rows.rows[number] for number in np.flatnonzero(~says).tolist()]
    texts = (json.dumps(row, ensure_ascii=False, default=str)[:200] for row in unclear)
    return Portion(table.filter(pa.array(says)), FILES, position, path, (*rows.records, *texts))
