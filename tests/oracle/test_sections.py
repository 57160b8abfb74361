"""Runs that are stored in sections give the same results as runs that are one object each.

Random cases of every kind of plan node; each run is cut, however small, the number of tasks changes within a
case and between sections and tasks, and the job resumes from its state.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from tests.support.effort import at_effort
from tests.support.far_store import FarStore, cut_small
from tests.support.random_cases import random_case
from tests.support.random_lookups import random_lookup_case
from tests.support.random_multiway import random_multiway_case
from tests.support.random_orders import random_order_case
from tests.support.random_ranks import random_rank_case
from tests.support.random_unions import random_union_case
from tests.support.random_window_changes import random_changing_sessions, random_changing_windows
from tests.support.random_windows import random_window_case
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import replay
from watersmeet.state.manifest import FOLDERS, load_newest
from watersmeet.state.runs.reader import verify_run
from watersmeet.state.store import section_of

CASES = at_effort(quick=10, full=240)
KINDS = {
    "joins": random_case,
    "joins with deletes": lambda seed: random_case(seed, changelog=True),
    "multiway": random_multiway_case,
    "look-ups": random_lookup_case,
    "orders": random_order_case,
    "ranks": random_rank_case,
    "unions": random_union_case,
    "windows": random_window_case,
    "windows of changes": random_changing_windows,
    "sessions of changes": random_changing_sessions,
}


def insert_rescale_steps(case: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """The case with another number of tasks now and then, with which the job begins anew."""
    steps = []
    for step in case["steps"]:
        if draw.random() < 0.3:
            steps.append({"rescale": draw.choice([1, 2, 3, 5, 20])})
        steps.append(step)
    return {**case, "steps": steps}


def lines_of(case: dict[str, Any], partitions: int, hash_seed: str | None) -> list[Any]:
    lines = [line for line in replay.replay_case(case, partitions, hash_seed) if "error" not in line]
    return [
        {
            key: Counter(map(json.dumps, value)) if key in ("rows", "late") else value
            for key, value in line.items()
        }
        for line in lines
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_sections_change_nothing(kind, monkeypatch, seed):
    monkeypatch.setattr(merge_policy, "FAN_IN", 3)
    cut, draw = 0, random.Random(f"{kind} in sections, {seed}")
    wanted_cases = CASES // len(KINDS)
    for place, number in enumerate([draw.randrange(1_000_000) for _ in range(max(wanted_cases, 8))]):
        if place >= wanted_cases and cut:
            break
        case = insert_rescale_steps(KINDS[kind](number), draw)
        partitions, hash_seed = draw.choice([2, 3, 4, 7, 20]), draw.choice([None, "borders"])
        wanted = lines_of(case, partitions, hash_seed)
        with monkeypatch.context() as patch:
            cut_small(patch, draw.choice([2, 16]))
            store = FarStore()
            patch.setattr(replay, "MemoryStore", lambda store=store: store)
            got = lines_of(case, partitions, hash_seed)
        assert got == wanted, f"{kind}, seed {number}, {partitions} tasks"
        check_whole(store)
        cut += sum(count for sections, count in store.sections.items() if sections)
    assert cut > 0


def check_whole(store: FarStore) -> None:
    """All that is named is there, and is what was written."""
    manifest = load_newest(store)
    if manifest is None:
        return
    for live in manifest.runs():
        verify_run(store, live.run)
        section = section_of(live.run.name)
        assert section is None or section.length == live.run.nbytes
    assert manifest.files() <= {name for folder in FOLDERS for name in store.names(folder)}
