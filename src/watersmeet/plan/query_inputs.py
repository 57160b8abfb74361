"""Inputs of a query: their order, the units of their columns, and what their sources limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.event_time import DAY_US, Side
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import BranchPlan, SidePlan
from watersmeet.spec.model import Column, Expr, Input, Source
from watersmeet.spec.records.changes import columns_in, computed_of_changes
from watersmeet.spec.time_zones import UTC
from watersmeet.types.sql_type import DATE, SqlType

Ref = tuple[str, str]
"""(alias, column)."""


class Unit(Enum):
    """Unit that a value of an expression counts; values are stored in µs, or plain for integers."""

    INTEGER = "integer"
    TIMESTAMP = "timestamp"
    DATE = "date"
    INTERVAL = "interval"
    DAYS = "days"
    WEEKS = "weeks"
    HOURS = "hours"
    MINUTES = "minutes"
    SECONDS = "seconds"
    MILLIS = "milliseconds"
    MICROS = "microseconds"
    NUMBER = "number"
    OTHER = "other"

    @property
    def is_time(self) -> bool:
        return self in (Unit.TIMESTAMP, Unit.DATE)

    @property
    def is_count(self) -> bool:
        """A whole number that counts time."""
        return self in _SCALES and not self.is_time

    @property
    def scale(self) -> int:
        """Value of a plain 1 in an addition."""
        return _SCALES.get(self, 1)


_SCALES = {
    Unit.DATE: DAY_US,
    Unit.WEEKS: 7 * DAY_US,
    Unit.DAYS: DAY_US,
    Unit.HOURS: 3_600_000_000,
    Unit.MINUTES: 60_000_000,
    Unit.SECONDS: 1_000_000,
    Unit.MILLIS: 1_000,
    Unit.MICROS: 1,
}


def unit_of_type(type_: SqlType) -> Unit:
    """Return the unit that values of a type count."""
    if type_.is_integer:
        return Unit.INTEGER
    if type_.is_time:
        return Unit.DATE if type_ == DATE else Unit.TIMESTAMP
    return Unit.NUMBER if type_.is_number else Unit.OTHER


@dataclass(frozen=True)
class JoinInputs:
    """Inputs that a condition may mention, in the query's order.

    Attributes:
        split: the number of inputs on the left side of the current join; the others are on its right side.
        joined: the sides that are rows of a join.
        time_zone: the job's time zone.
    """

    in_order: tuple[Input, ...]
    split: int = 1
    joined: frozenset[Side] = frozenset()
    time_zone: str = UTC

    def input(self, alias: str) -> Input:
        return next(i for i in self.in_order if i.alias == alias)

    def position(self, alias: str) -> int:
        return next(n for n, i in enumerate(self.in_order) if i.alias == alias)

    def side(self, alias: str) -> Side:
        return Side.LEFT if self.position(alias) < self.split else Side.RIGHT

    def inputs_of_side(self, side: Side) -> tuple[Input, ...]:
        return self.in_order[: self.split] if side is Side.LEFT else self.in_order[self.split :]

    def column_name(self, ref: Ref) -> str:
        """Return the name of a column on its side.

        For an input it is the declared name; for the rows of a join it is ``alias.column``.
        """
        return name_of(ref) if self.side(ref[0]) in self.joined else ref[1]

    def column(self, ref: Ref) -> Column:
        column = self.input(ref[0]).column(ref[1])
        assert column is not None, f"unresolved column {ref}"
        return column

    def joined_column(self, ref: Ref) -> Column:
        """Return a column, under the name that it has in rows of a join."""
        return replace(self.column(ref), name=name_of(ref))

    def unit(self, ref: Ref) -> Unit:
        return unit_of_type(self.column(ref).type)

    def is_event_time(self, ref: Ref) -> bool:
        return ref[1] in self.input(ref[0]).event_times

    def mentioned(self, expr: Expr) -> list[str]:
        """Return the aliases that ``expr`` mentions, in the order of the query."""
        aliases = {alias for alias, _ in refs(expr)}
        return [i.alias for i in self.in_order if i.alias in aliases]

    def sides(self, expr: Expr) -> list[Side]:
        """Return the sides that ``expr`` mentions, the left one first."""
        sides = {self.side(alias) for alias, _ in refs(expr)}
        return [side for side in Side if side in sides]


def refs(expr: Expr) -> list[Ref]:
    """Return the columns that ``expr`` mentions, each once, in order of appearance."""
    return list(dict.fromkeys((column.table, column.name) for column in expr.find_all(exp.Column, bfs=False)))


def name_of(ref: Ref) -> str:
    return f"{ref[0]}.{ref[1]}" if ref[0] else ref[1]


def check_event_times(inputs: JoinInputs) -> list[PlanError]:
    """Return an error per event-time column whose type cannot be an event time."""
    return [
        PlanError(
            f"{i.alias}.{column} is {inputs.column((i.alias, column)).type}, which cannot be an event time",
            code="wrong-types",
            hint="cast the column to TIMESTAMP, DATE or an integer type in a view",
        )
        for i in inputs.in_order
        for column in i.event_times
        if inputs.unit((i.alias, column)) in (Unit.OTHER, Unit.NUMBER)
    ]


def is_limited(source: Source) -> bool:
    """Return True if the source has a limit that sheds its rows or stops the job."""
    return source.max_rows is not None or source.max_bytes is not None


def limited_sources(nodes: Iterable[NodePlan]) -> list[Source]:
    """Return the sources with limits whose rows sides retain.

    Each source occurs once, in the order of first use.
    """
    sources = {
        branch.source.name: branch.source
        for node in nodes
        for side in node.sides
        for _, branch in side.sources
    }
    return [source for source in sources.values() if is_limited(source)]


def source_of(side: SidePlan) -> str | None:
    """Return the source whose rows a side retains unchanged.

    Returns:
        None for rows derived from sources, or for rows of another side.
    """
    return side.sources[0][1].source.name if side.sources else None


def sides_of(node: NodePlan, source: str) -> tuple[str, ...]:
    """Return the names of a node's sides that retain rows of a source, copies included."""
    own = {side.name for side in node.sides if source_of(side) == source}
    return tuple(side.name for side in node.sides if side.name in own or side.copy_of in own)


def source_inputs(source: Source, zone: str = UTC) -> JoinInputs:
    """Return inputs in which bare column names are the columns of the source."""
    inputs = (Input(alias="", columns=source.columns, event_times=(), branches=()),)
    return JoinInputs(inputs, time_zone=zone)


def mentioned_columns(branch: BranchPlan) -> frozenset[str]:
    """Return the columns of its source that a branch reads."""
    columns = {ref[1] for _, expr in branch.columns for ref in refs(expr)}
    return frozenset(columns | (set() if branch.flag is None else {ref[1] for ref in refs(branch.flag)}))


def needed_source_columns(source: Source, branches: Iterable[BranchPlan]) -> frozenset[str]:
    """Return the columns of a source that its branches use, or that determine the change of a record."""
    of_changes = (columns_in(own.expr) for own in computed_of_changes(source))
    return frozenset[str]().union(*map(mentioned_columns, branches), *of_changes)


def words_of(branch: BranchPlan, name: str, expr: Expr) -> str:
    """Return the name of a branch's column, or of its flag, in messages."""
    written = dict(branch.words).get(name)
    return f"the expression {unquoted_text(expr)}" if written is None else f"the condition {written}"


def unquoted_text(expr: Expr) -> str:
    """Format an expression for users, with names without quotes."""
    return text_of(expr).replace("`", "")
