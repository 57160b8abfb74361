"""Which jobs give Java no rows, and which compiler it gets then."""

from __future__ import annotations

import shlex
import subprocess
from functools import partial
from typing import Any

import pytest

from watersmeet import parse_job, plan_job
from watersmeet.runtime.spark.job import class_archive, session
from watersmeet.runtime.spark.job.session import (
    COLLECTOR,
    EXECUTOR_OPTIONS,
    JAVA_OPTIONS,
    QUICK_COMPILER,
    SERIAL_COLLECTOR,
    SMALL_FREE_RATIO,
    SMALL_HEAP,
    build_session_settings,
)
from watersmeet.runtime.spark.tick.reading.read_path import do_rows_pass_java

FILES = "'connector' = 'file', 'path' = '/data/{name}', 'format' = 'parquet'"
JOB = """
CREATE TABLE a (k BIGINT, t TIMESTAMP, s STRING, WATERMARK FOR t AS t - INTERVAL '5' SECONDS) WITH ({a});
CREATE TABLE b (k BIGINT, t TIMESTAMP, n INT, WATERMARK FOR t AS t - INTERVAL '5' SECONDS) WITH ({b});
CREATE TABLE out WITH ({out});
INSERT INTO out {select};
"""
BAND = "ON a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL '1' MINUTE"
WINDOWS = """SELECT window_start, count(*) AS n
    FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), INTERVAL '1' MINUTE)) GROUP BY window_start"""


def passes(
    conf: tuple[str, ...] = (),
    select: str = f"SELECT a.k, b.n FROM a JOIN b {BAND}",
    before: str = "",
    **tables: str,
) -> bool:
    given = {name: FILES.format(name=name) for name in ("a", "b", "out")} | tables
    job = parse_job(before + JOB.format(select=select, **given))
    return do_rows_pass_java(plan_job(job), job.run, conf)


@pytest.mark.parametrize(
    "select",
    [
        f"SELECT a.k, b.n FROM a JOIN b {BAND}",
        f"SELECT upper(a.s) AS u, a.k + b.n AS s, b.t FROM a LEFT JOIN b {BAND}",
        f"SELECT a.k FROM a LEFT SEMI JOIN b {BAND}",
    ],
)
def test_files_that_tasks_read_and_write_give_java_no_rows(select: str):
    assert not passes(select=select)


@pytest.mark.parametrize(
    "given",
    [
        {"a": FILES.format(name="a").replace("parquet", "json") + ", 'multiLine' = 'true'"},
        {"b": FILES.format(name="b").replace("/data", "s3a://bucket")},
        {"out": FILES.format(name="out").replace("parquet", "json")},
        {"out": "'connector' = 'console'"},
        {"out": FILES.format(name="out") + ", 'compression' = 'gzip'"},
        {"conf": ("spark.sql.parquet.compression.codec",)},
        {"before": "SET file_reader = 'spark';"},
        {"select": f"SELECT a.t + INTERVAL '1' SECOND AS u FROM a JOIN b {BAND}"},
        {"select": f"SELECT sentences(a.s) AS x FROM a JOIN b {BAND}"},
        {"select": WINDOWS},
    ],
)
def test_all_else_may(given: dict[str, Any]):
    assert passes(**given)


def test_of_text_the_first_file_says_it(tmp_path):
    given = {"a": f"'connector' = 'file', 'path' = '{tmp_path}', 'format' = 'json'"}
    assert not passes(**given), "there is none yet"
    (tmp_path / "1.json").write_text('{"k": 1}\n')
    assert not passes(**given)
    (tmp_path / "1.json").write_text('{"k": "1"}\n')
    assert passes(**given)


def test_nested_columns_are_for_spark_to_read():
    text = JOB.replace("s STRING", "s ARRAY<STRING>")
    text = text.format(
        select=f"SELECT a.k FROM a JOIN b {BAND}", **{n: FILES.format(name=n) for n in ("a", "b", "out")}
    )
    job = parse_job(text)
    assert do_rows_pass_java(plan_job(job), job.run, ())


def test_java_is_started_with_its_quick_compiler_alone_where_it_has_no_rows():
    assert QUICK_COMPILER in build_session_settings(java_rows=False)[JAVA_OPTIONS]
    assert QUICK_COMPILER not in build_session_settings()[JAVA_OPTIONS]
    own = build_session_settings(java_rows=False, conf={JAVA_OPTIONS: "-XX:TieredStopAtLevel=4"})[
        JAVA_OPTIONS
    ]
    assert own.index(QUICK_COMPILER) < own.index("-XX:TieredStopAtLevel=4")  # the last one counts


def test_java_begins_with_a_small_heap_where_it_has_no_rows_or_few_cores(monkeypatch):
    for name, rows, cores, collector in (
        (JAVA_OPTIONS, False, 2, f"{SMALL_HEAP} {SMALL_FREE_RATIO}"),
        (JAVA_OPTIONS, False, 16, f"{SMALL_HEAP} {SMALL_FREE_RATIO}"),
        (JAVA_OPTIONS, True, 4, SERIAL_COLLECTOR),
        (JAVA_OPTIONS, True, 5, COLLECTOR),
        (EXECUTOR_OPTIONS, False, 2, COLLECTOR),
        (EXECUTOR_OPTIONS, True, 2, COLLECTOR),
    ):
        monkeypatch.setattr(session, "own_cores", partial(int, cores))
        assert build_session_settings(java_rows=rows)[name].startswith(f"{collector} -XX:Ti"), name
    own = build_session_settings(java_rows=False, conf={JAVA_OPTIONS: "-Xms1g"})[JAVA_OPTIONS]
    assert own.index(SMALL_HEAP) < own.index("-Xms1g")  # the last one counts
    assert (
        "Serial"
        not in build_session_settings(java_rows=False, conf={JAVA_OPTIONS: "-XX:+UseZGC"})[JAVA_OPTIONS]
    )


@pytest.mark.parametrize(
    "own", ["-XX:MinHeapFreeRatio=30", "-Xminf0.3", "-XX:MaxHeapFreeRatio=50", "-Xmaxf0.5"]
)
def test_java_starts_with_a_free_share_of_the_heap_of_ones_own(own, monkeypatch):
    """It does not where the least share is above the greatest, whoever says which."""
    said = build_session_settings(java_rows=False, conf={JAVA_OPTIONS: own})[JAVA_OPTIONS]
    assert SMALL_HEAP in said
    assert SMALL_FREE_RATIO not in said
    java = class_archive._find_java()
    if java is not None:
        words = [str(java), *shlex.split(said), "-version"]
        assert subprocess.run(words, capture_output=True, check=False).returncode == 0
    monkeypatch.setenv("_JAVA_OPTIONS", own)
    assert SMALL_FREE_RATIO not in build_session_settings(java_rows=False)[JAVA_OPTIONS]


def test_options_of_ones_own_leave_the_archive_of_classes(monkeypatch):
    archive = '-XX:SharedArchiveFile="/c l/a.jsa" -Xlog:cds*=off'
    monkeypatch.setattr(
        class_archive, "options", lambda told: "" if class_archive.OPTION in told else archive
    )
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    for own in ({}, {JAVA_OPTIONS: "-Dx=1"}, {JAVA_OPTIONS: "-XX:+UseZGC"}):
        assert archive in build_session_settings(conf=own)[JAVA_OPTIONS]
        assert archive not in build_session_settings(conf=own)[EXECUTOR_OPTIONS]
    named = "-XX:SharedArchiveFile=own.jsa"
    assert archive not in build_session_settings(conf={JAVA_OPTIONS: named})[JAVA_OPTIONS]
    for variable in session.VARIABLES:
        with monkeypatch.context() as said:
            said.setenv(variable, f"-Xss4m {named}")
            assert archive not in build_session_settings()[JAVA_OPTIONS]


def test_a_collector_of_ones_own_is_the_only_one_wherever_it_is_named(monkeypatch):
    for name in (JAVA_OPTIONS, EXECUTOR_OPTIONS):
        options = build_session_settings(conf={name.replace("extra", "default"): "-XX:+UseG1GC"})
        assert "-XX:+Use" not in options[name]
    for variable in session.VARIABLES:
        with monkeypatch.context() as said:
            said.setenv(variable, "-XX:+UseG1GC")
            options = build_session_settings()
        assert "-XX:+Use" not in options[JAVA_OPTIONS]
        assert COLLECTOR in options[EXECUTOR_OPTIONS]  # executors have an environment of their own
