"""The least retained times of joins whose rows leave early cost what leaves, not what is kept."""

from __future__ import annotations

import pytest

from tests.support.ticks import QUERY, arriving, plan_of, stream
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.tasks.side import RunSlice
from watersmeet.state.store import MemoryStore

ROWS = 2_000
TIMES = {"columns": {"t": "BIGINT", "u": "BIGINT", "k": "BIGINT"}}


@pytest.fixture
def mark_read_counts(monkeypatch):
    """How many rows were asked for whether they are gone, and how many marks of whole slices were read."""
    found = {"rows": 0}
    asked = RunSlice.read_marks

    def are(self, kind, rows):
        if kind == "gone":
            found["rows"] += len(rows)
        return asked(self, kind, rows)

    monkeypatch.setattr(RunSlice, "read_marks", are)
    return found


def declare_stream(lag=10**6):
    return {
        **stream(lag, {"t": "BIGINT", "u": "BIGINT", "k": "BIGINT"}),
        "time": {"t": {"lag": lag}, "u": {"lag": lag}},
    }


def rows(first, count, key=0):
    return [{"t": n, "u": ROWS - n, "k": key + n} for n in range(first, first + count)]


BOUND = "l.k = r.k AND l.t BETWEEN r.t - 100000 AND r.t + 100000"
QUERIES = {
    "semi": (f"SELECT l.t, l.u, l.k FROM l LEFT SEMI JOIN r ON {BOUND}", {}),
    "changelog": (
        f"SELECT l.t, l.u, l.k, r.t AS rt FROM l LEFT JOIN r ON {BOUND}",
        {"output_mode": "changelog"},
    ),
}


@pytest.mark.parametrize("kind", QUERIES)
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_tick_without_rows_looks_at_few(kind, partitions, mark_read_counts):
    query, options = QUERIES[kind]
    streams = {"l": declare_stream(), "r": declare_stream()}
    job = LocalJob(plan_of(query, streams, **options), MemoryStore(), partitions=partitions)
    job.tick(arriving(l=rows(0, ROWS)))
    job.tick(arriving(r=rows(0, ROWS // 2)))  # by SEMI half of the rows leave
    mark_read_counts["rows"] = 0
    output = job.tick(arriving(r=rows(ROWS * 2, 1)))
    assert mark_read_counts["rows"] < 100 * partitions
    state = job.driver.manifest.queries[QUERY].nodes[0].arrangements["l"]
    if kind == "semi":
        assert output.result.queries[QUERY].state["l"] == ROWS // 2
        assert state.runs[0].cursors["t"] == ROWS // 2


def test_what_has_left_is_passed_over_once(mark_read_counts):
    query, _ = QUERIES["semi"]
    job = LocalJob(plan_of(query, {"l": declare_stream(), "r": declare_stream()}), MemoryStore())
    job.tick(arriving(l=rows(0, ROWS)))
    mark_read_counts["rows"] = 0
    for first in range(0, ROWS - 100, 100):
        job.tick(arriving(r=rows(first, 100)))
    # Of each match both rows ask whether the left one has left before; each is passed over once, in steps
    # that look at twice as many at most.
    assert mark_read_counts["rows"] < 4 * ROWS


def test_a_session_looks_at_few(mark_read_counts):
    query = (
        "SELECT window_start, window_end, k, count(*) AS n FROM TABLE(SESSION(TABLE l, DESCRIPTOR(t), 10)) "
        "GROUP BY window_start, window_end, k"
    )
    job = LocalJob(plan_of(query, {"l": stream(5_000, {"t": "BIGINT", "k": "BIGINT"})}), MemoryStore())
    job.tick(arriving(l=[{"t": n * 2, "k": n % 7} for n in range(ROWS)]))
    job.tick(arriving(l=[{"t": 2 * ROWS, "k": 1}]))
    mark_read_counts["rows"] = 0
    job.tick(arriving(l=[{"t": 2 * ROWS + 1, "k": 1}]))
    assert mark_read_counts["rows"] < 60


CHANGELOG = {"output_mode": "changelog"}
FEW = {
    "inner": f"SELECT l.t, r.t AS rt FROM l JOIN r ON {BOUND}",
    "full": f"SELECT l.t, r.t AS rt FROM l FULL JOIN r ON {BOUND}",
    "semi": f"SELECT l.t FROM l LEFT SEMI JOIN r ON {BOUND}",
    "anti": f"SELECT l.t FROM l LEFT ANTI JOIN r ON {BOUND}",
    "asof": "SELECT l.t, r.t AS rt FROM l LEFT ASOF JOIN r MATCH_CONDITION (l.t >= r.t) ON l.k = r.k",
    "sessions": (
        "SELECT window_end, k, count(*) AS n FROM TABLE(SESSION(TABLE l, DESCRIPTOR(t), 10)) "
        "GROUP BY window_start, window_end, k"
    ),
    "changes, inner": f"SELECT l.t, r.t AS rt FROM l JOIN r ON {BOUND}",
    "changes, full": f"SELECT l.t, r.t AS rt FROM l FULL JOIN r ON {BOUND}",
    "changes, left, two times": f"SELECT l.t, r.t AS s FROM l LEFT JOIN r ON {BOUND} AND l.u <= r.t + 100000",
}


@pytest.mark.parametrize("kind", FEW)
def test_a_tick_of_few_rows_reads_and_writes_few_marks(kind, monkeypatch):
    """However many rows are retained: marks of a whole slice are neither read nor written."""
    changes = kind.startswith("changes")
    one = {**stream(10**6, {"t": "BIGINT", "k": "BIGINT"})}
    left = declare_stream() if "two times" in kind else one
    streams = {"l": left} if kind == "sessions" else {"l": left, "r": one}
    job = LocalJob(plan_of(FEW[kind], streams, **(CHANGELOG if changes else {})), MemoryStore())
    job.tick(arriving(**{name: [{"t": n, "u": n, "k": n} for n in range(ROWS)] for name in "l"}))
    whole = []
    asked = RunSlice.marks
    monkeypatch.setattr(RunSlice, "marks", lambda self, kind: whole.append(kind) or asked(self, kind))
    for number in (7, 700, 1_500):
        other = "l" if kind == "sessions" else "r"
        output = job.tick(arriving(**{other: [{"t": number, "k": number}]}))
        assert not whole
    state = job.driver.manifest.queries[QUERY].nodes[0].arrangements["l"]
    stored = [segment for live in state.runs for segments in live.marks.values() for segment in segments]
    each = 8 if changes else 4
    assert sum(segment.nbytes for segment in stored) <= each * 3
    if kind in ("full", "semi", "anti") or changes:
        assert sum(segment.nbytes for segment in stored) == each * 3
    assert output.result.queries[QUERY].account


def test_deletes_in_changelog_mode_cost_what_they_take_away(monkeypatch):
    """Of many retained rows a few are taken away, on both sides at once, and pads come and go."""
    one = {**stream(10**6, {"t": "BIGINT", "k": "BIGINT"})}
    job = LocalJob(plan_of(FEW["changes, full"], {"l": one, "r": one}, **CHANGELOG), MemoryStore())
    job.tick(arriving(**{name: [{"t": n, "k": n} for n in range(ROWS)] for name in "lr"}))
    whole = []
    asked = RunSlice.marks
    monkeypatch.setattr(RunSlice, "marks", lambda self, kind: whole.append(kind) or asked(self, kind))
    for number in (7, 700, 1_500):
        row = {"t": number, "k": number}
        output = job.tick({"l": [(row, -1)], "r": [({**row, "k": number + 1, "t": number + 1}, -1)]})
        assert len(output.rows[QUERY]) == 4  # two pairs go, and the row that each leaves behind is padded
    assert not whole
    nodes = job.driver.manifest.queries[QUERY].nodes[0]
    stored = [s for a in nodes.arrangements.values() for live in a.runs for s in live.marks.get("gone", ())]
    assert sum(segment.nbytes for segment in stored) == 2 * 3 * 4
