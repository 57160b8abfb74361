"""Columns of Spark's as texts of SQL, as far as they say by themselves what they are.

Spark's own text of a column (``Column.sql``) is made for people and need not parse. What a column is made of
is a tree, of which the nodes here have one text each: names, values, functions by their names, operators,
casts, CASE, and texts of SQL (``expr``). All else is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

_SAME = ("=", "<=>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&", "|", "^")
_INFIX = {name: name.upper() for name in (*_SAME, "and", "or", "like", "ilike", "rlike")}
_BEFORE = {"!": "NOT ", "not": "NOT ", "negative": "-", "~": "~"}
_BEHIND = {"isnull": " IS NULL", "isnotnull": " IS NOT NULL"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE = re.compile(r"-?[0-9]+L?")
_REAL = re.compile(r"-?[0-9]+\.[0-9]+(E-?[0-9]+)?")
_INTERVAL = re.compile(r"\s*INTERVAL\s+('[^']*'|[0-9]+)\s+[A-Za-z]+\s*", re.IGNORECASE)
_HINT = "write it as SQL text: 'o.order_id = d.order_id'"


class NoText(Exception):
    """What a column is cannot be said as SQL without guessing. ``hint``: what to do."""

    def __init__(self, problem: str, hint: str = _HINT) -> None:
        super().__init__(problem)
        self.hint = hint


def is_column(value: Any) -> bool:
    """Whether it is a Column of Spark's, of whatever kind."""
    kind = type(value)
    return kind.__name__ == "Column" and kind.__module__.startswith("pyspark.")


def text_of(column: Any, *, named: bool = False) -> str:
    """A column as SQL. ``named``: it may have a name (``.alias``). Raises: `NoText`."""
    if not hasattr(column, "_jc"):
        raise NoText("is a Column of Spark Connect")
    node = column._jc.node()
    if named and _kind(node) == "Alias":
        names = list(_each(node.name()))
        if len(names) == 1 and not node.metadata().isDefined():
            return f"{_text(node.child())} AS {_quoted(names[0])}"
    return _text(node)


def _text(node: Any) -> str:
    kind = _kind(node)
    if kind not in _TEXTS:
        if kind == "ExpressionColumnNode":
            raise NoText(
                "contains a column of a DataFrame (df['x']) or a Python function (UDF)",
                "write SQL text, or col('o.order_id'); apply a UDF to the DataFrame before stream(df, …)",
            )
        raise NoText(f"contains a part that has no SQL text ({kind})")
    return _TEXTS[kind](node)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _each(of: Any) -> Iterator[Any]:
    """What a sequence of Scala's has."""
    return (of.apply(number) for number in range(of.size()))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _attribute(node: Any) -> str:
    if node.planId().isDefined() or node.isMetadataColumn():
        raise NoText(
            "contains a column of a DataFrame (df['x'])", "use the names of the relation: col('o.order_id')"
        )
    return ".".join(_quoted(part) for part in _each(node.nameParts()))


def _literal(node: Any) -> str:
    """A value of its own type: what is ``3.5`` in Python is no DECIMAL, as it is in SQL."""
    value, typed = node.value(), node.dataType()
    text = _value(value, str(node.sql()))
    return f"CAST({text} AS {typed.get().sql()})" if typed.isDefined() else text


def _value(value: Any, shown: str) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, int) and _WHOLE.fullmatch(shown):
        return shown
    if isinstance(value, float) and _REAL.fullmatch(shown):
        return f"{shown}D"
    if isinstance(value, Decimal) and value.is_finite():
        return f"{value:f}"
    kind = type(value).__name__ if not hasattr(value, "getClass") else str(value.getClass().getName())
    if kind in ("java.sql.Date", "java.time.LocalDate"):
        return f"DATE '{value.toString()}'"
    if kind == "java.sql.Timestamp":
        return f"TIMESTAMP '{value.toInstant().toString()}'"
    raise NoText(f"contains a value of {kind}, which cannot be written as SQL")


def _function(node: Any) -> str:
    name, arguments = str(node.functionName()), list(_each(node.arguments()))
    if node.isDistinct() or node.isInternal():
        raise NoText(f"calls {name} with arguments that cannot be written as SQL")
    lower = name.lower()
    if lower in _INFIX and len(arguments) == 2:
        left, right = map(_operand, arguments)
        return f"{left} {_INFIX[lower]} {right}"
    if lower in _BEFORE and len(arguments) == 1:
        return f"{_BEFORE[lower]}{_operand(arguments[0])}"
    if lower in _BEHIND and len(arguments) == 1:
        return f"{_operand(arguments[0])}{_BEHIND[lower]}"
    if lower == "in" and len(arguments) > 1:
        wanted, *values = arguments
        return f"{_operand(wanted)} IN ({', '.join(map(_text, values))})"
    if not _NAME.fullmatch(name):
        raise NoText(f"calls {name}, which cannot be written as SQL")
    return f"{name}({', '.join(map(_text, arguments))})"


def _operand(node: Any) -> str:
    """Within an operator: what may be one itself stands in parentheses."""
    text = _text(node)
    kind = _kind(node)
    plain = kind in ("UnresolvedAttribute", "Cast") or (kind == "Literal" and not text.startswith("-"))
    plain |= kind == "UnresolvedFunction" and _is_call(str(node.functionName()))
    return text if plain or (kind == "SqlExpression" and _INTERVAL.fullmatch(text)) else f"({text})"


def _is_call(name: str) -> bool:
    """Whether such a function is written with its arguments in parentheses."""
    return name.lower() not in (*_INFIX, *_BEFORE, *_BEHIND, "in")


def _cast(node: Any) -> str:
    mode = node.evalMode()
    if mode.isDefined() and str(mode.get().sql()) != "TRY_":
        raise NoText("contains a cast that cannot be written as SQL")
    return f"{'TRY_' if mode.isDefined() else ''}CAST({_text(node.child())} AS {node.dataType().sql()})"


def _case(node: Any) -> str:
    branches = "".join(f" WHEN {_text(pair._1())} THEN {_text(pair._2())}" for pair in _each(node.branches()))
    otherwise = node.otherwise()
    return f"CASE{branches}{f' ELSE {_text(otherwise.get())}' if otherwise.isDefined() else ''} END"


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "UnresolvedAttribute": _attribute,
    "Literal": _literal,
    "UnresolvedFunction": _function,
    "SqlExpression": lambda node: str(node.expression()),
    "Cast": _cast,
    "CaseWhenOtherwise": _case,
}
"""The text of a node, by the name of its class."""
