"""Two results are the same when they are the same bag, in whatever order and files."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import compare
from benchmarks.workloads import KINDS, SENTINEL_KEYS, Workload, prepare


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return prepare(Workload("small", rows=300, ticks=3), tmp_path / "data")


def join_sides(data: Path, kind: str) -> pa.Table:
    sides = {s: f"(FROM '{data}/{s}/*.parquet' WHERE k <> {k}) {s}" for s, k in SENTINEL_KEYS.items()}
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        return db.sql(KINDS[kind].select(sides)).to_arrow_table()


@pytest.mark.parametrize("kind", KINDS)
def test_order_and_files_do_not_matter(data, tmp_path, kind):
    rows = join_sides(data, kind)
    (tmp_path / "out").mkdir()
    pq.write_table(rows.slice(100), tmp_path / "out" / "a.parquet")
    pq.write_table(rows.slice(0, 100), tmp_path / "out" / "b.parquet")
    assert compare.of_files(kind, f"{tmp_path}/out/*.parquet") == compare.expected(data, kind)
    assert compare.difference(data, kind, f"{tmp_path}/out/*.parquet") == "0 missing; 0 too many"


def test_a_row_twice_and_a_row_missing_show(data, tmp_path):
    rows = join_sides(data, "left")
    changed = pa.concat_tables([rows.slice(1), rows.slice(1, 1)])
    (tmp_path / "out").mkdir()
    pq.write_table(changed, tmp_path / "out" / "a.parquet")
    found = compare.of_files("left", f"{tmp_path}/out/*.parquet")
    assert found.rows == compare.expected(data, "left").rows
    assert found != compare.expected(data, "left")
    text = compare.difference(data, "left", f"{tmp_path}/out/*.parquet")
    assert text.startswith("1 missing, such as")
    assert "1 too many, such as" in text


def test_no_files_are_no_rows(data, tmp_path):
    assert compare.of_files("inner3", f"{tmp_path}/none/*.parquet").rows == 0
