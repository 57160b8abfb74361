"""Avro's records as columns, against fastavro: random schemas and values, edges, bytes that are no record."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import random
import struct
import time
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from tests.support.columns import column
from watersmeet.runtime.records.avro import decode_avro
from watersmeet.runtime.records.cursor import BytesCursor
from watersmeet.spec.records.avro import BadSchema, Misfit, fit_avro, parse_avro

UTC = dt.UTC
ROWS = 60


def decode_records(schema: Any, types: list[str], records: list[bytes], reader: Any = None):
    """Per record its row, or why it is broken."""
    columns = [column(f["name"], type_) for f, type_ in zip((reader or schema)["fields"], types, strict=True)]
    reading = fit_avro(
        parse_avro(json.dumps(schema)), columns, None if reader is None else parse_avro(json.dumps(reader))
    )
    cursor = BytesCursor.of(pa.array(records, pa.binary()))
    rows = decode_avro(cursor, cursor.all(), reading)
    rows.validate(full=True)
    return [
        cursor.reasons[bad] if bad else row
        for row, bad in zip(rows.to_pylist(), cursor.bad.tolist(), strict=True)
    ]


def encode_record(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def record(*types: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"f{n}", "type": t} for n, t in enumerate(types)],
    }


class Draw:
    """Random types of a schema, with the SQL type and values of each."""

    def __init__(self, rng: random.Random, part: float) -> None:
        self.rng = rng
        self.part = part  # of the fields of records that are declared
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"N{self.names}"

    def type(self, depth: int = 0) -> tuple[Any, str, Any]:
        """Schema, SQL type, and a function that draws values."""
        rng = self.rng
        leaves = [
            lambda: ("boolean", "BOOLEAN", lambda: rng.random() < 0.5),
            lambda: ("int", rng.choice(["INT", "BIGINT", "DECIMAL(10,0)"]), lambda: self.number(32)),
            lambda: ("long", "BIGINT", lambda: self.number(64)),
            lambda: ("double", "DOUBLE", lambda: rng.choice([rng.gauss(0, 1e9), -0.0, math.inf, 5e-324])),
            lambda: ("float", "DOUBLE", lambda: float(np.float32(rng.gauss(0, 10)))),
            lambda: ("string", "STRING", self.text),
            lambda: ("bytes", "BINARY", lambda: rng.randbytes(rng.choice([0, 1, 200]))),
            lambda: ({"type": "fixed", "name": self.name(), "size": 5}, "BINARY", lambda: rng.randbytes(5)),
            lambda: (
                {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]},
                "STRING",
                lambda: rng.choice("ABC"),
            ),
            lambda: (
                {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
                "DECIMAL(24,6)",
                lambda: Decimal(self.number(64)).scaleb(-4),
            ),
            lambda: (
                {"type": "fixed", "name": self.name(), "size": 20, "logicalType": "decimal", "precision": 38},
                "DECIMAL(38,0)",
                lambda: Decimal(rng.choice([-1, 1]) * (10**38 - 1 - rng.randrange(3))),
            ),
            lambda: (
                {"type": "int", "logicalType": "date"},
                "DATE",
                lambda: dt.date(1, 1, 1) + dt.timedelta(rng.randrange(3_652_058)),
            ),
            lambda: (
                {"type": "long", "logicalType": "timestamp-micros"},
                "TIMESTAMP",
                lambda: dt.datetime(1, 1, 2, tzinfo=UTC) + dt.timedelta(microseconds=rng.randrange(10**17)),
            ),
            lambda: (
                {"type": "long", "logicalType": "local-timestamp-millis"},
                "TIMESTAMP_NTZ",
                lambda: dt.datetime(1900, 1, 2) + dt.timedelta(milliseconds=rng.randrange(10**13)),
            ),
        ]
        if self.part < 1:  # texts that are no UUIDs are texts all the same
            leaves.append(
                lambda: (
                    {"type": "string", "logicalType": "uuid"},
                    "STRING",
                    lambda: uuid.UUID(int=rng.getrandbits(128)),
                )
            )
        nested = [self.union, self.record, self.array, self.map]
        return rng.choice(nested)(depth + 1) if depth < 3 and rng.random() < 0.4 else rng.choice(leaves)()

    def number(self, bits: int) -> int:
        edge = 1 << (bits - 1)
        return self.rng.choice(
            [0, -1, edge - 1, -edge, self.rng.randrange(-edge, edge), self.rng.randrange(99)]
        )

    def text(self) -> str:
        return "".join(self.rng.choice("aé漢😀\0") for _ in range(self.rng.choice([0, 1, 7, 100])))

    def union(self, depth: int) -> tuple[Any, str, Any]:
        schema, type_, draw = self.type(depth)
        if isinstance(schema, list):
            return schema, type_, draw
        branches = ["null", schema] if self.rng.random() < 0.5 else [schema, "null"]
        return branches, type_, lambda: None if self.rng.random() < 0.3 else draw()

    def record(self, depth: int) -> tuple[Any, str, Any]:
        drawn = {f"g{n}": self.type(depth) for n in range(self.rng.randrange(1, 4))}
        fields = [{"name": name, "type": schema} for name, (schema, _, _) in drawn.items()]
        kept = [f"{name}: {type_}" for name, (_, type_, _) in drawn.items() if self.rng.random() < self.part]
        kept = kept or [f"g0: {drawn['g0'][1]}"]
        self.rng.shuffle(kept)
        schema = {"type": "record", "name": self.name(), "fields": fields}
        return schema, f"STRUCT<{', '.join(kept)}>", lambda: {name: d() for name, (_, _, d) in drawn.items()}

    def array(self, depth: int) -> tuple[Any, str, Any]:
        schema, type_, draw = self.type(depth)
        return (
            {"type": "array", "items": schema},
            f"ARRAY<{type_}>",
            lambda: [draw() for _ in range(self.rng.choice([0, 1, 3]))],
        )

    def map(self, depth: int) -> tuple[Any, str, Any]:
        schema, type_, draw = self.type(depth)
        return (
            {"type": "map", "values": schema},
            f"MAP<STRING, {type_}>",
            lambda: {self.text(): draw() for _ in range(self.rng.choice([0, 1, 3]))},
        )


def same(found: Any, wanted: Any) -> bool:
    """Rows hold only what is declared, maps as pairs, and UUIDs as texts."""
    if isinstance(wanted, dict) and isinstance(found, list):
        return len(found) == len(wanted) and all(same(value, wanted[key]) for key, value in found)
    if isinstance(wanted, dict):
        return all(same(value, wanted[key]) for key, value in found.items())
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, uuid.UUID):
        return uuid.UUID(found) == wanted  # a damaged one may have other letters
    return str(found) == str(wanted) if isinstance(wanted, float) else found == wanted  # -0.0, NaN


@pytest.mark.parametrize("number", range(40))
def test_random_records(seed, number):
    draw = Draw(random.Random(f"{seed} {number}"), part=1 - number % 2 / 4)
    drawn = [draw.type() for _ in range(draw.rng.randrange(1, 6))]
    schema, types = record(*(each[0] for each in drawn)), [each[1] for each in drawn]
    values = [{f"f{n}": each[2]() for n, each in enumerate(drawn)} for _ in range(ROWS)]
    records = [encode_record(schema, value) for value in values]
    for found, wanted in zip(decode_records(schema, types, records), values, strict=True):
        assert same(found, wanted), (schema, found, wanted)
    # others broken beside them: the good ones are the same
    rng, parsed = draw.rng, fastavro.parse_schema(schema)
    damaged = [_damage_record(rng, each) if n % 2 else each for n, each in enumerate(records)]
    for found, raw in zip(decode_records(schema, types, damaged), damaged, strict=True):
        source = io.BytesIO(raw)
        try:
            value = fastavro.schemaless_reader(source, parsed)
        except Exception:
            value = None
        if value is not None and source.tell() == len(raw):
            assert (isinstance(found, str) and raw not in records) or same(found, value), (schema, raw, found)
        elif draw.part == 1:  # of what is not declared the bytes alone are looked at
            assert isinstance(found, str), (schema, raw, found)


def _damage_record(rng: random.Random, raw: bytes) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return raw[: rng.randrange(len(raw) + 1)]
    if kind == 1:
        return raw + rng.randbytes(rng.randrange(1, 9))
    if kind == 2:
        return rng.randbytes(rng.randrange(30))
    place = rng.randrange(len(raw) + 1)
    return raw[:place] + rng.randbytes(1) + raw[place + 1 :]


def test_special_floats():
    values = [math.nan, -math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308]
    found = decode_records(record("double"), ["DOUBLE"], [struct.pack("<d", value) for value in values])
    assert [str(row["f0"]) for row in found] == [
        "nan",
        "nan",
        "inf",
        "-inf",
        "-0.0",
        "5e-324",
        str(values[-1]),
    ]


@pytest.mark.parametrize(
    ("schema", "type_", "raw", "why"),
    [
        ("int", "INT", b"\x80\x80\x80\x80\x10", "an int has more than 32 bits"),
        ("long", "BIGINT", b"\xff" * 10, "a number is too long"),
        ("long", "BIGINT", b"\x80", "it ends early"),
        ("boolean", "BOOLEAN", b"\x02", "a boolean is neither 0 nor 1"),
        ("string", "STRING", b"\x04\xc3\x28", "a text is not UTF-8"),
        ("string", "STRING", b"\x03", "it ends early"),
        ("string", "STRING", b"\x02ab", "bytes follow its last field: it has another schema"),
        (["null", "int"], "INT", b"\x04", "a union has no such branch"),
        (["null", "int"], "INT", b"\x01\x00", "a union has no such branch"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING", b"\x02", "an enum has no such symbol"),
        (
            {"type": "int", "logicalType": "date"},
            "DATE",
            encode_record("int", 2_932_897),
            "a time is outside",
        ),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            "TIMESTAMP",
            encode_record("long", 2**62),
            "a time is outside",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1},
            "DECIMAL(3,1)",
            encode_record("bytes", b"\x03\xe8"),
            "a number is too large",
        ),
        ({"type": "array", "items": "int"}, "ARRAY<INT>", encode_record("long", 2**40), "a list is longer"),
        ({"type": "map", "values": "int"}, "MAP<STRING, INT>", b"\x04\x02a\x02\x02a\x04\x00", "a key twice"),
    ],
)
def test_what_is_no_record(schema, type_, raw, why):
    (found,) = decode_records(record(schema), [type_], [raw])
    assert isinstance(found, str)
    assert why in found


def test_a_list_in_blocks_with_their_sizes():
    raw = b"\x03\x04\x02\x04\x02\x06\x00"  # -2 items in 2 bytes, then one more
    assert decode_records(record({"type": "array", "items": "int"}), ["ARRAY<INT>"], [raw]) == [
        {"f0": [1, 2, 3]}
    ]


def test_a_uuid_of_bytes_and_nanoseconds():
    one = uuid.UUID(int=2**127 + 5)
    fixed = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    nanos = {"type": "long", "logicalType": "timestamp-nanos"}
    found = decode_records(
        record(fixed, nanos), ["STRING", "TIMESTAMP"], [one.bytes + encode_record("long", -1)]
    )
    assert found == [{"f0": str(one), "f1": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)}]


OLD = {
    "type": "record",
    "name": "O",
    "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}],
}
NEW = {
    "type": "record",
    "name": "O",
    "fields": [
        {"name": "key", "type": "long", "aliases": ["id"]},
        {"name": "more", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
         "default": "\u00ff\u0085"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": -1},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": -1},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["a"]},
        {"name": "in", "type": {"type": "record", "name": "I", "fields": [
            {"name": "n", "type": "int", "default": 7}]}, "default": {}},
    ],
}  # fmt: skip


def test_old_records_have_the_readers_defaults():
    """As fastavro resolves the same two schemas."""
    types = ["BIGINT", "STRING", "DECIMAL(5,2)", "DATE", "TIMESTAMP", "ARRAY<STRING>", "STRUCT<n: INT>"]
    raw = encode_record(OLD, {"id": -3, "gone": "x"})
    wanted = fastavro.schemaless_reader(
        io.BytesIO(raw), fastavro.parse_schema(OLD), fastavro.parse_schema(NEW)
    )
    found = decode_records(OLD, types, [raw, raw[:-1]], NEW)
    # fastavro hands on defaults of logical types as they are written
    logical = {
        "price": Decimal("-1.23"),
        "day": dt.date(1969, 12, 31),
        "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
    }
    assert found == [{**wanted, **logical, "in": {"n": 7}}, "it ends early"]


@pytest.mark.parametrize(
    ("types", "problems"),
    [
        (["INT", "STRING"], ['column "f0" is declared INT, but the schema has long']),
        (
            ["DOUBLE", "BOOLEAN"],
            [
                'column "f0" is declared DOUBLE, but the schema has long',
                'column "f1" is declared BOOLEAN, but the schema has string',
            ],
        ),
        (["BIGINT", "STRING", "INT"], ['column "f2" is not in the schema, which has none']),
    ],
)
def test_columns_that_do_not_fit(types, problems):
    columns = [column(f"f{n}", type_) for n, type_ in enumerate(types)]
    with pytest.raises(Misfit) as caught:
        fit_avro(parse_avro(json.dumps(record("long", ["null", "string"]))), columns)
    assert list(caught.value.problems) == problems


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("{", "it is not JSON"),
        ('{"type": "record", "name": "R"}', "has no fields"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "R"}]}', "contains itself"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "X"}]}', 'no type "X"'),
        ('{"type": "enum", "name": "1"}', "is not a name"),
        ("[[]]", "a union cannot contain a union"),
    ],
)
def test_what_is_no_schema(written, why):
    with pytest.raises(BadSchema, match=why):
        parse_avro(written)


def test_texts_are_looked_at_each_for_itself():
    """Two halves of a letter in two records are no letter."""
    found = decode_records(record("string"), ["STRING"], [b"\x02\xc3", b"\x02\xa9", b"\x04\xc3\xa9"])
    assert found == ["a text is not UTF-8", "a text is not UTF-8", {"f0": "é"}]


@pytest.mark.parametrize("few", [0, 10**9])
@pytest.mark.parametrize("number", range(10))
def test_few_records_and_many_are_read_alike(seed, number, few, monkeypatch):
    """Whether all lists are read item by item, or one list after the other."""
    monkeypatch.setattr("watersmeet.runtime.records.avro.MAX_SEQUENTIAL_RECORDS", few)
    draw = Draw(random.Random(f"lists {seed} {number}"), part=1)
    schema, type_, values = draw.rng.choice([draw.array, draw.map])(1)
    rows = [{"f0": values()} for _ in range(ROWS)]
    records = [encode_record(record(schema), row) for row in rows]
    records += [_damage_record(draw.rng, raw) for raw in records]
    found = decode_records(record(schema), [type_], records)
    for row, wanted in zip(found, rows, strict=False):
        assert same(row, wanted), (schema, row, wanted)
    parsed = fastavro.parse_schema(record(schema))
    for row, raw in zip(found[ROWS:], records[ROWS:], strict=True):
        source = io.BytesIO(raw)
        try:
            value = fastavro.schemaless_reader(source, parsed)
        except Exception:
            value = None
        if value is None or source.tell() < len(raw):
            assert isinstance(row, str), (schema, raw, row)
        elif not isinstance(row, str):
            assert same(row, value), (schema, raw, row)


def test_a_list_of_very_many_items_takes_no_round_of_all_records_each():
    array = {"type": "array", "items": ["null", "string"]}
    value = {"f0": ["a", None] * 50_000}
    before = time.perf_counter()
    assert decode_records(record(array), ["ARRAY<STRING>"], [encode_record(record(array), value)]) == [value]
    assert time.perf_counter() - before < 5  # item by item it took above 20 s


def test_unions_of_several_branches(seed):
    rng = random.Random(f"unions {seed}")
    one = {"type": "record", "name": "One", "fields": [{"name": "a", "type": "int"}]}
    two = {
        "type": "record",
        "name": "Two",
        "fields": [{"name": "b", "type": "string"}, {"name": "a", "type": ["null", "long"]}],
    }
    enum = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}
    schema = record(["int", "null", "long"], [one, "null", two], ["string", enum], ["null"])
    values = [
        {
            "f0": rng.choice([None, 5, -(2**60)]),
            "f1": rng.choice([None, ("One", {"a": 3}), ("Two", {"b": "x", "a": rng.choice([None, 2**50])})]),
            "f2": rng.choice(["text", ("E", "Y")]),
            "f3": None,
        }
        for _ in range(ROWS)
    ]  # fmt: skip
    records = [encode_record(schema, value) for value in values]
    found = decode_records(schema, ["BIGINT", "STRUCT<a: BIGINT>", "STRING", "INT"], records)

    def plain(value: Any) -> Any:
        value = value[1] if isinstance(value, tuple) else value
        return {"a": value["a"]} if isinstance(value, dict) else value

    assert found == [{name: plain(value) for name, value in row.items()} for row in values]


def test_an_enum_without_symbols():
    enum = {"type": "enum", "name": "E", "symbols": []}
    assert decode_records(record(enum), ["STRING"], [b"\x00"]) == ["an enum has no such symbol"]


def test_types_within_types_without_end():
    for text in ("[" * 100_000, '{"type": ' * 100_000 + '"int"' + "}" * 100_000):
        with pytest.raises(BadSchema, match="too many types within types"):
            parse_avro(text)
    for deep in (127, 129):
        text = '{"type": "array", "items": ' * (deep - 1) + '"int"' + "}" * (deep - 1)
        if deep < 128:
            assert parse_avro(text).kind == "array"
        else:
            with pytest.raises(BadSchema, match="too many types within types"):
                parse_avro(text)
