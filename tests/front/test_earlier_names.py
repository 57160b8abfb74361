"""Names that settings and options had before still count, with one notice that says the name of today."""

from __future__ import annotations

import warnings

import pytest

from watersmeet import deprecated_names
from watersmeet.cli.main import main
from watersmeet.parser.ddl.settings import OPTIONS, RUN_SETTINGS
from watersmeet.parser.statements import parse_job
from watersmeet.plan.identity.settings import differences, settings_of
from watersmeet.plan.planner import plan_job
from watersmeet.relations.outputs import sink

JOB = """
CREATE SOURCE a (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t) WITH ('connector' = 'generator');
CREATE SINK o WITH ('connector' = '{connector}', {options});
INSERT INTO o SELECT k, t FROM a;
"""
SINKS = {
    "kafka": "'topic' = 'o', 'bootstrap.servers' = 'x:9092'",
    "postgres": "'url' = 'postgresql://x:5432/db', 'table' = 'o'",
}
VALUES = {
    "max_drift": "INTERVAL '1' HOUR",
    "max_output_rows_per_tick": "5",
    "on_null_time": "fail",
    "replace_newer_files": "true",
    "max_wait": "1 min",
    "on_rejected": "stop",
}


def read(settings: str = "", connector: str = "postgres", more: str = ""):
    return parse_job(settings + JOB.format(connector=connector, options=SINKS[connector] + more))


@pytest.mark.parametrize(("old", "now"), deprecated_names.SETTINGS.items())
def test_an_earlier_setting_is_that_of_today(old, now):
    assert now in (*OPTIONS, *RUN_SETTINGS)
    with pytest.warns(deprecated_names.EarlierName, match=f"^{old.upper()} is an earlier name: write {now}$"):
        job = read(f"SET {old.upper()} = {VALUES[now]};")
    assert job == read(f"SET {now} = {VALUES[now]};") != read()


@pytest.mark.parametrize(
    ("connector", "old", "now"),
    [
        (connector, old, now)
        for connector, names in deprecated_names.OPTIONS.items()
        for old, now in names.items()
    ],
)
def test_an_earlier_option_is_that_of_today(connector, old, now):
    notice = f"^option '{old}' is an earlier name: write '{now}'$"
    with pytest.warns(deprecated_names.EarlierName, match=notice):
        job = read("", connector, f", '{old}' = '{VALUES[now]}'")
    assert job == read("", connector, f", '{now}' = '{VALUES[now]}'") != read("", connector)
    with pytest.warns(deprecated_names.EarlierName, match=notice):
        assert sink(connector, "o", **{old: VALUES[now]}).options == {now: VALUES[now]}
    both = deprecated_names.options_of_today({old: "1 s", now: "2 s"}, connector)
    assert both == {old: "1 s", now: "2 s"}, "the connector refuses what is set twice"


def test_an_earlier_value_is_that_of_today():
    with pytest.warns(deprecated_names.EarlierName, match="write 'on_rejected' = 'dead_letter'"):
        assert sink("postgres", "o", on_rejected="aside").options == {"on_rejected": "dead_letter"}


def test_digests_of_stored_jobs_know_the_first_names():
    """Else an interrupted tick of before could not be repeated."""
    stored = settings_of(plan_job(read("SET on_null_time = fail;", more=", 'on_rejected' = 'dead_letter'")))
    assert stored["null_time"] == "fail"
    assert stored["sink \"o\": 'on_refused'"] == "aside"
    assert not stored.keys() & {"on_null_time", "sink \"o\": 'on_rejected'"}
    (told,) = differences(stored, stored | {"null_time": "count"})
    assert told == "on_null_time: fail before, count now"


def test_a_command_says_an_earlier_name_once(tmp_path, capsys):
    job = tmp_path / "job.sql"
    job.write_text(
        f"SET max_skew = INTERVAL '1' DAY;{JOB.format(connector='postgres', options=SINKS['postgres'])}"
    )
    with warnings.catch_warnings():
        assert main(["explain", str(job), "--null-time=fail"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "note: --null-time is an earlier name: write --on-null-time",
        "note: max_skew is an earlier name: write max_drift",
    ]
