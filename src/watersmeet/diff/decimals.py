"""The types of what Spark computes with DECIMALs, where they hold every digit: DuckDB computes the same in
them. Types are DuckDB's names, of DECIMALs and of whole numbers.

>>> widest(["DECIMAL(9,2)", "BIGINT"]), widest(["DECIMAL(38,30)", "INTEGER"])
('DECIMAL(22,2)', None)
>>> added("DECIMAL(9,2)", "INTEGER"), multiplied("DECIMAL(9,2)", "INTEGER"), summed("DECIMAL(30,2)")
('DECIMAL(13,2)', 'DECIMAL(20,2)', 'DECIMAL(38,2)')
"""

from __future__ import annotations

from collections.abc import Iterable

from watersmeet.types.common import common_of, holds
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import MOST_DIGITS, SqlType, decimal

_MORE = 10
"""Digits that a sum of many has more than one of them."""


def widest(kinds: Iterable[str]) -> str | None:
    """That in which values of all of these are compared; None: it does not hold all digits."""
    types = [sql_type(kind) for kind in kinds]
    common = common_of(types)
    if common is None or not common.is_decimal or not all(holds(common, type_) for type_ in types):
        return None
    return str(common)


def as_decimal(kind: str) -> str:
    """The DECIMAL that holds all values of a type."""
    return str(_of(kind))


def fits(kind: str, wide: str) -> bool:
    """Whether a DECIMAL holds every value of a type."""
    return holds(sql_type(wide), sql_type(kind))


def added(left: str, right: str) -> str | None:
    """Of a sum or a difference."""
    one, other = _of(left), _of(right)
    scale = max(one.scale, other.scale)
    return _named(max(one.whole_digits, other.whole_digits) + scale + 1, scale)


def multiplied(left: str, right: str) -> str | None:
    """Of a product."""
    one, other = _of(left), _of(right)
    return _named(one.digits + other.digits + 1, one.scale + other.scale)


def summed(kind: str) -> str:
    """Of the sum of many, which stops a job if it has more digits."""
    own = _of(kind)
    return str(decimal(min(own.digits + _MORE, MOST_DIGITS), own.scale))


def _of(kind: str) -> SqlType:
    own = sql_type(kind).as_decimal
    assert own is not None
    return own


def _named(digits: int, scale: int) -> str | None:
    return None if digits > MOST_DIGITS else str(decimal(digits, scale))
