"""Rule: to which join or input each conjunct of a query (or of a stage, by itself) belongs.

ON conjuncts begin at their join, those of a join's WHERE right above it, those of the query's WHERE above all
joins. Each sinks as deep as the answer stays the same: through an inner join into either side, through an
outer join only into the side that it preserves. What cannot sink is asked of the rows that leave the join.
What mentions one side only and is asked of rows that are not preserved is a filter of that side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatch

from watersmeet.event_time import Side
from watersmeet.plan.conditions.conjuncts import Conjunct
from watersmeet.plan.conditions.rewrites import conjuncts_of
from watersmeet.plan.nodes.tree import (
    ChangesNode,
    GroupedNode,
    IndexNode,
    MatchNode,
    PassNode,
    QueryNode,
    SnapshotNode,
    TableNode,
    UpsertNode,
)
from watersmeet.spec.model import Expr, Input, JoinKind


@dataclass
class PlacedConditions:
    """Conjuncts by the place that evaluates them.

    Attributes:
        joins: Conjuncts of a join, by its number.
        inputs: Conjuncts on the rows of an input, by alias.
        sides: Conjuncts on the rows that come from a join below, by (number, side).
        after: Conjuncts on the rows of the query.
    """

    joins: dict[int, list[Conjunct]] = field(default_factory=lambda: defaultdict(list))
    inputs: dict[str, list[Conjunct]] = field(default_factory=lambda: defaultdict(list))
    sides: dict[tuple[int, Side], list[Conjunct]] = field(default_factory=lambda: defaultdict(list))
    after: list[Conjunct] = field(default_factory=list)

    @property
    def every(self) -> list[Conjunct]:
        """All conjuncts."""
        placed = (*self.joins.values(), *self.inputs.values(), *self.sides.values(), self.after)
        return [conjunct for conjuncts in placed for conjunct in conjuncts]


def place(nodes: Sequence[QueryNode], where: Expr | None, having: Expr | None = None) -> PlacedConditions:
    """Place all conjuncts of the joins of a query and of its WHERE, those of lower joins first.

    Args:
        having: Condition on the values computed for groups.
    """
    conditions = PlacedConditions()
    above = {
        child.number: (node.number, side)
        for node in nodes
        for side in node.sides
        if isinstance(child := node.side(side), QueryNode)
    }
    for node in nodes:
        for conjunct in conjuncts_of(node.match) + conjuncts_of(node.on):
            sides = node.join_inputs.sides(conjunct.expr)
            if len(sides) == 1 and not node.padded(sides[0]):
                _place_in_side(conjunct, node, sides[0], conditions)
            else:
                conditions.joins[node.number].append(conjunct)
        for conjunct in conjuncts_of(node.where):
            if not _push_down(node, conjunct, conditions):
                stays = conditions.sides[above[node.number]] if node.number in above else conditions.after
                stays.append(conjunct)
    for conjunct in conjuncts_of(where):
        if not _push_down(nodes[-1], conjunct, conditions):
            conditions.after.append(conjunct)
    conditions.after += conjuncts_of(having)
    return conditions


def _place_in_side(conjunct: Conjunct, node: QueryNode, side: Side, conditions: PlacedConditions) -> None:
    child = node.side(side)
    if isinstance(child, Input):
        conditions.inputs[child.alias].append(conjunct)
    elif not _push_down(child, conjunct, conditions):
        conditions.sides[node.number, side].append(conjunct)


@singledispatch
def _push_down(node: QueryNode, conjunct: Conjunct, conditions: PlacedConditions) -> bool:
    """Place a filter on the rows of a node in the node or below it.

    Returns:
        False if the filter has to stay above.
    """
    raise TypeError(f"where filters of {type(node).__name__} go")


@_push_down.register(PassNode)
@_push_down.register(TableNode)
def _(node: QueryNode, conjunct: Conjunct, conditions: PlacedConditions) -> bool:
    child = node.side(Side.LEFT)
    if not node.join_inputs.sides(conjunct.expr) or (isinstance(child, Input) and child.stages):
        return False  # above a stage Spark can ask anything, beneath it only what tasks can compute
    _place_in_side(conjunct, node, Side.LEFT, conditions)
    return True


@_push_down.register(SnapshotNode)
@_push_down.register(UpsertNode)
def _(node: QueryNode, conjunct: Conjunct, conditions: PlacedConditions) -> bool:
    return False  # a record that does not pass takes the row away that did


@_push_down.register(ChangesNode)
@_push_down.register(IndexNode)
def _(node: QueryNode, conjunct: Conjunct, conditions: PlacedConditions) -> bool:
    _place_in_side(conjunct, node, Side.LEFT, conditions)
    return True


@_push_down.register
def _(node: GroupedNode, conjunct: Conjunct, conditions: PlacedConditions) -> bool:
    _place_in_side(conjunct, node, Side.LEFT, conditions)  # rows are grouped that pass it
    return True


@_push_down.register
def _(node: MatchNode, conjunct: Conjunct, conditions: PlacedConditions) -> bool:
    sides = node.join_inputs.sides(conjunct.expr)
    if len(sides) == 1:
        if node.padded(sides[0].other):
            return False
        if node.kind.is_asof and sides[0] is Side.RIGHT:  # it is asked of the row found, not of candidates
            return False
        _place_in_side(conjunct, node, sides[0], conditions)
        return True
    if node.kind is not JoinKind.INNER:
        return False
    conditions.joins[node.number].append(conjunct)
    return True
