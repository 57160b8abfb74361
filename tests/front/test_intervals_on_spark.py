"""The grammar of intervals against Spark's own: what both read is equal; what is read here, Spark reads as it
was written for it; what Spark reads and is not read here is named, with the reason."""

from __future__ import annotations

import random

import pytest
from sqlglot import exp

from tests.front.test_intervals import read
from tests.support.effort import at_effort
from watersmeet.errors import SqlError
from watersmeet.runtime.spark.job.session import hold_fixed
from watersmeet.types.intervals import interval_us, is_calendar

pytestmark = pytest.mark.spark

UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK")
ODD_UNITS = ("sec", "secs", "ms", "min", "h", "NANOSECOND", "MONTH", "YEAR", "QUARTER", "fortnight", "s")
SPANS = [
    f"{first} TO {last}"
    for place, first in enumerate(("DAY", "HOUR", "MINUTE", "SECOND"))
    for last in ("DAY", "HOUR", "MINUTE", "SECOND")[max(0, place - 1) :]
]
EPOCH = "TIMESTAMP'1970-01-01 00:00:00Z'"
AT_ONCE = 40
FAILS = "fails"
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
    for _ in range(at_effort(quick=20, full=130)):
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


def kind_of(spark, sql: str) -> str | None:
    """Spark's type of an expression; None if it is none."""
    try:
        return spark.sql(f"SELECT {sql}").schema[0].dataType.simpleString()
    except Exception:
        return None


def us_of(spark, intervals: list[str]) -> list[int | str | None]:
    """µs by Spark; `FAILS` of one that no time can be moved by. Many are asked for at once."""
    try:
        moved = ", ".join(f"unix_micros({EPOCH} + ({sql}))" for sql in intervals)
        return list(spark.sql(f"SELECT {moved}").collect()[0])
    except Exception:
        if len(intervals) == 1:
            return [FAILS]
        half = len(intervals) // 2
        return us_of(spark, intervals[:half]) + us_of(spark, intervals[half:])


def spark_us(spark, asked: list[tuple[str, int | None]]) -> dict[str, int | str | None]:
    """By text, for ``asked``, texts and what they are here: µs by Spark, None for an interval of months,
    `FAILS` if it is none. Of one that no time can be moved by, what it is here."""
    found: dict[str, int | str | None] = {}
    exact = []
    for sql, own in asked:
        kind = kind_of(spark, sql)
        if kind is None:
            found[sql] = FAILS
        elif "month" in kind or "year" in kind:
            found[sql] = None
        elif own is not None and abs(own) > 10**17:
            found[sql] = own
        else:
            exact.append(sql)
    for first in range(0, len(exact), AT_ONCE):
        some = exact[first : first + AT_ONCE]
        found |= dict(zip(some, us_of(spark, some), strict=True))
    return found


def test_it_is_sparks(spark, seed):
    hold_fixed(spark, "UTC")  # else days and weeks are those of the zone of the job before
    refused, read_here, wrong = {}, {}, []
    for sql in texts(random.Random(seed)):
        try:
            own = read(sql)
            us = interval_us(own)
            if not isinstance(own, exp.Interval):
                raise SqlError("a sum of a column called interval", code="test")
        except SqlError as error:
            refused[sql] = str(error)
            continue
        if us is None and not is_calendar(own):
            wrong.append((sql, "is read, and has no length"))
        else:
            read_here[sql] = own.sql("spark"), us
    given = spark_us(
        spark, [(sql, us) for sql, (_, us) in read_here.items()] + [(sql, None) for sql in refused]
    )
    written = spark_us(spark, list(dict.fromkeys(read_here.values())))
    refused_here = [sql for sql in refused if given[sql] != FAILS]
    wrong += [
        (sql, refused[sql]) for sql in refused_here if "more digits than microseconds" not in refused[sql]
    ]
    wrong += [(sql, *own, written[own[0]]) for sql, own in read_here.items() if written[own[0]] != own[1]]
    # Spark fails for shortened units, and clock times without their fields.
    read_by_both = {sql: us for sql, (_, us) in read_here.items() if given[sql] != FAILS}
    wrong += [(sql, us, given[sql]) for sql, us in read_by_both.items() if given[sql] != us]
    assert not wrong, "\n".join(map(str, wrong))
    assert len(read_by_both) > at_effort(quick=20, full=100)
    assert len(refused_here) > at_effort(quick=1, full=5)
