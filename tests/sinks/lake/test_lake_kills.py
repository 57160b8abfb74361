"""Killed at steps of a run and started again: what tables hold is exact, as other readers see it.

At some steps of each case; at all of them at full effort.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sinks.lake.lake_runs import compute_expected_rows
from tests.sinks.lake.lake_tables import Delta, Iceberg, Table
from tests.support.effort import at_effort


class Runner:
    """Runs in processes that are forked from one that has imported everything."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.sinks.lake.lake_runs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )

    def __call__(self, **task):
        self._server.stdin.write(json.dumps(task) + "\n")
        self._server.stdin.flush()
        said = json.loads(self._server.stdout.readline())
        assert "error" not in said, said["error"]
        return said

    def close(self) -> None:
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait(10)


@pytest.fixture(scope="module")
def runner():
    made = Runner()
    yield made
    made.close()


CASES = {"append": (["a"], False), "two inserts": (["a", "b"], False), "merge": (["a"], True)}


@pytest.mark.parametrize(
    ("table_class", "case"),
    [
        (Delta, "two inserts"),
        (Iceberg, "merge"),
        pytest.param(Delta, "append", marks=pytest.mark.full),
        pytest.param(Delta, "merge", marks=pytest.mark.full),
        pytest.param(Iceberg, "append", marks=pytest.mark.full),
        pytest.param(Iceberg, "two inserts", marks=pytest.mark.full),
    ],
)
def test_table_has_each_row_once_after_a_kill(runner, tmp_path, seed, case, table_class):
    inserts, keyed = CASES[case]

    def task(table: Table, kill_at: int | None) -> dict[str, object]:
        return {
            "connector": table.connector, "options": table.options, "state": str(table.state),
            "keyed": keyed, "inserts": inserts, "kill_at": kill_at,
        }  # fmt: skip

    whole = table_class(tmp_path / "whole")
    steps = runner(**task(whole, None))["steps"]
    assert whole.rows() == compute_expected_rows(inserts, keyed)
    assert steps > 30
    drawn = random.Random(seed).sample(range(1, steps + 1), at_effort(quick=1, full=steps))
    for step in drawn:
        table = table_class(tmp_path / f"at-{step}")
        assert runner(**task(table, step)) == {"killed": True}
        runner(**task(table, None))
        assert table.rows() == compute_expected_rows(inserts, keyed), f"killed at step {step}"
        if not keyed:  # each task's second file: of a killed attempt none is left
            assert table.files() <= whole.files(), f"killed at step {step}"
