"""The embedded SQL engine, one of the process."""

from __future__ import annotations

import duckdb

_connection: duckdb.DuckDBPyConnection | None = None


def connection() -> duckdb.DuckDBPyConnection:
    """One thread, UTC."""
    global _connection
    if _connection is None:
        _connection = duckdb.connect(":memory:", config={"threads": 1})
        _connection.execute("SET TimeZone = 'UTC'")
    return _connection
