"""Records of Kafka's topics as rows in this process: of each what Spark makes of it, or nothing.

Avro and Protobuf are decoded as tasks do. Of JSON, CSV and texts those records are left out of which it is
not certain here what Spark reads (see `files.first_rows`); what only Spark knows is refused by name. Where
records change rows (`topic_changes`), one may be of two rows, or of none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.cli.why.said_changes import as_changes
from watersmeet.cli.why.topic_changes import Changes, OfRecord, decoded, events, upserts
from watersmeet.engine.records.decoders import decoder_of, registry_of
from watersmeet.engine.records.decoding import VALUE, Decoding
from watersmeet.engine.spark.sources.files.first_found import Row, refused
from watersmeet.engine.spark.sources.files.first_rows import csv_record, json_record
from watersmeet.engine.spark.sources.files.first_values import Unsure
from watersmeet.engine.values import arrow_type_of, to_table
from watersmeet.names import DIFF, PARTITION
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import DEBEZIUM, UPSERT
from watersmeet.spec.options.kafka import JSON, RAW, metadata_of, parser_of, records_of
from watersmeet.spec.options.records import FORMATS as WITH_SCHEMA
from watersmeet.spec.options.records import HEADER
from watersmeet.types import sql_type as sql

_PATIENCE_S = 5.0
"""How long a registry is asked again."""
_SHOWN = 200
_HEAD = 5

Rows = tuple[pa.Table, npt.NDArray[np.int64]]
"""Columns that values fill, with `PARTITION` and `DIFF`, and which records they are of."""


UNCOUNTED = -1


@dataclass(frozen=True)
class Taken:
    """``rows``: the declared columns, `PARTITION`, `DIFF`; ``records``: which of the records each is of,
    rising; ``left_out``: those of which it is not certain, as texts, by their numbers; ``counted``: per
    record how many rows a tick that reads it counts (`UNCOUNTED`: that is not known)."""

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
                raise refused(source, f"how {wanted} is read as {column.type}, only Spark knows")
        self._of_record: OfRecord | None = None
        if self._format not in WITH_SCHEMA:
            self._of_record = self._reader(time_zone, needed)
        else:
            registry = registry_of(source)
            if registry is not None:  # a record of a schema that is not there was waited for
                registry = replace(registry, patience_s=_PATIENCE_S, unknown_is_broken=True)
            names = tuple(column.name for column in self._values)
            self._decoding = Decoding(decoder_of(source, registry), names, "broken")

    def __call__(
        self,
        topic: str,
        partition: int,
        offsets: pa.Array,
        keys: pa.Array,
        values: pa.Array,
        timestamps: pa.Array,
    ) -> Taken:
        """The rows of records of a partition; ``timestamps``: in ms.

        Raises:
            EngineError: a schema registry does not answer.
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
                array, is_read = _column(beside[wanted].take(pa.array(records)), wanted, column)
                arrays[column.name] = array
                is_known &= is_read
        names = [*(column.name for column in self._source.columns), PARTITION, DIFF]
        table = pa.table([arrays[name] for name in names], names=names)
        table, says = as_changes(self._source, table, self._zone)
        is_known &= says
        for record in records[~is_known].tolist():
            left_out[record] = _shown((values if values[record].is_valid else keys)[record].as_py())
        is_whole = ~np.isin(records, list(left_out))  # and not one of two rows
        table, records = table.filter(pa.array(is_whole)), records[is_whole]
        counts = self._counted(table, records, left_out, len(offsets))
        counts[skipped] = 1
        return Taken(table, records, left_out, counts)

    def _counted(
        self, rows: pa.Table, records: npt.NDArray[np.int64], left_out: Collection[int], count: int
    ) -> npt.NDArray[np.int64]:
        """As ingest counts: a row as often as it comes or goes, and a broken record once."""
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
            return self._decoded(values, left_out)
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
            except Unsure:
                left_out[number] = _shown(key if value is None else value)
        return to_table(self._values, rows, diffs), np.array(records, dtype=np.int64)

    def _decoded(self, values: pa.Array, left_out: dict[int, str]) -> Rows:
        decoded = self._decoding.decoded(pa.record_batch([values], names=[VALUE]))
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
                raise Unsure
            return [(read(decoded(value[_HEAD:] if has_header else value)), 1)]

        return of_value


_WHOLE = (sql.INT, sql.BIGINT)
_BESIDE = {
    "key": (sql.STRING, sql.BINARY),
    "topic": (sql.STRING,),
    "partition": _WHOLE,
    "offset": (sql.BIGINT,),
    "timestamp": (sql.TIMESTAMP,),
}


def _raw(source: Source, values: list[Column]) -> Callable[[bytes | None], Row]:
    if len(values) > 1 or any(column.type not in (sql.STRING, sql.BINARY) for column in values):
        raise refused(source, "how its values are read, only Spark knows")

    def of_value(value: bytes | None) -> Row:
        return {
            column.name: value if value is None or column.type == sql.BINARY else decoded(value)
            for column in values
        }

    return of_value


def _column(array: pa.Array, wanted: str, column: Column) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """What is beside records as a column, and of which records it is certain."""
    kind, is_read = arrow_type_of(column), np.ones(len(array), np.bool_)
    if wanted == "timestamp":
        return pc.multiply(array, 1000).cast(kind), array.is_valid().to_numpy(zero_copy_only=False)
    if wanted == "key" and column.type == sql.STRING:
        texts: list[str | None] = []
        for number, value in enumerate(array.to_pylist()):
            try:
                texts.append(None if value is None else decoded(value))
            except Unsure:
                texts.append(None)
                is_read[number] = False
        return pa.array(texts, kind), is_read
    return array.cast(kind), is_read


def _shown(value: bytes | None) -> str:
    return "" if value is None else value[: 4 * _SHOWN].decode(errors="replace")[:_SHOWN]
