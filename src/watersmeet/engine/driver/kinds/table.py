"""Rows of tables, kept until they are deleted, and of streams of changes, kept until they would be late. They
are hashed by all that tells them apart."""

from __future__ import annotations

from watersmeet.engine.driver.kinds.base import CommonFields, Decided, Held, Incoming, NodeDriver
from watersmeet.engine.messages.shapes import SideShape, TableShape
from watersmeet.event_time import NEVER, shift
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
                name
                for name in side.kept
                if name not in side.event_times
                and ((type_ := types.get(name, UNKNOWN)).is_decimal or type_ in PLAIN)
            ),
            releasing=side.event_times,
        )

    def decide(self, node: TablePlan, given: Incoming) -> Decided:
        """Of a stream a row goes when it would be late: from then on nothing can take it back."""
        keys = [node.side.watermark_key(column) for column in node.side.event_times]
        return Decided(
            {key: shift(given.watermarks.get(key, NEVER), -given.lateness.get(key, 0)) for key in keys}
        )
