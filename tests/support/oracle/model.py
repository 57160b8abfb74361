"""A query as the oracle has read it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.oracle.asof import AsofRule
from tests.support.oracle.inputs import Key, Source
from tests.support.oracle.sql import Function
from tests.support.oracle.tree import (
    LEFT_ONLY,
)


@dataclass
class JoinPlan:
    """One join of the query. Its sides are 0 (left) and 1 (right)."""

    kind: str
    sides: tuple[list[Source], list[Source]]
    """Per side, the inputs that its rows hold."""
    feeds: tuple[int | None, int | None]
    """Per side, the number of the join whose rows it gets; None: it is an input."""
    condition: list[Function]
    """A pair matches if all are TRUE."""
    never: tuple[list[Function], list[Function]]
    """Per side: functions of a row of that side; one that is not TRUE means the row can match nothing."""
    links: dict[tuple[Key, Key], int]
    """(A, B) -> c of ``A >= B - c``: the bounds of this join's own condition."""
    after: list[Function]
    """Its rows come into the next join if all are TRUE."""
    chains: dict[tuple[Key, Key], list[tuple[int, ...]]] = field(default_factory=dict)
    """(evicted A, by B) -> the constants of the links from A to B, closed: those that count here, between
    keys of one side and of the other. For several chains the sum of each is c."""
    asof: AsofRule | None = None

    @property
    def bounds(self) -> dict[tuple[Key, Key], int]:
        """(evicted A, by B) -> c."""
        return {pair: sum(chains[0]) for pair, chains in self.chains.items()}

    @property
    def pads(self) -> tuple[bool, bool]:
        """Per side, whether its rows go out, when they match nothing, with NULLs for the other side (ANTI:
        as they are)."""
        return self.kind in ("LEFT", "FULL", "ANTI", "ASOF LEFT"), self.kind in ("RIGHT", "FULL")

    @property
    def left_only(self) -> bool:
        """Whether it puts out rows of its left side as they are: nothing of the right one."""
        return self.kind in LEFT_ONLY

    @property
    def as_of(self) -> bool:
        """Whether its rows meet a table as that is in their tick."""
        return any(source.as_of for source in self.sides[1])


@dataclass
class Query:
    inputs: list[Source]
    filters: list[list[Function]]
    """Per input: conjuncts that sank down to it; a row is kept if all are TRUE."""
    joins: list[JoinPlan]
    """Children before parents; the last one is the root. None: rows of the one input go out as they are."""
    where: list[Function]
    """What of WHERE stays above the last join."""
    outputs: list[tuple[str, str, Function]]

    @property
    def bounds(self) -> dict[tuple[Key, Key], int]:
        """The bounds of the last join: of a query of two inputs, all."""
        return self.joins[-1].bounds
