"""Aggregate groups of rows with DuckDB, from rows or from partial aggregates, as Spark SQL does.

`aggregate_sql` lists the functions that DuckDB computes as Spark does: types of results, NULLs, NaN,
overflow (an error), halves of decimals. Spark computes all others.

Partial aggregates: a group's rows are aggregated in parts (`Partials.make`), parts of equal keys are
combined any number of times (`Partials.combine`), and `Partials.finish` returns the group's result. It
equals the result over all rows at once, errors included, because sums are kept wide enough that only the
final sum can overflow. Exception: the last digits of sums and means of floating numbers depend on the order
of additions.

Groups of a single row (or partial row) are computed as expressions over its columns
(`AggregateColumn.alone`).

Ranks (`plain_ranks`) order rows as DuckDB's ``dense_rank`` does: NULLs are equal and last, NaN is equal to
NaN and comes before NULL, and 0.0 equals -0.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.kernel.batches import batch_of, one_array, same_rows, take_rows, widen_offsets
from watersmeet.kernel.duckdb import connection, failure
from watersmeet.names import ours

_MAX_DIGITS = 38
_HIDDEN = ours("first")
_ROWS = "grouped_rows"
MAX_NUMBERED_ROWS = 50_000
"""Rows, up to which to ask for their numbers here costs less than to ask the engine."""


@dataclass(frozen=True)
class AggregateColumn:
    """One aggregate: DuckDB SQL over columns of the rows, and the type of its result.

    If ``type`` is a decimal with places and DuckDB computes it as DECIMAL(38,0), that value is unscaled: its
    digits are the digits of the result.

    Attributes:
        alone: SQL over the columns of a single row that computes the aggregate of that row. None: a single
            row has to be aggregated, too.
    """

    name: str
    sql: str
    type: pa.DataType
    alone: str | None = None


def aggregate_sql(
    function: str, columns: Sequence[str], types: Sequence[pa.DataType], distinct: bool, filter_: str | None
) -> tuple[str, pa.DataType] | None:
    """Return an aggregate's DuckDB expression and result type, or None if DuckDB may differ.

    Args:
        columns: the arguments' columns; none for ``count(*)``.
        types: the arguments' types; none for ``count(*)``.
        filter_: a boolean column: only rows where it is TRUE count.

    Returns:
        None if the function is not known to give the same result in DuckDB as in Spark.
    """
    names = [quote_identifier(column) for column in columns]
    rows = [] if filter_ is None else [quote_identifier(filter_)]
    typed_sql = _plain_aggregate(function, names, list(types), distinct, rows)
    if typed_sql is None or any(_is_closed(kind) for kind in types if function != "count"):
        return None
    text, kind = typed_sql
    return (f"CAST({text} AS {duckdb_type(kind)})" if function == "sum" else text), kind


def _plain_aggregate(
    function: str, names: list[str], types: list[pa.DataType], distinct: bool, rows: list[str]
) -> tuple[str, pa.DataType] | None:
    once = "DISTINCT " if distinct else ""
    if function == "count":
        return _count(names, distinct, rows), pa.int64()
    if len(names) == 2 and function in ("min_by", "max_by") and not distinct and is_ordered(types[1]):
        return _extreme_by(function, names, types, rows)
    if len(names) != 1:
        return None
    (name,), (kind,) = names, types
    if function == "count_if" and pa.types.is_boolean(kind) and not distinct:
        return f"count(*){filter_clause([*rows, name])}", pa.int64()
    if function == "sum":
        sum_type = _sum_type(kind)
        return None if sum_type is None else (f"sum({once}{name}){filter_clause(rows)}", sum_type)
    if function == "avg":
        return _average(name, kind, once, rows)
    if function in ("min", "max", "any_value"):
        least = "min" if function == "any_value" else function
        return (f"{least}({name}){filter_clause(rows)}", kind) if is_ordered(kind) else None
    if distinct:
        return None
    if function in ("bool_and", "bool_or"):
        return (f"{function}({name}){filter_clause(rows)}", kind) if pa.types.is_boolean(kind) else None
    if function in ("bit_and", "bit_or", "bit_xor"):
        return (f"{function}({name}){filter_clause(rows)}", kind) if pa.types.is_integer(kind) else None
    if function not in ("stddev_samp", "stddev_pop", "var_samp", "var_pop") or not _is_number(kind):
        return None
    text = f"{function}(CAST({name} AS DOUBLE)){filter_clause(rows)}"
    if function.endswith("_pop") and pa.types.is_floating(kind):  # of one infinity 0 there
        alone = (
            f"count({name}){filter_clause(rows)} = 1 AND bool_or(NOT isfinite({name})){filter_clause(rows)}"
        )
        text = f"CASE WHEN {alone} THEN CAST('NaN' AS DOUBLE) ELSE {text} END"
    return text, pa.float64()


def _count(names: list[str], distinct: bool, rows: list[str]) -> str:
    """Return SQL that counts the rows in which no argument is NULL."""
    not_null = [f"{name} IS NOT NULL" for name in names]
    if not distinct:
        return f"count(*){filter_clause([*rows, *not_null])}"
    whole = names[0] if len(names) == 1 else f"({', '.join(names)})"
    return f"count(DISTINCT {whole}){filter_clause([*rows, *not_null])}"


def _extreme_by(
    function: str, names: list[str], types: list[pa.DataType], rows: list[str]
) -> tuple[str, pa.DataType] | None:
    """Return SQL for the value at the least or greatest value of another column.

    If several rows share that extreme, the least (``min_by``) or greatest (``max_by``) of their
    values wins.
    """
    if not is_ordered(types[0]):
        return None
    value, by = names
    which = "first" if function == "min_by" else "last"
    clause = filter_clause([*rows, f"{by} IS NOT NULL"])
    return f"{which}({value} ORDER BY {by}, {value} NULLS FIRST){clause}", types[0]


def _average(name: str, kind: pa.DataType, once: str, rows: list[str]) -> tuple[str, pa.DataType] | None:
    if not pa.types.is_decimal(kind):
        if not _is_number(kind):
            return None
        return f"avg({once}CAST({name} AS DOUBLE)){filter_clause(rows)}", pa.float64()
    precision, scale = kind.precision, kind.scale
    if precision + max(scale + 10, 15) > _MAX_DIGITS:
        return None
    total, number = (f"{aggregate}({once}{name}){filter_clause(rows)}" for aggregate in ("sum", "count"))
    return decimal_mean(total, number, scale), pa.decimal128(precision + 4, scale + 4)


def decimal_mean(total: str, number: str, scale: int) -> str:
    """Return SQL for the unscaled mean of decimals, with four places more than ``scale``.

    The expression rounds halves away from zero and computes in whole numbers.

    Args:
        total: SQL for the sum of the decimals.
        number: SQL for their count.
        scale: the places of the decimals.
    """
    whole = f"(CAST({total} * {10**scale} AS HUGEINT) * 10000)"
    rounded = f"(2 * abs({whole}) + {number}) // (2 * {number}) * sign({whole})"
    return f"CASE WHEN {number} > 0 THEN CAST({rounded} AS DECIMAL({_MAX_DIGITS},0)) END"


def _sum_type(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        return pa.decimal128(min(_MAX_DIGITS, kind.precision + 10), kind.scale)
    return None


def is_ordered(kind: pa.DataType) -> bool:
    """Return True if DuckDB orders values of this type as Spark does."""
    simple = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_date,
        pa.types.is_timestamp,
    )
    return any(test(kind) for test in simple)


def _is_number(kind: pa.DataType) -> bool:
    """Return True if the type is an integer or a floating type."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_closed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind))


def filter_clause(conditions: Sequence[str]) -> str:
    """Build the FILTER clause that limits an aggregate to rows where all conditions are TRUE."""
    return f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""


def duckdb_type(kind: pa.DataType) -> str:
    """Return DuckDB's name of a type that sums can have."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return {pa.int64(): "BIGINT", pa.float64(): "DOUBLE"}[kind]


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def aggregate_groups(
    rows: pa.Table, keys: Sequence[str], aggregates: Sequence[AggregateColumn], *, in_order: bool = True
) -> pa.Table:
    """Aggregate rows by key: return the keys, then the aggregates by name, one row per group.

    NULL is a key value like any other, NaN equals NaN, and 0.0 equals -0.0. Keys may not be maps.

    Args:
        in_order: return groups in the order of each group's first row. False leaves the order open;
            with many groups, that order takes half of the time.

    Raises:
        EngineError: an aggregate fails on the values (for example, a sum overflows).
    """
    by = [key_sql(name, rows.schema.field(name).type) for name in keys]
    chosen = [f"{text} AS {quote_identifier(name)}" for text, name in zip(by, keys, strict=True)]
    chosen += [f"{aggregate.sql} AS {quote_identifier(aggregate.name)}" for aggregate in aggregates]
    source = _ROWS
    if in_order:
        source = f"(SELECT *, row_number() OVER () AS {quote_identifier(_HIDDEN)} FROM {_ROWS})"
    tail = f" GROUP BY {', '.join(by)}" if by else " HAVING count(*) > 0"
    if in_order:
        tail += f" ORDER BY min({quote_identifier(_HIDDEN)})"
    types = [rows.schema.field(name).type for name in keys] + [aggregate.type for aggregate in aggregates]
    return _run_sql(rows, f"SELECT {', '.join(chosen)} FROM {source}{tail}", types)


def evaluate_each(rows: pa.Table, texts: Mapping[str, str], types: Sequence[pa.DataType]) -> pa.Table:
    """Evaluate DuckDB expressions for each row, in row order.

    The results equal those of `aggregate_groups` where each row is a group of its own.

    Args:
        texts: DuckDB expressions by result name.

    Raises:
        EngineError: an expression fails on the values, as in `aggregate_groups`.
    """
    chosen = [f"{text} AS {quote_identifier(name)}" for name, text in texts.items()]
    return _run_sql(rows, f"SELECT {', '.join(chosen)} FROM {_ROWS}", types)


def _run_sql(rows: pa.Table, text: str, types: Sequence[pa.DataType]) -> pa.Table:
    cursor = connection().cursor()
    try:
        cursor.register(_ROWS, rows)
        table = cursor.sql(text).to_arrow_table()
    except failure() as error:
        raise EngineError(
            f"an aggregate failed: {str(error).splitlines()[0]}",
            code="aggregate-failed",
            hint="cast the argument to a wider type, such as DECIMAL(38,0), if the result is too large",
        ) from None
    finally:
        cursor.close()
    columns = [_cast_result(column, kind) for column, kind in zip(table.columns, types, strict=True)]
    return pa.table(columns, names=table.column_names)


def group_numbers(rows: pa.RecordBatch, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Assign a number to each row by its key: rows with equal keys get equal numbers; int64[n].

    The numbers do not depend on the order of the rows. Maps are equal regardless of the order of
    their entries.
    """
    numbers = np.zeros(rows.num_rows, dtype=np.int64)
    if not keys or rows.num_rows == 0:
        return numbers
    plain = None
    if rows.num_rows <= MAX_NUMBERED_ROWS:
        plain = plain_ranks([rows.column(key) for key in dict.fromkeys(keys)])
    return numbers_by_sql(rows, keys) if plain is None else plain


def numbers_by_sql(rows: pa.RecordBatch, keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Compute in DuckDB a number per row by keys of any type: equal keys, equal numbers; int64[n].

    The numbers do not depend on the order of the rows. ``rows`` must not be empty.
    """
    numbers = np.zeros(rows.num_rows, dtype=np.int64)
    by = ", ".join(_comparable(name, rows.schema.field(name).type) for name in keys)
    table = pa.Table.from_batches([rows.select(list(dict.fromkeys(keys)))])
    table = table.append_column(_HIDDEN, pa.array(np.arange(rows.num_rows)))
    cursor = connection().cursor()
    try:
        cursor.register("keyed_rows", table)
        text = (
            f"SELECT {quote_identifier(_HIDDEN)} AS r, dense_rank() OVER (ORDER BY {by}) AS n FROM keyed_rows"
        )
        numbered = cursor.sql(text).to_arrow_table()
    finally:
        cursor.close()
    numbers[numbered.column("r").to_numpy()] = numbered.column("n").to_numpy()
    return numbers


def _cast_result(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    array = one_array(column)
    if array.type in (kind, widen_offsets(kind)):
        return array
    if pa.types.is_decimal(kind) and pa.types.is_decimal(array.type) and array.type.scale != kind.scale:
        return pa.Array.from_buffers(kind, len(array), array.buffers(), offset=array.offset)
    return array.cast(kind)


def _comparable(name: str, kind: pa.DataType) -> str:
    """Return SQL that is equal for equal values, regardless of their representation."""
    return _sort_map_entries(quote_identifier(name), kind) if _has_map(kind) else key_sql(name, kind)


def _has_map(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) or any(_has_map(field.type) for field in _fields(kind))


def _fields(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return list(kind)
    return [kind.value_field] if _is_list(kind) else []


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _sort_map_entries(value: str, kind: pa.DataType, depth: int = 0) -> str:
    """Return SQL that replaces each map in a value with the list of its entries in key order.

    NULL stays NULL.
    """
    inner = f"e{depth}"
    if pa.types.is_map(kind):
        key = _sort_map_entries(f"{inner}.key", kind.key_type, depth + 1)
        item = _sort_map_entries(f"{inner}.value", kind.item_type, depth + 1)
        entries = f"list_transform(map_entries({value}), lambda {inner}: {{'k': {key}, 'v': {item}}})"
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE list_sort({entries}) END"
    if not _has_map(kind):
        return value
    if _is_list(kind):
        element = _sort_map_entries(inner, kind.value_type, depth + 1)
        return f"list_transform({value}, lambda {inner}: {element})"
    fields = ", ".join(
        f"f{n}: {_sort_map_entries(f'struct_extract_at({value}, {n + 1})', field.type, depth)}"
        for n, field in enumerate(kind)
    )
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE {{{fields}}} END"


def key_sql(name: str, kind: pa.DataType) -> str:
    """Return DuckDB SQL for a key; it maps both zeros to 0.0."""
    plain = quote_identifier(name)
    return f"CASE WHEN {plain} = 0 THEN 0 ELSE {plain} END" if pa.types.is_floating(kind) else plain


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
    """The three steps of partial aggregation (see the module).

    Attributes:
        make: aggregates rows to partial rows.
        combine: aggregates partial rows to such rows.
        finish: aggregates partial rows to the results, by their names.
    """

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


Ranks = npt.NDArray[np.int64]

_MAX_RANK = 1 << 62
"""Ranks of several columns are one number each as long as that is below."""


def plain_ranks(columns: Sequence[pa.Array]) -> Ranks | None:
    """Rank rows by the first column, then the next, and so on: int64[n], from 0 without gaps.

    ``columns`` must have at least one row.

    Returns:
        None if a column's type is not plain, such as a list or a map.
    """
    if not all(_is_plain(column.type) for column in columns):
        return None
    ranks, count = _ranks(columns[0])
    for column in columns[1:]:
        of_column, different = _ranks(column)
        if count * different >= _MAX_RANK:
            ranks, count = _close(ranks)
        ranks, count = ranks * different + of_column, count * different
    return _close(ranks)[0]


def _is_plain(kind: pa.DataType) -> bool:
    return _is_binary(kind) or _is_numpy_number(kind) or pa.types.is_boolean(kind)


def _is_binary(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_decimal128,
    )
    return any(test(kind) for test in tests)


def _is_numpy_number(kind: pa.DataType) -> bool:
    """Return True if values are NumPy numbers in memory, with their own order."""
    tests = (pa.types.is_integer, pa.types.is_float32, pa.types.is_float64)
    return any(test(kind) for test in tests) or _is_time(kind)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _ranks(column: pa.Array) -> tuple[Ranks, int]:
    """Ranks, and how many there are."""
    if _is_binary(column.type):
        return _of_binary(column)
    ranks, count = _of_numbers(column)
    if not column.null_count:
        return ranks, count
    # what stands for NULL may be a value that no other row has: that leaves a gap
    return np.where(column.is_null().to_numpy(zero_copy_only=False), count, ranks), count + 1


def _of_numbers(column: pa.Array) -> tuple[Ranks, int]:
    kind = column.type
    if _is_time(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    if column.null_count:
        column = column.fill_null(0)
    values = column.to_numpy()
    if pa.types.is_floating(kind):
        values = values + values.dtype.type(0)  # one zero
    different, ranks = np.unique(values, return_inverse=True)
    return ranks, len(different)


def _of_binary(column: pa.Array) -> tuple[Ranks, int]:
    """Rank strings or binaries; each distinct value is compared once."""
    encoded = column.dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    places = np.empty(len(order) + 1, dtype=np.int64)
    places[order] = np.arange(len(order))
    places[-1] = len(order)
    return places[encoded.indices.fill_null(len(order)).to_numpy()], len(order) + 1


def _close(ranks: Ranks) -> tuple[Ranks, int]:
    """Compute ranks without gaps from ranks with gaps; return them and their number."""
    different, closed = np.unique(ranks, return_inverse=True)
    return closed, len(different)


def consolidate_table(rows: pa.Table, diff: str) -> pa.Table:
    """Merge equal rows into one with the sum of their diffs; drop rows whose sum is 0.

    The result is in the order of the first row of each group. Equality is that of SQL: NULL equals
    NULL, NaN equals NaN, 0.0 equals -0.0 (the result has 0.0; within nested values, the value that came
    first), and maps are equal regardless of the order of their entries.

    Args:
        diff: the column of diffs (int64), which is the last one.
    """
    batch = batch_of(rows)
    diffs = batch.column(diff).to_numpy()
    numbers = group_numbers(batch, [name for name in batch.schema.names if name != diff])
    _, firsts, groups = np.unique(numbers, return_index=True, return_inverse=True)
    sums = np.zeros(len(firsts), dtype=np.int64)
    np.add.at(sums, groups, diffs)
    same_rows("sum results up", int(diffs.sum()), int(sums.sum()))
    staying = np.flatnonzero(sums)
    staying = staying[np.argsort(firsts[staying])]
    left = take_rows(batch, firsts[staying])
    columns = [_one_zero(column) for column in left.columns[:-1]]
    return pa.table([*columns, pa.array(sums[staying])], names=batch.schema.names)


def _one_zero(column: pa.Array) -> pa.Array:
    """Replace -0.0 with 0.0."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.add(column, pa.scalar(0.0, column.type))
