"""The grammar of intervals against Spark's own: what both read is equal; what is read here, Spark reads as it
was written for it; what Spark reads and is not read here is named, with the reason."""

from __future__ import annotations

import random

import pytest
from sqlglot import exp

from tests.front.test_intervals import read
from watersmeet.errors import SqlError
from watersmeet.spec.intervals import interval_us, is_calendar

pytestmark = pytest.mark.spark

UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK")
ODD_UNITS = ("sec", "secs", "ms", "min", "h", "NANOSECOND", "MONTH", "YEAR", "QUARTER", "fortnight", "s")
SPANS = [
    f"{first} TO {last}"
    for place, first in enumerate(("DAY", "HOUR", "MINUTE", "SECOND"))
    for last in ("DAY", "HOUR", "MINUTE", "SECOND")[max(0, place - 1) :]
]
EPOCH = "TIMESTAMP'1970-01-01 00:00:00Z'"
GIVEN = [
    "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND",
    "INTERVAL '106751991 04:00:54.775807' DAY TO SECOND",
    "INTERVAL '106751991 04:00:54.775808' DAY TO SECOND",
    "INTERVAL '9223372036854775807' MICROSECONDS",
    "INTERVAL '9223372036854775808' MICROSECONDS",
    "INTERVAL '1-2' YEAR TO MONTH",
    "INTERVAL 'PT10S'",
    "INTERVAL '- 1 02:03:04' DAY TO SECOND",
    "INTERVAL -'-5' SECONDS",
    "INTERVAL -'-1 02:03:04' DAY TO SECOND",
    "INTERVAL '1.' SECOND",
    "INTERVAL '.5' SECOND",
    "INTERVAL '1.1234567' SECOND",
    "INTERVAL 'interval 5 seconds'",
]


def texts(rng: random.Random) -> list[str]:
    def number() -> str:
        whole = rng.choice(["0", "1", "7", "23", "24", "59", "60", "100", "007", str(rng.randrange(10**6))])
        fraction = rng.choice(["", "", "", ".", ".5", ".000001", ".0000001", ".1234567891"])
        return rng.choice(["", "", "-", "+", "- ", " "]) + whole + fraction

    def unit() -> str:
        found = rng.choice(UNITS if rng.random() < 0.8 else ODD_UNITS)
        found += rng.choice(["", "S"]) if found in UNITS else ""
        return rng.choice([found, found.lower(), found.capitalize()])

    found = list(GIVEN)
    for _ in range(130):
        found.append(f"INTERVAL '{number()}' {unit()}")
        found.append(f"INTERVAL {number()} {unit()}")
        pairs = " ".join(f"{number()} {unit()}" for _ in range(rng.randint(1, 3)))
        found.append(f"INTERVAL '{pairs}'")
        found.append("INTERVAL " + " ".join(f"{number()} {unit()}" for _ in range(rng.randint(2, 3))))
        fields = rng.choice([1, 2, 3, 4, 4])
        parts = [rng.choice(["0", "1", "02", "23", "24", "59", "60", "123"]) for _ in range(fields)]
        clock = (parts[0] + " " if fields == 4 else "") + ":".join(parts[1:] if fields == 4 else parts)
        sign, fraction = rng.choice(["", "-", "+"]), rng.choice(["", "", ".5", ".123456", ".1234567"])
        found.append(f"INTERVAL '{sign}{clock}{fraction}' {rng.choice(SPANS)}")
    return found


def spark_us(spark, sql: str, own: int | None):
    """µs by Spark; None for an interval of months; an exception if it is none. Of one that no time can be
    moved by, what it is here."""
    kind = spark.sql(f"SELECT {sql}").schema[0].dataType.simpleString()
    if "month" in kind or "year" in kind:
        return None
    if own is not None and abs(own) > 10**17:
        return own
    return spark.sql(f"SELECT unix_micros({EPOCH} + ({sql}))").collect()[0][0]


def test_it_is_sparks(spark, seed):
    rng = random.Random(seed)
    read_by_both = refused_here = 0
    wrong = []
    for sql in texts(rng):
        try:
            own = read(sql)
            us = interval_us(own)
            if not isinstance(own, exp.Interval):
                raise SqlError("a sum of a column called interval", code="test")
            if us is None and not is_calendar(own):
                wrong.append((sql, "is read, and has no length"))
                continue
        except SqlError as error:
            try:
                spark_us(spark, sql, None)
            except Exception:
                continue
            refused_here += 1
            if "finer than a microsecond" not in str(error):
                wrong.append((sql, str(error)))
            continue
        try:
            if spark_us(spark, own.sql("spark"), us) != us:
                wrong.append((sql, own.sql("spark"), us))
        except Exception as error:
            wrong.append((sql, own.sql("spark"), str(error)[:200]))
            continue
        try:
            found = spark_us(spark, sql, us)
        except Exception:
            continue  # shortened units, clock times without their fields
        read_by_both += 1
        if found != us:
            wrong.append((sql, us, found))
    assert not wrong, "\n".join(map(str, wrong))
    assert read_by_both > 100
    assert refused_here > 5
