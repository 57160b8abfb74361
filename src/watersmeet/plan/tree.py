"""The joins of a query, numbered so that a join comes after those beneath it; the last one is the root."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.event_time import Side
from watersmeet.plan.scope import Scope
from watersmeet.spec.model import Input, JoinKind, Relation, visible_inputs
from watersmeet.spec.model import Join as Asked


@dataclass(frozen=True)
class Node:
    """A join of the query. ``left`` and ``right``: an input, or a join beneath."""

    number: int
    asked: Asked
    left: Node | Input
    right: Node | Input

    @property
    def kind(self) -> JoinKind:
        return self.asked.kind

    def side(self, side: Side) -> Node | Input:
        return self.left if side is Side.LEFT else self.right

    def inputs(self, side: Side) -> tuple[Input, ...]:
        """The inputs whose columns the rows of a side have."""
        return tuple(visible_inputs(self.asked.left if side is Side.LEFT else self.asked.right))

    @property
    def scope(self) -> Scope:
        left, right = self.inputs(Side.LEFT), self.inputs(Side.RIGHT)
        joined = frozenset(side for side in Side if isinstance(self.side(side), Node))
        return Scope(left + right, len(left), joined)

    def padded(self, side: Side) -> bool:
        """Rows of that side that never match are put out with NULLs for the other."""
        return self.kind.pads_left if side is Side.LEFT else self.kind.pads_right

    def nullable(self, side: Side) -> frozenset[str]:
        """Aliases beneath that side that a join beneath may pad: then all their columns are NULL."""
        child = self.side(side)
        return frozenset() if isinstance(child, Input) else child.nullable_out

    @property
    def nullable_out(self) -> frozenset[str]:
        """The same for the rows that leave this join."""
        if self.kind.hides_right:
            return self.nullable(Side.LEFT)
        found = self.nullable(Side.LEFT) | self.nullable(Side.RIGHT)
        for side in Side:
            if self.padded(side.other):
                found |= {i.alias for i in self.inputs(side)}
        return found

    @property
    def beneath(self) -> tuple[Node, ...]:
        """This join and those beneath it."""
        below = [child.beneath for child in (self.left, self.right) if isinstance(child, Node)]
        return (*tuple(node for nodes in below for node in nodes), self)


def nodes_of(relation: Relation) -> tuple[Node, ...]:
    """The joins of a relation, in order of their numbers."""
    found: list[Node] = []

    def build(part: Relation) -> Node | Input:
        if isinstance(part, Input):
            return part
        left, right = build(part.left), build(part.right)
        node = Node(len(found), part, left, right)
        found.append(node)
        return node

    build(relation)
    return tuple(found)
