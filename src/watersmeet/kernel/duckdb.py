"""The embedded SQL engine, one per process, which all threads share.

It is loaded at its first use: most jobs never use it, and it takes 13 MB.
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_connection: duckdb.DuckDBPyConnection | None = None
_OPENING = threading.Lock()


def connection() -> duckdb.DuckDBPyConnection:
    """Return the shared DuckDB connection, which has one thread and time zone UTC.

    Queries go through a cursor, and each thread has its own.
    """
    global _connection
    with _OPENING:
        import duckdb

        if _connection is None:
            opened = duckdb.connect(":memory:", config={"threads": 1})
            opened.execute("SET GLOBAL TimeZone = 'UTC'")  # a cursor has no settings but these
            atexit.register(_close)
            _connection = opened
        return _connection


def failure() -> type[Exception]:
    """Return the base class of all errors that DuckDB raises."""
    import duckdb

    return duckdb.Error


def _close() -> None:
    """Close the connection before the interpreter ends.

    DuckDB otherwise prints all of its objects that still exist, and in a process that ran Spark the
    interpreter does not tear down the modules that own them first.
    """
    global _connection
    if _connection is not None:
        _connection.close()
        _connection = None
