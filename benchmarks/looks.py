"""How long one look at the files of a source takes, of which all were read.

python -m benchmarks.looks --files 10000
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from watersmeet.runtime.spark.checkpoint.spark_log import SparkFiles
from watersmeet.runtime.spark.sources.files.progress import BatchFiles, FileProgress
from watersmeet.spec.model import Column, Source
from watersmeet.state.file_lists import FileRead
from watersmeet.state.store import MemoryStore
from watersmeet.types.sql_type import BIGINT


def measure(folder: Path, files: int, pattern: str) -> tuple[float, float]:
    """Medians of 9 looks: wall and CPU, in ms."""
    read = []
    for number in range(files):
        path = folder / f"part-{number:07}.json"
        path.touch()
        found = os.stat(path)
        read.append(FileRead(0, number, f"file://{path}", 0, found.st_size, found.st_mtime_ns))
    options: dict[str, str] = {"path": str(folder / pattern), "format": "json"}
    host: dict[str, Any] = {}
    source = Source("s", (Column("k", BIGINT),), "file", options)
    looking = FileProgress(
        [source], SparkFiles(folder), MemoryStore(), host, print, gone=lambda _: frozenset()
    )
    looking.committed(BatchFiles(read, [], {}))
    wall, cpu = [], []
    for _ in range(9):
        before, used = time.perf_counter(), time.process_time()
        unread = looking.look()
        wall.append(time.perf_counter() - before)
        cpu.append(time.process_time() - used)
        assert unread == {0: {}}
    return statistics.median(wall) * 1000, statistics.median(cpu) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    asked = parser.parse_args()
    for pattern in ("", "*.json"):
        with tempfile.TemporaryDirectory() as folder:
            wall, cpu = measure(Path(folder), asked.files, pattern)
        what = "a pattern" if pattern else "a directory"
        print(f"{asked.files:,} files of {what}: {wall:.0f} ms, CPU {cpu:.0f} ms")


if __name__ == "__main__":
    main()
