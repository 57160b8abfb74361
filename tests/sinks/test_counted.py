"""Rows of text files are counted from their bytes, wherever a piece that is read ends."""

from __future__ import annotations

import bz2
import gzip
import random
import zlib

import pytest

from watersmeet.sinks import row_counts
from watersmeet.sinks.row_counts import lines_in, records_in

PARTS = ['"', "\\", "\n", ",", "\r", "a", "é", "\u2028", " ", "#"]


def as_spark_writes(value: str | None) -> str:
    """A field as Spark's writer has it by default; see `tests/sinks/test_on_spark.py`."""
    if value is None:
        return ""
    if not value:
        return '""'
    if not set(value) & set('",\r\n') and not value.startswith("#"):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1 << 20])
def test_records_of_csv(seed, piece, tmp_path, monkeypatch):
    monkeypatch.setattr(row_counts, "CHUNK_BYTES", piece)
    source = random.Random(seed)
    for number in range(40):
        rows = [
            [
                source.choice([None, "".join(source.choices(PARTS, k=source.randrange(6)))])
                for _ in range(source.randrange(2, 4))
            ]
            for _ in range(source.randrange(8))
        ]
        file = tmp_path / f"{number}.csv"
        file.write_bytes("".join(",".join(map(as_spark_writes, row)) + "\n" for row in rows).encode())
        assert records_in(file) == len(rows), (seed, rows)


def test_lines(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"a":"\\n"}\n{}\n')
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b"{}\n" * 100_000))
    (tmp_path / "b.json").write_bytes(b"")
    assert [lines_in(tmp_path / name) for name in ("a.json", "a.json.gz", "b.json")] == [2, 100_000, 0]


@pytest.mark.parametrize(
    ("name", "pack"), [("a.gz", gzip.compress), ("a.bz2", bz2.compress), ("a.deflate", zlib.compress)]
)
def test_compressed(name, pack, tmp_path, seed):
    line = bytes(random.Random(seed).choices(range(32, 127), k=100)) + b"\n"
    content = line * 30_000  # many times of what is read at once, and of what is held
    (tmp_path / name).write_bytes(pack(content))
    assert lines_in(tmp_path / name) == 30_000
    (tmp_path / name).write_bytes(pack(content)[:-20])
    with pytest.raises(EOFError):
        lines_in(tmp_path / name)
