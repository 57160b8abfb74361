"""Rows of ticks in a table of SQLite, with a ledger of ticks in the same transaction: exactly once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from watersmeet import EngineError
from watersmeet.extensions import (
    FrameSink,
    Identity,
    Resumed,
    SinkDeclaration,
    check_same,
    check_unique_names,
    columns_of,
    newer_parts,
)
from watersmeet_sqlite.options import SqliteOptions

LEDGER = """
CREATE TABLE IF NOT EXISTS _watersmeet_ticks (
    target TEXT, owner TEXT, insert_name TEXT, tick INT, identity TEXT,
    PRIMARY KEY (target, insert_name, tick))
"""
_TYPES = {
    "TINYINT": "INT",
    "SMALLINT": "INT",
    "INT": "INT",
    "BIGINT": "INT",
    "BOOLEAN": "INT",
    "DOUBLE": "REAL",
}


class SqliteSink(FrameSink):
    """Writes the rows of a tick and a row of the ledger in one transaction."""

    idempotent = True

    def __init__(self, declaration: SinkDeclaration, console: object = None) -> None:
        self._declaration, self._options = declaration, SqliteOptions.of(declaration.options)
        self._table, self._owner = self._options.table, None
        self._staged: dict[tuple[str, str, int], list[tuple[Any, ...]]] = {}
        self._accepts = False

    def accept_target(self) -> None:
        """Take the table over from another job: see `RemembersTarget`."""
        self._accepts = True

    def prepare(self, schema: Any, owner: str | None = None) -> None:
        columns = columns_of(schema)
        check_unique_names(columns, self._declaration)
        declared = ", ".join(
            f'"{c.name.replace(chr(34), chr(34) * 2)}" {_TYPES.get(c.type.name, "TEXT")}' for c in columns
        )
        with self._transaction() as base:
            base.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({declared})")
            if self._accepts:
                update = "UPDATE _watersmeet_ticks SET owner = ? WHERE target = ?"
                base.execute(update, (owner, self._table))
            self._check_owner(base, owner)
        self._owner = owner

    def write(self, frame: Any, insert: str, tick: int, attempt: str) -> None:
        self._staged[attempt, insert, tick] = [tuple(map(_value, row)) for row in frame.collect()]

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        return len(self._staged[attempt, insert, tick])

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        with self._transaction() as base:
            rows = base.execute(
                "SELECT insert_name, tick FROM _watersmeet_ticks WHERE target = ?", (self._table,)
            )
            parts = [(name, tick) for name, tick in rows.fetchall() if name in inserts]
        name, place = self._declaration.name, f"{self._options.path}, {self._table}"
        newer_parts(name, place, parts, inserts, self._stored, resumed)
        return []

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        return self._stored(insert, tick) is not None

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        with self._transaction() as base:
            self._check(base, insert, tick, identity)

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        rows = self._staged.get((attempt, insert, tick), [])
        with self._transaction() as base:
            if self._check(base, insert, tick, identity):
                return True
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                base.executemany(f"INSERT INTO {self._table} VALUES ({marks})", rows)
                mark = (self._table, self._owner, insert, tick, json.dumps(dict(identity)))
                base.execute("INSERT INTO _watersmeet_ticks VALUES (?, ?, ?, ?, ?)", mark)
        self._staged.pop((attempt, insert, tick), None)
        return bool(rows)

    def discard(self, attempt: str) -> None:
        self._staged = {key: rows for key, rows in self._staged.items() if key[0] != attempt}

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(
            sqlite3.connect(self._options.path, self._options.timeout_s, isolation_level=None)
        ) as base:
            base.execute("BEGIN IMMEDIATE")
            base.execute(LEDGER)
            yield base
            base.execute("COMMIT")

    def _check(self, base: sqlite3.Connection, insert: str, tick: int, identity: Identity) -> bool:
        self._check_owner(base, self._owner)
        stored = self._stored(insert, tick, base)
        if stored is not None:
            check_same(self._declaration.name, self._options.path, insert, tick, stored, identity)
        return stored is not None

    def _check_owner(self, base: sqlite3.Connection, owner: str | None) -> None:
        query = "SELECT owner FROM _watersmeet_ticks WHERE target = ? AND owner IS NOT ? LIMIT 1"
        if base.execute(query, (self._table, owner)).fetchone() is not None:
            raise EngineError(
                f"{self._options.path}: the table {self._table} has rows of another job (sink"
                f' "{self._declaration.name}")',
                code="sink-taken",
                hint="give each job a table of its own",
            )

    def _stored(self, insert: str, tick: int, base: sqlite3.Connection | None = None) -> Identity | None:
        if base is None:
            with self._transaction() as own:
                return self._stored(insert, tick, own)
        query = "SELECT identity FROM _watersmeet_ticks WHERE target = ? AND insert_name = ? AND tick = ?"
        row = base.execute(query, (self._table, insert, tick)).fetchone()
        return None if row is None else dict(json.loads(row[0]))


def _value(value: Any) -> Any:
    return value if value is None or isinstance(value, (int, float, str, bytes)) else str(value)
