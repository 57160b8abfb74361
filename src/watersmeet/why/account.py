"""What the account of a tick says of the rows that left in it: where none of them was matched, none was."""

from __future__ import annotations

from typing import Literal

from watersmeet.history.points import subject_of
from watersmeet.spec.model import JoinKind
from watersmeet.why.rows import QueryRows, Spot

_UNMATCHED = ("padded", "released_unmatched")


def left_as(rows: QueryRows, spot: Spot) -> Literal["matched", "unmatched"] | None:
    """As what a row left the join, whoever it may have met; None: it has not left, or that is not known.

    Rows of an input that leave in a tick are counted as matched, or not. Where one of these counts has not
    grown from the last tick of which it is known that the row had not left, to the first in which it had, the
    row is of the other.
    """
    slot, history, join = spot.released, rows.history, rows.join
    if join is None or join.kind in (JoinKind.SEMI, JoinKind.ANTI):  # a row may leave before its time there
        return None
    if slot >= len(history):
        return None
    if slot == spot.slot and not spot.branch.of.exact[spot.row]:  # it may have left long before
        return None
    subject = subject_of("input", rows.query.name, spot.branch.side.name)

    def grew(*places: str) -> bool:
        for place in places:
            levels = history.levels(subject, place)
            if (levels[slot] or 0) != ((levels[slot - 1] or 0) if slot else 0):
                return True
        return False

    if grew("unknown"):  # of rows of a query that was changed it is not known whether they had met one
        return None
    if not grew("matched"):
        return "unmatched"
    return None if grew(*_UNMATCHED) else "matched"
