"""Rule: which columns of a side are kept in state, and which of them leave the join."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.plan.conditions.conjuncts import join_all
from watersmeet.plan.conditions.flags import over_source
from watersmeet.spec.model import Branch, Expr, Input, bare


@dataclass(frozen=True)
class RetainedColumns:
    """Names, in the side's order, then computed columns; ``carried`` are among ``kept``."""

    kept: tuple[str, ...]
    carried: tuple[str, ...]


def retained_columns(
    names: Iterable[str], joined: Callable[[str], str], needed: Collection[str], leaving: Collection[str]
) -> RetainedColumns:
    """Return the columns that a join needs itself, and those that later nodes need.

    Args:
        names: All columns that the side could have, in order; a name may occur twice.
        joined: Returns the name of a column after it leaves the join.
        needed: Columns that keys, the residual and the release of rows need.
        leaving: Joined names of the columns that the joins and expressions above need.
    """
    every = dict.fromkeys(names)
    carried = tuple(name for name in every if joined(name) in leaving)
    return RetainedColumns(tuple(name for name in every if name in needed or name in carried), carried)


def source_columns(i: Input, branch: Branch) -> Mapping[str, Expr]:
    """Return the columns of an input as expressions over the source of the branch."""
    return {column.name: expr for column, expr in zip(i.columns, branch.columns, strict=True)}


def branch_columns(
    kept: RetainedColumns,
    computed: Mapping[str, Expr],
    columns: Mapping[str, Expr],
    *,
    first: Sequence[Expr],
    then: Sequence[Expr],
    there: Sequence[Expr],
    times: Collection[str],
) -> tuple[tuple[str, Expr], ...]:
    """Return (name, expression over the source) of the retained columns.

    Expressions that may fail on a value are evaluated only for rows that belong to the input, as Spark
    evaluates a filter before the operators above it.

    Args:
        computed: Expressions over bare columns of the input.
        first: Conditions over the source that a row of the input has to meet.
        then: Further conditions, which drop rows that count for the watermarks of ``times``.
        there: Columns of the source; a row with NULL in one of them belongs to no side, so nothing is
            computed of it.
    """
    pairs = []
    for name in kept.kept:
        expr = bare(columns[name]).copy() if name in columns else over_source(computed[name], columns)
        mentioned = list(expr.find_all(exp.Column))
        others = [] if name in columns else [column for column in there if column not in mentioned]
        asked = join_all([*first, *(() if name in times else then), *map(_is_not_null, others)])
        if asked is not None and may_fail(expr):
            expr = exp.Case().when(asked, expr, copy=False)
        pairs.append((name, expr))
    return tuple(pairs)


def _is_not_null(column: Expr) -> Expr:
    return exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null()))


def may_fail(expr: Expr) -> bool:
    """Return True unless every part of the expression is known never to raise in Spark."""
    return not all(isinstance(node, _NEVER_FAILS) for node in expr.walk())


_NEVER_FAILS = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Boolean,
    exp.Null,
    exp.Paren,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Is,
    exp.Lower,
    exp.Upper,
    exp.Length,
)
