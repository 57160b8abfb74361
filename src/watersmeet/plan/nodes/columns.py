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
    """What a join needs itself, and whatever comes after it.

    Args:
        names: all columns that the side could have, in order; a name may come twice.
        joined: a column's name once it has left the join.
        needed: the columns that keys, residual and the release of rows need.
        leaving: joined names of those that the joins and expressions above need.
    """
    every = dict.fromkeys(names)
    carried = tuple(name for name in every if joined(name) in leaving)
    return RetainedColumns(tuple(name for name in every if name in needed or name in carried), carried)


def source_columns(i: Input, branch: Branch) -> Mapping[str, Expr]:
    """An input's columns as expressions over the branch's source."""
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
    """(name, expression over the source) of the kept columns.

    What may fail on a value is asked only of rows that are there at all, as Spark asks a filter before what
    stands above it.

    Args:
        computed: expressions over the input's bare columns.
        first: conditions over the source, without which a row is none of the input's.
        then: more of them, which drop rows that count for the watermarks of ``times``.
        there: columns of the source; rows in which one is NULL are nobody's, so that nothing is computed of
            them.
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
    """Whether Spark may raise for a value: unless all in it is known not to."""
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
