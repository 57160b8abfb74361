# ruff: noqa: E501
"""Literals, alone and beside other types: what Spark is sent, and what tasks compute, is of the type and the
value that Spark gives the text as it was written."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
import sqlglot
from sqlglot.errors import SqlglotError

from tests.expressions.checking import compiled_text, ours
from tests.support.effort import at_effort
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.parser.text.dialect import Watersmeet
from watersmeet.runtime.spark.sql_text import to_spark_sql
from watersmeet.spec.grammar import MisreadError
from watersmeet.types.sql_type import TIMES

NUMBERS = [
    "3", "-3", "-(3)", "- -3", "+3", "3L", "-3l", "3S", "3Y", "-(3Y)", "-128Y", "-32768S", "-2147483648", "2147483648",
    "-9223372036854775808", "-9223372036854775808L", "9223372036854775808", "1.5", "-.5", "5.", "00.50", "0.10BD", "1e3BD",
    "1.5e-3BD", "123456789012345678901234567890", "-1.5d", "5.D", "1e3", "1e-400", "-0D", "1.5F", "0.1F",
]  # fmt: skip
BESIDE = [
    "{}", "{} * m1", "m1 / {}", "m1 + {}", "m1 % {}", "{} + b1", "{} / i1", "x1 * {}", "f1 - {}", "m1 < {}", "b1 = {}",
    "coalesce({}, m1)", "greatest({}, b1)", "m1 IN ({}, 2)", "CAST({} AS STRING)",
]  # fmt: skip
OTHERS = [
    "- 3", "(3)", "-3y", "127Y", "2147483647", "-2147483649", "9223372036854775807L", "-9223372036854775809", "007", "100L * m1", "1000S * m1",
    "1.50", "-0.0", "15e-1BD", ".5BD", "0BD", "1.5E3", ".5e2", "1.5e3D", "1.7976931348623157e308", "-1.5f", "1e3F", "16777216F",
    "bigint(3) * m1", "int(3) / m1", "CAST(3 AS INT) * m1", "3::BIGINT * m1", "coalesce(3, 4) * m1", "nvl(NULL, 3) * m1",
    "if(i1 > 0, 3, 4) * m1", "abs(3) * m1", "positive(3) * m1", "negative(3) * m1", "(3) * m1", "3 + 4L * m1", "3Y * m1 + 3S",
    "'a' 'b'", "r'a\\n' 'b\\n'", "'a\\tb\\u00e9\\101\\%\\_\\q''\\''", "R'\\d'", "''", "X'1F'", "x''", "X'1F2'", "TRUE", "false",
    "DATE '2024-02-29'", "date'2024'", "DATE '2024-1-1' + 1", "DATE '1582-10-10'::STRING", "TIMESTAMP '2024-01-01 00:00:00' + INTERVAL 1 DAY",
    "TIMESTAMP'2024-01-01T12:00:00Z'", "TIMESTAMP_NTZ '2024-01-01 00:00:00'", "TIMESTAMP_LTZ '2024-01-01'", "'a' || 'b' 'c'", "-1::STRING",
    "-128Y::INT", "(-(128))::INT", "-1[0]", "+'12'", "+s1", "+i1", "-s1", "NOT TRUE IS UNKNOWN", "i1 = 1 IS UNKNOWN", "i1 IS UNKNOWN",
    "i1 & 3 | 4 ^ i1", "i1 >>> 1", "b1 >>> 40 + 1", "-1 >>> 28", "i1 >> 1 << 2", "1 + 1 || s1", "i1 = 7 = true", "s1 = 'a' IS NOT TRUE", "i1 !< 7",
    "128Y", "-129Y", "32768S", "1e400", "1e39F", "1.5L", "DATE 'x'", "INT '3'", "N'a'", "X'G'", "1 .f", "0x1F", "i1 IS NULL = true",
]  # fmt: skip
TYPES = {"m": "DECIMAL(10,2)", "b": "BIGINT", "i": "INT", "x": "DOUBLE", "f": "FLOAT", "s": "STRING"}
ROW = {"m": Decimal("12.34"), "b": 2**40 + 7, "i": 7, "x": 0.1, "f": 0.5, "s": "a"}


def expressions() -> list[str]:
    """Quick effort: each number alone and in one other expression; full effort: in each of them."""
    beside = {
        number: at_effort(quick=["{}", BESIDE[1 + n % 14]], full=BESIDE) for n, number in enumerate(NUMBERS)
    }
    return [*(form.replace("{}", number) for number, forms in beside.items() for form in forms), *OTHERS]


def translate_to_spark_sql(text: str) -> str | None:
    try:
        return to_spark_sql(sqlglot.parse_one(f"SELECT {text} AS c", dialect=Watersmeet).expressions[0].this)
    except (SqlglotError, MisreadError):
        return None


def answers(frame, texts):
    """Per text (type, value), or the word that it failed by; asked together as far as they go."""
    from pyspark.errors import PySparkException

    if not texts:
        return []
    try:
        found = frame.selectExpr(*(f"{text} AS c{n}" for n, text in enumerate(texts)))
        row = found.toArrow().to_pylist()[0]
        return [(each.dataType.simpleString(), repr(row[each.name])) for each in found.schema]
    except (PySparkException, SyntaxError, ValueError):
        if len(texts) == 1:
            return ["fails"]
    middle = len(texts) // 2
    return [*answers(frame, texts[:middle]), *answers(frame, texts[middle:])]


@pytest.mark.spark
def test_literals_are_what_spark_reads(spark, monkeypatch):
    values = ", ".join(f"CAST('{value}' AS {TYPES[name]}) AS {name}1" for name, value in ROW.items())
    frame = spark.sql(f"SELECT {values}")
    texts = expressions()
    given = [translate_to_spark_sql(text) for text in texts]
    wanted = answers(frame, texts)
    got = answers(frame, [text for text in given if text is not None])
    rest = iter(got)
    different = []
    for text, ours_, want in zip(texts, given, wanted, strict=True):
        have = "fails" if ours_ is None else next(rest)
        if have != want:
            different.append((text, ours_, want, have))
    computed = 0
    arrow = pa.table(
        {f"{name}{n}": pa.array([value], _arrow(name)) for name, value in ROW.items() for n in (1, 2)}
    )
    for text, want in zip(texts, wanted, strict=True):
        found = _in_tasks(text, arrow, monkeypatch)
        if found is not None:
            computed += 1
            if found != want:
                different.append((text, "tasks", want, found))
    print(len(texts), "texts,", computed, "computed by tasks")
    for each in different[:40]:
        print(*each, sep=" | ")
    assert different == []
    assert computed > at_effort(quick=80, full=400)


def _arrow(name: str) -> pa.DataType:
    from tests.expressions.checking import arrow

    return arrow(TYPES[name])


def _in_tasks(text: str, rows: pa.Table, monkeypatch):
    """(type, value) as tasks have it; None where Spark computes it."""
    try:
        type_ = compiled_text(text, TYPES, "UTC").type
        values, failing, _ = ours(text, rows, TYPES, "UTC", monkeypatch)
    except (UnsupportedExpression, SqlglotError, MisreadError):
        return None
    if type_ in TIMES or type_.is_void or type_.is_interval:
        return None  # compared by the judge of times
    if failing.any():
        return "fails"
    return str(type_).lower(), repr(values[0])
