"""Commands by their arguments, exit statuses and texts."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.pipelines.texts import edit_pipeline_text
from watersmeet import errors
from watersmeet.errors import EngineError, SeveralErrors, SpecError
from watersmeet.observe.watermark_holders import SilentPartition
from watersmeet.runtime.spark.errors import readable_error
from watersmeet.runtime.spark.job.settings import RunSettings

SOURCES = Path(__file__).resolve().parents[2] / "src"


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys; from watersmeet.cli.main import main; status = main(['--help']);"
        "heavy = {'pyspark', 'duckdb', 'pyarrow', 'numpy', 'sqlglot'} & sys.modules.keys();"
        "import time; print('HEAVY', *heavy); print(time.process_time()); sys.exit(status)"
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}

    def call():
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
        )
        *shown, heavy, cpu_s = found.stdout.splitlines()
        return float(cpu_s), heavy, shown

    for _ in range(3):
        took, heavy, shown = call()
        if took < 0.5:
            break
    assert heavy == "HEAVY"
    assert "replay" in "\n".join(shown)
    assert took < 0.5, "seconds of CPU: the machine may be busy"


def test_every_option_has_a_help_text(watersmeet):
    from typer.main import get_command

    from watersmeet.cli.main import app

    for command in get_command(app).commands.values():
        assert command.help
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{command.name} {parameter.name}"


def test_wrong_usage_is_two(watersmeet):
    assert watersmeet("explian", "job.sql").status == 2
    assert watersmeet("run").status == 2


def test_explain_prints_the_plan(watersmeet, job):
    found = watersmeet("explain", job)
    assert found.status == 0
    assert "x.k = y.k" in found.out
    assert "Eviction bounds" in found.out


def test_explain_draws_the_plan(watersmeet, job):
    job.write_text(job.read_text() + "EXPLAIN SELECT x.t FROM a x JOIN a y ON x.t = y.t;")
    found = watersmeet("explain", job, "--mermaid")
    assert found.status == 0
    assert found.out.startswith('flowchart LR\n  s0[("a (file)")]\n  subgraph q0["query console"]\n')
    assert '  subgraph q1["query explain"]\n' in found.out
    assert "Eviction bounds" not in found.out


def test_flags_win_over_the_text(watersmeet, job):
    job.write_text("SET watermark_rule = 'tight';" + job.read_text())
    assert "watermark rule limit" in watersmeet("explain", job, "--watermark-rule", "limit").out


@pytest.mark.parametrize(
    ("text", "code"),
    [("SELEC 1;", "SqlError"), ("SELECT x.t FROM nothing x JOIN nothing y ON x.t = y.t;", "SqlError")],
)
def test_a_broken_job_is_one_readable_message(watersmeet, job, text, code):
    job.write_text(text)
    found = watersmeet("explain", job)
    assert found.status == 2
    assert found.err.startswith(code)
    assert "Traceback" not in found.err
    assert str(job) in found.err, "the place in the text"


GOOD = """CREATE TABLE orders (id BIGINT, at TIMESTAMP, item STRING,
  WATERMARK FOR at AS at - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'in/orders', 'format' = 'csv');
CREATE TABLE payments (id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '1' MINUTE)
  WITH ('connector' = 'file', 'path' = 'in/payments', 'format' = 'csv');
CREATE SINK paid WITH ('connector' = 'file', 'path' = 'out', 'format' = 'json');
INSERT INTO paid SELECT o.id, o.item FROM orders o JOIN payments p
  ON o.id = p.id AND p.at BETWEEN o.at AND o.at + INTERVAL '1' HOUR;
"""
MISTAKES = [
    ("SELECT o.id, o.item", "SELECT o.id, o.itm", "unknown-column", '"itm"'),
    ("FROM orders o", "FROM oders o", "unknown-table", '"oders"'),
    ("'path' = 'in/orders'", "'pth' = 'in/orders'", "unknown-option", '"path"'),
    ("CREATE SINK", "SET max_row = 5; CREATE SINK", "unknown-setting", '"max_rows"'),
    (", WATERMARK FOR at AS at - INTERVAL '1' MINUTE", "", "unbounded-state", "WATERMARK FOR"),
    (" AND p.at BETWEEN o.at AND o.at + INTERVAL '1' HOUR", "", "unbounded-state", "p.at BETWEEN o.at - "),
    ("BETWEEN o.at AND o.at + INTERVAL '1' HOUR", ">= o.at", "unbounded-state", "o.at >= p.at - "),
    ("at TIMESTAMP, item", "at STRING, item", "wrong-type", "TIMESTAMP"),
    ("at TIMESTAMP, item", "at BIGINT, item", "bad-lag", "at - 10000"),
    ("item STRING", "item DECIMAL(5, 10)", "unknown-type", "scale"),
    ("item STRING", "item TIME", "unknown-type", '"TIME"'),
    ("item STRING", "item STRING, item STRING", "duplicate-column", '"item"'),
    ("SELECT o.id, o.item", "SELECT id, o.item", "ambiguous-column", "o.id or p.id"),
    ("SELECT o.id, o.item", "SELECT o.id o.item", "syntax", "comma"),
    ("INTERVAL '10' SECONDS)", "INTERVAL '10' SECONDS", "syntax", "parenthesis )"),
    ("'path' = 'in/orders'", "'path' = 'in/orders", "syntax", "no closing '"),
    ("INTERVAL '1' HOUR;", "INTERVAL '1' HOUR ORDER BY o.at;", "not-supported", "ORDER BY"),
    ("o.id = p.id", "o.id = p.at", "wrong-types", "cannot compare BIGINT with TIMESTAMP"),
    ("SELECT o.id, o.item", "SELECT o.id, clean(o.item)", "unknown-function", "clean()"),
    ("'path' = 'in/orders'", "'path' = '${NOT_SET}'", "not-set", "export NOT_SET="),
]


@pytest.mark.parametrize(
    ("old", "new", "code", "words"), MISTAKES, ids=[f"{m[2]} {m[1][:30]}" for m in MISTAKES]
)
def test_a_mistake_gives_one_short_message_with_a_hint(watersmeet, tmp_path, old, new, code, words):
    assert old in GOOD
    job = tmp_path / "job.sql"
    job.write_text(GOOD.replace(old, new, 1))
    shown = watersmeet("explain", job)
    message, hint = shown.err.strip().split("\n")
    assert (shown.status, message.partition("[")[2].partition("]")[0]) == (2, code)
    assert hint.startswith("Hint: ")
    assert words in shown.err
    assert max(len(message.split()), len(hint.split())) <= 50


def test_missing_job_file_is_reported(watersmeet, tmp_path):
    found = watersmeet("run", tmp_path / "no.sql")
    assert found.status == 2
    assert "No such file" in found.err


def test_run_passes_its_flags_to_the_engine(watersmeet, job, engine, make_tick):
    engine.ticks = [make_tick(1, **{"in": 4, "matched": 3, "retained": 1})]
    flags = [
        "--checkpoint",
        "cp",
        "--partitions",
        "3",
        "--master",
        "local[3]",
        "--until-caught-up",
        "--finish",
        "--no-live",
    ]
    found = watersmeet(
        "run",
        job,
        *(*flags, "--trigger", "2 seconds", "--conf", "spark.a=b=c"),
        *("--max-rows", "9", "--max-drift", "60"),
    )
    assert found.status == 0, found.err
    ours = RunSettings(
        "cp", partitions=3, trigger="2 seconds", until_caught_up=True, finish=True, run=engine.job.run
    )
    others = ("console", "stop", "on_start", "on_notice", "on_begin", "on_backlog", "on_tick")
    assert replace(engine.settings, **{name: getattr(ours, name) for name in others}) == ours
    assert engine.job.run["master"] == "local[3]"
    assert engine.job.settings == {"spark.a": "b=c"}
    assert (engine.job.options.max_rows, engine.job.options.max_drift) == (9, 60)
    assert "tick 1" in found.out
    assert "W[a.t] 1970-01-01" in found.out, "a timestamp unless the plan says that it is a number"
    assert "adds up" in found.out


def test_a_run_warns_of_the_limits_of_a_pipeline(watersmeet, tmp_path, engine):
    """As `validate` and `Pipeline.run` do: its hot keys, and milliseconds, are known to no plan."""
    text = edit_pipeline_text(
        ('connector = "memory"\n\n', 'connector = "memory"\nrows_per_second = 10\n\n'),
        ('lag = "10 seconds"', 'lag = "10 seconds"\nhot_key_rows_per_second = 5'),
        ('[state_store]\nkind = "object"\nurl = "s3://bucket/clicked"\n', ""),
        ("max_rows = 1_000_000", "max_rows_per_key = 100"),
    )
    (tmp_path / "clicked.toml").write_text(text)
    found = watersmeet("run", tmp_path / "clicked.toml")
    assert found.status == 0, found.err
    assert "warning: max_rows_per_key = 100: forecast by the declared hot key of impressions" in found.err


def test_notices_of_the_start_go_to_standard_error(watersmeet, job, engine):
    engine.notices = ["parts were moved"]
    found = watersmeet("run", job, "--replace-newer-files")
    assert engine.settings.replace_newer_files is True
    assert "notice: parts were moved" in found.err
    assert "parts were moved" not in found.out


def test_default_checkpoint_is_in_the_working_directory(watersmeet, job, engine):
    assert watersmeet("run", job).status == 0
    assert engine.settings.checkpoint == str(Path(".watersmeet") / "job")
    assert engine.settings.partitions is None
    assert engine.settings.finish is False


def test_json_is_lines_of_json(watersmeet, job, engine, make_tick):
    engine.ticks = [make_tick(n, **{"in": 1, "matched": 1}) for n in (1, 2)]
    found = watersmeet("run", job, "--json")
    lines = [json.loads(line) for line in found.out.splitlines()]
    assert [line.get("tick") for line in lines] == [1, 2, None]
    assert lines[0]["inputs"][0]["watermarks"] == {"t": 6}
    assert lines[-1]["account"]["adds_up"] is True


def test_a_job_that_ends_before_its_first_tick_has_an_account_in_json(watersmeet, job, engine):
    engine.changed = {"s": SimpleNamespace(files=1, names=["/in/1.json"])}
    (line,) = watersmeet("run", job, "--json").out.splitlines()
    assert json.loads(line) == {
        "account": {
            "adds_up": True,
            "inputs": [],
            "changed_files": {"s": {"files": 1, "names": ["/in/1.json"]}},
            "shed_joined": {},
        }
    }
    assert "{" not in watersmeet("run", job).out


def test_changed_files_appear_in_the_account_and_on_stderr(watersmeet, job, engine, make_tick):
    engine.ticks = [make_tick(1, **{"in": 1, "matched": 1})]
    engine.changed = {"s": SimpleNamespace(files=7, names=["/in/1.json"])}
    found = watersmeet("run", job, "--json")
    account = json.loads(found.out.splitlines()[-1])["account"]
    assert account["changed_files"] == {"s": {"files": 7, "names": ["/in/1.json"]}}
    assert "s: 7 files are not in the result as they are now: /in/1.json, …" in found.err


@pytest.mark.parametrize("flags", [[], ["--live"], ["--json"]])
def test_run_reports_silent_partitions_at_the_start(watersmeet, job, engine, flags):
    engine.waiting = {"q": {"a": (SilentPartition("orders", "2"),), "b": ()}}
    found = watersmeet("run", job, *flags)
    assert (
        '"partition": "2"' if flags == ["--json"] else "the watermark of a waits for a row in orders/2"
    ) in found.out
    engine.waiting = {"q": {"a": ()}}
    assert "waits for" not in watersmeet("run", job, *flags).out


def test_live_view_on_request(watersmeet, job, engine, make_tick):
    engine.ticks = [make_tick(1, **{"in": 1, "matched": 1})]
    found = watersmeet("run", job, "--live")
    assert "rows/s" in found.out


@pytest.mark.parametrize("early", [True, False], ids=["before the stream", "in the stream"])
def test_ctrl_c_is_a_clean_stop(watersmeet, job, engine, make_tick, early):
    engine.ticks = [make_tick(1, **{"in": 1, "retained": 1})]
    if early:
        engine.error = KeyboardInterrupt()
    else:
        engine.stopped = True
    found = watersmeet("run", job)
    assert found.status == 0
    last = found.out.splitlines()[-1]
    assert last == "Stopped after tick 1; 1 row stays in state. Run the same command again to resume."
    assert "adds up" in found.out


def test_a_run_says_at_once_where_its_state_is_and_how_to_stop_it(watersmeet, job, engine):
    engine.error = EngineError("sink down", code="x")
    (start, stop, failed) = watersmeet("run", job.name).err.splitlines()
    assert start == "Starting Spark (takes a few seconds). Checkpoint: .watersmeet/job (new)"
    assert (
        stop == "To stop: Ctrl-C, or watersmeet stop job.sql (--savepoint DIR also copies the state to DIR)"
    )
    assert failed == "EngineError[x]: sink down"
    (_, stop, _) = watersmeet("run", job.name, "--checkpoint", "my state").err.splitlines()
    assert "watersmeet stop job.sql --checkpoint 'my state' (" in stop
    assert watersmeet("run", job.name, "--quiet").err == "EngineError[x]: sink down\n"


def test_a_run_says_at_its_end_how_output_is_read_and_what_stays(watersmeet, job, engine, make_tick):
    sinks = """CREATE SINK out WITH ('connector' = 'file', 'path' = 'my out');
        CREATE SINK late WITH ('connector' = 'file', 'path' = 'late', 'format' = 'json');
        SET late_output = late; INSERT INTO out SELECT"""
    job.write_text(job.read_text().replace("SELECT", sinks))
    engine.ticks = [make_tick(1, **{"in": 2, "late": 1, "retained": 1})]
    engine.ticks[0].queries["out"] = engine.ticks[0].queries.pop("q")
    *_, out, late, state = watersmeet("run", job, "--until-caught-up").out.splitlines()
    assert (out, late) == (
        'Read out: spark.read.parquet("my out")',
        'Read late: spark.read.json("late")',
    )
    assert state == (
        "Caught up; 1 row stays in state for the next run. --finish closes the input and emits what is left."
    )
    engine.ticks[0].finished = True
    engine.ticks[0].queries["out"].counts = {"a": {"padded": 2, "released_unmatched": 1}}
    assert watersmeet("run", job, "--finish").out.splitlines()[-1] == (
        "The input is closed: 2 remaining rows emitted with NULLs, 1 row of a dropped without a match."
        " The job is finished."
    )
    assert len(watersmeet("run", job, "--json").out.splitlines()) == 2, "a tick and the accounting"


def test_sigterm_is_a_clean_stop_too(watersmeet, job, engine):
    before = signal.getsignal(signal.SIGTERM)

    class Ticks(list):
        def __iter__(self):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
            raise AssertionError("the signal did not stop the run")

    engine.ticks = Ticks()
    assert watersmeet("run", job).status == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_errors_of_a_run_are_messages(watersmeet, job, engine):
    engine.error = SeveralErrors(
        [EngineError("sink down", code="x", hint="start it"), SpecError("no path", code="y")]
    )
    found = watersmeet("run", job)
    assert found.status == 2
    told = ["EngineError[x]: sink down", "Hint: start it", "SpecError[y]: no path"]
    assert found.err.splitlines()[2:] == told, "after the two lines of the start"


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.EACCES, "ls -ld {}"), (errno.EROFS, "run again"), (errno.ENOSPC, "run again")]
)
def test_what_the_system_does_not_let_it_use_is_no_bug(watersmeet, job, engine, tmp_path, number, hint):
    place = tmp_path / "state"
    place.mkdir()
    engine.error = OSError(number, os.strerror(number), str(place / "manifests" / "1.json"))
    found = watersmeet("run", job)
    assert found.status == 2
    assert f"EngineError[place-unusable]: {place} cannot be used: {os.strerror(number)}" in found.err
    assert hint.format(place) in found.err
    assert readable_error(engine.error).code == "place-unusable"


@pytest.mark.parametrize("place", [(), ("s3://a/b",)])
def test_an_error_of_the_system_about_no_place_is_a_bug(watersmeet, job, engine, place):
    engine.error = PermissionError(errno.EPERM, "Operation not permitted", *place)
    assert watersmeet("run", job).status == 70


def test_an_error_about_a_place_says_what_was_being_done(tmp_path):
    told = readable_error(PermissionError(errno.EACCES, "Permission denied", str(tmp_path)), 'table "x"')
    assert told.message == f'table "x": {tmp_path} cannot be used: Permission denied'


def test_a_bug_shows_no_secret(watersmeet, job, engine, monkeypatch):
    monkeypatch.setattr(errors, "hidden_texts", {})
    errors.hide_in_errors("tok-en-of-it")
    engine.error = RuntimeError("GET https://h/tok-en-of-it")
    assert "RuntimeError: GET https://h/***\n" in watersmeet("run", job).err


def test_bug_prints_a_traceback_only_on_request(watersmeet, job, engine, monkeypatch):
    engine.error = RuntimeError("it broke\nat length")
    found = watersmeet("run", job)
    assert found.status == 70
    assert "RuntimeError: it broke" in found.err
    assert "Traceback" not in found.err
    monkeypatch.setenv("WATERSMEET_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        watersmeet("run", job)


@pytest.mark.parametrize("flags", [["--conf", "novalue"], ["--partitions", "0"], ["--conf", "unknown=1"]])
def test_wrong_options_are_two(watersmeet, job, engine, flags):
    assert watersmeet("run", job, *flags).status == 2


def test_partitions_in_the_text_are_checked(watersmeet, job, engine):
    job.write_text("SET partitions = 'many';" + job.read_text())
    found = watersmeet("run", job)
    assert found.status == 2
    assert "partitions is 'many'" in found.err


def test_explain_statement_alone_runs_nothing(watersmeet, job, engine):
    job.write_text(job.read_text().replace("SELECT", "EXPLAIN SELECT"))
    found = watersmeet("run", job)
    assert found.status == 0
    assert "Eviction bounds" in found.out
    assert engine.job is None


def test_a_job_file_may_begin_with_a_byte_order_mark(tmp_path):
    from watersmeet.cli.job_file import read_text

    job = tmp_path / "job.sql"
    job.write_bytes(b"\xef\xbb\xbfSELECT 1")
    assert read_text(job) == "SELECT 1"


def test_quiet_shows_no_ticks_and_no_account(watersmeet, job, engine, make_tick):
    engine.ticks, engine.notices = [make_tick(1, **{"in": 1, "matched": 1})], ["told"]
    found = watersmeet("run", job, "--quiet")
    assert (found.status, found.out) == (0, "")
    assert "notice: told" in found.err
    found = watersmeet("run", job, "-q", "--json")
    (line,) = found.out.splitlines()
    assert json.loads(line)["account"]["adds_up"] is True
    engine.stopped = True
    assert watersmeet("run", job, "--quiet").out == ""
    found = watersmeet("run", job, "--quiet", "--live")
    assert (found.status, "--quiet has no live view" in found.err) == (2, True)
