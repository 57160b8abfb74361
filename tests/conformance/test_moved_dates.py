"""Keys that compare a DATE with a moved DATE, or with a TIMESTAMP: in one type, as in Spark."""

from __future__ import annotations

import pytest

from watersmeet.runtime.local import replay_case

NOON = "2024-01-01T12:00:00"
STREAM = {"columns": {"t": "TIMESTAMP", "d": "DATE"}, "time": {"t": {"lag": 0}}}


@pytest.mark.parametrize(
    ("key", "meets"),
    [
        ("a.d = b.d - INTERVAL '2' DAY", True),
        ("a.d = b.d - INTERVAL '2 00:00:00' DAY TO SECOND", True),
        ("a.d = b.d - INTERVAL '48' HOUR", True),
        ("b.d = INTERVAL '2' DAY + a.d", True),
        ("b.d - INTERVAL '2' DAY = a.d", True),
        ("b.d - INTERVAL '1 day 1 day' <=> a.d", True),
        ("b.d - INTERVAL '47' HOUR = a.d", False),
        ("a.d = b.d - INTERVAL '1 12:00:00' DAY TO SECOND", False),
        ("a.t = b.d - INTERVAL '1 12:00:00' DAY TO SECOND", True),
        ("a.d = b.t", False),
    ],
)
def test_keys_of_moved_dates(key, meets):
    near = "a.t BETWEEN b.t - INTERVAL '9' DAY AND b.t + INTERVAL '9' DAY"
    case = {
        "case": "c",
        "streams": {"a": STREAM, "b": STREAM},
        "query": f"SELECT a.d AS x, b.d AS y FROM a JOIN b ON {near} AND {key}",
        "steps": [
            {"rows": [["a", {"t": NOON, "d": "2024-01-01"}], ["b", {"t": NOON, "d": "2024-01-03"}]]},
            {"rows": [["b", {"t": NOON, "d": None}]]},
        ],
    }
    first, second = replay_case(case)
    assert first["rows"] == ([{"x": "2024-01-01", "y": "2024-01-03"}] if meets else [])
    assert second["rows"] == []
