"""Any file of ours, damaged in any way, at any moment at which a job can stand still: the next run refuses
with what to do, or its rows are right. Judged by a nested loop over everything."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.restart.hosted import Hosted, Killed
from tests.support.effort import at_effort
from tests.support.ticks import Rows, arriving, plan_of, stream
from watersmeet.errors import WatersmeetError
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.state.checksums import add_checksum, verify_checksum

ON = "l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5 AND l.v > 0"
QUERY_TEXT = f"SELECT l.i AS a, r.i AS b FROM l FULL JOIN r ON {ON}"
MAX_DAMAGES = at_effort(quick=112, full=560)
"""Number of damages that are drawn of all."""
PER_FILE = 4

MOMENTS: dict[str, list[dict[str, Any]]] = {
    "before the first commit": [{"kill": (1, "commit")}],
    "before anything was published": [{"until": 2, "kill": (2, "publish")}],
    "stopped": [{"until": 3}],
    "between publish and commit": [{"until": 3}, {"until": 4, "kill": (4, "commit")}],
    "between our commit and Spark's": [{"until": 4, "kill": (4, "spark-commit")}],
    "within a tick without rows": [{"kill": (6, "commit")}],
    "within the end of input": [{"finish": True, "kill": (7, "commit")}],
}
"""What ran before, for each moment at which a file is damaged."""


def batches() -> list[Rows]:
    """Nobody is late: what comes out is the join of everything."""
    draw = random.Random(5)

    def rows(tick: int, side: int) -> list[dict[str, Any]]:
        return [
            {
                "t": tick * 10 + draw.randrange(8),
                "k": draw.choice(["a", "b", None]),
                "v": draw.randrange(3),
                "i": tick * 100 + side * 50 + n,
            }
            for n in range(4)
        ]

    return [arriving(l=rows(tick, 0), r=rows(tick, 1)) for tick in range(5)]


def join_all_rows(given: list[Rows]) -> Counter[tuple[Any, Any]]:
    """The FULL JOIN of all rows, by a nested loop."""
    left = [row for batch in given for row, _ in batch["l"]]
    right = [row for batch in given for row, _ in batch["r"]]
    pairs = [
        (a["i"], b["i"])
        for a in left
        for b in right
        if a["k"] is not None and a["k"] == b["k"] and abs(a["t"] - b["t"]) <= 5 and a["v"] > 0
    ]
    met_left, met_right = {a for a, _ in pairs}, {b for _, b in pairs}
    pairs += [(a["i"], None) for a in left if a["i"] not in met_left]
    pairs += [(None, b["i"]) for b in right if b["i"] not in met_right]
    return Counter(pairs)


@pytest.fixture(autouse=True)
def merge_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # what a power failure takes is judged elsewhere


@pytest.fixture(scope="module")
def plan() -> JobPlan:
    return plan_of(QUERY_TEXT, {"l": stream(3), "r": stream(3)})


def stood_still(folder: Path, plan: JobPlan, runs: list[dict[str, Any]]) -> Hosted:
    """The job at a moment; what its files were before the last run is in ``older`` beside it."""
    hosted = Hosted(folder, plan, batches())
    for number, settings in enumerate(runs):
        if number == len(runs) - 1 and (folder / "checkpoint").exists():
            shutil.copytree(folder / "checkpoint", folder / "older")
        try:
            hosted.run(**settings)
        except Killed:
            assert "kill" in settings
        else:
            assert "kill" not in settings, settings
    return hosted


def test_without_damage_the_rows_are_right_whatever_the_moment(plan: JobPlan, tmp_path: Path) -> None:
    for number, runs in enumerate(MOMENTS.values()):
        hosted = stood_still(tmp_path / str(number), plan, runs)
        hosted.run(finish=True)
        assert hosted.visible() == join_all_rows(batches())


def damages(draw: random.Random, file: Path, older: list[Path]) -> Iterator[tuple[str, bytes | None]]:
    """What can become of a file: in words, and the bytes that it then has (None: it is removed)."""
    data = file.read_bytes()
    yield "emptied", b""
    yield "removed", None
    for other in older[:2]:
        if other.read_bytes() != data:
            yield f"older ({other.name})", other.read_bytes()
    for _ in range(PER_FILE if data else 0):
        place = draw.randrange(len(data))
        flipped = bytes([data[place] ^ (1 << draw.randrange(8))])
        yield f"flipped at {place}", data[:place] + flipped + data[place + 1 :]
        yield f"cut at {place}", data[:place]
    digits = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
    for place in draw.sample(digits, min(PER_FILE, len(digits))):  # what parses as well as the right one
        digit = draw.choice([each for each in b"0123456789" if each != data[place]])
        yield f"another digit at {place}", data[:place] + bytes([digit]) + data[place + 1 :]


def older_ones(file: Path, folder: Path) -> list[Path]:
    """The same file as it was before, and older files of its kind."""
    of_checkpoint = file.is_relative_to(folder / "checkpoint")
    before = folder / "older" / file.relative_to(folder / "checkpoint") if of_checkpoint else file
    found = [before] if before.is_file() and before != file else []
    return found + [each for each in sorted(file.parent.iterdir()) if each.is_file() and each != file]


def ours(hosted: Hosted) -> list[Path]:
    """Every file that a run of ours wrote and reads; Spark's own are judged on Spark."""
    checkpoint, out = hosted.folder / "checkpoint", hosted.folder / "out"
    found = [path for path in checkpoint.rglob("*") if path.is_file()]
    found = [path for path in found if not path.is_relative_to(checkpoint / "spark")]
    marks = [path for path in out.rglob("_*") if path.is_file()]
    return sorted(found + marks)


def outcome(hosted: Hosted, expected: Counter[tuple[Any, Any]]) -> tuple[str, str]:
    """What the next run makes of it: "right", "refused" or "WRONG", and why."""
    try:
        hosted.run(finish=True)
    except WatersmeetError as error:
        found = hosted.visible()
        if not error.hint:
            return "WRONG", f"refused without a hint: {error}"
        if not found <= expected:
            return "WRONG", f"refused ({error.code}) after wrong rows: {found - expected}"
        return "refused", str(error)
    except Exception as error:
        return "WRONG", f"{type(error).__name__}: {error}"
    found = hosted.visible()
    if found != expected:
        return "WRONG", f"rows missing {expected - found}, too many {found - expected}"
    return "right", ""


def test_a_damaged_file_is_refused_or_the_rows_are_right(plan: JobPlan, tmp_path: Path, seed: int) -> None:
    draw, expected = random.Random(seed), join_all_rows(batches())
    every: list[tuple[str, Hosted, str, str, bytes | None]] = []
    for number, (moment, runs) in enumerate(MOMENTS.items()):
        hosted = stood_still(tmp_path / f"{number}", plan, runs)
        for file in ours(hosted):
            name = str(file.relative_to(hosted.folder))
            for what, data in damages(draw, file, older_ones(file, hosted.folder)):
                every.append((moment, hosted, name, what, data))
    outcomes: list[tuple[str, str, str, str, str]] = []
    for moment, hosted, name, what, data in draw.sample(every, min(MAX_DAMAGES, len(every))):
        copy = Hosted(tmp_path / "damaged", plan, hosted.batches)
        shutil.copytree(hosted.folder, copy.folder)
        if data is None:
            (copy.folder / name).unlink()
        else:
            (copy.folder / name).write_bytes(data)
        outcomes.append((moment, name, what, *outcome(copy, expected)))
        shutil.rmtree(copy.folder)
    wrong = [" | ".join(each) for each in outcomes if each[3] == "WRONG"]
    counted = Counter(each[3] for each in outcomes)
    print(f"{len(outcomes)} of {len(every)} damages: {dict(counted)}; seed {seed}")
    assert not wrong, f"seed {seed}\n" + "\n".join(wrong)
    assert len(outcomes) >= 0.9 * MAX_DAMAGES
    assert counted["right"] > 0.09 * MAX_DAMAGES
    assert counted["refused"] > 0.36 * MAX_DAMAGES


def test_wrong_rows_would_be_seen(plan: JobPlan, tmp_path: Path) -> None:
    """Were it not for the checksum: other numbers in a manifest, sealed as if they were right."""
    hosted = stood_still(tmp_path / "job", plan, MOMENTS["stopped"])
    file = max((hosted.folder / "checkpoint" / "state" / "manifests").iterdir())
    name = f"manifests/{file.name}"
    manifest = json.loads(verify_checksum(name, file.read_bytes()))
    (query,) = manifest["queries"].values()
    assert query["late_below"]
    query["late_below"] = {key: time + 10 for key, time in query["late_below"].items()}
    file.write_bytes(add_checksum(name, json.dumps(manifest)))
    assert outcome(hosted, join_all_rows(batches()))[0] == "WRONG"
