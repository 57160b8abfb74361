"""Records of files and of Kafka's topics as rows in this process: of each what Spark makes of it, or nothing.

Avro and Protobuf are decoded as tasks do. Of JSON, CSV and texts those records are left out of which it is
not certain here what Spark reads (see `files.first_rows`); what only Spark knows is refused by name. Records
that change rows (``upsert-json``, ``debezium-json``) are of the rows that go and come, as `sources.keyed` and
`sources.debezium` have Spark read them: one may be of two rows, or of none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import Mask
from watersmeet.names import DIFF, PARTITION
from watersmeet.runtime.files.first_rows import (
    Row,
    UncertainValue,
    convert_counted_time,
    csv_record,
    json_object,
    json_readers,
    json_record,
    not_previewed_error,
    read_fields,
    text_reader,
)
from watersmeet.runtime.files.time_patterns import FORMATS, TimeFormats
from watersmeet.runtime.local.evaluate import evaluate_column
from watersmeet.runtime.records.decoding import VALUE, Decoding, build_decoder, build_registry
from watersmeet.runtime.values import arrow_type_of, to_table
from watersmeet.spec.change_kinds import PrimaryKey
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import DEBEZIUM, UPSERT, diff_of
from watersmeet.spec.options.debezium import (
    CLOCKS,
    MARKS,
    NAMES_OF_DAYS,
    NAMES_OF_UNITS,
    event_fields,
    placeholders,
    reads_decimal_texts,
    skips_truncate,
    timestamps_unit,
)
from watersmeet.spec.options.kafka import JSON, RAW, key_format, metadata_of, parser_of, records_of
from watersmeet.spec.options.records import FORMATS as WITH_SCHEMA
from watersmeet.spec.options.records import HEADER
from watersmeet.spec.records.changes import columns_of_deletes
from watersmeet.spec.records.text_records import DAYS, TimeUnit
from watersmeet.types import sql_type as sql
from watersmeet.why.rows import Numbers


def as_changes(source: Source, rows: pa.Table, zone: str) -> tuple[pa.Table, Mask]:
    """Set `DIFF` in the rows to what their records say.

    As in a run, a deleted row of a table with a primary key has only the columns that identify the
    change; the others are NULL.

    Args:
        rows: Rows with the declared columns and `DIFF` according to the format alone.
        zone: Time zone in which missing columns are computed.

    Returns:
        The rows, and a mask of those whose change is valid; the others are broken.

    Raises:
        EngineError: Only Spark can compute the columns.
    """
    diffs: Numbers = rows.column(DIFF).to_numpy().astype(np.int64)
    says: Mask = np.ones(len(diffs), dtype=np.bool_)
    change, key = source.change_column, source.primary_key
    if change is not None:
        told: dict[Any, int | None] = {}
        values = evaluate_column(source, change.column, rows, zone).to_pylist()
        for value in set(values):
            told[value] = diff_of(change, value)
        says &= np.array([told[value] is not None for value in values], dtype=np.bool_)
        diffs = np.array([told[value] or 0 for value in values], dtype=np.int64)
        rows = rows.set_column(rows.schema.get_field_index(DIFF), DIFF, pa.array(diffs))
    if key is None:
        return rows, says
    for name in key.columns:
        says &= ~_is_null(evaluate_column(source, name, rows, zone))
    goes, of_deletes = diffs < 0, columns_of_deletes(source)
    if key.sequence is not None:
        says &= (diffs <= 0) | ~_is_null(evaluate_column(source, key.sequence, rows, zone))
    if goes.any():
        for column in source.row_columns:
            if column.name not in of_deletes:
                at, values = rows.schema.get_field_index(column.name), rows.column(column.name)
                kept = pa.compute.if_else(pa.array(goes), pa.scalar(None, values.type), values)
                rows = rows.set_column(at, column.name, kept)
    return rows, says


def _is_null(values: pa.ChunkedArray) -> Mask:
    missing: Mask = values.is_null().to_numpy()
    return missing


Changes = Sequence[tuple[Row, int]]
"""Rows, and how often each comes; below zero: goes."""

OfRecord = Callable[[bytes | None, bytes | None], Changes | None]
"""Of a record's key and value; None: it says nothing of rows, and is counted. It raises `UncertainValue`."""

Readers = Mapping[str, Callable[[Any], Any] | None]

_MOST = 2**63 - 1 - TimeUnit.NANOS.per_second
"""What is nearer to the bounds of a BIGINT, or beyond, is not certain here."""
_WHOLE = re.compile(r"-?[0-9]+")


def decode_text(value: bytes) -> str:
    """Decode bytes as UTF-8 text.

    Raises:
        UncertainValue: The bytes are not valid UTF-8.
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UncertainValue from None


# upsert-json


def upserts(
    source: Source,
    values: Sequence[Column],
    options: Mapping[str, str],
    time_zone: str,
    needed: frozenset[str],
) -> OfRecord:
    """Create the reader of ``upsert-json`` records.

    Args:
        values: Columns in keys and values.
        options: Parser options, with names in lower case.
        needed: Columns that must exist.

    Raises:
        EngineError: Only Spark can read the records.
    """
    key = source.primary_key
    assert key is not None
    readers = json_readers(source, values, options, time_zone, needed | {*key.columns})
    of_key = _key_reader(source, key, readers, time_zone)

    def read(key_bytes: bytes | None, value: bytes | None) -> Changes:
        told = {} if key_bytes is None else of_key(decode_text(key_bytes))
        row = (
            dict.fromkeys(readers) if value is None else read_fields(json_object(decode_text(value)), readers)
        )
        for name in key.columns:
            own, other = row[name], told.get(name)
            if key_bytes is not None and own is not None and own != other:
                raise UncertainValue
            row[name] = own if other is None else other
        return [(row, -1 if value is None else 1)]

    return read


def _key_reader(
    source: Source, key: PrimaryKey, readers: Readers, time_zone: str
) -> Callable[[str], Mapping[str, Any]]:
    if key_format(source.options) == RAW:
        (name,) = key.columns
        (column,) = (own for own in source.columns if own.name == name)
        read = text_reader(source, column, TimeFormats(time_zone))
        return lambda text: {name: read(text)}
    own = {name: readers[name] for name in key.columns}
    return lambda text: read_fields(json_object(text), own)


# debezium-json


def events(source: Source, options: Mapping[str, str], time_zone: str, needed: frozenset[str]) -> OfRecord:
    """Create the reader of ``debezium-json`` records; a record without a value is no change.

    Args:
        options: Parser options, with names in lower case.
        needed: Columns that must exist.

    Raises:
        EngineError: Only Spark can read the records.
    """
    key = source.primary_key
    keys = () if key is None else key.columns
    fields = event_fields(source)
    usual = timestamps_unit(source.options)
    by_unit = {
        unit: _event_readers(source, options, time_zone, (needed | {*keys}) - {*fields}, unit)
        for unit in {usual, *TimeUnit}
    }
    kinds = {column.name: column.type for column in source.columns}

    def read(key_bytes: bytes | None, value: bytes | None) -> Changes | None:
        if value is None:
            return []
        whole = json_object(decode_text(value))
        event = _payload_of(whole, ("before", "after", "op"))
        readers = _as_described(by_unit, usual, kinds, _names_of_types(whole))
        before, after = (_part(event.get(name), readers) for name in ("before", "after"))
        if _is_skipped(event, source):
            return None
        if after is not None and any(_is_left_out(own, kinds[name]) for name, own in after.items()):
            raise UncertainValue
        told_beside = {name: _of_event(event, path, kinds[name]) for name, path in fields.items()}
        after = None if after is None else after | told_beside
        if key is None:
            return _by_row(event.get("op"), before, after)

        def old() -> Row:
            told: Row = {} if before is None else before
            row = {name: told.get(name) for name in key.columns}
            if None in row.values() and key_bytes is not None:
                of_record = _payload_of(json_object(decode_text(key_bytes)), key.columns)
                of_record = read_fields(of_record, {name: readers[name] for name in key.columns})
                row = {name: of_record[name] if own is None else own for name, own in row.items()}
            return row

        return _by_key(key, event.get("op"), before, after, old, dict.fromkeys(readers) | told_beside)

    return read


def _event_readers(
    source: Source,
    options: Mapping[str, str],
    time_zone: str,
    needed: frozenset[str],
    unit: TimeUnit | None,
) -> Readers:
    for name in options:
        if name in FORMATS:
            raise not_previewed_error(
                source, f"what the option '{name}' means for {DEBEZIUM}, only Spark knows"
            )
    columns = [column for column in source.columns if column.name not in event_fields(source)]
    readers = dict(json_readers(source, columns, options, time_zone, needed))
    for column in columns:
        read = readers[column.name]
        if column.type in sql.TIMES:
            readers[column.name] = _time_reader(column, unit, time_zone, read)
        elif column.type.is_decimal and reads_decimal_texts(source.options):
            readers[column.name] = _either(read, text_reader(source, column, TimeFormats(time_zone)))
    return readers


def _names_of_types(event: Mapping[str, Any]) -> Mapping[str, str | None] | None:
    """Return what a record's schema calls the types of columns; None: it has no schema."""
    try:
        parts = (event.get("schema") or {}).get("fields") or []
        row = next((part.get("fields") for part in parts if part.get("field") == "after"), None)
        return None if row is None else {own["field"]: own.get("name") for own in row}
    except (AttributeError, TypeError, KeyError):
        raise UncertainValue from None


def _as_described(
    by_unit: Mapping[TimeUnit | None, Readers],
    usual: TimeUnit | None,
    kinds: Mapping[str, sql.SqlType],
    names: Mapping[str, str | None] | None,
) -> Readers:
    """Return the readers of a record whose schema has these type names.

    The readers of DECIMAL columns raise `UncertainValue` for texts: the meaning of DECIMAL bytes is not
    certain.
    """
    if names is None:
        return by_unit[usual]
    readers = dict(by_unit[usual])
    for column, read in by_unit[usual].items():
        name, kind = names.get(column), kinds[column]
        unit = next((unit for unit, own in NAMES_OF_UNITS.items() if name in own), None)
        if kind.is_decimal:
            readers[column] = _unless(read, str)
        elif kind in sql.TIMES and (unit is not None if kind == sql.DATE else name in NAMES_OF_DAYS):
            readers[column] = _unless(read, int)
        elif kind in sql.TIMES and unit is not None:
            readers[column] = by_unit[unit][column]
    return readers


def _unless(read: Any, uncertain: type) -> Callable[[Any], Any]:
    def certain(value: Any) -> Any:
        if isinstance(value, uncertain):
            raise UncertainValue
        return read(value)

    return certain


def _either(read: Any, of_text: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda value: of_text(value) if isinstance(value, str) else read(value)


def _time_reader(column: Column, unit: TimeUnit | None, time_zone: str, of_text: Any) -> Callable[[Any], Any]:
    """Create the reader of times: numbers of days or fractions of seconds since 1970, or texts."""

    def read(value: Any) -> Any:
        if isinstance(value, str) and not _WHOLE.fullmatch(value):
            return of_text(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise UncertainValue
        if column.type == sql.DATE:
            if value not in DAYS:
                raise UncertainValue
            return date(1970, 1, 1) + timedelta(days=value)
        if unit is None or not -_MOST <= value <= _MOST:
            raise UncertainValue
        return convert_counted_time(value, unit)

    return read


def _payload_of(event: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Return an event without its schema.

    Raises:
        UncertainValue: The event also has fields outside of its payload.
    """
    if event.get("payload") is None:
        return event
    if not isinstance(event["payload"], dict) or any(event.get(name) is not None for name in names):
        raise UncertainValue
    payload: Mapping[str, Any] = event["payload"]
    return payload


def _is_skipped(event: Mapping[str, Any], source: Source) -> bool:
    """See `sources.debezium`: messages of the log, heartbeats, markers of transactions, truncations."""
    op = event.get("op")
    if op is not None:
        return op == "m" or (op == "t" and skips_truncate(source.options))
    if any(event.get(name) is not None for name in ("before", "after")):
        return False
    is_heartbeat = "ts_ms" in event and event.keys() <= {*CLOCKS}
    return is_heartbeat or (event.get("status") in MARKS and {"id", "event_count"} <= event.keys())


def _of_event(event: Mapping[str, Any], path: str, kind: sql.SqlType) -> Any:
    """Return a field of the event, for a column of this type."""
    value: Any = event
    for name in path.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise UncertainValue
        value = value.get(name)
    if value is None or (isinstance(value, str) and kind == sql.STRING):
        return value
    if kind == sql.STRING or not isinstance(value, int) or isinstance(value, bool):
        raise UncertainValue
    if not -(2 ** (bits := sql.INTEGER_BITS[kind.name] - 1)) <= value < 2**bits:
        raise UncertainValue
    return value


def _part(value: Any, readers: Readers) -> Row | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise UncertainValue
    return read_fields(value, readers)


def _is_left_out(value: Any, kind: sql.SqlType) -> bool:
    """Return True if the change did not touch a large value, so that the event does not have it."""
    return (list(value.items()) if isinstance(value, dict) else value) in placeholders(kind)


def _by_row(op: Any, before: Row | None, after: Row | None) -> Changes:
    if op in ("c", "r") and after is not None:
        return [(after, 1)]
    if op == "d" and before is not None:
        return [(before, -1)]
    if op == "u" and before is not None and after is not None:
        return [(before, -1), (after, 1)]
    raise UncertainValue


def _by_key(
    key: PrimaryKey,
    op: Any,
    before: Row | None,
    after: Row | None,
    old: Callable[[], Row],
    nothing: Row,
) -> Changes:
    """See `sources.debezium`: a row that gets another key goes with the sequence of the one that comes.

    Args:
        nothing: a row that says no more than the event itself.
    """
    if op in ("c", "r") and after is not None:
        return [(after, 1)]
    if op == "d":
        row = old()
        if None in row.values():
            raise UncertainValue
        return [(nothing | row, -1)]
    if op == "u" and after is not None:
        was = {name: (before or {}).get(name) for name in key.columns}
        if None in was.values() or all(was[name] == after[name] for name in key.columns):
            return [(after, 1)]
        sequence = {} if key.sequence is None else {key.sequence: after[key.sequence]}
        return [(nothing | was | sequence, -1), (after, 1)]
    raise UncertainValue


_PATIENCE_S = 5.0
"""How long a registry is asked again."""
_SHOWN = 200
_HEAD = 5

Rows = tuple[pa.Table, npt.NDArray[np.int64]]
"""Columns that values fill, with `PARTITION` and `DIFF`, and which records they are of."""


UNCOUNTED = -1


@dataclass(frozen=True)
class RecordRows:
    """Rows that records of a source contain.

    Attributes:
        rows: The declared columns, `PARTITION` and `DIFF`.
        records: Number of the record of each row, ascending.
        left_out: Texts of the records whose rows are not certain, by record number.
        counted: Per record, the number of rows that a tick counts that reads it; `UNCOUNTED` if unknown.
    """

    rows: pa.Table
    records: npt.NDArray[np.int64]
    left_out: dict[int, str]
    counted: npt.NDArray[np.int64]


class RecordsAgain:
    """Reads records of a source.

    Args:
        needed: the columns that must be there.

    Raises:
        EngineError: only Spark knows how they are read.
    """

    def __init__(self, source: Source, time_zone: str, needed: frozenset[str]) -> None:
        self._source, self._format, self._zone = source, records_of(source.options), time_zone
        self._metadata = {} if self._format == DEBEZIUM else metadata_of(source)
        self._values = [column for column in source.columns if column.name not in self._metadata]
        for column in source.columns:
            wanted = self._metadata.get(column.name)
            if wanted is not None and column.type not in _BESIDE[wanted]:
                raise not_previewed_error(source, f"how {wanted} is read as {column.type}, only Spark knows")
        self._of_record: OfRecord | None = None
        if self._format not in WITH_SCHEMA:
            self._of_record = self._reader(time_zone, needed)
        else:
            registry = build_registry(source)
            if registry is not None:  # a record of a schema that is not there was waited for
                registry = replace(registry, patience_s=_PATIENCE_S, unknown_is_broken=True)
            names = tuple(column.name for column in self._values)
            self._decoding = Decoding(build_decoder(source, registry), names, "broken")

    def __call__(
        self,
        topic: str,
        partition: int,
        offsets: pa.Array,
        keys: pa.Array,
        values: pa.Array,
        timestamps: pa.Array,
    ) -> RecordRows:
        """Return the rows of the records of a partition.

        Args:
            timestamps: Times of the records in ms.

        Raises:
            EngineError: A schema registry does not answer.
        """
        left_out: dict[int, str] = {}
        skipped: list[int] = []
        rows, records = self._of_values(keys, values, left_out, skipped)
        beside = {
            "topic": pa.array([topic]).take(pa.array(np.zeros(len(offsets), np.int64))),
            "partition": pa.array(np.full(len(offsets), partition, np.int64)),
            "offset": offsets,
            "key": keys,
            "timestamp": timestamps,
        }
        is_known = np.ones(len(records), np.bool_)
        arrays = {name: rows.column(name) for name in rows.column_names}
        for column in self._source.columns:
            wanted = self._metadata.get(column.name)
            if wanted is not None:
                array, is_read = _metadata(beside[wanted].take(pa.array(records)), wanted, column)
                arrays[column.name] = array
                is_known &= is_read
        names = [*(column.name for column in self._source.columns), PARTITION, DIFF]
        table = pa.table([arrays[name] for name in names], names=names)
        table, says = as_changes(self._source, table, self._zone)
        is_known &= says
        for record in records[~is_known].tolist():
            left_out[record] = _head_of((values if values[record].is_valid else keys)[record].as_py())
        is_whole = ~np.isin(records, list(left_out))  # and not one of two rows
        table, records = table.filter(pa.array(is_whole)), records[is_whole]
        counts = self._row_counts(table, records, left_out, len(offsets))
        counts[skipped] = 1
        return RecordRows(table, records, left_out, counts)

    def _row_counts(
        self, rows: pa.Table, records: npt.NDArray[np.int64], left_out: Collection[int], count: int
    ) -> npt.NDArray[np.int64]:
        """Count the rows of each record as ingest does.

        A row counts as often as it is inserted or deleted; a broken record counts once.
        """
        times = np.abs(rows.column(DIFF).to_numpy())
        counted = np.bincount(records, weights=times, minlength=count).astype(np.int64)
        change = self._source.change_column
        is_one = self._format != DEBEZIUM and (change is None or not change.is_diff)
        counted[list(left_out)] = 1 if is_one else UNCOUNTED
        return counted

    def _of_values(
        self, keys: pa.Array, values: pa.Array, left_out: dict[int, str], skipped: list[int]
    ) -> Rows:
        if self._of_record is None:
            return self._decode(values, left_out)
        rows: list[Row] = []
        diffs: list[int] = []
        records: list[int] = []
        for number, (key, value) in enumerate(zip(keys.to_pylist(), values.to_pylist(), strict=True)):
            try:
                changes = self._of_record(key, value)
                if changes is None:
                    skipped.append(number)
                for row, diff in changes or ():
                    rows.append(row)
                    diffs.append(diff)
                    records.append(number)
            except UncertainValue:
                left_out[number] = _head_of(key if value is None else value)
        return to_table(self._values, rows, diffs), np.array(records, dtype=np.int64)

    def _decode(self, values: pa.Array, left_out: dict[int, str]) -> Rows:
        decoded = self._decoding.decode_batch(pa.record_batch([values], names=[VALUE]))
        broken = decoded.column(len(self._values))
        good = broken.is_null()
        records = np.flatnonzero(good.to_numpy(zero_copy_only=False))
        for number in np.flatnonzero(broken.is_valid().to_numpy(zero_copy_only=False)).tolist():
            left_out[number] = broken[number].as_py()[:_SHOWN]
        rows = decoded.filter(good)
        none = to_table((), [{}] * len(records), [1] * len(records))
        arrays = [rows.column(n).cast(arrow_type_of(column)) for n, column in enumerate(self._values)]
        names = [column.name for column in self._values]
        return pa.table([*arrays, *none.columns], names=[*names, *none.column_names]), records

    def _reader(self, time_zone: str, needed: frozenset[str]) -> OfRecord:
        source, values = self._source, self._values
        if self._format == RAW:
            read_raw = _raw(source, values)
            return lambda _, value: [(read_raw(value), 1)]
        prefix = f"{parser_of(self._format)}."
        options = {
            name.removeprefix(prefix).lower(): value
            for name, value in source.options.items()
            if name.startswith(prefix)
        }
        if self._format == UPSERT:
            return upserts(source, values, options, time_zone, needed)
        if self._format == DEBEZIUM:
            return events(source, options, time_zone, needed)
        read = (
            json_record(source, values, options, time_zone, needed)
            if self._format == JSON
            else csv_record(source, values, options, time_zone)
        )
        has_header = HEADER in source.options

        def of_value(_: bytes | None, value: bytes | None) -> Changes:
            if value is None or (has_header and (len(value) < _HEAD or value[:1] != b"\0")):
                raise UncertainValue
            return [(read(decode_text(value[_HEAD:] if has_header else value)), 1)]

        return of_value


_INTEGERS = (sql.INT, sql.BIGINT)
_BESIDE = {
    "key": (sql.STRING, sql.BINARY),
    "topic": (sql.STRING,),
    "partition": _INTEGERS,
    "offset": (sql.BIGINT,),
    "timestamp": (sql.TIMESTAMP,),
}


def _raw(source: Source, values: list[Column]) -> Callable[[bytes | None], Row]:
    if len(values) > 1 or any(column.type not in (sql.STRING, sql.BINARY) for column in values):
        raise not_previewed_error(source, "how its values are read, only Spark knows")

    def of_value(value: bytes | None) -> Row:
        return {
            column.name: value if value is None or column.type == sql.BINARY else decode_text(value)
            for column in values
        }

    return of_value


def _metadata(array: pa.Array, wanted: str, column: Column) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Convert metadata of records to a column, and return it with a mask of the certain values."""
    kind, is_read = arrow_type_of(column), np.ones(len(array), np.bool_)
    if wanted == "timestamp":
        return pc.multiply(array, 1000).cast(kind), array.is_valid().to_numpy(zero_copy_only=False)
    if wanted == "key" and column.type == sql.STRING:
        texts: list[str | None] = []
        for number, value in enumerate(array.to_pylist()):
            try:
                texts.append(None if value is None else decode_text(value))
            except UncertainValue:
                texts.append(None)
                is_read[number] = False
        return pa.array(texts, kind), is_read
    return array.cast(kind), is_read


def _head_of(value: bytes | None) -> str:
    return "" if value is None else value[: 4 * _SHOWN].decode(errors="replace")[:_SHOWN]
