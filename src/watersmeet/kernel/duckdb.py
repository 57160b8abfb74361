"""The embedded SQL engine, one of the process, whichever of its threads asks first. It is loaded when it is
first asked for: most jobs never do, and it takes 13 MB."""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_connection: duckdb.DuckDBPyConnection | None = None
_OPENING = threading.Lock()


def connection() -> duckdb.DuckDBPyConnection:
    """One thread, UTC. What is asked of it goes through a cursor, of which each thread has its own."""
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
    """What it raises, whatever is wrong."""
    import duckdb

    return duckdb.Error


def _close() -> None:
    """Before the interpreter ends: DuckDB then prints all objects of its own that are still there, and where
    Spark has been the modules that hold them are not taken down first."""
    global _connection
    if _connection is not None:
        _connection.close()
        _connection = None
