"""A node in whose place another query's is run."""

from __future__ import annotations

from watersmeet.engine.driver.kinds.base import CommonFields, NodeDriver
from watersmeet.engine.messages.shapes import RestShape, SideShape
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import RestPlan


class RestDriver(NodeDriver[RestPlan, RestShape]):
    def shape_of(
        self, query: QueryPlan, node: RestPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> RestShape:
        return RestShape(**common)
