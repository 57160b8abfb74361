"""The table of points: what one figure of one subject was, in a tick or in several that were rolled up.

A row of the table (`SCHEMA`) is of the ticks ``first_tick`` to ``last_tick``, which ended at the clocks
``first_us`` to ``last_us`` (µs since 1970). Of them ``last`` is the last value, ``min`` and ``max``
are what their names say, and ``total`` is the sum where the figure is an amount (rows of a tick, its µs),
NULL where it is a level (a watermark, retained rows). A watermark that has not begun is NULL, one of which
the input was ended `END`. ``text`` is for what is told in words, which has no value, and for values of keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import ENDED, NEVER, Watermark

END = 2**63 - 1
"""The value of a watermark after the end of its input."""
MOST_WORDS = 300
"""Characters of what is told in words, at most."""

_NAMES = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("first_tick", pa.int64()),
        ("last_tick", pa.int64()),
        ("first_us", pa.int64()),
        ("last_us", pa.int64()),
        ("subject", _NAMES),
        ("figure", _NAMES),
        ("last", pa.int64()),
        ("min", pa.int64()),
        ("max", pa.int64()),
        ("total", pa.int64()),
        ("text", _NAMES),
    ]
)

_KEY = ("subject", "figure", "text")


def subject_of(kind: str, *names: str) -> str:
    """What a figure is of: ``kind/name/…``, whatever is in the names.

    >>> subject_of("input", "a/b", "c")
    'input/a%2Fb/c'
    """
    return "/".join((kind, *(name.replace("%", "%25").replace("/", "%2F") for name in names)))


def names_of(subject: str) -> list[str]:
    """The kind and the names again.

    >>> names_of("input/a%2Fb/c")
    ['input', 'a/b', 'c']
    """
    return [name.replace("%2F", "/").replace("%25", "%") for name in subject.split("/")]


def level_of(mark: Watermark) -> int | None:
    """The value of a watermark."""
    return None if mark == NEVER else END if mark == ENDED else int(mark)


def words_of(text: str) -> str:
    """What is kept of a text."""
    return text if len(text) <= MOST_WORDS else f"{text[: MOST_WORDS - 1]}…"


@dataclass(frozen=True)
class Figures:
    """Of one tick. ``amounts`` and ``levels``: values by subject and figure; ``told``: by the same, words;
    ``keys``: values by subject, figure and words."""

    amounts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    levels: Mapping[tuple[str, str], int | None] = field(default_factory=dict)
    told: Sequence[tuple[str, str, str]] = ()
    keys: Mapping[tuple[str, str, str], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.amounts) + len(self.levels) + len(self.told) + len(self.keys)


class Points:
    """The points of ticks as they come, to be had as a table at any time."""

    def __init__(self) -> None:
        self._columns: list[list[object]] = [[], [], [], [], [], [], []]

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, tick: int, clock_us: int, figures: Figures) -> None:
        """The figures of one more tick. ``clock_us``: when it ended."""
        ticks, clocks, subjects, names, values, totals, texts = self._columns
        for (of, figure), value in figures.amounts.items():
            subjects.append(of)
            names.append(figure)
            values.append(value)
            totals.append(value)
        for (of, figure), level in figures.levels.items():
            subjects.append(of)
            names.append(figure)
            values.append(level)
            totals.append(None)
        for of, figure, _ in figures.told:
            subjects.append(of)
            names.append(figure)
            values.append(None)
            totals.append(None)
        texts.extend([None] * (len(subjects) - len(texts) - len(figures.told)))
        texts.extend(text for _, _, text in figures.told)
        for (of, figure, text), value in figures.keys.items():
            subjects.append(of)
            names.append(figure)
            values.append(value)
            totals.append(None)
            texts.append(text)
        added = len(subjects) - len(ticks)
        ticks.extend([tick] * added)
        clocks.extend([clock_us] * added)

    def table(self) -> pa.Table:
        """All points, in order."""
        ticks, clocks, subjects, names, values, totals, texts = self._columns
        tick, clock, value = (pa.array(column, pa.int64()) for column in (ticks, clocks, values))
        columns = [
            *(tick, tick, clock, clock, _encoded(subjects), _encoded(names)),
            *(value, value, value, pa.array(totals, pa.int64()), _encoded(texts)),
        ]
        return pa.table(columns, schema=SCHEMA)


def _encoded(texts: Sequence[object]) -> pa.Array:
    return pa.array(texts, pa.string()).dictionary_encode()


def empty() -> pa.Table:
    """No points."""
    return SCHEMA.empty_table()


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """The points of several tables, one after the other."""
    return pa.concat_tables(tables).unify_dictionaries() if tables else empty()


def rolled(table: pa.Table, ticks: int) -> pa.Table:
    """The same points with those of each ``ticks`` ticks (by their numbers) as one: per subject, figure and
    text. In order of their first clock."""
    if not table.num_rows:
        return table
    plain = {name: pc.cast(table.column(name), pa.string()) for name in _KEY}
    table = table.append_column("bucket", pc.divide(table.column("first_tick"), pa.scalar(ticks, pa.int64())))
    for name, column in plain.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    told = table.group_by(["bucket", *_KEY], use_threads=False).aggregate(
        [
            ("first_tick", "min"),
            ("last_tick", "max"),
            ("first_us", "min"),
            ("last_us", "max"),
            ("last", "last"),
            ("min", "min"),
            ("max", "max"),
            ("total", "sum"),
        ]
    )
    names = {
        "first_tick": "first_tick_min",
        "last_tick": "last_tick_max",
        "first_us": "first_us_min",
        "last_us": "last_us_max",
        "last": "last_last",
        "min": "min_min",
        "max": "max_max",
        "total": "total_sum",
    }
    columns = []
    for of_schema in SCHEMA:
        column = told.column(names.get(of_schema.name, of_schema.name)).combine_chunks()
        columns.append(column.dictionary_encode() if of_schema.name in _KEY else column)
    return pa.table(columns, schema=SCHEMA).sort_by([("first_us", "ascending")])
