"""The columns of a source that an engine evaluates for one input, and how they are called."""

from __future__ import annotations

from collections.abc import Iterable

from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.model.sides import BranchPlan
from watersmeet.plan.query_inputs import JoinInputs, refs
from watersmeet.spec.model import Expr, Input, Source
from watersmeet.spec.records.changes import columns_in, computed_of_changes
from watersmeet.spec.time_zones import UTC


def source_inputs(source: Source, zone: str = UTC) -> JoinInputs:
    """Return inputs in which bare column names are the columns of the source."""
    inputs = (Input(alias="", columns=source.columns, event_times=(), branches=()),)
    return JoinInputs(inputs, time_zone=zone)


def mentioned_columns(branch: BranchPlan) -> frozenset[str]:
    """Return the columns of its source that a branch reads."""
    columns = {ref[1] for _, expr in branch.columns for ref in refs(expr)}
    return frozenset(columns | (set() if branch.flag is None else {ref[1] for ref in refs(branch.flag)}))


def needed_source_columns(source: Source, branches: Iterable[BranchPlan]) -> frozenset[str]:
    """Return the columns of a source that its branches take anything from, and those of which it is computed
    which change a record is."""
    of_changes = (columns_in(own.expr) for own in computed_of_changes(source))
    return frozenset[str]().union(*map(mentioned_columns, branches), *of_changes)


def words_of(branch: BranchPlan, name: str, expr: Expr) -> str:
    """Return the name of a branch's column, or of its flag, in messages."""
    written = dict(branch.words).get(name)
    return f"the expression {unquoted_text(expr)}" if written is None else f"the condition {written}"


def unquoted_text(expr: Expr) -> str:
    """Format an expression for users, with names without quotes."""
    return text_of(expr).replace("`", "")
