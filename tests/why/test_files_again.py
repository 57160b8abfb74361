"""What `why` reads of files again. Those of one tick are in the order in which their records of a primary key
count: by their times of change in milliseconds, and then by their names, whatever order the lists have."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from watersmeet.cli.job_file import job_in
from watersmeet.runtime.files.first_rows import read_file_rows
from watersmeet.runtime.spark.checkpoint.spark_positions import SOURCES
from watersmeet.runtime.spark.sources.files.reread import RereadFiles, reread_files
from watersmeet.spec.model import Column, Source
from watersmeet.state import file_lists
from watersmeet.state.file_lists import FileRead
from watersmeet.state.store import MemoryStore
from watersmeet.types.sql_type import BIGINT

SECOND = 1_000_000_000


def again(root: Path, files: list[tuple[str, int, int]], *, key: str = " PRIMARY KEY NOT ENFORCED") -> Any:
    """Of files of a table, each with its place in the log and the milliseconds of its time of change, in the
    order of the lists; two places are of one tick."""
    text = f"""CREATE TABLE p (id BIGINT{key}, op STRING)
        WITH ('connector' = 'file', 'path' = '{root}', 'format' = 'json', 'op.column' = 'op');
        CREATE SINK q WITH ('connector' = 'memory'); INSERT INTO q SELECT id FROM p EMIT CHANGES;"""
    (source,) = job_in(text, "job.sql", {}, None).inserts[0].query.inputs[0].sources
    reads = []
    for number, (name, batch, time_ms) in enumerate(files):
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"id": number, "op": "I"}) + "\n")
        os.utime(path, ns=(0, SECOND + time_ms * 1_000_000 + 7 * (9 - number)))
        info = path.stat()
        reads.append(FileRead(0, batch, path.as_uri(), 1000 + time_ms, info.st_size, info.st_mtime_ns))
    store = MemoryStore()
    lists = file_lists.add(store, [], reads)
    host = {SOURCES: ["file p"], file_lists.KEY: [own.model_dump() for own in lists]}
    return reread_files(source, store, host, "UTC", frozenset({"id"}), lambda batch: batch // 2)


def names(found: RereadFiles) -> list[str]:
    return [os.path.basename(path) for path, *_ in found.read]


def test_files_of_a_tick_count_by_time_and_name(tmp_path: Path) -> None:
    files = [("c.json", 0, 2), ("b ä.json", 0, 1), ("a.json", 0, 1), ("z.json", 1, 0), ("9.json", 2, 0)]
    found = again(tmp_path, files)
    assert names(found) == ["z.json", "a.json", "b ä.json", "c.json", "9.json"]
    assert not found.missing


def test_files_of_one_time_and_name_are_in_no_order(tmp_path: Path) -> None:
    files = [("d=1/a.json", 0, 1), ("d=2/a.json", 0, 1), ("d=3/a.json", 2, 1)]
    found = again(tmp_path, files)
    ((words, place),) = found.missing
    assert (words.endswith("so the order of their rows is unknown"), place) == (True, 0)
    assert len(found.read) == 2
    assert not again(tmp_path, files, key="").missing


def test_ids_that_no_double_holds_are_read(tmp_path: Path) -> None:
    ids = (2**53 + 1, 2**63 - 1, 1 - 2**63)
    (tmp_path / "1.json").write_text("".join(f'{{"id": {number}}}\n' for number in ids))
    (tmp_path / "2.csv").write_text("id\n" + "".join(f"{number}\n" for number in ids))
    for file, kind in (("1.json", "json"), ("2.csv", "csv")):
        options = {"path": str(tmp_path / file), "format": kind} | (
            {"header": "true"} if kind == "csv" else {}
        )
        read = read_file_rows(Source("p", (Column("id", BIGINT),), "file", options), options["path"])
        assert ([row["id"] for row in read.rows], read.left_out) == ([*ids], 0)
