"""Types whose text values tasks read as Spark does. Imports nothing heavy."""

from __future__ import annotations

from watersmeet.types.sql_type import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    SqlType,
    decimal,
)

_TEXT_TYPES = frozenset({STRING, BOOLEAN, FLOAT, DOUBLE, DATE, TIMESTAMP, TIMESTAMP_NTZ})
COMPACT_DIGITS, MAX_DIGITS = 18, 38
"""Of decimals that Spark computes as 64 bits: others cost a fifth of reading JSON more. And of any."""


def is_text_type(type_: SqlType) -> bool:
    """Return True if tasks can read texts, as in CSV, as values of the type."""
    return type_.is_integer or type_.is_decimal or type_ in _TEXT_TYPES


def is_json_type(type_: SqlType) -> bool:
    """Return True if tasks can read JSON values as values of the type.

    FLOAT is unsupported because Spark's parser rounds it twice. DECIMAL is unsupported because Arrow
    changes a number with too many digits, and its original spelling is not visible here.
    """
    return is_text_type(type_) and type_ != FLOAT and not type_.is_decimal


def wider_decimal(type_: SqlType) -> SqlType | None:
    """Return the type as which Spark reads a decimal, or None if it has no more fraction digits.

    If None, Spark does not report lost digits.

    >>> [str(wider_decimal(decimal(*digits))) for digits in ((10, 2), (17, 2), (18, 2), (20, 2), (38, 2))]
    ['DECIMAL(18,10)', 'DECIMAL(18,3)', 'None', 'DECIMAL(38,20)', 'None']
    """
    digits = COMPACT_DIGITS if type_.digits <= COMPACT_DIGITS else MAX_DIGITS
    more = digits - type_.digits
    return decimal(digits, type_.scale + more) if more > 0 else None
