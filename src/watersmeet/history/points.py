"""The table of points: one metric of one subject per tick, under its stored name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.event_time import ENDED, NEVER, Watermark
from watersmeet.observe.progress import TickReport
from watersmeet.observe.reports import ObservedQuery, ObservedTick, split_by_alias, standstill_of

# Names that columns, subjects and figures had in histories of earlier versions, as those of now.
#
# One quantity has one name, in the history as in ``--json`` and in metrics; it was not always so.
# Segments say by `NAMES` in their schema's metadata which names they have; those that say nothing have
# the first ones.

_VERSION = b"watersmeet.names"
NAMES = {_VERSION: b"3"}

_COLUMNS = {"of": "subject", "least": "min", "most": "max"}

_FIRST = {
    ("source", "rows"): "rows_in",
    ("source", "unread"): "backlog",
    ("query", "rows_out"): "total_rows_out",
    ("query", "bytes"): "state_bytes",
    ("side", "rows"): "retained",
    ("side", "bytes"): "file_bytes",
    ("side", "key"): "heavy_keys",
}
_FIRST_WORDS = {
    ("input", "held"): "standstill",
    ("input", "hot"): "heavy_keys",
    ("input", "deleted"): "missing_deletes",
}
"""Of words alone: as a number ``deleted`` is another figure."""
_SECOND = {
    ("job", "seconds"): "duration_us",
    ("job", "elapsed"): "elapsed_us",
    ("job", "clock"): "clock_us",
    ("part", "seconds"): "duration_us",
    ("partition", "heard"): "last_row_us",
    ("side", "heavy_keys"): "hot_keys",
    ("source", "untold parts"): "partition count",
}
_SECOND_WORDS = {
    ("input", "heavy_keys"): "hot_keys",
    ("input", "missing_deletes"): "missing_delete_examples",
}
_SECOND_BEGINNINGS = {("source", "read "): "offset ", ("source", "began "): "start offset "}


def migrate_points(points: pa.Table) -> pa.Table:
    """Rename the columns, subjects and figures of a segment's points to current names.

    Column types and metadata stay those of `points`.
    """
    version = (points.schema.metadata or {}).get(_VERSION)
    if version == NAMES[_VERSION]:
        return points
    points = points.rename_columns([_COLUMNS.get(name, name) for name in points.column_names])
    if not points.num_rows:
        return points
    subjects, figures = (points.column(name).cast(pa.string()) for name in ("subject", "figure"))
    kinds = pc.list_element(pc.split_pattern(subjects, "/", max_splits=1), 0)
    words = pc.and_(pc.is_valid(points.column("text")), pc.is_null(points.column("last")))
    if version is None:
        figures = _figures(figures, kinds, words, _FIRST, _FIRST_WORDS)
    figures = _figures(figures, kinds, words, _SECOND, _SECOND_WORDS)
    for (kind, start), now in _SECOND_BEGINNINGS.items():
        meant = pc.and_(pc.equal(kinds, kind), pc.starts_with(figures, start))
        figures = pc.if_else(meant, pc.replace_substring_regex(figures, f"^{start}", now), figures)
    subjects = pc.if_else(
        pc.equal(kinds, "part"), pc.replace_substring_regex(subjects, "^part/", "phase/"), subjects
    )
    for name, column in (("subject", subjects), ("figure", figures)):
        place = points.schema.get_field_index(name)
        encoded = column.combine_chunks().dictionary_encode()
        points = points.set_column(place, points.schema.field(place), encoded)
    return points


def _figures(
    figures: pa.ChunkedArray,
    kinds: pa.ChunkedArray,
    words: pa.ChunkedArray,
    names: dict[tuple[str, str], str],
    of_words: dict[tuple[str, str], str],
) -> pa.ChunkedArray:
    """Return the figures with other names; ``of_words``: those of points that are words (``words``)."""
    today = figures
    for before, words_alone in ((names, False), (of_words, True)):
        for (kind, figure), now in before.items():
            meant = pc.and_(pc.equal(kinds, kind), pc.equal(figures, figure))
            today = pc.if_else(pc.and_(meant, words) if words_alone else meant, now, today)
    return today


# The table of points: what one figure of one subject was, in a tick or in several that were rolled up.
#
# A row of the table (`SCHEMA`) is of the ticks ``first_tick`` to ``last_tick``, which ended at the clocks
# ``first_us`` to ``last_us`` (µs since 1970). Of them ``last`` is the last value, ``min`` and ``max`` are
# what their names say, and ``total`` is the sum where the figure is an amount (rows of a tick, its µs),
# NULL where it is a level (a watermark, retained rows). A watermark that has not begun is NULL, one of
# which the input was ended `END`. ``text`` is for what is told in words, which has no value, and for
# values of keys.

END = 2**63 - 1
"""The value of a watermark after the end of its input."""
MAX_TEXT = 300
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
    """Return the subject of a figure, ``kind/name/…``, with names escaped.

    >>> subject_of("input", "a/b", "c")
    'input/a%2Fb/c'
    """
    return "/".join((kind, *(name.replace("%", "%25").replace("/", "%2F") for name in names)))


def names_of(subject: str) -> list[str]:
    """Split a subject into its kind and names; the inverse of `subject_of`.

    >>> names_of("input/a%2Fb/c")
    ['input', 'a/b', 'c']
    """
    return [name.replace("%2F", "/").replace("%25", "%") for name in subject.split("/")]


def level_of(mark: Watermark) -> int | None:
    """Return the value of a watermark; None for NEVER and `END` for an ended input."""
    return None if mark == NEVER else END if mark == ENDED else int(mark)


def words_of(text: str) -> str:
    """Truncate a text to the stored length (`MAX_TEXT`)."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


@dataclass(frozen=True)
class Figures:
    """Figures of one tick.

    Attributes:
        amounts: values by subject and figure, which add up over ticks.
        levels: values by subject and figure, which do not add up.
        told: texts, each with its subject and figure.
        keys: values by subject, figure and text.
    """

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
        """Add the figures of one more tick.

        Args:
            clock_us: when the tick ended.
        """
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
        """Return all points as a table, in order."""
        ticks, clocks, subjects, names, values, totals, texts = self._columns
        tick, clock, value = (pa.array(column, pa.int64()) for column in (ticks, clocks, values))
        columns = [
            *(tick, tick, clock, clock, _encode_texts(subjects), _encode_texts(names)),
            *(value, value, value, pa.array(totals, pa.int64()), _encode_texts(texts)),
        ]
        return pa.table(columns, schema=SCHEMA)


def _encode_texts(texts: Sequence[object]) -> pa.Array:
    return pa.array(texts, pa.string()).dictionary_encode()


def empty() -> pa.Table:
    """Return a table without points."""
    return SCHEMA.empty_table()


def concat_points(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate the points of several tables in order."""
    return pa.concat_tables(tables).unify_dictionaries() if tables else empty()


def roll_up(table: pa.Table, ticks: int) -> pa.Table:
    """Merge the points of each `ticks` ticks into one per subject, figure and text.

    Tick numbers decide which ticks belong together. The result is in order of the first clock.
    """
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


# The figures of a tick: what of its result is kept in the history, and under which names: those of
# `--json` and of the account. What they were called before is in `migrate_points`.
#
# subject                      figures
# job                          duration_us, elapsed_us: amounts; clock_us: level, the one of the tick;
#                              finished: 1, of the tick that ended the input
# phase/PHASE                  duration_us
# source/SOURCE                rows_in: amount; backlog, offset PARTITION: levels, how far it was read by
#   then
#                              (`runtime.coordinator.results`), kept of ticks in which that has changed, of
#                                sources
#                              of at most `MAX_PARTITIONS` partitions: more would soon fill the history;
#                                partition
#                              count: level, of sources with more; start offset PARTITION: level, where it
#                                was
#                              read from in a tick that began, or went on elsewhere, of however many
# query/QUERY                  matches: amount; total_rows_out (since the start), state_bytes: levels
# input/QUERY/ALIAS            in, and every place of the account that has rows, since the start;
#   retained;
#                              late of COLUMN BUCKET, since the start: levels. standstill, hot_keys,
#                              missing_delete_examples: words
# time/QUERY/ALIAS/COLUMN      watermark, and late_below, by which rows of the tick were late: levels
# out/QUERY/KEY                watermark of the output: level

JOB, OFFSET, START, COUNT = "job", "offset", "start offset", "partition count"
DURATION, ELAPSED, CLOCK = "duration_us", "elapsed_us", "clock_us"
MAX_PARTITIONS = 1_000
"""Of a source that has come to more it is told that it has, and not how far they were read."""


def figures_of(report: TickReport, result: ObservedTick) -> Figures:
    """See the module. ``result``: what the report was made from."""
    amounts = {(JOB, DURATION): _us(report.seconds), (JOB, ELAPSED): _us(report.elapsed_seconds)}
    amounts |= {(subject_of("phase", phase), DURATION): _us(took) for phase, took in report.phases.items()}
    amounts |= {(subject_of("source", source), "rows_in"): rows for source, rows in report.rows_in.items()}
    levels: dict[tuple[str, str], int | None] = {
        (subject_of("source", source), "backlog"): behind.count for source, behind in report.backlog.items()
    }
    levels[JOB, CLOCK] = result.clock_us
    if result.finished:
        levels[JOB, "finished"] = 1
    for source, parts in result.read.items():
        if len(parts) > MAX_PARTITIONS:
            levels[subject_of("source", source), COUNT] = len(parts)
        else:
            levels |= {(subject_of("source", source), f"{OFFSET} {part}"): end for part, end in parts.items()}
        for part, first in result.began.get(source, {}).items():
            levels[subject_of("source", source), f"{START} {part}"] = first
    told: list[tuple[str, str, str]] = []
    for query, of_query in result.queries.items():
        subject = subject_of("query", query)
        amounts[subject, "matches"] = of_query.matches
        levels[subject, "total_rows_out"] = of_query.total_rows_out
        levels[subject, "state_bytes"] = of_query.state_bytes
        for key, mark in of_query.output_watermarks.items():
            levels[subject_of("out", query, key), "watermark"] = level_of(mark)
        _of_inputs(query, of_query, levels, told)
    return Figures(amounts, levels, told)


def _of_inputs(
    query: str,
    result: ObservedQuery,
    levels: dict[tuple[str, str], int | None],
    told: list[tuple[str, str, str]],
) -> None:
    for figure, marks in (("watermark", result.input_watermarks), ("late_below", result.late_below)):
        for alias, of_alias in split_by_alias(marks, result.account).items():
            for column, mark in of_alias.items():
                levels[subject_of("time", query, alias, column), figure] = level_of(mark)
    for alias, places in result.account.items():
        subject = subject_of("input", query, alias)
        levels |= {(subject, place): rows for place, rows in places.items() if rows}
        levels[subject, "retained"] = places.get("retained", result.state.get(alias, 0))
        for column, late_by in result.late.get(alias, {}).items():
            levels |= {(subject, f"late of {column} {name}"): rows for name, rows in late_by.counts.items()}
        standstill = standstill_of(result, alias)
        if standstill is not None:
            told.append((subject, "standstill", words_of(standstill)))
        told += [(subject, "hot_keys", words_of(heavy.key)) for heavy in result.heavy.get(alias, ())]
        told += [
            (subject, "missing_delete_examples", words_of(text))
            for owner, text in result.missing_deletes
            if owner == alias
        ]


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
