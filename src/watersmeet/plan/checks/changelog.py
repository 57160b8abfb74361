"""Rule: what is not run in output_mode changelog, where results may be taken back."""

from __future__ import annotations

from watersmeet.errors import PlanError
from watersmeet.event_time import Side
from watersmeet.plan.nodes.tree import Tree


def check_changelog(tree: Tree) -> list[PlanError]:
    """What is not run yet where results may be taken back."""
    names = ", ".join(i.alias for i in tree.inputs)
    if any(part.query.aggregation is not None for part in tree.every):
        return [PlanError("windows are not run yet in output_mode changelog", code="not-yet")]
    lookups = [i.alias for i in tree.inputs if i.as_of]
    if lookups:
        return [
            PlanError(
                f"a join with a table FOR SYSTEM_TIME AS OF ({', '.join(lookups)}) is not run in output_mode"
                " changelog: a row that is taken back might meet another table than when it came",
                code="not-yet",
                hint="SET output_mode = append, or declare the table's changes as a stream of updates",
            )
        ]
    hinted = [i.alias for i in tree.inputs if i.broadcast]
    if hinted:
        return [
            PlanError(
                f"BROADCAST({', '.join(hinted)}) is not run yet in output_mode changelog: how many matches a"
                " row has is counted by the one task that has it",
                code="not-yet",
                hint="leave out the hint, or SET output_mode = append",
            )
        ]
    if tree.root.passes and any(
        source.changes or source.is_table for i in tree.root.inputs(Side.LEFT) for source in i.sources
    ):
        return [
            PlanError(
                f"a query without a join over rows that may be taken back ({names}) is not run yet",
                code="not-yet",
            )
        ]
    return []
