"""Flatten views to expressions over their sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from sqlglot import exp

from watersmeet.parser.query.inline import join_conditions, substitute_columns
from watersmeet.parser.query.scope import MergedColumn, NamedRelation, Scope, column_node, identifier
from watersmeet.parser.text.source_position import Text
from watersmeet.parser.types.inference import union_type
from watersmeet.spec.model import (
    Branch,
    Column,
    Expr,
    Input,
    Join,
    OutputColumn,
    Query,
    Relation,
    Source,
    StageBranch,
    bare,
    inputs_of,
    visible_inputs,
    with_bare,
)
from watersmeet.spec.nulls import is_null_of_nulls
from watersmeet.spec.records.changes import get_change_column_name
from watersmeet.spec.stages import may_be_null, output_time

# A relation of views as expressions over its sources: each view step is one function, `Flow` in, `Flow`
# out.
#
# A `Flow` is what an `Input` is made of: columns, and one `Way` per source or stage that they come from.
# Columns of a flow have different names. Positions, not names, tie columns, ways and lags together.


@dataclass(frozen=True)
class Way:
    """Path from a source or a stage through the views so far.

    ``columns`` and filters mention columns of the source, or outputs of the stage.

    Attributes:
        lags: the lag of each ordered column, by its position; for a stage, the lags of event times.
    """

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
        """Sources that this flow reads directly, without those of its stages."""
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
    """Return the flow of a source as declared, with its computed columns.

    The event times of the source are ordered.
    """
    named: list[tuple[Column, Expr]] = [(own, column_node(own.name)) for own in source.row_columns]
    of_rows = [own for own in source.computed if own.column.name != get_change_column_name(source)]
    for added, (column, value, place) in enumerate(of_rows):
        named.insert(place + added, (column, value))
    position = {column.name: i for i, (column, _) in enumerate(named)}
    lags = {position[time.column]: time.lag for time in source.event_times}
    way = Way(source, tuple(value for _, value in named), lags=lags)
    return Flow(tuple(column for column, _ in named), (way,))


def stage_flow(relation: Join, columns: Sequence[Column], values: Sequence[Expr], sql: str) -> Flow:
    """Return the rows of a join as a stream, as a stage.

    Args:
        values: Expressions over the inputs of the join, aligned with ``columns``.
    """
    outputs = (
        OutputColumn(column.name, value, value.sql("spark").replace("`", ""))
        for column, value in zip(columns, values, strict=True)
    )
    return query_flow(Query(relation, None, tuple(outputs), sql), columns)


def query_flow(stage: Query, columns: Sequence[Column]) -> Flow:
    """Return the rows of a query as a stream.

    Args:
        columns: The outputs of the query, with distinct names.
    """
    times = {n: None for n, output in enumerate(stage.outputs) if output_time(stage, output.expr) is not None}
    return Flow(tuple(columns), (Way(stage, tuple(column_node(c.name) for c in columns), lags=times),))


def impose_order(flow: Flow, position: int, lag: int) -> Flow:
    """Apply IMPOSE_ORDER to one column.

    Over a UNION ALL each branch is ordered separately, as partitions are.
    """
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


def filter_flow(flow: Flow, condition: Expr) -> Flow:
    """Apply a WHERE to a flow; ``condition`` mentions the flow's columns.

    Rows that a filter above an ordering drops still advance event time.
    """

    def one(way: Way) -> Way:
        own = _inline_columns(condition, flow, way)
        if way.lags or isinstance(way.origin, Query):
            return replace(way, above=join_conditions(way.above, own))
        return replace(way, beneath=join_conditions(way.beneath, own))

    return Flow(flow.columns, tuple(one(way) for way in flow.ways))


def project_flow(flow: Flow, columns: Sequence[Column], exprs: Sequence[Expr]) -> Flow:
    """Apply a SELECT to a flow; ``exprs`` mention the flow's columns.

    A renamed event time stays an event time; a computed one does not. An ordering column that is not
    selected stops being an event time of the result: it does not make rows late and advances no
    watermark. When a flow loses all its ordering columns, filters above the ordering simply drop rows
    of the stream.
    """
    position = {column.name: i for i, column in enumerate(flow.columns)}
    passed = {}
    for i, expr in enumerate(exprs):
        plain = expr.unnest()
        if isinstance(plain, exp.Column):
            passed[i] = position[plain.name]

    def one(way: Way) -> Way:
        lags = {i: way.lags[old] for i, old in passed.items() if old in way.lags}
        inlined = tuple(_inline_columns(expr, flow, way) for expr in exprs)
        return _push_filters_down(replace(way, columns=inlined, lags=lags))

    return Flow(tuple(columns), tuple(one(way) for way in flow.ways))


MAX_BRANCHES = 5_000
"""Of a UNION ALL, with those of views: a chain of views may double them with each."""


def union_all(flows: Sequence[Flow]) -> Flow:
    """Combine flows by UNION ALL, by position, with the column names of the first.

    The event times are the columns that every branch orders.
    """
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
            kind = union_type(one.type, other.type)
            if kind is None:
                raise FlowError(
                    f'UNION ALL: column "{one.name}" is {one.type} in one branch and {other.type} in another',
                    "wrong-type",
                    "cast them to the same type",
                )
            columns[i] = Column(one.name, kind, union_type(one.identity_type, other.identity_type))
    has_stages = any(flow.has_stages for flow in flows)
    ways = [_cast(way, flow, columns, has_stages) for flow in flows for way in flow.ways]
    kept = [i for i in range(width) if all(i in way.lags for way in ways)]
    settled = (_push_filters_down(replace(way, lags={i: way.lags[i] for i in kept})) for way in ways)
    return Flow(tuple(columns), tuple(settled))


def _cast(way: Way, flow: Flow, columns: Sequence[Column], has_stages: bool) -> Way:
    """Cast the columns of a way to the column types of the whole UNION ALL.

    Without stages, rows are stored with only the casts that change `Column.identity_type`, which
    identifies them in existing state; branches are compared in one type anyway. With stages, values
    are computed per branch and need all casts.
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


def _push_filters_down(way: Way) -> Way:
    """Move filters above the ordering below it if the way has no ordering left."""
    if way.lags or way.above is None or isinstance(way.origin, Query):
        return way
    return replace(way, beneath=join_conditions(way.beneath, way.above), above=None)


def _inline_columns(expr: Expr, flow: Flow, way: Way) -> Expr:
    """Rewrite ``expr`` over the flow's columns into one over the way's source columns."""
    by_name = {column.name: own for column, own in zip(flow.columns, way.columns, strict=True)}
    return substitute_columns(expr, lambda node: by_name[node.name])


def table_of(flow: Flow, alias: str) -> Input:
    """Return a flow of one source without event times as a table.

    Rows match the table's content as of their tick.
    """
    (way,) = flow.ways
    assert isinstance(way.origin, Source)
    return Input(alias, flow.columns, (), (Branch(way.origin, way.columns, way.beneath, way.above),), True)


def input_of(flow: Flow, alias: str) -> Input:
    """Return the flow as an input of a query."""
    times = flow.event_times
    branches = tuple(_branch(way, times) for way in flow.ways)
    return Input(alias, flow.columns, tuple(flow.columns[i].name for i in times), branches)


def _branch(way: Way, times: Sequence[int]) -> Branch | StageBranch:
    if isinstance(way.origin, Query):
        return StageBranch(way.origin, way.columns, way.above)
    return Branch(way.origin, way.columns, way.beneath, way.above, tuple(way.lags[i] for i in times))


# Columns that a view or sub-query computes, above an outer join that pads it with NULLs.
#
# The columns are expressions over inner inputs. A padded row has to have NULL in each of them, and
# ``coalesce(b.v, 0)`` would give 0. So it becomes ``CASE WHEN b.t IS NOT NULL THEN coalesce(b.v, 0)
# END``, by an event time, which no row lacks.


def pad_scope(scope: Scope, where: exp.Expr, text: Text) -> Scope:
    """Return the scope above a join that pads this side with NULLs."""
    relations = tuple(_padded_relation(named, where, text) for named in scope.relations)
    merged = tuple(_padded_merged(merged_column, scope) for merged_column in scope.merged)
    return replace(scope, relations=relations, merged=merged)


def _padded_relation(named: NamedRelation, where: exp.Expr, text: Text) -> NamedRelation:
    wrong = [n for n, value in enumerate(named.values) if not is_null_of_nulls(value)]
    if not wrong:
        return named
    present = _present(named)
    if present is None:
        column = named.columns[wrong[0]].name
        text.problem(
            f'column "{column}" is computed inside "{named.alias}", whose rows this join pads with'
            f' NULLs, so "{column}" might not become NULL',
            "not-supported",
            where,
            f"select the plain columns in {named.alias}, and compute {column} from them above the join",
        )
        return named
    values = list(named.values)
    for n in wrong:
        values[n] = _unless_padded(values[n], present)
    return replace(named, values=tuple(values))


def _padded_merged(merged: MergedColumn, scope: Scope) -> MergedColumn:
    if is_null_of_nulls(merged.expr):
        return merged
    owners = [named for named in scope.relations if any(named.alias == alias for alias, _ in merged.members)]
    present = [condition for condition in map(_present, owners) if condition is not None]
    if not present:
        return merged  # the column it stands for has been reported
    return replace(merged, expr=_unless_padded(merged.expr, reduce(_make_or, present)))


def _unless_padded(value: Expr, present: Expr) -> Expr:
    return exp.Case().when(present.copy(), value.copy(), copy=False)


def _present(named: NamedRelation) -> Expr | None:
    """Return a condition that is true for each row of the relation and not for padded rows.

    Return None if no such condition exists.
    """
    if named.relation is None:
        return None
    always = [i for i in _never_padded_inputs(named.relation) if _sure_times(i)]
    inputs = always[:1] or list(visible_inputs(named.relation))
    if not all(_sure_times(i) for i in inputs):
        return None
    return reduce(_make_or, (_has_time(i) for i in inputs))


def _sure_times(i: Input) -> list[str]:
    """Return the event times of the input that are never NULL."""
    return [column for column in i.event_times if not may_be_null(i, column)]


def _has_time(i: Input) -> Expr:
    column = column_node(_sure_times(i)[0], i.alias)
    column.args["table"].set("quoted", "." not in i.alias)
    return exp.Not(this=exp.Is(this=column, expression=exp.Null()))


def _make_or(first: Expr, second: Expr) -> Expr:
    return exp.Or(this=first, expression=second)


def _never_padded_inputs(relation: Relation) -> Iterator[Input]:
    """Yield the inputs that no inner join pads: each row of the relation has a row of them."""
    if isinstance(relation, Input):
        yield relation
        return
    if not relation.kind.pads_right:
        yield from _never_padded_inputs(relation.left)
    if not relation.kind.pads_left and not relation.kind.hides_right:
        yield from _never_padded_inputs(relation.right)


# A view or sub-query that joins: a tree of joins, and its columns as expressions over the inputs of that.
#
# It stands in a query as that tree. So that its inputs cannot be mistaken for others, they take the alias
# under which it is used before their own: ``od.o`` and ``od.d`` are the inputs of ``od``.


@dataclass(frozen=True)
class JoinedView:
    """``values`` is aligned with ``columns`` and mentions ``alias.column`` of the relation's inputs."""

    relation: Join
    columns: tuple[Column, ...]
    values: tuple[Expr, ...]

    def with_alias(self, alias: str) -> JoinedView:
        """Return a copy whose inputs have that alias as a prefix.

        An empty alias returns the view unchanged.
        """
        if not alias:
            return self
        names = {visible.alias: f"{alias}.{visible.alias}" for visible in inputs_of(self.relation)}
        relation = _rename_relation(self.relation, alias, names)
        assert isinstance(relation, Join)
        return JoinedView(
            relation, self.columns, tuple(_rename_aliases(value, alias, names) for value in self.values)
        )

    def named(self, alias: str) -> NamedRelation:
        """Return the relation that a query can mention by ``alias``."""
        return NamedRelation(alias, self.columns, self.values, self.relation)


def filter_join(relation: Join, condition: Expr) -> Join:
    """Apply the WHERE of a view or subquery, which drops rows before outer queries see them."""
    return replace(relation, where=join_conditions(relation.where, condition))


def _rename_relation(relation: Relation, alias: str, names: Mapping[str, str]) -> Relation:
    if isinstance(relation, Input):
        return replace(relation, alias=names[relation.alias])
    return replace(
        relation,
        left=_rename_relation(relation.left, alias, names),
        right=_rename_relation(relation.right, alias, names),
        on=None if relation.on is None else _rename_aliases(relation.on, alias, names),
        where=None if relation.where is None else _rename_aliases(relation.where, alias, names),
        match=None if relation.match is None else _rename_aliases(relation.match, alias, names),
    )


def _rename_aliases(expr: Expr, alias: str, names: Mapping[str, str]) -> Expr:
    tree = expr.copy()
    for column in list(tree.find_all(exp.Column)):
        own = column.args["table"]
        quoted = bool(own.args.get("quoted") or identifier(alias).args.get("quoted"))
        column.set("table", exp.to_identifier(names[own.name], quoted=quoted))
    return tree
