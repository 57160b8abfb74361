"""Rule: the records of a table with a primary key are changes of rows, and no rows yet; nor is what a table
holds that is compared with what it held before. What says which row goes and which comes is a stage beneath
every input that reads the table (`plan.nodes.tree.UpsertNode`, `SnapshotNode`).

Filters and expressions of views stand above it: a record that no longer passes a filter still takes the row
away that did.
"""

from __future__ import annotations

from sqlglot import exp

from watersmeet.plan.conditions.conjuncts import join_all
from watersmeet.spec.model import (
    Branch,
    Column,
    Expr,
    Input,
    OutputColumn,
    Query,
    Source,
    StageBranch,
    with_branches,
)


def keyed(query: Query) -> Query:
    """The query and its stages, with such tables read through stages."""
    return with_branches(query, _branch)


def _branch(branch: Branch) -> Branch | StageBranch:
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
