"""What `why` answers, as plain values: the fates of rows, and the same as a document for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

What = Literal[
    "not_read",
    "not_known",
    "beneath",
    "ahead",
    "broken",
    "late",
    "null_time",
    "filtered",
    "joined",
    "met",
    "padded",
    "unmatchable",
    "released_unmatched",
    "retained",
    "put_out",
    "on_time",
    "there",
    "replaced",
    "withdrawn",
    "never_there",
    "stale",
    "delete",
    "delete_of_nothing",
]
"""What became of a row, by the words of the account where it has one. ``not_read``: no tick has read it;
``beneath``: it is no part of the stream; ``met``: of an ANTI join, it met a row and goes out no more, and of
the side that a SEMI or ANTI join looks at; ``put_out``: of a query that does not join; ``on_time``: ingest
took it, and what became of it then is not told. Of records of changes: the row that it brought is ``there``
still, another one has ``replaced`` it, or a delete has ``withdrawn`` it; it was there after no tick
(``never_there``), or is of an older change than one before it (``stale``). It is a ``delete`` that took a
row away, or one of nothing."""

SHOWN = 5
"""So many of the rows that a row met, or was joined with, are listed."""

Row = Mapping[str, Any]

Told = tuple[What, str, dict[str, Any]]
"""What became of a row, in words, and what else of a `Fate` there is to say."""


@dataclass(frozen=True)
class Tick:
    """A tick of the history.

    Attributes:
        exact: False: this tick or an earlier one, because the history does not have all ticks one by one.
    """

    number: int
    exact: bool = True

    def __str__(self) -> str:
        return f"{'in' if self.exact else 'by'} tick {self.number}"


@dataclass(frozen=True)
class Met:
    """A row of the other input that the row matched.

    Attributes:
        row: The row. In a chain of joins, and for inputs that change, the rows of all other inputs by alias;
            None for an input that NULLs replace.
        place: The place of the row, or all places.
        left_out: The condition that stopped the joined row (WHERE of an outer join).
        until: The tick in which the match was retracted.
    """

    row: Row
    place: str
    tick: Tick
    left_out: str | None = None
    until: Tick | None = None


@dataclass(frozen=True)
class Record:
    """Another record of the same source.

    Attributes:
        place: Position of the record in the source.
    """

    row: Row
    place: str


@dataclass(frozen=True)
class Near:
    """A row of the other input that the row did not match, and the reasons.

    Attributes:
        failed: Conditions that failed, or the outcome of the other row itself.
    """

    row: Row
    place: str
    failed: Sequence[str]


@dataclass(frozen=True)
class Fate:
    """Outcome of one row of an input.

    Attributes:
        place: position of the row in its source.
        tick: the tick that read it.
        text: the outcome and its reason, for people.
        left: the tick that emitted it unmatched or evicted, replaced or withdrew it.
        until: for a retained row, the condition for its release.
        more_met: number of matching rows that are not listed.
        left_out: the condition that dropped its padded row.
        reached: in a chain of joins, the rows with which it was joined before it stopped.
        by: in an input that changes, the record that replaced or withdrew its row, or because of which
            the row was present after no tick.
        instead_of: the row that it replaced or removed.
    """

    row: Row
    source: str
    place: str
    what: What
    text: str
    tick: Tick | None = None
    left: Tick | None = None
    met: Sequence[Met] = ()
    more_met: int = 0
    near: Sequence[Near] = ()
    until: str | None = None
    left_out: str | None = None
    reached: Sequence[Met] = ()
    by: Record | None = None
    instead_of: Record | None = None


@dataclass(frozen=True)
class Answer:
    """Answer for one input of one query.

    Attributes:
        ticks: the first and the last tick that the history has individually.
        fates: outcomes of the requested rows.
        more: number of further rows that match the question.
        notes: limits of the answer.
    """

    query: str
    input: str
    ticks: tuple[int, int]
    fates: Sequence[Fate]
    more: int = 0
    notes: Sequence[str] = ()

    def with_notes(self, notes: Sequence[str]) -> Answer:
        """Return the answer with `notes` before its own notes."""
        return replace(self, notes=(*notes, *self.notes))

    def document(self) -> dict[str, Any]:
        """Return the answer as values of JSON, by the names that users see."""
        return {
            "query": self.query,
            "input": self.input,
            "ticks": self.ticks,
            "rows": [_fate_document(fate) for fate in self.fates],
            "more_rows": self.more,
            "notes": self.notes,
        }


_OUTCOMES: Mapping[What, str] = {
    "beneath": "not_in_stream",
    "met": "matched",
    "put_out": "emitted",
    "on_time": "accepted",
    "there": "current",
    "withdrawn": "deleted",
    "never_there": "never_current",
    "delete_of_nothing": "missing_delete",
}
"""The outcomes whose names are others for users."""


def _fate_document(fate: Fate) -> dict[str, Any]:
    own = asdict(fate)
    return {
        **{name: own[name] for name in ("row", "source", "place")},
        "outcome": _OUTCOMES.get(fate.what, fate.what),
        "text": fate.text,
        "tick": own["tick"],
        "left_in": own["left"],
        "retained_until": fate.until,
        "matches": [_met_document(met) for met in fate.met],
        "more_matches": fate.more_met,
        "joined_before": [_met_document(met) for met in fate.reached],
        "filtered_by": fate.left_out,
        "near_misses": own["near"],
        "changed_by": own["by"],
        "replaces": own["instead_of"],
    }


def _met_document(met: Met) -> dict[str, Any]:
    own = asdict(met)
    return {
        **{name: own[name] for name in ("row", "place", "tick")},
        "filtered_by": met.left_out,
        "retracted_in": own["until"],
    }


def line_of(row: Row) -> str:
    """Format a row for use within a sentence."""
    return (
        "(" + ", ".join(f"{name} {'NULL' if value is None else value}" for name, value in row.items()) + ")"
    )
