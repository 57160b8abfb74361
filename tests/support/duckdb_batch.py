"""A query over tables of a case file in DuckDB: what a join is, once all rows are there."""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Iterable
from typing import Any

import duckdb

Row = dict[str, Any]


def connect_duckdb() -> duckdb.DuckDBPyConnection:
    """A database in memory, of one thread, whose joins compare all rows.

    DuckDB 2.0 gives rows of an ANTI JOIN by inequalities that have a match, unless it joins by nested loops:
    with ``LEFT ANTI JOIN d ON o.t + 3 > d.t AND NOT (o.v < d.v) AND o.t >= d.t - 1`` one that its own NOT
    EXISTS and SQLite do not give.
    """
    all_rows = 1 << 40
    return duckdb.connect(
        config={"threads": 1, "nested_loop_join_threshold": all_rows, "merge_join_threshold": all_rows}
    )


def fill(
    connection: duckdb.DuckDBPyConnection, name: str, columns: dict[str, str], rows: Iterable[Row]
) -> None:
    """A table of these columns (types as Spark's) with these rows, instead of the one that was there. Each
    column goes over as one list: values of several rows in one statement take twice as long."""
    given = list(rows)
    types = {column: "VARCHAR" if kind == "STRING" else kind for column, kind in columns.items()}
    declared = ", ".join(f"CAST(unnest(?) AS {kind}) AS {column}" for column, kind in types.items())
    values = [[row.get(column) for row in given] for column in columns]
    connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT {declared}", values)


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> list[Row]:
    """The rows of a query in Spark's SQL, values as in case files.

    Raises:
        duckdb.BinderException: DuckDB has other types for it (DATE - DATE is an integer there).
    """
    found = connection.execute(as_duckdb(query))
    return _rows(found, found.fetchall())


def answer_up_to(connection: duckdb.DuckDBPyConnection, query: str, most: int) -> list[Row] | None:
    """The same; None: there are more rows than ``most``."""
    found = connection.execute(as_duckdb(query))
    rows = found.fetchmany(most + 1)
    return None if len(rows) > most else _rows(found, rows)


def _rows(found: duckdb.DuckDBPyConnection, rows: list[tuple[Any, ...]]) -> list[Row]:
    names = [column[0] for column in found.description or []]
    return [dict(zip(names, map(as_json, row), strict=True)) for row in rows]


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
