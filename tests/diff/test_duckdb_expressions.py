"""What DuckDB is asked in the place of Spark: expressions that mean the same there, with Spark's values
written down; all others are left to Spark."""

from __future__ import annotations

from datetime import date, datetime

import duckdb
import pytest
import sqlglot

from watersmeet.diff.dialect import Named, Uncommon
from watersmeet.diff.duckdb_sql import DuckDb
from watersmeet.types.parser import sql_type

TYPES = {
    "n": "INT",
    "big": "BIGINT",
    "small": "SMALLINT",
    "s": "STRING",
    "flag": "BOOLEAN",
    "x": "DOUBLE",
    "t": "TIMESTAMP",
    "u": "TIMESTAMP",
    "d": "DATE",
    "e": "DATE",
    "none": "INT",
    "m": "DECIMAL(9,2)",
}
ROW = (
    "SELECT 7::INTEGER n, 5000000000::BIGINT big, 3::SMALLINT small, 'ab' s, TRUE flag, 1.5::DOUBLE x,"
    " TIMESTAMP '2022-03-01 10:00:00' t, TIMESTAMP '2022-03-01 09:58:30' u, DATE '2022-03-01' d,"
    " DATE '2022-02-27' e, NULL::INTEGER none, 1.25::DECIMAL(9,2) m"
)
TEN = datetime(2022, 3, 1, 10)


def asked(text: str, *, utc: bool = True) -> str:
    names = {("", name): Named(name, sql_type(kind)) for name, kind in TYPES.items()}
    return DuckDb({}, utc=utc).expression(sqlglot.parse_one(text, dialect="databricks"), names)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CASE WHEN n > 5 THEN s ELSE 'no' END", "ab"),
        ("CASE WHEN n < 5 THEN s END", None),
        ("CASE WHEN none > 5 THEN 1 WHEN flag THEN 2 ELSE 3 END", 2),
        ("if(flag AND NOT n = 7, 1, 2)", 2),
        ("coalesce(none, n)", 7),
        ("CAST(small AS BIGINT)", 3),
        ("CAST(NULL AS INT)", None),
        ("t - INTERVAL '90' SECONDS", datetime(2022, 3, 1, 9, 58, 30)),
        ("u + INTERVAL '90' SECONDS = t", True),
        ("d - INTERVAL '2' DAYS", date(2022, 2, 27)),
        ("e + INTERVAL '2' DAYS = d", True),
        ("t - u <= INTERVAL '90' SECONDS", True),
        ("t - u < INTERVAL '90' SECONDS", False),
        ("d - e = INTERVAL '2' DAYS", True),
        ("t BETWEEN u AND u + INTERVAL '1' MINUTE", False),
        ("TIMESTAMP '2022-03-01 10:00:00' = t", True),
        ("DATE '2022-03-01' = d", True),
        ("none IS NULL AND n IS NOT NULL", True),
        ("none = 1 OR flag", True),
        ("none <=> NULL", True),
        ("n IN (1, 7)", True),
        ("count(*)", 1),
        ("count(DISTINCT n)", 1),
        ("sum(big)", 5_000_000_000),
        ("max(t)", TEN),
        ("min(s)", "ab"),
    ],
)
def test_a_value_is_sparks(text, value):
    found = duckdb.sql(f"SELECT {asked(text)} FROM ({ROW})").fetchall()
    assert found == [(value,)]


@pytest.mark.parametrize(
    "text",
    [
        "upper(s)",
        "x + 1",
        "CASE n WHEN 1 THEN 2 END",
        "CAST(big AS INT)",
        "CAST(s AS INT)",
        "try_cast(n AS BIGINT)",
        "TIMESTAMP '10000-01-01 00:00:00'",
        "INTERVAL '1' SECOND",
        "INTERVAL '1' MONTH",
        "t + INTERVAL '1' MONTH",
        "coalesce(n, s)",
        "n + s",
        "1.5",
        "sum(x)",
        "avg(n)",
        "min(x)",
        "count(n) FILTER (WHERE flag)",
        "if(n, 1, 2)",
    ],
)
def test_what_may_mean_something_else_is_sparks(text):
    with pytest.raises(Uncommon):
        asked(text)


def test_times_of_other_zones_are_sparks():
    with pytest.raises(Uncommon):
        asked("TIMESTAMP '2022-03-01 10:00:00' = t", utc=False)
    assert asked("DATE '2022-03-01' = d", utc=False)
