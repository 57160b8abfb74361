"""Names of JSON fields, and units of numbers that stand for times, in JSON and CSV records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from watersmeet.errors import SpecError
from watersmeet.spec.model import Source
from watersmeet.spec.options.changes import DEBEZIUM, UPSERT
from watersmeet.spec.options.values import wrong_value
from watersmeet.types.sql_type import STRING, TIMESTAMP, TIMESTAMP_NTZ, SqlType

# Names of fields in JSON that are written in another case than the columns they fill.
#
# SQL does not regard the case of names, nor do the readers of CSV and Parquet; Spark's JSON parser does:
# of ``{"ORDER_ID": 1}`` a column ``order_id`` would be NULL, and nobody would know. So a field that is
# not there by its exact name is looked for without regard to case. Where that can be read in two ways
# (two fields differ by case alone) the record is broken.
#
# Names are found between double quotes, as patterns that Java and Python read alike. Those with quotes,
# backslashes or control characters in them, which JSON escapes, are found by their exact spelling alone.

_COLON = r'"([ \t\r\n]*+:)'
_PLAIN_NAME = re.compile(r"[^\"\\\x00-\x1f]+")


@dataclass(frozen=True)
class JsonNames:
    """The names that fields of a record are looked for by.

    Args:
        names: those that are found in any case.
        columns: those of them that are of columns; the others are of fields in STRUCTs.
        rows: where in a record objects with the columns are, as paths (``$.after``); none: it is one.
        texts: of columns that may hold objects as they are written.
        has_maps: whether there are MAPs, whose keys are values; then fields of STRUCTs are not looked for.
    """

    names: tuple[str, ...]
    columns: frozenset[str]
    rows: tuple[str, ...]
    texts: tuple[str, ...]
    has_maps: bool

    @classmethod
    def of(cls, columns: Iterable[tuple[str, SqlType]], rows: Iterable[str] = ()) -> JsonNames:
        """Return those of columns (name, type), and of the STRUCTs in them. ``rows``: see the class."""
        columns = list(columns)
        has_maps = any(inner.entry is not None for _, own in columns for inner in own.every)
        fields = [name for name, _ in columns]
        if not has_maps:  # keys of a MAP are on a level of their own, where no name is looked for
            fields += [field.name for _, own in columns for inner in own.every for field in inner.fields]
        spelled: dict[str, set[str]] = {}
        for name in fields:
            spelled.setdefault(name.lower(), set()).add(name)
        names = tuple(
            name
            for name in dict.fromkeys(fields)
            if len(spelled[name.lower()]) == 1
            and name.lower() != name.upper()
            and _PLAIN_NAME.fullmatch(name)
        )
        counts = Counter(fields)
        own = frozenset(name for name, _ in columns if counts[name] == 1)
        texts = (name for name, kind in columns if STRING in kind.every)
        return cls(names, own, tuple(rows), tuple(dict.fromkeys(texts)), has_maps)

    @cached_property
    def in_another_case(self) -> str:
        """A pattern that finds in a text a field's name that is not written exactly."""
        return f'"(?:{"|".join(map(_other, self.names))}){_COLON}'

    @property
    def object_in_text(self) -> str:
        """A pattern that finds an object where a column of texts may be, or an array with one."""
        return f'"(?iu:{"|".join(map(escape_name, self.texts))}){_COLON}[ \\t\\r\\n]*+(?:\\[[^\\]{{]*+)?+\\{{'


def in_another_case(name: str) -> str:
    """Return a pattern that finds a field of the name in another case than the name's."""
    return f'"{_other(name)}{_COLON}'


def _other(name: str) -> str:
    return f'(?!{escape_name(name)}")(?iu:{escape_name(name)})'


def exactly(name: str) -> str:
    """Return a pattern that finds a field of the name."""
    return f'"{escape_name(name)}{_COLON}'


def in_any_case(name: str) -> str:
    """Return a pattern that finds a field of the name in any case.

    Its groups are the name, and the text that follows the closing quote.
    """
    return f'"((?iu:{escape_name(name)})){_COLON}'


def escape_name(name: str) -> str:
    """Return a pattern that matches the name alone."""
    return re.sub(r"[^\w\s]", lambda match: f"\\{match[0]}", name)


def written_as(record: Collection[str], name: str) -> str | None:
    """Return how a record writes a field's name, exactly or in another case; None: it has no such field.

    Raises:
        ValueError: it has several in other cases, and none that is exact.
    """
    if name in record:
        return name
    others = [own for own in record if own.lower() == name.lower()]
    if len(others) > 1:
        raise ValueError(f"{others[0]} and {others[1]} differ only in case")
    return others[0] if others else None


# In which unit numbers in the place of timestamps count, in records of JSON and CSV.
#
# Spark's JSON reader takes a number in a TIMESTAMP for seconds; its CSV reader reads none. Producers
# count milliseconds more often than not, and one of them read as seconds is of the year 56135.

UNIT = "timestamp.unit"
DAYS = range(-719_162, 2_932_896 + 1)
"""Of the years 1 to 9999, since 1970. Infinity, which Postgres has, is beyond."""
FORMATS = ("json", "csv", UPSERT)
"""Of the records that it is said of."""


class TimeUnit(Enum):
    """Unit of a number that represents a timestamp."""

    SECONDS = "s"
    MILLIS = "ms"
    MICROS = "us"
    NANOS = "ns"

    @property
    def per_second(self) -> int:
        return {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[self.value]


UNITS = tuple(unit.value for unit in TimeUnit)


def get_declared_unit(options: Mapping[str, str]) -> TimeUnit | None:
    """Return the unit that a source's options say; None: none, and numbers are what Spark takes them for."""
    for name, value in options.items():
        if name.lower() == UNIT and value.strip().lower() in UNITS:
            return TimeUnit(value.strip().lower())
    return None


def unit_problems(what: str, source: Source, wanted: str) -> Iterator[SpecError]:
    """Yield what is wrong with the option of a source whose records are in the format ``wanted``."""
    value = next((value for name, value in source.options.items() if name.lower() == UNIT), None)
    if value is None:
        return
    if wanted not in FORMATS:
        yield SpecError(
            f"{what}: option '{UNIT}' is for the formats {', '.join(FORMATS)}, but the format is {wanted}",
            code="unknown-option",
            hint="remove it: records of this format contain their time unit"
            if wanted != DEBEZIUM
            else "use 'debezium.timestamps' = 'millis', 'micros' or 'nanos' instead",
        )
    elif value.strip().lower() not in UNITS:
        hint = f"it can be {', '.join(UNITS)}"
        yield wrong_value(what, UNIT, value, hint)
    else:
        for column in source.columns:
            if column.type.is_nested and {TIMESTAMP, TIMESTAMP_NTZ} & set(column.type.every):
                yield SpecError(
                    f'{what}: the column "{column.name}" is {column.type}, but Spark reads numbers'
                    " inside it as seconds",
                    code="wrong-types",
                    hint=f"declare these fields BIGINT and cast in a view: '{UNIT}' applies to columns only",
                )
