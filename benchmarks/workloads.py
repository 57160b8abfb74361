"""Three streams as Parquet files, made from a seed, and joins of two or all of them: what both systems read.

    tick i (0-based), side l, r, x:  <data>/l/000i-f.parquet, one file (or more) that one tick reads

    k BIGINT      uniform among as many keys as a tick has rows per side: 63 % of them occur per tick and side
    t TIMESTAMP   minute i, uniform, and up to `DISORDER_S` seconds into the minute before
    v BIGINT      the row's number
    s STRING      6 characters, 1,000 different

One tick moves event time by one minute, so the band of two minutes, ``r.t BETWEEN l.t AND l.t + 2
minutes``, holds two ticks' rows: 2 matches per left row, and 13 % of the left rows (e⁻²) without one. The
third stream joins by a band of one minute: 1 match per left row, and 37 % of those that have none. The
watermark lags by more than the disorder: no row is late.

State: left rows stay for the band and both lags, right rows for their lag: ``lag_s`` sets the state's size
and does not change what matches. A workload with much state begins with larger files (`fill_minutes`) of
the same density.

The last file of each side is a sentinel: one row far ahead that matches nothing and moves the watermarks
past the others. Spark cannot end its input; after the sentinel both systems have put out every match and
every pad.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

SIDES = ("l", "r", "x")
MINUTE_US = 60_000_000
BAND_MINUTES = 2
BANDS = {"r": BAND_MINUTES, "x": 1}
"""Per side that joins: minutes from ``l.t`` on."""
DISORDER_S = 5
EPOCH_US = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
SENTINEL_US = EPOCH_US + 365 * 24 * 60 * MINUTE_US
SENTINEL_KEYS = {"l": -1, "r": -2, "x": -3}
MARK = "workload.json"
WARM_UP_TICKS = 3
"""Ticks that do not count as warm: the first compile code, start workers, load classes."""

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("v", pa.int64()),
        ("s", pa.string()),
    ]
)


@dataclass(frozen=True)
class Kind:
    """A join of ``sides``, in this order; ``word``: before every JOIN."""

    word: str
    sides: tuple[str, ...]

    @property
    def outputs(self) -> tuple[tuple[str, str], ...]:
        """(column of a side, name) of the result."""
        return (
            ("l.k", "k"),
            *((f"{side}.{c}", f"{side}{c}") for side in self.sides for c in ("t", "v", "s")),
        )

    def select(self, tables: Mapping[str, str]) -> str:
        """The join as SQL. ``tables``: per side, with its alias."""
        columns = ", ".join(f"{column} AS {name}" for column, name in self.outputs)
        joins = "".join(f" {self.word} JOIN {tables[s]} ON {condition(s)}" for s in self.sides[1:])
        return f"SELECT {columns} FROM {tables['l']}{joins}"


def condition(side: str) -> str:
    """By which a side joins ``l``."""
    return f"{side}.k = l.k AND {side}.t BETWEEN l.t AND l.t + INTERVAL '{BANDS[side]}' MINUTES"


KINDS = {
    "inner": Kind("INNER", ("l", "r")),
    "left": Kind("LEFT OUTER", ("l", "r")),
    "inner3": Kind("INNER", ("l", "r", "x")),
    "left3": Kind("LEFT OUTER", ("l", "r", "x")),
}


@dataclass(frozen=True)
class Workload:
    """``rows``: per side and tick; ``ticks``: measured ones, after the fill; ``files``: per side and tick;
    ``fill_minutes``, ``fill_ticks``: event time that goes in first, in so many larger ticks; ``heap``: of the
    JVM, in both systems."""

    name: str
    rows: int
    ticks: int
    lag_s: int = 10
    files: int = 1
    fill_minutes: int = 0
    fill_ticks: int = 0
    heap: str = "2g"
    seed: int = 7

    @property
    def all_ticks(self) -> int:
        """Fill and measured ones, without the sentinel."""
        return self.fill_ticks + self.ticks

    @property
    def warm_from(self) -> int:
        """The first tick that counts as warm."""
        return self.fill_ticks + (0 if self.fill_ticks else min(WARM_UP_TICKS, self.ticks - 1))

    def rows_of(self, tick: int, sides: int = 2) -> int:
        """Rows of so many sides together that a tick reads."""
        return sides * self.rows * len(self.minutes_of(tick))

    def minutes_of(self, tick: int) -> range:
        if tick >= self.fill_ticks:
            start = self.fill_minutes + tick - self.fill_ticks
            return range(start, start + 1)
        return range(
            tick * self.fill_minutes // self.fill_ticks, (tick + 1) * self.fill_minutes // self.fill_ticks
        )


WORKLOADS = {
    each.name: each
    for each in (
        Workload("1k", rows=1_000, ticks=40),
        Workload("100k", rows=100_000, ticks=12),
        Workload("100k-4-files", rows=100_000, ticks=12, files=4),
        Workload("100k-state-1", rows=100_000, ticks=9, fill_minutes=60, fill_ticks=12, heap="8g"),
        Workload("500k", rows=500_000, ticks=8, heap="4g"),
        # 50 times the retained rows: 2 lags + band = 50 * (2 * 10 s + 2 min) = 7,000 s; and the same rows, as
        # warm, with little state, to compare with
        Workload(
            "100k-state-50", rows=100_000, ticks=9, lag_s=3_440, fill_minutes=60, fill_ticks=12, heap="8g"
        ),
    )
}


def minute(workload: Workload, side: str, number: int) -> pa.Table:
    """The rows of one side and one minute, in the order in which they arrive."""
    rng = np.random.default_rng([workload.seed, SIDES.index(side), number])
    rows = workload.rows
    times = rng.integers(-DISORDER_S * 1_000_000, MINUTE_US, rows) + EPOCH_US + number * MINUTE_US
    words = pa.array([f"it{n:04d}" for n in range(1_000)])
    return pa.table(
        [
            pa.array(rng.integers(0, rows, rows)),
            pa.array(times).cast(SCHEMA.field("t").type),
            pa.array(np.arange(number * rows, (number + 1) * rows)),
            words.take(pa.array(rng.integers(0, 1_000, rows))),
        ],
        schema=SCHEMA,
    )


def sentinel(side: str) -> pa.Table:
    """The last row of a side: see the module."""
    return pa.table(
        [
            pa.array([SENTINEL_KEYS[side]]),
            pa.array([SENTINEL_US]).cast(SCHEMA.field("t").type),
            pa.array([-1]),
            pa.array(["end"]),
        ],
        schema=SCHEMA,
    )


def prepare(workload: Workload, root: Path) -> Path:
    """The directory of the workload's files, written if they are not there. One directory per content.

    Spark takes files in the order of their modification times, so these are set, a second apart.
    """
    wanted = json.dumps({**asdict(replace(workload, heap="")), "sides": SIDES}, sort_keys=True)
    data = root / workload.name
    mark = data / MARK
    if mark.exists() and mark.read_text() == wanted:
        return data
    shutil.rmtree(data, ignore_errors=True)
    for side in SIDES:
        (data / side).mkdir(parents=True)
        for tick in range(workload.all_ticks):
            table = pa.concat_tables(minute(workload, side, n) for n in workload.minutes_of(tick))
            _write(data / side, tick, table, workload.files)
        # as many files as any tick has: each tick reads that many
        _write(data / side, workload.all_ticks, sentinel(side), workload.files)
    mark.write_text(wanted)
    return data


def no_rows(root: Path) -> Path:
    """The directory of a workload without ticks: no files at all."""
    data = root / "no-rows"
    for side in SIDES:
        (data / side).mkdir(parents=True, exist_ok=True)
    known = {**asdict(Workload("no-rows", rows=0, ticks=0, heap="")), "sides": SIDES}
    (data / MARK).write_text(json.dumps(known, sort_keys=True))
    return data


def prepared(data: Path, heap: str) -> Workload:
    """The workload whose files are in ``data``."""
    known = json.loads((data / MARK).read_text())
    del known["sides"]
    return replace(Workload(**known), heap=heap)


def _write(folder: Path, tick: int, table: pa.Table, files: int) -> None:
    cuts = [table.num_rows * part // files for part in range(files + 1)]
    for part, (low, high) in enumerate(pairwise(cuts)):
        path = folder / f"{tick:04d}-{part}.parquet"
        pq.write_table(table.slice(low, high - low), path)
        dated(path, tick * files + part)


def dated(path: Path, number: int) -> None:
    """Give a file a time of change by its number. Files of one millisecond Spark reads in any order, and the
    rows of the older ones are late then."""
    when = EPOCH_US // 1_000_000 + number
    os.utime(path, (when, when))


def recast(data: Path, wanted: str) -> None:
    """Write the files of a workload anew, as CSV or JSON, in place of Parquet."""
    for file in data.glob("*/*.parquet"):
        table, stat = pq.read_table(file), file.stat()
        file.unlink()
        made = file.with_suffix(f".{wanted}")
        if wanted == "csv":
            csv.write_csv(table, made, csv.WriteOptions(quoting_style="none"))
        else:
            times = pc.strftime(table["t"], "%Y-%m-%dT%H:%M:%SZ")  # with the fraction of its seconds
            rows = table.set_column(table.column_names.index("t"), "t", times).to_pylist()
            made.write_text("\n".join(map(json.dumps, rows)))
        os.utime(made, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def format_in(data: Path, side: str) -> str:
    """That of the files of a side; Parquet, where there are none."""
    return next((file.suffix[1:] for file in (data / side).iterdir()), "parquet")


def arrow_bytes_per_row(data: Path) -> float:
    """Bytes of one row of the input in Arrow, all columns, by one file of each side."""
    tables = [pq.read_table(data / side / "0000-0.parquet") for side in SIDES]
    nbytes: int = sum(t.combine_chunks().nbytes for t in tables)
    rows: int = sum(t.num_rows for t in tables)
    return nbytes / rows
