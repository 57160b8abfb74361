"""The SQL of a batch answer: what it asks of a dialect, and Spark's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from watersmeet.event_time import DAY_US
from watersmeet.types.sql_type import SqlType

# What the statement of a batch answer (`diff.statement`) asks of the SQL that it is written in.


@dataclass(frozen=True)
class NamedColumn:
    """A column of a statement, ``name``, as it stands there."""

    name: str
    type: SqlType


Names = Mapping[tuple[str, str], NamedColumn]
"""By alias ("" for none) and column as expressions mention them."""


class Dialect(Protocol):
    """Every method gives SQL."""

    def expression(self, expr: exp.Expr, names: Names) -> str:
        """Translate an expression.

        Raises:
            UnsupportedInDialect: The expression may have another meaning than on Spark.
        """
        ...

    def table(self, source: str) -> str:
        """Return the relation with the rows of a source."""
        ...

    def quoted(self, name: str) -> str:
        """Quote a name that the user chose."""
        ...

    def row_id(self) -> str:
        """Return an expression for a number that is unique to each row."""
        ...

    def micros(self, value: str, kind: SqlType) -> str:
        """Convert an event time to an integer (`event_time`), with room for sums beyond 64 bits."""
        ...

    def time(self, micros: str, kind: SqlType) -> str:
        """Convert such an integer back to the event time."""
        ...


class UnsupportedInDialect(Exception):
    """An expression that has no certain meaning in a dialect: the text says which."""


# Expressions of a batch answer in Spark's SQL: as they were written, for Spark says what they mean.

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
        def rename_column(node: exp.Expression) -> exp.Expression:
            if not isinstance(node, exp.Column) or (node.table, node.name) not in names:
                return node
            name = names[node.table, node.name].name
            return exp.Column(this=exp.Identifier(this=name.strip("`").replace("``", "`"), quoted=True))

        return str(expr.transform(rename_column).sql(dialect="spark"))
