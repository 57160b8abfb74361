"""Where max_rows_per_key would not be checked it is refused."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.errors import PlanError
from watersmeet.plan.delta.paths import DeltaJoin, NoDelta
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.nodes.tree import Tree
from watersmeet.spec.model import Options


def check_per_key_of_changes(options: Options, tree: Tree) -> list[PlanError]:
    """Rows are counted per key as they come; of those that may be taken back, tasks know only after."""
    if options.max_rows_per_key is None or not any(part.changes for part in tree.every):
        return []
    return [
        PlanError(
            "max_rows_per_key is not supported where rows can be retracted (output_mode changelog,"
            " changing tables)",
            code="not-yet",
            hint="remove it, or use max_rows, whose error names the heaviest keys",
        )
    ]


def check_per_key_of_delta(delta: DeltaJoin | NoDelta, options: Options, *, changes: bool) -> list[PlanError]:
    """Rows between the look-ups of a delta join are not kept, and one copy of a side may be held by several
    keys. Of ``changes`` nothing is said here: they are refused anyway."""
    if options.max_rows_per_key is None or changes or not isinstance(delta, DeltaJoin):
        return []
    return [
        PlanError(
            "max_rows_per_key is not supported for delta joins (plan = delta)",
            code="not-yet",
            hint="remove it, or SET plan = 'cascade'",
        )
    ]


def check_per_key(nodes: Sequence[NodePlan], query: str, options: Options) -> list[PlanError]:
    """Rows are kept, and none of them by a key by which they could be counted."""
    keyed = [node.keeps_by_key for node in nodes]
    if options.max_rows_per_key is None or True in keyed or False not in keyed:
        return []
    return [
        PlanError(
            f'max_rows_per_key has no effect: "{query}" stores no rows by key',
            code="no-key",
            hint="remove it or use max_rows; or add an equality to the join condition, or a column to"
            " the GROUP BY of the windows",
        )
    ]
