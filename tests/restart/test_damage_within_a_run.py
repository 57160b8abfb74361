"""Files of the state that are damaged while the job runs: the tick that reads them fails, or the rows are
right. Judged by a nested loop over everything."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.restart.test_damaged_files import QUERY_TEXT, batches, join_all_rows
from tests.support.effort import at_effort
from tests.support.ticks import plan_of, stream
from watersmeet.errors import StateError
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import LocalStore

DAMAGES = at_effort(quick=80, full=800)
KINDS = ("flipped", "zeros", "ones", "cut", "longer", "older", "swapped")


@pytest.fixture(scope="module")
def plan() -> JobPlan:
    return plan_of(QUERY_TEXT, {"l": stream(3), "r": stream(3)})


def damage(draw: random.Random, files: list[Path]) -> str:
    """Damage a run or a file of marks, its times as they were; return what was done.

    Half of the damages leave its length as it was; an older file or another one's may have the same, too.
    """
    file = draw.choice(files)
    before = file.stat()
    data = bytearray(file.read_bytes())
    others = [each for each in files if each.parent == file.parent and each.read_bytes() != data]
    what = draw.choice(
        ["flipped", "zeros", "ones", "cut", "longer", *(["older", "swapped"] if others else [])]
    )
    if what == "flipped":
        place = draw.randrange(len(data))
        data[place] ^= 1 << draw.randrange(8)
    elif what == "cut":
        del data[draw.randrange(len(data)) :]
    elif what == "longer":
        data += draw.choice([b"\0", bytes(data)])
    elif what in ("older", "swapped"):
        other = (
            min(others, key=lambda each: each.stat().st_mtime_ns) if what == "older" else draw.choice(others)
        )
        data = bytearray(other.read_bytes())
    else:
        start = draw.randrange(len(data))
        data[start:] = bytes([0 if what == "zeros" else 255]) * (len(data) - start)
    with file.open("r+b") as opened:
        opened.truncate(len(data))
        opened.write(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    return f"{what} {file.parent.name}"


def test_damage_within_a_run_is_refused_or_the_rows_are_right(
    plan: JobPlan, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda handle: None)
    draw, given = random.Random(seed), batches()
    expected, counted = join_all_rows(given), Counter[str]()
    for number in range(DAMAGES):
        root = tmp_path / str(number)
        job, found, told = LocalJob(plan, LocalStore(root), partitions=2), Counter[Any](), ""
        damaged_at = draw.randrange(1, len(given) + 1)
        try:
            for tick, rows in enumerate([*given, {}]):
                if tick == damaged_at:
                    files = sorted(root.glob("runs/*")) + sorted(root.glob("marks/*"))
                    told = damage(draw, files)
                output = job.tick(rows, clock_us=tick, end=tick == len(given))
                found.update(
                    tuple(row.values()) for table in output.tables.values() for row in table.to_pylist()
                )
        except StateError:
            assert found <= expected, (number, told, found - expected)
            counted[f"refused: {told}"] += 1
            continue
        assert found == expected, (seed, number, told, expected - found, found - expected)
        counted[f"right: {told}"] += 1
    print(counted)
    for kind in KINDS:
        assert sum(n for what, n in counted.items() if what.startswith(f"refused: {kind}")) > DAMAGES // 100
    refused = {what.removeprefix("refused: ") for what in counted if what.startswith("refused: ")}
    # Bytes behind a file's marks change nothing, and an older file of marks is seldom read again.
    for folder, spared in (("runs", set()), ("marks", {"longer", "older"})):
        own = {what.split()[0] for what in refused if what.endswith(folder)}
        assert own, (seed, folder)
        assert own >= at_effort(quick=set(), full={*KINDS} - spared), (seed, folder, own)
