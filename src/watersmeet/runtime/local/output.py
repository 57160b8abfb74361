"""Output of a tick in this process, and the last output stored with the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from watersmeet.errors import SpecError
from watersmeet.event_time import ENDED, NEVER, Watermark
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.results import TickResult
from watersmeet.runtime.local.input_rows import late_rows
from watersmeet.runtime.values import Row, to_json
from watersmeet.state import last_output
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Store

# What a tick of the in-process job put out: tables to go on with, and rows as case files write them.


@dataclass(frozen=True)
class Output:
    """Output of a tick.

    Attributes:
        tick: its number, from 1.
        tables: the rows per query, including queries without rows; INSERTs by the name of their sink, a
            join as data as ``joined``.
        late_tables: per source with late rows, the pushed rows that were too late, with all their
            columns.
        watermarks: per query, the output watermarks by ``alias.column``, in units of the column (µs
            since 1970 for TIMESTAMP and DATE), +∞ at the end: no later row has a lower time there. A
            key is absent until it has a watermark.
        position: the position passed to `LocalJob.tick`.
        finished: True if the tick ended the input.

    >>> from watersmeet import local
    >>> job = local.job('''
    ...     CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...     SELECT x.t, y.t AS u FROM a x JOIN a y ON x.k = y.k AND y.t BETWEEN x.t + 1 AND x.t + 3''')
    >>> job.push("a", [{"t": 1, "k": "x"}, {"t": 2, "k": "x"}])
    >>> output = job.tick()
    >>> output.tick, output.tables["console"].to_pylist(), output.finished
    (1, [{'t': 1, 'u': 2}], False)
    """

    tick: int
    tables: Mapping[str, pa.Table]
    late_tables: Mapping[str, pa.Table]
    watermarks: Mapping[str, Mapping[str, Watermark]]
    position: Any = None
    finished: bool = False

    @property
    def table(self) -> pa.Table:
        """The rows of the one query. Raises: SpecError, where there are several."""
        if len(self.tables) != 1:
            raise SpecError(
                f"the job has {len(self.tables)} queries: {', '.join(self.tables)}",
                code="several-queries",
                hint="choose a result by name: output.tables[…]",
            )
        return next(iter(self.tables.values()))


@dataclass(frozen=True)
class StepOutput(Output):
    """Output of a tick with all its details.

    Attributes:
        given_late: late rows of cases as (source, row), and of stages as (alias of the input, row).
        shed: shed rows as (alias, the columns that the query retains).
    """

    result: TickResult = field(kw_only=True)
    given_late: Sequence[tuple[str, Row]] = ()
    shed: Sequence[tuple[str, Row]] = ()

    @cached_property
    def rows(self) -> Mapping[str, list[dict[str, Any]]]:
        """Output rows by query, with values as in case files: of the years 1 to 9999."""
        return {
            name: format_case_rows(self.tables[name]) if name in self.tables else []
            for name in self.result.queries
        }

    @cached_property
    def late(self) -> list[tuple[str, Row]]:
        """All late rows, as (source, row); for stages, as (alias of the input, row)."""
        return [*self.given_late, *late_rows(self.late_tables)]


def check_names(plan: JobPlan, of: str) -> None:
    """Check that all result columns of each query have different names.

    Args:
        of: what requires unique names, for the message.

    Raises:
        SpecError: two columns of a query have the same name.
    """
    for query in plan.queries:
        names = [output.name for output in query.outputs]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise SpecError(
                f'two columns of the result are named "{twice}", but a {of} needs unique names',
                code="duplicate-column",
                hint=f"rename one of them: … AS {twice}2",
            )


def format_case_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Format rows as in case files."""
    columns = [[to_json(value) for value in column.to_pylist()] for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


# The output of the last tick, as it is kept with the state (`state.last_output`), and back.

_QUERY, _LATE = "query ", "late "
_ENDS: Mapping[Watermark, str] = {NEVER: "none", ENDED: "end"}
_MARKS = {text: mark for mark, text in _ENDS.items()}


def store_output(output: Output, store: Store) -> dict[str, Any]:
    """Store the output of a tick, and return its entry in the ``host`` field of the manifest."""
    tables = {_QUERY + name: table for name, table in output.tables.items()}
    tables |= {_LATE + name: table for name, table in output.late_tables.items()}
    kept = last_output.keep(store, output.tick, tables)
    watermarks = {
        query: {key: _ENDS.get(mark, mark) for key, mark in marks.items()}
        for query, marks in output.watermarks.items()
    }
    return {last_output.KEY: kept.model_dump(), "watermarks": watermarks}


def load_output(manifest: Manifest, store: Store, empty: Mapping[str, pa.Table]) -> Output | None:
    """Load the stored output of the manifest's tick; return None if it was not stored.

    Args:
        empty: a table without rows, per query.

    Raises:
        StateError: the output is missing or damaged.
    """
    kept = last_output.last_output_of(manifest.host)
    if kept is None:
        return None
    tables = last_output.read(store, kept)
    return Output(
        manifest.tick,
        dict(empty) | _select_kind(_QUERY, tables),
        _select_kind(_LATE, tables),
        {
            query: {key: _MARKS.get(mark, mark) for key, mark in marks.items()}
            for query, marks in manifest.host["watermarks"].items()
        },
        manifest.host.get("position"),
        manifest.finished,
    )


def _select_kind(kind: str, tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    return {name.removeprefix(kind): table for name, table in tables.items() if name.startswith(kind)}
