"""The case files through Spark's scan, tasks and sinks: some at quick effort, all at full effort.

The in-process engine runs all of them in every run of the tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.case_files import all_cases, cases_by_name
from watersmeet.runtime.local import replay_case as replay_locally
from watersmeet.runtime.spark.replay import replay_case
from watersmeet.testing.cases import check_case

pytestmark = pytest.mark.spark

CHOSEN = (
    "flink-F22-late-side-output",
    "hz-F2-full",
    "hz-R4-late-stays-late-after-restart",
    "rescale-keeps-state",
    "restart-changelog-left",
    "hz-C2-idle-partition-holds-again",
    "stream-delete-brings-the-pad-back",
    "session-a-row-a-gap-after-the-last-one-belongs-to-it",
    "table-as-of-left",
    "final-windows-over-a-join-of-changes",
)
"""Cases that quick effort plays: a join, a table, changes, windows, a restart, idleness, a new task count."""
FURTHER = (
    "asof-equal-times-go-by-partition-then-place",
    "hz-Q10-union-all-input",
    "hz-Q11-self-join",
    "flink-F31-null-safe-key",
    "hz-O9-key-range-null-key-left",
    "null-time-is-dropped",
    "idle-follow",
    "hz-M3-cascade-tight",
    "triangle-bounds-closed-transitively",
    "branch-that-was-idle-comes-back",
    "flink-F52-left-left",
    "broadcast-full-join-over-a-rescale",
    "partitions-and-timestamps",
    "hz-E1-key-only",
)


@pytest.mark.parametrize("name", [*CHOSEN, *(pytest.param(name, marks=pytest.mark.full) for name in FURTHER)])
def test_chosen_case(spark: Any, name: str) -> None:
    case = cases_by_name()[name]
    assert check_case(case, replay_case(case, partitions=2)) == []


@pytest.mark.full
@pytest.mark.parametrize("case", all_cases())
def test_case(spark: Any, case: dict[str, Any]) -> None:
    assert check_case(case, replay_case(case, partitions=3)) == []


ROWS: list[dict[str, Any]] = [
    {"rows": [["l", {"t": 100 * n, "k": "ab"[n % 2]}] for n in range(12)] + [["x", {"t": 300, "k": "a"}]]},
    {"rows": [["r", {"t": 100 * n + 5, "k": "a"}] for n in range(0, 12, 3)]},
    {"rescale": 3},
    {"rows": [["l", {"t": 1250, "k": "b"}], ["r", {"t": 1190, "k": None}], ["r", {"t": 1255, "k": "b"}]]},
    {"end": True},
]
ON_TIME = "r.t BETWEEN l.t - 90 AND l.t + 110"


QUERIES = {
    "without-key": f"SELECT l.t AS lt, r.t AS rt FROM l FULL JOIN r ON {ON_TIME}",
    "exists": f"SELECT l.t AS lt FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND {ON_TIME})",
    "anti-without-key": f"SELECT l.t AS lt FROM l LEFT ANTI JOIN r ON {ON_TIME}",
    "semi-beneath-left": f"SELECT l.t AS lt, x.t AS xt FROM l LEFT SEMI JOIN r ON {ON_TIME} "
    "LEFT JOIN x ON x.t = l.t AND x.k = l.k",
    "view": "SELECT v.t AS t, x.t AS xt "
    "FROM (SELECT l.t, upper(r.k) AS k FROM l JOIN r ON r.t BETWEEN l.t AND l.t + 9) v "
    "LEFT JOIN x ON upper(x.k) = v.k AND x.t = v.t",
    "union-at-the-top": "SELECT l.t AS t, upper(r.k) AS k, l.k || r.k AS both "
    f"FROM l FULL JOIN r ON {ON_TIME} UNION ALL SELECT x.t, x.k, NULL FROM x",
}


def build_case(query: str) -> dict[str, Any]:
    """A case to be compared with another engine."""
    columns = {"columns": {"t": "BIGINT", "k": "STRING"}, "time": {"t": {"lag": 20}}}
    return {"case": "c", "streams": dict.fromkeys("lrx", columns), "query": query, "steps": ROWS}


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(query, id=name, marks=[] if name in ("without-key", "view") else [pytest.mark.full])
        for name, query in QUERIES.items()
    ],
)
def test_agrees_with_the_engine_in_process(spark: Any, query: str) -> None:
    """Spread over two tasks, then three; rows of all steps, and what is retained, are the same."""
    case = build_case(query)
    expected = [
        {key: line[key] for key in ("rows", "watermarks", "late", "state")}
        for line in replay_locally(case, partitions=1)
    ]
    assert sum(len(line["rows"]) for line in expected) > 0
    assert check_case({**case, "expect": expected}, replay_case(case, partitions=2)) == []
