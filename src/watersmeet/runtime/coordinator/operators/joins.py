"""The driver's half of joins with two sides: windowed joins, ASOF joins, lookups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from watersmeet.errors import EngineError
from watersmeet.event_time import NEVER, Side, TimeColumn, Watermark
from watersmeet.expressions.evaluate import Condition as ExactCondition
from watersmeet.expressions.physical_types import fits
from watersmeet.expressions.trees import columns_of, tree_of
from watersmeet.kernel.asof import Reach
from watersmeet.kernel.gather import JoinedColumn
from watersmeet.kernel.match.deferred_conditions import DeferredCondition
from watersmeet.kernel.match.pairs import PairBound, PairCondition, PairTest
from watersmeet.kernel.slots import family
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan, LookupPlan, MatchPlan
from watersmeet.plan.model.sides import Bands, SidePlan
from watersmeet.plan.nodes.retention import horizon_limits, limits
from watersmeet.runtime.coordinator.operators.base import (
    CommonFields,
    NodeDriver,
    NodeInputs,
    NodeLimits,
    Outgoing,
    SideLayout,
    build_joined_column,
)
from watersmeet.runtime.messages.shapes import JoinShape, LookupShape, SideShape
from watersmeet.runtime.messages.work import AsofWork, NodeWork
from watersmeet.runtime.operators.repartition import estimate_heavy_pairs
from watersmeet.spec.model import Expr, JoinKind
from watersmeet.state.manifest import AsofState, TableCopy
from watersmeet.state.runs.layout import Run
from watersmeet.types.arrow import sql_name
from watersmeet.watermark.tracker import output_watermarks

# What kinds of node have in common whose rows meet others by a condition: the condition as tasks have it,
# and how rows are held to be looked up.


def build_match_layout(query: QueryPlan, node: MatchPlan, plan: SidePlan) -> SideLayout:
    """Build the layout of a side or table: by keys, and sorted by the columns that bands bound."""
    side = Side.LEFT if plan is node.left else Side.RIGHT
    evicted = {bound.evicted for bound in node.bounds}
    releasing = tuple(c for c in plan.event_times if plan.watermark_key(c) in evicted)
    leaves_early = node.changes or (node.kind is JoinKind.SEMI and side is Side.LEFT)
    return SideLayout(
        keys=tuple(key.column(side) for key in node.keys),
        indexes=node.indexes(side),
        by_value=node.by_value,
        releasing=releasing,
        watched=tuple(c for c in plan.event_times if c not in releasing) if leaves_early else (),
    )


def build_pair_condition(
    query: QueryPlan, node: MatchPlan, shapes: Mapping[Side, SideShape]
) -> PairCondition:
    """Build the join condition for the types that the engine found.

    Raises:
        EngineError: the two sides of a key have types that are never equal.
    """
    _check_keys(query, node, shapes)
    columns = {
        node.side(side).joined(column): build_joined_column(side, node.side(side), shape, column)
        for side, shape in shapes.items()
        for column in shape.schema.names
    }
    careful = node.careful
    residual = _build_residual(node.residual, node.residual_exact, columns)
    if careful is None:
        return _build_condition(
            node, node.values, residual, [columns[name] for name in node.residual_columns]
        )
    asked = _build_residual(careful.residual, careful.exact, columns)
    own, held = node.residual_columns, [columns[name] for name in careful.columns]
    if isinstance(residual, DeferredCondition) or isinstance(
        asked, DeferredCondition
    ):  # Spark is asked one condition
        residual = asked = DeferredCondition(_condition_text(careful.residual))
        own = careful.columns
    return replace(
        _build_condition(node, node.values, residual, [columns[name] for name in own]),
        sums=careful.sums,
        careful=_build_condition(node, careful.values, asked, held),
    )


def _build_condition(
    node: MatchPlan, values: Bands, residual: PairTest | None, columns: Sequence[JoinedColumn]
) -> PairCondition:
    """Build a condition from the node's keys, time bounds, value bands and a residual."""
    return PairCondition(
        keys=tuple(key.columns for key in node.keys),
        bands=(*node.bands, *values.exact),
        comparisons=(*node.comparisons, *values.comparisons),
        rechecks=(*node.rechecks, *values.rechecks),
        slack=max(node.slack, values.slack),
        residual=residual,
        residual_columns=tuple(columns),
        reals=values.real,
    )


def _check_keys(query: QueryPlan, node: MatchPlan, shapes: Mapping[Side, SideShape]) -> None:
    for key in node.keys:
        kinds = [shapes[side].schema.field(key.column(side)).type for side in Side]
        if family(kinds[0]) != family(kinds[1]):
            raise EngineError(
                f'"{query.name}": the join key {key.columns.left} = {key.columns.right} compares'
                f" {sql_name(kinds[0])} with {sql_name(kinds[1])}",
                code="wrong-types",
                hint="cast one column to the type of the other: CAST(… AS type)",
            )


def _build_residual(
    condition: Expr | None, tree: tuple[Any, ...] | None, columns: Mapping[str, JoinedColumn]
) -> PairTest | None:
    """Build the residual predicate; None without a condition.

    Tasks evaluate it if the columns have the planned types. Otherwise Spark evaluates it, as a
    deferred condition.
    """
    if condition is None:
        return None
    if tree is None or not all(fits(columns[name].type, type_) for name, type_ in columns_of(tree).items()):
        return DeferredCondition(_condition_text(condition))
    return ExactCondition(tree_of(tree), _condition_text(condition))


def _condition_text(condition: Expr) -> str:
    return text_of(condition).replace("`", "")


# Rows of a stream that meet a table as it is in their tick: nothing is kept of them, and watermarks pass.


class LookupDriver(NodeDriver[LookupPlan, LookupShape]):
    drops_new = True

    def build_shape(
        self, query: QueryPlan, node: LookupPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> LookupShape:
        stream, table = sides
        return LookupShape(
            **common,
            kind=node.kind,
            condition=build_pair_condition(query, node, {Side.LEFT: stream, Side.RIGHT: table}),
            table=table,
        )

    def held(self, query: QueryPlan, node: LookupPlan, side: SidePlan) -> SideLayout:
        return build_match_layout(query, node, side)

    def costs_by_new_rows(self, shape: LookupShape) -> bool:
        return shape.goes_by_keys

    def table(
        self,
        node: LookupPlan,
        shape: LookupShape,
        met: Callable[[LookupPlan, SideShape], TableCopy | None],
    ) -> TableCopy | None:
        return met(node, shape.table)


# What the driver decides for an ASOF join in a tick: which left times are decided by the watermark alone,
# which right rows nobody will ask for any more, and whose rows came first.
#
# What still asks is known before the tasks run as the left rows that were retained a tick ago or came in
# this tick, less those that the right watermark decides. So a right row that only they asked for goes a
# tick later. One that comes below a time up to which right rows were shed answers nobody: a shed one may
# have been nearer.


def asof_work(
    reach: Reach,
    before: AsofState | None,
    left: Watermark,
    right: Watermark,
    new_left: Sequence[Run],
) -> tuple[AsofWork, Watermark, Watermark]:
    """Compute the work of an ASOF join's tasks and its bounds.

    Args:
        left, right: the watermarks of the two times, less allowed_lateness.
        new_left: the runs of left rows that arrived in this tick.

    Returns:
        The work, the left time below which rows are resolved, and the right time below which rows are
            released.
    """
    before = before or AsofState()
    settled = max(right, before.settled)
    decided = reach.decided_below(settled)
    asking = [run.spans[reach.left][0] for run in new_left]
    if before.waiting is not None:
        asking.append(before.waiting)
    least = min(left, max(min(asking), decided)) if asking else left
    least = max(least, before.asked)
    work = AsofWork(
        settled=settled,
        settled_before=before.settled,
        asked=reach.latest_right_time(least),
        asked_before=reach.latest_right_time(before.asked),
        least=least,
        waiting=before.waiting,
        shed=before.shed,
    )
    return work, decided, max(reach.earliest_right_time(least), before.shed + 1)


def order_new_runs(runs: Sequence[Run]) -> list[Run]:
    """Return the new runs; set the offsets of runs whose rows an ASOF join looks for.

    The offset is the number of rows before the run in the tick. Rows are ordered by the branch of a
    UNION ALL, then by the partition name of the branch's source, then by ingest task, then by row.
    """
    rows: dict[tuple[int, str, int], int] = defaultdict(int)
    for run in runs:
        if run.origin is not None:
            rows[run.origin] += run.rows
    before, offsets = 0, {}
    for origin in sorted(rows):
        offsets[origin] = before
        before += rows[origin]
    return [
        run if run.origin is None else run.model_copy(update={"offset": offsets[run.origin]}) for run in runs
    ]


# Joins of two sides, whose rows are kept until bounds release them; of an ASOF join until they are
# decided, or nobody may ask for them any more.


class JoinDriver(NodeDriver[JoinPlan, JoinShape]):
    releases_as_rows = True

    def build_shape(
        self, query: QueryPlan, node: JoinPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> JoinShape:
        return JoinShape(
            **common,
            kind=node.kind,
            condition=build_pair_condition(query, node, dict(zip(Side, sides, strict=True))),
            broadcast=node.broadcast,
            reach=_build_reach(node),
            lasting=_pair_bounds(node) if common["changelog"] and node.looks_above else (),
        )

    def held(self, query: QueryPlan, node: JoinPlan, side: SidePlan) -> SideLayout:
        is_dealt = node.broadcast is not None
        held = replace(
            build_match_layout(query, node, side), hides_released=node.hides_released, dealt=is_dealt
        )
        if node.asof is None:
            return replace(held, hides_gone=not node.changes)
        held = replace(held, releasing=side.event_times, watched=())
        if side is not node.right:
            return held
        # the row that is taken is to be the first one met, from the end at which the look-up begins
        held = replace(held, in_order=side.in_order)
        return replace(held, ties="descending" if node.asof.latest else "ascending")

    def decide(self, node: JoinPlan, given: NodeInputs) -> NodeLimits:
        if node.horizon is not None:
            return NodeLimits(horizon_limits(node.horizon, given.on_time))
        reach = _build_reach(node)
        if reach is None:
            return NodeLimits(limits(node, given.watermarks, given.lateness))
        left, right = _nearest_keys(node)
        work, decided, asked = asof_work(
            reach,
            given.before.asof,
            given.on_time.get(left, NEVER),
            given.on_time.get(right, NEVER),
            given.brought(node.left),
        )
        return NodeLimits({left: decided, right: asked}, work)

    def costs_by_new_rows(self, shape: JoinShape) -> bool:
        """Return True for rows without changes whose look-up candidates can be counted first.

        See `TaskPartition.count_candidates`.
        """
        return shape.can_count_candidates and shape.broadcast is None and not shape.changelog

    def estimate_heavy_pairs(self, work: NodeWork) -> float:
        return estimate_heavy_pairs(work)

    def outputs(self, node: JoinPlan, given: Outgoing) -> dict[str, Watermark]:
        leaving = set(node.watermark_keys)
        return output_watermarks(
            {key: watermark for key, watermark in given.watermarks.items() if key in leaving},
            given.limits,
            given.least,
            given.emitted,
            tight=node.horizon is None and (given.tight or node.asof is not None),
        )

    def build_asof_state(self, node: JoinPlan, work: NodeWork, least: Mapping[str, int]) -> AsofState | None:
        if work.asof is None:
            return None
        left, _ = _nearest_keys(node)
        return AsofState(
            settled=work.asof.settled,
            asked=work.asof.least,
            waiting=least.get(left),
            shed=work.asof.shed,
        )


def _nearest_keys(node: JoinPlan) -> tuple[str, str]:
    """Return the watermark keys of the two times by which an ASOF join finds the nearest row."""
    band = node.bands[0]
    return node.left.watermark_key(band.left.column), node.right.watermark_key(band.right.column)


def _build_reach(node: JoinPlan) -> Reach | None:
    return None if node.asof is None else Reach(node.bands[0], node.asof, node.slack)


def _pair_bounds(node: JoinPlan) -> tuple[PairBound, ...]:
    times = {
        node.side(side).watermark_key(column): TimeColumn(side, column)
        for side in Side
        for column in node.side(side).event_times
    }
    return tuple(PairBound(times[bound.evicted], times[bound.by], bound) for bound in node.bounds)
