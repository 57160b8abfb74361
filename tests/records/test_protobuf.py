"""Protobuf's records as columns, against Google's own library: random values and bytes, edges, refusals."""

from __future__ import annotations

import datetime as dt
import math
import random
import sys
import time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.columns import column
from tests.support.effort import at_effort
from tests.support.protobuf import classes, descriptors, file_of
from watersmeet.errors import SpecError
from watersmeet.runtime.records.cursor import BytesCursor
from watersmeet.runtime.records.protobuf import decode_protobuf
from watersmeet.spec.records.avro import Misfit
from watersmeet.spec.records.protobuf import BadDescriptor, fit_protobuf, parse_descriptors

ROWS = 80
SCALARS = {
    "double": "DOUBLE", "float": "DOUBLE", "int32": "INT", "sint32": "BIGINT", "sfixed32": "INT",
    "uint32": "BIGINT", "fixed32": "DECIMAL(10,0)", "int64": "BIGINT", "sint64": "BIGINT",
    "sfixed64": "DECIMAL(19,0)", "uint64": "DECIMAL(20,0)", "fixed64": "DECIMAL(38,10)", "bool": "BOOLEAN",
    "string": "STRING", "bytes": "BINARY", ".t.Enum": "STRING",
}  # fmt: skip
INNER = "STRUCT<a: INT, b: ARRAY<STRING>, deep: STRUCT<a: INT>>"


def messages(syntax: str) -> dict[str, list[Any]]:
    fields: list[tuple[Any, ...]] = []
    types: dict[str, str] = {}
    number = 0
    for kind, type_ in SCALARS.items():
        short = kind.removeprefix(".t.").lower()
        for flags in ((), ("optional",), ("repeated",), ("repeated", "unpacked")):
            number += 1
            if number == 30:
                number += 19_970  # keys of three bytes
            name = f"f{number}_{short}"
            if "unpacked" in flags and kind in ("string", "bytes"):
                continue
            fields.append((name, number, kind, *flags))
            types[name] = f"ARRAY<{type_}>" if "repeated" in flags else type_
    for name, kind, type_, *flags in [
        ("m1", ".t.Inner", INNER),
        ("m2", ".t.Inner", f"ARRAY<{INNER}>", "repeated"),
        ("m3", "map:string:int64", "MAP<STRING, BIGINT>"),
        ("m4", "map:int32:.t.Inner", f"MAP<INT, {INNER}>"),
        ("t1", ".google.protobuf.Timestamp", "TIMESTAMP"),
        ("t2", ".google.protobuf.Timestamp", "ARRAY<TIMESTAMP>", "repeated"),
        ("w1", ".google.protobuf.Int64Value", "BIGINT"),
        ("w2", ".google.protobuf.StringValue", "STRING"),
        ("d1", ".google.protobuf.Duration", "STRUCT<seconds: BIGINT, nanos: INT>"),
        ("o1", "int32", "INT", "oneof"),
        ("o2", "string", "STRING", "oneof"),
        ("o3", ".t.Inner", INNER, "oneof"),
        ("x1", "string", "", "oneof"),
        ("x2", ".t.Inner", ""),
    ]:
        number += 1
        fields.append((name, number, kind, *flags))
        if type_:
            types[name] = type_
    inner = [("a", 1, "int32"), ("b", 2, "string", "repeated"), ("deep", 3, ".t.Inner")]
    return {"Enum": ["ZERO", "ONE", "TWO", "MINUS"], "Inner": inner, "Outer": fields}, types


FILES = {
    syntax: (file_of(messages(syntax)[0], syntax=syntax), messages(syntax)[1])
    for syntax in ("proto2", "proto3")
}


def decode_records(file: Any, name: str, types: dict[str, str], records: list[bytes]):
    """Per record its row, or why it is broken."""
    reading = fit_protobuf(
        parse_descriptors(descriptors(file)), f"t.{name}", [column(n, t) for n, t in types.items()]
    )
    cursor = BytesCursor.of(pa.array(records, pa.binary()))
    rows = decode_protobuf(cursor, cursor.all(), reading)
    rows.validate(full=True)
    bad = cursor.bad.tolist()
    return [cursor.reasons[b] if b else row for row, b in zip(rows.to_pylist(), bad, strict=True)]


def value_of(rng: random.Random, kind: str) -> Any:
    if kind in ("double", "float"):
        return rng.choice([0.0, -0.0, 1.5, -2.25, math.inf, math.nan])
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "string":
        return "".join(rng.choice("aé漢😀\0") for _ in range(rng.choice([0, 1, 9, 200])))
    if kind == "bytes":
        return rng.randbytes(rng.choice([0, 1, 9, 200]))
    if kind == ".t.Enum":
        return rng.choice([0, 1, 2, -1])
    bits = 32 if kind.endswith("32") else 64
    unsigned = kind in ("uint32", "uint64", "fixed32", "fixed64")
    least, most = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return rng.choice([0, 1, least, most, rng.randint(least, most)])


def fill_inner(rng: random.Random, inner: Any) -> None:
    inner.SetInParent()
    if rng.random() < 0.5:
        inner.a = value_of(rng, "int32")
    inner.b.extend(value_of(rng, "string") for _ in range(rng.randrange(3)))
    if rng.random() < 0.3:
        fill_inner(rng, inner.deep)


def drawn(rng: random.Random, made: Any, file: Any) -> Any:
    message = made()
    share = rng.choice([0.1, 0.9])
    for field in next(m for m in file.message_type if m.name == "Outer").field:
        if rng.random() > share:
            continue
        name, where = field.name, getattr(message, field.name)
        if name == "m3":
            for _ in range(rng.randrange(4)):
                where[value_of(rng, "string")] = value_of(rng, "int64")
        elif name == "m4":
            for _ in range(rng.randrange(4)):
                fill_inner(rng, where[value_of(rng, "int32")])
        elif name in ("m2", "t2"):
            for _ in range(rng.randrange(4)):
                fill_inner(rng, where.add()) if name == "m2" else fill_time(rng, where.add())
        elif name in ("m1", "o3", "x2"):
            fill_inner(rng, where)
        elif name == "t1":
            fill_time(rng, where)
        elif name == "d1":
            where.seconds, where.nanos = rng.randint(-(2**63), 2**63 - 1), rng.randint(-9, 9)
        elif name in ("w1", "w2"):
            where.value = value_of(rng, "int64" if name == "w1" else "string")
        else:
            kind = {"o1": "int32", "o2": "string", "x1": "string"}.get(name) or _kind(name)
            if field.label == 3:
                where.extend(value_of(rng, kind) for _ in range(rng.choice([0, 1, 5])))
            else:
                setattr(message, name, value_of(rng, kind))
    return message


def _kind(name: str) -> str:
    short = name.partition("_")[2]
    return ".t.Enum" if short == "enum" else short


def fill_time(rng: random.Random, where: Any) -> None:
    where.seconds = rng.choice([0, -62_135_596_800, 253_402_300_799, rng.randint(-(10**10), 10**10)])
    where.nanos = rng.choice([0, 999_999_999, rng.randrange(10**9)])


def build_expected_row(message: Any, types: dict[str, str]) -> dict[str, Any]:
    """What Google's library reads, as rows have it."""
    row: dict[str, Any] = {}
    for name in types:
        field = message.DESCRIPTOR.fields_by_name[name]
        where = getattr(message, name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            is_message = name == "m4"
            row[name] = {key: inner_of(where[key]) if is_message else where[key] for key in where}
        elif field.is_repeated:
            row[name] = [_plain(field, value) for value in where]
        elif field.has_presence and not message.HasField(name):
            row[name] = None
        else:
            row[name] = _plain(field, where)
    return row


def _plain(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name.endswith("Timestamp"):
        start = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        return start + dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if name.endswith("Value"):
        return value.value
    return {"seconds": value.seconds, "nanos": value.nanos} if name.endswith("Duration") else inner_of(value)


def inner_of(value: Any) -> dict[str, Any]:
    has_presence = value.DESCRIPTOR.fields_by_name["a"].has_presence
    a = None if has_presence and not value.HasField("a") else value.a
    deep = None
    if value.HasField("deep"):
        known = not has_presence or value.deep.HasField("a")
        deep = {"a": value.deep.a if known else None}
    return {"a": a, "b": list(value.b), "deep": deep}


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        got = dict(found[name]) if isinstance(value, dict) and isinstance(found[name], list) else found[name]
        if isinstance(value, float) or (isinstance(value, list) and value and isinstance(value[0], float)):
            got, value = str(got), str(value)
        assert got == value, name


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
@pytest.mark.parametrize("number", range(at_effort(quick=1, full=3)))
def test_random_records(seed, syntax, number):
    rng = random.Random(f"{seed} {syntax} {number}")
    file, types = FILES[syntax]
    made = classes(file)["Outer"]
    values = [drawn(rng, made, file) for _ in range(ROWS)]
    records = [value.SerializeToString() for value in values]
    for found, value in zip(decode_records(file, "Outer", types, records), values, strict=True):
        assert isinstance(found, dict), found
        same(found, build_expected_row(value, types))
    # of two behind each other the last counts, and messages within are merged
    pairs = [one + other for one, other in zip(records, reversed(records), strict=True)]
    for found, raw in zip(decode_records(file, "Outer", types, pairs), pairs, strict=True):
        same(found, build_expected_row(made.FromString(raw), types))
    threes = [a + b + c for a, b, c in zip(records, records[1:], records[2:], strict=False)]
    for found, raw in zip(decode_records(file, "Outer", types, threes), threes, strict=True):
        same(found, build_expected_row(made.FromString(raw), types))
    for value in values:  # of messages within not all is declared, and so not all is looked at
        for name in ("m1", "m2", "m4", "o3", "x1", "x2"):
            value.ClearField(name)
    damaged = [_damage_record(rng, value.SerializeToString()) for value in values]
    for found, raw in zip(decode_records(file, "Outer", types, damaged), damaged, strict=True):
        try:
            value = made.FromString(raw)
        except Exception:
            assert isinstance(found, str), (raw, found)
            continue
        if isinstance(found, dict):
            same(found, build_expected_row(value, types))


SIZES = [2**63 - 1, 2**63 - 200, 2**63, 2**62, 2**32, 100]


def _damage_record(rng: random.Random, raw: bytes) -> bytes:
    kind, place = rng.randrange(3), rng.randrange(len(raw) + 1)
    if kind == 0:
        return raw[:place]
    return raw[:place] + rng.randbytes(1) + raw[place + (kind == 1) :]


PLAIN = file_of({
    "Enum": ["ZERO", "ONE"],
    "One": [("i", 1, "int32"), ("u", 2, "uint64"), ("b", 3, "bool"), ("e", 4, ".t.Enum"), ("s", 5, "string"),
            ("n", 6, "int32", "repeated"), ("t", 7, ".google.protobuf.Timestamp"), ("l", 8, "int64"),
            ("m", 9, "map:string:int32"), ("d", 10, "double")],
})  # fmt: skip
OLDER = file_of({"Two": [("i", 1, "int32", "required"), ("s", 2, "string")]}, syntax="proto2")


@pytest.mark.parametrize(
    ("type_", "name", "raw", "why"),
    [
        ("INT", "i", b"\x08\x80\x80\x80\x80\x08", "a number is too large"),
        ("INT", "i", b"\x0a\x01a", '"i" has another type'),
        ("INT", "i", b"\x08", "it ends early"),
        ("INT", "i", b"\x62\x01a", "none of its fields is in the message"),
        ("INT", "i", b"\x00", "an unsupported wire type"),
        ("INT", "i", b"\x0b\x0c", '"i" has another type'),
        ("BOOLEAN", "b", b"\x18\x02", "a number is too large"),
        ("STRING", "e", b"\x20\x07", 'the enum of "e" has no such number'),
        ("STRING", "s", b"\x2a\x02\xc3\x28", "a text is not UTF-8"),
        ("STRING", "s", b"\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a", "it ends early"),
        ("ARRAY<INT>", "n", b"\x32\x01\x80", "it ends early"),
        ("TIMESTAMP", "t", b"\x3a\x02\x08\xff", "it ends early"),
        ("TIMESTAMP", "t", b"\x3a\x03\x10\xff\x01", None),
        ("TIMESTAMP", "t", b"\x3a\x09\x09" + b"\x01" * 8, '"seconds" has another type'),
        ("ARRAY<INT>", "n", b"\x32\x0b" + b"\xff" * 10 + b"\x01", "a number is too long"),
        ("BIGINT", "l", b"\x40" + b"\xff" * 9 + b"\x02", None),
        ("BIGINT", "l", b"\x80\x80\x80\x80\x10\x01", "an unsupported wire type"),
        ("DOUBLE", "d", b"\x51\x00", "it ends early"),
        ("TIMESTAMP", "t", b"\x3a\x06\x10\x80\x94\xeb\xdc\x03", "of the years 1 to 9999"),
        ("TIMESTAMP", "t", b"\x3a\x0b\x08" + b"\xff" * 9 + b"\x00", "of the years 1 to 9999"),
    ],
)
def test_what_is_no_record(type_, name, raw, why):
    good = classes(PLAIN)["One"](s="b").SerializeToString()
    found, beside = decode_records(PLAIN, "One", {name: type_}, [raw, good])
    assert isinstance(beside, dict)
    assert (why in found) if why else isinstance(found, dict)


@pytest.mark.parametrize(
    ("size", "field"),
    [
        pytest.param(size, field, marks=() if number % len(SIZES) == column else pytest.mark.full)
        for number, field in enumerate(["m1", "m2", "m3", "m4", "t1", "w2", "o3", "f1_double"])
        for column, size in enumerate(SIZES)
    ],
)
def test_a_length_that_no_record_has_is_of_one_record(seed, size, field):
    """Beside messages that come twice, which are merged."""
    file, types = FILES["proto3"]
    made, rng = classes(file)["Outer"], random.Random(f"{seed} {size} {field}")
    number = made.DESCRIPTOR.fields_by_name[field].number
    poison = _varint(number << 3 | 2) + _varint(size) + b"abc"
    records = [drawn(rng, made, file).SerializeToString() * 2 for _ in range(32)]
    for found in decode_records(file, "Outer", types, [poison, *records, poison])[1:-1]:
        assert isinstance(found, dict), found
    for found, raw in zip(decode_records(file, "Outer", types, [*records, poison]), records, strict=False):
        same(found, build_expected_row(made.FromString(raw), types))


def _varint(value: int) -> bytes:
    *more, last = (value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7))
    return bytes([*(part | 0x80 for part in more), last])


def test_a_required_field_that_is_missing():
    found = decode_records(OLDER, "Two", {"s": "STRING"}, [b"\x12\x01a", b"\x08\x05\x12\x01a", b""])
    assert found == ['"i" is required, and is missing', {"s": "a"}, '"i" is required, and is missing']


def test_unsigned_numbers_are_not_signed():
    made = classes(PLAIN)["One"](u=2**64 - 1)
    assert decode_records(PLAIN, "One", {"u": "DECIMAL(20,0)"}, [made.SerializeToString()]) == [
        {"u": Decimal(2**64 - 1)}
    ]


@pytest.mark.parametrize(
    ("types", "problems"),
    [
        (
            {"u": "BIGINT", "i": "STRING"},
            [
                'column "u" is declared BIGINT, but the message has uint64',
                'column "i" is declared STRING, but the message has int32',
            ],
        ),
        ({"n": "INT"}, ['column "n" is declared INT, but the message has repeated int32']),
        ({"m": "STRING"}, ['column "m" is declared STRING, but the message has map']),
        ({"m": "MAP<STRING, STRING>"}, ['"m.value" is declared STRING, but the message has int32']),
        ({"x": "INT", "d": "DOUBLE"}, ['column "x" is not in the message "t.One", which has ']),
    ],
)
def test_columns_that_do_not_fit(types, problems):
    with pytest.raises(Misfit) as caught:
        decode_records(PLAIN, "One", types, [])
    assert len(caught.value.problems) == len(problems)
    for problem, wanted in zip(sorted(caught.value.problems), sorted(problems), strict=True):
        assert problem.startswith(wanted)


def test_what_is_no_descriptor():
    whole = descriptors(PLAIN)
    for raw in (b"", b"nothing", whole[:-1], whole.replace(b"proto3", b"proto9")):
        with pytest.raises(BadDescriptor):
            parse_descriptors(raw)
    with pytest.raises(Misfit, match=r'there is no message "t.None"; there are t\.One'):
        fit_protobuf(parse_descriptors(whole), "t.None", [])


CHOICE = file_of(
    {
        "In": [("a", 1, "int32", "optional"), ("b", 2, "string", "optional")],
        "Out": [
            ("one", 1, ".t.In", "oneof"),
            ("two", 2, "int32", "oneof"),
            ("other", 3, ".t.In", "oneof"),
            ("n", 4, "sint32", "repeated"),
        ],
    },
    syntax="proto2",
)


def test_a_member_that_comes_again_is_not_merged_with_what_another_took_away():
    made = classes(CHOICE)
    one = made["Out"](one=made["In"](a=1)).SerializeToString()
    two = made["Out"](two=5).SerializeToString()
    again = made["Out"](one=made["In"](b="b")).SerializeToString()
    other = made["Out"](other=made["In"]()).SerializeToString()
    records = [
        one + two + again,
        one + again,
        two + one + other + again,
        one + again + two,
        again + two + one,
    ]
    types = {"one": "STRUCT<a: INT, b: STRING>", "two": "INT"}
    wanted = [
        {"one": {"a": None, "b": "b"}, "two": None},
        {"one": {"a": 1, "b": "b"}, "two": None},
        {"one": {"a": None, "b": "b"}, "two": None},
        {"one": None, "two": 5},
        {"one": {"a": 1, "b": None}, "two": None},
    ]
    for raw, row in zip(records, wanted, strict=True):  # as Google's library
        value = made["Out"].FromString(raw)
        assert value.HasField("one") == (row["one"] is not None)
        assert not value.HasField("one") or value.one.HasField("a") == (row["one"]["a"] is not None)
    assert decode_records(CHOICE, "Out", types, records) == wanted


def test_numbers_packed_and_not_are_in_their_order():
    raw = b"\x22\x02\x02\x04" + b"\x20\x06" + b"\x22\x00" + b"\x22\x03\x80\x01\x08" + b"\x20\x0a"
    assert list(classes(CHOICE)["Out"].FromString(raw).n) == [1, 2, 3, 64, 4, 5]
    assert decode_records(CHOICE, "Out", {"n": "ARRAY<INT>"}, [raw]) == [{"n": [1, 2, 3, 64, 4, 5]}]


def test_a_message_of_very_many_fields_takes_no_round_of_all_records_each():
    value = classes(PLAIN)["One"](n=range(100_000), s="x")
    unknown = b"\xf8\x01\x01" * 100_000
    before = time.perf_counter()
    (found,) = decode_records(
        PLAIN, "One", {"n": "ARRAY<INT>", "s": "STRING"}, [unknown + value.SerializeToString()]
    )
    assert found == {"n": [*range(100_000)], "s": "x"}
    assert time.perf_counter() - before < 5  # number by number it took above 30 s


def test_an_enum_that_is_not_in_the_descriptor_is_refused():
    parsed = parse_descriptors(descriptors(PLAIN))
    parsed.enums.clear()
    with pytest.raises(Misfit, match=r'the enum "t\.Enum" is not in the descriptor'):
        fit_protobuf(parsed, "t.One", [column("e", "STRING")])


def test_without_the_library_a_hint_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(SpecError, match="not installed") as caught:
        parse_descriptors(b"")
    assert caught.value.code == "missing-library"
    assert "watersmeet[protobuf]" in str(caught.value.hint)


@pytest.mark.parametrize("numbers", [(5, 5), (0, 1), (2**29, 1), (-3, 1)])
def test_a_message_that_is_not_valid_is_refused(numbers):
    """Before there is a record: no task has to build a parser of it."""
    file = file_of({"O": [("a", 1, "int32"), ("b", 2, "int32")]})
    for field, number in zip(file.message_type[0].field, numbers, strict=True):
        field.number = number
    with pytest.raises(Misfit, match=r'the message "t\.O" is not valid'):
        decode_records(file, "O", {"a": "INT"}, [])


def test_groups_that_are_not_declared_are_passed_over():
    file = file_of({"In": [("x", 1, "int32")], "O": [("a", 1, "int32")]}, syntax="proto2")
    file.message_type[1].field.add(name="g", number=2, label=2, type=10, type_name=".t.In")
    group = b"\x13\x08\x05\x14"
    records = [b"\x08\x01", group + b"\x08\x02", group]
    assert decode_records(file, "O", {"a": "INT"}, records) == [
        '"g" is required, and is missing',
        {"a": 2},
        {"a": None},
    ]
    with pytest.raises(Misfit, match=r'column "g" is declared .* but the message has group'):
        decode_records(file, "O", {"g": "STRUCT<x: INT>"}, [])


def test_a_number_of_more_than_64_bits_is_read_as_parsers_read_it():
    """By its lower 64 bits, as Google's own class of the message does."""
    raw = b"\x40" + b"\xff" * 9 + b"\x7f"
    assert classes(PLAIN)["One"].FromString(raw).l == -1
    assert decode_records(PLAIN, "One", {"l": "BIGINT"}, [raw]) == [{"l": -1}]
