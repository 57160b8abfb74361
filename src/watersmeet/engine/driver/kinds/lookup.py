"""Rows of a stream that meet a table as it is in their tick: nothing is kept of them, and watermarks pass."""

from __future__ import annotations

from collections.abc import Callable

from watersmeet.engine.driver.kinds.base import CommonFields, Held, NodeDriver
from watersmeet.engine.driver.kinds.condition import condition_of, held_to_match
from watersmeet.engine.messages.shapes import LookupShape, SideShape
from watersmeet.event_time import Side
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import LookupPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.state.manifest import TableCopy


class LookupDriver(NodeDriver[LookupPlan, LookupShape]):
    drops_new = True

    def shape_of(
        self, query: QueryPlan, node: LookupPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> LookupShape:
        stream, table = sides
        return LookupShape(
            **common,
            kind=node.kind,
            condition=condition_of(query, node, {Side.LEFT: stream, Side.RIGHT: table}),
            table=table,
        )

    def held(self, query: QueryPlan, node: LookupPlan, side: SidePlan) -> Held:
        return held_to_match(query, node, side)

    def goes_by_new_rows(self, shape: LookupShape) -> bool:
        return shape.goes_by_keys

    def table(
        self,
        node: LookupPlan,
        shape: LookupShape,
        met: Callable[[LookupPlan, SideShape], TableCopy | None],
    ) -> TableCopy | None:
        return met(node, shape.table)
