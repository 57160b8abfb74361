"""A query over tables of a case file in DuckDB: what a join is, once all rows are there."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Iterable
from typing import Any

import duckdb

Row = dict[str, Any]
AT_ONCE = 200
"""Rows in one statement. One for each row takes four times as long."""


def fill(
    connection: duckdb.DuckDBPyConnection, name: str, columns: dict[str, str], rows: Iterable[Row]
) -> None:
    """A table of these columns (types as Spark's) with these rows, instead of the one that was there."""
    types = {column: "VARCHAR" if kind == "STRING" else kind for column, kind in columns.items()}
    declared = ", ".join(f"{column} {kind}" for column, kind in types.items())
    connection.execute(f"CREATE OR REPLACE TABLE {name} ({declared})")
    marks = f"({', '.join(f'CAST(? AS {kind})' for kind in types.values())})"
    values = [[row.get(column) for column in columns] for row in rows]
    for first in range(0, len(values), AT_ONCE):
        part = values[first : first + AT_ONCE]
        text = f"INSERT INTO {name} VALUES {', '.join([marks] * len(part))}"
        connection.execute(text, [value for row in part for value in row])


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
