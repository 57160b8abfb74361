"""The DuckDB that answers are compared in. What is more than `MEMORY` of its tables and sums is on disk."""

from __future__ import annotations

from typing import Any

MEMORY = "2GB"

AS_IT_IS = "hive_partitioning = false"
"""Of files: columns are those that are in them, whatever directories are called."""


def opened(folder: str) -> Any:
    """A connection; ``folder``: where it keeps what is too much for memory."""
    import duckdb

    db = duckdb.connect()
    for setting in (
        "TimeZone = 'UTC'",
        f"memory_limit = '{MEMORY}'",
        "enable_progress_bar = false",
        "preserve_insertion_order = false",
        f"temp_directory = {text(f'{folder}/spilled')}",
    ):
        ran(db, f"SET {setting}")
    return db


def ran(db: Any, sql: str) -> list[tuple[Any, ...]]:
    """All that a statement gives."""
    rows: list[tuple[Any, ...]] = db.execute(sql).fetchall()
    return rows


def quoted(name: str) -> str:
    """A name in DuckDB's SQL.

    >>> quoted('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text in DuckDB's SQL.

    >>> text("it's")
    "'it''s'"
    """
    return "'" + value.replace("'", "''") + "'"


def types_of(db: Any, relation: str) -> dict[str, str]:
    """The columns of a relation, and DuckDB's names of their types."""
    return {row[0]: str(row[1]) for row in ran(db, f"DESCRIBE SELECT * FROM {relation} r")}
