"""Small Parquet files, of which tests read thousands: `pyarrow.parquet.read_table` looks for a data set of
many files first and has threads for its columns, which takes four times the CPU."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import parquet


def table_in(file: Path | bytes) -> pa.Table:
    """All that one file holds, or these bytes of one."""
    content = file if isinstance(file, bytes) else file.read_bytes()
    return parquet.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
