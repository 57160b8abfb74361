"""What says which change a record of a source is: columns of it, and columns that are computed of these."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from watersmeet.spec.model import ComputedColumn, Expr, Source


def get_change_column_name(source: Source) -> str | None:
    """Return the name of the column that says what becomes of rows, and is none of theirs, if one does."""
    return None if source.change_column is None else source.change_column.column


def computed_expr(computed: Iterable[ComputedColumn], name: str) -> Expr | None:
    """Return what a column is computed of; None: it is a column of the records."""
    return next((own.expr for own in computed if own.column.name == name), None)


def computed_of_key(source: Source) -> tuple[ComputedColumn, ...]:
    """Return the computed columns of the primary key, and that of the sequence."""
    named = () if source.primary_key is None else source.primary_key.named
    return tuple(own for own in source.computed if own.column.name in named)


def computed_of_changes(source: Source) -> tuple[ComputedColumn, ...]:
    """Return all computed columns that say which change a record is."""
    change = tuple(own for own in source.computed if own.column.name == get_change_column_name(source))
    return (*computed_of_key(source), *change)


def columns_of_deletes(source: Source) -> frozenset[str]:
    """Return the columns of records that say which row of a primary key goes; a delete has no others."""
    named = set() if source.primary_key is None else {*source.primary_key.named}
    return frozenset(named.union(*(columns_in(own.expr) for own in computed_of_key(source))))


def columns_in(expr: Expr) -> set[str]:
    """Return the names of the columns that an expression mentions."""
    return {node.name for node in expr.find_all(exp.Column)}
