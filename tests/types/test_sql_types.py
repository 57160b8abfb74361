# ruff: noqa: E501
"""Types as values: one spelling, read again as the same type; what is no type is named by its text."""

from __future__ import annotations

import pickle
import random

import pyarrow as pa
import pytest

from watersmeet.errors import SqlError
from watersmeet.parser.types.inference import type_named
from watersmeet.spec.functions import function_names, signature_of
from watersmeet.types.arrow import in_arrow
from watersmeet.types.parser import sql_type
from watersmeet.types.results import RULES
from watersmeet.types.sql_type import (
    INT,
    PLAIN,
    STRING,
    Field,
    SqlType,
    array,
    decimal,
    interval,
    map_of,
    struct,
)


def some_type(draw: random.Random, depth: int) -> SqlType:
    kind = draw.choice(["plain", "decimal", "interval", "array", "map", "struct"][: 6 if depth else 3])
    if kind == "decimal":
        digits = draw.randint(1, 38)
        return decimal(digits, draw.randint(0, digits))
    if kind == "interval":
        return interval(*draw.choice([("YEAR", "MONTH"), ("DAY", "SECOND"), ("HOUR", "HOUR")]))
    if kind == "array":
        return array(some_type(draw, depth - 1))
    if kind == "map":
        return map_of(some_type(draw, depth - 1), some_type(draw, depth - 1))
    if kind == "struct":
        names = ["a", "_b1", "with blank", "a`,>", "INT", "1", "ä:", "NOT", "ARRAY"]
        fields = draw.sample(names, draw.randint(1, 4))
        return struct([Field(name, some_type(draw, depth - 1), draw.random() < 0.3) for name in fields])
    return draw.choice(PLAIN)


def test_every_type_is_read_again_as_itself(request):
    draw = random.Random(request.config.watersmeet_seed)
    for _ in range(500):
        type_ = some_type(draw, 3)
        assert sql_type(str(type_)) == type_, str(type_)
        assert sql_type(str(type_).lower().replace(", ", " ,")) is not None


def test_the_two_ways_to_read_a_type_agree(request):
    """From the tokens of a statement and from a text of its own."""
    draw = random.Random(request.config.watersmeet_seed)
    for _ in range(100):
        text = str(some_type(draw, 2))
        if "INTERVAL" not in text and "`1`" not in text:
            assert type_named(text) == sql_type(text), text


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("struct<a: int not null,`x y` array<decimal(8, 2)>>", "STRUCT<a: INT NOT NULL, `x y`: ARRAY<DECIMAL(8,2)>>"),
        ("MAP< STRING , STRUCT<B: INT> >", "MAP<STRING, STRUCT<B: INT>>"),
        ("STRUCT<`a``,>`:INT>", "STRUCT<`a``,>`: INT>"),
        ("varchar(10)", "STRING"),
        ("timestamp(3) with local time zone", "TIMESTAMP"),
        ("decimal", "DECIMAL(10,0)"),
        ("DEC(5)", "DECIMAL(5,0)"),
        ("double precision", "DOUBLE"),
        ("int[]", "ARRAY<INT>"),
        ("interval  day to second", "INTERVAL DAY TO SECOND"),
        ("NULL", "VOID"),
        ("unknown", "UNKNOWN"),
    ],
)  # fmt: skip
def test_types_have_one_spelling(written, wanted):
    assert str(sql_type(written)) == wanted
    assert str(sql_type(wanted)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "VARIANT", "DECIMAL(50,2)", "DECIMAL(2,3)", "MAP<INT", "ARRAY<INT, INT>", "INT INT", "`"),
        *("TIME(6)", "INTERVAL DAY TO", "STRUCT<>", "STRUCT<a>", "<", "DECIMAL(x)", "DECIMAL(-1)"),
    ],
)
def test_what_is_no_type_here_keeps_its_text_and_is_of_no_kind(text):
    found = sql_type(text)
    assert str(found) == text.strip().upper()
    kinds = (found.is_number, found.is_time, found.is_nested, found.is_interval, found.is_void)
    assert not any(kinds)
    assert in_arrow(found) is None


@pytest.mark.parametrize(
    "text", ["INTERVAL DAY TO SECOND", "NULL", "UNKNOWN", "VARIANT", "ARRAY<INTERVAL DAY>"]
)
def test_no_column_is_declared_as_what_only_expressions_are(text):
    with pytest.raises(SqlError):
        type_named(text)


def test_nested_types_expose_their_parts():
    found = sql_type("STRUCT<`a``,>`: INT NOT NULL, b: STRING>")
    assert [(each.name, each.type) for each in found.fields] == [("a`,>", INT), ("b", STRING)]
    assert str(struct([Field("a`,>", INT)])) == "STRUCT<`a``,>`: INT>"
    assert sql_type("ARRAY<MAP<STRING,INT>>").element == map_of(STRING, INT)
    assert sql_type("MAP<STRING, ARRAY<INT>>").entry == (STRING, array(INT))
    assert map_of(STRING, INT).element is array(INT).entry is None
    assert INT.fields == ()
    assert not INT.is_struct
    assert list(map_of(STRING, array(INT)).every) == [map_of(STRING, array(INT)), STRING, array(INT), INT]


def test_names_of_fields_are_left_where_they_do_not_matter():
    one, other = (
        sql_type("ARRAY<STRUCT<a: INT, b: STRUCT<c: INT>>>"),
        sql_type("ARRAY<STRUCT<x: INT, y: STRUCT<c: INT>>>"),
    )
    assert one != other
    assert one.unnamed == other.unnamed


def test_types_are_the_same_in_another_process():
    """Whatever was computed of one before it was sent."""
    for type_ in (array(STRING), decimal(8, 2), struct([Field("a", INT, not_null=True)])):
        assert (str(type_), type_.nullable, hash(type_)) is not None
        again = pickle.loads(pickle.dumps(type_))
        assert (again, hash(again), str(again)) == (type_, hash(type_), str(type_))


def test_fields_that_must_not_be_null_are_as_others_where_values_are_computed():
    type_ = sql_type("ARRAY<STRUCT<a: INT NOT NULL, b: MAP<STRING, STRUCT<c: INT NOT NULL>>>>")
    assert str(type_.nullable) == "ARRAY<STRUCT<a: INT, b: MAP<STRING, STRUCT<c: INT>>>>"


def test_arrow():
    assert in_arrow(sql_type("STRUCT<a: ARRAY<DECIMAL(8,2)>, b: MAP<STRING, TIMESTAMP>>")) == pa.struct(
        [("a", pa.list_(pa.decimal128(8, 2))), ("b", pa.map_(pa.string(), pa.timestamp("us")))]
    )
    assert in_arrow(sql_type("ARRAY<INTERVAL DAY>")) is None
    assert in_arrow(sql_type("STRUCT<a: VARIANT, b: INT>")) is None


@pytest.mark.parametrize("written", ["DECIMAL(²)", "DECIMAL(8,²)", "VARCHAR(٣)"])
def test_lengths_are_of_plain_digits(written: str):
    with pytest.raises(SqlError, match="expected a length"):
        type_named(written)
    assert sql_type(written).name == written.upper()


def test_each_rule_of_results_is_that_of_a_function():
    signatures = map(signature_of, function_names())
    assert {signature.result for signature in signatures if signature is not None} >= {*RULES}
