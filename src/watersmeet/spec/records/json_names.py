"""Names of fields in JSON that are written in another case than the columns they fill.

SQL does not regard the case of names, nor do the readers of CSV and Parquet; Spark's JSON parser does: of
``{"ORDER_ID": 1}`` a column ``order_id`` would be NULL, and nobody would know. So a field that is not there
by its exact name is looked for without regard to case. Where that can be read in two ways (two fields differ
by case alone) the record is broken.

Names are found between double quotes, as patterns that Java and Python read alike. Those with quotes,
backslashes or control characters in them, which JSON escapes, are found by their exact spelling alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from watersmeet.types.sql_type import STRING, SqlType

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
        return f'"(?iu:{"|".join(map(escaped, self.texts))}){_COLON}[ \\t\\r\\n]*+(?:\\[[^\\]{{]*+)?+\\{{'


def in_another_case(name: str) -> str:
    """Return a pattern that finds a field of the name in another case than the name's."""
    return f'"{_other(name)}{_COLON}'


def _other(name: str) -> str:
    return f'(?!{escaped(name)}")(?iu:{escaped(name)})'


def exactly(name: str) -> str:
    """Return a pattern that finds a field of the name."""
    return f'"{escaped(name)}{_COLON}'


def in_any_case(name: str) -> str:
    """Return a pattern that finds a field of the name in any case; its groups: the name, and what follows on
    its quotes."""
    return f'"((?iu:{escaped(name)})){_COLON}'


def escaped(name: str) -> str:
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
