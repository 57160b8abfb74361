"""Windows: a group that lacks a late row is late, one whose window is open is not yet due."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.diff.played import Played
from watersmeet.diff.bags import EXTRA, LATE, MISSING, NOT_DUE, UNEXPLAINED, open_database

ROWS = [[[1, "a"], [4, "a"], [12, "a"], [31, "b"]], [[2, "a"], [38, "c"], [45, "b"]]]


def case(
    window: str, shown: str = "window_start, window_end, k", rows: list[list[list[Any]]] = ROWS
) -> Played:
    return Played(
        {
            "case": "windows",
            "streams": {"s": {"columns": {"t": "BIGINT", "k": "STRING"}, "time": {"t": {"lag": 2}}}},
            "query": f"SELECT {shown}, count(*) AS n FROM TABLE({window})"
            " GROUP BY window_start, window_end, k",
            "steps": [{"rows": [["s", {"t": t, "k": k}] for t, k in tick]} for tick in rows],
        }
    )


def test_tumble(tmp_path: Path) -> None:
    played = case("TUMBLE(TABLE s, DESCRIPTOR(t), 10)")
    both = played.compared(open_database(str(tmp_path)), played.output)
    assert sorted(both.rows) == [
        (EXTRA, LATE, 1, (0, 10, "a", 2)),
        (MISSING, LATE, 1, (0, 10, "a", 3)),
        (MISSING, NOT_DUE, 1, (40, 50, "b", 1)),
    ]


def test_hop_and_session(tmp_path: Path) -> None:
    db = open_database(str(tmp_path))
    played = case("HOP(TABLE s, DESCRIPTOR(t), 5, 10)")
    assert played.compared(db, played.output).unexplained == 0
    played = case("SESSION(TABLE s, DESCRIPTOR(t), 5)")
    both = played.compared(db, played.output)
    assert sorted(both.rows) == [
        (EXTRA, LATE, 1, (1, 9, "a", 2)),
        (MISSING, LATE, 1, (1, 9, "a", 3)),
        (MISSING, NOT_DUE, 1, (38, 43, "c", 1)),  # up to the watermark: one more row may be of it
        (MISSING, NOT_DUE, 1, (45, 50, "b", 1)),
    ]


def test_extra_row_of_an_unknown_group_is_unexplained(tmp_path: Path) -> None:
    db = open_database(str(tmp_path))
    for shown, reason in (("window_start, k", LATE), ("window_start", UNEXPLAINED), ("k", UNEXPLAINED)):
        played = case("TUMBLE(TABLE s, DESCRIPTOR(t), 10)", shown)
        assert played.output is not None
        there = played.output.filter(pa.array([n == 2 for n in played.output.column("n").to_pylist()]))
        other = there.set_column(there.num_columns - 1, there.schema.field("n"), pa.array([77], pa.int64()))
        both = played.compared(db, pa.concat_tables([played.output, other]))
        assert [of for side, of, _, row in both.rows if side == EXTRA and row[-1] == 77] == [reason], shown


def test_times_at_the_edges_of_windows(tmp_path: Path) -> None:
    """Rows a gap apart, at the begin and at the end of a window, before the epoch."""
    db = open_database(str(tmp_path))
    rows = [[[t, "a"] for t in (-20, -15, -9, -5, 0, 5, 10, 16, 21)], [[99, "z"]]]
    windows = ["TUMBLE(TABLE s, DESCRIPTOR(t), 10)", "SESSION(TABLE s, DESCRIPTOR(t), 5)"]
    windows += [f"HOP(TABLE s, DESCRIPTOR(t), {slide}, 10)" for slide in (5, 4)]
    for window in windows:
        played = case(window, rows=rows)
        both = played.compared(db, played.output)
        assert both.put_out, window
        assert {reason for _, reason in both.counts} <= {NOT_DUE}, (window, both)
        assert all(row[2] == "z" for _, _, _, row in both.rows), (window, both)
    db.close()
