"""Columns of relations, as trees that the parser of SQL would make of their names."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.relations.relation import Relation
from watersmeet.spec.model import Column


def column_of(rows: Relation, name: str) -> Column | None:
    return next((column for column in rows.columns if column.name.lower() == name.lower()), None)


def tree_of(column: str, alias: str | None = None) -> exp.Expression:
    table = None if alias is None else exp.to_identifier(alias, quoted=True)
    return exp.column(exp.to_identifier(column, quoted=True), table=table)


def alias_expression(tree: exp.Expression, name: str) -> exp.Expression:
    return exp.Alias(this=tree, alias=exp.to_identifier(name, quoted=True))
