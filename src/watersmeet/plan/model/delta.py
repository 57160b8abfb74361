"""The nodes of a delta join: what is kept of its inputs, and the look-ups by which changes become results.

N inputs that are joined by inner joins alone need no intermediate result: each input's changes take a *path*
through the others, one look-up per step (McSherry and others, "Shared Arrangements", VLDB 2020; Idris and
others, "Dynamic Yannakakis", SIGMOD 2017). An `ArrangePlan` keeps the rows, a `DeltaPlan` per step has the
look-ups of all paths in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from watersmeet.measure import Measured
from watersmeet.plan.model.nodes import JoinPlan, MatchPlan, NodePlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import Column


@dataclass(frozen=True)
class FoundBy:
    """A further key by which rows are found where they are held by another. ``keys``: its columns; ``key``:
    as it was written, for people."""

    keys: tuple[str, ...]
    key: str


@dataclass(frozen=True)
class Arranged:
    """How the rows of a side are held: hashed by the columns ``keys``, sorted by one of ``indexes``. ``key``:
    as it was written, for people; empty: there is none. ``others``: keys by which the same rows are found,
    too."""

    keys: tuple[str, ...]
    indexes: tuple[Measured, ...]
    key: str = ""
    others: tuple[FoundBy, ...] = ()

    def keys_of(self, by: int | None) -> tuple[str, ...]:
        """The columns of the further key with this number, or (None) those of its own."""
        return self.keys if by is None else self.others[by].keys

    @property
    def every(self) -> tuple[tuple[str, ...], ...]:
        """The columns of all keys, its own first."""
        return (self.keys, *(other.keys for other in self.others))


@dataclass(frozen=True)
class CountedKey:
    """One key by which rows of the input ``alias`` are found: its columns ``keys``, how many ``rows`` are
    kept, and how many of them have one key, in the mean (all, where nobody counted keys)."""

    alias: str
    keys: tuple[str, ...]
    rows: int
    rows_per_key: float


@dataclass(frozen=True)
class Retention:
    """How long rows of the stream ``alias`` are kept: as long as any other stream may bring a partner.
    ``others``: per other stream a join with it whose ``bounds`` are those of this stream's rows by its."""

    alias: str
    others: tuple[MatchPlan, ...]


@dataclass(frozen=True, kw_only=True)
class ArrangePlan(NodePlan):
    """The rows of the inputs of a delta join, under every key by which paths look them up.

    ``sides``: the inputs in the query's order, then copies of some of them (`SidePlan.copy_of`) under further
    keys, where rows are sorted by more than their key; ``arranged``: of each side. Its rows are the changes
    of the tick, summed per row: path n begins with those of side n. ``retentions``: of inputs that are
    streams.
    """

    noun: ClassVar[str] = "arrangements"
    is_for_all: ClassVar[bool] = False

    arranged: tuple[Arranged, ...]
    retentions: tuple[Retention, ...]

    @property
    def leaving(self) -> tuple[SidePlan, ...]:
        return tuple(side for side in self.sides if side.copy_of is None)

    @property
    def keeps_by_times(self) -> bool:
        return not self.changes and not self.has_tables

    @property
    def ages(self) -> tuple[str, ...] | None:
        releasing = {bound.evicted for bound in self.bounds}
        for column in _times_among(self.sides[0], releasing):
            compared = self._compared_with(self.sides[0].watermark_key(column))
            own = [next(_times_among(side, releasing & compared), None) for side in self.sides]
            ages = tuple(column for column in own if column is not None)
            if len(ages) == len(own):
                return ages
        return None

    def _compared_with(self, key: str) -> set[str]:
        """The keys whose times are compared with it, or with ones that are."""
        pairs = [{bound.evicted, bound.by} for bound in self.bounds]
        compared, before = {key}, 0
        while len(compared) > before:
            before = len(compared)
            compared.update(*(pair for pair in pairs if pair & compared))
        return compared

    @property
    def has_tables(self) -> bool:
        """Streams are joined with tables: what a stream's row came to is final when it is released."""
        return bool(self.retentions) and len(self.retentions) < len(self.leaving)


def _times_among(side: SidePlan, keys: set[str]) -> Iterator[str]:
    """The event times of a side that are among these watermark keys."""
    yield from (column for column in side.event_times if side.watermark_key(column) in keys)


@dataclass(frozen=True)
class DeltaLookup:
    """One look-up of one path: rows of the side ``join.left`` meet the rows of ``place``, a side of the
    arrangements: as they are after the tick if it ``sees_tick``, else as they were before it. ``by``: the
    number of the further key of that side by which it finds them; None: that by which they are held."""

    join: JoinPlan
    place: int
    sees_tick: bool
    by: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeltaPlan(NodePlan):
    """One step of all paths of a delta join; its sides are the rows of the paths, as far as they have come.

    ``arrangements``: the number of the node that keeps the rows. ``lookups``, ``met``: per path, and the side
    of that node that it looks rows up in. ``keys``: the watermark keys of all inputs. ``path_names``: of the
    inputs with whose changes the paths begin. ``is_last``: its rows are joined rows of all inputs.
    ``releasing``: the keys by which kept rows go.
    """

    noun: ClassVar[str] = "delta step"

    arrangements: int
    lookups: tuple[DeltaLookup, ...]
    met: tuple[SidePlan, ...]
    met_arranged: tuple[Arranged, ...]
    keys: tuple[str, ...]
    path_names: tuple[str, ...]
    is_last: bool
    releasing: frozenset[str]

    @property
    def keeps_by_times(self) -> bool:
        """It keeps nothing itself."""
        return not self.changes

    @property
    def tables(self) -> tuple[SidePlan, ...]:
        return self.met

    @property
    def leaving(self) -> tuple[SidePlan, ...]:
        return (*self.sides, *self.met)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.lookups[0].join.columns

    @property
    def in_any_order(self) -> object:
        rows = frozenset(column.name for column in self.columns) if self.is_last else None
        return rows, self.number, self.arrangements, self.keys, self.path_names, self.is_last

    @property
    def watermark_keys(self) -> tuple[str, ...]:
        return self.keys
