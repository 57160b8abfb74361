"""From a plan, with the types an engine found, to what tasks and the watermark tracker work by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa

from watersmeet.engine.messages.shapes import (
    AggregateShape,
    FeedShape,
    JoinShape,
    LookupShape,
    NodeShape,
    PartialShape,
    PassShape,
    SideTask,
    null_column,
)
from watersmeet.errors import EngineError
from watersmeet.event_time import Side
from watersmeet.kernel.aggregate import AggregateColumn, aggregate_sql, quoted
from watersmeet.kernel.asof import Reach
from watersmeet.kernel.bands import Band, RealBand
from watersmeet.kernel.elsewhere import Elsewhere
from watersmeet.kernel.expressions.evaluate import Computed, columns_of, fits, tree_of
from watersmeet.kernel.expressions.evaluate import Condition as ExactCondition
from watersmeet.kernel.hashing import family
from watersmeet.kernel.joined import JoinedColumn
from watersmeet.kernel.pairs import Asked as AskedPairs
from watersmeet.kernel.pairs import Condition, KeyColumns
from watersmeet.kernel.partial import Asked, Partials, partials_of
from watersmeet.measure import Measured
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.identity.origins import Origin, Origins, digest_of, origins_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import (
    AggregatePlan,
    JoinPlan,
    LookupPlan,
    NodePlan,
    PassPlan,
)
from watersmeet.plan.model.sides import BranchPlan, FeedPlan, SidePlan
from watersmeet.spec.model import JoinKind, OnIdle, OutputMode, WindowKind
from watersmeet.state.columns import StoredColumn
from watersmeet.state.run import RunLayout
from watersmeet.watermark.tracker import BranchRules


def node_shapes(query: QueryPlan, schemas: Mapping[str, pa.Schema], *, zoned: bool) -> tuple[NodeShape, ...]:
    """The nodes of ``query``, in order.

    Args:
        schemas: per ``query/alias`` of an input or table the kept columns in native types; of one that only
            stages feed, as far as their types are declared.
        zoned: the engine's TIMESTAMPs carry UTC, which tells them from those without a zone.
    """
    shapes: list[NodeShape] = []
    origins = origins_of(query.nodes)
    for node in query.nodes:
        tasks = tuple(
            _side_task(
                query,
                node,
                side,
                _schema(query, side, schemas, shapes, zoned),
                origins[node.number, side.name],
            )
            for side in (*node.sides, *node.tables)
        )
        shapes.append(_SHAPES[type(node)](query, node, tasks))
        for side, task in zip(node.sides, tasks, strict=False):
            for feed in side.feeds:
                fed = _feed_shape(feed, task, zoned, of_stage=side.feed is None)
                shapes[feed.node] = replace(shapes[feed.node], feed=fed)
    return tuple(shapes)


def _pass_shape(query: QueryPlan, node: PassPlan, tasks: tuple[SideTask, ...]) -> PassShape:
    return PassShape(
        query=query.name,
        number=node.number,
        sides=tasks,
        columns=_carried(node, tasks),
        changelog=_is_changelog(query),
    )


def _join_shape(query: QueryPlan, join: JoinPlan, tasks: tuple[SideTask, ...]) -> JoinShape:
    sides = dict(zip(Side, tasks, strict=True))
    _check_keys(query, join, sides)
    return JoinShape(
        query=query.name,
        number=join.number,
        kind=join.kind,
        sides=tasks,
        condition=_condition(join, sides),
        columns=_carried(join, tasks),
        changelog=_is_changelog(query),
        reach=_reach(join),
        broadcast=join.broadcast,
    )


def _reach(join: JoinPlan) -> Reach | None:
    if join.asof is None:
        return None
    band = join.bands[0]
    assert band.upper is not None
    assert join.asof.closed_upper is not None
    return Reach(
        latest=join.asof.latest,
        left=band.left_column,
        right=band.right_column,
        lower=band.lower,
        upper=band.upper,
        closed_lower=join.asof.closed_lower,
        closed_upper=join.asof.closed_upper,
        floors=join.asof.floors,
        ceilings=join.asof.ceilings,
        slack=join.slack,
    )


def _lookup_shape(query: QueryPlan, join: LookupPlan, tasks: tuple[SideTask, ...]) -> LookupShape:
    asked = _join_shape(query, join, tasks)
    return LookupShape(**(vars(asked) | {"sides": tasks[:1], "table": tasks[1]}))


def _aggregate_shape(query: QueryPlan, node: AggregatePlan, tasks: tuple[SideTask, ...]) -> AggregateShape:
    (task,) = tasks
    wanted = dict.fromkeys(column for _, column in node.keys)
    for call in node.calls:
        wanted |= dict.fromkeys([*call.columns, *([] if call.filter is None else [call.filter])])
    columns = tuple(replace(_joined(Side.LEFT, node.side, task, column), name=column) for column in wanted)
    kind = task.schema.field(node.time).type
    return AggregateShape(
        query=query.name,
        number=node.number,
        sides=tasks,
        columns=columns,
        changelog=False,
        kind=node.kind,
        time=node.time,
        size=node.size,
        slide=node.slide,
        keys=node.keys,
        aggregates=_aggregates(query, node, task),
        window_type=pa.int64() if pa.types.is_integer(kind) else _as_timestamp(kind),
        partial=_partial(node, task, {column.name: column.type for column in columns}),
    )


def _partial(node: AggregatePlan, task: SideTask, types: Mapping[str, pa.DataType]) -> PartialShape | None:
    """``types``: of keys and arguments."""
    found = None
    if not node.keeps_rows:
        calls = [
            Asked(c.name, c.function, c.columns, tuple(types[a] for a in c.columns), c.distinct, c.filter)
            for c in node.calls
        ]
        found = partials_of(calls)
    if found is None:
        return None
    fields = [pa.field(node.time, pa.int64()), *(pa.field(key, types[key]) for _, key in node.keys)]
    fields += [pa.field(each.name, each.type) for each in found.make]
    layout = replace(task.layout, event_times=(node.time,), columns=_partial_columns(node, task, found))
    return PartialShape(
        side=replace(task, layout=layout, schema=pa.schema(list(dict.fromkeys(fields))), nullable=()),
        width=node.pane,
        aggregates=found,
    )


def _partial_columns(node: AggregatePlan, task: SideTask, found: Partials) -> tuple[StoredColumn, ...]:
    """What is kept of groups: the panes' start, the keys, and what is aggregated, which is known by its text
    with the columns' origins, and the origins of partial columns before it, in the place of their names."""
    known = {column.name: column for column in task.layout.columns}
    start = replace(known[node.time], origin=digest_of(["pane", known[node.time].origin]))
    columns = [start, *(known[key] for _, key in node.keys)]
    origins = {name: column.origin for name, column in known.items()}
    texts = {name: column.text for name, column in known.items()}
    for make, combine in zip(found.make, found.combine, strict=True):
        meant = [_replaced(each.sql, {**origins, make.name: "itself"}) for each in (make, combine)]
        origins[make.name] = digest_of(["partial", *meant, str(make.type)])
        columns.append(StoredColumn(make.name, origins[make.name], _replaced(make.sql, texts)))
    return tuple(dict.fromkeys(columns))


def _replaced(sql: str, names: Mapping[str, str]) -> str:
    """DuckDB text with something else in the place of the columns' quoted names."""
    for name, other in names.items():
        sql = sql.replace(quoted(name), other)
    return sql


def _as_timestamp(kind: pa.DataType) -> pa.DataType:
    """Windows of dates have ends within days."""
    return kind if pa.types.is_timestamp(kind) else pa.timestamp("us")


def _aggregates(query: QueryPlan, node: AggregatePlan, task: SideTask) -> tuple[AggregateColumn, ...] | None:
    """The node's aggregates; None: one of them can only be had from Spark."""
    found = []
    for call in node.calls:
        types = [task.schema.field(column).type for column in call.columns]
        own = (
            aggregate_sql(call.function, call.columns, types, call.distinct, call.filter)
            if call.plain
            else None
        )
        if own is None:
            if node is query.root:
                return None
            raise EngineError(
                f'"{query.name}": {call.text} of {", ".join(map(str, types))} is computed by Spark, and so it'
                " can only be in the last step of a query",
                code="aggregate-function",
                hint="cast its argument to another type, or INSERT it into a sink of its own",
            )
        found.append(AggregateColumn(call.name, *own))
    return tuple(found)


_SHAPES: Mapping[type[NodePlan], Callable[[QueryPlan, Any, tuple[SideTask, ...]], NodeShape]] = {
    JoinPlan: _join_shape,
    LookupPlan: _lookup_shape,
    PassPlan: _pass_shape,
    AggregatePlan: _aggregate_shape,
}
"""Per kind of node: its shape, from the tasks of its sides."""


def _is_changelog(query: QueryPlan) -> bool:
    return query.options.output_mode is OutputMode.CHANGELOG


def _carried(node: NodePlan, tasks: Sequence[SideTask]) -> tuple[JoinedColumn, ...]:
    sides = zip(Side, (*node.sides, *node.tables), tasks, strict=False)
    return tuple(_joined(side, plan, task, name) for side, plan, task in sides for name in task.carried)


def _schema(
    query: QueryPlan,
    side: SidePlan,
    schemas: Mapping[str, pa.Schema],
    beneath: Sequence[NodeShape],
    zoned: bool,
) -> pa.Schema:
    """The kept columns of a side, in native types: an engine's where it gives one, else as they come."""
    fed = [_fed_schema(feed, beneath[feed.node].row_schema, zoned) for feed in side.feeds]
    if side.feed is not None:
        return fed[0]
    known = schemas.get(f"{query.name}/{side.name}", pa.schema([]))
    for schema in fed:
        for name in side.kept:
            if name not in known.names:
                known = known.append(schema.field(name))
    return known


def _fed_schema(feed: FeedPlan, rows: pa.Schema, zoned: bool) -> pa.Schema:
    """Columns of a node's rows, and those that are computed of them, as a side has them."""
    fields = [rows.field(column).with_name(name) for name, column in feed.copied]
    for column in _computed(feed, zoned):
        found = column.of(_as_planned(rows, feed).empty_table())
        fields.append(pa.field(column.name, found.type))
    return pa.schema(fields)


def _as_planned(rows: pa.Schema, feed: FeedPlan) -> pa.Schema:
    """The schema of a node's rows, which has to be of the types by which ``feed`` was planned."""
    for tree, _ in feed.computed_exact:
        for name, type_ in columns_of(tree).items():
            if not fits(rows.field(name).type, type_):
                raise EngineError(
                    f"{name} is {rows.field(name).type}, and was planned as {type_}",
                    code="wrong-types",
                    hint="declare the column as it comes, or cast it in a view",
                )
    return rows


def _computed(feed: FeedPlan, zoned: bool) -> tuple[Computed, ...]:
    return tuple(
        Computed(name, tree_of(tree), type_, "the expression " + text_of(expr).replace("`", ""), zoned)
        for (name, expr), (tree, type_) in zip(feed.computed, feed.computed_exact, strict=True)
    )


def _feed_shape(feed: FeedPlan, side: SideTask, zoned: bool, *, of_stage: bool) -> FeedShape:
    return FeedShape(
        side=side,
        copied=feed.copied,
        computed=_computed(feed, zoned),
        beneath=feed.beneath,
        filters=feed.filters,
        conditions=feed.conditions,
        not_null=feed.not_null,
        matchable=feed.matchable,
        of_stage=of_stage,
        timed=feed.timed,
    )


def _check_keys(query: QueryPlan, join: JoinPlan, tasks: Mapping[Side, SideTask]) -> None:
    for key in join.keys:
        kinds = [tasks[side].schema.field(key.column(side)).type for side in Side]
        if family(kinds[0]) != family(kinds[1]):
            raise EngineError(
                f'"{query.name}": the key {key.left_column} = {key.right_column} compares '
                f"{kinds[0]} with {kinds[1]}",
                code="wrong-types",
                hint="cast one of them to the type of the other",
            )


def _joined(side: Side, plan: SidePlan, task: SideTask, name: str) -> JoinedColumn:
    return JoinedColumn(
        side,
        name,
        plan.joined(name),
        task.schema.field(name).type,
        null_column(name) if name in task.nullable else None,
    )


def _side_task(
    query: QueryPlan, node: NodePlan, plan: SidePlan, schema: pa.Schema, origins: Origins
) -> SideTask:
    evicted = {bound.evicted for bound in node.bounds}
    indexes: tuple[Measured, ...] = ()
    by_value, looks_above = False, False
    if isinstance(node, JoinPlan):
        side = Side.LEFT if plan is node.left else Side.RIGHT
        indexes = node.indexes(side)
        by_value, looks_above = node.by_value and not _is_changelog(query), node.looks_above
    asof = isinstance(node, JoinPlan) and node.asof is not None
    watched: tuple[str, ...] = ()
    releasing = tuple(c for c in plan.event_times if plan.watermark_key(c) in evicted or asof)
    keys: tuple[str, ...] = ()
    if isinstance(node, JoinPlan) and (
        _is_changelog(query) or (node.kind is JoinKind.SEMI and plan is node.left)
    ):  # some rows leave before they are released
        watched = tuple(column for column in plan.event_times if column not in releasing)
    if isinstance(node, JoinPlan):
        keys = tuple(key.column(side) for key in node.keys)
    elif isinstance(node, AggregatePlan):
        indexes, keys = (Measured(node.time),), tuple(column for _, column in node.keys)
        is_session = node.kind is WindowKind.SESSION
        releasing, watched = ((), plan.event_times) if is_session else ((node.time,), ())
    feeds = [] if plan.padded else plan.feeds
    never_null = set.intersection(*(set(feed.not_null) for feed in feeds)) if feeds else set()
    nullable = tuple(column for column in plan.nullable if column not in never_null)
    return SideTask(
        query=query.name,
        name=plan.name,
        layout=RunLayout(
            indexes=indexes,
            event_times=plan.event_times,
            releasing=releasing,
            by_value=by_value,
            ties=_ties(node) if isinstance(node, JoinPlan) and plan is node.right else None,
            watched=watched,
            columns=(
                *(StoredColumn(name, origins[name].digest, origins[name].text) for name in plan.kept),
                *(_null_column(name, origins[name]) for name in nullable),
            ),
        ),
        schema=pa.schema([schema.field(name) for name in plan.kept]),
        keys=keys,
        nullable=nullable,
        padded=plan.padded,
        carried=plan.carried,
        changes=_is_changelog(query),
        passes=plan.passes,
        hides_released=looks_above,
        memory=query.options.max_task_memory,
    )


def _null_column(name: str, origin: Origin) -> StoredColumn:
    return StoredColumn(null_column(name), digest_of(["null", origin.digest]), f"{origin.text} IS NULL")


def _ties(join: JoinPlan) -> Literal["ascending", "descending"] | None:
    """So that the row which is taken is the first one met, from the end at which the look-up begins."""
    if join.asof is None:
        return None
    return "descending" if join.asof.latest else "ascending"


def _condition(join: JoinPlan, tasks: Mapping[Side, SideTask]) -> Condition:
    columns = {
        join.side(side).joined(column): _joined(side, join.side(side), task, column)
        for side, task in tasks.items()
        for column in task.schema.names
    }
    return Condition(
        keys=tuple(KeyColumns(key.left_column, key.right_column, key.null_safe) for key in join.keys),
        bands=(
            *(Band(b.left_column, b.right_column, b.lower, b.upper) for b in join.bands),
            *(
                Band(b.left.column, b.right.column, b.lower, b.upper, b.left.measure)
                for b in join.values.exact
            ),
        ),
        comparisons=(*join.comparisons, *join.values.comparisons),
        rechecks=(*join.rechecks, *join.values.rechecks),
        slack=max(join.slack, join.values.slack),
        residual=_residual(join, columns),
        residual_columns=tuple(columns[name] for name in join.residual_columns),
        reals=tuple(
            RealBand(b.left, b.right, b.lower, b.upper, b.size, b.error, b.limit, b.falls, b.comparison)
            for b in join.values.real
        ),
    )


def _residual(join: JoinPlan, columns: Mapping[str, JoinedColumn]) -> AskedPairs | None:
    """Tasks compute it where the columns have the types that it was planned with; else they ask."""
    if join.residual is None:
        return None
    text = text_of(join.residual).replace("`", "")
    tree = join.residual_exact
    if tree is None or not all(fits(columns[name].type, type_) for name, type_ in columns_of(tree).items()):
        return Elsewhere(text)
    return ExactCondition(tree_of(tree), text)


def tracker_rules(query: QueryPlan) -> dict[str, list[BranchRules]]:
    """Per alias, per branch: what its watermarks are made by."""
    return {side.name: [_rules(query, side, branch) for branch in side.branches] for side in query.sides}


def _rules(query: QueryPlan, side: SidePlan, branch: BranchPlan | FeedPlan) -> BranchRules:
    if isinstance(branch, FeedPlan):
        return BranchRules(lags=dict.fromkeys(side.event_times), is_stage=True)
    return BranchRules(
        lags=dict(zip(side.event_times, branch.lags, strict=True)),
        idle_timeout_us=branch.source.idle_timeout_us,
        follow_when_idle=branch.source.on_idle is OnIdle.FOLLOW,
        partitions=branch.source.first_partitions,
        lateness=query.options.allowed_lateness if side.stages else 0,
    )
