"""Rows that a job has set aside, as samples: of the last files of its side output, where these are JSON or
Parquet in a folder that this process can read.

What is there was written for people; it is shown on the served page, and in no report.
"""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.history.planned import SideFiles

MOST_ROWS, MOST_FILES = 20, 5
MOST_CHARACTERS = 300
_TAIL = 64 * 1024
_PUBLISHED = re.compile(r"[^._].*-(\d{12})-\d{5,}[-.].+")
_COLUMNS = ("input", "reason", "late_by", "watermark_key", "record")


def samples_of(files: SideFiles | None) -> list[dict[str, Any]]:
    """The last rows, newest file first; none where nothing can be read."""
    if files is None:
        return []
    rows: list[dict[str, Any]] = []
    try:
        for file in _newest(Path(files.path), files.format):
            read = _of_parquet(file) if files.format == "parquet" else _of_json(file)
            rows += [_shown(row) for row in read]
            if len(rows) >= MOST_ROWS:
                break
    except (OSError, ValueError, pa.ArrowException):
        pass  # it goes on being written, or is none of ours: what could be read is enough
    return rows[:MOST_ROWS]


def _newest(folder: Path, kind: str) -> list[Path]:
    """Those of the last ticks, which published files have in their names; there may be very many."""
    files = [
        (int(of_tick[1]), name)
        for name in os.listdir(folder)
        if (of_tick := _PUBLISHED.fullmatch(name)) and name.endswith(f".{kind}")
    ]
    return [folder / name for _, name in heapq.nlargest(MOST_FILES, files)]


def _of_parquet(file: Path) -> list[dict[str, Any]]:
    with pq.ParquetFile(file) as opened:
        last = opened.num_row_groups - 1
        names = [name for name in _COLUMNS if name in opened.schema_arrow.names]
        batches = opened.iter_batches(MOST_ROWS, row_groups=[last], columns=names) if last >= 0 else iter(())
        return [row for batch in islice(batches, 1) for row in batch.to_pylist()]


def _of_json(file: Path) -> Iterator[dict[str, Any]]:
    """Of the end of the file, the first line of which may be half of one."""
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        opened.seek(max(0, size - _TAIL))
        lines = opened.read().splitlines()[1 if size > _TAIL else 0 :]
    for line in lines[-MOST_ROWS:]:
        row = json.loads(line)
        if isinstance(row, dict):
            yield row


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    told = {name: row.get(name) for name in _COLUMNS}
    record = told["record"]
    text = record if isinstance(record, str) else json.dumps(record)
    told["record"] = text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
    return told
