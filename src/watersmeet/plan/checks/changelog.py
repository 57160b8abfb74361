"""Checks for features that are not supported where rows may be retracted.

Rows may be retracted in output_mode changelog, and in the input of windows that make final rows of such rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.plan.nodes.columns import changing
from watersmeet.plan.nodes.tree import Tree
from watersmeet.spec.functions import signature_of
from watersmeet.spec.model import Expr, Input, OutputColumn


def check_changelog(tree: Tree, outputs: Sequence[OutputColumn]) -> list[PlanError]:
    """Return one error per feature that a query with retractions does not support.

    Args:
        outputs: Output columns of a query whose results may be retracted.
    """
    return _not_run_yet(tree) + [
        PlanError(
            f'{name}() in the column "{output.name}" returns a different value each time, so in'
            " output_mode changelog a retraction would not equal the row it retracts",
            code="nondeterministic",
            hint="remove it, or hash a column instead",
        )
        for output in outputs
        if (name := _unsteady(output.expr)) is not None
    ]


def _unsteady(expr: Expr) -> str | None:
    """Return the first function in `expr` that gives another value when it is computed again.

    Returns:
        The name in lower case, or None if every function is deterministic.
    """
    for node in expr.find_all(exp.Func):
        name = node.name if isinstance(node, exp.Anonymous) else type(node).sql_name()
        signature = signature_of(name)
        if signature is not None and not signature.deterministic:
            return name.lower()
    return None


def _not_run_yet(tree: Tree) -> list[PlanError]:
    with_changes = [part for part in tree.every if part.changes]
    lookups = [i.alias for part in with_changes for i in part.query.inputs if i.as_of]
    if lookups:
        taken_back = any(changing(part.query.inputs) for part in with_changes)
        names = ", ".join(lookups)
        return [
            PlanError(
                f"a join with a table FOR SYSTEM_TIME AS OF ({names}) is not supported in output_mode"
                " changelog or for rows that can be retracted: the table may have changed before a"
                " retraction",
                code="not-yet",
                hint=f"declare {names} with 'changes' = 'snapshot' and remove FOR SYSTEM_TIME AS OF;"
                " results then follow the table's changes"
                if taken_back
                else "remove EMIT CHANGES (SET output_mode = append): rows of a stream are never retracted",
            )
        ]
    beside = [i for part in with_changes if (i := _mixed_changes_input(part)) is not None]
    if beside:
        return [
            PlanError(
                f'"{source.name}" is a stream with retractions in a UNION ALL with results of joins,'
                " which is not supported yet",
                code="not-yet",
                hint="remove WATERMARK FOR, so that it is a table, or write its rows with an INSERT of"
                " their own",
            )
            for i in beside
            for source in i.sources
            if source.changes
        ]
    return []


def _mixed_changes_input(tree: Tree) -> Input | None:
    """Return the only input of a query if it unites streams of changes with rows of joins.

    Returns:
        The input, or None for every other query.
    """
    i = tree.query.relation
    if not isinstance(i, Input) or i.is_table or not i.stages:
        return None
    return i if any(source.changes for source in i.sources) else None
