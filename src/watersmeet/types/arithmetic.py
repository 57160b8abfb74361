"""Rule: of what type Spark's arithmetic is: sums, products, quotients and remainders, and what is summed up
over rows.

Of DECIMALs every digit of the result is kept as long as 38 will do; then digits behind the point go, down to
6 of them.
"""

from __future__ import annotations

from watersmeet.types.common import common_type
from watersmeet.types.sql_type import BIGINT, DOUBLE, MOST_DIGITS, STRING, SqlType, decimal

LEAST_SCALE = 6
"""So many digits behind the point are kept when a result has too many."""

_FURTHER_SUMMED = 10
_FURTHER_OF_MEAN = 4


def result_type(operator: str, left: SqlType, right: SqlType) -> SqlType | None:
    """Of ``+``, ``-``, ``*``, ``/``, ``%`` and ``DIV``, between numbers; None: one of them is none.

    >>> str(result_type("*", decimal(10, 2), decimal(5, 2))), str(result_type("/", BIGINT, BIGINT))
    ('DECIMAL(16,4)', 'DOUBLE')
    """
    if not left.is_number or not right.is_number:
        return None
    if operator == "DIV":
        return None if left.is_real or right.is_real else BIGINT
    one, other = left.as_decimal, right.as_decimal
    if one is None or other is None or not (left.is_decimal or right.is_decimal):
        return DOUBLE if operator == "/" else common_type(left, right)
    return fitted(*_EXACT[operator](one, other))


def sum_parts(left: SqlType, right: SqlType) -> tuple[int, int]:
    """Digits and scale of an exact sum or difference of two DECIMALs: they can be more than there are."""
    scale = max(left.scale, right.scale)
    return max(left.whole_digits, right.whole_digits) + scale + 1, scale


def product_parts(left: SqlType, right: SqlType) -> tuple[int, int]:
    return left.digits + right.digits + 1, left.scale + right.scale


def quotient_parts(left: SqlType, right: SqlType) -> tuple[int, int]:
    scale = max(LEAST_SCALE, left.scale + right.digits + 1)
    return left.whole_digits + right.scale + scale, scale


def remainder_parts(left: SqlType, right: SqlType) -> tuple[int, int]:
    scale = max(left.scale, right.scale)
    return min(left.whole_digits, right.whole_digits) + scale, scale


_EXACT = {
    "+": sum_parts, "-": sum_parts, "*": product_parts, "/": quotient_parts, "%": remainder_parts,
}  # fmt: skip


def fitted(digits: int, scale: int) -> SqlType:
    """The DECIMAL of so many digits, or of as many as there are."""
    if digits <= MOST_DIGITS:
        return decimal(digits, scale)
    return decimal(MOST_DIGITS, max(MOST_DIGITS - (digits - scale), min(scale, LEAST_SCALE)))


def total_type(of: SqlType) -> SqlType | None:
    """Of `sum`; None: it is not known here."""
    if of.is_decimal:
        return decimal(min(MOST_DIGITS, of.digits + _FURTHER_SUMMED), of.scale)
    return BIGINT if of.is_integer else _real(of)


def mean_type(of: SqlType) -> SqlType | None:
    """Of `avg`; None: it is not known here."""
    if of.is_decimal:
        scale = min(MOST_DIGITS, of.scale + _FURTHER_OF_MEAN)
        return decimal(min(MOST_DIGITS, of.digits + _FURTHER_OF_MEAN), scale)
    return DOUBLE if of.is_integer else _real(of)


def _real(of: SqlType) -> SqlType | None:
    """Texts are read as numbers."""
    return DOUBLE if of.is_real or of == STRING else None
