"""Rule: what is not run where rows may be taken back: in output_mode changelog, and beneath windows that make
final rows of such."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.plan.mode import changing
from watersmeet.plan.nodes.tree import Tree
from watersmeet.spec.functions import signature_of
from watersmeet.spec.model import Expr, Input, OutputColumn


def check_changelog(tree: Tree, outputs: Sequence[OutputColumn]) -> list[PlanError]:
    """What is not run, or not yet, where rows may be taken back. ``outputs``: of a query whose results may
    be."""
    return _not_run_yet(tree) + [
        PlanError(
            f'{name}() in the column "{output.name}" gives another value each time: what takes a row back in'
            " output_mode changelog would not be equal to it",
            code="nondeterministic",
            hint="leave it out, or hash a column",
        )
        for output in outputs
        if (name := _unsteady(output.expr)) is not None
    ]


def _unsteady(expr: Expr) -> str | None:
    """The first function in it that gives another value when it is computed again."""
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
                f"a join with a table FOR SYSTEM_TIME AS OF ({names}) is not run in output_mode"
                " changelog, nor over rows that may be retracted: one that is might meet another table than"
                " when it came",
                code="not-yet",
                hint=f"declare {names} with 'changes' = 'snapshot', and leave FOR SYSTEM_TIME AS OF out: it"
                " is joined as it changes"
                if taken_back
                else "leave EMIT CHANGES out (SET output_mode = append): rows of a stream stay as they are",
            )
        ]
    beside = [i for part in with_changes if (i := _beside_joins(part)) is not None]
    if beside:
        return [
            PlanError(
                f'"{source.name}" is a stream of rows that may be retracted, in a UNION ALL with what joins'
                " put out, and joined with nothing: that is not run yet",
                code="not-yet",
                hint="leave WATERMARK FOR out: rows of a table are kept until they are deleted; or INSERT"
                " them by themselves",
            )
            for i in beside
            for source in i.sources
            if source.changes
        ]
    return []


def _beside_joins(tree: Tree) -> Input | None:
    """The one input of a query, if it puts streams of changes together with the rows of joins."""
    i = tree.query.relation
    if not isinstance(i, Input) or i.is_table or not i.stages:
        return None
    return i if any(source.changes for source in i.sources) else None
