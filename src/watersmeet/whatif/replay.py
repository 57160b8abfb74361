"""A sample played through the in-process engine, tick by tick: for queries of which late and retained rows
depend on more than times and watermarks (windows, joins of joined rows, nearest rows)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.names import DIFF, PARTITION
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.local.input_rows import add_utc_zone
from watersmeet.state.manifest import QueryState
from watersmeet.state.store import MemoryStore
from watersmeet.whatif.sample import ArrivedRows, Sample


@dataclass
class Played:
    """Counts of one query.

    Attributes:
        counts: rows since the start, per alias and outcome (`runtime.tasks.ingest`).
        retained: retained rows per alias, after every tick.
        kept: all rows that the query's nodes retain after every tick, with joined and grouped rows.
        matches: matches since the start.
        state_bytes: size of the query's files after every tick.
    """

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    retained: dict[str, list[int]] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
    matches: int = 0
    state_bytes: list[int] = field(default_factory=list)


def played(plan: JobPlan, sample: Sample, partitions: int = 1) -> dict[str, Played]:
    """Run the sample through the engine and return its counts per query.

    The input does not end with the sample.

    Raises:
        EngineError: only Spark computes part of a query, or a tick fails.
    """
    job = LocalJob(plan, MemoryStore(), partitions=partitions, clock_us=sample.clock_us(0), given=True)
    told = {query.name: Played() for query in plan.queries}
    parts = {name: _by_tick(arrived, sample.ticks) for name, arrived in sample.sources.items()}
    try:
        for tick in range(sample.ticks):
            for name, of_ticks in parts.items():
                for partition, rows in _by_partition(of_ticks[tick]):
                    job.push(name, rows, partition=partition)
            result = job.tick(clock_us=sample.clock_us(tick)).result
            manifest = job.driver.manifest
            assert manifest is not None  # a tick was committed
            for query in plan.queries:
                own, of_query = told[query.name], result.queries[query.name]
                own.kept.append(_kept(query, manifest.queries[query.name]))
                own.counts = {alias: dict(counts) for alias, counts in of_query.account.items()}
                own.matches += of_query.matches
                own.state_bytes.append(of_query.state_bytes)
                for alias, rows_kept in of_query.state.items():
                    own.retained.setdefault(alias, []).append(rows_kept)
    finally:
        job.close()
    return told


def _kept(query: QueryPlan, state: QueryState) -> int:
    """Count the rows that a query retains.

    Rows of an input that are retained in several arrangements count once; rows that another query
    retains do not count.
    """
    return sum(
        of_node.arrangements[side.name].retained
        for node, of_node in zip(query.nodes, state.nodes, strict=True)
        for side in node.sides
        if side.copy_of is None and side.kept_by is None and side.name in of_node.arrangements
    )


def _by_tick(arrived: ArrivedRows, ticks: int) -> list[pa.Table]:
    rows = add_utc_zone(arrived.rows.drop_columns([DIFF]), arrived.source.columns)
    borders = np.searchsorted(arrived.ticks, np.arange(ticks + 1))
    return [rows.slice(first, end - first) for first, end in pairwise(borders)]


def _by_partition(rows: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    if not rows.num_rows:
        return
    coded = pc.dictionary_encode(rows.column(PARTITION).combine_chunks(), null_encoding="encode")
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    plain = rows.drop_columns([PARTITION])
    names: Mapping[int, str | None] = dict(enumerate(coded.dictionary.to_pylist()))
    if len(names) == 1:
        yield names[0], plain
        return
    for code, name in names.items():
        yield name, plain.filter(pc.equal(coded.indices, code))
