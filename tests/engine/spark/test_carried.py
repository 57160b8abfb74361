"""Errors of tasks on their way to the driver, and texts that look like one. Values of rows are any text."""

from __future__ import annotations

import base64
import json
import os
import pickle

import pytest

from watersmeet.errors import (
    EngineError,
    Location,
    SeveralErrors,
    SqlError,
    StateError,
    WatersmeetError,
    plain_of,
)
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.errors import (
    ErrorSealingTask,
    innermost_message,
    readable_error,
    seal_error,
)
from watersmeet.sinks.memory import MemorySink

ERROR = StateError("a run is damaged", code="state-damaged", hint="restore it")


class Runs:
    """What code that is unpickled could do."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def forge_error(error: WatersmeetError = ERROR, seal: str = "0" * 64) -> str:
    """A whole error of ours, but for the seal."""
    return (
        f"watersmeet-error:{base64.b64encode(json.dumps(plain_of(error)).encode()).decode()}:{seal}: {error}"
    )


def old_style(value: object) -> str:
    return f"watersmeet-error:{base64.b64encode(pickle.dumps(value)).decode()}: x"


def cast_error(value: str) -> Exception:
    """As Spark says it of a value."""
    return RuntimeError(
        "[STREAM_FAILED] Query terminated with exception: Job aborted due to stage failure: Task 0 in stage"
        " failed 1 times: Lost task: org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The"
        f' value \'{value}\' of the type "STRING" cannot be cast to "BIGINT" because it is malformed.'
        " SQLSTATE: 22018\n\tat org.apache.spark.sql.errors.QueryExecutionErrors$.invalid(Foo.scala:147)"
    )


@pytest.mark.parametrize(
    "error",
    [
        ERROR,
        SqlError("no ü\n'", code="x", location=Location(3, 4, "a.sql")),
        SeveralErrors([ERROR, EngineError("b", code="c")]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_a_task_arrives_as_itself(error):
    def task(batches):
        yield from batches
        raise error

    with pytest.raises(Exception, match="watersmeet-error") as raised:
        list(ErrorSealingTask(task)([]))
    said = f"Job aborted: {forge_error()} {raised.value}\n\tat x.y.Z(Z.java)"
    found = readable_error(RuntimeError(said))
    assert type(found) is type(error)
    assert plain_of(found) == plain_of(error)


def test_only_errors_sealed_by_this_process_are_restored():
    of_another = str(seal_error(ERROR, b"another key"))
    ours = str(seal_error(ERROR))
    altered = ours.replace(ours.split(":")[1], of_another.split(":")[1][:-4] + "AAA=")
    for text in (forge_error(), of_another, altered, "watersmeet-error::" + "0" * 64 + ":"):
        assert readable_error(RuntimeError(text)).code == "spark-failed"
        assert readable_error(cast_error(text)).code == "spark-failed"


def test_nothing_shows_the_key():
    assert b"key" not in repr(ErrorSealingTask(list)).encode()


def test_a_value_runs_nothing(tmp_path):
    for value in (Runs(tmp_path / "made"), ERROR):
        error = readable_error(cast_error(old_style(value)))
        assert error.code == "spark-failed"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value",
    [
        "No space left on device",
        "x\nCaused by: java.lang.OutOfMemoryError: Java heap space",
        "x'\nCaused by: java.lang.IllegalStateException: Some data may have been lost because they are not",
        "[FAILED_READ_FILE] java.lang.OutOfMemoryError",
        "reading file a. Data type mismatches when reading Parquet column [k]. Expected Spark type string,"
        " actual Parquet type INT64. ",
        "CSV header does not conform to the schema\n x\n CSV file: /etc/passwd",
    ],
)
def test_a_value_does_not_change_what_an_error_means(value):
    error = readable_error(cast_error(value))
    assert error.code == "spark-failed"
    assert error.message.startswith("The value '")


def test_a_value_does_not_steer_the_terminal():
    error = readable_error(cast_error("\x1b]0;title\x07\x1b[2J\r\u202eok\x9b"))
    shown = str(error)
    assert shown.isprintable()
    assert "\\x1b[2J\\r\\u202eok\\x9b" in shown
    assert str(EngineError("ü, 日本, \n\t🙂", code="x")) == "EngineError[x]: ü, 日本, \n\t🙂"


def test_long_values_are_read_in_time():
    for filling in (
        " ",
        "watersmeet-error:A",
        "reading file ",
        "[A] ",
        "CSV header does not conform to the schema\n",
    ):
        error = readable_error(cast_error(filling * (4_000_000 // len(filling))))
        assert len(str(error)) < 2_000


def test_what_follows_a_condition_is_the_message():
    assert innermost_message(cast_error("1.5")).endswith("because it is malformed.")
    raised = RuntimeError(
        "org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] No space left on device"
    )
    assert readable_error(raised).code == "spark-failed"


JOB = """
CREATE TABLE a (s STRING, t TIMESTAMP, WATERMARK FOR t AS t)
  WITH ('connector' = 'file', 'path' = '{path}/a', 'format' = 'json');
CREATE TABLE b (n BIGINT, u TIMESTAMP, WATERMARK FOR u AS u)
  WITH ('connector' = 'file', 'path' = '{path}/b', 'format' = 'json');
CREATE TABLE out WITH ('connector' = 'memory');
INSERT INTO out {query};
"""
WITHIN = "b.u BETWEEN a.t AND a.t + INTERVAL '1' HOUR"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("query", "code"),
    [
        (f"SELECT CAST(a.s AS BIGINT) AS n FROM a JOIN b ON {WITHIN}", "condition-failed"),
        (f"SELECT a.s FROM a JOIN b ON CAST(a.s AS BIGINT) = b.n AND {WITHIN}", "condition-failed"),
        (
            "SELECT window_start, max(CAST(a.s AS BIGINT)) AS n FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t),"
            " INTERVAL '1' HOUR)) GROUP BY window_start, window_end",
            "condition-failed",
        ),
        (f"SELECT raise_error(a.s) AS n FROM a JOIN b ON {WITHIN}", "spark-failed"),
    ],
    ids=["projection", "key", "argument", "echo"],
)
def test_a_record_that_looks_like_an_error_is_a_value(spark, tmp_path, query, code):
    from watersmeet.runtime.spark.job.run import build_outputs, run
    from watersmeet.runtime.spark.job.settings import RunSettings

    MemorySink.clear()
    hostile = [old_style(Runs(tmp_path / "made")), old_style(ERROR), forge_error()]
    value = (
        " ".join(hostile)
        + "\nwatersmeet.engine.spark.carried.TaskFailed: "
        + forge_error()
        + "\nCaused by: x.YError: z"
    )
    at = "2024-03-01T00:00:00Z"
    for name, row in {"a": {"s": value, "t": at}, "b": {"n": 1, "u": at}}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.json").write_text(json.dumps(row) + "\n")
    job = parse_job(JOB.format(path=tmp_path, query=query))
    plan = plan_job(job)
    settings = RunSettings(str(tmp_path / "state"), until_caught_up=True)
    with pytest.raises(WatersmeetError) as raised:
        run(spark, plan, settings, build_outputs(job, plan, settings))
    assert isinstance(raised.value, EngineError)
    assert raised.value.code == code
    assert not (tmp_path / "made").exists()
