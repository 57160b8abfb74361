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


def seconds_of(duration: str) -> float:
    """A trigger's interval in seconds: ``500 milliseconds``, ``2 seconds``, ``1 minute``, ``0``.

    Raises: ValueError for anything else.
    """
    words = duration.strip().lower().split()
    units = {
        "millisecond": 0.001,
        "ms": 0.001,
        "second": 1.0,
        "s": 1.0,
        "minute": 60.0,
        "min": 60.0,
        "hour": 3600.0,
    }
    if len(words) == 1 and words[0] == "0":
        return 0.0
    if len(words) != 2 or (words[1].rstrip("s") or words[1]) not in units:
        raise ValueError(duration)
    return float(words[0]) * units[words[1].rstrip("s") or words[1]]
