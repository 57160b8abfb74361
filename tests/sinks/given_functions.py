"""Functions as a user writes them, for function sinks."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from watersmeet import Part

CALLS: list[tuple[Part, pa.Table]] = []
"""Of `keep`, in this process."""


class Impolite(BaseException):
    """No Exception, and it does not say what."""

    def __str__(self) -> str:
        raise ValueError("nothing to say")


def keep(part: Part, rows: pa.RecordBatchReader) -> None:
    CALLS.append((part, rows.read_all()))


def slow(part: Part, rows: pa.RecordBatchReader) -> None:
    time.sleep(0.3)
    keep(part, rows)


def first_batch(part: Part, rows: pa.RecordBatchReader) -> None:
    if part.number:
        rows.read_next_batch()


def skips(part: Part, rows: pa.RecordBatchReader) -> None:
    part.skip()


def swallows(part: Part, rows: pa.RecordBatchReader) -> None:
    try:
        rows.read_all()
    except Exception:
        part.skip()


def fails(part: Part, rows: pa.RecordBatchReader) -> None:
    rows.read_all()
    if part.number == 1:
        raise KeyError("no\nsuch thing")


def exits(part: Part, rows: pa.RecordBatchReader) -> None:
    raise SystemExit(3)


def impolite(part: Part, rows: pa.RecordBatchReader) -> None:
    raise Impolite


async def waits(part: Part, rows: pa.RecordBatchReader) -> None:
    return


def yields(part: Part, rows: pa.RecordBatchReader) -> Any:
    yield rows


def one(part: Part) -> None:
    return


class Writer:
    @staticmethod
    def put(part: Part, rows: pa.RecordBatchReader) -> None:
        keep(part, rows)


NUMBER = 1

TABLES = """
CREATE TABLE IF NOT EXISTS parts (job TEXT, "insert" TEXT, tick INT, number INT, PRIMARY KEY (job, "insert", tick, number));
CREATE TABLE IF NOT EXISTS rows (tick INT, part INT, k TEXT, v TEXT);
CREATE TABLE IF NOT EXISTS calls (tick INT, part INT, parts INT, was_there INT);
"""  # noqa: E501


def into_sqlite(part: Part, rows: pa.RecordBatchReader) -> None:
    """Of columns k and v, into the file ``given.db`` of the folder that the process runs in."""
    with closing(sqlite3.connect(Path("given.db"), timeout=60, isolation_level=None)) as base:
        base.executescript(TABLES)
        base.execute("BEGIN IMMEDIATE")
        name = (part.job, part.insert, part.tick, part.number)
        is_new = base.execute("INSERT OR IGNORE INTO parts VALUES (?, ?, ?, ?)", name).rowcount
        base.execute(
            "INSERT INTO calls VALUES (?, ?, ?, ?)", (part.tick, part.number, part.parts, not is_new)
        )
        if is_new:
            for batch in rows:
                values = zip(*(column.to_pylist() for column in batch.columns), strict=True)
                base.executemany(
                    f"INSERT INTO rows VALUES ({part.tick}, {part.number}, ?, ?)",
                    [(row[0], None if row[1] is None else str(row[1])) for row in values],
                )
        else:
            part.skip()
        base.execute("COMMIT")
