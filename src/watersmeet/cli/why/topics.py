"""Kafka's topics, read again for `why`: by the offsets that the history has of every tick, and bounded.

What is not there any more, or not the same any more, is named, and where it stood.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.cli.why.topic_order import unordered
from watersmeet.cli.why.topic_parts import Others, PartRead, gone
from watersmeet.cli.why.topic_records import RecordsAgain
from watersmeet.engine.spark.checkpoint.host import NOTHING_READ, SOURCES, TOPICS, ends_in
from watersmeet.engine.values import to_table
from watersmeet.errors import WatersmeetError, counted
from watersmeet.kernel.batches import one_table
from watersmeet.spec.model import Source
from watersmeet.spec.options.changes import UPSERT
from watersmeet.spec.options.kafka import is_another_topic, records_of, servers_text, topics_in
from watersmeet.topics.reading import (
    KEY,
    OFFSET,
    TIMESTAMP,
    VALUE,
    NotRead,
    Place,
    Silent,
    Topic,
    TopicReader,
)
from watersmeet.why.recorded import Recorded
from watersmeet.why.reread import UNREAD, Missing, Numbers, Portion, Reread

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
    """What is to be read of a partition: ``first`` to before ``end``; the job has read up to ``until``."""

    first: int
    until: int
    end: int


@dataclass
class _Rows:
    """What was read of one. ``offsets``: of rows; ``records``, ``counted``: of all records, and how many rows
    a tick counts of each."""

    tables: list[pa.Table] = field(default_factory=list)
    offsets: list[Numbers] = field(default_factory=list)
    left_out: dict[int, str] = field(default_factory=dict)
    records: list[Numbers] = field(default_factory=list)
    counted: list[Numbers] = field(default_factory=list)


def topics_again(
    source: Source,
    host: Mapping[str, Any],
    history: Recorded,
    time_zone: str,
    needed: frozenset[str],
    silent: set[str],
) -> Reread:
    """All records of a source of Kafka, as far as they can be read again.

    Args:
        host: of the newest manifest.
        needed: the columns that must be there.
        silent: brokers that did not answer, which are not asked again; more come to it.
    """
    servers = servers_text(source.options)
    try:
        records = RecordsAgain(source, time_zone, needed)
        if servers in silent:
            return _unread(source, f"no broker answers at {servers}")
        with TopicReader(source) as reader:
            return _Again(source, host, history, records, time_zone).read(reader)
    except (NotRead, Others) as why:
        if isinstance(why, Silent):
            silent.add(servers)
        return _unread(source, str(why))
    except WatersmeetError as error:  # of what only Spark reads, and of a schema registry
        return _unread(source, error.message.removeprefix(f'"{source.name}": '))


def _unread(source: Source, why: str) -> Reread:
    return Reread(source, (), (Missing(f"its records are not read again: {why}"),))


class _Again:
    def __init__(
        self, source: Source, host: Mapping[str, Any], history: Recorded, records: RecordsAgain, zone: str
    ) -> None:
        self._source, self._history, self._records, self._zone = source, history, records, zone
        self._until = _read_up_to(source, host)
        self._ids: Mapping[str, str] = host.get(TOPICS, {}).get(source.name, {})
        self._missing: list[Missing] = []
        self._bytes = self._left_out = 0

    def read(self, reader: TopicReader) -> Reread:
        """Raises: NotRead, Others; WatersmeetError, of a schema registry."""
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
            self._missing += gone(self._history, self._source.name, parts, by_keys=is_upsert)
        self._missing += unordered(self._source, portions, self._history, self._zone)
        if self._left_out > MOST_LEFT_OUT:
            more = counted(self._left_out - MOST_LEFT_OUT, "more record")
            self._missing.append(Missing(f"{more} could not be read here"))
        return Reread(self._source, portions, tuple(self._missing))

    # what there is

    def _spans(self, topics: Mapping[str, Topic]) -> dict[Place, _Span]:
        spans: dict[Place, _Span] = {}
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
                    span = self._span(Place(name, partition), *ends)
                    if span is not None:
                        spans[Place(name, partition)] = span
        return spans

    def _lacks(self, words: str) -> None:
        self._missing.append(Missing(words))

    def _span(self, place: Place, first: int, end: int) -> _Span | None:
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

    def _bound(self, spans: Mapping[Place, _Span]) -> None:
        """Leave out what is too much: the oldest of what was read, the newest of what was not."""
        for place, own in spans.items():
            most = max(own.until, own.first) + MOST_UNREAD // len(spans)
            if own.end > most:
                words = f"{place.name} is not looked at from offset {most:,} on, which no tick has read"
                self._missing.append(Missing(words, place.name, UNREAD))
                own.end = most
        total = sum(max(0, min(own.until, own.end) - own.first) for own in spans.values())
        if total <= MOST_RECORDS:
            return
        slot = self._first_slot(spans)
        words = (
            f"of its {total:,} records those are read again that came after tick {self._history.ticks[slot]}:"
            f" no more than {MOST_RECORDS:,} are"
        )
        for place, own in spans.items():
            first = self._from(place, own, slot)
            if first > own.first:
                self._missing.append(Missing(words, place.name, own.first, first))
                own.first = first

    def _first_slot(self, spans: Mapping[Place, _Span]) -> int:
        """The first one after which no more was read than is read again."""
        low, high = 0, len(self._history) - 1
        while low < high:
            slot = (low + high) // 2
            left = sum(max(0, own.until - self._from(place, own, slot)) for place, own in spans.items())
            low, high = (low, slot) if left <= MOST_RECORDS else (slot + 1, high)
        return low

    def _from(self, place: Place, own: _Span, slot: int) -> int:
        return max(own.first, self._history.ends_of(self._source.name, place.name)[slot])

    # rows

    def _take(self, place: Place, batch: pa.RecordBatch, rows: _Rows) -> None:
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
            raise NotRead(f"their rows would take more than {MOST_BYTES >> 20} MB of memory")

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


def _read_up_to(source: Source, host: Mapping[str, Any]) -> dict[Place, int]:
    """Per partition how far it was read, by the newest tick."""
    names: Sequence[str] = host.get(SOURCES, ())
    name = f"{source.connector} {source.name}"
    ends = ends_in(host)
    if ends is None or name not in names or ends[names.index(name)] == NOTHING_READ:
        return {}
    read = json.loads(ends[names.index(name)])
    return {Place(topic, int(number)): end for topic, own in read.items() for number, end in own.items()}


def _begins_later(source: Source) -> bool:
    options = {name.lower(): value.strip().lower() for name, value in source.options.items()}
    begins = options.get("startingoffsets", "earliest")
    return begins != "earliest" or bool({"startingtimestamp", "startingoffsetsbytimestamp"} & options.keys())
