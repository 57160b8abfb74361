"""The node of an index: the rows of one table, under the keys by which others look them up."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.plan.model.delta import Arranged, ArrangePlan, FoundBy
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.nodes.tree import IndexNode


def index_plan(node: IndexNode, side: SidePlan, filters: Sequence[tuple[str, str]]) -> ArrangePlan:
    """All rows of ``side``, held by the first key, and found by the others, too. Those with a NULL in a key
    are kept as well: who comes later may look them up by another one."""
    texts = [", ".join(f"{side.title}.{column}" for column in key) for key in node.by]
    (keys, text), *others = zip(node.by, texts, strict=True)
    return ArrangePlan(
        number=node.number,
        sides=(side,),
        filters=tuple(filters),
        arranged=(Arranged(keys, (), text, tuple(FoundBy(*other) for other in others)),),
        retentions=(),
    )
