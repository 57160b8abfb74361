"""What is wrong with a job's sources is said before Spark starts."""

from __future__ import annotations

import socket

import pytest

JOB = """
CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5)
  WITH ('connector' = 'file', 'path' = 'in', 'format' = 'csv');
CREATE TABLE b (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'kafka',
  'bootstrap.servers' = '127.0.0.1:PORT', 'topic' = 'x');
SELECT x.t, y.t AS u FROM a x JOIN b y ON x.k = y.k AND y.t BETWEEN x.t AND x.t + 3;
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "job.sql"
    with socket.create_server(("127.0.0.1", 0)) as server:
        file.write_text(JOB.replace("PORT", str(server.getsockname()[1])))
        yield file


def test_a_plain_explain_works_where_the_data_is_not(watersmeet, job):
    found = watersmeet("explain", job)
    assert found.status == 0
    assert "x.k = y.k" in found.out
    assert found.err == 'warning: file source "a": there is no "in"; a run is refused for it\n'


def test_with_sources_checked_it_is_an_error(watersmeet, job, tmp_path):
    found = watersmeet("explain", job, "--check-sources")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("EngineError[path-missing]")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("kk,t\nx,1\n")
    found = watersmeet("explain", job, "--check-sources")
    assert found.status == 2
    assert "1.csv has no column k" in found.err
    assert 'did you mean "kk"?' in found.err
    (tmp_path / "in" / "1.csv").write_text("other,K,t\n1,x,1\n")
    found = watersmeet("explain", job, "--check-sources")
    assert found.status == 0, found.err
    assert 'note: source "b": a broker answers' in found.err


def test_a_broker_that_is_away(watersmeet, job, tmp_path):
    (tmp_path / "in").mkdir()
    job.write_text(JOB.replace("PORT", "1"))
    found = watersmeet("explain", job, "--check-sources")
    assert found.status == 2
    assert "broker-away" in found.err


def test_a_run_is_refused_before_spark_starts(watersmeet, job, monkeypatch):
    from watersmeet.engine.spark import session

    def started(conf):
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "start", started)
    found = watersmeet("run", job)
    assert found.status == 2
    assert found.err.startswith('EngineError[path-missing]: file source "a": there is no "in"')


def test_names_that_spark_takes_for_patterns(watersmeet, job, tmp_path):
    """Each of the two would be read twice."""
    (tmp_path / "in").mkdir()
    for name in ("a[1].csv", "b.csv"):
        (tmp_path / "in" / name).write_text("k,t\nx,1\n")
    found = watersmeet("run", job)
    assert found.status == 2
    assert "EngineError[file-name]" in found.err
    assert "a[1].csv" in found.err


def test_files_with_other_headers_are_named(watersmeet, job, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("k,t\nx,1\n")
    (tmp_path / "in" / "2.csv").write_text("t,k\n1,x\n")
    found = watersmeet("explain", job, "--check-sources")
    assert found.status == 2
    assert "1.csv has k, t" in found.err
    assert "2.csv has t, k" in found.err


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT x.t FROM a x WHERE TO_MONEY(x.k) > 1", "there is no function TO_MONEY() in Spark"),
        ("SELECT substring(x.k) AS s FROM a x", "substring() takes 2 or 3 arguments, and 1 is given"),
        (
            "SELECT x.t FROM a x WHERE CAST(x.t AS TIMESTAMP) >= 2024-03-01",
            "2024-03-01 without quotes is the number 2020: a subtraction",
        ),
        (
            "SELECT window_start, max_by(k, CAST(t AS TIMESTAMP) * 1) AS m"
            " FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), 10)) GROUP BY window_start, window_end",
            "Spark has no TIMESTAMP * INT",
        ),
    ],
)
def test_what_spark_would_refuse_is_refused_where_it_stands(watersmeet, job, query, said):
    job.write_text(JOB.rpartition("SELECT")[0] + query + ";")
    found = watersmeet("explain", job)
    assert found.status == 2
    assert said in found.err
    assert "line 6" in found.err


def test_functions_of_extensions_are_left_to_spark(watersmeet, job):
    job.write_text(
        "SET spark.sql.extensions = 'x.Y';"
        + JOB.rpartition("SELECT")[0]
        + "SELECT to_money(x.k) AS m FROM a x;"
    )
    assert watersmeet("explain", job).status == 0
