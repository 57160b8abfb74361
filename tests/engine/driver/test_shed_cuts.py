"""Which rows are shed, against lists of all rows that are kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from tests.support.ticks import QUERY, arriving, plan_of
from watersmeet.kernel.slots import hash_columns
from watersmeet.runtime.coordinator.load_shedding import (
    RetainedRun,
    choose_heaviest_keys,
    choose_oldest_rows,
)
from watersmeet.runtime.local import LocalJob
from watersmeet.state.manifest import Arrangement
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.store import MemoryStore


def build_retained_runs(seed):
    """The parts of a join after some ticks, and per part its rows: (time, upper half of the hash)."""
    random = np.random.default_rng(seed)
    job = LocalJob(
        plan_of(
            "SELECT l.t AS lt, r.t AS rt FROM l JOIN r ON l.i = r.i AND r.t BETWEEN l.t - 30 AND l.t + 9"
        ),
        MemoryStore(),
    )
    for tick in range(6):
        rows = {
            name: [
                {"i": int(random.integers(0, 12)), "t": 8 * tick + int(random.integers(0, 9))}
                for _ in range(int(random.integers(0, 20)))
            ]
            for name in "lr"
        }
        job.tick(arriving(**rows))
    (shape,), (node,) = job.driver.shapes[QUERY], job.driver.manifest.queries[QUERY].nodes
    parts, plain = [], []
    for side in shape.sides:
        kept: Arrangement = node.arrangements[side.name]
        for live in kept.runs:
            parts.append(
                RetainedRun(job.store, side, live, kept, OpenRun.open(job.store, live.run, side.layout), "t")
            )
            rows = pa.ipc.open_file(pa.BufferReader(job.store.read(live.run.name))).read_all()
            hashes = hash_columns([rows.column("i").combine_chunks()], len(rows)).tolist()
            times = rows.column("t").to_pylist()
            limit = kept.limits.get("t", -(1 << 60))
            plain.append(
                [(t, h >> 32, n) for n, (t, h) in enumerate(zip(times, hashes, strict=True)) if t >= limit]
            )
    return random, parts, plain


def chosen(parts):
    return {(number, int(row)) for number, part in enumerate(parts) for row in part.shed}


@pytest.mark.parametrize("case", range(at_effort(quick=12, full=40)))
def test_no_more_rows_are_shed_than_needed(case, seed):
    random, parts, plain = build_retained_runs([seed, case])
    weights = [int(random.integers(1, 9)) for _ in parts]
    counting = [
        (w, t, h, p, n) for p, (w, own) in enumerate(zip(weights, plain, strict=True)) for t, h, n in own
    ]
    assert counting
    excess = int(random.integers(1, sum(w for w, *_ in counting) + 1))
    if case % 2:
        by = lambda row: row[1]  # noqa: E731
        choose_oldest_rows(parts, excess, weights).apply(parts)
        order = sorted({by(row) for row in counting})
    else:
        by = lambda row: row[2]  # noqa: E731
        choose_heaviest_keys(parts, excess, weights).apply(parts)
        order = sorted(
            {by(row) for row in counting}, key=lambda h: (-sum(r[0] for r in counting if r[2] == h), h)
        )
    expected, weight = set(), 0
    for group in order:
        if weight >= excess:
            break
        of_group = [row for row in counting if by(row) == group]
        expected |= {(part, number) for *_, part, number in of_group}
        weight += sum(row[0] for row in of_group)
    assert chosen(parts) == expected
    assert all(part.stored == len(own) - len(part.shed) for part, own in zip(parts, plain, strict=True))
