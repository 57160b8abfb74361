"""Paths and headers as people have them, read by Spark: one file, odd names, columns in any order."""

from __future__ import annotations

import os
from collections import Counter

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.spark.running import until_caught_up
from tests.support.columns import column
from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.runtime.files.listing import hadoop_path, list_source_files
from watersmeet.runtime.spark.errors import readable_error
from watersmeet.runtime.spark.sources.frames import check_there
from watersmeet.runtime.spark.sources.tables import open_table
from watersmeet.sinks.memory import MemorySink
from watersmeet.spec.model import Source

pytestmark = pytest.mark.spark

ODD = ["plain.csv", "with space.csv", "100%25.csv", "größe.csv", "x"]


def job(sources: dict[str, tuple[str, str]]) -> str:
    """All sources (name -> path, format) in one query: ``source``, k and v of every row."""
    declared = [
        f"CREATE TABLE {name} (k STRING, t BIGINT, v INT, WATERMARK FOR t AS t - 5)"
        f" WITH ('connector' = 'file', 'format' = '{kind}', 'path' = '{path}');"
        for name, (path, kind) in sources.items()
    ]
    selects = [f"SELECT '{name}' AS source, k, v FROM {name}" for name in sources]
    return "\n".join([*declared, "CREATE SINK out WITH ('connector' = 'memory');"]) + (
        "INSERT INTO out " + " UNION ALL ".join(selects)
    )


def run_and_count_rows(spark, sources, checkpoint):
    MemorySink.clear("out")
    until_caught_up(spark, job(sources), checkpoint)
    return Counter((row["source"], row["k"], row["v"]) for row in MemorySink.rows("out"))


def test_relative_paths_are_of_the_working_directory(spark, tmp_path, monkeypatch):
    """That of the Python process, in which a job may have changed it since Java was started."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.csv").write_text("k,t,v\na,1,2\n")
    monkeypatch.chdir(tmp_path)
    paths = {"folder": "in", "pattern": "i*/*.csv", "file": "in/one.csv"}
    sources = {name: (path, "csv") for name, path in paths.items()}
    assert run_and_count_rows(spark, sources, tmp_path / "state") == Counter((name, "a", 2) for name in paths)


ENCODED = {
    "%C3%A4": "ä", "ä": "ä", "a%2Fb": "a/b", "a+b%2B": "a+b+", "100%25": "100%", "%E2%82%AC 5": "€ 5",
    "x%ZZ": "x%ZZ", "%E4": "ä", "__HIVE_DEFAULT_PARTITION__": None,
}  # fmt: skip
"""Names of directories of partitions and what they stand for; of what is no UTF-8 as Spark has it."""


@pytest.mark.parametrize("format_", ["csv", "parquet"])
def test_names_of_partitions_are_utf_8(spark, tmp_path, format_):
    for number, name in enumerate(ENCODED):
        folder = tmp_path / "in" / f"K={name}"
        folder.mkdir(parents=True)
        if format_ == "csv":
            (folder / "1.csv").write_text(f"t,v\n1,{number}\n")
        else:
            rows = pa.table({"t": [1], "v": pa.array([number], pa.int32())})
            parquet.write_table(rows, folder / "1.parquet")
    expected = Counter(("s", value, number) for number, value in enumerate(ENCODED.values()))
    assert run_and_count_rows(spark, {"s": (str(tmp_path / "in"), format_)}, tmp_path / "state") == expected


def test_file_column_is_not_read_from_a_parent_directory(spark, tmp_path):
    folder = tmp_path / "k=%C3%A4" / "in"
    (folder / "v=1").mkdir(parents=True)
    (folder / "v=1" / "1.csv").write_text("k,t\nown,1\n")
    found = run_and_count_rows(spark, {"s": (str(folder), "csv")}, tmp_path / "state")
    assert found == Counter({("s", "own", 1): 1})


def test_one_file_of_any_name_and_columns_in_any_order(spark, tmp_path):
    """Streams of one file each (beside others that must not be read), links, patterns and directories."""
    sources = {}
    expected = []
    for number, name in enumerate(ODD):
        (tmp_path / name).write_text(f"k,t,v\na,1,{number}\n")
        sources[f"s{number}"] = (str(tmp_path / name), "csv")
        expected.append((f"s{number}", "a", number))
    folder = tmp_path / "dir 2 50%"
    folder.mkdir()
    (folder / "one.csv").write_text("extra,v,T,,k\nx,1,10,i,b\n")
    (folder / "two.csv").write_text("extra,v,T,,k\ny,2,10,i,\n")
    (folder / "empty.csv").write_text("")
    os.symlink(folder, tmp_path / "link")
    os.symlink(tmp_path / "plain.csv", tmp_path / "linked.csv")
    for name, path in (
        ("dir", folder),
        ("link", tmp_path / "link"),
        ("pattern", tmp_path / "d?r*50%" / "*.csv"),
    ):
        sources[name] = (str(path), "csv")
        expected += [(name, "b", 1), (name, None, 2)]
    sources["linked"] = (str(tmp_path / "linked.csv"), "csv")
    expected.append(("linked", "a", 0))
    (tmp_path / "one.json").write_text('{"t": 1, "v": 7, "k": "j"}\n')
    sources["json"] = (f"file://{tmp_path}/one.json", "json")
    parquet.write_table(
        pa.table({"v": pa.array([8], pa.int32()), "k": ["p"], "t": [1]}), tmp_path / "one.parquet"
    )
    sources["parquet"] = (str(tmp_path / "one.parquet"), "parquet")
    expected += [("json", "j", 7), ("parquet", "p", 8)]
    assert run_and_count_rows(spark, sources, tmp_path / "checkpoint") == Counter(expected)


def test_tables_of_one_file_and_of_columns_in_any_order(spark, tmp_path):
    columns = (column("k", "STRING"), column("v", "INT"))
    for name in ODD:
        (tmp_path / name).write_text("other,v,k\nx,1,a\n")
        source = Source("t", columns, "file", {"path": str(tmp_path / name), "format": "csv"})
        rows = open_table(spark, source).frame().select("k", "v").collect()
        assert [tuple(row) for row in rows] == [("a", 1)], name


def test_a_header_that_differs_is_refused_by_name(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("k,t,v\na,1,1\n")
    (folder / "b.csv").write_text("t,k,v\n1,a,1\n")
    with pytest.raises(WatersmeetError) as refused:
        run_and_count_rows(spark, {"s": (str(folder), "csv")}, tmp_path / "checkpoint")
    assert refused.value.code == "wrong-columns"
    assert "b.csv has t, k, v" in str(refused.value)
    (folder / "b.csv").write_text("t,k\n1,a\n")
    (folder / "a.csv").unlink()
    with pytest.raises(WatersmeetError, match=r"b\.csv has no column v"):
        run_and_count_rows(spark, {"s": (str(folder), "csv")}, tmp_path / "checkpoint")


def test_what_is_a_pattern_stays_one(tmp_path):
    (tmp_path / "a.csv").write_text("x")
    assert hadoop_path(str(tmp_path / "*.csv"), stream=True) == str(tmp_path / "*.csv")
    assert hadoop_path(str(tmp_path), stream=True) == str(tmp_path)
    assert hadoop_path(str(tmp_path / "a.csv"), stream=True) == str(tmp_path / "a.cs[v]")
    assert hadoop_path("s3a://bucket/x", stream=True) == "s3a://bucket/x"
    assert hadoop_path("~/x/*.csv", stream=True) == os.path.expanduser("~/x/*.csv"), "Spark knows no ~"


TREES = {
    "above": (["x/k=a/1.json", "x/k=b/1.json", "x/k=b/c/2.json"], True),
    "far above": (["x/y z/k=a/1.json"], True),
    "others above": (["x/k=a/1.json", "y/k=b/1.json"], False),
    "above and none": (["x/k=a/1.json", "k=b/1.json"], False),
    "plain ones beside those above": (["x/k=a/1.json", "z/1.json"], False),
    "plain ones between": (["x/k=a/1.json", "x/1.json"], False),
    "between": (["k=a/x/l=1/1.json"], False),
}
"""The files of a tree, and whether they are all read, with the values of their directories."""


def test_directories_above_those_of_partitions(spark, tmp_path):
    """What is taken Spark reads in whole, as a table and as a stream; what is refused it does not."""
    sources, expected = {}, []
    for number, (name, (files, taken)) in enumerate(TREES.items()):
        rows = []
        for file in files:
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'{{"t": 1, "v": {number}}}\n')
            rows += [part[2:] for part in file.split("/") if part.startswith("k=")] or [None]
        source = Source("a", (column("k", "STRING"), column("v", "INT")), "file",
                        {"path": str(tmp_path / name), "format": "json"})  # fmt: skip
        try:
            read = spark.read.schema("v INT, k STRING").json(str(tmp_path / name)).collect()
        except Exception:
            read = []
        assert (sorted(row["k"] or "" for row in read) == sorted(row or "" for row in rows)) == taken, name
        assert (
            next((each for each in list_source_files(source) if each.passed_over), None) is None
        ) == taken, name
        if taken:
            sources[f"s{number}"] = (str(tmp_path / name), "json")
            expected += [(f"s{number}", row, number) for row in rows]
    assert run_and_count_rows(spark, sources, tmp_path / "checkpoint") == Counter(expected)


def test_a_name_with_a_colon_is_refused_where_the_path_is_a_pattern(tmp_path):
    """Spark takes what is before the colon for the scheme of an address."""
    (tmp_path / "10:30.json").write_text('{"id": 1}')
    check_there('file source "a"', str(tmp_path))
    with pytest.raises(EngineError) as raised:
        check_there('file source "a"', f"{tmp_path}/*.json")
    assert raised.value.code == "file-name"
    assert f"{tmp_path}/10:30.json" in raised.value.message
    later = ValueError("java.net.URISyntaxException: Relative path in absolute URI: 11:30.json")
    told = readable_error(later, 'table "t"')
    assert (told.code, told.message.partition(": Spark")[0]) == ("file-name", 'table "t": 11:30.json')
