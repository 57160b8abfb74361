"""The inputs of a case's query, read for the oracle: streams, tables, and derived tables with UNION ALL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp

from watersmeet.testing.oracle_sql import Function, Scope, compile_expr
from watersmeet.testing.oracle_values import Refused, Unsupported, kind_of

Key = tuple[str, str]
"""A watermark key or a column: (alias, column)."""


@dataclass
class Branch:
    """One stream's way into an input: ``columns`` maps the input's column to an expression of the stream."""

    stream: str
    columns: dict[str, Function]
    where: Function | None
    times: dict[str, str]
    """Column of the input -> event-time column of the stream."""


@dataclass
class Source:
    """One input alias."""

    alias: str
    kinds: dict[str, str]
    branches: list[Branch]
    table: bool
    as_of: bool = False
    """A table that rows meet as it is in their tick."""

    @property
    def times(self) -> list[str]:
        """Event-time columns: those that every branch orders."""
        return [c for c in self.kinds if all(c in b.times for b in self.branches)]


def read_source(node: exp.Expression, case: dict[str, Any]) -> Source:
    """An item of FROM: a stream, a table, or a derived table of SELECTs and UNION ALLs over streams."""
    alias = node.alias_or_name
    if isinstance(node, exp.Table):
        columns = _declared(node.name, case)["columns"]
        selects: list[Any] = [
            sqlglot.parse_one(f"SELECT {', '.join(columns)} FROM {node.name}", dialect="spark")
        ]
    elif isinstance(node, exp.Subquery):
        selects = _branches(node.this)
    else:
        raise Unsupported(node.sql())
    kinds: dict[str, str] = {}
    branches = []
    tables = []
    for select in selects:
        stream = select.args["from_"].this
        declared = _declared(stream.name, case)
        tables.append(stream.name in case.get("tables", {}))
        inner = {c: kind_of(t) for c, t in declared["columns"].items()}
        scope = Scope({stream.alias_or_name: inner})
        items = []
        for item in select.expressions:
            items += [exp.column(c) for c in inner] if isinstance(item, exp.Star) else [item]
        names = [i.alias_or_name for i in items]
        typed = [compile_expr(i, scope) for i in items]
        if not kinds:
            kinds = {n: k for n, (k, _) in zip(names, typed, strict=True)}
        plain = [i.this if isinstance(i, exp.Alias) else i for i in items]
        times = {
            out: i.name
            for out, i in zip(kinds, plain, strict=True)
            if isinstance(i, exp.Column) and i.name in declared.get("time", {})
        }
        where = select.args.get("where")
        branches.append(
            Branch(
                stream.name,
                {out: f for out, (_, f) in zip(kinds, typed, strict=True)},
                compile_expr(where.this, scope)[1] if where else None,
                times,
            )
        )
    as_of = node.args.get("version") is not None
    if as_of and not (all(tables) and len(branches) == 1):
        raise Unsupported(f"FOR SYSTEM_TIME AS OF of what is no table: {node.sql()}")
    return Source(alias, kinds, branches, all(tables), as_of)


def _branches(node: exp.Expression) -> list[exp.Select]:
    if isinstance(node, exp.Subquery | exp.Paren):
        return _branches(node.this)
    if isinstance(node, exp.Union):
        if node.args.get("distinct"):
            raise Unsupported("UNION DISTINCT")
        return _branches(node.this) + _branches(node.expression)
    if isinstance(node, exp.Select) and not node.args.get("joins"):
        return [node]
    raise Unsupported(node.sql())


def _declared(name: str, case: dict[str, Any]) -> dict[str, Any]:
    for group in ("streams", "tables"):
        for stream, declared in case.get(group, {}).items():
            if stream.lower() == name.lower():
                found: dict[str, Any] = declared
                return found
    raise Refused(f'unknown stream "{name}"')


__all__ = ["Branch", "Key", "Source", "read_source"]
