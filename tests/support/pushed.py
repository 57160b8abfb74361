"""Case files played by pushes of Arrow tables, in whatever form Arrow has for the same values."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

import pyarrow as pa

from watersmeet.errors import SpecError
from watersmeet.names import CASE_PARTITION
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.replay import QUERY, CaseOutput, CaseStep, replay
from watersmeet.runtime.values import InMemoryTables, to_table
from watersmeet.spec.model import Source
from watersmeet.state.store import MemoryStore, Store
from watersmeet.types.sql_type import TIMESTAMP

Row = Mapping[str, Any]
ZONES = (None, "UTC", "+03:00")


def replay_pushed(case: Mapping[str, Any], partitions: int = 1, seed: int = 0) -> list[dict[str, Any]]:
    """As `replay_case`; ``seed`` draws the forms."""
    return replay(case, lambda plan: _PushedCase(plan, random.Random(seed)), partitions)


class _PushedCase:
    def __init__(self, plan: JobPlan, rng: random.Random) -> None:
        self._plan, self._rng = plan, rng
        self._store: Store = MemoryStore()
        self._tables = InMemoryTables()
        self._declared = {source.name: source for source in (*plan.sources, *plan.tables)}

    def open(self, partitions: int, clock_us: int) -> None:
        self._job = LocalJob(
            self._plan, self._store, partitions=partitions, clock_us=clock_us, tables=self._tables
        )

    @property
    def state(self) -> Mapping[str, int]:
        return self._job.state[QUERY]

    def tick(self, step: CaseStep) -> CaseOutput:
        for name, changes in step.rows.items():
            if name in self._declared:
                self._push(self._declared[name], changes)
        for source, marks in step.advances.items():
            for column, mark in marks.items():
                with suppress(SpecError):  # of a column that the query does not order
                    self._job.advance(source, column, mark)
        output = self._job.tick(clock_us=step.clock_us, idle=step.idle, end=step.end)
        return CaseOutput(output.rows[QUERY], output.late, output.result.queries[QUERY])

    def _push(self, source: Source, changes: Sequence[tuple[Row, int]]) -> None:
        def of(change: tuple[Row, int]) -> tuple[Any, int]:
            return change[0].get(CASE_PARTITION), change[1]

        for (partition, diff), group in groupby(changes, key=of):
            rows = [row for row, _ in group]
            table = in_some_form(source, rows, self._rng)
            named = None if partition is None else str(partition)
            step = 1 if diff > 0 else -1
            for _ in range(abs(diff)):
                self._job.push(source.name, table, partition=named, diff=step)


def in_some_form(source: Source, rows: Sequence[Row], rng: random.Random) -> Any:
    """The rows as a table whose columns stand in any order, cut into chunks, and of any type that holds the
    same."""
    whole = to_table(source.columns, rows, [1] * len(rows))
    names = [column.name for column in source.columns]
    rng.shuffle(names)
    kinds = {column.name: column.type for column in source.columns}
    arrays = [_form(whole.column(name), kinds[name] == TIMESTAMP, rng) for name in names]
    table = pa.table(arrays, names=names)
    if table.num_rows > 1 and rng.random() < 0.3:
        cut = rng.randrange(1, table.num_rows)
        table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    if rng.random() < 0.2 and all(pa.types.is_primitive(array.type) for array in arrays):
        return table.combine_chunks().to_batches()[0] if table.num_rows else table
    return table


def _form(column: pa.ChunkedArray, is_instant: bool, rng: random.Random) -> pa.ChunkedArray:
    kind = column.type
    if rng.random() < 0.4:
        return column
    if column.null_count == len(column) and rng.random() < 0.5:
        return pa.chunked_array([pa.nulls(len(column))])
    if pa.types.is_string(kind):
        column = column.cast(pa.large_string()) if rng.random() < 0.5 else column
        return column.dictionary_encode() if rng.random() < 0.5 else column
    forms: list[pa.DataType] = []
    if pa.types.is_integer(kind):
        forms = [pa.int64(), pa.int32(), pa.int16(), pa.uint64()]
    if pa.types.is_timestamp(kind):
        forms = [
            pa.timestamp(unit, tz) for unit in ("ns", "us", "ms") for tz in ZONES[: 3 if is_instant else 1]
        ]
    if pa.types.is_date(kind):
        forms = [pa.date64()]
    if pa.types.is_decimal(kind):
        forms = [pa.decimal256(kind.precision, kind.scale)]
    rng.shuffle(forms)
    for form in forms:
        try:
            if pa.types.is_timestamp(form) and form.tz is not None:
                return column.cast(pa.timestamp(form.unit)).cast(form)
            return column.cast(form)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # it does not hold these values
            continue
    return column
