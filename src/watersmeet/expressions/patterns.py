"""Evaluate LIKE and regular expressions: translate Java patterns for RE2, or reject them.

RE2 takes time in proportion to a text's length, whatever the pattern. Python backtracks for hours on
`(a+)+$` over a few dozen letters; Java caches some of these attempts, and overflows its stack on others.

The supported subset means the same in both: characters, classes of them, groups, alternatives and
quantifiers. Everything that differs, or might differ, is rejected: look-around, back references, possessive
quantifiers, boundaries, flags other than a first ``(?i)``, classes within classes, a ``$`` before something
else, and a quantified group that may match nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from watersmeet.expressions.base import Wrong, arrow, of_distinct
from watersmeet.expressions.conditionals import negate
from watersmeet.expressions.rules import Compiler, Restricted, Rule, optional
from watersmeet.expressions.texts import as_count, as_text, lower
from watersmeet.expressions.typed_tree import (
    TypedTree,
    UnsupportedExpression,
    call,
    constant,
    constant_value,
    require,
)
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import BOOLEAN, INT, STRING

START, END = "(?:\\A)", "(?:$)"
_NOWHERE = "[^\\x{0}-\\x{10ffff}]"
_CR_LF, _LINE_END = "\\r\\n", "[\\n\\r\\x{85}\\x{2028}\\x{2029}]"
_MATCH, _BEFORE, _ENDING = "m", "b", "e"
"""Names of groups: the whole match, what is before it, and line ends, by their numbers."""


@arrow("is_like")
def is_like(text: pa.Array, pattern: str) -> pa.Array:
    """Compute `LIKE` with a constant pattern without an escape."""
    return pc.match_like(text, pattern.replace("\\", "\\\\"))


@arrow("is_like_escaped")
def is_like_escaped(text: pa.Array, pattern: str, escape: str, folded: bool) -> pa.Array:
    """Compute `LIKE` with a constant pattern and an escape, or `ILIKE` if ``folded``."""
    if folded:
        text, pattern = lower(text), lower(pa.array([pattern]))[0].as_py()
    written = _like(pattern, escape)
    assert isinstance(written, str)
    return pc.match_substring_regex(text, written)


@arrow("is_like_each")
def is_like_each(text: pa.Array, pattern: pa.Array, escape: str, folded: bool) -> pa.Array:
    """Compute `LIKE` with a pattern per row and an escape, or `ILIKE` if ``folded``."""
    if folded:
        text, pattern = lower(text), lower(pattern)
    return of_distinct(partial(_is_like, escape), pa.bool_(), text, pattern)


@arrow("is_match")
def is_match(text: pa.Array, pattern: str) -> pa.Array:
    """Compute `RLIKE`."""
    return _by_ending(pc.match_substring_regex, text, pattern)


@arrow("count_matches")
def count_matches(text: pa.Array, pattern: str) -> pa.Array:
    if START in pattern or END in pattern:  # Arrow goes on with the rest as with another text
        return of_distinct(lambda one: sum(1 for _ in _matches(one, pattern)), pa.int32(), text)
    return pc.count_substring_regex(text, pattern)


@arrow("extract_match")
def extract_match(text: pa.Array, pattern: str, group: int) -> pa.Array:
    """Compute `regexp_extract`; without a match the result is empty."""
    groups = _by_ending(partial(_extract, name=f"g{group}" if group else _MATCH), text, pattern)
    return pc.if_else(pc.is_null(text), groups, pc.fill_null(groups, ""))


@arrow("first_match")
def first_match(text: pa.Array, pattern: str) -> pa.Array:
    """Compute `regexp_substr`; without a match, or for an empty match, the result is NULL."""
    matches = _by_ending(partial(_extract, name=_MATCH), text, pattern)
    return pc.if_else(pc.equal(matches, ""), pa.scalar(None, matches.type), matches)


@arrow("place_of_match")
def place_of_match(text: pa.Array, pattern: str) -> pa.Array:
    """Compute `regexp_instr`: the position from 1 in UTF-16 units, or 0 without a match."""
    offsets = _by_ending(pc.find_substring_regex, text, pattern)  # in bytes, from 0

    def place(one: str, at: int) -> int:
        return len(one.encode()[:at].decode().encode("utf-16-le")) // 2 + 1

    if pc.all(pc.string_is_ascii(text)).as_py() in (True, None):
        return pc.add(offsets, pa.scalar(1, offsets.type))
    return of_distinct(lambda one, at: place(one, at) if at >= 0 else 0, pa.int32(), text, offsets)


@arrow("replace_matches")
def replace_matches(text: pa.Array, pattern: str, *parts: Any) -> pa.Array:
    """Compute `regexp_replace`; ``parts`` are texts, and groups by number."""
    by = "".join(part.replace("\\", "\\\\") if isinstance(part, str) else f"\\{part}" for part in parts)
    replaced = pc.replace_substring_regex(text, pattern, by)
    ended = _find_texts_with_line_end(text) if END in pattern else None
    if ended is None:
        return replaced

    def replace(one: str) -> str:
        pieces, rest = [], one
        for before, match, groups in _matches(one, pattern):
            pieces.append(before)
            pieces += [
                part if isinstance(part, str) else groups[f"g{part}"] if part else match for part in parts
            ]
            rest = rest[len(before) + len(match) :]
        return "".join([*pieces, rest])

    return pc.replace_with_mask(replaced, ended, of_distinct(replace, pa.string(), text.filter(ended)))


def _find_texts_with_line_end(text: pa.Array) -> pa.Array | None:
    """Return the mask of texts that end with a line end, or None if there are none."""
    ended = pc.fill_null(pc.match_substring_regex(text, f"{_LINE_END}$"), False)
    return ended if pc.any(ended).as_py() else None


def _by_ending(function: Callable[[pa.Array, str], pa.Array], text: pa.Array, pattern: str) -> pa.Array:
    """Apply ``function`` with the pattern, adapted to the line end of each text."""
    ended = _find_texts_with_line_end(text) if END in pattern else None
    if ended is None:
        return function(text, pattern)
    rows = text.filter(ended)
    crlf, other = (function(rows, _before(pattern, ending)) for ending in (_CR_LF, _LINE_END))
    of_ended = pc.if_else(pc.ends_with(rows, "\r\n"), crlf, other)
    return pc.replace_with_mask(function(text, pattern), ended, of_ended)


def _before(pattern: str, ending: str) -> str:
    """Replace each `END` in the pattern by an optional line end at the end of the text."""
    numbers = count()
    return re.sub(re.escape(END), lambda _: f"(?P<{_ENDING}{next(numbers)}>(?:{ending})?)$", pattern)


def _extract(text: pa.Array, pattern: str, name: str) -> pa.Array:
    """Return a group of the first match, without the line end; NULL if there is no match."""
    fields = pc.extract_regex(text, f"(?P<{_MATCH}>{pattern})")
    group = pc.struct_field(fields, [name])
    endings = [field.name for field in fields.type if field.name.startswith(_ENDING)]
    if name != _MATCH or not endings:
        return group
    rows = fields.to_pylist()
    return pa.array([None if row is None else _without_ending(row) for row in rows], group.type)


def _without_ending(row: dict[str, str]) -> str:
    """Return the whole match without the line end."""
    return row[_MATCH].removesuffix("".join(row[name] for name in row if name.startswith(_ENDING)))


def _matches(text: str, pattern: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the text before each match, the match, and its groups; no match is empty."""
    while text:
        ending = _CR_LF if text.endswith("\r\n") else _LINE_END
        searched = f"\\A(?P<{_BEFORE}>(?s:.*?))(?P<{_MATCH}>{_before(pattern, ending)})"
        row = pc.extract_regex(pa.scalar(text), searched).as_py()
        if row is None:
            return
        match = _without_ending(row)
        yield row[_BEFORE], match, row
        text = text[len(row[_BEFORE]) + len(match) :]
        pattern = pattern.replace(START, _NOWHERE)


def _is_like(escape: str, text: str, pattern: str) -> bool | Wrong:
    written = _like(pattern, escape)
    if isinstance(written, Wrong):
        return written
    return bool(pc.match_substring_regex(pa.scalar(text), written).as_py())


@lru_cache(maxsize=1000)
def _like(pattern: str, escape: str) -> str | Wrong:
    """Convert a LIKE pattern to a regular expression."""
    pieces, at = ["(?s)\\A"], 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape:
            at += 1
            if at == len(pattern):
                return Wrong("INVALID_FORMAT.ESC_AT_THE_END", "a pattern ends with the escape")
            if pattern[at] not in ("_", "%", escape):
                return Wrong("INVALID_FORMAT.ESC_IN_THE_MIDDLE", "an escape before what needs none")
            pieces.append(_literal(pattern[at]))
        else:
            pieces.append({"_": ".", "%": ".*"}.get(character) or _literal(character))
        at += 1
    return "".join([*pieces, "$"])


def _literal(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


MAX_SIZE = 1000
"""Characters, at most, of what a counted quantifier such as ``{2,5}`` repeats: RE2 takes no more."""

_ANY = "[^\\n\\r\\x{85}\\x{2028}\\x{2029}]"
_CLASSES = {"d": "\\d", "w": "\\w", "s": "\\t\\n\\x{b}\\f\\r "}
_SPECIAL = set("\\^$.|?*+()[]{}")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class Pattern:
    """A regular expression, translated for RE2.

    Attributes:
        text: the RE2 pattern, with groups named g1, g2, ….
        groups: number of groups.
        closed: groups that contain a ``$``, which may match before the end of a last line.
        empty: the pattern can match the empty text.
        steady: the contents of groups do not depend on how often a group is repeated.
    """

    text: str
    groups: int
    closed: frozenset[int]
    empty: bool
    steady: bool


def java_pattern(text: str) -> Pattern:
    """Convert a regular expression of Java to RE2.

    Raises:
        UnsupportedExpression: RE2 cannot express the pattern.
    """
    reader = _Reader(text)
    if text.startswith("(?i)"):
        reader.folded, reader.at = True, 4
        require(text.isascii(), "(?i) of other letters than ASCII's")
    pattern, empty, _ = reader.alternatives()
    require(reader.at == len(text), f"the pattern {text}: at {text[reader.at :]}")
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

    def _build_unsupported_error(self, what: str) -> UnsupportedExpression:
        return UnsupportedExpression(f"the pattern {self.text}: {what} may mean something else to Java")

    def alternatives(self) -> tuple[str, bool, int]:
        """Read alternatives of a pattern.

        Returns:
            The RE2 text, True if it can match the empty text, and its length in characters after counted
            repetitions are expanded.
        """
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
                raise self._build_unsupported_error("something behind a $")
            groups = self.groups
            part, may_be_empty, atom, size = self._atom()
            quantifier, least, most = self._quantifier()
            if quantifier:
                if not atom or (may_be_empty and quantifier not in ("?", "??")):
                    raise self._build_unsupported_error("a quantifier of what may match nothing")
                if self._ends != ends:
                    raise self._build_unsupported_error("a quantifier of a $")
                if quantifier not in ("?", "??"):
                    self.steady = self.steady and groups == self.groups
                size *= most
                require(
                    most <= 1 or size <= MAX_SIZE,
                    f"the pattern {self.text}: a quantifier that repeats so much",
                )
                part += quantifier
                may_be_empty = may_be_empty or least == 0
            parts.append(part)
            empty, total = empty and may_be_empty, total + size
        return "".join(parts), empty, total

    def _quantifier(self) -> tuple[str, int, int]:
        match = re.compile(r"[*+?]|\{([0-9]{1,4})(?:,([0-9]{0,4}))?\}").match(self.text, self.at)
        if match is None:
            if self._next() == "{":
                raise self._build_unsupported_error("this {")
            return "", 1, 1
        self.at = match.end()
        text = match[0]
        if self._next() == "?":
            self.at += 1
            text += "?"
        if self._next() in ("+", "*", "?", "{"):
            raise self._build_unsupported_error("one quantifier after another")
        least = int(match[1]) if match[1] else int(match[0] == "+")
        return text, least, max(least, int(match[2] or 1), 1)

    def _atom(self) -> tuple[str, bool, bool, int]:
        """Read one atom of a pattern.

        Returns:
            The RE2 text, True if it can match the empty text, True if it can have a quantifier, and its
            length in characters.
        """
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
            return self._translate_escape(), False, True, 1
        if character in _SPECIAL:
            raise self._build_unsupported_error(character)
        return self._character(character), False, True, 1

    def _group(self) -> tuple[str, bool, bool, int]:
        opening, number, ends = "(?:", None, self._ends
        if self.text.startswith("?:", self.at):
            self.at += 2
        elif self._next() == "?":
            raise self._build_unsupported_error("(?")
        else:
            self.groups += 1
            number = self.groups
            opening = f"(?P<g{number}>"
        self._depth += 1
        if self._depth > 20:
            raise self._build_unsupported_error("so many groups in groups")
        pattern, empty, size = self.alternatives()
        self._depth -= 1
        if self._next() != ")":
            raise self._build_unsupported_error("a ( without its )")
        self.at += 1
        if number is not None and self._ends != ends:
            self.closed.add(number)
        return f"{opening}{pattern})", empty, True, size

    def _character(self, character: str) -> str:
        parts = self._range(character, character)
        return f"[{parts}]" if len(parts) > len(_class_literal(character)) else parts

    def _range(self, first: str, last: str) -> str:
        """Build a range of a character class; with (?i), it has letters of both cases."""
        text = _class_literal(first) if first == last else f"{_class_literal(first)}-{_class_literal(last)}"
        for low, high, shift in (("a", "z", -32), ("A", "Z", 32)) if self.folded else ():
            begin, end = max(first, low), min(last, high)
            if begin <= end:
                text += f"{chr(ord(begin) + shift)}-{chr(ord(end) + shift)}"
        return text

    def _escape(self) -> str:
        """Read an escape.

        Returns:
            The letter of a class (d, w, s, or their opposites), or a quote and the literal character.
        """
        character = self._next()
        self.at += 1
        if character and character in "dDwWsS":
            return character
        if character in _CONTROL:
            return f"'{_CONTROL[character]}"
        if not character or character.isalnum() or not character.isascii():
            raise self._build_unsupported_error(f"\\{character}")
        return f"'{character}"

    def _translate_escape(self) -> str:
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
                raise self._build_unsupported_error("this class")
            is_single = character != "-"
            if character == "\\":
                meant = self._escape()
                is_single = meant[0] == "'"
                if meant.isupper() and meant[0] != "'":
                    raise self._build_unsupported_error(f"\\{meant} in a class")
                character = meant[1:]
                part = self._range(character, character) if character else _CLASSES[meant]
            else:
                part = self._range(character, character)
                if character == "-" and not (first or self._next() == "]"):
                    raise self._build_unsupported_error("this - in a class")
            if self._next() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                last = self._next()
                if not is_single or last in ("[", "\\", "-", "^", "&") or last < character:
                    raise self._build_unsupported_error("this range in a class")
                self.at += 1
                part = self._range(character, last)
            pattern += part
            first = False


def _class_literal(character: str) -> str:
    return character if character.isalnum() else f"\\x{{{ord(character):x}}}"


def _pattern(value: TypedTree) -> Pattern:
    require(value.type == STRING, "a pattern that is not text")
    return java_pattern(constant_value(value))


def compile_like(compiler: Compiler, node: Expr, escape: str = "\\") -> TypedTree:
    """Compile LIKE, ILIKE, and LIKE ANY or LIKE ALL of constant patterns."""
    folded = isinstance(node, exp.ILike)
    text, pattern = as_text(compiler, compiler.of(node.this)), node.expression
    if isinstance(pattern, exp.Any | exp.All):
        inner = pattern.this.unnest() if isinstance(pattern.this, exp.Paren) else pattern.this
        nodes: list[Any] = inner.expressions if isinstance(inner, exp.Tuple) else [inner]
        parts = [_compile_like(text, compiler.of(alternative), folded, escape) for alternative in nodes]
        if node.args.get("negate"):
            parts = [call(negate, BOOLEAN, part) for part in parts]
        condition = parts[0]
        for part in parts[1:]:
            kind = "or" if isinstance(pattern, exp.Any) else "and"
            condition = TypedTree((kind, condition.tree, part.tree), BOOLEAN)
        return condition
    condition = _compile_like(text, compiler.of(pattern), folded, escape)
    return call(negate, BOOLEAN, condition) if node.args.get("negate") else condition


def compile_escape(compiler: Compiler, node: Expr) -> TypedTree:
    """Compile LIKE … ESCAPE ….

    Raises:
        UnsupportedExpression: the escape is not one character.
    """
    character = constant_value(compiler.of(node.expression))
    if (
        not isinstance(character, str)
        or len(character) != 1
        or not isinstance(node.this, exp.Like | exp.ILike)
    ):
        raise UnsupportedExpression("this ESCAPE")
    return compile_like(compiler, node.this, character)


def _compile_like(text: TypedTree, pattern: TypedTree, folded: bool, escape: str) -> TypedTree:
    require(pattern.type == STRING, "a LIKE with a pattern that is not text")
    if pattern.tree[0] != "constant":
        return call(is_like_each, BOOLEAN, text, pattern, options=[escape, folded])
    written = constant_value(pattern)
    require(
        re.fullmatch(f"(?s:[^{re.escape(escape)}]|{re.escape(escape)}[_%{re.escape(escape)}])*", written),
        "Spark refuses this escape in a LIKE",
    )
    if escape not in written and not folded:
        return call(is_like, BOOLEAN, text, options=[written])
    return call(is_like_escaped, BOOLEAN, text, options=[written, escape, folded])


def compile_rlike(compiler: Compiler, text: TypedTree, pattern: TypedTree) -> TypedTree:
    """Compile RLIKE."""
    return call(is_match, BOOLEAN, as_text(compiler, text), options=[_pattern(pattern).text])


def _never_empty(pattern: Pattern) -> Pattern:
    require(not pattern.empty, "a pattern that matches nothing between any two characters")
    return pattern


def _count(compiler: Compiler, text: TypedTree, pattern: TypedTree) -> TypedTree:
    own = _never_empty(_pattern(pattern))
    return call(count_matches, INT, as_text(compiler, text), options=[own.text])


def _group_of(compiler: Compiler, pattern: Pattern, group: TypedTree | None, default: int) -> int:
    number = default if group is None else constant_value(as_count(compiler, group))
    require(0 <= number <= pattern.groups, "a pattern without such a group")
    require(not number or pattern.steady, "a group that is repeated")
    require(number not in pattern.closed, "a group with a $ in it")
    return int(number)


def _regexp_extract(
    compiler: Compiler, text: TypedTree, pattern: TypedTree, group: TypedTree | None = None
) -> TypedTree:
    own = _pattern(pattern)
    options = [own.text, _group_of(compiler, own, group, 1)]
    return call(extract_match, STRING, as_text(compiler, text), options=options)


def _regexp_substr(compiler: Compiler, text: TypedTree, pattern: TypedTree) -> TypedTree:
    return call(first_match, STRING, as_text(compiler, text), options=[_pattern(pattern).text])


def _place(compiler: Compiler, text: TypedTree, pattern: TypedTree) -> TypedTree:
    return call(place_of_match, INT, as_text(compiler, text), options=[_pattern(pattern).text])


def _replace(compiler: Compiler, text: TypedTree, pattern: TypedTree, by: TypedTree) -> TypedTree:
    own = _never_empty(_pattern(pattern))
    written = constant_value(by)
    require(
        by.type == STRING and re.fullmatch(r"(?:[^$\\]|\$[0-9](?![0-9])|\\[$\\])*", written, re.DOTALL),
        "a replacement with other references than $1 to $9",
    )
    parts: list[str | int] = []
    for part in re.findall(r"[^$\\]+|\$[0-9]|\\[$\\]", written):
        if part[0] == "$":
            parts.append(_group_of(compiler, own, constant(int(part[1]), INT), 0))
        else:
            parts.append(part[1:] if part[0] == "\\" else part)
    return call(replace_matches, STRING, as_text(compiler, text), options=[own.text, *parts])


def _operator(name: type[Expr]) -> Rule:
    def rule(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
        require(len(nodes) in (2, 3), "this number of arguments is not on the list")
        made = name(this=nodes[0], expression=nodes[1])
        return (
            compile_like(compiler, made)
            if len(nodes) == 2
            else compile_escape(compiler, exp.Escape(this=made, expression=nodes[2]))
        )

    return rule


_CONSTANT_PATTERN = "a constant pattern of characters, classes, groups, alternatives and quantifiers"

FUNCTIONS: dict[str, Rule | Restricted] = {
    "like": _operator(exp.Like),
    "ilike": _operator(exp.ILike),
    **dict.fromkeys(
        ("rlike", "regexp", "regexp_like"), Restricted(optional(2, 2, compile_rlike), _CONSTANT_PATTERN)
    ),
    "regexp_count": Restricted(optional(2, 2, _count), _CONSTANT_PATTERN),
    "regexp_extract": Restricted(optional(2, 3, _regexp_extract), _CONSTANT_PATTERN),
    "regexp_substr": Restricted(optional(2, 2, _regexp_substr), _CONSTANT_PATTERN),
    "regexp_instr": Restricted(optional(2, 2, _place), _CONSTANT_PATTERN),
    "regexp_replace": Restricted(optional(3, 3, _replace), _CONSTANT_PATTERN),
}
