"""Numbers of rows and sizes, as settings and options write them."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{i}B": 1 << 10 * power for power, letter in enumerate("KMGT", 1) for i in ("", "I")
}
_DIGITS = r"\d{1,18}"
"""No amount has more."""
_ROWS, _UNITS_OF_TIME = re.compile(_DIGITS), re.compile(rf"[+-]?{_DIGITS}")
_SIZE = re.compile(rf"({_DIGITS}(?:\.{_DIGITS})?)\s*([KMGT]?I?B|[KMGT]|)")

_SHARE = re.compile(rf"({_DIGITS}(?:\.{_DIGITS})?)\s*(%?)")

ROWS_HINT = "use a whole number above zero, or 'none'"


def is_none(written: str) -> bool:
    return written.strip().lower() in ("none", "off", "unlimited")


def rows_in(written: str) -> int | None:
    """A whole number above zero; None for any other text.

    >>> rows_in(" 10 "), rows_in("0"), rows_in("9" * 5000)
    (10, None, None)
    """
    return int(written) or None if _ROWS.fullmatch(written.strip()) else None


def count_or_share(written: str) -> int | Fraction | None:
    """A whole number, or a share of something: ``1 %``, ``0.01``. None for any other text.

    >>> count_or_share("0"), count_or_share("0.5 %"), count_or_share("0.01"), count_or_share("101 %")
    (0, Fraction(1, 200), Fraction(1, 100), None)
    """
    match = _SHARE.fullmatch(written.strip())
    if match is None:
        return None
    if not match[2] and "." not in match[1]:
        return int(match[1])
    share = Fraction(match[1]) / (100 if match[2] else 1)
    return share if share <= 1 else None


def units_in(written: str) -> int | None:
    """A whole number, of units of a time; None for any other text."""
    return int(written) if _UNITS_OF_TIME.fullmatch(written.strip()) else None


def bytes_in(written: str, least: int = 1) -> int | None:
    """``512 MB``, ``2g``, ``1073741824``; a kilobyte has 1,024 bytes, as Spark's have. None: it is less, or
    no size.

    >>> bytes_in("2 KB"), bytes_in("1.5k"), bytes_in("0"), bytes_in("many"), bytes_in("9" * 400)
    (2048, 1536, None, None, None)
    """
    match = _SIZE.fullmatch(written.strip().upper())
    if match is None:
        return None
    unit = match[2] + "B" if match[2] in tuple("KMGT") and match[2] else match[2]
    size = int(float(match[1]) * _UNITS[unit])
    return size if size >= least else None


def bytes_hint(least: int = 1) -> str:
    return f"a size{f' of at least {least >> 20} MB' if least > 1 else ''}, such as '512 MB' or '2 GB'"
