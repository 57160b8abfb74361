"""A SQL type as a value: what it is made of, and its one spelling."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
MAX_DECIMAL_DIGITS = 38
"""Of a DECIMAL."""
MAX_NUMBER_CHARACTERS = 1000
"""Of a number that is written in SQL, an amount of an interval among them: Python reads none of very many
digits."""

INTERVAL_FIELDS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")

_DIGITS_OF = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 20}
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Field:
    """Field of a STRUCT; ``name`` is as declared."""

    name: str
    type: SqlType
    not_null: bool = False

    def __str__(self) -> str:
        name = self.name if _PLAIN_NAME.fullmatch(self.name) else f"`{self.name.replace('`', '``')}`"
        return f"{name}: {self.type}{' NOT NULL' if self.not_null else ''}"


@dataclass(frozen=True, repr=False)
class SqlType:
    """A type of Spark's; ``str`` of it is its one spelling, which the parser reads again as the same type.

    Attributes:
        name: in capitals: ``BIGINT``, ``DECIMAL``, ``ARRAY``, ``INTERVAL``. ``UNKNOWN``: only Spark can tell;
            ``VOID``: of a NULL that nobody has cast. Of a type that is not known here all that was written.
        digits: of a DECIMAL, all of them; ``scale``: those behind the point. Of others 0.
        parts: of an ARRAY its element, of a MAP key and value.
        fields: of a STRUCT.
        span: the first and the last field of an INTERVAL that is of years and months or of days and times.
        length: of a STRING that was declared as VARCHAR(n) or CHAR(n), in characters; 0: any. Types of all
            lengths are one type.
    """

    name: str
    digits: int = 0
    scale: int = 0
    parts: tuple[SqlType, ...] = ()
    fields: tuple[Field, ...] = ()
    span: tuple[str, str] | None = None
    length: int = field(default=0, compare=False)

    @cached_property
    def text(self) -> str:
        if self.name == "DECIMAL":
            return f"DECIMAL({self.digits},{self.scale})"
        if self.parts or self.fields:
            return f"{self.name}<{', '.join(map(str, self.parts or self.fields))}>"
        if self.span is not None:
            first, last = self.span
            return f"INTERVAL {first}" if first == last else f"INTERVAL {first} TO {last}"
        return self.name

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"SqlType({self.text!r})"

    @property
    def is_integer(self) -> bool:
        return self.name in INTEGER_BITS

    @property
    def is_real(self) -> bool:
        return self.name in ("FLOAT", "DOUBLE")

    @property
    def is_decimal(self) -> bool:
        return self.name == "DECIMAL"

    @property
    def is_number(self) -> bool:
        return self.is_integer or self.is_real or self.is_decimal

    @property
    def is_time(self) -> bool:
        """DATE or a TIMESTAMP."""
        return self.name in ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE")

    @property
    def is_void(self) -> bool:
        """True for the type of NULL, which fits every type."""
        return self.name == "VOID"

    @property
    def is_unknown(self) -> bool:
        """Only Spark can tell."""
        return self.name == "UNKNOWN"

    @property
    def is_nested(self) -> bool:
        return bool(self.parts or self.fields)

    @property
    def is_collated(self) -> bool:
        """A STRING that is compared by a collation of its own."""
        return self.name.startswith("STRING COLLATE")

    @property
    def is_struct(self) -> bool:
        return self.name == "STRUCT"

    @property
    def is_interval(self) -> bool:
        """True for an interval with known fields."""
        return self.span is not None

    @property
    def is_of_months(self) -> bool:
        """An interval of years and months, and not of days and clock times."""
        return self.span is not None and self.span[1] in INTERVAL_FIELDS[:2]

    @property
    def bits(self) -> int:
        """Number of bits of an integer type; 0 for other types."""
        return INTEGER_BITS.get(self.name, 0)

    @property
    def element(self) -> SqlType | None:
        """Element type of an ARRAY; None for other types."""
        return self.parts[0] if self.name == "ARRAY" and self.parts else None

    @property
    def entry(self) -> tuple[SqlType, SqlType] | None:
        """Key and value of a MAP."""
        return (self.parts[0], self.parts[1]) if self.name == "MAP" and self.parts else None

    @property
    def inner(self) -> tuple[SqlType, ...]:
        """Types directly inside a nested type."""
        return self.parts or tuple(field.type for field in self.fields)

    @property
    def every(self) -> Iterator[SqlType]:
        """It and all types within it."""
        yield self
        for inner_type in self.inner:
            yield from inner_type.every

    @cached_property
    def unnamed(self) -> SqlType:
        """The type without field names, which do not matter when values are compared."""
        if self.fields:
            return struct(
                [Field(f"f{place}", inner_type.unnamed) for place, inner_type in enumerate(self.inner)]
            )
        return SqlType(self.name, parts=tuple(part.unnamed for part in self.parts)) if self.parts else self

    @cached_property
    def nullable(self) -> SqlType:
        """The type with every field nullable, as computed values have it."""
        if self.fields:
            return struct([Field(field.name, field.type.nullable) for field in self.fields])
        return SqlType(self.name, parts=tuple(part.nullable for part in self.parts)) if self.parts else self

    @property
    def whole_digits(self) -> int:
        """Number of digits of a DECIMAL before the decimal point."""
        return self.digits - self.scale

    @cached_property
    def as_decimal(self) -> SqlType | None:
        """The DECIMAL that holds every value of an integer or a DECIMAL; None: it is neither."""
        if self.is_decimal:
            return self
        digits = _DIGITS_OF.get(self.name)
        return None if digits is None else decimal(digits, 0)


UNKNOWN = SqlType("UNKNOWN")
VOID = SqlType("VOID")

BOOLEAN = SqlType("BOOLEAN")
TINYINT = SqlType("TINYINT")
SMALLINT = SqlType("SMALLINT")
INT = SqlType("INT")
BIGINT = SqlType("BIGINT")
FLOAT = SqlType("FLOAT")
DOUBLE = SqlType("DOUBLE")
STRING = SqlType("STRING")
BINARY = SqlType("BINARY")
DATE = SqlType("DATE")
TIMESTAMP = SqlType("TIMESTAMP")
TIMESTAMP_NTZ = SqlType("TIMESTAMP_NTZ")

CALENDAR_INTERVAL = SqlType("INTERVAL")
"""Of months, days and µs beside each other: neither of months alone nor of days and times."""

INTEGERS = (TINYINT, SMALLINT, INT, BIGINT)
"""Those behind hold those before."""
REALS = (FLOAT, DOUBLE)
TIMES = (TIMESTAMP, TIMESTAMP_NTZ, DATE)
"""Those before hold those behind."""

PLAIN = (*INTEGERS, *REALS, BOOLEAN, STRING, BINARY, *TIMES)
"""Types that have nothing but a name, and values."""


def decimal(digits: int, scale: int) -> SqlType:
    return SqlType("DECIMAL", digits, scale)


def array(element: SqlType) -> SqlType:
    return SqlType("ARRAY", parts=(element,))


def map_of(key: SqlType, value: SqlType) -> SqlType:
    return SqlType("MAP", parts=(key, value))


def struct(fields: Sequence[Field]) -> SqlType:
    return SqlType("STRUCT", fields=tuple(fields))


def interval(first: str, last: str) -> SqlType:
    """Return an INTERVAL type with these first and last fields.

    >>> str(interval("DAY", "SECOND")), str(interval("MONTH", "MONTH"))
    ('INTERVAL DAY TO SECOND', 'INTERVAL MONTH')
    """
    return SqlType("INTERVAL", span=(first, last))
