"""`benchmarks.flink_own`, as far as it goes without Flink: files, statements, and what they match."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from benchmarks import flink_own
from benchmarks.child import Arguments
from benchmarks.workloads import DISORDER_S, KINDS, MINUTE_US, WORKLOADS, Workload, minute, prepare


def arguments(data: Path, workload: Workload, variant: str = "default") -> Arguments:
    return Arguments(workload, data, data / "work", "inner", variant)


@pytest.mark.parametrize("kind", ["inner", "left", "inner3", "left3"])
def test_the_join_in_milliseconds_and_exact_times_has_the_rows_of_the_exact_join(kind: str) -> None:
    workload = Workload("few", rows=300, ticks=3)
    with duckdb.connect() as db:
        for side in KINDS[kind].sides:
            for number in range(workload.ticks):
                rows = minute(workload, side, number)
                db.register(f"{side}{number}", rows)
            every = " UNION ALL ".join(f"FROM {side}{number}" for number in range(workload.ticks))
            db.execute(f"CREATE TABLE {side} AS SELECT *, date_trunc('milliseconds', t) AS e FROM ({every})")
        # rows at the very ends of the interval, and just out of it, by less than a millisecond
        for v, (left, right) in enumerate(
            ((1_500, 1_499), (1_500, 1_500), (1_500, 120_001_500), (1_500, 120_001_501))
        ):
            for side, at in (("l", left), ("r", right)):
                db.execute(
                    f"INSERT INTO {side} SELECT {-v - 9}, make_timestamptz({at}), {v}, 'end', "
                    f"date_trunc('milliseconds', make_timestamptz({at}))"
                )
        theirs = flink_own.insert(kind).removeprefix("INSERT INTO joined ")
        ours = KINDS[kind].select({side: side for side in KINDS[kind].sides})
        for one, other in ((theirs, ours), (ours, theirs)):
            assert db.execute(f"({one}) EXCEPT ALL ({other})").fetchall() == []
        assert db.execute(f"SELECT count(*) FROM ({ours})").fetchone() != (0,)


def test_files_are_read_in_the_order_of_time_and_without_sentinels(tmp_path: Path) -> None:
    workload = Workload("few", rows=2, ticks=11, files=2)
    given = arguments(prepare(workload, tmp_path), workload, "sql")
    names = [path.name for path in flink_own.files(given, "r")]
    assert names == [f"{tick:04d}-{part}.parquet" for tick in range(11) for part in range(2)]
    found = re.search(r"'source.path.regex-pattern' = '(.*?)', ", flink_own.source_table(given, "r"))
    assert found is not None
    there = sorted((given.data / "r").iterdir())
    assert [path.name for path in there if re.fullmatch(found[1], str(path))] == names


def test_default_lag_covers_the_disorder_of_rows_in_file_order() -> None:
    """By the rows themselves: the greatest time so far, less the lag."""
    workload = WORKLOADS["1k"]
    found = re.fullmatch(r"INTERVAL '(\d+)' SECOND", flink_own.lag("default"))
    assert found is not None
    behind, newest = 0, 0
    for number in range(5):
        for at in minute(workload, "l", number)["t"].cast("int64").to_pylist():
            newest = max(newest, at)
            behind = max(behind, newest - at)
    assert DISORDER_S * 1_000_000 < MINUTE_US < behind <= int(found[1]) * 1_000_000


def test_the_table_of_the_result_has_every_column_and_exact_times(tmp_path: Path) -> None:
    text = flink_own.sink_table(arguments(tmp_path, WORKLOADS["1k"]))
    assert "(k BIGINT, lt TIMESTAMP(6), lv BIGINT, ls STRING, rt TIMESTAMP(6), rv BIGINT, rs STRING)" in text
    assert "'parquet.timestamp.time.unit' = 'micros'" in text
