"""Upper and lower case, and what masks letters, as ICU 78 (Unicode 17) and Java do.

Python's tables are older and grow with its version: what Unicode 15 to 17 added is written down here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernel.expressions.functions.base import Wrong, of_distinct


def upper(text: pa.Array) -> pa.Array:
    return pc.ascii_upper(text) if _is_ascii(text) else of_distinct(_upper, pa.string(), text)


def lower(text: pa.Array) -> pa.Array:
    return pc.ascii_lower(text) if _is_ascii(text) else of_distinct(_lower, pa.string(), text)


def initcap(text: pa.Array) -> pa.Array:
    """The first character of each word in title case, the others lower; words are apart by blanks."""
    return of_distinct(_initcap, pa.string(), text)


def mask(
    text: pa.Array, upper_: str | None, lower_: str | None, digit: str | None, other: str | None
) -> pa.Array:
    """Letters and digits by what stands for them; None: as they are. UTF-16 units, as Java counts."""
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
    """In lower case, without the first ``skip`` characters."""
    if "Σ" in text:
        twin = text.translate(_TWIN).lower()
        text = "".join(
            twin[n] if character == "Σ" else character for n, character in enumerate(text[skip:], skip)
        )
        return text.translate(_LOWER).lower()
    return text[skip:].translate(_LOWER).lower()


def _initcap(text: str) -> str:
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
