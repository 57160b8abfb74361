"""A run in the log: as JSON, as text, in a program's own logging; nothing where nobody wants it."""

from __future__ import annotations

import io
import json
import logging
import re
from dataclasses import replace

from tests.observe.watched import TICKS, WatchedJob
from watersmeet.errors import EngineError
from watersmeet.observe.listeners import ListenerGroup
from watersmeet.observe.log import LogToStream, LogWatcher, log_error
from watersmeet.observe.reports import account_of
from watersmeet.observe.watermark_holders import SilentPartition, WaitingInput


def build_logged_job(job_name: str = "shop") -> WatchedJob:
    job = WatchedJob()
    job.watching = ListenerGroup([LogWatcher(job.about(job_name))])
    return job


def test_a_run_is_an_object_per_query_and_tick():
    out = io.StringIO()
    job = build_logged_job()
    with LogToStream("json", out):
        job.ticks()
        job.watching.notice("a broker is\naway")
        job.watching.end(None)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)
    assert {line["job"] for line in lines} == {"shop"}
    assert (lines[0]["message"], lines[0]["level"]) == ("the job has started", "info")
    ticks = [line for line in lines if "rows_in" in line]
    assert [(line["tick"], line["query"]) for line in ticks] == [
        (n + 1, query) for n in range(len(TICKS)) for query in ("delivered", "windows", "climbed")
    ]
    for line in ticks:
        result = job.results[line["tick"] - 1].queries[line["query"]]
        assert line["rows_out"] == result.rows_out
        assert line["retained"] == sum(result.state.values())
        assert line["phases"] == {"begin": 0.125, "ingest": 0.25}
    assert sum(line["late"] for line in ticks if line["query"] == "delivered") == 2
    assert ticks[2]["watermarks"] == {"a.n": None, "b.n": None}
    assert (lines[-2]["level"], lines[-2]["message"]) == ("warning", "a broker is\naway")
    assert lines[-1]["account"] == account_of(job.results[-1]).as_dict()


def test_what_it_failed_with_has_its_code_its_hint_and_its_tick():
    out = io.StringIO()
    job = build_logged_job()
    with LogToStream("json", out) as log:
        job.ticks(TICKS[:1])
        job.watching.begin(2)
        assert not log.has_errors
        job.watching.end(EngineError("the disk is full", code="disk-full", hint="make room"))
        assert log.has_errors
        log_error(RuntimeError("no run"))
    failed, other = (json.loads(line) for line in out.getvalue().splitlines()[-2:])
    del failed["time"], other["time"]
    assert failed == {
        "level": "error",
        "logger": "watersmeet.run",
        "message": "the disk is full",
        "job": "shop",
        "code": "disk-full",
        "hint": "make room",
        "tick": 2,
    }
    assert other["message"] == "RuntimeError: no run"


def test_as_text_a_record_is_one_line_there_and_nowhere_else(caplog):
    out = io.StringIO()
    job = build_logged_job()
    with LogToStream("text", out):
        job.watching.start({}, None)
        LogWatcher(job.about()).started([WaitingInput("o", (SilentPartition("orders", "2"),))], None)
        job.tick({})
        job.watching.notice("two\nlines")
        job.watching.end(EngineError("the disk is full", code="disk-full", hint="make room"))
        logging.getLogger("watersmeet.postgres").warning("the server is away")
        try:
            raise ValueError("bad")
        except ValueError:
            logging.getLogger("watersmeet.postgres").exception("what nobody thought of")
    lines = [line.partition("Z ")[2] for line in out.getvalue().splitlines()]
    assert lines[0] == "INFO job=shop: the job has started"
    assert lines[2] == (
        "INFO job=shop: the watermark of o waits for a row in orders/2 (it has no idle_timeout)"
    )
    assert lines[3] == (
        "INFO job=shop query=delivered tick=1: tick 1 of delivered:"
        " 0 rows in, 0 out, 0 late, 0 retained, 0.50 s"
    )
    assert lines[6:9] == [
        r"WARNING job=shop: two\nlines",
        "ERROR job=shop: the disk is full [disk-full]; make room",
        "WARNING watersmeet.postgres: the server is away",
    ]
    assert "ValueError: bad" in out.getvalue()
    assert caplog.records == []


def test_a_program_that_logs_has_the_records_with_their_fields(caplog):
    job = build_logged_job()
    with caplog.at_level(logging.INFO, logger="watersmeet.run"):
        job.ticks(TICKS[:1])
    record = next(record for record in caplog.records if "tick 1 of delivered" in record.getMessage())
    assert (record.watersmeet["query"], record.watersmeet["tick"]) == ("delivered", 1)


def test_without_anyone_who_wants_it_there_is_nothing(caplog):
    job = build_logged_job()
    with caplog.at_level(logging.WARNING, logger="watersmeet.run"):
        job.ticks()
        job.watching.end(None)
    assert caplog.records == []


def test_of_several_that_are_open_one_has_each_record_once():
    """Two jobs of a process that are to be logged; afterwards all is as it was."""
    one, two = io.StringIO(), io.StringIO()
    logger = logging.getLogger("watersmeet")
    before = logger.level, logger.propagate, list(logger.handlers)
    first, second = LogToStream("text", one), LogToStream("text", two)
    with second:
        with first:
            build_logged_job().watching.notice("both are open")
        build_logged_job().watching.notice("one is left")
    assert one.getvalue() == ""
    assert len(two.getvalue().splitlines()) == 2
    assert (logger.level, logger.propagate, logger.handlers) == before


def test_deletes_of_absent_rows_are_logged():
    out = io.StringIO()
    job = build_logged_job()
    result = job.ticks(TICKS[:1])
    missed = replace(result.queries["delivered"], missing_deletes=(("o", '{"k":"b"}'),))
    with LogToStream("json", out):
        job.watching.tick(replace(result, queries={"delivered": missed}), 0.5, {})
    line = json.loads(out.getvalue().splitlines()[-1])
    assert (line["level"], line["query"], line["input"]) == ("warning", "delivered", "o")
    assert line["message"] == 'delete of an absent row: {"k":"b"}'
