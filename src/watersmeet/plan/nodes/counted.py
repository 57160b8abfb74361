"""Rule: where nothing says that a result has one row per key of its sink, the rows of each key are counted.

The result is grouped by the key: of each other column it has a value, and beside them is how many rows there
are (`KEY_ROWS`). One row goes out as it is, for each value is its own; where there are more, the tick fails.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlglot import exp

from watersmeet.names import KEY_ROWS
from watersmeet.spec.model import Aggregation, Column, Expr, Input, OutputColumn, Query, StageBranch
from watersmeet.types.sql_type import BIGINT, PLAIN, UNKNOWN, SqlType

_ALIAS = "result"


def uncountable(query: Query, key: Collection[str]) -> str | None:
    """Why rows of the query's result cannot be counted by these columns of it; None: they can be."""
    if query.aggregation is not None:
        query = _beneath(query)
    types = {(i.alias, column.name): column.type for i in query.inputs for column in i.columns}
    for output in query.outputs:
        for column in output.expr.find_all(exp.Column):
            held = types.get((column.table, column.name), UNKNOWN)
            alone = output.name not in key or column is output.expr
            if alone and held not in PLAIN and not held.is_decimal:
                what = "an expression" if held == UNKNOWN else str(held)
                return f'the column "{output.name}" is made of {what}, of which groups keep no value'
    return None


def counted(query: Query, key: Collection[str]) -> Query:
    """The query, of each key one row, and how many there are: `KEY_ROWS`, the last of its outputs.

    Args:
        query: one that emits changes.
        key: names of outputs.
    """
    if query.aggregation is not None:
        query = _beneath(query)
    types = {(i.alias, column.name): column.type for i in query.inputs for column in i.columns}

    def type_of(expr: Expr) -> SqlType:
        return types.get((expr.table, expr.name), UNKNOWN) if isinstance(expr, exp.Column) else UNKNOWN

    keys = [
        OutputColumn(f"key{n}", output.expr, output.origin)
        for n, output in enumerate((output for output in query.outputs if output.name in key), 1)
    ]
    names: dict[Expr, str] = {named.expr: named.name for named in keys}
    values: list[tuple[str, exp.Column]] = []
    for output in query.outputs:
        for column in output.expr.find_all(exp.Column):
            if output.name not in key and column not in names:
                names[column] = f"value{len(values) + 1}"
                values.append((names[column], column))
    aggregates = [
        OutputColumn(name, exp.AnyValue(this=column.copy()), column.sql("spark")) for name, column in values
    ]
    aggregates.append(OutputColumn(KEY_ROWS, exp.Count(this=exp.Star()), "rows of a key"))
    columns = [Column(named.name, type_of(named.expr)) for named in keys]
    columns += [Column(name, type_of(column)) for name, column in values]

    def above(expr: Expr) -> Expr:
        return expr.transform(lambda node: _named(names[node]) if node in names else node)

    return replace(
        query,
        outputs=(
            *(replace(output, expr=above(output.expr)) for output in query.outputs),
            OutputColumn(KEY_ROWS, _named(KEY_ROWS), "rows of a key"),
        ),
        aggregation=Aggregation(None, tuple(keys), tuple(aggregates), (*columns, Column(KEY_ROWS, BIGINT))),
    )


def _beneath(query: Query) -> Query:
    """The query as all that another one reads."""
    assert query.aggregation is not None
    types = {column.name: column.type for column in query.aggregation.columns}
    columns = tuple(Column(o.name, types.get(o.expr.name, UNKNOWN)) for o in query.outputs)
    outputs = tuple(
        OutputColumn(o.name, exp.column(exp.to_identifier(o.name, quoted=True), _ALIAS), o.origin)
        for o in query.outputs
    )
    branch = StageBranch(query, tuple(_named(column.name) for column in columns))
    return Query(Input(_ALIAS, columns, (), (branch,)), None, outputs, query.sql, mode=query.mode)


def _named(name: str) -> Expr:
    return exp.column(exp.to_identifier(name, quoted=True))
