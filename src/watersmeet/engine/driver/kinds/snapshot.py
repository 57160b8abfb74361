"""Tables that are compared with what they held before: what was read last is kept, hashed by the primary
key, or by all that has a hash."""

from __future__ import annotations

from watersmeet.engine.driver.kinds.base import CommonFields, Held, NodeDriver
from watersmeet.engine.messages.shapes import SideShape, SnapshotShape
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import SnapshotPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.types.sql_type import PLAIN, UNKNOWN


class SnapshotDriver(NodeDriver[SnapshotPlan, SnapshotShape]):
    replaces = True

    def goes_by_new_rows(self, shape: SnapshotShape) -> bool:
        return True

    def shape_of(
        self, query: QueryPlan, node: SnapshotPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> SnapshotShape:
        keys = () if node.primary_key is None else node.primary_key.columns
        return SnapshotShape(**common, keys=keys)

    def held(self, query: QueryPlan, node: SnapshotPlan, side: SidePlan) -> Held:
        if node.primary_key is not None:
            return Held(keys=node.primary_key.columns)
        types = {column.name: column.type for column in side.input.columns}
        return Held(
            keys=tuple(
                name for name in side.kept if (type_ := types.get(name, UNKNOWN)).is_decimal or type_ in PLAIN
            )
        )
