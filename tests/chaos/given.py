"""A function as a user writes it, which is idempotent: each part of a tick is a file of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from watersmeet import Part


def write_part(part: Part, rows: pa.RecordBatchReader) -> None:
    """Into the folder ``given`` of the one that the process runs in."""
    folder = Path("given")
    folder.mkdir(exist_ok=True)
    whole = folder / f"{part.insert}-{part.tick}-{part.number}.parquet"
    parquet.write_table(rows.read_all(), whole.with_suffix(".new"))
    os.replace(whole.with_suffix(".new"), whole)
