"""What input must not do: it fails the step, or is told in the line of the step; it is never passed over."""

from __future__ import annotations

import pytest

from tests.support.oracle.case import run_case
from watersmeet.runtime.local import replay_case

STREAM = {"columns": {"t": "TIMESTAMP"}, "time": {"t": {"lag": None}}}
NINE, FIVE = "2024-01-01T09:00:00", "2024-01-01T05:00:00"


def advancing(*marks, **options):
    streams = {"l": STREAM, "r": STREAM}
    query = "SELECT l.t FROM l JOIN r ON l.t = r.t"
    steps = [{"restart": True} if mark is None else {"advance": {"l.t": mark}} for mark in marks]
    return {"case": "c", "streams": streams, "query": query, "options": options, "steps": steps}


@pytest.mark.parametrize("between", [(), (None,)], ids=["at once", "after a restart"])
def test_an_advance_below_the_watermark_fails_the_step(between):
    case = advancing(NINE, NINE, *between, FIVE)
    lines = replay_case(case)
    assert ["error" in line for line in lines] == [False] * (len(lines) - 1) + [True]
    assert "l.t is 2024-01-01 09:00:00, but the advance sets it to 2024-01-01 05:00:00" in lines[-1]["error"]
    assert "[advance-goes-back]" in lines[-1]["error"]
    assert "never goes back" in run_case(case)[-1]["error"]


def test_if_lenient_it_is_reported_and_moves_nothing():
    case = advancing(NINE, FIVE, NINE, lenient=True)
    lines = replay_case(case)
    told = {"key": "l.t", "watermark": NINE, "advance": FIVE}
    assert [line.get("advances_back") for line in lines] == [None, [told], None]
    assert [line["watermarks"] for line in lines] == [line["watermarks"] for line in run_case(case)]


def test_lenient_is_true_or_false():
    (line,) = replay_case(advancing(NINE, lenient="yes"))
    assert "unknown option" in line["error"]


def test_delete_of_a_missing_row_is_reported_and_counted():
    columns = {"t": "TIMESTAMP", "d": "DATE", "k": "STRING", "n": "DECIMAL(10,2)"}
    case = {
        "case": "c",
        "tables": {"a": {"columns": columns}, "b": {"columns": {"k": "STRING"}}},
        "query": "SELECT a.t, a.d, a.n, a.k FROM a JOIN b ON a.k = b.k",
        "options": {"output_mode": "changelog"},
        "steps": [
            {"rows": [["a", {"t": NINE, "d": "2024-01-02", "k": "x", "n": "1.50"}]]},
            {"rows": [["a", {"t": FIVE, "d": "2024-01-02", "k": "x", "n": "1.50"}, -1]] * 2},
            {"rows": [["a", {"t": NINE, "d": "2024-01-02", "k": "x", "n": "1.50"}, -1]]},
        ],
    }
    for partitions in (1, 3):
        first, second, third = replay_case(case, partitions)
        row = {"t": FIVE, "d": "2024-01-02", "k": "x", "n": "1.50"}
        assert second["missing_deletes"] == [{"stream": "a", "row": row}]
        assert second["missing_deletes_count"] == 2
        assert "missing_deletes" not in first | third
        assert second["state"] == {"a": 1, "b": 0}
        assert third["state"] == {"a": 0, "b": 0}
