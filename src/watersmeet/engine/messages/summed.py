"""The shapes of nodes of which what is kept adds up: groups, windows, partitions whose rows come and go."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from watersmeet.engine.messages.shapes import NodeShape, SideShape
from watersmeet.kernel.groups import GroupParts
from watersmeet.names import ours
from watersmeet.spec.model import WINDOW_END, WINDOW_START, WindowKind

PANE = ours("pane")
"""Stored column: the start of a pane, as times are stored."""


@dataclass(frozen=True, kw_only=True)
class SummedShape(NodeShape):
    """What is kept of the rows of the one side adds up, and is of groups that change as a whole.

    ``columns``: what rows have. ``keys``: (name in the result, column of the side). ``parts``: what is kept
    of groups; ``kept``: the side of the runs that hold it. ``results``: the types of what is computed, in
    order.
    """

    keys: tuple[tuple[str, str], ...]
    parts: GroupParts
    kept: SideShape
    results: tuple[tuple[str, pa.DataType], ...]

    @property
    def stored(self) -> tuple[SideShape, ...]:
        return (self.kept,)

    @property
    def kept_anew(self) -> bool:
        return True

    @property
    def combines(self) -> bool:
        return True

    @property
    def by(self) -> tuple[str, ...]:
        """The columns of the side of which groups have one value each."""
        return tuple(dict.fromkeys(column for _, column in self.keys))

    @property
    def looked_up_by(self) -> tuple[str, ...]:
        """Those of them that rows that change together have in common."""
        return self.by

    @property
    def telling(self) -> frozenset[str] | None:
        return frozenset(name for name, _ in (*self.keys, *self.results))

    @property
    def is_always(self) -> bool:
        """There is one group, even of no row."""
        return False

    @property
    def of_one(self) -> str:
        """What is kept of a group, for people."""
        return f'the state of one group of "{self.query}"'

    @property
    def joined_schema(self) -> pa.Schema:
        kinds = {column.name: column.type for column in self.columns}
        keys = [pa.field(name, kinds[column]) for name, column in self.keys]
        return pa.schema([*keys, *(pa.field(name, kind) for name, kind in self.results)])

    @property
    def event_times(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, kw_only=True)
class GroupShape(SummedShape):
    """Groups over all rows of the one side; see `plan.model.nodes.GroupPlan`. ``results``: the aggregates."""

    @property
    def is_always(self) -> bool:
        return not self.by

    @property
    def of_one(self) -> str:
        return f"{super().of_one}, including every distinct value of MIN, MAX and DISTINCT,"


@dataclass(frozen=True, kw_only=True)
class WindowGroupShape(SummedShape):
    """Windows over the time ``time`` of the one side, and groups in them, whose rows come and go; see
    `plan.model.nodes.WindowGroupPlan`. What is kept is of panes of the width ``pane``, by their start in the
    column `PANE`; of sessions they are the times themselves, and ``size`` is the gap. ``window_type``: of
    window_start and window_end. ``is_final``: results go out once, at the close."""

    kind: WindowKind
    time: str
    size: int
    slide: int
    pane: int
    window_type: pa.DataType
    is_final: bool

    @property
    def by(self) -> tuple[str, ...]:
        return (PANE, *self.looked_up_by)

    @property
    def looked_up_by(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for _, column in self.keys))

    @property
    def joined_schema(self) -> pa.Schema:
        windows = [pa.field(name, self.window_type) for name in (WINDOW_START, WINDOW_END)]
        return pa.schema([*windows, *super().joined_schema])

    @property
    def of_one(self) -> str:
        return f'the state of the open windows of one group of "{self.query}"'

    @property
    def telling(self) -> frozenset[str] | None:
        ends = (WINDOW_END,) if self.kind is WindowKind.SESSION else ()
        return frozenset({WINDOW_START, *ends, *(name for name, _ in (*self.keys, *self.results))})

    @property
    def event_times(self) -> tuple[str, ...]:
        return (WINDOW_START, WINDOW_END)


@dataclass(frozen=True, kw_only=True)
class RankShape(SummedShape):
    """The first ``most`` rows of each partition; see `plan.model.nodes.RankPlan`. ``keys``: all columns.
    ``partition``: those of the side that partitions go by; ``order``: how the others are ordered, as SQL of
    tasks. ``results``: the number, if rows go out with it."""

    partition: tuple[str, ...]
    order: str
    most: int

    @property
    def by(self) -> tuple[str, ...]:
        return self.partition

    @property
    def of_one(self) -> str:
        of = f" with equal {', '.join(self.partition)}" if self.partition else ""
        return f'the state of one partition of "{self.query}"{of}, including every distinct row,'
