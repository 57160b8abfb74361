"""Rows of tables, kept until they are deleted, and hashed by all that tells them apart."""

from __future__ import annotations

from watersmeet.engine.driver.kinds.base import CommonFields, Held, NodeDriver
from watersmeet.engine.messages.shapes import SideShape, TableShape
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import TablePlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.types.sql_type import PLAIN, UNKNOWN


class TableDriver(NodeDriver[TablePlan, TableShape]):
    def shape_of(
        self, query: QueryPlan, node: TablePlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> TableShape:
        return TableShape(**common)

    def held(self, query: QueryPlan, node: TablePlan, side: SidePlan) -> Held:
        """By the columns of which it is known that they have a hash."""
        types = {column.name: column.type for column in side.input.columns}
        return Held(
            keys=tuple(
                name for name in side.kept if (type_ := types.get(name, UNKNOWN)).is_decimal or type_ in PLAIN
            )
        )
