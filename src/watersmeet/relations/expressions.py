"""Expressions in calls: SQL fragments, and Spark columns as SQL."""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from watersmeet.errors import Location
from watersmeet.parser.text.source_position import Text
from watersmeet.parser.text.tokens import parse_tokens, statements_of

if TYPE_CHECKING:
    from pyspark.sql import Column


# Columns of Spark's as texts of SQL, as far as they say by themselves what they are.
#
# Spark's own text of a column (``Column.sql``) is made for people and need not parse. What a column is
# made of is a tree, of which the nodes here have one text each: names, values, functions by their names,
# operators, casts, CASE, and texts of SQL (``expr``). All else is refused by name.

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
    """Error: a Column has no unambiguous SQL text. ``hint``: what to do."""

    def __init__(self, problem: str, hint: str = _HINT) -> None:
        super().__init__(problem)
        self.hint = hint


def is_column(value: Any) -> bool:
    """Return True if the value is a Spark Column of any kind."""
    kind = type(value)
    return kind.__name__ == "Column" and kind.__module__.startswith("pyspark.")


def text_of(column: Any, *, named: bool = False) -> str:
    """Convert a Spark Column to SQL text.

    Args:
        named: the column may have a name (``.alias``).

    Raises:
        NoText: the column has no unambiguous SQL text.
    """
    if not hasattr(column, "_jc"):
        raise NoText("is a Column of Spark Connect")
    node = column._jc.node()
    if named and _kind(node) == "Alias":
        names = list(_each(node.name()))
        if len(names) == 1 and not node.metadata().isDefined():
            return f"{_text(node.child())} AS {_quote_name(names[0])}"
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
    """Yield the elements of a Scala sequence."""
    return (of.apply(number) for number in range(of.size()))


def _quote_name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _attribute(node: Any) -> str:
    if node.planId().isDefined() or node.isMetadataColumn():
        raise NoText(
            "contains a column of a DataFrame (df['x'])", "use the names of the relation: col('o.order_id')"
        )
    return ".".join(_quote_name(part) for part in _each(node.nameParts()))


def _literal(node: Any) -> str:
    """Write a value with its own type: Python's ``3.5`` is not a DECIMAL, as it is in SQL."""
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
    """Write an operand; put a nested operator in parentheses."""
    text = _text(node)
    kind = _kind(node)
    plain = kind in ("UnresolvedAttribute", "Cast") or (kind == "Literal" and not text.startswith("-"))
    plain |= kind == "UnresolvedFunction" and _is_call(str(node.functionName()))
    return text if plain or (kind == "SqlExpression" and _INTERVAL.fullmatch(text)) else f"({text})"


def _is_call(name: str) -> bool:
    """Return True if the function is written with its arguments in parentheses."""
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


# Texts of single expressions, as calls are given them: read alone, and found again when a whole tree has
# a problem.
#
# Every fragment has a stretch of offsets of its own. The nodes of its tree say where they stand by these,
# so that trees of several fragments can be put together, and taken apart by others, without being told.

if TYPE_CHECKING:
    Written = str | exp.Expression | Column
else:
    Written = Any
"""An expression as calls are given it: a text of SQL, a Column of Spark's, or a tree as the parser would make
it, which stands in no text."""

_lock = threading.Lock()
_next = 0


def _stretch(length: int) -> int:
    """Reserve `length` + 1 offsets that no other fragment of this process has; return the first."""
    global _next
    with _lock:
        first = _next
        _next += length + 1
    return first


@dataclass(frozen=True)
class Fragment:
    """SQL text of one argument.

    Attributes:
        label: The argument, for messages (``on``, ``select, item 2``); empty if the caller that reports
            the message names it.
        first: The first of the fragment's offsets.
    """

    label: str
    text: str
    first: int


def fragment_of(text: str, label: str) -> Fragment:
    """Create a fragment with its own range of offsets."""
    return Fragment(label, text, _stretch(len(text)))


_EXPRESSIONS = (exp.Condition, exp.Interval, exp.AtTimeZone)
_NAMED = (exp.Alias, exp.Aliases, exp.Star)


def read_fragment(given: Written, label: str, *, named: bool = False) -> tuple[exp.Expression, Fragment]:
    """Parse one expression, and return its tree and its fragment.

    Args:
        given: a text, a Spark Column with SQL text, or a tree.
        named: it may be a star, or have a name.

    Raises:
        SqlError: it is not a single expression.
    """
    if isinstance(given, exp.Expression):
        return given.copy(), fragment_of("", label)
    if isinstance(given, str):
        text = given
    elif is_column(given):
        try:
            text = text_of(given, named=named)
        except NoText as error:
            raise whole_error(label, str(error), error.hint) from None
    else:
        kind = "a function" if callable(given) else f"{given!r}"
        raise whole_error(
            f'"{label}"', f"got {kind}, not SQL text", "write an expression as text: 'o.id > 5'"
        )
    whole = Text(text, label)
    statements = statements_of(whole)
    if len(statements) != 1:
        said = "nothing" if not statements else f"{len(statements)} of them"
        raise whole.error(_prefix_label(label, f"expected one expression, found {said}"), "syntax", 0)
    tree = parse_tokens(whole, statements[0])
    kinds = (*_EXPRESSIONS, *_NAMED) if named else _EXPRESSIONS
    if not isinstance(tree, kinds) or (tree.is_star and not named and isinstance(tree, exp.Column)):
        what = "a SELECT" if isinstance(tree, exp.Select | exp.SetOperation) else tree.key.upper()
        what = {"ALIAS": "one with a name (AS …)", "STAR": '"*"'}.get(what, what)
        raise whole.error(_prefix_label(label, f"expected an expression, not {what}"), "syntax", 0)
    return tree, _shift_positions(tree, fragment_of(text, label))


def _prefix_label(label: str, message: str) -> str:
    return f"{label}: {message}" if label else message


def read_select(text: str, label: str) -> tuple[exp.Select, Fragment]:
    """Parse one SELECT, and return its tree and its fragment.

    Raises:
        SqlError: the text is anything else.
    """
    whole = Text(text, label)
    statements = statements_of(whole)
    tree = parse_tokens(whole, statements[0]) if len(statements) == 1 else None
    if not isinstance(tree, exp.Select):
        what = "nothing" if not statements else "something else" if tree is not None else "several statements"
        raise whole.error(f"{label}: expected one SELECT, found {what}", "syntax", 0)
    return tree, _shift_positions(tree, fragment_of(text, label))


def _shift_positions(tree: exp.Expression, fragment: Fragment) -> Fragment:
    for meta in {id(node.meta): node.meta for node in tree.walk()}.values():
        if "start" in meta:
            meta["start"] += fragment.first
    return fragment


def whole_error(label: str, problem: str, hint: str | None = None) -> Exception:
    """Create the error for a problem of a whole argument."""
    return Text("").error(f"{label} {problem}", "bad-argument", None, hint)


def several(given: Any, label: str, hint: str = "pass at least one, or remove the argument") -> Sequence[Any]:
    """Return the items of a list, and require at least one.

    Raises:
        SqlError: it is not a list, or is empty.
    """
    lone = isinstance(given, str) or is_column(given)
    items = list(given) if isinstance(given, Iterable) and not lone else []
    if not items:
        raise whole_error(label, f"is {given!r}", hint)
    return items


def check_duplicates(names: Iterable[Any], what: str, is_same: Callable[[str, str], bool]) -> None:
    """Check that no two names of a call's options are names of one option.

    Raises:
        SqlError: two are.
    """
    said: list[str] = []
    for name in map(str, names):
        before = next((other for other in said if is_same(other, name)), None)
        if before is not None:
            also = "" if before == name else f", also as {before!r}"
            raise whole_error(f"{what} {name!r}", f"is set twice{also}", "leave out one of them")
        said.append(name)


def names_of(given: Any, label: str) -> tuple[str, ...]:
    """Return column names; accept a single text as one name."""
    names = [given] if isinstance(given, str) else several(given, label)
    if any(not isinstance(name, str) or not name.strip() for name in names):
        raise whole_error(label, f"is {given!r}", "pass names of columns")
    return tuple(names)


@dataclass
class Fragments(Text):
    """Text of trees that consist of several fragments; error messages use it as a `Text`."""

    fragments: list[Fragment] = field(default_factory=list)

    @staticmethod
    def of(fragments: Iterable[Fragment], *, own_functions: bool) -> Fragments:
        in_order = sorted(fragments, key=lambda fragment: fragment.first)
        return Fragments("", own_functions=own_functions, fragments=in_order)

    def around(self, offset: int) -> tuple[Text, int]:
        place = bisect_right([fragment.first for fragment in self.fragments], offset) - 1
        if place < 0:  # of what stands in no text
            return Text(""), offset
        fragment = self.fragments[place]
        return Text(fragment.text, fragment.label, self.problems, self.own_functions), fragment.first

    def at(self, offset: int) -> Location:
        text, first = self.around(offset)
        return text.at(offset - first)
