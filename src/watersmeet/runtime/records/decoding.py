"""Decode Kafka's records into the declared columns."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa

from watersmeet.kernel.batches import concat_arrays
from watersmeet.names import ours
from watersmeet.runtime.records.avro import decode_avro
from watersmeet.runtime.records.cursor import BytesCursor
from watersmeet.runtime.records.protobuf import decode_protobuf
from watersmeet.runtime.records.schema_registry import NoSchema, Registry
from watersmeet.runtime.records.values import to_arrow_type
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.kafka import records_of
from watersmeet.spec.options.records import (
    AVRO,
    BROKEN,
    REGISTRY,
    REGISTRY_PASSWORD,
    REGISTRY_UNKNOWN,
    REGISTRY_USER,
    SCHEMA,
    reading_of,
    value_columns,
)
from watersmeet.spec.records.avro import Misfit, fit_avro, parse_avro
from watersmeet.spec.records.reading import Reading
from watersmeet.spec.secrets import Secret

# A task's batches of Kafka's records → the declared columns, and what is wrong with those that are
# broken.
#
# A broken record is told as JSON: why it is broken, and its bytes in base64.

_HEAD = 5
VALUE = ours("value")
NO_VALUE = "it has no value"


class Decoder(Protocol):
    """Decoder of one format for all records of a batch."""

    def __call__(self, cursor: BytesCursor) -> pa.StructArray:
        """Decode the columns; mark records that cannot be read."""
        ...


@dataclass(frozen=True)
class AvroDecoder:
    """Decoder of Avro records of one schema that carry no schema id."""

    reading: Reading

    def __call__(self, cursor: BytesCursor) -> pa.StructArray:
        return decode_avro(cursor, cursor.all(), self.reading)


@dataclass(frozen=True)
class RegistryDecoder:
    """Decoder of Avro records with a schema id: a byte 0, a number of 4 bytes, and the record.

    Args:
        columns: the columns of the result.
        reader: the schema with the defaults of fields, as JSON.
    """

    registry: Registry
    columns: tuple[Column, ...]
    reader: str

    def __call__(self, cursor: BytesCursor) -> pa.StructArray:
        at = cursor.all()
        head = cursor.read_fixed(at, _HEAD)
        cursor.fail(at[cursor.is_good(at) & (head[:, 0] != 0)], "it does not begin with a schema id")
        numbers = np.ascontiguousarray(head[:, 1:]).view(">u4")[:, 0].astype(np.int64)
        good = cursor.is_good(at)
        pieces, rows = [], []
        for number in np.unique(numbers[good]).tolist():
            named = np.flatnonzero(good & (numbers == number))
            try:
                reading = _load_reading(self.registry, number, self.columns, self.reader)
            except NoSchema:
                cursor.fail(at[named], f"the registry has no Avro schema {number}")
            except Misfit as misfit:
                cursor.fail(at[named], f"schema {number}: {misfit}")
            else:
                pieces.append(decode_avro(cursor, at[named], reading))
                rows.append(named)
        type_ = pa.struct([(column.name, to_arrow_type(column.type)) for column in self.columns])
        places = np.zeros(len(at), np.int64)
        there = np.zeros(len(at), np.bool_)
        if rows:
            every = np.concatenate(rows)
            places[every], there[every] = np.arange(len(every)), True
        decoded = concat_arrays(pieces) if pieces else pa.array([], type_)
        taken_rows = decoded.take(pa.array(places, mask=~there))
        columns = [taken_rows.field(n) for n in range(len(type_))]
        return pa.StructArray.from_arrays(columns, fields=list(type_))


@lru_cache(maxsize=4096)
def _load_reading(registry: Registry, number: int, columns: tuple[Column, ...], reader: str) -> Reading:
    return fit_avro(registry.schema(number), columns, parse_avro(reader))


@dataclass(frozen=True)
class ProtobufDecoder:
    """Decoder of Protobuf messages that do not name their type."""

    reading: Reading

    def __call__(self, cursor: BytesCursor) -> pa.StructArray:
        return decode_protobuf(cursor, cursor.all(), self.reading)


@dataclass(frozen=True)
class Decoding:
    """The function of a task.

    Args:
        names: the columns that come out, in order; those that the decoder does not give are in the batches.
        broken: the name of the column that tells broken records; it comes last.
    """

    decoder: Decoder
    names: tuple[str, ...]
    broken: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield self.decode_batch(batch)

    def decode_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        values = batch.column(VALUE)
        cursor = BytesCursor.of(values)
        cursor.fail(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)), NO_VALUE)
        rows = self.decoder(cursor)
        given = {field.name: rows.field(n) for n, field in enumerate(rows.type)}
        arrays = [given[name] if name in given else batch.column(name) for name in self.names]
        return pa.RecordBatch.from_arrays(
            [*arrays, format_broken_records(cursor, values)], names=[*self.names, self.broken]
        )


def format_broken_records(cursor: BytesCursor, values: pa.Array) -> pa.Array:
    """Format per record NULL, or JSON with the error and the bytes in base64."""
    texts: list[str | None] = [None] * len(values)
    for row in np.flatnonzero(cursor.bad).tolist():
        raw = values[row].as_py() or b""
        words = {"why": cursor.reasons[cursor.bad[row]], "base64": base64.b64encode(raw).decode()}
        texts[row] = json.dumps(words, ensure_ascii=False)
    return pa.array(texts, pa.string())


# Which decoder a source's records take, and which registry tells what they are.


def build_decoder(source: Source, registry: Registry | None) -> Decoder:
    """Build the decoder of a source.

    Args:
        registry: the schema registry of the source; None if it has none.
    """
    format_ = records_of(source.options)
    if registry is not None:
        return RegistryDecoder(registry, tuple(value_columns(source)), source.options[SCHEMA])
    reading = reading_of(source, format_)
    return AvroDecoder(reading) if format_ == AVRO else ProtobufDecoder(reading)


def build_registry(source: Source) -> Registry | None:
    """Build the schema registry of a source; return None if it has none."""
    url = source.options.get(REGISTRY)
    if url is None:
        return None
    user, password = (source.options.get(name, "") for name in (REGISTRY_USER, REGISTRY_PASSWORD))
    unknown = source.options.get(REGISTRY_UNKNOWN, "").strip().lower()
    return Registry(url.strip(), user, Secret(password), unknown_is_broken=unknown == BROKEN)
