"""Expressions of a batch answer in Spark's SQL: as they were written, for Spark says what they mean."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from watersmeet.diff.dialect import Names
from watersmeet.event_time import DAY_US
from watersmeet.types.sql_type import SqlType

_WIDE = "DECIMAL(28, 0)"


class SparkSql:
    """The dialect. ``tables``: per source, the name of its rows."""

    def __init__(self, tables: Mapping[str, str]) -> None:
        self._tables = tables

    def table(self, source: str) -> str:
        return self._tables[source]

    def quoted(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def row_id(self) -> str:
        return "monotonically_increasing_id()"

    def micros(self, value: str, kind: SqlType) -> str:
        if kind.name == "DATE":
            return f"(CAST(unix_date({value}) AS {_WIDE}) * {DAY_US})"
        return f"CAST({f'unix_micros({value})' if kind.is_time else value} AS {_WIDE})"

    def time(self, micros: str, kind: SqlType) -> str:
        if kind.name == "DATE":
            return f"date_from_unix_date(CAST(floor(({micros}) / {DAY_US}) AS INT))"
        if kind.is_time:
            return f"timestamp_micros(CAST({micros} AS BIGINT))"
        return f"CAST({micros} AS {kind})"

    def expression(self, expr: exp.Expr, names: Names) -> str:
        def named(node: exp.Expression) -> exp.Expression:
            if not isinstance(node, exp.Column) or (node.table, node.name) not in names:
                return node
            name = names[node.table, node.name].name
            return exp.Column(this=exp.Identifier(this=name.strip("`").replace("``", "`"), quoted=True))

        return str(expr.transform(named).sql(dialect="spark"))
