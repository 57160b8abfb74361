"""Joins of two sides, whose rows are kept until bounds release them; of an ASOF join until they are decided,
or nobody may ask for them any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watersmeet.engine.driver.asof_limits import asof_work
from watersmeet.engine.driver.kinds.base import CommonFields, Decided, Held, Incoming, NodeDriver, Outgoing
from watersmeet.engine.driver.kinds.condition import condition_of, held_to_match
from watersmeet.engine.messages.shapes import JoinShape, SideShape
from watersmeet.engine.messages.work import NodeWork
from watersmeet.engine.nodes.spread.hot import told_pairs
from watersmeet.event_time import NEVER, Side, TimeColumn, Watermark
from watersmeet.kernel.asof import Reach
from watersmeet.kernel.match.lasting import PairBound
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import JoinPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.nodes.retention import horizon_limits, limits
from watersmeet.state.manifest import AsofState
from watersmeet.watermark.output import output_watermarks


class JoinDriver(NodeDriver[JoinPlan, JoinShape]):
    releases_as_rows = True

    def shape_of(
        self, query: QueryPlan, node: JoinPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> JoinShape:
        return JoinShape(
            **common,
            kind=node.kind,
            condition=condition_of(query, node, dict(zip(Side, sides, strict=True))),
            broadcast=node.broadcast,
            reach=_reach(node),
            lasting=_pair_bounds(node) if common["changelog"] and node.looks_above else (),
        )

    def held(self, query: QueryPlan, node: JoinPlan, side: SidePlan) -> Held:
        is_dealt = node.broadcast is not None
        held = replace(held_to_match(query, node, side), hides_released=node.hides_released, dealt=is_dealt)
        if node.asof is None:
            return replace(held, hides_gone=not node.changes)
        held = replace(held, releasing=side.event_times, watched=())
        if side is not node.right:
            return held
        # the row that is taken is to be the first one met, from the end at which the look-up begins
        held = replace(held, in_order=side.in_order)
        return replace(held, ties="descending" if node.asof.latest else "ascending")

    def decide(self, node: JoinPlan, given: Incoming) -> Decided:
        if node.horizon is not None:
            return Decided(horizon_limits(node.horizon, given.on_time))
        reach = _reach(node)
        if reach is None:
            return Decided(limits(node, given.watermarks, given.lateness))
        left, right = _nearest_keys(node)
        work, decided, asked = asof_work(
            reach,
            given.before.asof,
            given.on_time.get(left, NEVER),
            given.on_time.get(right, NEVER),
            given.brought(node.left),
        )
        return Decided({left: decided, right: asked}, work)

    def goes_by_new_rows(self, shape: JoinShape) -> bool:
        """Of rows that are not changed, where it is known how many candidates a look-up has before any is
        taken (`Share.sees`)."""
        return shape.counts_candidates and shape.broadcast is None and not shape.changelog

    def told_pairs(self, work: NodeWork) -> float:
        return told_pairs(work)

    def outputs(self, node: JoinPlan, given: Outgoing) -> dict[str, Watermark]:
        leaving = set(node.watermark_keys)
        return output_watermarks(
            {key: watermark for key, watermark in given.watermarks.items() if key in leaving},
            given.limits,
            given.least,
            given.emitted,
            tight=node.horizon is None and (given.tight or node.asof is not None),
        )

    def remembered(self, node: JoinPlan, work: NodeWork, least: Mapping[str, int]) -> AsofState | None:
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
    """The watermark keys of the two times by which an ASOF join takes the nearest row."""
    band = node.bands[0]
    return node.left.watermark_key(band.left.column), node.right.watermark_key(band.right.column)


def _reach(node: JoinPlan) -> Reach | None:
    return None if node.asof is None else Reach(node.bands[0], node.asof, node.slack)


def _pair_bounds(node: JoinPlan) -> tuple[PairBound, ...]:
    times = {
        node.side(side).watermark_key(column): TimeColumn(side, column)
        for side in Side
        for column in node.side(side).event_times
    }
    return tuple(PairBound(times[bound.evicted], times[bound.by], bound) for bound in node.bounds)
