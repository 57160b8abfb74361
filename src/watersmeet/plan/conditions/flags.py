"""Rule: one CASE per branch that says what a row can still do (the FLAG_ constants of the model).

Conditions that are NULL count as not TRUE. That a NULL key matches nothing is not in it: tasks see that in
the kept columns (`SidePlan.not_null`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.plan.conditions.conjuncts import join_all
from watersmeet.spec.flags import FLAG_BENEATH, FLAG_CANDIDATE, FLAG_FILTERED, FLAG_UNMATCHABLE
from watersmeet.spec.model import Branch, Expr


@dataclass(frozen=True)
class SideConditions:
    """Conditions on the rows of one input alone, over its bare columns.

    Attributes:
        filters: Rows that fail are dropped.
        one_sided: Rows that fail match nothing, but are padded.
        matchable: False if no row of the input can match.
    """

    filters: tuple[Expr, ...]
    one_sided: tuple[Expr, ...]
    matchable: bool


def flag_of(branch: Branch, conditions: SideConditions, columns: Mapping[str, Expr]) -> Expr | None:
    """Build the flag of the rows of ``branch`` over the columns of its source.

    Returns:
        None if every row without a relevant NULL is a candidate.
    """
    filters = [over_source(e, columns) for e in conditions.filters]
    one_sided = [over_source(e, columns) for e in conditions.one_sided]
    above = [] if branch.above is None else [branch.above]
    to_drop = above + filters
    cases: list[tuple[Expr, int]] = []
    if branch.beneath is not None:
        cases.append((_not_true([branch.beneath]), FLAG_BENEATH))
    if to_drop:
        cases.append((_not_true(to_drop), FLAG_FILTERED))
    if conditions.matchable and one_sided:
        cases.append((_not_true(one_sided), FLAG_UNMATCHABLE))
    otherwise = FLAG_CANDIDATE if conditions.matchable else FLAG_UNMATCHABLE
    if not cases:
        return None if otherwise == FLAG_CANDIDATE else exp.Literal.number(otherwise)
    case = exp.Case()
    for condition, flag in cases:
        case = case.when(condition, exp.Literal.number(flag), copy=False)
    return case.else_(exp.Literal.number(otherwise), copy=False)


def _not_true(conditions: Sequence[Expr]) -> Expr:
    together = join_all(list(conditions))
    assert together is not None
    return exp.Not(this=exp.Coalesce(this=together, expressions=[exp.false()]))


def over_source(expr: Expr, columns: Mapping[str, Expr]) -> Expr:
    """Rewrite ``expr`` from bare columns of an input to columns of the branch's source."""

    def replace(node: Expr) -> Expr:
        if not isinstance(node, exp.Column):
            return node
        column = columns[node.name].copy()
        return column if isinstance(column, exp.Column | exp.Literal) else exp.Paren(this=column)

    return expr.transform(replace)
