"""Rule: LIKE and regular expressions. A pattern of Java's is read here and written for RE2, or refused.

RE2 takes time in proportion to a text's length, whatever the pattern. Python tries one way after the other,
hours of `(a+)+$` over a few dozen letters; Java remembers some of these, and on others runs out of stack.

What is read means the same to both: characters, classes of them, groups, alternatives and quantifiers.
Refused is what does not, or might not: look-around, back references, possessive quantifiers, boundaries,
flags other than a first ``(?i)``, classes within classes, a ``$`` before something else, and a quantified
group that may match nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from watersmeet.plan.exact.rules import Rule
from watersmeet.plan.exact.texts import as_count, as_text, optional
from watersmeet.plan.exact.values import Exact, NotExact, call, constant, constant_value
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import BOOLEAN, INT, STRING

if TYPE_CHECKING:
    from watersmeet.plan.exact.compiler import Compiler

START, END = "(?:\\A)", "(?:$)"
"""``^`` and ``$`` as `kernel.expressions.functions.patterns` knows them."""
MAX_SIZE = 1000
"""Characters, at most, of what a counted quantifier such as ``{2,5}`` repeats: RE2 takes no more."""

_ANY = "[^\\n\\r\\x{85}\\x{2028}\\x{2029}]"
_CLASSES = {"d": "\\d", "w": "\\w", "s": "\\t\\n\\x{b}\\f\\r "}
_SPECIAL = set("\\^$.|?*+()[]{}")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class Pattern:
    """``text``: for RE2, with groups named g1, g2, …. ``groups``: how many. ``closed``: those that have a
    ``$`` in them, which may be before a last line's end. ``empty``: it may match nothing. ``steady``: what
    groups hold does not rest on how often one is repeated."""

    text: str
    groups: int
    closed: frozenset[int]
    empty: bool
    steady: bool


def java_pattern(text: str) -> Pattern:
    """A regular expression of Java's for RE2. Raises: NotExact."""
    reader = _Reader(text)
    if text.startswith("(?i)"):
        reader.folded, reader.at = True, 4
        if not text.isascii():
            raise NotExact("(?i) of other letters than ASCII's")
    pattern, empty, _ = reader.alternatives()
    if reader.at != len(text):
        raise NotExact(f"the pattern {text}: at {text[reader.at :]}")
    return Pattern(pattern, reader.groups, frozenset(reader.closed), empty, reader.steady)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.groups = 0
        self.closed: set[int] = set()
        self.steady = True
        self.folded = False
        self._ends = 0
        self._depth = 0

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _refused(self, what: str) -> NotExact:
        return NotExact(f"the pattern {self.text}: {what} may mean something else to Java")

    def alternatives(self) -> tuple[str, bool, int]:
        """(for RE2, may match nothing, how many characters it has when what is counted is written out)."""
        parts = [self._sequence()]
        while self._next() == "|":
            self.at += 1
            parts.append(self._sequence())
        text = "|".join(part for part, *_ in parts)
        return text, any(empty for _, empty, _ in parts), sum(size for *_, size in parts)

    def _sequence(self) -> tuple[str, bool, int]:
        parts, empty, total = [], True, 0
        ends = self._ends
        while self._next() not in ("", "|", ")"):
            if self._ends != ends:
                raise self._refused("something behind a $")
            groups = self.groups
            part, may_be_empty, atom, size = self._atom()
            quantifier, least, most = self._quantifier()
            if quantifier:
                if not atom or (may_be_empty and quantifier not in ("?", "??")):
                    raise self._refused("a quantifier of what may match nothing")
                if self._ends != ends:
                    raise self._refused("a quantifier of a $")
                if quantifier not in ("?", "??"):
                    self.steady = self.steady and groups == self.groups
                size *= most
                if most > 1 and size > MAX_SIZE:
                    raise NotExact(f"the pattern {self.text}: a quantifier that repeats so much")
                part += quantifier
                may_be_empty = may_be_empty or least == 0
            parts.append(part)
            empty, total = empty and may_be_empty, total + size
        return "".join(parts), empty, total

    def _quantifier(self) -> tuple[str, int, int]:
        match = re.compile(r"[*+?]|\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}").match(self.text, self.at)
        if match is None:
            if self._next() == "{":
                raise self._refused("this {")
            return "", 1, 1
        self.at = match.end()
        text = match[0]
        if self._next() == "?":
            self.at += 1
            text += "?"
        if self._next() in ("+", "*", "?", "{"):
            raise self._refused("one quantifier after another")
        least = int(match[1]) if match[1] else int(match[0] == "+")
        return text, least, max(least, int(match[2] or 1), 1)

    def _atom(self) -> tuple[str, bool, bool, int]:
        """(for RE2, may match nothing, may be quantified, how many characters it has)."""
        character = self._next()
        self.at += 1
        if character == ".":
            return _ANY, False, True, 1
        if character == "^":
            return START, True, False, 0
        if character == "$":
            self._ends += 1
            return END, True, False, 0
        if character == "[":
            return self._class(), False, True, 1
        if character == "(":
            return self._group()
        if character == "\\":
            return self._escaped(), False, True, 1
        if character in _SPECIAL:
            raise self._refused(character)
        return self._character(character), False, True, 1

    def _group(self) -> tuple[str, bool, bool, int]:
        opening, number, ends = "(?:", None, self._ends
        if self.text.startswith("?:", self.at):
            self.at += 2
        elif self._next() == "?":
            raise self._refused("(?")
        else:
            self.groups += 1
            number = self.groups
            opening = f"(?P<g{number}>"
        self._depth += 1
        if self._depth > 20:
            raise self._refused("so many groups in groups")
        pattern, empty, size = self.alternatives()
        self._depth -= 1
        if self._next() != ")":
            raise self._refused("a ( without its )")
        self.at += 1
        if number is not None and self._ends != ends:
            self.closed.add(number)
        return f"{opening}{pattern})", empty, True, size

    def _character(self, character: str) -> str:
        parts = self._range(character, character)
        return f"[{parts}]" if len(parts) > len(_literal(character)) else parts

    def _range(self, first: str, last: str) -> str:
        """From ``first`` to ``last`` within a class; by (?i) letters of both cases."""
        text = _literal(first) if first == last else f"{_literal(first)}-{_literal(last)}"
        for low, high, shift in (("a", "z", -32), ("A", "Z", 32)) if self.folded else ():
            begin, end = max(first, low), min(last, high)
            if begin <= end:
                text += f"{chr(ord(begin) + shift)}-{chr(ord(end) + shift)}"
        return text

    def _escape(self) -> str:
        """The letter of a class (d, w, s, or their opposites), or the character that is meant, in quotes."""
        character = self._next()
        self.at += 1
        if character and character in "dDwWsS":
            return character
        if character in _CONTROL:
            return f"'{_CONTROL[character]}"
        if not character or character.isalnum() or not character.isascii():
            raise self._refused(f"\\{character}")
        return f"'{character}"

    def _escaped(self) -> str:
        meant = self._escape()
        if meant[0] == "'":
            return self._character(meant[1])
        return f"[{'^' if meant.isupper() else ''}{_CLASSES[meant.lower()]}]"

    def _class(self) -> str:
        pattern = "["
        if self._next() == "^":
            self.at += 1
            pattern += "^"
        first = True
        while True:
            character = self._next()
            self.at += 1
            if character == "]" and not first:
                return pattern + "]"
            if character in ("", "[", "]", "^") or self.text.startswith("&&", self.at - 1):
                raise self._refused("this class")
            is_single = character != "-"
            if character == "\\":
                meant = self._escape()
                is_single = meant[0] == "'"
                if meant.isupper() and meant[0] != "'":
                    raise self._refused(f"\\{meant} in a class")
                character = meant[1:]
                part = self._range(character, character) if character else _CLASSES[meant]
            else:
                part = self._range(character, character)
                if character == "-" and not (first or self._next() == "]"):
                    raise self._refused("this - in a class")
            if self._next() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                last = self._next()
                if not is_single or last in ("[", "\\", "-", "^", "&") or last < character:
                    raise self._refused("this range in a class")
                self.at += 1
                part = self._range(character, last)
            pattern += part
            first = False


def _literal(character: str) -> str:
    return character if character.isalnum() else f"\\x{{{ord(character):x}}}"


def _pattern(value: Exact) -> Pattern:
    if value.type != STRING:
        raise NotExact("a pattern that is not text")
    return java_pattern(constant_value(value))


def like(compiler: Compiler, node: Expr, escape: str = "\\") -> Exact:
    """LIKE, ILIKE, and LIKE ANY, LIKE ALL of constant patterns."""
    folded = isinstance(node, exp.ILike)
    text, pattern = as_text(compiler, compiler.of(node.this)), node.expression
    if isinstance(pattern, exp.Any | exp.All):
        inner = pattern.this.unnest() if isinstance(pattern.this, exp.Paren) else pattern.this
        nodes: list[Any] = inner.expressions if isinstance(inner, exp.Tuple) else [inner]
        parts = [_like(text, compiler.of(alternative), folded, escape) for alternative in nodes]
        if node.args.get("negate"):
            parts = [call("negate", BOOLEAN, part) for part in parts]
        condition = parts[0]
        for part in parts[1:]:
            kind = "or" if isinstance(pattern, exp.Any) else "and"
            condition = Exact((kind, condition.tree, part.tree), BOOLEAN)
        return condition
    condition = _like(text, compiler.of(pattern), folded, escape)
    return call("negate", BOOLEAN, condition) if node.args.get("negate") else condition


def escaped(compiler: Compiler, node: Expr) -> Exact:
    """LIKE … ESCAPE ….

    Raises:
        NotExact: the escape is not one character.
    """
    character = constant_value(compiler.of(node.expression))
    if (
        not isinstance(character, str)
        or len(character) != 1
        or not isinstance(node.this, exp.Like | exp.ILike)
    ):
        raise NotExact("this ESCAPE")
    return like(compiler, node.this, character)


def _like(text: Exact, pattern: Exact, folded: bool, escape: str) -> Exact:
    if pattern.type != STRING:
        raise NotExact("a LIKE with a pattern that is not text")
    if pattern.tree[0] != "constant":
        return call("is_like_each", BOOLEAN, text, pattern, options=[escape, folded])
    written = constant_value(pattern)
    if not re.fullmatch(f"(?s:[^{re.escape(escape)}]|{re.escape(escape)}[_%{re.escape(escape)}])*", written):
        raise NotExact("Spark refuses this escape in a LIKE")
    if escape not in written and not folded:
        return call("is_like", BOOLEAN, text, options=[written])
    return call("is_like_escaped", BOOLEAN, text, options=[written, escape, folded])


def matched(compiler: Compiler, text: Exact, pattern: Exact) -> Exact:
    """RLIKE."""
    return call("is_match", BOOLEAN, as_text(compiler, text), options=[_pattern(pattern).text])


def _never_empty(pattern: Pattern) -> Pattern:
    if pattern.empty:
        raise NotExact("a pattern that matches nothing between any two characters")
    return pattern


def _count(compiler: Compiler, text: Exact, pattern: Exact) -> Exact:
    own = _never_empty(_pattern(pattern))
    return call("count_matches", INT, as_text(compiler, text), options=[own.text])


def _group_of(pattern: Pattern, group: Exact | None, default: int) -> int:
    number = default if group is None else constant_value(as_count(group))
    if not 0 <= number <= pattern.groups:
        raise NotExact("a pattern without such a group")
    if number and not pattern.steady:
        raise NotExact("a group that is repeated")
    if number in pattern.closed:
        raise NotExact("a group with a $ in it")
    return int(number)


def _extract(compiler: Compiler, text: Exact, pattern: Exact, group: Exact | None = None) -> Exact:
    own = _pattern(pattern)
    options = [own.text, _group_of(own, group, 1)]
    return call("extract_match", STRING, as_text(compiler, text), options=options)


def _found(compiler: Compiler, text: Exact, pattern: Exact) -> Exact:
    return call("first_match", STRING, as_text(compiler, text), options=[_pattern(pattern).text])


def _place(compiler: Compiler, text: Exact, pattern: Exact) -> Exact:
    return call("place_of_match", INT, as_text(compiler, text), options=[_pattern(pattern).text])


def _replace(compiler: Compiler, text: Exact, pattern: Exact, by: Exact) -> Exact:
    own = _never_empty(_pattern(pattern))
    written = constant_value(by)
    if by.type != STRING or not re.fullmatch(r"(?:[^$\\]|\$[0-9](?![0-9])|\\[$\\])*", written, re.DOTALL):
        raise NotExact("a replacement with other references than $1 to $9")
    parts: list[str | int] = []
    for part in re.findall(r"[^$\\]+|\$[0-9]|\\[$\\]", written):
        if part[0] == "$":
            parts.append(_group_of(own, constant(int(part[1]), INT), 0))
        else:
            parts.append(part[1:] if part[0] == "\\" else part)
    return call("replace_matches", STRING, as_text(compiler, text), options=[own.text, *parts])


def _operator(name: type[Expr]) -> Rule:
    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> Exact:
        if len(nodes) not in (2, 3):
            raise NotExact("this number of arguments is not on the list")
        made = name(this=nodes[0], expression=nodes[1])
        return (
            like(compiler, made)
            if len(nodes) == 2
            else escaped(compiler, exp.Escape(this=made, expression=nodes[2]))
        )

    return rule


_MATCHED: Callable[..., Exact] = matched

FUNCTIONS: dict[str, Rule] = {
    "like": _operator(exp.Like), "ilike": _operator(exp.ILike),
    **dict.fromkeys(("rlike", "regexp", "regexp_like"), optional(2, 2, _MATCHED)),
    "regexp_count": optional(2, 2, _count),
    "regexp_extract": optional(2, 3, _extract),
    "regexp_substr": optional(2, 2, _found),
    "regexp_instr": optional(2, 2, _place),
    "regexp_replace": optional(3, 3, _replace),
}  # fmt: skip

NOTES = dict.fromkeys(
    (name for name in FUNCTIONS if "like" not in name or "r" in name),
    "a constant pattern of characters, classes, groups, alternatives and quantifiers",
)
