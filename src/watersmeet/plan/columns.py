"""Rule: which columns of a side are kept in state, and which of them leave the join."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from watersmeet.plan.flags import over_source
from watersmeet.spec.model import Branch, Expr, Input


@dataclass(frozen=True)
class Kept:
    """Names, in the side's order, then computed columns; ``carried`` are among ``kept``."""

    kept: tuple[str, ...]
    carried: tuple[str, ...]


def kept_columns(
    names: Iterable[str], joined: Callable[[str], str], needed: Collection[str], leaving: Collection[str]
) -> Kept:
    """What a join needs itself, and whatever comes after it.

    Args:
        names: all columns that the side could have, in order; a name may come twice.
        joined: a column's name once it has left the join.
        needed: the columns that keys, residual and the release of rows need.
        leaving: joined names of those that the joins and expressions above need.
    """
    every = dict.fromkeys(names)
    carried = tuple(name for name in every if joined(name) in leaving)
    return Kept(tuple(name for name in every if name in needed or name in carried), carried)


def source_columns(i: Input, branch: Branch) -> Mapping[str, Expr]:
    """An input's columns as expressions over the branch's source."""
    return {column.name: expr for column, expr in zip(i.columns, branch.columns, strict=True)}


def branch_columns(
    kept: Kept, computed: Mapping[str, Expr], columns: Mapping[str, Expr]
) -> tuple[tuple[str, Expr], ...]:
    """(name, expression over the source) of the kept columns.

    Args:
        computed: expressions over the input's bare columns.
    """
    return tuple(
        (name, columns[name].copy() if name in columns else over_source(computed[name], columns))
        for name in kept.kept
    )
