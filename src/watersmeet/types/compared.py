"""Rule: as what Spark compares ARRAYs and STRUCTs, and what functions of ARRAYs and MAPs look for.

Less is taken here than side by side (`types.common`): an INT and a DECIMAL(10,2) are compared, an ARRAY of
INTs and one of those are not, for neither element's type holds all values of the other one's.
"""

from __future__ import annotations

from dataclasses import replace

from watersmeet.types.common import combined, common_type, holds
from watersmeet.types.sql_type import FLOAT, Field, SqlType, struct


def tightest_type(left: SqlType, right: SqlType, names: bool = True) -> SqlType | None:
    """One of the two that holds all values of both, or DOUBLE, or TIMESTAMP; None: Spark compares them not.

    NULL fits all.

    Args:
        names: whether fields of STRUCTs have to be of the same names.

    >>> from watersmeet.types.parser import sql_type
    >>> tightest_type(sql_type("ARRAY<INT>"), sql_type("ARRAY<BIGINT>"))
    SqlType('ARRAY<BIGINT>')
    >>> tightest_type(sql_type("ARRAY<INT>"), sql_type("ARRAY<DECIMAL(10,2)>"))
    """
    if left == right or left.is_void or right.is_void:
        return right if left.is_void else left
    if left.is_nested or right.is_nested:
        return combined(left, right, lambda one, other: tightest_type(one, other, names), names=names)
    if left.is_decimal or right.is_decimal:
        for wide, narrow in ((left, right), (right, left)):
            if wide.is_decimal and narrow.is_integer:
                return wide if holds(wide, narrow) else None
        return None
    numbers = left.is_number and right.is_number
    return common_type(left, right) if numbers or (left.is_time and right.is_time) else None


def is_compared(left: SqlType, right: SqlType) -> bool:
    """Return whether Spark compares two ARRAYs or STRUCTs: one type holds both, or only names are unlike.

    >>> from watersmeet.types.parser import sql_type
    >>> left, named, wide, both = map(sql_type, (
    ...     "STRUCT<a: INT>", "STRUCT<b: INT>", "STRUCT<A: BIGINT>", "STRUCT<b: BIGINT>"))
    >>> is_compared(left, named), is_compared(left, wide), is_compared(left, both)
    (True, True, False)
    """
    return tightest_type(left, right) is not None or _without_names(left) == _without_names(right)


def _without_names(type_: SqlType) -> SqlType:
    """Return the type with the places of fields for their names; all may be NULL."""
    if type_.fields:
        return struct([Field(str(n), _without_names(own.type)) for n, own in enumerate(type_.fields)])
    return replace(type_, parts=tuple(map(_without_names, type_.parts))) if type_.parts else type_


def loses_digits(left: SqlType, right: SqlType) -> bool:
    """Whether somewhere in the two a FLOAT meets an integer: functions of ARRAYs and MAPs compare them as
    FLOATs, where operators compare them as DOUBLEs."""
    if left.is_nested and right.is_nested:
        return any(map(loses_digits, left.inner, right.inner))
    return FLOAT in (left, right) and (left.is_integer or right.is_integer)
