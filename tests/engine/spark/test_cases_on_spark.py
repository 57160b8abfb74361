"""A third of the case files through Spark's scan, tasks and sinks; the in-process engine runs them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from watersmeet.engine.local import replay_case as replay_locally
from watersmeet.engine.spark.replay import replay_case
from watersmeet.testing.cases import check_case, load_cases

pytestmark = pytest.mark.spark

CASES = Path(__file__).parents[2] / "cases"

CHOSEN = {
    "asof": [
        "asof-waits-for-the-right-watermark",
        "asof-forward",
        "asof-equal-times-go-by-partition-then-place",
        "asof-first-of-equal-times",
        "asof-over-a-left-join",
    ],
    "inner": [
        "hz-P4-one-sided-condition",
        "hz-P8-late-row-dropped",
        "hz-Q6-where-is-part-of-the-condition",
        "hz-Q10-union-all-input",
        "hz-Q11-self-join",
        "flink-F22-late-side-output",
        "flink-F31-null-safe-key",
        "or-in-the-residual",
    ],
    "outer": [
        "hz-P12-duplicates-keep-multiplicity",
        "hz-O3-out-of-limit-padded-at-once-left",
        "hz-O9-key-range-null-key-left",
        "hz-F2-full",
        "spark-S10-early-exclusion-left-predicate",
        "null-time-is-dropped",
        "released-in-its-own-tick-matched-all-the-same",
    ],
    "bounds": [
        "hz-P11-shifted-equality-right",
        "hz-P13-strict-bounds",
        "hz-X12-bound-inside-one-input-filters",
        "flink-F36-inverted-interval-full",
        "flink-trap-time-zero-and-negative",
    ],
    "restart": [
        "hz-R4-late-stays-late-after-restart",
        "rescale-keeps-state",
        "restart-changelog-left",
        "ematix-E10-recovery",
    ],
    "watermarks": [
        "hz-P2-two-time-columns-left-tight",
        "hz-G1-two-partitions",
        "hz-C2-idle-partition-holds-again",
        "idle-follow",
        "ematix-E9-lateness-readmits",
        "judged-by-the-watermark-of-the-ticks-start",
    ],
    "multiway": [
        "hz-M2-four-streams",
        "hz-M3-cascade-tight",
        "hz-M5-padded-time-in-a-chain-left",
        "triangle-bounds-closed-transitively",
    ],
    "unions": [
        "no-join-at-all",
        "branch-that-was-idle-comes-back",
        "branch-of-one-partition-stays-silent",
        "lateness-is-taken-off-once",
        "union-in-a-union-in-a-join",
        "dates-and-timestamps-meet-in-a-union",
    ],
    "updates": [
        "risingwave-R5-full-non-equi",
        "flink-F52-left-left",
        "kafka-K1-eager-nulls-as-changelog",
        "stream-delete-brings-the-pad-back",
    ],
    "windows": [
        "hop-a-row-is-in-every-window-that-holds-it",
        "session-a-row-a-gap-after-the-last-one-belongs-to-it",
        "windows-over-the-padded-side-leave-pads-out",
        "aggregation-join-aggregation",
        "windows-of-timestamps-before-1970",
    ],
    "tables_as_of": [
        "table-as-of-left",
        "table-as-of-semi",
        "table-as-of-null-safe",
        "table-as-of-without-a-key",
        "table-as-of-before-a-join",
    ],
    "broadcast": [
        "broadcast-row-matched-in-several-tasks-is-padded-once-or-never",
        "broadcast-full-join-over-a-rescale",
    ],
    "session_changes": ["sessions-of-changes-merge-and-fall-apart", "final-sessions-of-changes"],
    "final_windows": ["final-windows-of-changes", "final-windows-over-a-join-of-changes"],
    "join_lateness": [
        "reopen-rows-are-kept-and-taken-so-much-longer",
        "a-partner-that-has-left-is-not-met-though-its-file-is-still-there",
        "partitions-and-timestamps",
    ],
    "refused": ["hz-E1-key-only", "refused-unknown-column"],
}


def chosen() -> list[Any]:
    found = []
    for name, wanted in CHOSEN.items():
        known = {case["case"]: case for case in load_cases(CASES / f"{name}.json")}
        found += [pytest.param(known[case], id=f"{name}-{case}") for case in wanted]
    return found


@pytest.mark.parametrize("case", chosen())
def test_case(spark: Any, case: dict[str, Any]) -> None:
    assert check_case(case, replay_case(case, partitions=2)) == []


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


def compared(query: str) -> dict[str, Any]:
    """A case to be compared with another engine."""
    columns = {"columns": {"t": "BIGINT", "k": "STRING"}, "time": {"t": {"lag": 20}}}
    return {"case": "c", "streams": dict.fromkeys("lrx", columns), "query": query, "steps": ROWS}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_agrees_with_the_engine_in_process(spark: Any, query: str) -> None:
    """Spread over two tasks, then three; rows of all steps, and what is retained, are the same."""
    case = compared(query)
    expected = [
        {key: line[key] for key in ("rows", "watermarks", "late", "state")}
        for line in replay_locally(case, partitions=1)
    ]
    assert sum(len(line["rows"]) for line in expected) > 0
    assert check_case({**case, "expect": expected}, replay_case(case, partitions=2)) == []
