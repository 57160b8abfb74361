"""Values at the ends of their types among others: what a look-up by a band of sums costs, and finds."""

from __future__ import annotations

import pytest

from tests.support.ticks import QUERY, arriving, plan_of
from watersmeet.errors import EngineError
from watersmeet.kernel.match import pairs
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

ROWS = 2_000
MOST = 2**31 - 1
COLUMNS = {"t": "BIGINT", "p": "INT", "i": "INT"}
STREAMS = {side: {"columns": COLUMNS, "time": {"t": {"lag": 0}}} for side in "lr"}
ENDS = [((), ()), ((MOST,), ()), ((), (MOST,)), ((-MOST - 1,), ()), ((), (-MOST - 1,))]


@pytest.fixture
def candidate_counts(monkeypatch):
    """The candidates that were looked at, counted."""
    seen, accepted = [], pairs.accept_pairs

    def count_candidates(condition, needles, side, ni, *rest):
        seen.append(len(ni))
        return accepted(condition, needles, side, ni, *rest)

    monkeypatch.setattr(pairs, "accept_pairs", count_candidates)
    return seen


def run_join(on: str, kind: str, left, right) -> list[tuple]:
    plan = plan_of(f"SELECT l.i AS a, r.i AS b FROM l {kind} r ON l.t = r.t AND {on}", STREAMS)
    job = LocalJob(plan, MemoryStore(), partitions=1)
    sides = {
        name: [{"t": 0, "p": n, "i": value} for n, value in enumerate([*range(ROWS), *ends])]
        for name, ends in (("l", left), ("r", right))
    }
    output = [*job.tick(arriving(l=sides["l"])).rows[QUERY], *job.tick(arriving(r=sides["r"])).rows[QUERY]]
    output += [*job.tick({}, end=True).rows[QUERY]]
    return sorted(tuple(row.values()) for row in output)


@pytest.mark.parametrize(("left", "right"), ENDS)
@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
def test_a_value_at_its_end_costs_its_own_pairs(left, right, kind, candidate_counts):
    on = "l.i - r.i BETWEEN 3 AND 4 AND l.p >= 0"
    fails = any(
        one - other not in range(-MOST - 1, MOST + 1) for one in (*left, 0) for other in (*right, ROWS - 1)
    )
    fails |= any(
        one - other not in range(-MOST - 1, MOST + 1) for one in (*left, ROWS - 1) for other in (*right, 0)
    )
    if fails:
        with pytest.raises(EngineError, match="ARITHMETIC_OVERFLOW"):
            run_join(on, kind, left, right)
    else:
        values = {side: [*range(ROWS), *ends] for side, ends in (("l", left), ("r", right))}
        lacking = [(a, None) for a in values["l"] if a - 3 not in values["r"] and a - 4 not in values["r"]]
        wanted = [(a, a - d) for a in values["l"] for d in (3, 4) if a - d in values["r"]]
        found = run_join(on, kind, left, right)
        assert {*found} == {*wanted, *(lacking if kind == "LEFT JOIN" else ())}
        assert len(found) == len({*found})
    assert sum(candidate_counts) <= 4 * ROWS


def test_pairs_excluded_by_other_bands_are_not_evaluated(candidate_counts):
    """The right row at the end of its type is beneath no left row, so no sum is computed of it."""
    assert run_join("l.i + 3 > r.i AND l.i < r.i", "JOIN", (MOST,), ()) == [
        (i, i + d) for i in range(ROWS) for d in (1, 2) if i + d < ROWS
    ]
    assert sum(candidate_counts) <= 4 * ROWS
