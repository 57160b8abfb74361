"""A job over JSON files that is run in this process and leaves what Spark's runs leave: state, the lists of
files that were read, and a history. So commands that look at these need no JVM.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.recorded import RecordedJob
from watersmeet.runtime.coordinator.commit import StagedParts
from watersmeet.runtime.coordinator.results import TickResult
from watersmeet.runtime.local.tick import SinkStaging
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.checkpoint.spark_positions import SOURCES
from watersmeet.state import file_lists
from watersmeet.state.file_lists import FileList, FileRead

SALES = """
CREATE TABLE customers (id BIGINT PRIMARY KEY NOT ENFORCED, segment STRING, op STRING)
    WITH ('connector' = 'file', 'path' = 'customers', 'format' = 'json', 'op.column' = 'op');
CREATE TABLE orders (number BIGINT, customer BIGINT, d INT)
    WITH ('connector' = 'file', 'path' = 'orders', 'format' = 'json', 'diff.column' = 'd');
CREATE SINK sales WITH ('connector' = 'memory');
INSERT INTO sales
SELECT c.segment, o.number FROM orders o LEFT JOIN customers c ON c.id = o.customer EMIT CHANGES;
"""
"""Two tables that change: customers by their key, and orders whose rows come and go."""

CLOCK_US = 1_800_000_000_000_000
"""Of ticks of which no other clock is said: in 2027."""


class FileJob(RecordedJob):
    """``folders``: per source, where its files are written to."""

    def __init__(self, text: str, checkpoint: Checkpoint, folders: Mapping[str, Path]) -> None:
        super().__init__(text, checkpoint.store)
        self._store, self._folders = checkpoint.store, folders
        self._lists: list[FileList] = []
        self._steps = dict.fromkeys(folders, 0)
        self._read: list[FileRead] = []
        self._names = [source.name for source in self.job.plan.sources]
        self._sources = [f"{source.connector} {source.name}" for source in self.job.plan.sources]

    def to_sinks(self) -> SinkStaging:
        self._lists = file_lists.add(self._store, self._lists, self._read)
        listed = {file_lists.KEY: [entry.model_dump() for entry in self._lists]}
        return SinkStaging(lambda tick, rows: StagedParts(), {SOURCES: self._sources, **listed})

    def told(self, result: TickResult) -> TickResult:
        return replace(result, read={name: {"files": steps} for name, steps in self._steps.items()})

    def read(self, files: Mapping[str, Sequence[Any]], clock_us: int = CLOCK_US) -> None:
        """A tick that reads one file of each of these sources: rows, and texts of records that are none."""
        self._read = []
        rows: dict[str, list[Any]] = {}
        for name, records in files.items():
            path = self.write(name, records)
            info = path.stat()
            place, step = self._names.index(name), self._steps[name]
            self._read.append(FileRead(place, step, path.as_uri(), 0, info.st_size, info.st_mtime_ns))
            self._steps[name] += 1
            rows[name] = [record for record in records if not isinstance(record, str)]
        self.run_read_tick(rows, clock_us)

    def read_in_steps(self, name: str, files: Sequence[tuple[int, str, int, Sequence[Any]]]) -> None:
        """A tick that reads files of one source, all their records being rows: of each how many steps of
        Spark's log after the last one it stands, its name, the millisecond in which it was changed, and its
        records, which count by these milliseconds and then by names."""
        self._read, place, step = [], self._names.index(name), self._steps[name]
        for after, file, time_ms, records in files:
            path = self._folders[name] / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
            os.utime(path, ns=(0, time_ms * 1_000_000))
            info = path.stat()
            listed = (place, step + after, path.as_uri(), time_ms, info.st_size, info.st_mtime_ns)
            self._read.append(FileRead(*listed))
            self._steps[name] = max(self._steps[name], step + after + 1)
        in_order = sorted(files, key=lambda own: (own[2], own[1].rpartition("/")[2]))
        self.run_read_tick({name: [record for *_, records in in_order for record in records]}, CLOCK_US)

    def run_read_tick(self, rows: Mapping[str, list[Any]], clock_us: int) -> None:
        """A tick with these rows, and how far all has been read by then."""
        self.tick(clock_us, rows)

    def write(self, name: str, records: Sequence[Any]) -> Path:
        """A file more of a source, that no tick has read."""
        folder = self._folders[name]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{len(list(folder.iterdir())):03}.json"
        lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
        path.write_text("".join(f"{line}\n" for line in lines))
        return path
