"""Rule: the records of a table with a primary key are changes of rows, and no rows yet; nor is what a table
holds that is compared with what it held before. What says which row goes and which comes is a stage beneath
every input that reads the table (`plan.nodes.tree.UpsertNode`, `SnapshotNode`).

Filters and expressions of views stand above it: a record that no longer passes a filter still takes the row
away that did.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from watersmeet.plan.conditions.conjuncts import join_all
from watersmeet.spec.model import (
    Branch,
    Column,
    Expr,
    Input,
    Join,
    OutputColumn,
    Query,
    Relation,
    Source,
    StageBranch,
)


def keyed(query: Query) -> Query:
    """The query and its stages, with such tables read through stages."""
    return replace(query, relation=_relation(query.relation))


def _relation(part: Relation) -> Relation:
    if isinstance(part, Join):
        return replace(part, left=_relation(part.left), right=_relation(part.right))
    if part.as_of:
        return part
    return replace(part, branches=tuple(map(_branch, part.branches)))


def _branch(branch: Branch | StageBranch) -> Branch | StageBranch:
    if isinstance(branch, StageBranch):
        return replace(branch, stage=keyed(branch.stage))
    if branch.source.primary_key is None and not branch.source.compared:
        return branch
    above = join_all([condition for condition in (branch.beneath, branch.above) if condition is not None])
    return StageBranch(_stage(branch.source), branch.columns, above)


def _stage(source: Source) -> Query:
    """The rows of the table."""
    columns = source.row_columns
    records = Input(
        source.name,
        columns,
        (),
        (Branch(source, tuple(_column(column) for column in columns)),),
    )
    outputs = tuple(
        OutputColumn(column.name, _column(column, source.name), f"{source.name}.{column.name}")
        for column in columns
    )
    return Query(records, None, outputs, f"SELECT * FROM {source.name}")


def _column(column: Column, alias: str | None = None) -> Expr:
    table = None if alias is None else exp.to_identifier(alias, quoted=True)
    return exp.Column(this=exp.to_identifier(column.name, quoted=True), table=table)
