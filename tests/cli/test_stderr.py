"""What a failing job leaves on standard error: its message, and nothing of libraries that end badly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
JOB = """
CREATE TABLE a (t BIGINT, s STRING, n INT, WATERMARK FOR t AS t)
  WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'json');
CREATE TABLE b (t BIGINT, n INT, WATERMARK FOR t AS t)
  WITH ('connector' = 'file', 'path' = '{path}', 'format' = 'json');
SELECT {what} AS x FROM a JOIN b ON a.t BETWEEN b.t AND b.t + 5 AND a.n * b.n > 1;
"""


def run_failing_command(tmp_path: Path, command: str, what: str, *options: str) -> list[str]:
    """The lines on standard error."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(json.dumps({"t": 1, "s": "zz", "n": 3}) + "\n")
    (tmp_path / "job.sql").write_text(JOB.format(path=tmp_path / "in", what=what))
    run = subprocess.run(
        [sys.executable, "-m", "watersmeet.cli.main", command, "job.sql", *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert run.returncode == 2, run.stderr
    return run.stderr.splitlines()


@pytest.mark.parametrize(
    "what",
    [
        "a.s OVER",
        *(pytest.param(text, marks=pytest.mark.full) for text in ("a.nosuch", "CAST(a.n AS NOSUCH)")),
    ],
)
def test_a_refused_job_says_so_and_no_more(tmp_path, what):
    lines = run_failing_command(tmp_path, "explain", what)
    assert lines[0].startswith(("SqlError[", "PlanError["))
    assert all(line.startswith(("SqlError[", "PlanError[", "Hint: ")) for line in lines), lines


@pytest.mark.spark
def test_a_tick_that_fails_says_so_and_no_more(tmp_path):
    """DuckDB is loaded, for the condition over both sides: it looks at exit whether all was freed."""
    lines = run_failing_command(tmp_path, "run", "CAST(a.s AS BIGINT)", "--until-caught-up")
    errors = [line for line in lines if line.startswith("EngineError[")]
    assert len(errors) == 1, lines
    assert errors[0].startswith(
        'EngineError[condition-failed]: INSERT "console": the column x = CAST(a.s AS BIGINT) failed: '
        "[CAST_INVALID_INPUT] "
    )
    assert "'zz'" in errors[0]
    assert "(job.sql, line 6, column 1)" in errors[0]
    assert not [line for line in lines if "nanobind" in line or "leaked" in line or "Traceback" in line], (
        lines
    )


def test_duckdb_s_connection_is_closed_before_the_interpreter_ends():
    """A run of TPC-H's query 3 over changes ended with forty lines of DuckDB's about what it had leaked."""
    code = (
        "import atexit; from watersmeet.kernel import duckdb;"
        "atexit.register(lambda: print(duckdb._connection));"  # called after what is registered later
        "duckdb.connection().execute('SELECT 1')"
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert (run.stdout, run.stderr) == ("None\n", "")
