"""Rows as users have them, Arrow, pandas, Polars or mappings, as a table of a source's declared columns.

Columns are looked at as a whole: what is of the declared type already is taken as it is, and what holds the
same values in another form (other widths and units, dictionaries, large strings, zones of times) is cast with
every value checked. Nothing is guessed: another kind of value, a column too many or one that is missing is
refused, and all problems of one table are told together. Only mappings are read value by value (`mapped`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.engine.local.evaluate import value_of
from watersmeet.engine.local.given import unknown_change
from watersmeet.engine.local.mapped import table_of
from watersmeet.errors import EngineError, SpecError, WatersmeetError, near_names, raise_all
from watersmeet.kernel.batches import one_array
from watersmeet.names import DIFF, PARTITION
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import diff_of
from watersmeet.spec.records.changes import columns_of_deletes
from watersmeet.spec.time_zones import UTC
from watersmeet.types.arrow import in_arrow, sql_name
from watersmeet.types.sql_type import TIMESTAMP, TIMESTAMP_NTZ, SqlType

_TAKEN = "an Arrow table or batch, a pandas or Polars DataFrame, a mapping, or a list of mappings"


def rows_of(
    source: Source,
    data: Any,
    *,
    partition: str | None = None,
    diff: int = 1,
    naive_is_utc: bool = True,
    zone: str = UTC,
) -> pa.Table:
    """The rows of ``data``, in their order: the declared columns, `PARTITION` and `DIFF`.

    Args:
        partition: the partition of the source that all of them came in.
        diff: +1: they come; −1: they go. What a column of theirs says counts as well.
        naive_is_utc: TIMESTAMPs that say no zone are taken as UTC's.
        zone: the job's time zone.

    Raises:
        SpecError: it is no table, or its columns are not the declared ones.
        EngineError: a value has no place in its column's type.
        SeveralErrors: all of that.
    """
    table = _as_table(source, data)
    if table is None:
        table, naive_is_utc = _of_mappings(source, data, naive_is_utc), True
    problems: list[WatersmeetError] = _misnamed(source, table.column_names)
    raise_all(problems)
    arrays = []
    for column in source.columns:
        try:
            arrays.append(_converted(source, column, table.column(column.name), naive_is_utc))
        except WatersmeetError as error:
            problems.append(error)
    raise_all(problems)
    count = table.num_rows
    records = pa.table(arrays, names=[column.name for column in source.columns])
    diffs = _diffs(source, records, count, zone) * diff
    if source.primary_key is not None and (diffs < 0).any():
        arrays = _by_key(source, arrays, diffs)
    arrays += [
        pa.chunked_array([pa.repeat(pa.scalar(partition, pa.string()), count)]),
        pa.chunked_array([pa.array(diffs)]),
    ]
    return pa.table(arrays, names=[*(column.name for column in source.columns), PARTITION, DIFF])


def _as_table(source: Source, data: Any) -> pa.Table | None:
    """None: it is none, and may be mappings."""
    try:
        return _arrow(data)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise EngineError(
            f'the rows of "{source.name}" cannot be converted to Arrow: {str(error).splitlines()[0]}',
            code="bad-value",
            hint="give each column values of one type",
        ) from None


def _of_mappings(source: Source, data: Any, naive_is_utc: bool) -> pa.Table:
    if isinstance(data, Mapping):
        data = [data]
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise _no_rows(source, data)
    rows = list(data)
    for row in rows:
        if not isinstance(row, Mapping):
            raise _no_rows(source, row)
    raise_all(_misnamed_rows(source, rows))
    return table_of(source.columns, rows, naive_is_utc=naive_is_utc)


def _arrow(data: Any) -> pa.Table | None:
    """What is a table; None: it is none."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "columns"):
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return pa.table(data)
    return None


def _no_rows(source: Source, given: Any) -> SpecError:
    shown = f"{given!r}"
    return SpecError(
        f'the input of "{source.name}" is {shown if len(shown) < 60 else type(given).__name__}, not rows',
        code="bad-value",
        hint=f"give {_TAKEN}",
    )


def _misnamed(source: Source, names: Sequence[str]) -> list[WatersmeetError]:
    declared = [column.name for column in source.columns]
    there = set(names)
    problems: list[WatersmeetError] = []
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            problems.append(
                SpecError(
                    f'the rows of "{source.name}" have {names.count(name)} columns named "{name}"',
                    code="duplicate-column",
                    hint="rename or remove all but one of them",
                )
            )
        if name not in declared:
            problems.append(_surplus(source, str(name), [name for name in declared if name not in there]))
    problems += [_missing(source, name) for name in declared if name not in there]
    return problems


def _misnamed_rows(source: Source, rows: Sequence[Mapping[str, Any]]) -> list[WatersmeetError]:
    declared = dict.fromkeys(column.name for column in source.columns)
    surplus = dict.fromkeys(name for row in rows for name in row if name not in declared)
    missing = [name for name in declared if any(name not in row for row in rows)]
    return [
        *(_surplus(source, str(name), missing) for name in surplus),
        *(_missing(source, name) for name in missing),
    ]


def _surplus(source: Source, name: str, missing: Sequence[str]) -> SpecError:
    near = near_names(name, missing)
    declared = ", ".join(column.name for column in source.columns)
    return SpecError(
        f'source "{source.name}" has no column "{name}"',
        code="unknown-column",
        hint=near
        if near and near.startswith("did")
        else f"remove the column; the source's columns are {declared}",
    )


def _missing(source: Source, name: str) -> SpecError:
    return SpecError(
        f'the rows of "{source.name}" have no column "{name}"',
        code="missing-column",
        hint="add the column; use NULL where a value is not known",
    )


def _converted(source: Source, column: Column, given: pa.ChunkedArray, naive_is_utc: bool) -> pa.ChunkedArray:
    """The column in its declared type. Of types that have no form here, as it is: nobody computes with it."""
    kind = in_arrow(column.type)
    if kind is None or (given.type == kind and not _is_checked(column.type, given.type)):
        return given
    where = f'column "{column.name}" of "{source.name}"'
    try:
        given = _plain(given)
        if _is_text(given.type):
            given.validate(full=True)  # bytes of a text may be none
    except (pa.ArrowException, NotImplementedError) as error:
        raise EngineError(f"{where}: {str(error).splitlines()[0]}", code="bad-value") from None
    if not _fits(given.type, column.type):
        raise SpecError(
            f"{where} is declared {column.type}, but the given values are {sql_name(given.type)}",
            code="wrong-type",
            hint=_hint(given.type, column.type),
        )
    if not naive_is_utc and _is_zoneless(column.type, given.type) and given.null_count < len(given):
        raise SpecError(
            f"{where} is TIMESTAMP, but its values have no time zone, and the job's time_zone is not UTC",
            code="wrong-type",
            hint="pass times with a zone, such as datetime(…, tzinfo=ZoneInfo('America/New_York')) or"
            " timestamp[us, tz=UTC]; if they are UTC, set time_zone to UTC",
        )
    try:
        return given if given.type == kind else given.cast(kind, safe=True)
    except (pa.ArrowException, ValueError, NotImplementedError) as error:
        raise EngineError(
            f"a value of {where} is not a valid {column.type}: {str(error).splitlines()[0]}", code="bad-value"
        ) from None


def _is_checked(type_: SqlType, given: pa.DataType) -> bool:
    """Whether values of the very type may still be wrong."""
    return _is_text(given) or _is_zoneless(type_, given)


def _is_text(given: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(given) or types.is_large_string(given) or types.is_string_view(given))


def _is_zoneless(type_: SqlType, given: pa.DataType) -> bool:
    """Whether TIMESTAMPs are in it, at any depth, that say no time zone."""
    types = pa.types
    if type_.is_struct and types.is_struct(given):
        inner = zip(given, type_.inner, strict=False)
        return any(_is_zoneless(of, field.type) for field, of in inner)
    if type_.element is not None and hasattr(given, "value_type"):
        return _is_zoneless(type_.element, given.value_type)
    if type_.entry is not None and types.is_map(given):
        key, value = type_.entry
        return _is_zoneless(key, given.key_type) or _is_zoneless(value, given.item_type)
    return type_ == TIMESTAMP and bool(types.is_timestamp(given)) and given.tz is None


def _plain(given: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values themselves, where they are encoded."""
    if pa.types.is_dictionary(given.type):
        kind = given.type.value_type
        if kind in _OF_VIEWS:  # Arrow takes nothing out of dictionaries of views, as Polars has of categories
            kind = _OF_VIEWS[kind]
            given = given.cast(pa.dictionary(given.type.index_type, kind))
        return _plain(given.cast(kind))
    if pa.types.is_run_end_encoded(given.type):
        return _plain(pc.run_end_decode(given))
    return given


_OF_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def _fits(given: pa.DataType, type_: SqlType) -> bool:
    """Whether every value of one can be one of the other: the same kind of value, in whatever form."""
    types = pa.types
    if types.is_null(given):
        return True
    if type_.is_integer:
        return bool(types.is_integer(given))
    if type_.is_decimal:
        return bool(types.is_decimal(given))
    if type_.is_struct:
        return (
            bool(types.is_struct(given))
            and [field.name for field in given] == [field.name for field in type_.fields]
            and all(_fits(of.type, inner) for of, inner in zip(given, type_.inner, strict=True))
        )
    if type_.element is not None:
        lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
        return any(is_one(given) for is_one in lists) and _fits(given.value_type, type_.element)
    if type_.entry is not None:
        key, value = type_.entry
        return bool(types.is_map(given)) and _fits(given.key_type, key) and _fits(given.item_type, value)
    if type_.is_time and type_.name != "DATE":
        return bool(types.is_timestamp(given)) and (type_ != TIMESTAMP_NTZ or given.tz is None)
    return any(is_one(given) for is_one in _PLAIN.get(type_.name, ()))


_PLAIN: Mapping[str, Sequence[Any]] = {
    "BOOLEAN": (pa.types.is_boolean,),
    "FLOAT": (pa.types.is_float16, pa.types.is_float32),
    "DOUBLE": (pa.types.is_floating,),
    "DATE": (pa.types.is_date,),
    "STRING": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "BINARY": (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
    ),
}


def _hint(given: pa.DataType, type_: SqlType) -> str:
    if type_.is_integer and pa.types.is_floating(given):
        return 'use the pandas dtype "Int64": pandas turns whole numbers into floats where some are missing'
    if type_ == TIMESTAMP_NTZ and pa.types.is_timestamp(given):
        return "declare it TIMESTAMP, or remove the time zone of the values: TIMESTAMP_NTZ has none"
    return f"cast the values to {in_arrow(type_)} (Arrow), or declare the column {sql_name(given)}"


def _diffs(source: Source, rows: pa.Table, count: int, zone: str) -> Any:
    """int64[n]: how often each row comes by what it says itself; 1 where it says nothing.

    Raises: EngineError, when that is nothing known.
    """
    change = source.change_column
    if change is None:
        return np.ones(count, dtype=np.int64)
    values = one_array(value_of(source, change.column, rows, zone))
    said = pc.dictionary_encode(values, null_encoding="encode")
    words = said.dictionary.to_pylist()
    diffs = [diff_of(change, word) for word in words]
    if None in diffs:
        raise unknown_change(source, words[diffs.index(None)])
    return np.asarray(diffs, dtype=np.int64)[said.indices.to_numpy(zero_copy_only=False)]


def _by_key(source: Source, arrays: Sequence[pa.ChunkedArray], diffs: Any) -> list[pa.ChunkedArray]:
    """Of what a delete says, what says which row of a primary key goes."""
    stays = pa.chunked_array([pa.array(diffs > 0)])
    named = columns_of_deletes(source)
    return [
        array if column.name in named else pc.if_else(stays, array, pa.scalar(None, array.type))
        for column, array in zip(source.columns, arrays, strict=True)
    ]
