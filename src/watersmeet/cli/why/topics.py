"""Read Kafka topics again for `why`, by the offsets that the history has of every tick, within limits.

The module names records that no longer exist or are no longer the same, with their positions. A tick counted
its records: if as many exist now, none is missing, whatever offsets are unused (those of transactions, for
example). For ticks that are not known one by one, an unused offset may have been a record that was compacted.
Records of a partition count in the order of their offsets. Spark decides which partition a tick reads before
another, so the outcome of a key with records in several partitions is not reported where it depends on that
order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from watersmeet.cli.why.records import RecordsAgain
from watersmeet.errors import WatersmeetError, format_count
from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.batches import batch_of, one_table
from watersmeet.runtime.local.evaluate import evaluate_column
from watersmeet.runtime.spark.checkpoint.spark_positions import (
    NOTHING_READ,
    SOURCES,
    TOPICS,
    load_end_offsets,
)
from watersmeet.runtime.values import to_table
from watersmeet.spec.model import Source
from watersmeet.spec.options.changes import UPSERT
from watersmeet.spec.options.kafka import is_another_topic, records_of, servers_text, topics_in
from watersmeet.topics import (
    KEY,
    OFFSET,
    TIMESTAMP,
    VALUE,
    SilentBrokers,
    SourcePartition,
    TopicReader,
    TopicReadError,
    TopicState,
)
from watersmeet.why.rows import UNREAD, Missing, Numbers, Portion, Reread, SourceRows
from watersmeet.why.ticks import TickHistory


class Others(Exception):
    """Error when the records are not those that the ticks read; its text says why."""


@dataclass(frozen=True)
class PartRead:
    """Partition of a topic that was read again.

    Attributes:
        name: the part, as in `Portion`.
        first: the offset from which it was read again.
        until: the offset up to which the job has read it.
        offsets: the offsets of the records that exist from ``first`` on, ascending.
        counted: the number of rows that a tick counts for each record, negative if unknown; None: one each.
    """

    name: str
    first: int
    until: int
    offsets: Numbers
    counted: Numbers | None = None

    def rows_between(self, first: int, end: int) -> int | None:
        """Count the rows of the existing records in a range of offsets; None if it is unknown."""
        low, high = np.searchsorted(self.offsets, [first, end])
        if self.counted is None:
            return int(high - low)
        counted = self.counted[low:high]
        return None if (counted < 0).any() else int(counted.sum())


def find_missing(
    history: TickHistory, source: str, parts: Sequence[PartRead], *, by_keys: bool = False
) -> list[Missing]:
    """Return the records that the ticks read and the topics no longer have.

    The function checks the parts that are read again, from their ``first`` offset on.

    Args:
        by_keys: True if compaction, where it happened, was by the keys of the source's table.

    Raises:
        Others: A tick read fewer records than there are now.
    """
    missing: list[Missing] = []
    noun = "record" if all(part.counted is None for part in parts) else "row"
    why: Literal["gone", "compacted"] = "compacted" if by_keys else "gone"
    counts = _counts(history, source, parts)
    rows_in = history.rows_in(source)
    for slot, count in enumerate(counts):
        if count is None or count[0] == rows_in[slot]:
            continue
        there, name, position = count
        tick = history.ticks[slot]
        if there > rows_in[slot]:
            raise Others(
                f"where tick {tick} read {format_count(rows_in[slot], noun)}, there are {there:,} now:"
                " they are others than those that the job has read"
            )
        lost = rows_in[slot] - there
        words = f"of the {noun}s that tick {tick} read {lost:,} can be read no more: were they compacted?"
        missing.append(Missing(words, name, position, why=why))
    for part in parts:
        missing += (replace(own, why=why) for own in _holes(history, source, part, counts))
    return missing


def _counts(
    history: TickHistory, source: str, parts: Sequence[PartRead]
) -> list[tuple[int, str, int] | None]:
    """Count, for each slot, the existing rows of those that it read.

    Returns:
        For each slot the count and the first place that it read; None if not all of what the slot read
        is known, or was read again.
    """
    counts: list[tuple[int, str, int] | None] = [(0, "", 0)] * len(history)
    for part in parts:
        for slot, span in enumerate(history.spans_of(source, part.name)):
            so_far = counts[slot]
            if so_far is None or span is None or (span[0] < span[1] and span[0] < part.first):
                counts[slot] = None
                continue
            first, end = span
            if first < end:
                rows = part.rows_between(first, end)
                place = so_far[1:] if so_far[1] else (part.name, first)
                counts[slot] = None if rows is None else (so_far[0] + rows, *place)
    return counts


def _holes(
    history: TickHistory, source: str, part: PartRead, counts: Sequence[tuple[int, str, int] | None]
) -> list[Missing]:
    """Find the first missing offset of each tick whose records were not counted."""
    there = part.offsets[: np.searchsorted(part.offsets, part.until)]
    edges = np.concatenate([[part.first - 1], there, [max(part.until, part.first)]])
    starts, stops = edges[:-1] + 1, edges[1:]
    free = starts < stops
    steps = np.array(history.steps_of(source, part.name), dtype=np.int64)
    at = np.searchsorted(edges, steps) - 1
    within = (at >= 0) & (at < len(free))
    within[within] = free[at[within]] & (steps[within] < stops[at[within]])
    positions = np.unique(np.concatenate([starts[free], steps[within]]))
    _, chosen = np.unique(np.searchsorted(steps, positions, side="right"), return_index=True)
    holes: dict[int | None, int] = {}
    for position in positions[chosen].tolist():
        read_by = history.slot_of(source, part.name, position)
        slot = None if read_by is None or not read_by[1] else read_by[0]
        if slot is None or counts[slot] is None:
            holes.setdefault(slot, position)
    return [
        Missing(
            "records may have gone that were read by ticks that the history does not have one by one: not all"
            " offsets are there",
            part.name,
            position,
        )
        for position in holes.values()
    ]


def find_unordered(
    source: Source, portions: Sequence[Portion], history: TickHistory, zone: str
) -> list[Missing]:
    """Return per tick of which it is so, a place of a record of a primary key that it is so of."""
    key, parts = source.primary_key, [own.part for own in portions]
    if key is None or len(set(parts)) < 2:
        return []
    read = SourceRows.of(Reread(source, portions), history)
    columns = pa.table({name: evaluate_column(source, name, read.rows, zone) for name in key.columns})
    group = group_numbers(batch_of(columns), key.columns)
    part = np.unique(parts, return_inverse=True)[1][read.portion]
    order = np.lexsort((part, group, read.slot))
    slot, group, part, portion = read.slot[order], group[order], part[order], read.portion[order]
    is_other = (slot[1:] == slot[:-1]) & (group[1:] == group[:-1]) & (part[1:] != part[:-1])
    at = np.flatnonzero(is_other & (slot[1:] < len(history)))
    _, first = np.unique(slot[at], return_index=True)
    return [
        Missing(
            f"tick {history.ticks[int(slot[own])]} read records of one key of several partitions: which of"
            " them counted last is not known",
            portions[int(portion[own])].part,
            portions[int(portion[own])].position,
            why="unordered",
        )
        for own in at[first].tolist()
    ]


MOST_RECORDS = 1_000_000
"""Of a source, that ticks have read."""
MOST_UNREAD = 100_000
"""Of a source, that none has read."""
MOST_BYTES = 512 << 20
"""Of their rows in memory, and of the texts of records that are no rows here."""
MOST_LEFT_OUT = 1_000
"""Of a source, as texts."""
_NONE: Numbers = np.zeros(0, dtype=np.int64)


@dataclass
class _Span:
    """Offsets of a partition to read.

    Args:
        first: First offset.
        until: Offset up to which the job has read.
        end: Offset before which to stop.
    """

    first: int
    until: int
    end: int


@dataclass
class _Rows:
    """Rows that were read from one partition.

    Args:
        offsets: Offsets of the rows.
        records: Offsets of all records.
        counted: Number of rows that a tick counts for each record.
    """

    tables: list[pa.Table] = field(default_factory=list)
    offsets: list[Numbers] = field(default_factory=list)
    left_out: dict[int, str] = field(default_factory=dict)
    records: list[Numbers] = field(default_factory=list)
    counted: list[Numbers] = field(default_factory=list)


def topics_again(
    source: Source,
    host: Mapping[str, Any],
    history: TickHistory,
    time_zone: str,
    needed: frozenset[str],
    silent: set[str],
) -> Reread:
    """Read all records of a Kafka source again, as far as possible.

    Args:
        host: Host part of the newest manifest.
        needed: Columns that must exist.
        silent: Brokers that did not answer, which are not contacted again; the function adds others.
    """
    servers = servers_text(source.options)
    try:
        records = RecordsAgain(source, time_zone, needed)
        if servers in silent:
            return _unread(source, f"no broker answers at {servers}")
        with TopicReader(source) as reader:
            return _Again(source, host, history, records, time_zone).read(reader)
    except (TopicReadError, Others) as why:
        if isinstance(why, SilentBrokers):
            silent.add(servers)
        return _unread(source, str(why))
    except WatersmeetError as error:  # of what only Spark reads, and of a schema registry
        return _unread(source, error.message.removeprefix(f'"{source.name}": '))


def _unread(source: Source, why: str) -> Reread:
    return Reread(source, (), (Missing(f"its records are not read again: {why}"),))


class _Again:
    def __init__(
        self, source: Source, host: Mapping[str, Any], history: TickHistory, records: RecordsAgain, zone: str
    ) -> None:
        self._source, self._history, self._records, self._zone = source, history, records, zone
        self._until = _read_up_to(source, host)
        self._ids: Mapping[str, str] = host.get(TOPICS, {}).get(source.name, {})
        self._missing: list[Missing] = []
        self._bytes = self._left_out = 0

    def read(self, reader: TopicReader) -> Reread:
        """Read the records of the source's topics again.

        Raises:
            TopicReadError: the topics cannot be read.
            Others: the records are not those that the ticks read.
            WatersmeetError: a schema registry failed.
        """
        spans = self._spans(reader.topics())
        self._bound(spans)
        read = {place: _Rows() for place in spans}
        for place, batch in reader.records({place: (own.first, own.end) for place, own in spans.items()}):
            self._take(place, batch, read[place])
        parts = []
        portions: list[Portion] = []
        for place, own in spans.items():
            rows = read[place]
            there, times = (np.concatenate([_NONE, *arrays]) for arrays in (rows.records, rows.counted))
            is_one = bool((times == 1).all())
            parts.append(PartRead(place.name, own.first, own.until, there, None if is_one else times))
            portions += self._portions(place.name, own, rows)
        if {part.name for part in parts} >= {place.name for place in self._until}:
            is_upsert = records_of(self._source.options) == UPSERT
            self._missing += find_missing(self._history, self._source.name, parts, by_keys=is_upsert)
        self._missing += find_unordered(self._source, portions, self._history, self._zone)
        if self._left_out > MOST_LEFT_OUT:
            more = format_count(self._left_out - MOST_LEFT_OUT, "more record")
            self._missing.append(Missing(f"{more} could not be read here"))
        return Reread(self._source, portions, tuple(self._missing))

    # what there is

    def _spans(self, topics: Mapping[str, TopicState]) -> dict[SourcePartition, _Span]:
        spans: dict[SourcePartition, _Span] = {}
        for name in topics_in(self._source.options):
            topic, was = topics.get(name), self._ids.get(name)
            own = {place: until for place, until in self._until.items() if place.topic == name}
            if topic is None:
                self._lacks(f"topic {name} is not there any more")
            elif is_another_topic(was, topic.id):
                self._lacks(f"topic {name} was deleted and created again, and has other records now")
            else:
                for place in own:
                    if place.partition not in topic.ends:
                        self._lacks(f"partition {place.name} is not there any more")
                for partition, ends in sorted(topic.ends.items()):
                    span = self._span(SourcePartition(name, partition), *ends)
                    if span is not None:
                        spans[SourcePartition(name, partition)] = span
        return spans

    def _lacks(self, words: str) -> None:
        self._missing.append(Missing(words))

    def _span(self, place: SourcePartition, first: int, end: int) -> _Span | None:
        part, until = place.name, self._until.get(place)
        if until is None:  # no tick has read it
            return _Span(first, first, end)
        if not self._history.tells_of(self._source.name, part):
            self._lacks(f"which tick read what of {part} is not in the history")
            return None
        began = self._history.began_at(self._source.name, part)
        if began is None:
            if _begins_later(self._source):
                self._lacks(f"where the job began to read {part} is not in the history")
                return None
            began = 0
        if began:
            words = (
                f"the job has read {part} from offset {began:,} on: of what is before that nothing is told"
            )
            self._missing.append(Missing(words, part, UNREAD, why="before"))
        if began < first and began < until:
            words = f"{part} begins at offset {first:,} now, and the job has read from {began:,} on"
            self._missing.append(Missing(words, part, began, min(first, until)))
        if end < until:
            words = f"{part} ends at offset {end:,}, and the job has read up to {until:,}: the rest was lost"
            self._missing.append(Missing(words, part, max(end, began), until))
        return _Span(max(began, first), until, end)

    def _bound(self, spans: Mapping[SourcePartition, _Span]) -> None:
        """Limit the spans to the maximum number of records.

        Leaves out the oldest of the records that the job has read, and the newest of those it has not.
        """
        for place, own in spans.items():
            most = max(own.until, own.first) + MOST_UNREAD // len(spans)
            if own.end > most:
                words = f"{place.name} is not looked at from offset {most:,} on, which no tick has read"
                self._missing.append(Missing(words, place.name, UNREAD))
                own.end = most
        total = sum(max(0, min(own.until, own.end) - own.first) for own in spans.values())
        if total <= MOST_RECORDS:
            return
        ends = {place: self._history.ends_of(self._source.name, place.name) for place in spans}
        left = sum(
            np.maximum(own.until - np.maximum(own.first, ends[place]), 0) for place, own in spans.items()
        )
        slot = int(np.argmax(left <= MOST_RECORDS))  # after it no more was read than is read again
        words = (
            f"of its {total:,} records those are read again that came after tick {self._history.ticks[slot]}:"
            f" no more than {MOST_RECORDS:,} are"
        )
        for place, own in spans.items():
            first = max(own.first, ends[place][slot])
            if first > own.first:
                self._missing.append(Missing(words, place.name, own.first, first))
                own.first = first

    # rows

    def _take(self, place: SourcePartition, batch: pa.RecordBatch, rows: _Rows) -> None:
        columns = (batch.column(name) for name in (OFFSET, KEY, VALUE, TIMESTAMP))
        taken = self._records(*place, *columns)
        offsets = batch.column(OFFSET).to_numpy()
        rows.tables.append(taken.rows)
        rows.offsets.append(offsets[taken.records])
        rows.records.append(offsets)
        rows.counted.append(taken.counted)
        rows.left_out |= {int(offsets[number]): text for number, text in taken.left_out.items()}
        self._bytes += taken.rows.nbytes + sum(map(len, taken.left_out.values()))
        if self._bytes > MOST_BYTES:
            raise TopicReadError(f"their rows would take more than {MOST_BYTES >> 20} MB of memory")

    def _portions(self, part: str, own: _Span, rows: _Rows) -> list[Portion]:
        """Cut where another tick may have read on; a record that was left out is a portion by itself."""
        none = to_table(self._source.columns, [], [])
        table = one_table([none, *rows.tables])
        offsets = np.concatenate([_NONE, *rows.offsets])
        cuts = [*self._history.steps_of(self._source.name, part), own.until]
        edges = np.unique(np.concatenate([[0], np.searchsorted(offsets, cuts), [len(offsets)]])).tolist()
        portions = [
            Portion(
                table.slice(low, high - low),
                part,
                self._position(own, int(offsets[low])),
                part,
                offsets=offsets[low:high],
            )
            for low, high in pairwise(edges)
        ]
        for offset, text in rows.left_out.items():
            self._left_out += 1
            if self._left_out <= MOST_LEFT_OUT:
                place = f"{part} at offset {offset:,}"
                portions.append(Portion(none, part, self._position(own, offset), place, (text,)))
        return portions

    @staticmethod
    def _position(own: _Span, offset: int) -> int:
        return offset if offset < own.until else UNREAD


def _read_up_to(source: Source, host: Mapping[str, Any]) -> dict[SourcePartition, int]:
    """Return the offset up to which the newest tick has read each partition."""
    names: Sequence[str] = host.get(SOURCES, ())
    name = f"{source.connector} {source.name}"
    ends = load_end_offsets(host)
    if ends is None or name not in names or ends[names.index(name)] == NOTHING_READ:
        return {}
    read = json.loads(ends[names.index(name)])
    return {
        SourcePartition(topic, int(number)): end for topic, own in read.items() for number, end in own.items()
    }


def _begins_later(source: Source) -> bool:
    options = {name.lower(): value.strip().lower() for name, value in source.options.items()}
    begins = options.get("startingoffsets", "earliest")
    return begins != "earliest" or bool({"startingtimestamp", "startingoffsetsbytimestamp"} & options.keys())
