"""ASOF joins: of each left row the nearest right row, before or after it; what is not due yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.diff.played import Played
from watersmeet.diff.bags import EXTRA, MISSING, NOT_DUE, UNEXPLAINED, open_database

LEFT = [[10, "a", 1], [20, "a", 2], [30, "b", 3], [40, "a", 4]]
RIGHT = [[5, "a", 50], [9, "a", 90], [20, "a", 200], [21, "a", 210], [35, "b", 350], [100, "a", 0]]


def build_case(kind: str, match: str, on: str = "l.k = r.k") -> Played:
    rows = [["l", {"t": t, "k": k, "n": n}] for t, k, n in LEFT]
    rows += [["r", {"t": t, "k": k, "n": n}] for t, k, n in RIGHT]
    stream: dict[str, Any] = {
        "columns": {"t": "BIGINT", "k": "STRING", "n": "BIGINT"},
        "time": {"t": {"lag": 0}},
    }
    return Played(
        {
            "case": "asof",
            "streams": {"l": stream, "r": stream},
            "query": f"SELECT l.n AS l, r.n AS r FROM l {kind} JOIN r MATCH_CONDITION ({match}) ON {on}",
            "steps": [{"rows": rows}, {"rows": [["l", {"t": 99, "k": "z", "n": 9}]]}],
        }
    )


def nearest(sign: int, within: int, kind: str, *, equal: bool) -> set[tuple[int, int | None]]:
    """The join, said again: ``sign`` 1: the right row comes before."""
    found: set[tuple[int, int | None]] = set()
    for t, k, n in [*LEFT, [99, "z", 9]]:
        near = sorted(
            (sign * (t - at), value)
            for at, key, value in RIGHT
            if key == k and 0 <= sign * (t - at) <= within and (equal or at != t)
        )
        if near or kind == "LEFT ASOF":
            found.add((n, near[0][1] if near else None))
    return found


@pytest.mark.parametrize("kind", ["ASOF", "LEFT ASOF"])
@pytest.mark.parametrize(
    ("match", "sign", "equal"),
    [("l.t >= r.t", 1, True), ("l.t > r.t", 1, False), ("r.t <= l.t", 1, True), ("r.t >= l.t", -1, True)],
)
def test_the_nearest_row(tmp_path: Path, kind: str, match: str, sign: int, equal: bool) -> None:
    on = "l.k = r.k AND r.t " + ("> l.t - 15" if sign == 1 else "< l.t + 15")
    case = build_case(kind, match, on)
    db = open_database(str(tmp_path))
    both = case.compared(db, case.output)
    assert both.unexplained == 0, both
    answer = {tuple(row) for row in db.execute("SELECT __ws_c0, __ws_c1 FROM answer").fetchall()}
    assert answer == nearest(sign, 14, kind, equal=equal)
    db.close()


def test_another_row_is_seen_and_one_that_is_not_due_is_not_counted(tmp_path: Path) -> None:
    case = build_case("LEFT ASOF", "l.t >= r.t")
    db = open_database(str(tmp_path))
    assert set(case.compared(db, case.output).counts) <= {(MISSING, NOT_DUE)}
    rows = case.output.to_pylist()
    place = next(n for n, row in enumerate(rows) if row["r"] == 90)
    rows[place]["r"] = 50  # an older one
    changed = case.output.from_pylist(rows, schema=case.output.schema)
    found = case.compared(db, changed)
    wrong = [(side, why, row) for side, why, _, row in found.rows if why == UNEXPLAINED]
    assert (EXTRA, UNEXPLAINED, (1, 50)) in wrong, found
    assert (MISSING, UNEXPLAINED, (1, 90)) in wrong, "its time has passed: it is due"
    db.close()
