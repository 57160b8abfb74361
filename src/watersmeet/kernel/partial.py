"""Aggregates from partial ones: what is kept of a group's rows, so that the rows themselves need not be.

A group's rows, cut in any way, are aggregated part by part (`Partials.make`); partial rows of equal keys are
combined into one (`Partials.combine`), as often as is wanted; and what is left gives the aggregates
(`Partials.finish`). The results are those of all rows at once (`kernel.aggregate`), and an error too: a sum
is kept wide enough, so that only a whole one can be too great. The one exception are sums and means of
floating numbers, which depend on the order of additions in their last digits, as anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.kernel.aggregate import (
    AggregateColumn,
    aggregate_sql,
    decimal_mean,
    duckdb_type,
    filtered,
    quoted,
)
from watersmeet.names import ours

_ALIKE = {"min": "min", "max": "max", "any_value": "min"} | {
    name: name for name in ("bool_and", "bool_or", "bit_and", "bit_or", "bit_xor")
}
"""Functions that make the same of what they have made: by which one of DuckDB's."""

ROWS = ours("rows")
"""The partial column that says how many rows it stands for."""


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate call over columns of the rows; see `kernel.aggregate.aggregate_sql`."""

    name: str
    function: str
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    distinct: bool = False
    filter: str | None = None


@dataclass(frozen=True)
class Partials:
    """See the module. ``make``: over rows; ``combine``: over partial rows, to such rows; ``finish``: over
    those, to the results by their names."""

    make: tuple[AggregateColumn, ...]
    combine: tuple[AggregateColumn, ...]
    finish: tuple[AggregateColumn, ...]


def partials_of(calls: Sequence[AggregateCall]) -> Partials | None:
    """What is kept for these calls; None: one of them needs the rows."""
    kept = _Kept()
    count = kept.sum("count(*)", pa.int64())
    finish = []
    for call in calls:
        typed_sql = aggregate_sql(call.function, call.columns, call.types, call.distinct, call.filter)
        finished = None if typed_sql is None else _finish(call, *typed_sql, kept)
        if typed_sql is None or finished is None:
            return None
        finish.append(AggregateColumn(call.name, finished, typed_sql[1]))
    assert count == quoted(ROWS)
    return Partials(tuple(kept.make), tuple(kept.combine), tuple(finish))


class _Kept:
    """The partial columns, each once however many calls want it."""

    def __init__(self) -> None:
        self.make: list[AggregateColumn] = []
        self.combine: list[AggregateColumn] = []
        self._names: dict[tuple[str, str], str] = {}

    def column(self, text: str, kind: pa.DataType, combined: str) -> str:
        """The column, quoted, that holds ``text`` over rows; ``combined``: the same of several partial rows,
        with ``{0}`` for the column."""
        column_name = self._names.get((text, combined))
        if column_name is not None:
            return column_name
        name = ours(f"partial{len(self.make)}") if self.make else ROWS
        self.make.append(AggregateColumn(name, text, kind))
        self.combine.append(AggregateColumn(name, combined.format(quoted(name)), kind))
        self._names[text, combined] = quoted(name)
        return quoted(name)

    def sum(self, text: str, kind: pa.DataType) -> str:
        """A column of which the values add up."""
        return self.column(text, kind, f"CAST(sum({{0}}) AS {duckdb_type(kind)})")


def _finish(call: AggregateCall, text: str, result: pa.DataType, kept: _Kept) -> str | None:
    """The call over partial rows; ``text``: over rows, of the type ``result``. None: it needs the rows."""
    rows = [] if call.filter is None else [quoted(call.filter)]
    names, function = [quoted(column) for column in call.columns], call.function
    if function in _ALIKE:
        return f"{_ALIKE[function]}({kept.column(text, result, f'{_ALIKE[function]}({{0}})')})"
    if call.distinct:
        return None
    if function in ("count", "count_if"):
        return f"CAST(sum({kept.sum(text, result)}) AS BIGINT)"
    if function in ("min_by", "max_by"):
        which, least = ("first", "min") if function == "min_by" else ("last", "max")
        clause = filtered([*rows, f"{names[1]} IS NOT NULL"])
        by = kept.column(f"{least}({names[1]}){clause}", call.types[1], f"{least}({{0}})")
        at = f"{which}({{0}} ORDER BY {by}, {{0}} NULLS FIRST) FILTER (WHERE {by} IS NOT NULL)"
        return at.format(kept.column(text, result, at))
    if function not in ("sum", "avg"):
        return None
    (name,), (kind,) = names, call.types
    exact = pa.types.is_decimal(kind) or (function == "sum" and pa.types.is_integer(kind))
    if exact:
        wide = pa.decimal128(38, kind.scale if pa.types.is_decimal(kind) else 0)
        total = kept.sum(f"CAST(sum({name}){filtered(rows)} AS {duckdb_type(wide)})", wide)
    else:
        total = kept.sum(f"sum(CAST({name} AS DOUBLE)){filtered(rows)}", pa.float64())
    if function == "sum":
        return f"CAST(sum({total}) AS {duckdb_type(result)})"
    number = kept.sum(f"count(*){filtered([*rows, f'{name} IS NOT NULL'])}", pa.int64())
    if exact:
        return decimal_mean(f"sum({total})", f"CAST(sum({number}) AS BIGINT)", kind.scale)
    return f"sum({total}) / CAST(sum({number}) AS DOUBLE)"
