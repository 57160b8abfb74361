"""Runs none of whose rows can match, or are released, are not opened: a tick costs what its own rows do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from watersmeet import LocalJob, parse_job, plan_job
from watersmeet.state.store import LocalStore

JOB = """
CREATE TABLE l (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 100000) WITH ('connector' = 'memory');
CREATE TABLE r (t BIGINT, k BIGINT, WATERMARK FOR t AS t - 100000) WITH ('connector' = 'memory');
CREATE TABLE out WITH ('connector' = 'memory');
INSERT INTO out SELECT l.t, r.t AS u FROM l {kind} JOIN r ON {key}r.t BETWEEN l.t AND l.t + 5;
"""


class Counting(LocalStore):
    """Which runs were read, in the last tick."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read_runs: list[str] = []

    def forget(self) -> None:
        """Begin a tick that holds nothing of those before it."""
        self.read_runs.clear()
        self.opened.clear()

    def read(self, name: str) -> pa.Buffer:
        if name.startswith("runs/"):
            self.read_runs.append(name)
        return super().read(name)


def near(rng: random.Random, time: int) -> dict[str, list[tuple[dict[str, Any], int]]]:
    return {
        side: [({"t": time + rng.randrange(5), "k": rng.randrange(3)}, 1) for _ in range(6)] for side in "lr"
    }


@pytest.mark.parametrize("key", ["l.k = r.k AND ", ""], ids=["key", "no key"])
@pytest.mark.parametrize("kind", ["", "FULL", "LEFT ANTI"])
def test_a_tick_reads_runs_near_its_rows_alone(kind: str, key: str, tmp_path: Path):
    text, no = JOB.format(kind=kind, key=key), "NOT EXISTS (SELECT 1 FROM r WHERE"
    if kind == "LEFT ANTI":
        text = text[: text.index("INSERT")]
        text += f"INSERT INTO out SELECT l.t FROM l WHERE {no} {key}r.t BETWEEN l.t AND l.t + 5);"
    store, rng = Counting(tmp_path), random.Random(7)
    job = LocalJob(plan_job(parse_job(text)), store)
    read: list[int] = []
    for tick in range(7):
        store.forget()
        job.tick(near(rng, 1000 * tick))
        read.append(len(set(store.read_runs)))
    assert len(set(read[1:])) == 1, read
    store.forget()
    late = job.tick(near(rng, 2000))
    assert len(set(store.read_runs)) > read[-1], "those of tick 2 may match"
    assert late.rows["out"] or kind == "LEFT ANTI"
