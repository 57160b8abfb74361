"""Changelog mode: at any tick the sum of all output diffs is the join of the sums of the inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.ticks import QUERY, plan_of, stream
from watersmeet.errors import EngineError
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.local.replay import replay_case
from watersmeet.runtime.tasks import side as slice_module
from watersmeet.state.store import MemoryStore

Row = tuple[int, str | None, int]
"""(t, k, i)"""

STREAMS = {name: stream(None, changes=True) for name in ("l", "r")}


def query(kind: str) -> str:
    on = "l.k = r.k AND r.t BETWEEN l.t - 2 AND l.t + 3"
    return f"SELECT l.i AS a, r.i AS b FROM l {kind} JOIN r ON {on}"


class Changes:
    """A changelog job, and the sum of what it has put out."""

    def __init__(self, kind: str, partitions: int = 1, **options: Any) -> None:
        plan = plan_of(query(kind), STREAMS, output_mode="changelog", **options)
        self.job = LocalJob(plan, MemoryStore(), partitions=partitions)
        self.total: Counter[Any] = Counter()

    def tick(
        self, left: Sequence[tuple[Row, int]] = (), right: Sequence[tuple[Row, int]] = ()
    ) -> Counter[Any]:
        """The diffs of this tick, zeros left out."""

        def rows(given: Sequence[tuple[Row, int]]) -> list[tuple[dict[str, Any], int]]:
            return [({"t": t, "k": k, "i": i, "v": 0}, diff) for (t, k, i), diff in given]

        found: Counter[Any] = Counter()
        output = self.job.tick({"l": rows(left), "r": rows(right)})
        for row in output.rows[QUERY]:
            assert row["_diff"] != 0
            assert (row["a"], row["b"]) not in found, "summed per row before it leaves"
            assert row["_tick"] == output.result.tick
            found[row["a"], row["b"]] += row["_diff"]
        self.missing = output.result.queries[QUERY].missing_deletes
        for pair, diff in found.items():
            self.total[pair] += diff
        return Counter({pair: diff for pair, diff in found.items() if diff})


def test_padded_row_is_emitted_at_once_and_retracted_by_a_match():
    changes = Changes("LEFT")
    assert changes.tick([((1, "a", 1), 1)]) == {(1, None): 1}
    assert changes.tick([], [((1, "a", 7), 1)]) == {(1, None): -1, (1, 7): 1}
    assert changes.tick([], [((1, "a", 7), -1)]) == {(1, 7): -1, (1, None): 1}


def test_a_pad_comes_back_when_the_last_of_several_partners_goes():
    changes = Changes("LEFT")
    changes.tick([((1, "a", 1), 1)])
    changes.tick([], [((1, "a", 7), 1), ((2, "a", 8), 1), ((2, "a", 8), 1)])
    assert changes.tick([], [((1, "a", 7), -1)]) == {(1, 7): -1}
    assert changes.tick([], [((2, "a", 8), -1)]) == {(1, 8): -1}
    assert changes.tick([], [((2, "a", 8), -1)]) == {(1, 8): -1, (1, None): 1}


def test_a_delete_takes_away_one_of_equal_rows():
    changes = Changes("INNER")
    changes.tick([((1, "a", 1), 1)] * 3, [((1, "a", 7), 1)])
    assert changes.tick([((1, "a", 1), -1)]) == {(1, 7): -1}
    assert changes.tick([((1, "a", 1), -1)] * 2) == {(1, 7): -2}
    assert changes.missing == ()


def test_diffs_of_a_tick_are_summed_before_anything_else():
    changes = Changes("FULL")
    assert changes.tick([((1, "a", 1), -1), ((1, "a", 1), 1)]) == {}
    assert changes.missing == ()


def test_deleting_what_is_not_there_is_reported_and_not_applied():
    changes = Changes("FULL")
    assert changes.tick([((1, "a", 1), -1)]) == {}
    assert len(changes.missing) == 1
    assert changes.missing == (("l", '{"t": 1, "k": "a", "v": 0, "i": 1}'),)
    assert changes.tick([((1, "a", 1), 1)]) == {(1, None): 1}


def test_equal_rows_of_a_tick_go_out_as_one_whether_they_can_match_or_not():
    changes = Changes("LEFT", partitions=2)
    rows = [(0, 1, None, 1, 3), (0, 2, "a", 2, 3), (0, 3, None, 3, 0), (0, 4, None, 4, -2)]
    given = [({"t": t, "k": k, "i": i, "v": v}, diff) for v, t, k, i, diff in rows]
    output = changes.job.tick({"l": given}).rows[QUERY]
    assert sorted((row["a"], row["_diff"]) for row in output) == [(1, 3), (2, 3), (4, -2)]
    many = ({"t": 9, "k": None, "i": 9, "v": 0}, 10**9)
    with pytest.raises(EngineError, match=r'the changes of "l" in a tick need .* in one task'):
        changes.job.tick({"l": [many]})


@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_that_the_projection_makes_equal_are_one_whatever_task_has_them(partitions):
    """Of 40 keys, in all tasks: only how many matches there are is left of them."""
    plan = plan_of(
        "SELECT l.i AS a, r.i IS NULL AS lone FROM l LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t AND l.t",
        STREAMS,
        output_mode="changelog",
    )
    job = LocalJob(plan, MemoryStore(), partitions=partitions)

    def rows(diff):
        return [({"t": 1, "k": f"k{n}", "i": n % 2, "v": 0}, diff) for n in range(40)]

    def tick(**given):
        return sorted(tuple(row.values()) for row in job.tick(given).rows[QUERY])

    assert tick(l=rows(1)) == [(0, True, 20, 1), (1, True, 20, 1)]
    assert tick(r=rows(1)[:10]) == [(0, False, 5, 2), (0, True, -5, 2), (1, False, 5, 2), (1, True, -5, 2)]
    # Ten matches go and other ten come: nobody sees anything.
    assert tick(r=[*rows(-1)[:10], *rows(1)[10:20]]) == []
    assert tick(l=rows(-1)) == [(0, False, -5, 4), (0, True, -15, 4), (1, False, -5, 4), (1, True, -15, 4)]


def test_both_partners_deleted_in_one_tick():
    changes = Changes("FULL")
    changes.tick([((1, "a", 1), 1)], [((1, "a", 7), 1)])
    assert changes.tick([((1, "a", 1), -1)], [((1, "a", 7), -1)]) == {(1, 7): -1}
    assert not +changes.total


@pytest.mark.parametrize("diff", [10**9, -(10**9)])
def test_a_diff_of_more_rows_than_a_task_may_hold_is_refused(diff):
    """A delete of a row that was released is applied as it is: it is not held to what is there."""
    changes = Changes("LEFT")
    changes.tick([((1, "a", 1), 1)])
    changes.job.tick({}, advances={"r": {"t": 100}})
    with pytest.raises(EngineError, match=r"a task may hold 1\.0 GiB") as error:
        changes.tick([((1, "a", 1), diff)])
    assert error.value.code == "task-memory"


@pytest.mark.parametrize(("first", "diff"), [((), 100), ((1,), -100)])
def test_copies_of_a_wide_row_are_weighed_as_that_row(first, diff):
    """Among narrow ones, which come once: not the mean of all of them counts."""
    changes = Changes("LEFT", max_task_memory=16 << 20)
    wide = (1, "w" * 1_000_000, 1)
    changes.tick([(wide, times) for times in first])
    changes.job.tick({}, advances={"r": {"t": 100}})
    with pytest.raises(EngineError, match=r"a task may hold 16\.0 MiB"):
        changes.tick([*(((2 + n, "a", n), diff // 100) for n in range(300)), (wide, diff)])


def batch_join(kind: str, left: Counter[Row], right: Counter[Row]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    matched: set[tuple[str, Row]] = set()
    for a, copies in left.items():
        for b, others in right.items():
            if a[1] is not None and a[1] == b[1] and -2 <= b[0] - a[0] <= 3:
                found[a[2], b[2]] += copies * others
                matched |= {("l", a), ("r", b)}
    if kind in ("LEFT", "FULL"):
        for a, copies in left.items():
            found[a[2], None] += 0 if ("l", a) in matched else copies
    if kind in ("RIGHT", "FULL"):
        for b, copies in right.items():
            found[None, b[2]] += 0 if ("r", b) in matched else copies
    return +found


@pytest.mark.parametrize(
    ("kind", "merged", "few"),
    [
        ("INNER", False, 1_000),
        ("LEFT", True, 2),
        ("FULL", False, 0),
        pytest.param("INNER", True, 2, marks=pytest.mark.full),
        pytest.param("INNER", False, 0, marks=pytest.mark.full),
        pytest.param("LEFT", False, 1_000, marks=pytest.mark.full),
        pytest.param("LEFT", False, 0, marks=pytest.mark.full),
        pytest.param("FULL", False, 1_000, marks=pytest.mark.full),
        pytest.param("FULL", True, 2, marks=pytest.mark.full),
    ],
)
def test_the_sum_of_all_diffs_is_the_join_of_the_sums(seed, kind, merged, few, monkeypatch):
    """``few``: marks of more rows than that are held as arrays."""
    monkeypatch.setattr(slice_module, "MIN_DENSE_MARKS", few)
    if merged:
        monkeypatch.setattr(merge_policy, "FAN_IN", 2)
        monkeypatch.setattr(merge_policy, "SMALL_ROWS", 10**9)
    rng = np.random.default_rng((seed, merged, few))
    changes = Changes(kind, partitions=3)
    there: dict[str, Counter[Row]] = {"l": Counter(), "r": Counter()}
    for _ in range(25):
        given: dict[str, list[tuple[Row, int]]] = {"l": [], "r": []}
        for name, rows in there.items():
            for _ in range(int(rng.integers(0, 6))):
                time, key = int(rng.integers(0, 6)), rng.choice(["a", "b", None], p=[0.6, 0.3, 0.1])
                row = (time, key, int(rng.integers(0, 3)) + 10 * time + 100 * "ab".find(key or "b"))
                given[name].append((row, 1))
                rows[row] += 1
            present = list(rows.elements())
            for number in rng.permutation(len(present))[: rng.integers(0, 4)]:
                given[name].append((present[number], -1))
                rows[present[number]] -= 1
            rng.shuffle(given[name])
            there[name] = +rows
        changes.tick(given["l"], given["r"])
        assert changes.missing == ()
        assert Counter({pair: n for pair, n in changes.total.items() if n}) == batch_join(
            kind, there["l"], there["r"]
        )


SAME = [
    ("DOUBLE", -0.0, 0.0),
    ("DOUBLE", float("nan"), float("nan")),
    ("FLOAT", 0.0, -0.0),
    ("ARRAY<DOUBLE>", [0.0, None, float("nan")], [-0.0, None, float("nan")]),
    ("ARRAY<INT>", [1, None], [1, None]),
    ("STRUCT<a:INT,b:DOUBLE>", {"a": None, "b": -0.0}, {"a": None, "b": 0.0}),
    ("MAP<STRING,INT>", {"a": 1, "b": None}, {"a": 1, "b": None}),
    ("DECIMAL(10,2)", "1.50", "1.5"),
    ("STRING", None, None),
]


@pytest.mark.parametrize("apart", [False, True], ids=["one tick", "two ticks"])
@pytest.mark.parametrize(("kind", "inserted", "deleted"), SAME)
def test_equal_rows_are_one_row_however_the_ticks_are_cut(kind, inserted, deleted, apart):
    """Two come and one goes, which is equal though it may be written in another way."""
    row = {"t": 2, "k": "a"}
    first = [["l", {**row, "v": inserted}], ["l", {**row, "v": inserted}]]
    other = [["l", {**row, "v": inserted if kind == "STRING" else _another(kind)}]]
    second = [["l", {**row, "v": deleted}, -1]]
    case = {
        "case": kind,
        "streams": {
            "l": {
                "columns": {"t": "BIGINT", "k": "STRING", "v": kind},
                "changes": True,
                "time": {"t": {"lag": None}},
            },
            "r": {"columns": {"t": "BIGINT", "k": "STRING"}, "changes": True, "time": {"t": {"lag": None}}},
        },
        "query": "SELECT l.v FROM l LEFT JOIN r ON l.k = r.k AND l.t BETWEEN r.t - 5 AND r.t + 5",
        "options": {"output_mode": "changelog"},
        "steps": [{"rows": first + other}, {"rows": second}] if apart else [{"rows": first + other + second}],
    }
    found = replay_case(case)
    assert found[-1]["state"] == {"l": 2, "r": 0}
    assert not any("missing_deletes" in step for step in found)
    assert sum(change["_diff"] for step in found for change in step["rows"]) == 2


def _another(kind: str) -> Any:
    """A value that is not equal to those above."""
    if kind.startswith("ARRAY"):
        return [1, 1]
    if kind.startswith(("STRUCT", "MAP")):
        return {"a": 2, "b": 1}
    return 7
