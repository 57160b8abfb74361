"""The columns that leave a node, with the types that the engine found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from watersmeet.engine.messages.shapes import SideShape
from watersmeet.event_time import Side
from watersmeet.kernel.joined import JoinedColumn
from watersmeet.plan.model.nodes import GroupedPlan, NodePlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.state.runs.columns import null_column


def carried(node: NodePlan, shapes: Sequence[SideShape]) -> tuple[JoinedColumn, ...]:
    """What leaves of the sides and tables. ``shapes``: of these."""
    sides = zip(Side, (*node.sides, *node.tables), shapes, strict=False)
    return tuple(joined(side, plan, shape, name) for side, plan, shape in sides for name in shape.carried)


def joined(side: Side, plan: SidePlan, shape: SideShape, name: str) -> JoinedColumn:
    """The kept column ``name`` of a side, under the name that it has once it has left."""
    return JoinedColumn(
        side,
        name,
        plan.joined(name),
        shape.schema.field(name).type,
        null_column(name) if name in shape.nullable else None,
    )


def grouped_columns(node: GroupedPlan, sides: Sequence[SideShape]) -> tuple[JoinedColumn, ...]:
    """What rows have that are to be grouped: the keys, and what the calls mention. ``sides``: the one."""
    (side,) = sides
    wanted = dict.fromkeys(column for _, column in node.keys)
    for call in node.calls:
        wanted |= dict.fromkeys([*call.columns, *([] if call.filter is None else [call.filter])])
    return tuple(replace(joined(Side.LEFT, node.side, side, column), name=column) for column in wanted)
