"""The public kit: a job over rows that are given, as a user would test it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import watersmeet as ws
from watersmeet import EngineError, MemoryStore, SpecError
from watersmeet.testing import MemoryJob, query

JOB = """
CREATE TABLE clicks (id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5' SECONDS)
    WITH ('connector' = 'kafka', 'topic' = 'clicks', 'bootstrap.servers' = 'nowhere:9', 'format' = 'json');
CREATE TABLE buys (id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5' SECONDS)
    WITH ('connector' = 'kafka', 'topic' = 'buys', 'bootstrap.servers' = 'nowhere:9', 'format' = 'json');
INSERT INTO bought SELECT c.id, b.at AS bought FROM clicks c LEFT JOIN buys b
    ON c.id = b.id AND b.at BETWEEN c.at AND c.at + INTERVAL '1' MINUTE;
"""
SINK = "CREATE TABLE bought (id BIGINT, bought TIMESTAMP) WITH ('connector' = 'console');"


def at(second):
    return f"2024-05-01T10:00:{second:02}"


def test_tick_by_tick():
    job = MemoryJob(SINK + JOB, clock=datetime(2024, 5, 1, 12, tzinfo=UTC))
    first = job.tick(
        {"clicks": [{"id": 1, "at": at(0)}, {"id": 2, "at": at(1)}], "buys": [{"id": 1, "at": at(9)}]}
    )
    assert first.rows == [{"id": 1, "bought": "2024-05-01T10:00:09+00:00"}]
    assert first.watermarks == {"bought": {"c.at": "2024-05-01 09:59:56", "b.at": "2024-05-01 10:00:04"}}
    assert first.retained == {"bought": {"c": 2, "b": 1}}
    late = job.tick({"buys": [{"id": 2, "at": at(3)}]})
    assert (late.rows, late.late) == ([], [("buys", {"id": 2, "at": at(3)})])
    assert late.counts["bought"]["b"]["late"] == 1
    assert job.end().rows == [{"id": 2, "bought": None}]


def test_a_job_goes_on_from_its_store():
    store = MemoryStore()
    MemoryJob(SINK + JOB, store=store).tick({"clicks": [{"id": 1, "at": at(0)}]})
    again = MemoryJob(SINK + JOB, store=store)
    assert [row["id"] for row in again.tick({"buys": [{"id": 1, "at": at(2)}]}).rows] == [1]


def test_the_batch_answer():
    clicks = [{"id": n, "at": at(n)} for n in (5, 1, 3)]
    rows = query(SINK + JOB, {"clicks": clicks, "buys": ({"id": n, "at": at(30)} for n in (1, 5, 9))})
    assert sorted((row["id"], row["bought"] is None) for row in rows) == [(1, False), (3, True), (5, False)]
    assert query(SINK + JOB, {}) == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"click": [{"id": 1}]}, 'no source "click".*\n.*"clicks"'),
        ({"clicks": [{"idd": 1}]}, 'no column "idd"'),
        ({"clicks": [({"id": 1, "at": at(1)}, -1)]}, "has no changes"),
        ({"clicks": ["a row"]}, "'a row', not a mapping"),
        ({"clicks": "rows"}, "'rows', not a list"),
        ({"clicks": {"id": 1}}, "not a list of rows"),
        *(
            ({"clicks": [({"id": 1, "at": at(1)}, diff)]}, "is not a change")
            for diff in (0, 2, True, "x", None)
        ),
        ({"clicks": [({"id": 1},)]}, "is not a change"),
    ],
)
def test_what_is_no_source_no_column_and_no_change(given, says):
    job = MemoryJob(SINK + JOB)
    with pytest.raises(SpecError, match=says):
        job.tick(given)
    assert job.tick({"clicks": [{"id": 1, "at": at(0)}]}).retained == {"bought": {"c": 1, "b": 0}}


def test_a_value_of_another_type_is_refused():
    with pytest.raises(EngineError, match='column "at" is not a valid TIMESTAMP'):
        MemoryJob(SINK + JOB).tick({"clicks": [{"id": 1, "at": "noon"}]})


@pytest.mark.parametrize("value", [1.5, "1", True, [1], float("nan"), 2**63])
def test_a_number_that_is_none_is_refused_and_none_is_cut(value):
    with pytest.raises(EngineError, match='column "id" is not a valid BIGINT'):
        MemoryJob(SINK + JOB).tick({"clicks": [{"id": value, "at": at(1)}]})


TABLE = """
CREATE TABLE clicks (id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at) WITH ('connector' = 'memory');
CREATE TABLE names (id BIGINT, name STRING) WITH ('connector' = 'file', 'path' = 'names', 'format' = 'json');
SELECT c.id, n.name FROM clicks c LEFT JOIN names FOR SYSTEM_TIME AS OF PROCTIME() AS n ON n.id = c.id;
"""


def test_a_table_changes_and_a_tick_that_failed_leaves_none_of_it():
    store, click = MemoryStore(), {"id": 1, "at": at(1)}
    job = MemoryJob(TABLE, store=store, tables={"names": [{"id": 1, "name": "one"}]})
    assert job.tick({"clicks": [click]}).rows == [{"id": 1, "name": "one"}]
    changes = [({"id": 1, "name": "one"}, -1), {"id": 1, "name": "uno"}]
    with pytest.raises(EngineError):
        job.tick({"names": changes, "clicks": [{"id": "one"}]})
    assert job.tick({"names": changes, "clicks": [click]}).rows == [{"id": 1, "name": "uno"}]
    with pytest.raises(EngineError, match="no row"):
        job.tick({"names": [({"id": 7, "name": "x"}, -1)]})
    assert job.tick({"clicks": [click]}).rows == [{"id": 1, "name": "uno"}]
    with pytest.raises(SpecError, match="the store does not have"):
        MemoryJob(TABLE, store=store)
    again = MemoryJob(TABLE, store=store, tables={"names": [{"id": 1, "name": "uno"}]})
    assert again.tick({"clicks": [click]}).rows == [{"id": 1, "name": "uno"}]


def test_what_is_no_query_and_what_is_no_row():
    with pytest.raises(SpecError, match="no query"):
        query(SINK + JOB.replace("INSERT INTO bought", "EXPLAIN"), {})
    with pytest.raises(SpecError, match='named "id"'):
        query(JOB.replace("INSERT INTO bought ", "").replace("b.at AS bought", "b.id"), {})
    with pytest.raises(SpecError, match='no source "cliks"'):
        MemoryJob(SINK + JOB).tick(idle={"cliks": [""]})


def of_calls():
    """A job that calls made, over streams that are columns alone."""
    a = ws.stream({"id": "INT", "t": "BIGINT"}, time="t", lag=5, name="a").alias("x")
    b = ws.stream({"id": "INT", "t": "BIGINT"}, time="t", lag=5, name="b").alias("y")
    joined = a.join(b, on="x.id = y.id", within=ws.between("y.t", "x.t", 0, 3), how="left")
    return ws.job(joined.select("x.id", "y.t AS u").to_sink(ws.memory("joined")))


def test_a_job_and_its_plan_are_tried_as_a_text_is():
    text = """
        CREATE TABLE a (id INT, t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
        CREATE TABLE b (id INT, t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
        SELECT x.id, y.t AS u FROM a x LEFT JOIN b y ON x.id = y.id AND y.t BETWEEN x.t + 0 AND x.t + 3"""
    given = {"a": [{"id": 1, "t": 1}, {"id": 2, "t": 1}], "b": [{"id": 1, "t": 4}, {"id": 2, "t": 5}]}
    assert (
        query(of_calls(), given)
        == query(of_calls().plan, given)
        == query(text, given)
        == [{"id": 1, "u": 4}, {"id": 2, "u": None}]
    )


@pytest.mark.parametrize(
    ("job", "settings", "words"),
    [
        (lambda: of_calls().plan, {"max_rows": "5"}, "settings can be passed only with SQL text"),
        (lambda: Path("job.sql"), None, "must be SQL text, a job"),
    ],
)
def test_what_is_no_job_is_refused(job, settings, words):
    with pytest.raises(SpecError, match=words):
        MemoryJob(job(), settings=settings)
