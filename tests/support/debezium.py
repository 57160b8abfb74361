"""A small Debezium for tests: the changes of a real Postgres table, as the events that its connector sends.

The server decodes its log itself (a slot of ``test_decoding``); what it prints becomes events with the row
before and after, keyed by the primary key, each delete with a record without a value after it. Values are
encoded as Debezium does by default, but for numerics, which are texts (``decimal.handling.mode=string``).
Source: Debezium's documentation of the PostgreSQL connector, "Data change events" and "Data type mappings".
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.support.postgres import Postgres

UNAVAILABLE = "__debezium_unavailable_value"
"""In the place of a large value that an update did not touch: the log does not hold it."""

SLOT = "debezium"

Event = tuple[int, str, str | None]
"""A record: partition, key, value."""

Row = dict[str, str | None]
"""A row as the server prints it."""

_CHANGE = re.compile(r"table public\.(\w+): (INSERT|UPDATE|DELETE): (.*)", re.DOTALL)
_TEXT = r"'(?:[^']|'')*'|[^ ]+"
_VALUE = re.compile(rf"(\w+)\[[^\]]+\]:({_TEXT})")
_OLD_AND_NEW = re.compile(rf"old-key: ((?:\w+\[[^\]]+\]:(?:{_TEXT}) )*)new-tuple: (.*)", re.DOTALL)
_UNTOUCHED = "unchanged-toast-datum"


@dataclass(frozen=True)
class Captured:
    """A table whose changes go to the topic of its name.

    ``keys``: of its primary key. ``types``: of its columns, as the server calls them. ``enveloped``: schema
    and payload, as with ``schemas.enable``. ``partitions``: of its topic.
    """

    name: str
    keys: tuple[str, ...]
    types: Mapping[str, str]
    enveloped: bool = False
    partitions: int = 1


class Capture:
    """The changes since it was made. ``take`` gives those that were committed since it was called last.

    The tables hold what they hold when it is made: ``snapshot`` tells that. Nothing else may write then.
    """

    def __init__(self, server: Postgres, tables: list[Captured]) -> None:
        self._server = server
        self._tables = {table.name: table for table in tables}
        server.run(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'test_decoding')")

    def snapshot(self) -> dict[str, list[Event]]:
        """The rows that are there, as read (``r``), by table."""
        told = {}
        for table in self._tables.values():
            texts = ", ".join(f"'{name}', {name}::text" for name in table.types)
            rows = self._server.run(f"SELECT json_build_object({texts}) FROM {table.name}")
            told[table.name] = [_event(table, "r", None, json.loads(row), 0) for row in rows.splitlines()]
        return told

    def take(self) -> dict[str, list[Event]]:
        """The events since then, in the order of commits, by table."""
        lines = self._server.run(
            "SELECT json_build_object('lsn', lsn - '0/0'::pg_lsn, 'data', data)"
            f" FROM pg_logical_slot_get_changes('{SLOT}', NULL, NULL)"
        )
        told: dict[str, list[Event]] = {name: [] for name in self._tables}
        for line in map(json.loads, lines.splitlines()):
            change = _CHANGE.fullmatch(line["data"])
            if change is not None:  # else a transaction begins or ends
                name, done, rest = change.groups()
                told[name] += _events(self._tables[name], done, rest, int(line["lsn"]))
        return told


def _events(table: Captured, done: str, rest: str, lsn: int) -> Iterator[Event]:
    if done == "INSERT":
        yield _event(table, "c", None, _row(rest), lsn)
    elif done == "DELETE":
        yield from _build_delete_events(table, _row(rest), lsn)
    else:
        parts = _OLD_AND_NEW.fullmatch(rest)
        before = None if parts is None else _row(parts[1])
        after = _row(rest if parts is None else parts[2])
        for name, value in after.items():
            if value == _UNTOUCHED:
                after[name] = (before or {}).get(name, UNAVAILABLE)
        if before is not None and any(before[name] != after[name] for name in table.keys):
            yield from _build_delete_events(table, before, lsn)
            yield _event(table, "c", None, after, lsn)
        else:
            yield _event(table, "u", before, after, lsn)


def _build_delete_events(table: Captured, before: Row, lsn: int) -> Iterator[Event]:
    event = _event(table, "d", before, None, lsn)
    yield event
    yield (*event[:2], None)


def _row(text: str) -> Row:
    """What is not printed is NULL: of the old row the server leaves such columns out."""
    found: Row = {}
    for name, value in _VALUE.findall(text):
        if value == "null":
            found[name] = None
        else:
            found[name] = value[1:-1].replace("''", "'") if value.startswith("'") else value
    return found


def _event(table: Captured, op: str, before: Row | None, after: Row | None, lsn: int) -> Event:
    keyed = after if after is not None else before
    assert keyed is not None
    key = {name: _value(table, name, keyed[name]) for name in table.keys}
    value = {
        "before": _values(table, before),
        "after": _values(table, after),
        "source": {
            "version": "2.5.0.Final",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": 1_700_000_000_000,
            "snapshot": str(op == "r").lower(),
            "db": "postgres",
            "schema": "public",
            "table": table.name,
            "lsn": lsn,
        },
        "op": op,
        "ts_ms": 1_700_000_000_001,
        "transaction": None,
    }
    texts = [_text(table, part) for part in (key, value)]
    return zlib.crc32(texts[0].encode()) % table.partitions, texts[0], texts[1]


def _text(table: Captured, part: dict[str, Any]) -> str:
    if table.enveloped:
        return json.dumps({"schema": {"type": "struct", "fields": []}, "payload": part})
    return json.dumps(part, ensure_ascii=False)


def _values(table: Captured, row: Row | None) -> dict[str, Any] | None:
    return None if row is None else {name: _value(table, name, row.get(name)) for name in table.types}


def _value(table: Captured, name: str, text: str | None) -> Any:
    kind = table.types[name]
    return text if text in (None, UNAVAILABLE) else _ENCODED[kind](text)


def _micros(text: str) -> int:
    since = datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


_ENCODED: Mapping[str, Callable[[str], Any]] = {
    "text": str,
    "bigint": int,
    "double precision": float,
    "boolean": lambda text: text.startswith("t"),
    "numeric": str,
    "date": lambda text: (datetime.fromisoformat(text) - datetime(1970, 1, 1)).days,
    "timestamp": _micros,
    "timestamp(3)": lambda text: _micros(text) // 1000,
    "timestamptz": lambda text: (
        datetime.fromisoformat(text).astimezone(UTC).isoformat().replace("+00:00", "Z")
    ),
}
