"""A job's sources, read again for `why`: files are; what else there is is said not to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from watersmeet.engine.spark.sources.files.again import files_again
from watersmeet.engine.spark.sources.files.first_found import FirstRows
from watersmeet.engine.values import to_table
from watersmeet.plan.evaluated import mentioned_by
from watersmeet.plan.model.job import QueryPlan
from watersmeet.spec.model import Source
from watersmeet.state.store import Store
from watersmeet.why.reread import UNREAD, Missing, Portion, Reread

FILES = "files"
"""How far files were read is told by this name."""


def reread(
    sources: Mapping[str, Source], queries: Iterable[QueryPlan], store: Store, host: Mapping[str, Any]
) -> dict[str, Reread]:
    """All of these sources, as far as they can be read again.

    Raises:
        EngineError: only Spark knows how a file is read, which is named.
        StateError: the list of the files that were read is damaged.
    """
    every = list(queries)
    return {name: _reread(source, every, store, host) for name, source in sources.items()}


def _reread(source: Source, queries: list[QueryPlan], store: Store, host: Mapping[str, Any]) -> Reread:
    if not source.traits.files:
        return Reread(source, (), (Missing(f"a {source.connector} source is not read again"),))
    branches = [
        branch
        for query in queries
        for side in query.sides
        for _, branch in side.sources
        if branch.source.name == source.name
    ]
    needed = frozenset[str]().union(*map(mentioned_by, branches))
    again = files_again(source, store, host, queries[0].options.time_zone, needed)
    portions = [_portion(source, rows, position, path) for path, position, rows in again.read]
    portions += [_portion(source, rows, UNREAD, path) for path, rows in again.unread]
    missing = [Missing(words, FILES, position) for words, position in again.missing]
    for path, position, rows in [*again.read, *((path, UNREAD, rows) for path, rows in again.unread)]:
        if rows.left_out > len(rows.records):
            more = rows.left_out - len(rows.records)
            missing.append(Missing(f"{path} has {more:,} more records that were not read", FILES, position))
    return Reread(source, tuple(portions), tuple(missing))


def _portion(source: Source, rows: FirstRows, position: int, path: str) -> Portion:
    table = to_table(source.columns, rows.rows, [1] * len(rows.rows))
    return Portion(table, FILES, position, path, tuple(rows.records))
