"""Whether two results are the same bag of rows; DuckDB's batch join of the input is the third opinion.

A fingerprint is (rows, sum of one 64-bit hash per row, sum of another): equal bags have equal ones, and
unequal ones all but never. It takes one pass over the files, in little memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from glob import glob
from pathlib import Path

import duckdb

from benchmarks.workloads import KINDS, SENTINEL_KEYS


@dataclass(frozen=True)
class Fingerprint:
    rows: int
    first: int
    second: int


def of_files(kind: str, *patterns: str) -> Fingerprint:
    """The fingerprint of all rows in the Parquet files that match (glob) ``patterns``; there may be none."""
    with _connect() as db:
        return _fingerprint(db, kind, _files(kind, patterns))


def expected(data: Path, kind: str) -> Fingerprint:
    """The fingerprint of the batch join of a workload's files: all rows but the sentinels'."""
    with _connect() as db:
        return _fingerprint(db, kind, _batch_join(data, kind))


def difference(data: Path, kind: str, *patterns: str) -> str:
    """For people: how many rows are missing and how many are too many, with one of each."""
    with _connect() as db:
        texts = []
        want, have = _batch_join(data, kind), _files(kind, patterns)
        for what, one, other in (("missing", want, have), ("too many", have, want)):
            found = db.execute(f"SELECT count(*), min(d) FROM (({one}) EXCEPT ALL ({other})) AS d").fetchone()
            assert found is not None
            texts.append(f"{found[0]} {what}" + (f", such as {found[1]}" if found[0] else ""))
        return "; ".join(texts)


def _connect() -> duckdb.DuckDBPyConnection:
    db = duckdb.connect(config={"threads": 2, "memory_limit": "3GB"})
    db.execute("SET TimeZone = 'UTC'")
    return db


def _columns(kind: str) -> list[str]:
    return [name for _, name in KINDS[kind].outputs]


def _plain(kind: str) -> str:
    return ", ".join(f"epoch_us({c}) AS {c}" if c.endswith("t") else c for c in _columns(kind))


def _files(kind: str, patterns: tuple[str, ...]) -> str:
    there = [pattern for pattern in patterns if glob(pattern)]
    if not there:
        return f"SELECT {', '.join(f'NULL::BIGINT AS {c}' for c in _columns(kind))} WHERE FALSE"
    return f"SELECT {_plain(kind)} FROM read_parquet({there})"


def _batch_join(data: Path, kind: str) -> str:
    sides = {
        side: f"(SELECT * FROM read_parquet('{data}/{side}/*.parquet') WHERE k <> {key}) AS {side}"
        for side, key in SENTINEL_KEYS.items()
    }
    return f"SELECT {_plain(kind)} FROM ({KINDS[kind].select(sides)})"


def _fingerprint(db: duckdb.DuckDBPyConnection, kind: str, query: str) -> Fingerprint:
    columns = ", ".join(_columns(kind))
    row = db.execute(
        f"SELECT count(*), coalesce(sum(hash({columns})), 0), coalesce(sum(hash({columns}, 1)), 0)"
        f" FROM ({query})"
    ).fetchone()
    assert row is not None
    return Fingerprint(*(int(value) for value in row))
