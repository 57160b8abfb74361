"""LIKE and regular expressions. Patterns of the latter are Python's, as `plan.exact.patterns` wrote them."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.expressions.functions.base import Wrong, of_distinct
from watersmeet.kernel.expressions.functions.letters import lower


def is_like(text: pa.Array, pattern: str) -> pa.Array:
    """`LIKE` with a constant pattern without an escape."""
    return pc.match_like(text, pattern.replace("\\", "\\\\"))


def is_like_escaped(text: pa.Array, pattern: str, escape: str, folded: bool) -> pa.Array:
    """The same with an escape; ``folded``: `ILIKE`."""
    if folded:
        text, pattern = lower(text), lower(pa.array([pattern]))[0].as_py()
    written = _like(pattern, escape)
    assert isinstance(written, str)
    return of_distinct(lambda one: _compiled(written).fullmatch(one) is not None, pa.bool_(), text)


def is_like_each(text: pa.Array, pattern: pa.Array, escape: str, folded: bool) -> pa.Array:
    """The same with patterns by row."""
    if folded:
        text, pattern = lower(text), lower(pattern)
    return of_distinct(partial(_is_like, escape), pa.bool_(), text, pattern)


def is_match(text: pa.Array, pattern: str) -> pa.Array:
    """`RLIKE`."""
    regex = _compiled(pattern)
    return of_distinct(lambda one: regex.search(one) is not None, pa.bool_(), text)


def count_matches(text: pa.Array, pattern: str) -> pa.Array:
    regex = _compiled(pattern)
    return of_distinct(lambda one: sum(1 for _ in regex.finditer(one)), pa.int32(), text)


def extract_match(text: pa.Array, pattern: str, group: int) -> pa.Array:
    """`regexp_extract`: without a match it is empty."""
    own = _compiled(pattern)

    def extract(one: str) -> str:
        match = own.search(one)
        return (match[group] or "") if match else ""

    return of_distinct(extract, pa.string(), text)


def first_match(text: pa.Array, pattern: str) -> pa.Array:
    """`regexp_substr`: without a match, or of an empty one, it is NULL."""
    own = _compiled(pattern)
    return of_distinct(
        lambda one: (match[0] or None) if (match := own.search(one)) else None, pa.string(), text
    )


def place_of_match(text: pa.Array, pattern: str) -> pa.Array:
    """`regexp_instr`: from 1, in UTF-16 units; 0: there is none."""
    own = _compiled(pattern)

    def place(one: str) -> int:
        match = own.search(one)
        return 0 if match is None else len(one[: match.start()].encode("utf-16-le")) // 2 + 1

    return of_distinct(place, pa.int32(), text)


def replace_matches(text: pa.Array, pattern: str, *parts: Any) -> pa.Array:
    """`regexp_replace` by texts and, by their numbers, groups."""
    own = _compiled(pattern)

    def by(match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in parts)

    return of_distinct(lambda one: own.sub(by, one), pa.string(), text)


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _is_like(escape: str, text: str, pattern: str) -> bool | Wrong:
    written = _like(pattern, escape)
    return written if isinstance(written, Wrong) else _compiled(written).fullmatch(text) is not None


@lru_cache(maxsize=1000)
def _like(pattern: str, escape: str) -> str | Wrong:
    """A pattern of LIKE as a regular expression."""
    pieces, at = ["(?s)"], 0
    while at < len(pattern):
        character = pattern[at]
        if character == escape:
            at += 1
            if at == len(pattern):
                return Wrong("INVALID_FORMAT.ESC_AT_THE_END", "a pattern ends with the escape")
            if pattern[at] not in ("_", "%", escape):
                return Wrong("INVALID_FORMAT.ESC_IN_THE_MIDDLE", "an escape before what needs none")
            pieces.append(re.escape(pattern[at]))
        else:
            pieces.append({"_": ".", "%": ".*"}.get(character) or re.escape(character))
        at += 1
    return "".join(pieces)
