"""Workers are started with the session only where the first tick has something for them."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from watersmeet import parse_job, plan_job
from watersmeet.runtime.coordinator import node_cost
from watersmeet.runtime.spark.tick.reading import arrow_ingest
from watersmeet.runtime.spark.tick.reading.read_path import needs_tasks

JOB = """
CREATE TABLE l (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t)
  WITH ('connector' = 'file', 'path' = '{l}'{of_l});
CREATE TABLE r (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t)
  WITH ('connector' = 'file', 'path' = '{r}'{of_r});
CREATE TABLE out WITH ('connector' = 'console');
INSERT INTO out SELECT l.k FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t AND l.t + INTERVAL '1' MINUTE;
"""


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for side in "lr":
        (tmp_path / side).mkdir()
        write(tmp_path / side / "1.parquet", 10)
        (tmp_path / side / "_SUCCESS").write_text("")
    return tmp_path / "l", tmp_path / "r"


def write(file: Path, rows: int, *, at: int = 0) -> None:
    pq.write_table(pa.table({"k": range(rows), "t": pa.array(range(rows), pa.timestamp("us", "UTC"))}), file)
    os.utime(file, (at, at))


def has_work_for_tasks(
    folders: tuple[Path, Path], run: dict[str, str] | None = None, of_l: str = "", of_r: str = ""
) -> bool:
    left, right = folders
    return needs_tasks(plan_job(parse_job(JOB.format(l=left, r=right, of_l=of_l, of_r=of_r))), run or {})


def test_few_rows_in_parquet_need_none(folders):
    assert not has_work_for_tasks(folders)
    assert has_work_for_tasks(folders, {"small_ticks": "spark"})
    assert has_work_for_tasks(folders, {"file_reader": "spark"})
    assert has_work_for_tasks(folders, of_r=", 'format' = 'json', 'multiLine' = 'true'")
    assert has_work_for_tasks(folders, of_r=", 'format' = 'debezium-json'")
    assert has_work_for_tasks(folders, of_r=", 'maxBytesPerTrigger' = '1000000'")
    assert has_work_for_tasks((folders[0], folders[1] / "*.parquet"))
    assert not has_work_for_tasks((folders[0], folders[1] / "1.parquet"))


@pytest.mark.parametrize("wanted", ["csv", "json"])
def test_lines_of_text_are_counted(folders, monkeypatch, wanted):
    for folder in folders:
        (folder / "1.parquet").unlink()
        lines = ["k,t", *["1,"] * 299] if wanted == "csv" else ['{"k": 1}'] * 300
        (folder / f"1.{wanted}").write_text("\n".join(lines))
    of_both = {"of_l": f", 'format' = '{wanted}'", "of_r": f", 'format' = '{wanted}'"}
    assert not has_work_for_tasks(folders, **of_both)
    monkeypatch.setattr(node_cost, "SMALL_ROWS", 299)
    assert has_work_for_tasks(folders, **of_both)
    monkeypatch.setattr(node_cost, "SMALL_ROWS", 300)
    assert not has_work_for_tasks(folders, **of_both)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_ingest, "SMALL_BYTES", 1_000)
        assert has_work_for_tasks(folders, **of_both)
    with (folders[1] / f"1.{wanted}").open("a") as file:
        file.write("\nno record of three,values,\n")
    assert has_work_for_tasks(folders, **of_both), "Spark reads from the start"


def test_text_begins_with_the_first_file_that_has_some(folders):
    for folder in folders:
        (folder / "1.parquet").unlink()
        (folder / "2.csv").write_text("k,t\n1,2024-01-01T00:00:00Z\n")
        (folder / "1.csv").write_text("")
        os.utime(folder / "1.csv", (0, 0))
    of_both = {"of_l": ", 'format' = 'csv'", "of_r": ", 'format' = 'csv'"}
    assert not has_work_for_tasks(folders, **of_both)
    (folders[1] / "1.csv").write_text("\nk,t\n1,yesterday\n")
    os.utime(folders[1] / "1.csv", (0, 0))
    assert has_work_for_tasks(folders, **of_both)
    job = plan_job(
        parse_job(JOB.format(l=folders[0], r=folders[1], of_l=of_both["of_l"], of_r=of_both["of_r"]))
    )
    assert [arrow_ingest.is_likely_readable(source) for source in job.sources] == [True, False]
    glob = ", 'format' = 'csv', 'pathGlobFilter' = '2*'"
    job = plan_job(parse_job(JOB.format(l=folders[0], r=folders[1], of_l=glob, of_r=glob)))
    assert all(map(arrow_ingest.is_likely_readable, job.sources)), "which is the first is not known"


def test_many_rows_bytes_or_files_need_some(folders, monkeypatch):
    write(folders[0] / "2.parquet", 90, at=1)
    monkeypatch.setattr(node_cost, "SMALL_ROWS", 0)
    assert has_work_for_tasks(folders)
    monkeypatch.setattr(node_cost, "SMALL_ROWS", 110)
    assert not has_work_for_tasks(folders)
    monkeypatch.setattr(arrow_ingest, "MAX_INLINE_FILES", 2)
    assert has_work_for_tasks(folders)
    assert not has_work_for_tasks(folders, of_l=", 'maxFilesPerTrigger' = '1'"), (
        "the later file is not of the first tick"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_ingest, "MAX_LISTED_FILES", 2)
        assert has_work_for_tasks(folders, of_l=", 'maxFilesPerTrigger' = '1'"), (
            "there are too many to look at each"
        )
    monkeypatch.setattr(arrow_ingest, "SMALL_BYTES", 100)
    assert has_work_for_tasks(folders, of_l=", 'maxFilesPerTrigger' = '1'")


def test_bytes_are_those_of_rows_that_are_not_compressed(folders, monkeypatch):
    table = pa.table({"k": ["x" * 500] * 400, "t": pa.array([0] * 400, pa.timestamp("us", tz="UTC"))})
    pq.write_table(table, folders[0] / "1.parquet", use_dictionary=False, compression="zstd")
    monkeypatch.setattr(arrow_ingest, "SMALL_BYTES", 210_000)
    assert not has_work_for_tasks(folders)
    monkeypatch.setattr(arrow_ingest, "SMALL_BYTES", 190_000)
    assert has_work_for_tasks(folders)


def test_files_that_are_still_to_come_need_none(folders):
    (folders[0] / "1.parquet").unlink()
    assert not has_work_for_tasks(folders)
    (folders[1] / "1.parquet").unlink()
    assert not has_work_for_tasks(folders)
    of_both = {"of_l": ", 'format' = 'json'", "of_r": ", 'format' = 'csv'"}
    assert not has_work_for_tasks(folders, **of_both)
    assert has_work_for_tasks(folders, {"file_reader": "spark"})
    assert has_work_for_tasks(folders, of_r=", 'format' = 'debezium-json'"), "whatever comes, Spark reads it"
    (folders[0] / "_temporary").mkdir()
    assert not has_work_for_tasks(folders)
    (folders[0] / "day=2024-01-01").mkdir()
    assert has_work_for_tasks(folders), "there may be files in it"


def test_tables_are_read_as_a_whole_by_tasks(folders):
    head = JOB.format(l=folders[0], r=folders[1], of_l="", of_r="").partition("INSERT")[0]
    table = f"CREATE TABLE n (k BIGINT) WITH ('connector' = 'file', 'path' = '{folders[1]}')"
    query = "SELECT l.k FROM l JOIN n FOR SYSTEM_TIME AS OF now() ON l.k = n.k"
    lookup = f"{head}{table}; INSERT INTO out {query}"
    assert needs_tasks(plan_job(parse_job(lookup)), {})
    compared = f"""
        CREATE TABLE out WITH ('connector' = 'console');
        CREATE TABLE a (k BIGINT, PRIMARY KEY (k)) WITH ('connector' = 'file', 'path' = '{folders[0]}',
          'changes' = 'snapshot');
        INSERT INTO out SELECT k, count(*) FROM a GROUP BY k EMIT CHANGES"""
    assert needs_tasks(plan_job(parse_job(compared)), {})


def test_what_cannot_be_read_is_for_tasks_to_tell(folders):
    file = folders[0] / "1.parquet"
    file.write_bytes(file.read_bytes().replace(b"\x01k", b"\x01\x81"))  # a name that is no UTF-8
    assert has_work_for_tasks(folders)
    file.write_bytes(b"PAR1")
    assert has_work_for_tasks(folders)
    assert has_work_for_tasks((folders[0] / "nowhere", folders[1]))


def test_a_file_that_goes_and_a_path_that_can_be_none_are_for_the_run_to_tell(folders, monkeypatch):
    (folders[0] / "1.parquet").unlink()
    (folders[0] / "1.csv").write_text("k,t\n1,\n")
    of_l = ", 'format' = 'csv'"
    (source, _) = plan_job(parse_job(JOB.format(l=folders[0], r=folders[1], of_l=of_l, of_r=""))).sources
    assert arrow_ingest.is_likely_readable(source)
    gone = [str(folders[0] / "gone.csv")]
    monkeypatch.setattr(arrow_ingest, "list_first_files", lambda _: gone)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os.path, "getsize", lambda _: 1)  # it goes once its size is known
        assert not arrow_ingest.is_likely_readable(source)
        reader = arrow_ingest.plan_reader(source, lambda: None, "UTC")
        assert not arrow_ingest.is_start_readable(source, reader)
    assert arrow_ingest.is_likely_readable(source), "which is the first is not known"
    monkeypatch.undo()
    (odd, _) = plan_job(parse_job(JOB.format(l="/no\0path", r=folders[1], of_l=of_l, of_r=""))).sources
    assert arrow_ingest.is_likely_readable(odd)
    assert has_work_for_tasks((Path("/no\0path"), folders[1]), of_l=of_l)
