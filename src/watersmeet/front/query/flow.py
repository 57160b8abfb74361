"""A relation of views as expressions over its sources: each view step is one function, `Flow` in, `Flow` out.

A `Flow` is what an `Input` is made of: columns, and one `Way` per source or stage that they come from.
Columns of a flow have different names. Positions, not names, tie columns, ways and lags together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from watersmeet.front.query.inline import both, substituted
from watersmeet.front.query.scope import column_node
from watersmeet.front.types.infer import united
from watersmeet.spec.model import (
    Branch,
    Column,
    Expr,
    Input,
    Join,
    OutputColumn,
    Query,
    Source,
    StageBranch,
    bare,
    with_bare,
)
from watersmeet.spec.records.changes import said_by
from watersmeet.spec.stages import output_time


@dataclass(frozen=True)
class Way:
    """The way of a source, or of a stage, so far. ``columns`` and filters mention columns of the source, or
    outputs of the stage. ``lags``: position of an ordered column → its lag; of a stage those of event
    times."""

    origin: Source | Query
    columns: tuple[Expr, ...]
    beneath: Expr | None = None
    above: Expr | None = None
    lags: Mapping[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Flow:
    columns: tuple[Column, ...]
    ways: tuple[Way, ...]

    @property
    def event_times(self) -> tuple[int, ...]:
        """Positions of the columns that every way orders."""
        return tuple(i for i in range(len(self.columns)) if all(i in way.lags for way in self.ways))

    @property
    def sources(self) -> tuple[Source, ...]:
        """Of its own ways, not of stages beneath."""
        return tuple(way.origin for way in self.ways if isinstance(way.origin, Source))

    @property
    def has_stages(self) -> bool:
        return any(isinstance(way.origin, Query) for way in self.ways)

    @property
    def is_ranked(self) -> bool:
        """Its rows are numbered; as everywhere, a sub-query of these needs no name of its own."""
        queries = [way.origin for way in self.ways if isinstance(way.origin, Query)]
        return any(query.aggregation is not None and query.aggregation.ranking for query in queries)


class FlowError(Exception):
    """A step that the flow does not allow; the caller knows the place in the text.

    Args:
        message: what is wrong.
        code: as in `WatersmeetError`.
        hint: what to do.
    """

    def __init__(self, message: str, code: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint


def flow_of(source: Source) -> Flow:
    """The source as declared, with its computed columns; its own event times are ordered."""
    named: list[tuple[Column, Expr]] = [(own, column_node(own.name)) for own in source.row_columns]
    of_rows = [own for own in source.computed if own.column.name != said_by(source)]
    for added, (column, value, place) in enumerate(of_rows):
        named.insert(place + added, (column, value))
    position = {column.name: i for i, (column, _) in enumerate(named)}
    lags = {position[time.column]: time.lag for time in source.event_times}
    way = Way(source, tuple(value for _, value in named), lags=lags)
    return Flow(tuple(column for column, _ in named), (way,))


def stage_flow(relation: Join, columns: Sequence[Column], values: Sequence[Expr], sql: str) -> Flow:
    """The rows of a join as a stream: a stage. ``values``, aligned with ``columns``, mention its inputs."""
    outputs = (
        OutputColumn(column.name, value, value.sql("spark").replace("`", ""))
        for column, value in zip(columns, values, strict=True)
    )
    return query_flow(Query(relation, None, tuple(outputs), sql), columns)


def query_flow(stage: Query, columns: Sequence[Column]) -> Flow:
    """The rows of a query as a stream. ``columns``: its outputs, of different names."""
    times = {n: None for n, output in enumerate(stage.outputs) if output_time(stage, output.expr) is not None}
    return Flow(tuple(columns), (Way(stage, tuple(column_node(c.name) for c in columns), lags=times),))


def ordered(flow: Flow, position: int, lag: int) -> Flow:
    """IMPOSE_ORDER of one column. Over a UNION ALL each branch is ordered by itself, like partitions are."""
    name = flow.columns[position].name
    if any(position in way.lags for way in flow.ways):
        raise FlowError(
            f'column "{name}" already has a watermark',
            "already-ordered",
            "use IMPOSE_ORDER once, with the larger lag",
        )
    if any(way.lags and way.above is not None for way in flow.ways):
        raise FlowError(
            f'a filter is between two uses of IMPOSE_ORDER, the outer one over "{name}"',
            "not-supported",
            "move the filter into the inner query, or outside of both",
        )
    ways = (replace(way, lags={**way.lags, position: lag}) for way in flow.ways)
    return Flow(flow.columns, tuple(ways))


def filtered(flow: Flow, condition: Expr) -> Flow:
    """WHERE; ``condition`` mentions the flow's columns. Above an ordering, rows that fail count for time."""

    def one(way: Way) -> Way:
        own = _inlined(condition, flow, way)
        if way.lags or isinstance(way.origin, Query):
            return replace(way, above=both(way.above, own))
        return replace(way, beneath=both(way.beneath, own))

    return Flow(flow.columns, tuple(one(way) for way in flow.ways))


def projected(flow: Flow, columns: Sequence[Column], exprs: Sequence[Expr]) -> Flow:
    """SELECT; ``exprs`` mention the flow's columns.

    An event time under another name stays one; a computed one is none. An ordering column that is not
    selected is no event time of the result any more: it is not judged for lateness and moves no watermark,
    and filters above an ordering of which nothing is left simply take rows off the stream.
    """
    position = {column.name: i for i, column in enumerate(flow.columns)}
    passed = {}
    for i, expr in enumerate(exprs):
        plain = expr.unnest()
        if isinstance(plain, exp.Column):
            passed[i] = position[plain.name]

    def one(way: Way) -> Way:
        lags = {i: way.lags[old] for i, old in passed.items() if old in way.lags}
        inlined = tuple(_inlined(expr, flow, way) for expr in exprs)
        return _settled(replace(way, columns=inlined, lags=lags))

    return Flow(tuple(columns), tuple(one(way) for way in flow.ways))


MAX_BRANCHES = 5_000
"""Of a UNION ALL, with those of views: a chain of views may double them with each."""


def union_all(flows: Sequence[Flow]) -> Flow:
    """UNION ALL by position; names are the first one's. Event times are those that every branch orders."""
    branches = sum(len(flow.ways) for flow in flows)
    if branches > MAX_BRANCHES:
        raise FlowError(
            f"UNION ALL has {branches:,} branches, including those in views; at most {MAX_BRANCHES:,}"
            " are supported",
            "not-supported",
            "avoid views that read the same view several times: select what differs as a column",
        )
    width = len(flows[0].columns)
    for number, flow in enumerate(flows[1:], 2):
        if len(flow.columns) != width:
            raise FlowError(
                f"UNION ALL: branch 1 has {width} columns, but branch {number} has {len(flow.columns)}",
                "column-count",
            )
    columns = list(flows[0].columns)
    for i in range(width):
        for flow in flows[1:]:
            one, other = columns[i], flow.columns[i]
            kind = united(one.type, other.type)
            if kind is None:
                raise FlowError(
                    f'UNION ALL: column "{one.name}" is {one.type} in one branch and {other.type} in another',
                    "wrong-type",
                    "cast them to the same type",
                )
            columns[i] = Column(one.name, kind, united(one.identity_type, other.identity_type))
    has_stages = any(flow.has_stages for flow in flows)
    ways = [_cast(way, flow, columns, has_stages) for flow in flows for way in flow.ways]
    kept = [i for i in range(width) if all(i in way.lags for way in ways)]
    settled = (_settled(replace(way, lags={i: way.lags[i] for i in kept})) for way in ways)
    return Flow(tuple(columns), tuple(settled))


def _cast(way: Way, flow: Flow, columns: Sequence[Column], has_stages: bool) -> Way:
    """The way with its columns cast to those of the whole.

    Rows of sources alone are stored with those casts only by which they have been known before: they meet in
    one type anyway. What is computed of them is computed per branch, and needs all casts.
    """

    def one(expr: Expr, own: Column, wanted: Column) -> Expr:
        if own.type == wanted.type and own.identity_type == wanted.identity_type:
            return expr
        stored, kind = bare(expr), str(wanted.type)
        whole = exp.Cast(this=stored.copy(), to=exp.DataType.build(kind, dialect="spark"))
        if has_stages or own.identity_type != wanted.identity_type:
            stored = exp.cast(stored.copy(), kind, dialect="spark")  # leaves a DECIMAL's digits as they are
        return stored if has_stages or stored == whole else with_bare(whole, stored)

    exprs = (one(*place) for place in zip(way.columns, flow.columns, columns, strict=True))
    return replace(way, columns=tuple(exprs))


def _settled(way: Way) -> Way:
    """With no ordering left, filters above it are filters beneath."""
    if way.lags or way.above is None or isinstance(way.origin, Query):
        return way
    return replace(way, beneath=both(way.beneath, way.above), above=None)


def _inlined(expr: Expr, flow: Flow, way: Way) -> Expr:
    """``expr`` over the flow's columns → over the way's source columns."""
    by_name = {column.name: own for column, own in zip(flow.columns, way.columns, strict=True)}
    return substituted(expr, lambda node: by_name[node.name])


def table_of(flow: Flow, alias: str) -> Input:
    """A flow of one source without event times as a table that rows meet as it is in their tick."""
    (way,) = flow.ways
    assert isinstance(way.origin, Source)
    return Input(alias, flow.columns, (), (Branch(way.origin, way.columns, way.beneath, way.above),), True)


def input_of(flow: Flow, alias: str) -> Input:
    """The flow as an input of a query."""
    times = flow.event_times
    branches = tuple(_branch(way, times) for way in flow.ways)
    return Input(alias, flow.columns, tuple(flow.columns[i].name for i in times), branches)


def _branch(way: Way, times: Sequence[int]) -> Branch | StageBranch:
    if isinstance(way.origin, Query):
        return StageBranch(way.origin, way.columns, way.above)
    return Branch(way.origin, way.columns, way.beneath, way.above, tuple(way.lags[i] for i in times))
