"""How the joins of a query are run, and why: a line for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from watersmeet.plan.delta.paths import LEAST_INPUTS, DeltaJoin, NoDelta
from watersmeet.plan.model.delta import ArrangePlan
from watersmeet.plan.nodes.tree import Tree
from watersmeet.spec.model import Input, PlanChoice


def plan_told(
    tree: Tree, delta: DeltaJoin | NoDelta, asked: PlanChoice, arrangements: Sequence[ArrangePlan]
) -> Iterator[str]:
    """Of a query, or stage, that joins three inputs or more.

    Args:
        asked: what its hint, or the job, says.
        arrangements: of the query, with its stages.
    """
    by = "by auto" if asked is PlanChoice.AUTO else "as asked"
    if isinstance(delta, DeltaJoin):
        aliases = [i.alias for i in delta.inputs]
        why = " (changes are joined, and each look-up has an equality)" if asked is PlanChoice.AUTO else ""
        kept = " and ".join(["nothing is kept but the inputs' rows", *_besides(arrangements, aliases)])
        yield f"{', '.join(aliases)}: delta, {by}{why}: {kept}"
        return
    joins = [node.children for node in tree.nodes if len(node.children) > 1]
    inputs = [child.alias for both in joins for child in both if isinstance(child, Input) and not child.as_of]
    if len(inputs) >= LEAST_INPUTS:
        why = f" ({delta.why})" if delta.why else ""
        yield f"{', '.join(inputs)}: cascade, {by}{why}: each join keeps the rows of those beneath"


def _besides(arrangements: Sequence[ArrangePlan], aliases: Sequence[str]) -> Iterator[str]:
    for node in arrangements:
        if [side.name for side in node.leaving] == list(aliases):
            for side, arranged in zip(node.sides, node.arranged, strict=True):
                yield from (f"{other.key} as a further key of {side.name}" for other in arranged.others)
                if side.copy_of is not None:
                    yield f"{side.copy_of} once more, by {arranged.key or 'no key'}"
