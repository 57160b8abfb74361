"""Texts cut, put together and looked into; most of them for BINARY, too."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.expressions.functions import base
from watersmeet.kernel.expressions.functions.base import (
    MOST_TEXT,
    Wrong,
    fits_in_texts,
    made,
    of_distinct,
    raw,
)


def length(text: pa.Array) -> pa.Array:
    """Characters; of BINARY bytes."""
    lengths = pc.binary_length(text) if _is_binary(text) else pc.utf8_length(text)
    return lengths.cast(pa.int32())


def byte_length(text: pa.Array) -> pa.Array:
    return pc.binary_length(text).cast(pa.int32())


def bit_length(text: pa.Array) -> pa.Array:
    bits = raw(pc.binary_length(text)).astype(np.int64) * 8
    return made(bits.astype(np.int32), pa.int32(), text)  # wraps around, as Java's


def as_binary(text: pa.Array) -> pa.Array:
    return text.cast(pa.binary())


def concat(*texts: pa.Array) -> pa.Array:
    _bounded(*texts)
    return pc.binary_join_element_wise(*texts, pa.scalar("").cast(texts[0].type))


def concat_ws(separator: pa.Array, *texts: pa.Array) -> pa.Array:
    """NULLs among the texts are passed over."""
    _bounded(*texts, *([separator] * len(texts)))
    parts: list[pa.Array] = [pa.repeat("", len(separator))]
    before = pa.repeat(False, len(separator))
    for text in texts:  # the kernel's own way to skip NULLs leaves out rows of NULLs alone
        here = text.is_valid()
        parts.append(pc.if_else(pc.and_(before, here), pc.fill_null(separator, ""), ""))
        parts.append(pc.fill_null(text, ""))
        before = pc.or_(before, here)
    joined = pc.binary_join_element_wise(*parts, "")
    return pc.if_else(separator.is_valid(), joined, pa.scalar(None, pa.string()))


def reverse(text: pa.Array) -> pa.Array:
    return pc.binary_reverse(text) if _is_binary(text) else of_distinct(_reversed, pa.string(), text)


def trim(text: pa.Array, where: str) -> pa.Array:
    """Blanks, and no other white space."""
    return {"both": pc.utf8_trim, "left": pc.utf8_ltrim, "right": pc.utf8_rtrim}[where](text, characters=" ")


def trim_of(text: pa.Array, characters: pa.Array, where: str) -> pa.Array:
    return of_distinct(_TRIMS[where], pa.string(), text, characters)


def pad(text: pa.Array, count: pa.Array, by: pa.Array, left: bool) -> pa.Array:
    """`lpad`, `rpad`: cut, too."""
    counts = np.maximum(raw(count).astype(np.int64), 0)
    fits_in_texts(int(np.minimum(counts, MOST_TEXT + 1).sum()) if len(counts) else 0)
    return of_distinct(partial(_padded, left), text.type, text, count, by)


def repeat(text: pa.Array, count: pa.Array) -> pa.Array:
    counts = np.maximum(raw(count), 0)
    sizes = raw(pc.binary_length(text)).astype(np.float64) * counts
    fits_in_texts(int(sizes.sum()))
    return pc.binary_repeat(text, made(counts, count.type, count))


def replace(text: pa.Array, old: pa.Array, new: pa.Array) -> pa.Array:
    return of_distinct(lambda one, a, b: one.replace(a, b) if a else one, pa.string(), text, old, new)


def replace_fixed(text: pa.Array, old: str, new: str) -> pa.Array:
    """`replace` of one text by another, both constant."""
    if not old:
        return text
    counts = pc.count_substring(text, old)
    grown = raw(pc.binary_length(text)).astype(np.int64).sum()
    grown += raw(counts).astype(np.int64).sum() * max(len(new.encode()) - len(old.encode()), 0)
    fits_in_texts(int(grown))
    return pc.replace_substring(text, old, new)


def translate(text: pa.Array, old: pa.Array, new: pa.Array) -> pa.Array:
    return of_distinct(_translated, pa.string(), text, old, new)


def overlay(text: pa.Array, by: pa.Array, start: pa.Array, count: pa.Array) -> pa.Array:
    return of_distinct(_overlaid, text.type, text, by, start, count)


def left_of(text: pa.Array, count: int) -> pa.Array:
    return pc.utf8_slice_codeunits(text, 0, max(count, 0))


def piece(text: pa.Array, start: int, count: int | None) -> pa.Array:
    """`substring` from a place counted from 1, or, without a count, from the end."""
    if start < 0:
        return pc.utf8_slice_codeunits(text, start)
    return pc.utf8_slice_codeunits(text, start - 1, None if count is None else start - 1 + max(count, 0))


def piece_of(text: pa.Array, start: pa.Array, count: pa.Array) -> pa.Array:
    """`substring` of any start: a negative one counts from the end, 0 is the same as 1."""
    return of_distinct(_piece, text.type, text, start, count)


def right_of(text: pa.Array, count: pa.Array) -> pa.Array:
    return of_distinct(lambda one, n: one[-n:] if n > 0 else one[:0], text.type, text, count)


def substring_index(text: pa.Array, delimiter: pa.Array, count: pa.Array) -> pa.Array:
    return of_distinct(_substring_index, pa.string(), text, delimiter, count)


def split_part(text: pa.Array, delimiter: pa.Array, number: pa.Array) -> pa.Array:
    return of_distinct(_split_part, pa.string(), text, delimiter, number)


def place_of(text: pa.Array, sought: pa.Array) -> pa.Array:
    """`instr`: from 1; 0: it is not in there."""
    return of_distinct(lambda one, other: one.find(other) + 1, pa.int32(), text, sought)


def place_from(sought: pa.Array, text: pa.Array, start: pa.Array) -> pa.Array:
    """`locate` from a place on; without one it is 0."""
    places = of_distinct(_place_from, pa.int32(), sought, text, start)
    return pc.if_else(start.is_valid(), places, pa.scalar(0, pa.int32()))


def find_in_set(word: pa.Array, words: pa.Array) -> pa.Array:
    return of_distinct(_find_in_set, pa.int32(), word, words)


def contains(text: pa.Array, other: pa.Array, where: str) -> pa.Array:
    """`contains`, `startswith`, `endswith`."""
    return of_distinct(_CONTAINS[where], pa.bool_(), text, other)


def contains_fixed(text: pa.Array, other: str, where: str) -> pa.Array:
    """The same of a constant text."""
    kernel = {"anywhere": pc.match_substring, "start": pc.starts_with, "end": pc.ends_with}[where]
    return kernel(text, other)


def no_such_choice(number: pa.Array, count: int) -> pa.Array:
    """`elt` with no text of that number."""
    bad = np.ones(len(number), dtype=np.bool_)
    base.check(bad, "INVALID_ARRAY_INDEX", f"elt has {count} texts, and none of this number", number)
    return pa.nulls(len(number), pa.string())


def ascii(text: pa.Array) -> pa.Array:
    """The first character's code point; of an empty text 0."""
    first = pc.utf8_slice_codeunits(text, 0, 1)
    return of_distinct(lambda one: ord(one) if one else 0, pa.int32(), first)


def chr(number: pa.Array) -> pa.Array:
    """The character of the last byte of a number; of a negative one none."""
    values = raw(number)
    places = made(np.where(values < 0, 256, values & 0xFF), pa.int64(), number)
    return pa.array([*_LATIN, ""]).take(places)


def soundex(text: pa.Array) -> pa.Array:
    return of_distinct(_soundex, pa.string(), text)


def levenshtein(left: pa.Array, right: pa.Array) -> pa.Array:
    return of_distinct(_distance, pa.int32(), left, right)


def levenshtein_within(left: pa.Array, right: pa.Array, most: int) -> pa.Array:
    """-1: it is more than ``most``."""
    distances = levenshtein(left, right)
    return pc.if_else(pc.less_equal(distances, most), distances, pa.scalar(-1, pa.int32()))


def luhn_check(text: pa.Array) -> pa.Array:
    return of_distinct(_luhn, pa.bool_(), text)


def quote(text: pa.Array) -> pa.Array:
    return of_distinct(lambda one: "'" + one.replace("'", "\\'") + "'", pa.string(), text)


def formatted(*given: Any) -> pa.Array:
    """`format_string`: values, and at last a format of Python's."""
    *values, format_ = given
    return of_distinct(lambda *arguments: format_ % arguments, pa.string(), *values)


def text_or_null_word(text: pa.Array) -> pa.Array:
    return pc.fill_null(text, "null")


def whole_to_text(array: pa.Array) -> pa.Array:
    """Integers as text."""
    return array.cast(pa.string())


def boolean_to_text(array: pa.Array) -> pa.Array:
    return pc.if_else(array, "true", "false")


_LATIN = bytes(range(256)).decode("latin-1")


def _is_binary(array: pa.Array) -> bool:
    return bool(pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type))


def _bounded(*texts: pa.Array) -> None:
    fits_in_texts(sum(int(pc.sum(pc.binary_length(text)).as_py() or 0) for text in texts))


def _reversed(text: str) -> str:
    return text[::-1]


def _trim_left(text: str, characters: str) -> str:
    return text.lstrip(characters) if characters else text


def _trim_right(text: str, characters: str) -> str:
    return text.rstrip(characters) if characters else text


_TRIMS = {
    "left": _trim_left,
    "right": _trim_right,
    "both": lambda text, characters: _trim_left(_trim_right(text, characters), characters),
}


def _padded(left: bool, text: Any, count: int, by: Any) -> Any:
    if count <= len(text) or not by:
        return text[: max(count, 0)]
    missing = count - len(text)
    spare = (by * (missing // len(by) + 1))[:missing]
    return spare + text if left else text + spare


def _translated(text: str, old: str, new: str) -> str:
    table: dict[int, str] = {}
    for n, character in enumerate(old):
        by = new[n] if n < len(new) else ""
        table.setdefault(ord(character), "" if by == "\0" else by)
    return text.translate(table)


_MOST = 2**31 - 1


def _piece(text: Any, start: int, count: int) -> Any:
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = max(min(first + count, _MOST), -_MOST - 1)
    return text[max(first, 0) : end] if end > max(first, 0) else text[:0]


def _overlaid(text: Any, by: Any, start: int, count: int) -> Any:
    size = count if count >= 0 else len(by)
    first = (start - 1 + 2**31) % 2**32 - 2**31  # Java's int
    rest = (start + size + 2**31) % 2**32 - 2**31
    return _piece(text, 1, first) + by + _piece(text, rest, _MOST)


def _substring_index(text: str, delimiter: str, count: int) -> str:
    if not delimiter or not count:
        return ""
    if count > 0:
        at = -1
        for _ in range(count):
            at = text.find(delimiter, at + 1)
            if at < 0:
                return text
        return text[:at]
    at = len(text) - len(delimiter) + 1
    for _ in range(-count):
        at = text.rfind(delimiter, 0, at - 1 + len(delimiter)) if at > 0 else -1
        if at < 0:
            return text
    return text[at + len(delimiter) :]


def _split_part(text: str, delimiter: str, number: int) -> str | Wrong:
    if number == 0:
        return Wrong("INVALID_INDEX_OF_ZERO", "split_part counts from 1, or from -1 backwards")
    parts = text.split(delimiter) if delimiter else [text]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _place_from(sought: str, text: str, start: int) -> int:
    if start < 1:
        return 0
    return text.find(sought, start - 1) + 1 if sought else 1


def _find_in_set(word: str, words: str) -> int:
    parts = [] if "," in word else words.split(",")
    return parts.index(word) + 1 if word in parts else 0


_CONTAINS = {
    "anywhere": lambda text, other: other in text,
    "start": lambda text, other: text.startswith(other),
    "end": lambda text, other: text.endswith(other),
}
_SOUNDEX = "01230127022455012623017202"


def _soundex(text: str) -> str:
    if not text or not (text[0].isascii() and text[0].isalpha()):
        return text
    letters, last = text[0].upper(), _SOUNDEX[ord(text[0].upper()) - 65]
    for character in text[1:]:
        if not (character.isascii() and character.isalpha()):
            last = "0"
            continue
        code = _SOUNDEX[ord(character.upper()) - 65]
        if code == "7":
            continue
        if code not in ("0", last):
            letters += code
            if len(letters) > 3:
                break
        last = code
    return letters.ljust(4, "0")


def _distance(left: str, right: str) -> int:
    if left == right:
        return 0
    one, other = (np.frombuffer(text.encode("utf-32-le"), np.uint32) for text in (left, right))
    if len(one) < len(other):
        one, other = other, one
    steps = np.arange(len(one) + 1)
    row = steps
    for n, character in enumerate(other.tolist(), 1):
        best = np.minimum(row[1:] + 1, row[:-1] + (one != character))
        row = np.minimum.accumulate(np.concatenate(([n], best)) - steps) + steps
    return int(row[-1])


def _luhn(text: str) -> bool:
    if not text or not all(character.isdecimal() and character <= "\uffff" for character in text):
        return False
    digits = [int(character) for character in reversed(text)]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0
