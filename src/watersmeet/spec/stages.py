"""What the description alone tells of a stage's columns: which are event times, which may be NULL."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.spec.model import Expr, Input, Query, Relation, StageBranch, visible_inputs

Time = tuple[str, str]
"""(alias, column) of an input of the stage; the alias is "" for the ends of an aggregation's windows."""


def time_of(branch: StageBranch, i: Input, column: str) -> Time | None:
    """Return the stage's event time that a column of the input is on this branch, or None.

    Such a column is a plain column, or one cast to another time or integer type.
    """
    place = next(n for n, declared in enumerate(i.columns) if declared.name == column)
    plain = _plain(branch.columns[place])
    outputs = {output.name: output.expr for output in branch.stage.outputs}
    if plain is None or plain.name not in outputs:
        return None
    return output_time(branch.stage, outputs[plain.name])


def output_time(stage: Query, expr: Expr) -> Time | None:
    """Return the event time that an output of a stage is, or None."""
    plain = _plain(expr)
    if plain is None:
        return None
    if stage.aggregation is not None:
        return ("", plain.name) if plain.name in stage.aggregation.event_times else None
    owner = next((stage_input for stage_input in stage.inputs if stage_input.alias == plain.table), None)
    return (plain.table, plain.name) if owner is not None and plain.name in owner.event_times else None


def may_be_null(i: Input, column: str) -> bool:
    """Return True if a row of the input may have NULL in an event time.

    A stage's row may, if a join pads it. Rows of a source with a NULL event time are dropped.
    """
    for branch in i.branches:
        if isinstance(branch, StageBranch):
            time = time_of(branch, i, column)
            if time is not None and _may_be_null_in(branch.stage, time):
                return True
    return False


def _may_be_null_in(stage: Query, time: Time) -> bool:
    if stage.aggregation is not None:
        return False
    alias, column = time
    owner = next(stage_input for stage_input in stage.inputs if stage_input.alias == alias)
    return alias in padded_aliases(stage.relation) or may_be_null(owner, column)


def padded_aliases(relation: Relation) -> frozenset[str]:
    """Return the inputs whose columns may all be NULL in rows of the relation.

    A join pads these inputs.
    """
    if isinstance(relation, Input):
        return frozenset()
    left, right = padded_aliases(relation.left), padded_aliases(relation.right)
    if relation.kind.hides_right:
        return left
    if relation.kind.pads_right:
        left |= {visible.alias for visible in visible_inputs(relation.left)}
    if relation.kind.pads_left:
        right |= {visible.alias for visible in visible_inputs(relation.right)}
    return left | right


def _plain(expr: Expr) -> exp.Column | None:
    """Return the column of an expression that is only casts and parentheses around it, or None."""
    inner = expr.unnest()
    while isinstance(inner, exp.Cast):
        inner = inner.this.unnest()
    return inner if isinstance(inner, exp.Column) else None
