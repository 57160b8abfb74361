"""Texts of single expressions, as calls are given them: read alone, and found again when a whole tree has a
problem.

Every fragment has a stretch of offsets of its own. The nodes of its tree say where they stand by these, so
that trees of several fragments can be put together, and taken apart by others, without being told.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from watersmeet.errors import Location
from watersmeet.front.text.place import Text
from watersmeet.front.text.tokens import parse_tokens, statements_of
from watersmeet.relations.spark_columns import NoText, is_column, text_of

if TYPE_CHECKING:
    from pyspark.sql import Column

    Written = str | exp.Expression | Column
else:
    Written = Any
"""An expression as calls are given it: a text of SQL, a Column of Spark's, or a tree as the parser would make
it, which stands in no text."""

_lock = threading.Lock()
_next = 0


def _stretch(length: int) -> int:
    """The first of so many offsets that no other fragment of this process has."""
    global _next
    with _lock:
        first = _next
        _next += length + 1
    return first


@dataclass(frozen=True)
class Fragment:
    """One text. ``label``: the argument that it is, for messages (``on``, ``select, item 2``); empty: whoever
    tells them says it."""

    label: str
    text: str
    first: int


def fragment_of(text: str, label: str) -> Fragment:
    """A text that has its stretch."""
    return Fragment(label, text, _stretch(len(text)))


_EXPRESSIONS = (exp.Condition, exp.Interval, exp.AtTimeZone)
_NAMED = (exp.Alias, exp.Aliases, exp.Star)


def read_fragment(given: Written, label: str, *, named: bool = False) -> tuple[exp.Expression, Fragment]:
    """The tree of one expression, and where it is from.

    Args:
        given: a text, a Column of Spark's whose text can be had, or a tree.
        named: it may be a star, or have a name.

    Raises: SqlError, for what is no single expression.
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
        raise whole.error(_said(label, f"expected one expression, found {said}"), "syntax", 0)
    tree = parse_tokens(whole, statements[0])
    kinds = (*_EXPRESSIONS, *_NAMED) if named else _EXPRESSIONS
    if not isinstance(tree, kinds) or (tree.is_star and not named and isinstance(tree, exp.Column)):
        what = "a SELECT" if isinstance(tree, exp.Select | exp.SetOperation) else tree.key.upper()
        what = {"ALIAS": "one with a name (AS …)", "STAR": '"*"'}.get(what, what)
        raise whole.error(_said(label, f"expected an expression, not {what}"), "syntax", 0)
    return tree, _placed(tree, fragment_of(text, label))


def _said(label: str, message: str) -> str:
    return f"{label}: {message}" if label else message


def read_select(text: str, label: str) -> tuple[exp.Select, Fragment]:
    """The tree of one SELECT, and where it is from.

    Raises: SqlError, for anything else.
    """
    whole = Text(text, label)
    statements = statements_of(whole)
    tree = parse_tokens(whole, statements[0]) if len(statements) == 1 else None
    if not isinstance(tree, exp.Select):
        what = "nothing" if not statements else "something else" if tree is not None else "several statements"
        raise whole.error(f"{label}: expected one SELECT, found {what}", "syntax", 0)
    return tree, _placed(tree, fragment_of(text, label))


def _placed(tree: exp.Expression, fragment: Fragment) -> Fragment:
    for meta in {id(node.meta): node.meta for node in tree.walk()}.values():
        if "start" in meta:
            meta["start"] += fragment.first
    return fragment


def whole_error(label: str, problem: str, hint: str | None = None) -> Exception:
    """A problem of an argument as a whole."""
    return Text("").error(f"{label} {problem}", "bad-argument", None, hint)


def several(given: Any, label: str, hint: str = "pass at least one, or remove the argument") -> Sequence[Any]:
    """Of a list, its items, one at least."""
    lone = isinstance(given, str) or is_column(given)
    items = list(given) if isinstance(given, Iterable) and not lone else []
    if not items:
        raise whole_error(label, f"is {given!r}", hint)
    return items


def names_of(given: Any, label: str) -> tuple[str, ...]:
    """Names of columns, of which a lone text is one."""
    names = [given] if isinstance(given, str) else several(given, label)
    if any(not isinstance(name, str) or not name.strip() for name in names):
        raise whole_error(label, f"is {given!r}", "pass names of columns")
    return tuple(names)


@dataclass
class Fragments(Text):
    """What trees of several fragments stand in; `Text` to whoever has a problem with them."""

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
