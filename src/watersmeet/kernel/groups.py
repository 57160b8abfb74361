"""State of groups whose rows may be retracted, and the aggregates that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.aggregate import (
    ROWS,
    AggregateCall,
    AggregateColumn,
    aggregate_groups,
    aggregate_sql,
    decimal_mean,
    duckdb_type,
    evaluate_each,
    filter_clause,
    key_sql,
    quote_identifier,
)
from watersmeet.kernel.batches import concat_arrays, one_array, one_table, take_rows
from watersmeet.kernel.slots import Slots, order_of
from watersmeet.names import DIFF, ours

# What is kept of groups whose rows come and go, and the aggregates that it makes.
#
# A change is a row and how often it comes (below zero: goes). What is kept of changes adds up, in any
# order and cut in any way: kept rows of the same *parts* become one with the sums of both, and one whose
# sums are all 0 is none. So what came and went again leaves nothing.
#
# The parts are the group's keys and, of aggregates that are no sums (min, max, DISTINCT, min_by, …), the
# columns that they look at: each different value is kept with the number of its rows. Sums of integers
# and decimals are kept in 128 bits, so that only a whole one can be too great. Floating numbers are
# summed exactly and rounded once, so that results depend on no order, and what is taken back leaves
# nothing: a number is an integer times a power of two, and kept are sums of such integers, one for each
# 32 binary places (a *limb*). NaNs and infinities are counted.

LIMB = ours("limb")
"""The part that says for which 32 binary places a row has sums; NULL in rows that have the others."""
GROUP = ours("group")
"""Column of kept rows that are to be finished: the number of their group."""

_LIMB_BITS = 32
_MANTISSA_BITS = 53
_WHOLE = pa.decimal128(38, 0)
_IDEMPOTENT = frozenset(
    {"min", "max", "any_value", "min_by", "max_by", "bool_and", "bool_or", "bit_and", "bit_or"}
)
"""Functions of which it does not matter how often a value is there."""


@dataclass(frozen=True)
class FloatSum:
    """The retained columns for the sum of a floating column.

    They contain the sum's limbs and the counts of numbers, NaNs and infinities. ``filter``: a boolean
    column; only rows where it is TRUE count. None: all rows count.
    """

    column: str
    filter: str | None
    limbs: AggregateColumn
    numbers: str
    nans: str
    highest: str
    lowest: str

    @property
    def counts(self) -> tuple[str, ...]:
        return (self.numbers, self.nans, self.highest, self.lowest)


@dataclass(frozen=True)
class RealResult:
    """A sum, or mean, of floating numbers: made of `FloatSum` number ``of``."""

    name: str
    of: int
    is_mean: bool


@dataclass(frozen=True)
class GroupParts:
    """Retained columns of groups whose rows may be retracted, and their results; see the module.

    Attributes:
        values: Columns that are parts, in addition to the keys.
        decimals: Columns whose sums are retained, without their decimal places.
        sums: Aggregates over changes, which make the retained columns; `ROWS` first.
        totals: Results over retained rows.
        chosen: Results over the distinct values that are present.
        counted: Names of the ``chosen`` results that are 0, not NULL, if no value is present.
        real_sums: Sums of floating columns.
        reals: Results of ``real_sums``.
    """

    values: tuple[str, ...]
    decimals: tuple[str, ...]
    sums: tuple[AggregateColumn, ...]
    totals: tuple[AggregateColumn, ...]
    chosen: tuple[AggregateColumn, ...]
    counted: tuple[str, ...]
    real_sums: tuple[FloatSum, ...]
    reals: tuple[RealResult, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """Columns that, with the keys, distinguish the retained rows of a group."""
        return (*self.values, *((LIMB,) if self.real_sums else ()))

    @property
    def added(self) -> tuple[AggregateColumn, ...]:
        """The kept columns that add up."""
        return (*self.sums, *(real.limbs for real in self.real_sums))

    @property
    def result_types(self) -> dict[str, pa.DataType]:
        kinds = {column.name: column.type for column in (*self.totals, *self.chosen)}
        return kinds | {real.name: pa.float64() for real in self.reals}


def group_parts(keys: Sequence[str], calls: Sequence[AggregateCall]) -> GroupParts | str:
    """Return what to retain for these calls, or the name of the first unsupported call."""
    made = _Parts(keys)
    for call in calls:
        if not made.take(call):
            return call.name
    return made.finished()


class _Parts:
    """`GroupParts` in the making: each kept column once, however many calls want it."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = frozenset(keys)
        self._values: dict[str, None] = {}
        self._decimals: dict[str, None] = {}
        self._sums: dict[str, AggregateColumn] = {}
        self._totals: list[AggregateColumn] = []
        self._chosen: list[AggregateColumn] = []
        self._counted: list[str] = []
        self._real_sums: dict[tuple[str, str | None], FloatSum] = {}
        self._reals: list[RealResult] = []
        self._sum(f"CAST(sum({_DIFFS}) AS BIGINT)", pa.int64())

    def finished(self) -> GroupParts:
        return GroupParts(
            tuple(name for name in self._values if name not in self._keys),
            tuple(self._decimals),
            tuple(self._sums.values()),
            tuple(self._totals),
            tuple(self._chosen),
            tuple(self._counted),
            tuple(self._real_sums.values()),
            tuple(self._reals),
        )

    def take(self, call: AggregateCall) -> bool:
        """Add a call; return True if the retained parts can compute it."""
        typed_sql = aggregate_sql(call.function, call.columns, call.types, call.distinct, call.filter)
        if typed_sql is None:
            return False
        text, kind = typed_sql
        rows = [] if call.filter is None else [quote_identifier(call.filter)]
        names = [quote_identifier(column) for column in call.columns]
        is_real = bool(call.types) and pa.types.is_floating(call.types[0])
        if call.function in _IDEMPOTENT or call.distinct:
            if call.distinct and call.function in ("sum", "avg") and is_real:
                return False  # its last digits would depend on the order
            self._values |= dict.fromkeys([*call.columns, *([] if call.filter is None else [call.filter])])
            self._chosen.append(AggregateColumn(call.name, text, kind))
            self._counted += [call.name] if call.function == "count" else []
            return True
        if call.function in ("count", "count_if"):
            wanted = names if call.function == "count_if" else [f"{name} IS NOT NULL" for name in names]
            total = f"CAST(sum({self._count([*rows, *wanted])}) AS BIGINT)"
            self._totals.append(AggregateColumn(call.name, total, kind))
            return True
        if call.function not in ("sum", "avg"):
            return False
        if is_real:
            self._reals.append(RealResult(call.name, self._real(call), call.function == "avg"))
        else:
            self._totals.append(AggregateColumn(call.name, self._exact(call, rows, kind), kind))
        return True

    def _sum(self, text: str, kind: pa.DataType) -> str:
        """Return the quoted name of the retained column that contains ``text`` over changes."""
        if text not in self._sums:
            name = ours(f"sum{len(self._sums)}") if self._sums else ROWS
            self._sums[text] = AggregateColumn(name, text, kind)
        return quote_identifier(self._sums[text].name)

    def _count(self, conditions: Sequence[str]) -> str:
        text = f"coalesce(sum({_DIFFS}){filter_clause(conditions)}, 0)"
        return self._sum(f"CAST({text} AS BIGINT)", pa.int64())

    def _exact(self, call: AggregateCall, rows: list[str], kind: pa.DataType) -> str:
        """Return SQL for a sum or mean of integers or decimals over retained rows."""
        (column,), (held,) = call.columns, call.types
        is_decimal = pa.types.is_decimal(held)
        value = quote_identifier(column)
        if is_decimal:
            self._decimals[column] = None
            value = quote_identifier(digits_of(column))
        text = f"coalesce(sum(CAST({value} AS HUGEINT) * {_DIFFS}){filter_clause(rows)}, 0)"
        total = f"sum(CAST({self._sum(f'CAST({text} AS {duckdb_type(_WHOLE)})', _WHOLE)} AS HUGEINT))"
        number = f"sum({self._count([*rows, f'{quote_identifier(column)} IS NOT NULL'])})"
        if call.function == "avg" and is_decimal:
            return decimal_mean(total, f"CAST({number} AS HUGEINT)", 0)
        result = f"CAST({total} AS {duckdb_type(_integer_type(kind))})"
        if call.function == "avg":
            result = f"CAST({total} AS DOUBLE) / CAST({number} AS DOUBLE)"
        return f"CASE WHEN {number} > 0 THEN {result} END"

    def _real(self, call: AggregateCall) -> int:
        """Return the number of the column's `FloatSum`, which is added if it is new."""
        (column,) = call.columns
        key = (column, call.filter)
        if key not in self._real_sums:
            name, number = quote_identifier(column), len(self._real_sums)
            rows = [f"{name} IS NOT NULL", *([] if call.filter is None else [quote_identifier(call.filter)])]
            counts = [
                self._count([*rows, *more]).strip('"')
                for more in ([], *([f"CAST({name} AS DOUBLE) {test}"] for test in _SPECIAL))
            ]
            limbs = AggregateColumn(ours(f"limbs{number}"), f"limbs of {' AND '.join(rows)}", _WHOLE)
            self._real_sums[key] = FloatSum(column, call.filter, limbs, *counts)
        return list(self._real_sums).index(key)


_DIFFS = quote_identifier(DIFF)
_SPECIAL = tuple(f"= CAST('{value}' AS DOUBLE)" for value in ("nan", "inf", "-inf"))


def _integer_type(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(kind.precision, 0) if pa.types.is_decimal(kind) else kind


def digits_of(column: str) -> str:
    """Return the name of the column that contains a decimal column's digits as whole numbers."""
    return ours(f"digits:{column}")


def compute_partials(
    parts: GroupParts, keys: Sequence[str], changes: pa.Table, also: Sequence[AggregateColumn]
) -> pa.Table:
    """Compute the retained columns of changes, in no order: keys, parts, sums, and ``also``.

    Args:
        changes: keys, the columns that calls read, `DIFF`, and the columns that ``also`` reads.

    Raises:
        EngineError: a sum leaves 128 bits.
    """
    for column in parts.decimals:
        changes = changes.append_column(digits_of(column), _digits(one_array(changes.column(column))))
    kept = aggregate_groups(changes, [*keys, *parts.values], [*parts.sums, *also], in_order=False)
    if not parts.real_sums:
        return kept
    kept = kept.append_column(LIMB, pa.nulls(kept.num_rows, pa.int16()))
    names = [*keys, *parts.parts, *(column.name for column in parts.added), *(c.name for c in also)]
    tables = [_fill_columns(kept, names, kept.schema, parts)]
    for real in parts.real_sums:
        limbs = _limbs_of(real, keys, changes, also)
        tables.append(_fill_columns(limbs, names, kept.schema, parts))
    return one_table(tables)


def add_partials(
    parts: GroupParts, keys: Sequence[str], kept: pa.Table, also: Sequence[AggregateColumn] = ()
) -> pa.Table:
    """Add up retained rows so that each combination of parts has one row, in no order.

    The result includes combinations whose sums are all 0.
    """
    sums = [
        AggregateColumn(
            column.name,
            f"CAST(sum(CAST({quote_identifier(column.name)} AS HUGEINT)) AS {duckdb_type(column.type)})",
            column.type,
        )
        for column in parts.added
    ]
    return aggregate_groups(kept, [*keys, *parts.parts], [*sums, *also], in_order=False)


def is_zero(parts: GroupParts, kept: pa.Table | pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return a mask of the retained rows whose sums are all 0."""
    nothing = np.ones(kept.num_rows, dtype=np.bool_)
    for added in parts.added:
        column = kept.column(added.name)
        zero = pc.equal(column, pa.scalar(0, column.type))
        nothing &= zero.to_numpy(zero_copy_only=False) if isinstance(zero, pa.Array) else zero.to_numpy()
    return nothing


def results_of(
    parts: GroupParts, kept: pa.Table, groups: int
) -> tuple[npt.NDArray[np.int64], dict[str, pa.Array]]:
    """Compute each group's row count and its aggregates by name.

    The aggregates of a group without rows are NULLs and zeros.

    Args:
        kept: retained rows of all groups, numbered by `GROUP` from 0 to ``groups``. Several rows may
            have equal parts only where there are no parts.

    Raises:
        EngineError: an aggregate fails (for example, a sum overflows).
    """
    plain = kept.filter(kept.column(LIMB).is_null()) if parts.real_sums else kept
    special = [name for real in parts.real_sums for name in real.counts]
    counted = [
        AggregateColumn(name, f"CAST(sum({quote_identifier(name)}) AS BIGINT)", pa.int64())
        for name in dict.fromkeys([ROWS, *special])
    ]
    totals = _align_to_groups(plain, [*counted, *parts.totals], groups)
    results = {column.name: one_array(totals.column(column.name)) for column in parts.totals}
    if parts.chosen:
        there = plain.filter(pc.greater(plain.column(ROWS), 0))
        chosen = _align_to_groups(there, parts.chosen, groups)
        for column in parts.chosen:
            values = one_array(chosen.column(column.name))
            results[column.name] = pc.fill_null(values, 0) if column.name in parts.counted else values
    sums = [_real_sums(real, kept, totals, groups) for real in parts.real_sums]
    for real in parts.reals:
        numbers = _numbers(totals, parts.real_sums[real.of].numbers)
        with np.errstate(all="ignore"):
            values = sums[real.of] / numbers if real.is_mean else sums[real.of]
        results[real.name] = pa.array(values, pa.float64(), mask=numbers <= 0)
    return _numbers(totals, ROWS), results


def _align_to_groups(rows: pa.Table, aggregates: Sequence[AggregateColumn], groups: int) -> pa.Table:
    """Aggregate by group: one row per group, in order; NULLs for a group without rows."""
    made = aggregate_groups(rows, [GROUP], aggregates, in_order=False)
    places = np.full(groups, -1, dtype=np.int64)
    places[made.column(GROUP).to_numpy()] = np.arange(made.num_rows)
    return made.take(pa.array(places, mask=places < 0))


def _numbers(totals: pa.Table, name: str) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = pc.fill_null(totals.column(name), 0).to_numpy()
    return numbers


def _digits(column: pa.Array) -> pa.Array:
    """Convert decimals to whole numbers with the same digits."""
    return pa.Array.from_buffers(_WHOLE, len(column), column.buffers(), offset=column.offset)


def _fill_columns(rows: pa.Table, names: Sequence[str], schema: pa.Schema, parts: GroupParts) -> pa.Table:
    """Return the table with columns of these names; fill missing ones with zeros or NULLs."""
    zeros = {column.name: column.type for column in parts.added}
    columns = []
    for name in names:
        if name in rows.column_names:
            column = rows.column(name)
            kind = schema.field(name).type if name in schema.names else column.type
            columns.append(column if column.type == kind else column.cast(kind))
        elif name in zeros:
            columns.append(pa.repeat(pa.scalar(0, zeros[name]), rows.num_rows))
        else:
            columns.append(pa.nulls(rows.num_rows, schema.field(name).type))
    return pa.table(columns, names=list(names))


# floating numbers


def _limbs_of(
    real: FloatSum, keys: Sequence[str], changes: pa.Table, also: Sequence[AggregateColumn]
) -> pa.Table:
    """Compute keys, `LIMB`, and the sums of the column's numbers in each limb."""
    values = changes.column(real.column).cast(pa.float64())
    wanted = pc.fill_null(pc.is_finite(values), False)
    if real.filter is not None:
        wanted = pc.and_(wanted, pc.fill_null(changes.column(real.filter), False))
    rows = changes.filter(wanted)
    fractions, exponents = np.frexp(values.filter(wanted).to_numpy())
    mantissas = np.ldexp(fractions, _MANTISSA_BITS).astype(np.int64)
    places = exponents.astype(np.int64) - _MANTISSA_BITS
    limbs = np.floor_divide(places, _LIMB_BITS)
    powers = np.int64(1) << (places - limbs * _LIMB_BITS)
    there = np.flatnonzero(mantissas)
    rows = rows.append_column(LIMB, pa.array(limbs.astype(np.int16)))
    rows = rows.append_column(_MANTISSA, pa.array(mantissas)).append_column(_POWER, pa.array(powers))
    number = f"CAST({quote_identifier(_MANTISSA)} AS HUGEINT) * {quote_identifier(_POWER)} * {_DIFFS}"
    total = AggregateColumn(real.limbs.name, f"CAST(sum({number}) AS {duckdb_type(_WHOLE)})", _WHOLE)
    return aggregate_groups(rows.take(pa.array(there)), [*keys, LIMB], [total, *also], in_order=False)


_MANTISSA, _POWER = ours("mantissa"), ours("power")


def _real_sums(real: FloatSum, kept: pa.Table, totals: pa.Table, groups: int) -> npt.NDArray[np.float64]:
    """Compute the groups' sums, each rounded once: float64[groups].

    Cost: a Python integer per limb of a group.
    """
    sums = np.zeros(groups, dtype=np.float64)
    rows = kept.filter(kept.column(LIMB).is_valid())
    numbers = rows.column(GROUP).to_numpy()
    order = np.argsort(numbers, kind="stable")
    limbs = rows.column(LIMB).to_numpy()[order].tolist()
    values = one_array(rows.column(real.limbs.name)).take(pa.array(order)).to_pylist()
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1)).tolist()
    for start, stop in pairwise([*starts, len(order)]):
        least = min(limbs[start:stop])
        whole = sum(
            int(value) << _LIMB_BITS * (limb - least)
            for value, limb in zip(values[start:stop], limbs[start:stop], strict=True)
        )
        sums[numbers[order[start]]] = _round_scaled(whole, _LIMB_BITS * least)
    highest, lowest = _numbers(totals, real.highest) > 0, _numbers(totals, real.lowest) > 0
    sums[highest], sums[lowest] = np.inf, -np.inf
    sums[(highest & lowest) | (_numbers(totals, real.nans) > 0)] = np.nan
    return sums


def _round_scaled(whole: int, power: int) -> float:
    """Compute ``whole`` times 2 to the given power, rounded once; infinite on overflow.

    >>> _round_scaled(3, -1), _round_scaled(2**53 + 1, 0), _round_scaled(-1, 1024)
    (1.5, 9007199254740992.0, -inf)
    """
    try:
        return float(whole << power) if power >= 0 else whole / (1 << -power)
    except OverflowError:
        return float("inf") if whole > 0 else float("-inf")


# Groups of one row, told by hashes: what grouping makes of them, without grouping.
#
# A row of whose hash there is no other one is a group of its own, and of one row each aggregate is plain
# text over its columns (`AggregateColumn.alone`). Where most rows are such, only the others are grouped:
# looking for them takes a twentieth of what grouping them would.

Rows = npt.NDArray[np.int64]

MAX_SHARED_RATIO = 0.5
"""Of the rows: where more are not alone, all are grouped."""


def aggregate_by_hash(
    rows: pa.RecordBatch,
    keys: Sequence[str],
    aggregates: Sequence[AggregateColumn],
    hashes: Slots,
    *,
    in_order: bool = True,
) -> pa.Table:
    """Aggregate rows by key: first the groups of one row, then the other groups.

    The groups and their aggregates are those of `kernel.aggregate.aggregate_groups`.

    Args:
        hashes: int64[n], equal for rows with equal keys; rows with different keys may share a hash.
        in_order: sort each of the two parts by the first rows of its groups. False: groups of one row
            are in the order of their hashes, which is the order of runs.
    """
    order = _order(hashes) if all(column.alone is not None for column in aggregates) else None
    if order is None:
        return aggregate_groups(pa.Table.from_batches([rows]), keys, aggregates, in_order=in_order)
    sorted_hashes = hashes[order]
    differ = np.ones(len(order) + 1, dtype=np.bool_)
    differ[1:-1] = sorted_hashes[1:] != sorted_hashes[:-1]
    is_alone = differ[1:] & differ[:-1]
    if np.count_nonzero(is_alone) < len(order) * (1 - MAX_SHARED_RATIO):
        return aggregate_groups(pa.Table.from_batches([rows]), keys, aggregates, in_order=in_order)
    if in_order:
        by_row = np.empty(len(order), dtype=np.bool_)
        by_row[order] = is_alone
        order, is_alone = np.arange(len(order)), by_row
    if in_order and is_alone.all():
        return _group_each_row(rows, keys, aggregates)
    made = _group_each_row(take_rows(rows, order[is_alone]), keys, aggregates)
    if is_alone.all():
        return made
    others = pa.Table.from_batches([take_rows(rows, order[~is_alone])])
    return _concat_tables(made, aggregate_groups(others, keys, aggregates, in_order=in_order))


def _order(hashes: Slots) -> Rows | None:
    """Return the rows' order by hash, or None if most rows share their hash with a neighbour.

    Rows with many equal neighbours come from several runs, which are sorted by hash.
    """
    if np.count_nonzero(hashes[1:] == hashes[:-1]) > len(hashes) * MAX_SHARED_RATIO:
        return None
    return order_of(hashes)


def _group_each_row(
    rows: pa.RecordBatch, keys: Sequence[str], aggregates: Sequence[AggregateColumn]
) -> pa.Table:
    """Return every row as a group of its own; unchanged columns bypass DuckDB."""
    schema = rows.schema
    texts = {name: key_sql(name, schema.field(name).type) for name in keys}
    types = {name: schema.field(name).type for name in keys}
    for column in aggregates:
        assert column.alone is not None
        texts[column.name], types[column.name] = column.alone, column.type
    there = {quote_identifier(field.name): field for field in schema}
    same = {
        name: there[text].name
        for name, text in texts.items()
        if text in there and there[text].type == types[name]
    }
    asked = {name: text for name, text in texts.items() if name not in same}
    columns = {name: rows.column(column) for name, column in same.items()}
    if asked:
        made = evaluate_each(pa.Table.from_batches([rows]), asked, [types[name] for name in asked])
        columns |= {name: made.column(name) for name in asked}
    return pa.table({name: columns[name] for name in texts})


def _concat_tables(first: pa.Table, second: pa.Table) -> pa.Table:
    """Concatenate two tables; a column may be wide in one and narrow in the other."""
    pairs = zip(first.columns, second.columns, strict=True)
    return pa.table([concat_arrays([one_array(a), one_array(b)]) for a, b in pairs], names=first.column_names)
