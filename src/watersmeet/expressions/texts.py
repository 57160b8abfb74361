"""Texts: cut, put together, searched, in other cases, encoded and digested; most of it for BINARY, too."""

from __future__ import annotations

import base64 as base64_
import binascii
import hashlib
import re
import unicodedata
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.expressions import base
from watersmeet.expressions.arrays import concat_lists, reverse_list
from watersmeet.expressions.base import (
    INT64,
    MOST_TEXT,
    Wrong,
    arrow,
    build_array,
    by_value,
    fits_in_texts,
    of_distinct,
    raw,
)
from watersmeet.expressions.conditionals import compared
from watersmeet.expressions.rules import (
    Compiler,
    Restricted,
    Rule,
    arguments,
    computed,
    nullable,
    only,
    optional,
)
from watersmeet.expressions.typed_tree import (
    TypedTree,
    UnsupportedExpression,
    call,
    constant,
    constant_value,
    or_null,
    require,
    widen_value,
)
from watersmeet.spec.model import Expr
from watersmeet.types.sql_type import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTEGERS,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    VOID,
)


@arrow("upper")
def upper(text: pa.Array) -> pa.Array:
    return pc.ascii_upper(text) if _is_ascii(text) else of_distinct(_upper, pa.string(), text)


@arrow("lower")
def lower(text: pa.Array) -> pa.Array:
    return pc.ascii_lower(text) if _is_ascii(text) else of_distinct(_lower, pa.string(), text)


@arrow("mask")
def mask(
    text: pa.Array, upper_: str | None, lower_: str | None, digit: str | None, other: str | None
) -> pa.Array:
    """Replace letters and digits by their substitutes; None leaves them as they are.

    The function counts UTF-16 units, as Java does.
    """
    return of_distinct(partial(_mask, (upper_, lower_, digit, other)), pa.string(), text)


def _is_ascii(text: pa.Array) -> bool:
    return bool(pc.all(pc.string_is_ascii(text)).as_py() is not False)


_PAIRS = (
    (0x1C89, 0x1C89, 0x1C8A), (0xA7CB, 0xA7CB, 0x264), (0xA7CC, 0xA7CC, 0xA7CD), (0xA7CE, 0xA7CE, 0xA7CF),
    (0xA7D2, 0xA7D2, 0xA7D3), (0xA7D4, 0xA7D4, 0xA7D5), (0xA7DA, 0xA7DA, 0xA7DB), (0xA7DC, 0xA7DC, 0x19B),
    (0x10D50, 0x10D65, 0x10D70), (0x16EA0, 0x16EB8, 0x16EBB),
)  # fmt: skip
"""(first upper, last upper, first lower)."""
_IGNORABLE = (
    (0x897, 0x897), (0xECE, 0xECE), (0x1ACF, 0x1ADD), (0x1AE0, 0x1AEB), (0xA7F1, 0xA7F1), (0x10D4E, 0x10D4E),
    (0x10D69, 0x10D6D), (0x10D6F, 0x10D6F), (0x10EC5, 0x10EC5), (0x10EFA, 0x10EFF), (0x11241, 0x11241),
    (0x113BB, 0x113C0), (0x113CE, 0x113CE), (0x113D0, 0x113D0), (0x113D2, 0x113D2), (0x113E1, 0x113E2),
    (0x11B60, 0x11B60), (0x11B62, 0x11B64), (0x11B66, 0x11B66), (0x11DD9, 0x11DD9), (0x11F00, 0x11F01),
    (0x11F36, 0x11F3A), (0x11F40, 0x11F40), (0x11F42, 0x11F42), (0x11F5A, 0x11F5A), (0x13439, 0x13440),
    (0x13447, 0x13455), (0x1611E, 0x16129), (0x1612D, 0x1612F), (0x16D40, 0x16D42), (0x16D6B, 0x16D6C),
    (0x16FF2, 0x16FF3), (0x1E030, 0x1E06D), (0x1E08F, 0x1E08F), (0x1E4EB, 0x1E4EF), (0x1E5EE, 0x1E5EF),
    (0x1E6E3, 0x1E6E3), (0x1E6E6, 0x1E6E6), (0x1E6EE, 0x1E6EF), (0x1E6F5, 0x1E6F5), (0x1E6FF, 0x1E6FF),
)  # fmt: skip
"""What a final sigma looks past."""
_LOWER = {
    upper_: lower_ + upper_ - first for first, last, lower_ in _PAIRS for upper_ in range(first, last + 1)
}
_UPPER = {lower_: upper_ for upper_, lower_ in _LOWER.items()}
_TWIN = {
    **dict.fromkeys((*_LOWER, *_UPPER, *range(0x1DF25, 0x1DF2B)), "a"),
    **{code: "\u0301" for first, last in _IGNORABLE for code in range(first, last + 1)},
    0x295: "1",
    0x1171E: "1",
    0x130: "I",  # the only one that gets longer
}
"""Of each character one that Python takes for what ICU takes it for when it decides on a final sigma."""
_UNSTEADY = frozenset(
    "\u0295\u2c2f\u2c5f\ua7c0\ua7c1"
    + "".join(map(chr, (0x19B, 0x264, 0x1C89, 0x1C8A, *range(0xA7CB, 0xA7DD), 0xA7F1)))
)
"""What Java versions do not agree on."""


def _upper(text: str) -> str:
    return text.translate(_UPPER).upper()


def _lower(text: str, skip: int = 0) -> str:
    """Convert a text to lower case, without its first ``skip`` characters."""
    if "Σ" in text:
        twin = text.translate(_TWIN).lower()
        text = "".join(
            twin[n] if character == "Σ" else character for n, character in enumerate(text[skip:], skip)
        )
        return text.translate(_LOWER).lower()
    return text[skip:].translate(_LOWER).lower()


@by_value("initcap", pa.string())
def initcap(text: str) -> str:
    """Convert the first character of each word to title case and the others to lower case.

    Only blanks separate words.
    """
    return " ".join(word and _title(word[0]) + _lower(word, 1) for word in text.split(" "))


def _title(character: str) -> str:
    return chr(_UPPER[ord(character)]) if ord(character) in _UPPER else character.title()


def _mask(by: Sequence[str | None], text: str) -> str | Wrong:
    if not _UNSTEADY.isdisjoint(text):
        return Wrong("MASK", "versions of Java do not agree on which case a character has")
    upper_, lower_, digit, other = by
    masked = []
    for character in text:
        astral = character > "\uffff"
        kind = "" if astral else unicodedata.category(character)
        chosen = {"Lu": upper_, "Ll": lower_, "Nd": digit}.get(kind, other)
        masked.append(character if chosen is None else chosen * 2 if astral else chosen)
    return "".join(masked)


@arrow("length")
def length(text: pa.Array) -> pa.Array:
    """Return the length in characters; for BINARY, in bytes."""
    lengths = pc.binary_length(text) if _is_binary(text) else pc.utf8_length(text)
    return lengths.cast(pa.int32())


@arrow("byte_length")
def byte_length(text: pa.Array) -> pa.Array:
    return pc.binary_length(text).cast(pa.int32())


@arrow("bit_length")
def bit_length(text: pa.Array) -> pa.Array:
    bits = raw(pc.binary_length(text)).astype(np.int64) * 8
    return build_array(bits.astype(np.int32), pa.int32(), text)  # wraps around, as Java's


@arrow("as_binary")
def as_binary(text: pa.Array) -> pa.Array:
    return text.cast(pa.binary())


@arrow("concat")
def concat(*texts: pa.Array) -> pa.Array:
    _check_text_size(*texts)
    return pc.binary_join_element_wise(*texts, pa.scalar("").cast(texts[0].type))


@arrow("concat_ws")
def concat_ws(separator: pa.Array, *texts: pa.Array) -> pa.Array:
    """Compute `concat_ws`; ignore NULLs among the texts."""
    _check_text_size(*texts, *([separator] * len(texts)))
    parts: list[pa.Array] = [pa.repeat("", len(separator))]
    before = pa.repeat(False, len(separator))
    for text in texts:  # the kernel's own way to skip NULLs leaves out rows of NULLs alone
        here = text.is_valid()
        parts.append(pc.if_else(pc.and_(before, here), pc.fill_null(separator, ""), ""))
        parts.append(pc.fill_null(text, ""))
        before = pc.or_(before, here)
    joined = pc.binary_join_element_wise(*parts, "")
    return pc.if_else(separator.is_valid(), joined, pa.scalar(None, pa.string()))


@arrow("reverse")
def reverse(text: pa.Array) -> pa.Array:
    return pc.binary_reverse(text) if _is_binary(text) else of_distinct(_reversed, pa.string(), text)


@arrow("trim")
def trim(text: pa.Array, where: str) -> pa.Array:
    """Trim blanks, but no other white space."""
    return {"both": pc.utf8_trim, "left": pc.utf8_ltrim, "right": pc.utf8_rtrim}[where](text, characters=" ")


@arrow("trim_of")
def trim_of(text: pa.Array, characters: pa.Array, where: str) -> pa.Array:
    return of_distinct(_TRIMS[where], pa.string(), text, characters)


@arrow("pad")
def pad(text: pa.Array, count: pa.Array, by: pa.Array, left: bool) -> pa.Array:
    """Compute `lpad` or `rpad`; a longer text is cut."""
    counts = np.maximum(raw(count).astype(np.int64), 0)
    fits_in_texts(int(np.minimum(counts, MOST_TEXT + 1).sum()) if len(counts) else 0)
    return of_distinct(partial(_pad_text, left), text.type, text, count, by)


@arrow("repeat")
def repeat(text: pa.Array, count: pa.Array) -> pa.Array:
    counts = np.maximum(raw(count), 0)
    sizes = raw(pc.binary_length(text)).astype(np.float64) * counts
    fits_in_texts(int(sizes.sum()))
    return pc.binary_repeat(text, build_array(counts, count.type, count))


@arrow("replace")
def replace(text: pa.Array, old: pa.Array, new: pa.Array) -> pa.Array:
    return of_distinct(lambda one, a, b: one.replace(a, b) if a else one, pa.string(), text, old, new)


@arrow("replace_fixed")
def replace_fixed(text: pa.Array, old: str, new: str) -> pa.Array:
    """Compute `replace` of one constant text by another."""
    if not old:
        return text
    counts = pc.count_substring(text, old)
    grown = raw(pc.binary_length(text)).astype(np.int64).sum()
    grown += raw(counts).astype(np.int64).sum() * max(len(new.encode()) - len(old.encode()), 0)
    fits_in_texts(int(grown))
    return pc.replace_substring(text, old, new)


@arrow("left_of")
def slice_left(text: pa.Array, count: int) -> pa.Array:
    return pc.utf8_slice_codeunits(text, 0, max(count, 0))


@arrow("piece")
def piece(text: pa.Array, start: int, count: int | None) -> pa.Array:
    """Compute `substring` from a position from 1; without a count, it may be from the end."""
    if start < 0:
        return pc.utf8_slice_codeunits(text, start)
    return pc.utf8_slice_codeunits(text, start - 1, None if count is None else start - 1 + max(count, 0))


@arrow("piece_of")
def piece_of(text: pa.Array, start: pa.Array, count: pa.Array) -> pa.Array:
    """Compute `substring` of any start: a negative one counts from the end, 0 equals 1."""
    return of_distinct(_piece, text.type, text, start, count)


@arrow("right_of")
def right_of(text: pa.Array, count: pa.Array) -> pa.Array:
    return of_distinct(lambda one, n: one[-n:] if n > 0 else one[:0], text.type, text, count)


@arrow("place_of")
def place_of(text: pa.Array, sought: pa.Array) -> pa.Array:
    """Compute `instr`: the position from 1, or 0 without a match."""
    return of_distinct(lambda one, other: one.find(other) + 1, pa.int32(), text, sought)


@arrow("place_from")
def place_from(sought: pa.Array, text: pa.Array, start: pa.Array) -> pa.Array:
    """Compute `locate` from a position on; a NULL position gives 0."""
    places = of_distinct(_place_from, pa.int32(), sought, text, start)
    return pc.if_else(start.is_valid(), places, pa.scalar(0, pa.int32()))


@arrow("contains")
def contains(text: pa.Array, other: pa.Array, where: str) -> pa.Array:
    """Compute `contains`, `startswith` or `endswith`."""
    return of_distinct(_CONTAINS[where], pa.bool_(), text, other)


@arrow("contains_fixed")
def contains_fixed(text: pa.Array, other: str, where: str) -> pa.Array:
    """Compute `contains`, `startswith` or `endswith` with a constant text."""
    kernel = {"anywhere": pc.match_substring, "start": pc.starts_with, "end": pc.ends_with}[where]
    return kernel(text, other)


@arrow("no_such_choice")
def no_such_choice(number: pa.Array, count: int) -> pa.Array:
    """Raise the error of `elt` for a number without a text; NULL numbers give NULL."""
    bad = np.ones(len(number), dtype=np.bool_)
    base.check(bad, "INVALID_ARRAY_INDEX", f"elt has {count} texts, and none of this number", number)
    return pa.nulls(len(number), pa.string())


@arrow("ascii")
def code_point_of(text: pa.Array) -> pa.Array:
    """Return the code point of the first character; 0 for an empty text."""
    first = pc.utf8_slice_codeunits(text, 0, 1)
    return of_distinct(lambda one: ord(one) if one else 0, pa.int32(), first)


@arrow("chr")
def character_of(number: pa.Array) -> pa.Array:
    """Return the character of a number's last byte; the empty text for a negative number."""
    values = raw(number)
    places = build_array(np.where(values < 0, 256, values & 0xFF), pa.int64(), number)
    return pa.array([*_LATIN, ""]).take(places)


@arrow("levenshtein_within")
def levenshtein_within(left: pa.Array, right: pa.Array, most: int) -> pa.Array:
    """Compute `levenshtein`, with -1 for a distance above ``most``."""
    distances = levenshtein(left, right)
    return pc.if_else(pc.less_equal(distances, most), distances, pa.scalar(-1, pa.int32()))


@arrow("quote")
def quote(text: pa.Array) -> pa.Array:
    return of_distinct(lambda one: "'" + one.replace("'", "\\'") + "'", pa.string(), text)


@arrow("formatted")
def format_values(*given: Any) -> pa.Array:
    """Compute `format_string` from values and, as the last argument, a Python format."""
    *values, format_ = given
    return of_distinct(lambda *arguments: format_ % arguments, pa.string(), *values)


@arrow("text_or_null_word")
def text_or_null_word(text: pa.Array) -> pa.Array:
    return pc.fill_null(text, "null")


@arrow("whole_to_text")
def whole_to_text(array: pa.Array) -> pa.Array:
    """Cast integers to text."""
    return array.cast(pa.string())


@arrow("boolean_to_text")
def boolean_to_text(array: pa.Array) -> pa.Array:
    return pc.if_else(array, "true", "false")


_LATIN = bytes(range(256)).decode("latin-1")


def _is_binary(array: pa.Array) -> bool:
    return bool(pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type))


def _check_text_size(*texts: pa.Array) -> None:
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


def _pad_text(left: bool, text: Any, count: int, by: Any) -> Any:
    if count <= len(text) or not by:
        return text[: max(count, 0)]
    missing = count - len(text)
    spare = (by * (missing // len(by) + 1))[:missing]
    return spare + text if left else text + spare


@by_value("translate", pa.string())
def translate(text: str, old: str, new: str) -> str:
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


@by_value("overlay")
def overlay(text: Any, by: Any, start: int, count: int) -> Any:
    size = count if count >= 0 else len(by)
    first = (start - 1 + 2**31) % 2**32 - 2**31  # Java's int
    rest = (start + size + 2**31) % 2**32 - 2**31
    return _piece(text, 1, first) + by + _piece(text, rest, _MOST)


@by_value("substring_index", pa.string())
def substring_index(text: str, delimiter: str, count: int) -> str:
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


@by_value("split_part", pa.string())
def split_part(text: str, delimiter: str, number: int) -> str | Wrong:
    if number == 0:
        return Wrong("INVALID_INDEX_OF_ZERO", "split_part counts from 1, or from -1 backwards")
    parts = text.split(delimiter) if delimiter else [text]
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _place_from(sought: str, text: str, start: int) -> int:
    if start < 1:
        return 0
    return text.find(sought, start - 1) + 1 if sought else 1


@by_value("find_in_set", pa.int32())
def find_in_set(word: str, words: str) -> int:
    parts = [] if "," in word else words.split(",")
    return parts.index(word) + 1 if word in parts else 0


_CONTAINS = {
    "anywhere": lambda text, other: other in text,
    "start": lambda text, other: text.startswith(other),
    "end": lambda text, other: text.endswith(other),
}
_SOUNDEX = "01230127022455012623017202"


@by_value("soundex", pa.string())
def soundex(text: str) -> str:
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


@by_value("levenshtein", pa.int32())
def levenshtein(left: str, right: str) -> int:
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


@by_value("luhn_check", pa.bool_())
def luhn_check(text: str) -> bool:
    if not text or not all(character.isdecimal() and character <= "\uffff" for character in text):
        return False
    digits = [int(character) for character in reversed(text)]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


@arrow("digest")
def digest(data: pa.Array, name: str) -> pa.Array:
    """Compute `md5`, `sha1`, or `sha2` of constant length, in hexadecimal digits."""
    return of_distinct(lambda one: hashlib.new(name, one).hexdigest(), pa.string(), data)


@arrow("crc32")
def crc32(data: pa.Array) -> pa.Array:
    return of_distinct(binascii.crc32, INT64, data)


@arrow("hex_of_bytes")
def hex_of_bytes(data: pa.Array) -> pa.Array:
    return of_distinct(lambda one: one.hex().upper(), pa.string(), data)


@arrow("hex_of_number")
def hex_of_number(number: pa.Array) -> pa.Array:
    return of_distinct(lambda one: f"{one % 2**64:X}", pa.string(), number)


@arrow("unhex")
def unhex(text: pa.Array) -> pa.Array:
    """Compute `unhex`; NULL if a character is not a hexadecimal digit."""
    return of_distinct(_unhex, pa.binary(), text)


@arrow("encode")
def encode(text: pa.Array, charset: str) -> pa.Array:
    """Encode a text; ``charset`` is Python's name of the character set."""
    return of_distinct(partial(_encode_text, charset), pa.binary(), text)


@arrow("decode")
def decode(data: pa.Array, charset: str) -> pa.Array:
    return of_distinct(partial(_decode_bytes, charset), pa.string(), data)


@arrow("is_utf8")
def is_utf8(data: pa.Array) -> pa.Array:
    return of_distinct(_is_utf8, pa.bool_(), data)


@arrow("made_utf8")
def made_utf8(data: pa.Array) -> pa.Array:
    """Decode UTF-8; replace invalid bytes by U+FFFD."""
    return of_distinct(lambda one: one.decode("utf-8", "replace"), pa.string(), data)


@arrow("validated_utf8")
def validated_utf8(data: pa.Array) -> pa.Array:
    wrong = Wrong("INVALID_UTF8_STRING", "bytes are not UTF-8")
    return of_distinct(lambda one: one.decode() if _is_utf8(one) else wrong, pa.string(), data)


@by_value("sha2", pa.string())
def sha2(data: bytes, bits: int) -> str | None:
    """Compute `sha2`; NULL for an unsupported number of bits."""
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if name is None else hashlib.new(name, data).hexdigest()


@by_value("base64", pa.string())
def base64(data: bytes) -> str:
    """Encode data in Base64, in lines of 76 characters."""
    text = base64_.b64encode(data).decode()
    return "\r\n".join(text[n : n + 76] for n in range(0, len(text), 76))


_HEX = frozenset("0123456789abcdefABCDEF")


def _unhex(text: str) -> bytes | None:
    return bytes.fromhex("0" * (len(text) % 2) + text) if _HEX.issuperset(text) else None


@by_value("bytes_of_hex", pa.binary())
def bytes_of_hex(text: str) -> bytes | Wrong:
    """Compute `to_binary` of hexadecimal digits."""
    data = _unhex(text)
    return Wrong("CONVERSION_INVALID_INPUT", "a text is not a hexadecimal number") if data is None else data


_MALFORMED = Wrong("MALFORMED_CHARACTER_CODING", "what the character set does not have")


def _encode_text(charset: str, text: str) -> bytes | Wrong:
    if charset == "utf-16" and text:  # Java's is big-endian, with a mark
        return b"\xfe\xff" + text.encode("utf-16-be")
    try:
        return text.encode(charset) if charset != "utf-16" else b""
    except UnicodeEncodeError:
        return _MALFORMED


def _decode_bytes(charset: str, data: bytes) -> str | Wrong:
    try:
        return data.decode(charset)
    except UnicodeDecodeError:
        return _MALFORMED


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_KEPT = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-*_")
_URL = {byte: chr(byte) if byte in _KEPT else "+" if byte == 0x20 else f"%{byte:02X}" for byte in range(256)}


@by_value("url_encode", pa.string())
def url_encode(text: str) -> str:
    return "".join(map(_URL.__getitem__, text.encode()))


def _digit(character: str) -> int:
    """Return the value of a digit like Java's `Character.digit` to base 16, or -1."""
    if character in _HEX:
        return int(character, 16)
    if character.isdecimal() and character <= "\uffff":
        return int(character)
    wide = ord(character) - 0xFEE0  # full width
    return int(chr(wide), 16) if 0x20 < wide < 0x7F and chr(wide) in _HEX else -1


@by_value("url_decode", pa.string())
def url_decode(text: str) -> str | Wrong:
    wrong = Wrong("CANNOT_DECODE_URL", "a text is not an encoded URL")
    decoded: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "%":
            decoded.append(" " if text[at] == "+" else text[at])
            at += 1
            continue
        data = bytearray()
        while at + 2 < len(text) and text[at] == "%":
            high, low = text[at + 1], _digit(text[at + 2])
            value = 0 if high == "+" else _digit(high)
            if low < 0 or value < 0:
                return wrong
            data.append(value * 16 + low)
            at += 3
        if at < len(text) and text[at] == "%":
            return wrong
        decoded.append(data.decode("utf-8", "replace"))
    return "".join(decoded)


_SMALL = (TINYINT, SMALLINT, INT, VOID)
as_count = only(_SMALL, "{} as a number of characters", INT)


def as_text(compiler: Compiler, value: TypedTree) -> TypedTree:
    """Convert an argument to STRING by Spark's implicit casts."""
    require(value.type != BINARY, "BINARY as STRING may be no UTF-8")
    return compiler.cast_to(value, STRING)


def as_bytes(_: Compiler, value: TypedTree) -> TypedTree:
    """Convert an argument to BINARY."""
    if value.type == BINARY:
        return value
    require(value.type == STRING, f"{value.type} as BINARY")
    return call(as_binary, BINARY, value)


def _either(compiler: Compiler, value: TypedTree) -> TypedTree:
    return value if value.type == BINARY else as_text(compiler, value)


def _alike(compiler: Compiler, *values: TypedTree) -> list[TypedTree]:
    """Convert the arguments to texts, unless all are BINARY."""
    if any(value.type == BINARY for value in values):
        require(all(value.type == BINARY for value in values), "a text beside BINARY")
        return list(values)
    return [as_text(compiler, value) for value in values]


def is_constant(value: TypedTree) -> bool:
    return value.tree[0] == "constant" and value.tree[1] is not None


def _compile_left(compiler: Compiler, text: TypedTree, count: TypedTree) -> TypedTree:
    if text.type != BINARY and is_constant(count) and count.type in _SMALL:
        return call(slice_left, STRING, as_text(compiler, text), options=[constant_value(count)])
    return _substring(compiler, text, constant(1, INT), count)


def _substring(
    compiler: Compiler, text: TypedTree, start: TypedTree, count: TypedTree | None = None
) -> TypedTree:
    own = _either(compiler, text)
    first, many = as_count(compiler, start), None if count is None else as_count(compiler, count)
    if own.type == STRING and is_constant(first) and (many is None or is_constant(many)):
        at, size = constant_value(first), None if many is None else constant_value(many)
        if at >= 1 or (at < 0 and size is None):
            return call(piece, STRING, own, options=[at, size])
    return call(piece_of, own.type, own, first, many or constant(2**31 - 1, INT))


def _trim(where: str, swapped: bool) -> Rule:
    """Build the rule of a trim function; ``swapped``: the characters are the first argument."""

    def make(compiler: Compiler, first: TypedTree, second: TypedTree | None = None) -> TypedTree:
        if second is None:
            return call(trim, STRING, as_text(compiler, first), options=[where])
        text, characters = (second, first) if swapped else (first, second)
        return compile_trim(compiler, text, characters, where)

    return optional(1, 2, make)


def compile_trim(compiler: Compiler, text: TypedTree, characters: TypedTree | None, where: str) -> TypedTree:
    """TRIM([BOTH | LEADING | TRAILING] … FROM …); ``where``: both, left, right."""
    if characters is None:
        return call(trim, STRING, as_text(compiler, text), options=[where])
    own = as_text(compiler, text), as_text(compiler, characters)
    return call(trim_of, STRING, *own, options=[where])


def _pad(left: bool) -> Rule:
    def make(compiler: Compiler, text: TypedTree, count: TypedTree, by: TypedTree | None = None) -> TypedTree:
        own = (
            as_text(compiler, text),
            as_count(compiler, count),
            as_text(compiler, by or constant(" ", STRING)),
        )
        return call(pad, STRING, *own, options=[left])

    return optional(2, 3, make)


def _replace(compiler: Compiler, text: TypedTree, old: TypedTree, new: TypedTree | None = None) -> TypedTree:
    new = new or constant("", STRING)
    if is_constant(old) and is_constant(new) and (old.type, new.type) == (STRING, STRING):
        options = [constant_value(old), constant_value(new)]
        return call(replace_fixed, STRING, as_text(compiler, text), options=options)
    return call(replace, STRING, *(as_text(compiler, part) for part in (text, old, new)))


def compile_overlay(
    compiler: Compiler, text: TypedTree, by: TypedTree, start: TypedTree, count: TypedTree | None = None
) -> TypedTree:
    own = _alike(compiler, text, by)
    size = constant(-1, INT) if count is None else as_count(compiler, count)
    return call(overlay, own[0].type, *own, as_count(compiler, start), size)


def _contains(where: str) -> Rule:
    def make(compiler: Compiler, text: TypedTree, other: TypedTree) -> TypedTree:
        own, sought = _alike(compiler, text, other)
        if own.type == STRING and is_constant(sought):
            return call(contains_fixed, BOOLEAN, own, options=[constant_value(sought), where])
        return call(contains, BOOLEAN, own, sought, options=[where])

    return arguments(2, make)


def _locate(
    compiler: Compiler, sought: TypedTree, text: TypedTree, start: TypedTree | None = None
) -> TypedTree:
    own = as_text(compiler, sought), as_text(compiler, text)
    if start is None:
        return call(place_of, INT, own[1], own[0])
    return call(place_from, INT, *own, as_count(compiler, start))


def compile_concat(compiler: Compiler, values: Sequence[TypedTree]) -> TypedTree:
    """Compile ``||`` and `concat`."""
    require(values, "a concat of nothing")
    if all(value.type.element is not None for value in values):
        alike = compiler.alike(values)
        return call(concat_lists, alike[0].type, *alike)
    texts = _alike(compiler, *values)
    return call(concat, texts[0].type, *texts)


def _reverse(compiler: Compiler, value: TypedTree) -> TypedTree:
    if value.type.element is not None:
        return call(reverse_list, value.type, value)
    text = _either(compiler, value)
    return call(reverse, text.type, text)


def _concat_ws(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
    require(nodes, "a concat_ws of nothing")
    return call(concat_ws, STRING, *(as_text(compiler, value) for value in compiler.all(nodes)))


def _elt(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
    require(len(nodes) >= 2, "an elt of nothing")
    number, *given = compiler.all(nodes)
    number, texts = as_count(compiler, number), [as_text(compiler, value) for value in given]
    conditions = [compared(compiler, "=", number, constant(n, INT)) for n in range(1, len(texts) + 1)]
    return compiler.case_of(conditions, texts, call(no_such_choice, STRING, number, options=[len(texts)]))


def _mask_rule(compiler: Compiler, text: TypedTree, *by: TypedTree) -> TypedTree:
    chosen: list[Any] = ["X", "x", "n", None]
    for n, replacement in enumerate(by):
        require(
            replacement.tree[0] == "constant" and replacement.type in (STRING, VOID),
            "what stands for letters is not constant",
        )
        chosen[n] = replacement.tree[1]
        require(
            chosen[n] is None or (len(chosen[n]) == 1 and chosen[n] <= "\uffff"),
            "what stands for letters is not one character",
        )
    return call(mask, STRING, as_text(compiler, text), options=chosen)


def _levenshtein(
    compiler: Compiler, left: TypedTree, right: TypedTree, most: TypedTree | None = None
) -> TypedTree:
    own = as_text(compiler, left), as_text(compiler, right)
    if most is None:
        return call(levenshtein, INT, *own)
    if most.type != INT:  # of NULL Spark says now this and now that
        raise UnsupportedExpression("a threshold that is not an INT")
    return call(levenshtein_within, INT, *own, options=[constant_value(most)])


def _format_string(compiler: Compiler, nodes: Sequence[Expr]) -> TypedTree:
    require(nodes, "a format_string of nothing")
    format_, *values = compiler.all(nodes)
    require(format_.type == STRING, "a format that is not text")
    parts = re.split(r"(%%|%s|%d)", constant_value(format_))
    require(all("%" not in part for part in parts[::2]), "a format with other directives than %s, %d and %%")
    given = [part for part in parts[1::2] if part != "%%"]
    require(len(given) == len(values), "a format with another number of directives than of arguments")
    own: list[TypedTree] = []
    for directive, value in zip(given, values, strict=True):
        fits = value.type in INTEGERS or (directive == "%s" and value.type in (STRING, BOOLEAN))
        require(fits, f"{directive} of {value.type}")
        own.append(call(text_or_null_word, STRING, as_text(compiler, value)))
    wanted = "".join("%s" if part == "%d" else part for part in parts)
    if not own:
        return constant(wanted.replace("%%", "%"), STRING)
    return call(format_values, STRING, *own, options=[wanted])


def _typeof(_: Compiler, value: TypedTree) -> TypedTree:
    require(value.type in (*INTEGERS, *_NAMED) or value.type.is_decimal, f"the name of {value.type}")
    return constant(str(value.type).lower(), STRING)


def _collation(compiler: Compiler, value: TypedTree) -> TypedTree:
    require(value.type == STRING, f"the collation of {value.type}")
    return constant("SYSTEM.BUILTIN.UTF8_BINARY", STRING)


_NAMED = (
    FLOAT, DOUBLE, BOOLEAN, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, VOID,
)  # fmt: skip

_LENGTH = computed(length, INT, _either)
_LOCATE = optional(2, 3, _locate)


def _hex(compiler: Compiler, value: TypedTree) -> TypedTree:
    if value.type in INTEGERS:
        return call(hex_of_number, STRING, widen_value(value, BIGINT))
    return call(hex_of_bytes, STRING, as_bytes(compiler, value))


_CHARSETS = {
    "UTF-8": "utf-8", "US-ASCII": "ascii", "ISO-8859-1": "latin-1", "UTF-16BE": "utf-16-be",
    "UTF-16LE": "utf-16-le", "UTF-16": "utf-16", "UTF-32": "utf-32-be",
}  # fmt: skip
"""Spark's names with Python's."""


def _charset(value: TypedTree, refused: Sequence[str] = ()) -> str:
    name = str(constant_value(value)).upper()
    require(name in _CHARSETS and name not in refused, f"the character set {name}")
    return _CHARSETS[name]


def _encode(compiler: Compiler, text: TypedTree, charset: TypedTree) -> TypedTree:
    return call(encode, BINARY, as_text(compiler, text), options=[_charset(charset)])


def _decode(_: Compiler, data: TypedTree, charset: TypedTree) -> TypedTree:
    require(data.type == BINARY, f"decode of {data.type}")
    return call(decode, STRING, data, options=[_charset(charset, ("UTF-16", "UTF-32"))])


def _to_binary(lenient: bool) -> Rule:
    def make(compiler: Compiler, text: TypedTree, format_: TypedTree | None = None) -> TypedTree:
        name = "hex" if format_ is None else str(constant_value(format_)).lower()
        own = as_text(compiler, text)
        if name in ("utf-8", "utf8"):
            return call(as_binary, BINARY, own)
        require(name == "hex", f"to_binary by {name}")
        decoded = call(bytes_of_hex, BINARY, own)
        return or_null(decoded) if lenient else decoded

    return optional(1, 2, make)


_TEXTS = "texts"
_CONSTANT_FORMAT = "a constant format of %s, %d and %%; texts, integers and BOOLEANs"
_HEX_AND_UTF8 = "hex and UTF-8"

FUNCTIONS: dict[str, Rule | Restricted] = {
    "length": _LENGTH,
    "len": _LENGTH,
    "char_length": _LENGTH,
    "character_length": _LENGTH,
    "octet_length": computed(byte_length, INT, _either),
    "bit_length": computed(bit_length, INT, _either),
    "reverse": arguments(1, _reverse),
    **dict.fromkeys(("upper", "ucase"), computed(upper, STRING, as_text)),
    **dict.fromkeys(("lower", "lcase"), computed(lower, STRING, as_text)),
    "initcap": computed(initcap, STRING, as_text),
    "trim": _trim("both", True),
    "ltrim": _trim("left", True),
    "rtrim": _trim("right", True),
    "btrim": _trim("both", False),
    "lpad": Restricted(_pad(True), _TEXTS),
    "rpad": Restricted(_pad(False), _TEXTS),
    "repeat": computed(repeat, STRING, as_text, as_count),
    "space": arguments(
        1,
        lambda compiler, count: call(repeat, STRING, constant(" ", STRING), as_count(compiler, count)),
    ),
    "replace": optional(2, 3, _replace),
    "translate": computed(translate, STRING, as_text, as_text, as_text),
    "overlay": optional(3, 4, compile_overlay),
    "left": arguments(2, _compile_left),
    "right": Restricted(computed(right_of, STRING, as_text, as_count), _TEXTS),
    "substring": optional(2, 3, _substring),
    "substr": optional(2, 3, _substring),
    "substring_index": computed(substring_index, STRING, as_text, as_text, as_count),
    "split_part": computed(split_part, STRING, as_text, as_text, as_count),
    "instr": computed(place_of, INT, as_text, as_text),
    "locate": _LOCATE,
    "position": _LOCATE,
    "find_in_set": computed(find_in_set, INT, as_text, as_text),
    "contains": _contains("anywhere"),
    "startswith": _contains("start"),
    "endswith": _contains("end"),
    "concat": lambda compiler, nodes: compile_concat(compiler, compiler.all(nodes)),
    "concat_ws": _concat_ws,
    "elt": _elt,
    "ascii": computed(code_point_of, INT, as_text),
    **dict.fromkeys(
        ("chr", "char"),
        Restricted(computed(character_of, STRING, only(INTEGERS, "chr of {}", BIGINT)), "integers"),
    ),
    "soundex": computed(soundex, STRING, as_text),
    "levenshtein": Restricted(optional(2, 3, _levenshtein), "a constant threshold"),
    "luhn_check": computed(luhn_check, BOOLEAN, as_text),
    "mask": Restricted(optional(1, 5, _mask_rule), "constant replacements"),
    "quote": computed(quote, STRING, as_text),
    "format_string": Restricted(_format_string, _CONSTANT_FORMAT),
    "printf": Restricted(_format_string, _CONSTANT_FORMAT),
    "typeof": arguments(1, _typeof),
    "collation": arguments(1, _collation),
    "md5": computed(digest, STRING, as_bytes, options=["md5"]),
    "sha": computed(digest, STRING, as_bytes, options=["sha1"]),
    "sha1": computed(digest, STRING, as_bytes, options=["sha1"]),
    "sha2": computed(sha2, STRING, as_bytes, only(_SMALL, "{} as a number of bits", INT)),
    "crc32": computed(crc32, BIGINT, as_bytes),
    "base64": computed(base64, STRING, as_bytes),
    "hex": arguments(1, _hex),
    "unhex": computed(unhex, BINARY, as_text),
    "encode": Restricted(arguments(2, _encode), "a constant character set"),
    "decode": Restricted(arguments(2, _decode), "a constant character set other than UTF-16 and UTF-32"),
    "to_binary": Restricted(_to_binary(False), _HEX_AND_UTF8),
    "try_to_binary": Restricted(_to_binary(True), _HEX_AND_UTF8),
    "is_valid_utf8": computed(is_utf8, BOOLEAN, as_bytes),
    "make_valid_utf8": computed(made_utf8, STRING, as_bytes),
    "validate_utf8": computed(validated_utf8, STRING, as_bytes),
    "try_validate_utf8": nullable(computed(validated_utf8, STRING, as_bytes)),
    "url_encode": computed(url_encode, STRING, as_text),
    "url_decode": computed(url_decode, STRING, as_text),
    "try_url_decode": nullable(computed(url_decode, STRING, as_text)),
}
