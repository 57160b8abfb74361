"""From a plan, with the types an engine found, to what tasks and the watermark tracker work by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from watersmeet.engine.step.tasks import FeedShape, JoinShape, SideTask, null_column
from watersmeet.errors import EngineError
from watersmeet.event_time import Side
from watersmeet.kernel.bands import Band, RealBand
from watersmeet.kernel.hashing import family
from watersmeet.kernel.pairs import Condition, JoinedColumn, KeyColumns
from watersmeet.kernel.residual import computed
from watersmeet.plan.model import FeedPlan, JoinPlan, QueryPlan, SidePlan
from watersmeet.spec.model import OnIdle, OutputMode
from watersmeet.state.run import RunLayout
from watersmeet.watermark.tracker import BranchRules


def join_shapes(query: QueryPlan, schemas: Mapping[str, pa.Schema]) -> tuple[JoinShape, ...]:
    """The joins of ``query``, in order; ``schemas``: per ``query/alias`` of an input the kept columns in
    native types."""
    shapes: list[JoinShape] = []
    for join in query.joins:
        shapes.append(_join_shape(query, join, schemas, shapes))
        for side in Side:
            feed = join.side(side).feed
            if feed is not None:
                fed = _feed_shape(feed, shapes[-1].side(side))
                shapes[feed.join] = replace(shapes[feed.join], feed=fed)
    return tuple(shapes)


def _join_shape(
    query: QueryPlan, join: JoinPlan, schemas: Mapping[str, pa.Schema], beneath: list[JoinShape]
) -> JoinShape:
    changelog = query.options.output_mode is OutputMode.CHANGELOG
    tasks = {}
    for side in Side:
        plan = join.side(side)
        if plan.feed is None:
            schema = schemas[f"{query.name}/{plan.name}"]
        else:
            schema = _fed_schema(plan.feed, beneath[plan.feed.join].row_schema)
        tasks[side] = _side_task(query, join, side, schema, changelog)
    _check_keys(query, join, tasks)
    columns = tuple(
        _joined(side, join.side(side), tasks[side], name) for side in Side for name in tasks[side].carried
    )
    return JoinShape(
        query=query.name,
        number=join.number,
        kind=join.kind,
        left=tasks[Side.LEFT],
        right=tasks[Side.RIGHT],
        condition=_condition(join, tasks),
        columns=columns,
        changelog=changelog,
    )


def _fed_schema(feed: FeedPlan, rows: pa.Schema) -> pa.Schema:
    """The columns of a join's rows, and those that are computed of them."""
    for name, column in feed.copied:
        rows = rows.append(rows.field(column).with_name(name))
    texts = dict(_texts(feed))
    if texts:
        found = computed(texts, rows.empty_table())
        for field in found.schema:
            rows = rows.append(field)
    return rows


def _texts(feed: FeedPlan) -> list[tuple[str, str]]:
    return [(name, text) for (name, _), text in zip(feed.computed, feed.computed_duckdb, strict=True)]


def _feed_shape(feed: FeedPlan, side: SideTask) -> FeedShape:
    return FeedShape(
        side=side,
        copied=feed.copied,
        computed=tuple(_texts(feed)),
        filters=feed.filters,
        conditions=feed.conditions,
        not_null=feed.not_null,
        matchable=feed.matchable,
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


def _side_task(query: QueryPlan, join: JoinPlan, side: Side, schema: pa.Schema, changelog: bool) -> SideTask:
    plan = join.side(side)
    evicted = {bound.evicted for bound in join.bounds}
    never_null = () if plan.feed is None or plan.padded else plan.feed.not_null
    return SideTask(
        query=query.name,
        name=plan.name,
        layout=RunLayout(
            indexes=join.indexes(side),
            event_times=plan.event_times,
            releasing=tuple(c for c in plan.event_times if plan.watermark_key(c) in evicted),
            by_value=join.by_value and not changelog,
        ),
        schema=pa.schema([schema.field(name) for name in plan.kept]),
        keys=tuple(key.column(side) for key in join.keys),
        nullable=tuple(column for column in plan.nullable if column not in never_null),
        padded=plan.padded,
        carried=plan.carried,
        changes=changelog,
        hides_released=join.looks_above,
    )


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
        residual=join.residual_duckdb,
        residual_columns=tuple(columns[name] for name in join.residual_columns),
        reals=tuple(
            RealBand(b.left, b.right, b.lower, b.upper, b.size, b.error, b.limit, b.falls, b.comparison)
            for b in join.values.real
        ),
    )


def tracker_rules(query: QueryPlan) -> dict[str, list[BranchRules]]:
    """Per alias, per branch: what its watermarks are made by."""
    return {
        side.name: [
            BranchRules(
                lags=dict(zip(side.event_times, branch.lags, strict=True)),
                idle_timeout_us=branch.source.idle_timeout_us,
                follow_when_idle=branch.source.on_idle is OnIdle.FOLLOW,
                partitions=branch.source.partitions,
            )
            for branch in side.branches
        ]
        for side in query.sides
    }
