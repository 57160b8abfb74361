"""Windows on Spark against Spark's own batch aggregation of the same rows: with functions that tasks compute,
and with functions that are left to Spark."""

from __future__ import annotations

import random
from typing import Any

import pytest

from watersmeet.engine.spark.replay import replay_case

pytestmark = pytest.mark.spark

AGGREGATES = {
    "tasks": "count(*) AS n, sum(v) AS s, avg(v) AS m, count(DISTINCT k) AS d, max_by(v, v) AS x",
    "spark": "count(*) AS n, percentile_approx(v, 0.5) AS p, approx_count_distinct(k) AS d,"
    " sort_array(collect_list(v)) AS l, sum(v) FILTER (WHERE k = 'a') AS s",
}
WINDOWS = {
    "TUMBLE({}, INTERVAL '10' MINUTES)": "window(t, '10 minutes')",
    "HOP({}, INTERVAL '3' MINUTES, INTERVAL '9' MINUTES)": "window(t, '9 minutes', '3 minutes')",
    "SESSION({}, INTERVAL '2' MINUTES)": "session_window(t, '2 minutes')",
}


def rows_of(seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "t": f"1970-01-01T{rng.randint(0, 1):02}:{rng.randint(0, 59):02}:{rng.choice((0, 0, 30)):02}",
            "k": rng.choice("abc"),
            "v": rng.choice((None, *range(9))),
        }
        for _ in range(120)
    ]


@pytest.mark.parametrize("ours", WINDOWS, ids=["tumble", "hop", "session"])
def test_windows_are_those_of_spark(spark: Any, seed: int, ours: str) -> None:
    """A late row none, so all rows count; what is left to Spark by turns with what tasks compute."""
    rows = rows_of(seed)
    kind = "spark" if ours.startswith("HOP") else "tasks"
    function = ours.format("TABLE s, DESCRIPTOR(t)")
    case = {
        "case": "windows",
        "streams": {
            "s": {
                "columns": {"t": "TIMESTAMP", "k": "STRING", "v": "BIGINT"},
                "time": {"t": {"lag": "2 HOURS"}},
            }
        },
        "query": f"SELECT window_start, window_end, k, {AGGREGATES[kind]} FROM TABLE({function})"
        " GROUP BY window_start, window_end, k",
        "steps": [
            {"rows": [["s", row] for row in rows[:70]]},
            {"rows": [["s", row] for row in rows[70:]] + [["s", {"t": "1970-01-01T02:30:00", "k": "z"}]]},
            {"rescale": 3},
            {"end": True},
        ],
    }
    lines = replay_case(case, partitions=2)
    assert lines[1]["rows"], "results go out when windows close, not at the end"
    found = [row for line in lines for row in line["rows"]]
    frame = spark.createDataFrame(rows, "t STRING, k STRING, v BIGINT").selectExpr(
        "timestamp(t) AS t", "k", "v"
    )
    frame.createOrReplaceTempView("rows_of_windows")
    theirs = spark.sql(
        f"SELECT w.start AS window_start, w.end AS window_end, k, {AGGREGATES[kind]}"
        f" FROM (SELECT *, {WINDOWS[ours]} AS w FROM rows_of_windows) GROUP BY w, k"
        if not ours.startswith("SESSION")
        else f"SELECT {WINDOWS[ours]}.start AS window_start, {WINDOWS[ours]}.end AS window_end, k,"
        f" {AGGREGATES[kind]} FROM rows_of_windows GROUP BY {WINDOWS[ours]}, k"
    )
    expected = [
        {
            **row.asDict(),
            "window_start": row.window_start.isoformat(),
            "window_end": row.window_end.isoformat(),
        }
        for row in theirs.collect()
    ]
    assert len(expected) > 10
    assert sorted(map(repr, (r for r in found if r["k"] != "z"))) == sorted(map(repr, expected))
