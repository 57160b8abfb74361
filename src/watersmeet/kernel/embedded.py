"""The embedded SQL engine, one of the process."""

from __future__ import annotations

import atexit

import duckdb

_connection: duckdb.DuckDBPyConnection | None = None


def connection() -> duckdb.DuckDBPyConnection:
    """One thread, UTC."""
    global _connection
    if _connection is None:
        _connection = duckdb.connect(":memory:", config={"threads": 1})
        _connection.execute("SET TimeZone = 'UTC'")
        atexit.register(_close)
    return _connection


def _close() -> None:
    """Before the interpreter ends: DuckDB then prints all objects of its own that are still there, and where
    Spark has been the modules that hold them are not taken down first."""
    global _connection
    if _connection is not None:
        _connection.close()
        _connection = None
