"""Pipelines by the command line, and on Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipelines.texts import edit_pipeline_text
from watersmeet.cli.main import main
from watersmeet.pipelines import Join, Pipeline, Source, Target, run_streaming_pipeline

FILES = """\
name = "clicked"
checkpoint = "state"

[[sources]]
name = "impressions"
connection = { connector = "file", path = "impressions", format = "csv" }
columns = { ad = "BIGINT", user = "STRING", at = "BIGINT" }

[[sources]]
name = "clicks"
connection = { connector = "file", path = "clicks", format = "csv" }
columns = { ad = "BIGINT", user = "STRING", at = "BIGINT" }

[transform.join]
left_source = "impressions"
right_source = "clicks"
left_keys = ["ad", "user"]
right_keys = ["ad", "user"]
time_window = "5 minutes"
event_time_column = "at"
how = "left"
lateness = "join"
allowed_lateness = "1 minute"
output_right_columns = "at"

[target]
connection = { connector = "file", path = "out", format = "parquet" }

[settings]
until_caught_up = true
finish = true
partitions = 2
"""
IMPRESSIONS = [(1, "u", 1_000_000), (1, "v", 1_000_000), (2, "u", 2_000_000)]
CLICKS = [(1, "u", 700_000), (1, "u", 1_300_000), (1, "u", 1_300_001), (2, "v", 2_000_000)]
WANTED = [
    (1, "u", 1_000_000, 1_300_000), (1, "u", 1_000_000, 700_000),
    (1, "v", 1_000_000, None), (2, "u", 2_000_000, None),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, rows in (("impressions", IMPRESSIONS), ("clicks", CLICKS)):
        (tmp_path / name).mkdir()
        lines = ["ad,user,at", *(",".join(map(str, row)) for row in rows)]
        (tmp_path / name / "1.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "clicked.toml").write_text(FILES)
    return tmp_path


def run_validate(folder: Path, text: str, capsys) -> tuple[str, str]:
    (folder / "clicked.toml").write_text(text)
    assert main(["validate", "clicked.toml"]) == 0
    said = capsys.readouterr()
    return said.out, said.err


def test_valid_pipeline_prints_notes_about_state_and_output(folder, capsys):
    out, err = run_validate(folder, FILES, capsys)
    first, last = out.splitlines()
    assert first.startswith(
        'note: clicked has no state_store: its state is kept beside the checkpoint, in "state"'
    )
    assert last.endswith("it puts out left_ad, left_user, left_at, right_at")
    assert err == ""
    assert sorted(path.name for path in folder.iterdir()) == ["clicked.toml", "clicks", "impressions"]


def test_undeclared_columns_are_inferred(folder, capsys):
    text = FILES.replace('columns = { ad = "BIGINT", user = "STRING", at = "BIGINT" }\n', "")
    out, err = run_validate(folder, text, capsys)
    assert out.splitlines()[-1].endswith("it puts out left_ad, left_user, left_at, right_at")
    assert 'the columns of "clicks" are inferred from 1 file' in err


def test_pipeline_with_a_state_store_prints_no_state_note(folder, capsys):
    out, _ = run_validate(folder, edit_pipeline_text(), capsys)
    assert "note:" not in out


@pytest.mark.parametrize("time", ["TIMESTAMP", "BIGINT"])
def test_it_warns_of_limits_that_will_not_hold(time, folder, capsys):
    """Rows stay for 5 min of reach, 1 min of allowed lateness, 10 s of lag: 370 s; 10 of them a second are
    3,700 a side, 5 of the hot key 1,850."""
    rate = [('connector = "memory"', 'connector = "memory"\nrows_per_second = 10')]
    text = edit_pipeline_text(
        *[(rate[0][0] + "\n\n", rate[0][1] + "\n\n")] * 2,
        ('lag = "10 seconds"', 'lag = "10 seconds"\nhot_key_rows_per_second = 5'),
        *([('at = "TIMESTAMP"', f'at = "{time}"')] * 2 if time == "BIGINT" else []),
        ("max_rows = 1_000_000", "max_rows = 7_399\nmax_rows_per_key = 1_849"),
    )
    _, err = run_validate(folder, text, capsys)
    assert "max_rows_per_key = 1,849: forecast by the declared hot key of impressions 1,850 rows" in err
    assert "max_rows = 7,399: forecast by declared rates 7,400 rows" in err
    assert len(err.splitlines()) == 2
    _, err = run_validate(folder, text.replace("7_399", "7_401").replace("1_849", "1_850"), capsys)
    assert err == ""


def test_flags_do_not_change_its_lateness(folder, capsys):
    """Rows would be late by another rule than its join says."""
    flags = ["--lateness", "column", "--allowed-lateness", "1 second"]
    for command in ("run", "explain", "preview"):
        assert main([command, "clicked.toml", *flags]) == 2
        err = capsys.readouterr().err
        assert 'lateness = "column" is for SQL jobs; this is a pipeline' in err
        assert "lateness and allowed_lateness" in err
        assert 'allowed_lateness = "' in err


def test_a_job_of_sql_is_no_pipeline(folder, capsys):
    assert main(["validate", "job.sql"]) == 2
    assert "watersmeet explain job.sql" in capsys.readouterr().err


def test_the_schema_is_printed(capsys):
    assert main(["schema", "pipeline"]) == 0
    assert json.loads(capsys.readouterr().out)["required"] == ["name", "sources", "transform", "target"]
    assert main(["schema", "job"]) == 2


def test_other_commands_take_a_pipeline(folder, capsys):
    assert main(["preview", "clicked.toml", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[0])
    assert sorted(map(tuple, shown["rows"]), key=str) == WANTED
    assert main(["explain", "clicked.toml"]) == 0
    assert "Lateness (SET lateness = join)" in capsys.readouterr().out
    assert main(["reset", "clicked.toml", "--yes"]) == 0
    assert "no checkpoint in" in capsys.readouterr().out


def read_output_rows(path: Path) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in pq.read_table(path).to_pylist()), key=str)


def of_files(name: str) -> Source:
    return Source(
        name=name,
        connection={"connector": "file", "path": name, "format": "csv"},
        columns={"ad": "BIGINT", "user": "STRING", "at": "BIGINT"},
    )


@pytest.mark.spark
def test_the_same_rows_on_spark_from_toml_and_from_python(spark, folder, capsys):
    assert main(["run", "clicked.toml", "--no-live"]) == 0
    assert "note: clicked has no state_store" in capsys.readouterr().err.splitlines()[0]
    assert read_output_rows(folder / "out") == WANTED
    said: list[str] = []
    result = run_streaming_pipeline(
        name="clicked",
        sources=[of_files("impressions"), of_files("clicks")],
        target=Target(connection={"connector": "file", "path": "again", "format": "parquet"}),
        join=Join(
            left_source="impressions",
            right_source="clicks",
            left_keys=["ad", "user"],
            right_keys=["ad", "user"],
            time_window="5 minutes",
            event_time_column="at",
            how="left",
            lateness="join",
            allowed_lateness="1 minute",
            output_right_columns="at",
        ),
        settings={"until_caught_up": True, "finish": True, "partitions": 2},
        on_notice=said.append,
    )
    assert result.finished
    assert said[0].startswith(
        'clicked has no state_store: its state is kept beside the checkpoint, in ".watersmeet'
    )
    assert read_output_rows(folder / "again") == WANTED


@pytest.mark.spark
def test_a_pipeline_is_started(spark, folder):
    told = []
    pipeline = Pipeline.from_toml(FILES.replace('how = "left"', 'how = "inner"'))
    started = pipeline.start(on_tick=lambda report: told.append(report.tick))
    assert started.await_termination(120)
    assert started.status == "finished"
    assert told == list(range(1, len(told) + 1))
    assert told
    assert read_output_rows(folder / "out") == WANTED[:2]
