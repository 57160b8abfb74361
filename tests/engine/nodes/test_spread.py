"""Hot keys: which they are, and how rows are cut. The seed is the run's (``--seed``)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.support.ticks import QUERY, arriving, plan_of, stream
from watersmeet.event_time import Side
from watersmeet.kernel.match.pairs import PairCondition
from watersmeet.kernel.slots import TIME_BITS, borders
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.operators import repartition
from watersmeet.runtime.operators.repartition import Buckets, SplitRows
from watersmeet.runtime.tasks.side import HashRange
from watersmeet.state.store import MemoryStore

JOIN = "SELECT l.i AS li, r.i AS ri FROM l {kind} JOIN r ON l.i = r.i AND r.t BETWEEN l.t - 5 AND l.t + 5"


def rows_in(buckets: np.ndarray) -> SortedRows:
    slots = np.sort((buckets << np.int64(TIME_BITS)) + np.arange(len(buckets)) % 7)
    return SortedRows(slots, 0, 0, 0, None, None, {})


@pytest.mark.parametrize("case", range(20))
def test_each_row_is_one_tasks(seed, case):
    rng = np.random.default_rng([seed, case])
    drawn = rng.integers(-(2**31), 2**31, int(rng.integers(1, 9)))
    rows = rows_in(rng.choice(np.append(drawn, [-(2**31), 2**31 - 1]), int(rng.integers(0, 60))))
    hot_buckets = tuple(sorted({int(b) for b in rng.choice(drawn, 3)}))
    whole = frozenset(hot_buckets[:1])
    partitions = int(rng.integers(2, 9))
    condition = PairCondition.equal_columns(["k"], null_safe=False)
    owners, seen = np.zeros(len(rows), dtype=int), np.zeros(len(rows), dtype=int)
    for number in range(partitions):
        own = HashRange(*borders(partitions)[number : number + 2])
        for counts, all_of in ((owners, frozenset()), (seen, whole)):
            cut = SplitRows(condition, Side.LEFT, own, hot_buckets, all_of, None, number, partitions)
            parts = list(cut.parts(rows))
            assert all(a[1] < b[0] for a, b in pairwise(parts)), f"seed {seed}"
            for start, stop in parts:
                counts[start:stop] += 1
    assert (owners == 1).all(), f"seed {seed}"
    in_whole = np.isin(rows.slots >> np.int64(TIME_BITS), list(whole))
    assert (seen == np.where(in_whole, partitions, 1)).all(), f"seed {seed}"
    of_whole = sum(stop - start for start, stop in Buckets(tuple(whole)).parts(rows))
    assert of_whole == in_whole.sum()


def find_split_keys(
    query: str, keys: list[int], tasks: int, monkeypatch, **options
) -> list[tuple[str, float]]:
    """The keys that a tick of the left rows, one per key told, and one right row per key is split by."""
    monkeypatch.setattr(repartition, "MIN_SPLIT_WORK", 100.0)
    plan = plan_of(query, {"l": stream(100), "r": stream(100)}, **options)
    job = LocalJob(plan, MemoryStore(), partitions=tasks)
    left = [{"i": key, "t": n % 10} for n, key in enumerate(keys)]
    output = job.tick(arriving(l=left, r=[{"i": key, "t": 5} for key in sorted(set(keys))]))
    split = output.result.queries[QUERY].split
    return [(key.key, key.share) for side in split.values() for key in side]


KEYS = [7] * 600 + list(range(1000, 2400))


def test_a_key_is_split_by_its_share_of_what_a_task_is_to_do(monkeypatch):
    for tasks in (1, 2):
        assert find_split_keys(JOIN.format(kind="LEFT"), KEYS, tasks, monkeypatch) == []
    for tasks in (4, 8):
        ((key, share),) = find_split_keys(JOIN.format(kind="LEFT"), KEYS, tasks, monkeypatch)
        assert key == "i = 7"
        assert 1 / (2 * tasks) < share < 0.3
    assert find_split_keys(JOIN.format(kind="LEFT"), KEYS, 1, monkeypatch) == []


def test_little_work_is_not_split(monkeypatch):
    assert find_split_keys(JOIN.format(kind="INNER"), [7] * 40, 4, monkeypatch) == []


def test_joins_over_changes_are_not_split(monkeypatch):
    plain = JOIN.format(kind="INNER")
    assert find_split_keys(plain, KEYS, 8, monkeypatch, output_mode="changelog") == []
    assert find_split_keys(plain, KEYS, 8, monkeypatch) != []
