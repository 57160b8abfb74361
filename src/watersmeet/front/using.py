"""USING: equalities of columns of both sides, and one name for each pair above the join."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.front.inline import operand
from watersmeet.front.place import Text
from watersmeet.front.scope import Found, Merged, Scope
from watersmeet.spec.model import Expr, JoinKind


def using_columns(
    sides: tuple[Scope, Scope],
    above: tuple[Scope, Scope],
    names: list[exp.Expression],
    kind: JoinKind,
    text: Text,
) -> tuple[tuple[Merged, ...], list[Expr]]:
    """USING as equalities, and its columns as one each: COALESCE for FULL, else the side never padded.

    Args:
        above: what the names of both sides stand for above the join.
    """
    conjuncts: list[Expr] = []
    merged = above[0].merged + above[1].merged
    for name in names:
        first, second = (_using_side(name, scope, text) for scope in sides)
        if first is None or second is None:
            continue
        conjuncts.append(exp.EQ(this=operand(first.expr), expression=operand(second.expr)))
        left, right = (scope.candidates(name.name)[0].expr for scope in above)
        expr: Expr = right if kind is JoinKind.RIGHT else left
        if kind is JoinKind.FULL:
            expr = exp.Coalesce(this=left, expressions=[right])
        members = first.members | second.members
        merged = tuple(each for each in merged if not each.members & members)
        merged += (Merged(first.name, expr, members),)
    return merged, conjuncts


def _using_side(name: exp.Expression, scope: Scope, text: Text) -> Found | None:
    found = scope.candidates(name.name)
    if len(found) == 1:
        return found[0]
    inputs = ", ".join(named.alias for named in scope.relations)
    if found:
        origins = " or ".join(each.origin for each in found)
        text.problem(f'USING: column "{name.name}" is ambiguous: {origins}', "ambiguous-column", name)
    else:
        text.problem(f'USING: there is no column "{name.name}" in {inputs}', "unknown-column", name)
    return None
