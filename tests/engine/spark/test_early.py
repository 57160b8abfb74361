"""What is started with the session is what the ticks use."""

from __future__ import annotations

import zipfile

import psutil
import pytest

from watersmeet.runtime.spark.job import session
from watersmeet.runtime.spark.job.session import load_planner, start_workers
from watersmeet.runtime.spark.tick.daemon import drop_spark_archives
from watersmeet.runtime.spark.tick.reading.arrow_ingest import build_listing_frame

pytestmark = pytest.mark.spark


def daemons():
    """Processes that the JVM started to fork workers from."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            command, parent = process.cmdline(), process.parent()
        except psutil.Error:
            continue
        if (
            "watersmeet.runtime.spark.tick.daemon" in command
            and parent is not None
            and parent.name() == "java"
        ):
            found.append(process.pid)
    return found


def test_sql_finds_the_daemon_that_is_there(spark):
    start_workers(spark).join()
    before = daemons()
    assert before
    rows = spark.range(0, 4, 1, 2).mapInArrow(lambda batches: batches, "id BIGINT").collect()
    assert len(rows) == 4
    assert daemons() == before
    assert "SPARK_SIMPLIFIED_TRACEBACK" not in spark.sparkContext.environment


def test_the_planner_has_planned_what_a_stream_without_rows_is(spark, monkeypatch):
    listed = []
    monkeypatch.setattr(
        session,
        "build_listing_frame",
        lambda frames: listed.append(build_listing_frame(frames)) or listed[-1],
    )
    load_planner(spark).join()
    (frame,) = listed
    assert frame.schema.names == ["kind", "text"]
    assert frame._jdf.queryExecution().tracker().phases().contains("planning")


def test_what_fails_beside_the_start_is_no_matter_of_it(spark, monkeypatch):
    monkeypatch.setattr(session, "build_listing_frame", lambda frames: 1 / 0)
    load_planner(spark).join()


def test_workers_load_the_pyspark_that_is_compiled(spark):
    def where(_):
        import py4j
        import pyspark

        return [pyspark.__file__, py4j.__file__]

    places = spark.sparkContext.parallelize(range(2), 2).flatMap(where).collect()
    assert places
    assert not [place for place in places if ".zip" in place]


OTHERS = ["pyspark/version.py", "pyspark/daemon.py", "pyspark/worker.py", "pyspark/serializers.py"]


@pytest.mark.parametrize("other", [None, *OTHERS, "pyspark/__init__.py", "py4j/__init__.py"])
def test_archives_of_another_pyspark_stay(tmp_path, other):
    """``other``: a file that is another one where PySpark is installed, or is not there."""
    archive = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as written:
        for name in (*OTHERS, "pyspark/__init__.py"):
            written.writestr(name, f"# {name}")
    for name in (*OTHERS, "pyspark/__init__.py", "py4j/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        if name != other:
            (tmp_path / name).write_text(f"# {name}")
        elif name in OTHERS:
            (tmp_path / name).write_text("# a distribution's own")
    path = ["", str(archive), str(tmp_path / "py4j-1-src.zip"), str(tmp_path), "a/lib.zip"]
    same = drop_spark_archives(path)
    assert same == (["", str(tmp_path), "a/lib.zip"] if other is None else path)
    assert drop_spark_archives(path[2:]) == path[2:], "nothing to compare with"
