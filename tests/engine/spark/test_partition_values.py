"""Values in names of directories of partitions, and columns that such directories are meant to give."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.spark.running import until_caught_up
from tests.support.columns import column
from tests.support.effort import at_effort
from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.runtime.spark.sources.tables import open_table
from watersmeet.sinks.memory import MemorySink
from watersmeet.spec.model import Source

pytestmark = pytest.mark.spark

FORMATS = ["json", "csv", "parquet"]
VALUES = {
    "TINYINT": {"127": 127, "-128": -128, "+1": 1, "128": None, "300": None, "1.0": None},
    "SMALLINT": {"32767": 32767, "70000": None},
    "INT": {"007": 7, "3000000000": None, "x": None, "٣": None},
    "BIGINT": {"9223372036854775807": 2**63 - 1, "9223372036854775808": None, "9" * 5000: None},
    "DECIMAL(5,2)": {
        "1.50": "1.50", "-999.99": "-999.99", "1.239": None, "12345.6": None, "1e999999999": None,
        "NaN": None,
    },
    "DECIMAL(20,0)": {"12": "12", "-0": "0", "1.5": None},
    "DOUBLE": {"1.5": 1.5, "1e400": None, "-Infinity": float("-inf")},
    "FLOAT": {"0.5": 0.5, "1e39": None},
    "BOOLEAN": {"TRUE": True, "1": None},
    "TIMESTAMP": {"2024-01-02 03%3A04%3A05.123456": "2024-01-02 03:04:05.123456",
                  "2024-01-02 03%3A04%3A05.1234567": None},
    "DATE": {"2024-01-02": date(2024, 1, 2), "2024-01-02 03%3A04%3A05": None, "2024-01-02T03": None},
    "BINARY": {"ab": b"ab", "%C3%A4": None},
}  # fmt: skip
"""Type -> value in the directory's name -> what it is read as; None: it is refused."""


def write_partition_file(file: Path, form: str, names: tuple[str, ...] = ("v",)) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if form == "parquet":
        rows = pa.table({name: pa.array([1], pa.int32()) for name in names})
        parquet.write_table(rows, file.with_suffix(".parquet"))
    elif form == "csv":
        line = ",".join("1" for _ in names)
        file.with_suffix(".csv").write_text(f"{','.join(names)}\n{line}\n")
    else:
        record = ", ".join(f'"{name}": 1' for name in names)
        file.with_suffix(".json").write_text(f"{{{record}}}\n")


def rows_of(spark: Any, path: Path | str, form: str, declared: str) -> Any:
    source = Source(
        "s", (column("v", "INT"), column("a", declared)), "file", {"path": str(path), "format": form}
    )
    frame = open_table(spark, source).frame()
    return [
        row["a"]
        for row in frame.selectExpr("a" if declared != "TIMESTAMP" else "CAST(a AS STRING) a").collect()
    ]


@pytest.mark.parametrize("form", FORMATS)
def test_a_value_is_read_whole_or_refused(spark, tmp_path, form):
    for declared, values in VALUES.items():
        taken = [written for written, expected in values.items() if expected is not None]
        for number, (written, expected) in enumerate(values.items()):
            if written in taken[at_effort(quick=1, full=len(taken)) :]:
                continue
            if len(written) > 200:
                written = written[:200]  # as long as names of directories may be
            folder = tmp_path / f"{declared} {number}"
            write_partition_file(folder / f"a={written}" / "1", form)
            if expected is None:
                with pytest.raises(EngineError, match=f"is not a valid {declared[:7]}") as refused:
                    rows_of(spark, folder, form, declared)
                assert refused.value.code == "partition-value"
                assert f"a={written}" in refused.value.message
            else:
                (read,) = rows_of(spark, folder, form, declared)
                assert (str(read) if isinstance(expected, str) else read) == expected, (declared, written)


JOB = """
CREATE TABLE s (v INT, A SMALLINT)
  WITH ('connector' = 'file', 'format' = '{form}', 'path' = '{path}'{more});
CREATE SINK by_directory WITH ('connector' = 'memory');
INSERT INTO by_directory SELECT v, A FROM s"""


def read_by_a_job(spark: Any, tmp_path: Path, path: str, form: str, more: str = "") -> list[int | None]:
    MemorySink.clear("by_directory")
    until_caught_up(spark, JOB.format(form=form, path=path, more=more), tmp_path / "state")
    return sorted((row["A"] for row in MemorySink.rows("by_directory")), key=str)


@pytest.mark.parametrize("form", FORMATS)
def test_a_directory_that_comes_later_is_looked_at(spark, tmp_path, form):
    write_partition_file(tmp_path / "in" / "a=7" / "1", form)
    assert read_by_a_job(spark, tmp_path, str(tmp_path / "in"), form) == [7]
    write_partition_file(tmp_path / "in" / "a=70000" / "2", form)
    with pytest.raises(WatersmeetError, match="directory name a=70000 is not a valid SMALLINT") as refused:
        read_by_a_job(spark, tmp_path, str(tmp_path / "in"), form)
    assert refused.value.code == "partition-value"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("path", ["a=1", "a=*", "a=1/1.*"])
def test_directories_at_or_above_the_path_give_no_columns(spark, tmp_path, form, path):
    """Spark takes them for NULL."""
    write_partition_file(tmp_path / "in" / "a=1" / "1", form)
    with pytest.raises(WatersmeetError, match="the directory a=1 gives no column A") as refused:
        read_by_a_job(spark, tmp_path, f"{tmp_path}/in/{path}", form)
    assert refused.value.code == "wrong-columns"
    assert f"'path' = '{tmp_path}/in'" in (refused.value.hint or "")
    with pytest.raises(WatersmeetError, match="the directory a=1 gives no column a"):
        rows_of(spark, f"{tmp_path}/in/{path}", form, "INT")


@pytest.mark.parametrize("form", FORMATS)
def test_partition_directories_under_a_relative_path_are_read(spark, tmp_path, form, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_partition_file(tmp_path / "in" / "a=7" / "1", form)
    assert read_by_a_job(spark, tmp_path, "in", form) == [7]
    assert rows_of(spark, "in", form, "INT") == [7]
    with pytest.raises(EngineError, match="the directory a=7 gives no column a"):
        rows_of(spark, "in/a=7", form, "INT")
    (tmp_path / "in" / "a=7").rename(tmp_path / "in" / "a=70000")
    with pytest.raises(EngineError, match="is not a valid SMALLINT"):
        rows_of(spark, "in", form, "SMALLINT")


@pytest.mark.parametrize("form", FORMATS)
def test_what_a_hint_says_is_read(spark, tmp_path, form):
    for number in (1, 2):
        write_partition_file(tmp_path / "in" / f"a={number}" / "1", form)
    base = f", 'basePath' = '{tmp_path}/in'"
    assert read_by_a_job(spark, tmp_path, f"{tmp_path}/in/a=*", form, base) == [1, 2]


@pytest.mark.parametrize("form", FORMATS)
def test_a_column_of_the_files_may_be_named_as_a_directory_above(spark, tmp_path, form):
    write_partition_file(tmp_path / "a=5" / "in" / "1", form, ("v", "a"))
    assert rows_of(spark, tmp_path / "a=5" / "in", form, "INT") == [1]


def test_parquet_partition_decimals_must_match_the_declared_scale(spark, tmp_path):
    """Spark reads them without their point from there, and as they are beside other files."""
    for written in ("1.5", "1e2", "1"):
        for form in FORMATS:
            write_partition_file(tmp_path / f"{form}{written}" / f"a={written}" / "1", form)
        with pytest.raises(EngineError, match="is not a valid DECIMAL"):
            rows_of(spark, tmp_path / f"parquet{written}", "parquet", "DECIMAL(5,2)")
        for form in ("json", "csv"):
            (read,) = rows_of(spark, tmp_path / f"{form}{written}", form, "DECIMAL(5,2)")
            assert float(read) == float(written)
