"""Killed at steps of a run and started again: what tables hold is exact, as other readers see it.

At six steps of each case; at all of them with WATERSMEET_ALL_KILLS=1.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sinks.lake.lake_runs import expected
from tests.sinks.lake.lake_tables import Delta, Iceberg, Table


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


ALL = bool(os.environ.get("WATERSMEET_ALL_KILLS"))
SEED = random.randrange(1 << 32)
RANDOM = random.Random(SEED)
CASES = {"append": (["a"], False), "two inserts": (["a", "b"], False), "merge": (["a"], True)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("table_class", [Delta, Iceberg])
def test_killed_at_every_step(runner, tmp_path, case, table_class):
    inserts, keyed = CASES[case]

    def task(table: Table, kill_at: int | None) -> dict[str, object]:
        return {
            "connector": table.connector, "options": table.options, "state": str(table.state),
            "keyed": keyed, "inserts": inserts, "kill_at": kill_at,
        }  # fmt: skip

    whole = table_class(tmp_path / "whole")
    steps = runner(**task(whole, None))["steps"]
    assert whole.rows() == expected(inserts, keyed)
    assert steps > 30
    print("seed of the kills:", SEED)
    some = range(1, steps + 1) if ALL else sorted(RANDOM.sample(range(1, steps + 1), 6))
    for step in some:
        table = table_class(tmp_path / f"at-{step}")
        assert runner(**task(table, step)) == {"killed": True}
        runner(**task(table, None))
        assert table.rows() == expected(inserts, keyed), f"killed at step {step}"
        if not keyed:  # each task's second file: of a killed attempt none is left
            assert table.files() <= whole.files(), f"killed at step {step}"
