"""Rows of one side that go out as they come."""

from __future__ import annotations

from watersmeet.engine.driver.kinds.base import CommonFields, NodeDriver
from watersmeet.engine.messages.shapes import PassShape, SideShape
from watersmeet.names import is_node_alias
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import PassPlan


class PassDriver(NodeDriver[PassPlan, PassShape]):
    def shape_of(
        self, query: QueryPlan, node: PassPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> PassShape:
        return PassShape(**common)

    def goes_by_new_rows(self, shape: PassShape) -> bool:
        """Of changes, and of rows of a join: where other final rows pass, they are those of a whole input."""
        return shape.changelog or is_node_alias(shape.sides[0].name)
