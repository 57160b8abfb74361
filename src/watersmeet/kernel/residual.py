"""Expressions in the embedded SQL engine, over Arrow: columns that tasks compute of joined rows."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa

from watersmeet.errors import EngineError

_connection: duckdb.DuckDBPyConnection | None = None


def connection() -> duckdb.DuckDBPyConnection:
    """The process's embedded engine: one thread, UTC."""
    global _connection
    if _connection is None:
        _connection = duckdb.connect(":memory:", config={"threads": 1})
        _connection.execute("SET TimeZone = 'UTC'")
    return _connection


def computed(texts: Mapping[str, str], rows: pa.Table) -> pa.Table:
    """The values of DuckDB texts for every row, in order, under their names.

    Raises:
        EngineError: an expression fails on a value.
    """
    parts = ", ".join(f"({text}) AS {_quoted(name)}" for name, text in texts.items())
    cursor = connection().cursor()
    try:
        cursor.register("joined", rows)
        return cursor.sql(f"SELECT {parts} FROM joined").to_arrow_table()
    except duckdb.Error as error:
        raise EngineError(
            f"an expression over joined rows failed: {error}",
            code="condition-failed",
            hint=f"the expressions were: {', '.join(texts.values())}",
        ) from None
    finally:
        cursor.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
