"""Rule: the records of a table with a primary key are changes of rows, and no rows yet; nor is what a table
holds that is compared with what it held before. What says which row goes and which comes is a stage beneath
every input that reads the table (`plan.nodes.tree.UpsertNode`, `SnapshotNode`).

Filters and expressions of views stand above it: a record that no longer passes a filter still takes the row
away that did.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlglot import exp

from watersmeet.plan.conditions.conjuncts import join_all
from watersmeet.spec.model import (
    Branch,
    Column,
    Computed,
    Expr,
    Input,
    OutputColumn,
    Query,
    Source,
    StageBranch,
    bare,
    with_bare,
    with_branches,
)
from watersmeet.spec.records.changes import computed_of_key


def keyed(query: Query) -> Query:
    """The query and its stages, with such tables read through stages."""
    return with_branches(query, _branch)


def _branch(branch: Branch) -> Branch | StageBranch:
    if branch.source.primary_key is None and not branch.source.compared:
        return branch
    above = join_all([condition for condition in (branch.beneath, branch.above) if condition is not None])
    over_stage = partial(_over_stage, computed_of_key(branch.source))
    columns = tuple(map(over_stage, branch.columns))
    return StageBranch(_stage(branch.source), columns, None if above is None else over_stage(above))


def _over_stage(computed: Sequence[Computed], expr: Expr) -> Expr:
    """Return an expression over the rows of the stage, which have the key as it is kept."""

    def one(node: exp.Expression) -> exp.Expression:
        own = next((own for own in computed if own.expr == node and node.find(exp.Column)), None)
        return node if own is None else _column(own.column)

    if not computed:
        return expr
    replaced, stored = expr.transform(one), bare(expr)
    return replaced if stored is expr else with_bare(replaced, stored.transform(one))


def _stage(source: Source) -> Query:
    """The rows of the table."""
    computed = computed_of_key(source)
    columns = (*source.row_columns, *(own.column for own in computed))
    values = (*map(_column, source.row_columns), *(own.expr for own in computed))
    records = Input(source.name, columns, (), (Branch(source, values),))
    outputs = tuple(
        OutputColumn(column.name, _column(column, source.name), f"{source.name}.{column.name}")
        for column in columns
    )
    return Query(records, None, outputs, f"SELECT * FROM {source.name}")


def _column(column: Column, alias: str | None = None) -> Expr:
    table = None if alias is None else exp.to_identifier(alias, quoted=True)
    return exp.Column(this=exp.to_identifier(column.name, quoted=True), table=table)
