"""A query over tables of a case file in DuckDB: what a join is, once all rows are there."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Iterable
from typing import Any

import duckdb

Row = dict[str, Any]


def fill(
    connection: duckdb.DuckDBPyConnection, name: str, columns: dict[str, str], rows: Iterable[Row]
) -> None:
    """A table of these columns (types as Spark's) with these rows, instead of the one that was there."""
    declared = ", ".join(f"{c} {'VARCHAR' if t == 'STRING' else t}" for c, t in columns.items())
    connection.execute(f"CREATE OR REPLACE TABLE {name} ({declared})")
    marks = ", ".join("?" * len(columns))
    for row in rows:
        connection.execute(f"INSERT INTO {name} VALUES ({marks})", [row.get(c) for c in columns])


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> list[Row]:
    """The rows of a query in Spark's SQL, values as in case files.

    Raises:
        duckdb.BinderException: DuckDB has other types for it (DATE - DATE is an integer there).
    """
    found = connection.execute(as_duckdb(query))
    names = [column[0] for column in found.description or []]
    return [dict(zip(names, map(as_json, row), strict=True)) for row in found.fetchall()]


def size(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    """How many rows `answer` would give."""
    counted = connection.execute(f"SELECT count(*) FROM ({as_duckdb(query)})").fetchone()
    return int(counted[0]) if counted else 0


def as_duckdb(query: str) -> str:
    """Spark's SQL as DuckDB takes it: intervals spelt out, null-safe equality by its standard name, SEMI and
    ANTI without LEFT."""

    def interval(found: re.Match[str]) -> str:
        days, clock = found.group(1), found.group(2)
        return f"(INTERVAL '{days}' DAY + INTERVAL '{clock}')"

    query = re.sub(r"INTERVAL '(-?\d+) ([\d:.]+)' DAY TO SECOND", interval, query)
    query = re.sub(r"\bLEFT (SEMI|ANTI)\b", r"\1", query)
    return query.replace("<=>", "IS NOT DISTINCT FROM")


def as_json(value: Any) -> Any:
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    return str(value) if isinstance(value, decimal.Decimal) else value
