"""USING: equalities of columns of both sides, and one name for each pair above the join."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.errors import near_names
from watersmeet.front.query.inline import operand
from watersmeet.front.query.scope import Member, Merged, ResolvedColumn, Scope
from watersmeet.front.text.place import Text
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
        merged = tuple(joined_column for joined_column in merged if not joined_column.members & members)
        merged += (Merged(second.name if kind is JoinKind.RIGHT else first.name, expr, members),)
    return merged, conjuncts


def order_of(
    above: tuple[Scope, Scope], merged: tuple[Merged, ...], names: list[exp.Expression]
) -> tuple[Member, ...]:
    """The columns of a star above a join, as in Spark: those of USING in its order, once, then those of the
    left side and of the right one."""
    left, right = (scope.places() for scope in above)
    firsts: list[Member] = []
    gone: set[Member] = set()
    for name in names:
        owner = next((m for m in merged if m.name.lower() == name.name.lower()), None)
        if owner is not None:
            firsts += [place for place in left if place in owner.members][:1]
            gone |= owner.members
    return (*firsts, *(place for place in (*left, *right) if place not in gone))


def natural(sides: tuple[Scope, Scope]) -> list[exp.Expression]:
    """The columns of a NATURAL JOIN: those that both sides have under one name, spelled alike."""
    left, right = ([column.name for column in scope.star()] for scope in sides)
    return [exp.to_identifier(name, quoted=True) for name in dict.fromkeys(left) if name in right]


def _using_side(name: exp.Expression, scope: Scope, text: Text) -> ResolvedColumn | None:
    candidates = scope.candidates(name.name)
    if len(candidates) == 1:
        return candidates[0]
    inputs = ", ".join(named.alias for named in scope.relations)
    if candidates:
        origins = " or ".join(candidate.origin for candidate in candidates)
        text.problem(f'USING: column "{name.name}" is ambiguous: {origins}', "ambiguous-column", name)
    else:
        text.problem(
            f'USING: there is no column "{name.name}" in {inputs}',
            "unknown-column",
            name,
            near_names(name.name, scope.names()),
        )
    return None
