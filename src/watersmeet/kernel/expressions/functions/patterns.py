"""LIKE and regular expressions, by RE2, which no pattern lets search for ever. Patterns of the latter are as
`plan.exact.patterns` writes them: groups are named g1, g2, …, `START` and `END` stand for Java's ``^`` and
``$``.

Java's ``$`` is before a line's end at the end of the text, too, and never within CR LF. RE2 looks nowhere
ahead: for texts that end so, the line's end is matched as a group of its own and then left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.expressions.functions.base import Wrong, of_distinct
from watersmeet.kernel.expressions.functions.letters import lower

START, END = "(?:\\A)", "(?:$)"
_NOWHERE = "[^\\x{0}-\\x{10ffff}]"
_CR_LF, _LINE_END = "\\r\\n", "[\\n\\r\\x{85}\\x{2028}\\x{2029}]"
_MATCH, _BEFORE, _ENDING = "m", "b", "e"
"""Names of groups: the whole match, what is before it, and line ends, by their numbers."""


def is_like(text: pa.Array, pattern: str) -> pa.Array:
    """`LIKE` with a constant pattern without an escape."""
    return pc.match_like(text, pattern.replace("\\", "\\\\"))


def is_like_escaped(text: pa.Array, pattern: str, escape: str, folded: bool) -> pa.Array:
    """The same with an escape; ``folded``: `ILIKE`."""
    if folded:
        text, pattern = lower(text), lower(pa.array([pattern]))[0].as_py()
    written = _like(pattern, escape)
    assert isinstance(written, str)
    return pc.match_substring_regex(text, written)


def is_like_each(text: pa.Array, pattern: pa.Array, escape: str, folded: bool) -> pa.Array:
    """The same with patterns by row."""
    if folded:
        text, pattern = lower(text), lower(pattern)
    return of_distinct(partial(_is_like, escape), pa.bool_(), text, pattern)


def is_match(text: pa.Array, pattern: str) -> pa.Array:
    """`RLIKE`."""
    return _by_ending(pc.match_substring_regex, text, pattern)


def count_matches(text: pa.Array, pattern: str) -> pa.Array:
    if START in pattern or END in pattern:  # Arrow goes on with the rest as with another text
        return of_distinct(lambda one: sum(1 for _ in _matches(one, pattern)), pa.int32(), text)
    return pc.count_substring_regex(text, pattern)


def extract_match(text: pa.Array, pattern: str, group: int) -> pa.Array:
    """`regexp_extract`: without a match it is empty."""
    groups = _by_ending(partial(_extract, name=f"g{group}" if group else _MATCH), text, pattern)
    return pc.if_else(pc.is_null(text), groups, pc.fill_null(groups, ""))


def first_match(text: pa.Array, pattern: str) -> pa.Array:
    """`regexp_substr`: without a match, or of an empty one, it is NULL."""
    matches = _by_ending(partial(_extract, name=_MATCH), text, pattern)
    return pc.if_else(pc.equal(matches, ""), pa.scalar(None, matches.type), matches)


def place_of_match(text: pa.Array, pattern: str) -> pa.Array:
    """`regexp_instr`: from 1, in UTF-16 units; 0: there is none."""
    offsets = _by_ending(pc.find_substring_regex, text, pattern)  # in bytes, from 0

    def place(one: str, at: int) -> int:
        return len(one.encode()[:at].decode().encode("utf-16-le")) // 2 + 1

    if pc.all(pc.string_is_ascii(text)).as_py() in (True, None):
        return pc.add(offsets, pa.scalar(1, offsets.type))
    return of_distinct(lambda one, at: place(one, at) if at >= 0 else 0, pa.int32(), text, offsets)


def replace_matches(text: pa.Array, pattern: str, *parts: Any) -> pa.Array:
    """`regexp_replace` by texts and, by their numbers, groups."""
    by = "".join(part.replace("\\", "\\\\") if isinstance(part, str) else f"\\{part}" for part in parts)
    replaced = pc.replace_substring_regex(text, pattern, by)
    ended = _ended(text) if END in pattern else None
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


def _ended(text: pa.Array) -> pa.Array | None:
    """Which texts end with a line's end; None: none."""
    ended = pc.fill_null(pc.match_substring_regex(text, f"{_LINE_END}$"), False)
    return ended if pc.any(ended).as_py() else None


def _by_ending(function: Callable[[pa.Array, str], pa.Array], text: pa.Array, pattern: str) -> pa.Array:
    """What ``function`` gives for the pattern, of each text by the line's end that it has."""
    ended = _ended(text) if END in pattern else None
    if ended is None:
        return function(text, pattern)
    rows = text.filter(ended)
    crlf, other = (function(rows, _before(pattern, ending)) for ending in (_CR_LF, _LINE_END))
    of_ended = pc.if_else(pc.ends_with(rows, "\r\n"), crlf, other)
    return pc.replace_with_mask(function(text, pattern), ended, of_ended)


def _before(pattern: str, ending: str) -> str:
    """The pattern with each `END` before a line's end, or none, at the end of the text."""
    numbers = count()
    return re.sub(re.escape(END), lambda _: f"(?P<{_ENDING}{next(numbers)}>(?:{ending})?)$", pattern)


def _extract(text: pa.Array, pattern: str, name: str) -> pa.Array:
    """The group of the first match, without the line's end; NULL: there is none."""
    fields = pc.extract_regex(text, f"(?P<{_MATCH}>{pattern})")
    group = pc.struct_field(fields, [name])
    endings = [field.name for field in fields.type if field.name.startswith(_ENDING)]
    if name != _MATCH or not endings:
        return group
    rows = fields.to_pylist()
    return pa.array([None if row is None else _without_ending(row) for row in rows], group.type)


def _without_ending(row: dict[str, str]) -> str:
    """The whole match."""
    return row[_MATCH].removesuffix("".join(row[name] for name in row if name.startswith(_ENDING)))


def _matches(text: str, pattern: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """What is before a match, the match, and the groups of each; no match is empty."""
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
    """A pattern of LIKE as a regular expression."""
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
