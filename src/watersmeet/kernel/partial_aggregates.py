"""Aggregates from partial ones: what is kept of a group's rows, so that the rows themselves need not be.

A group's rows, cut in any way, are aggregated part by part (`Partials.make`); partial rows of equal keys are
combined into one (`Partials.combine`), as often as is wanted; and what is left gives the aggregates
(`Partials.finish`). The results are those of all rows at once (`kernel.aggregate`), and an error too: a sum
is kept wide enough, so that only a whole one can be too great. The one exception are sums and means of
floating numbers, which depend on the order of additions in their last digits, as anywhere.

Of one row, or one partial row, each step is text over its columns, too (`AggregateColumn.alone`), for groups
that have no more (`kernel.groups`).
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
    filter_clause,
    quote_identifier,
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
    """Return what to retain for these calls, or None if a call needs the rows themselves."""
    kept = _PartialColumns()
    count = kept.sum("count(*)", _number([]), pa.int64())
    finish = []
    for call in calls:
        typed_sql = aggregate_sql(call.function, call.columns, call.types, call.distinct, call.filter)
        finished = None if typed_sql is None else _finish(call, *typed_sql, kept)
        if typed_sql is None or finished is None:
            return None
        of_many, of_one = finished
        finish.append(AggregateColumn(call.name, of_many, typed_sql[1], of_one))
    assert count == quote_identifier(ROWS)
    return Partials(tuple(kept.make), tuple(kept.combine), tuple(finish))


class _PartialColumns:
    """The partial columns, each once however many calls want it."""

    def __init__(self) -> None:
        self.make: list[AggregateColumn] = []
        self.combine: list[AggregateColumn] = []
        self._names: dict[tuple[str, str], str] = {}

    def column(self, text: str, alone: str, kind: pa.DataType, combined: str) -> str:
        """Return the quoted name of the column that contains ``text`` over rows; add a new one.

        Args:
            text: SQL over many rows.
            alone: SQL for the same over one row.
            combined: SQL for the same over several partial rows, with ``{0}`` for the column.
        """
        column_name = self._names.get((text, combined))
        if column_name is not None:
            return column_name
        name = ours(f"partial{len(self.make)}") if self.make else ROWS
        self.make.append(AggregateColumn(name, text, kind, alone))
        self.combine.append(
            AggregateColumn(name, combined.format(quote_identifier(name)), kind, quote_identifier(name))
        )
        self._names[text, combined] = quote_identifier(name)
        return quote_identifier(name)

    def sum(self, text: str, alone: str, kind: pa.DataType) -> str:
        """Return the quoted name of a column whose values add up."""
        return self.column(text, alone, kind, f"CAST(sum({{0}}) AS {duckdb_type(kind)})")


def _finish(
    call: AggregateCall, text: str, result: pa.DataType, kept: _PartialColumns
) -> tuple[str, str] | None:
    """Build SQL for the call over partial rows and over one partial row.

    Args:
        text: SQL for the call over rows, with the type ``result``.

    Returns:
        None if the call needs the rows themselves.
    """
    rows = [] if call.filter is None else [quote_identifier(call.filter)]
    names, function = [quote_identifier(column) for column in call.columns], call.function
    if function in _ALIKE:
        column = kept.column(text, _value(names[0], rows), result, f"{_ALIKE[function]}({{0}})")
        return f"{_ALIKE[function]}({column})", column
    if call.distinct:
        return None
    if function in ("count", "count_if"):
        conditions = names if function == "count_if" else [f"{name} IS NOT NULL" for name in names]
        column = kept.sum(text, _number([*rows, *conditions]), result)
        return f"CAST(sum({column}) AS BIGINT)", column
    if function in ("min_by", "max_by"):
        which, least = ("first", "min") if function == "min_by" else ("last", "max")
        there = [*rows, f"{names[1]} IS NOT NULL"]
        by = kept.column(
            f"{least}({names[1]}){filter_clause(there)}",
            _value(names[1], there),
            call.types[1],
            f"{least}({{0}})",
        )
        at = f"{which}({{0}} ORDER BY {by}, {{0}} NULLS FIRST) FILTER (WHERE {by} IS NOT NULL)"
        # DuckDB sorts REAL by keys from which -0.0 comes back as 0.0.
        value = f"CAST(0 AS REAL) + {names[0]}" if pa.types.is_float32(result) else names[0]
        column = kept.column(text, _value(value, there), result, at)
        return at.format(column), column
    if function not in ("sum", "avg"):
        return None
    (name,), (kind,) = names, call.types
    exact = pa.types.is_decimal(kind) or (function == "sum" and pa.types.is_integer(kind))
    if exact:
        wide = pa.decimal128(38, kind.scale if pa.types.is_decimal(kind) else 0)
        as_wide = f"AS {duckdb_type(wide)})"
        total = kept.sum(
            f"CAST(sum({name}){filter_clause(rows)} {as_wide}", f"CAST({_value(name, rows)} {as_wide}", wide
        )
    else:
        added = f"CAST({name} AS DOUBLE)"
        of_one = _value(f"CAST(0 AS DOUBLE) + {added}", rows)  # of -0.0 alone, a sum is 0.0
        total = kept.sum(f"sum({added}){filter_clause(rows)}", of_one, pa.float64())
    if function == "sum":
        as_result = f"AS {duckdb_type(result)})"
        return f"CAST(sum({total}) {as_result}", f"CAST({total} {as_result}"
    there = [*rows, f"{name} IS NOT NULL"]
    number = kept.sum(f"count(*){filter_clause(there)}", _number(there), pa.int64())
    if exact:
        of_many = decimal_mean(f"sum({total})", f"CAST(sum({number}) AS BIGINT)", kind.scale)
        return of_many, decimal_mean(total, number, kind.scale)
    return f"sum({total}) / CAST(sum({number}) AS DOUBLE)", f"{total} / CAST({number} AS DOUBLE)"


def _value(text: str, conditions: Sequence[str]) -> str:
    """Return SQL for ``text`` over one row if all conditions are TRUE for it, else NULL."""
    return f"CASE WHEN {' AND '.join(conditions)} THEN {text} END" if conditions else text


def _number(conditions: Sequence[str]) -> str:
    """Return SQL that is 1 for a row if all conditions are TRUE for it, else 0."""
    is_one = f"CASE WHEN {' AND '.join(conditions)} THEN 1 ELSE 0 END" if conditions else "1"
    return f"CAST({is_one} AS BIGINT)"
