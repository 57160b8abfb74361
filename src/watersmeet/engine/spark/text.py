"""Expressions and names as Spark SQL text."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.spec.model import Expr


def quoted(name: str) -> str:
    """``name`` in backticks.

    >>> quoted("a.b")
    '`a.b`'
    """
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """``text`` as a string literal of Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def sql_of(expr: Expr) -> str:
    """The expression for Spark's parser, columns in backticks."""
    return expr.transform(_quote).sql(dialect="spark")


def _quote(node: Expr) -> Expr:
    if isinstance(node, exp.Column):
        for part in node.parts:
            if isinstance(part, exp.Identifier):
                part.set("quoted", True)
    return node
