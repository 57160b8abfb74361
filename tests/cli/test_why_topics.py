"""Topics read again for `why`, from a reader that gives what a test says is there: bounds, and what is
missing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError

from tests.support.columns import column
from watersmeet import topics as reading
from watersmeet.cli.why import topics
from watersmeet.errors import EngineError
from watersmeet.history.points import Figures, Points, subject_of
from watersmeet.history.reader import JobHistory
from watersmeet.runtime.spark.checkpoint.spark_positions import OFFSETS, SOURCES, TOPICS
from watersmeet.spec.model import Source
from watersmeet.topics import (
    RECORDS,
    SilentBrokers,
    SourcePartition,
    TopicReader,
    TopicReadError,
    TopicState,
)
from watersmeet.why.rows import UNREAD, Reread
from watersmeet.why.ticks import tick_history

OF = subject_of("source", "s")


class Reader:
    """A topic ``t`` with so many records per partition, whose numbers are their offsets."""

    def __init__(self, ends: Mapping[int, tuple[int, int]], topic_id: str = "a") -> None:
        self.ends, self.topic_id = ends, topic_id
        self.asked: dict[SourcePartition, tuple[int, int]] = {}

    def __call__(self, source: Source) -> Reader:
        return self

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def topics(self) -> dict[str, TopicState]:
        return {"t": TopicState(self.topic_id, self.ends)} if self.ends else {}

    def records(
        self, spans: Mapping[SourcePartition, tuple[int, int]]
    ) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
        self.asked = dict(spans)
        for place, (first, end) in spans.items():
            offsets = list(range(first, end))
            values = [json.dumps({"n": n}).encode() if n % 5 else b"broken" for n in offsets]
            yield place, pa.record_batch([offsets, [None] * len(offsets), values, offsets], schema=RECORDS)


class Refusing(Reader):
    def __init__(self, why: Exception) -> None:
        super().__init__({})
        self.why = why

    def topics(self) -> dict[str, TopicState]:
        raise self.why


def source(**options: str) -> Source:
    given = {"topic": "t", "bootstrap.servers": "nowhere:1", **options}
    return Source("s", (column("n", "BIGINT"),), "kafka", given)


def history(ticks: list[dict[int, int]], began: Mapping[int, int] | None = None) -> Any:
    """Of ticks that read up to these offsets."""
    points, before = Points(), dict(began or {})
    for tick, ends in enumerate(ticks, 1):
        levels: dict[tuple[str, str], int | None] = {(OF, f"offset t/{n}"): end for n, end in ends.items()}
        if tick == 1 and began is not None:
            levels |= {(OF, f"start offset t/{n}"): at for n, at in began.items()}
        rows = sum(end - before.get(n, 0) for n, end in ends.items())
        before |= ends
        points.add(tick, tick, Figures({("job", "duration_us"): 1, (OF, "rows_in"): rows}, levels))
    return tick_history(JobHistory(points.table()))


def read(monkeypatch: Any, reader: Reader, told: Any, until: Mapping[int, int], **options: str) -> Reread:
    monkeypatch.setattr(topics, "TopicReader", reader)
    offsets = json.dumps({"t": {str(n): end for n, end in until.items()}})
    host = {SOURCES: ["kafka s"], OFFSETS: f"v1\n{{}}\n{offsets}", TOPICS: {"s": {"t": "a"}}}
    return topics.topics_again(source(**options), host, told, "UTC", frozenset({"n"}), set())


def rows_of(reread: Reread) -> dict[int, int]:
    """Per record that was read its position."""
    return {
        offset: portion.position
        for portion in reread.portions
        for offset in portion.rows.column("n").to_pylist()
    }


def words(reread: Reread) -> list[str]:
    return list(dict.fromkeys(own.words for own in reread.missing))


def test_rows_stand_where_their_tick_read_them(monkeypatch: Any) -> None:
    told = history([{0: 4}, {0: 9}], {0: 2})
    again = read(monkeypatch, Reader({0: (0, 12)}), told, {0: 9})
    assert words(again) == ["the job has read t/0 from offset 2 on: of what is before that nothing is told"]
    assert rows_of(again) == {2: 2, 3: 2, 4: 4, 6: 4, 7: 4, 8: 4, 9: UNREAD, 11: UNREAD}
    places = [own.place_of(0) for own in again.portions if own.rows.num_rows]
    assert places == ["t/0 at offset 2", "t/0 at offset 4", "t/0 at offset 9"]
    broken = {own.place: own.position for own in again.portions if own.left_out}
    assert broken == {"t/0 at offset 5": 5, "t/0 at offset 10": UNREAD}


def test_what_nobody_read_yet_is_not_looked_at_without_end(monkeypatch: Any) -> None:
    monkeypatch.setattr(topics, "MOST_UNREAD", 6)
    reader = Reader({0: (0, 50), 1: (3, 9)})
    again = read(monkeypatch, reader, history([{0: 4}], {0: 0}), {0: 4})
    assert reader.asked == {SourcePartition("t", 0): (0, 7), SourcePartition("t", 1): (3, 6)}
    assert words(again) == [
        "t/0 is not looked at from offset 7 on, which no tick has read",
        "t/1 is not looked at from offset 6 on, which no tick has read",
    ]
    assert all(own.position == UNREAD for own in again.missing)


def test_the_newest_ticks_are_read_where_there_are_too_many(monkeypatch: Any) -> None:
    monkeypatch.setattr(topics, "MOST_RECORDS", 10)
    reader = Reader({0: (0, 20), 1: (0, 8)})
    told = history([{0: 9, 1: 5}, {0: 14, 1: 5}, {0: 20, 1: 8}], {0: 0, 1: 0})
    again = read(monkeypatch, reader, told, {0: 20, 1: 8})
    assert reader.asked == {SourcePartition("t", 0): (14, 20), SourcePartition("t", 1): (5, 8)}
    assert words(again) == [
        "of its 28 records those are read again that came after tick 2: no more than 10 are"
    ]
    assert [(own.part, own.position) for own in again.missing] == [("t/0", 0), ("t/1", 0)]


@pytest.mark.parametrize(
    ("ends", "options", "said"),
    [
        ({0: (3, 9)}, {}, "t/0 begins at offset 3 now, and the job has read from 0 on"),
        ({0: (0, 5)}, {}, "t/0 ends at offset 5, and the job has read up to 9: the rest was lost"),
        ({1: (0, 5)}, {}, "partition t/0 is not there any more"),
        ({}, {}, "topic t is not there any more"),
    ],
)
def test_missing_topic_data_is_reported(
    ends: Any, options: dict[str, str], said: str, monkeypatch: Any
) -> None:
    again = read(monkeypatch, Reader(ends), history([{0: 9}], {0: 0}), {0: 9}, **options)
    assert said in words(again)
    assert all(own.position != UNREAD for own in again.missing)


def test_where_reading_began_is_not_guessed(monkeypatch: Any) -> None:
    told = history([{0: 9}])  # of a version that did not write it down
    assert words(read(monkeypatch, Reader({0: (0, 9)}), told, {0: 9})) == []
    latest = read(monkeypatch, Reader({0: (0, 9)}), told, {0: 9}, startingOffsets="latest")
    assert words(latest) == ["where the job began to read t/0 is not in the history"]
    assert not latest.portions
    untold = read(monkeypatch, Reader({0: (0, 9), 1: (0, 2)}), told, {0: 9, 1: 2})
    assert words(untold) == ["which tick read what of t/1 is not in the history"]


def test_another_topic_of_the_same_name_is_not_read(monkeypatch: Any) -> None:
    told = history([{0: 9}], {0: 0})
    again = read(monkeypatch, Reader({0: (0, 9)}, "b"), told, {0: 9})
    assert words(again) == ["topic t was deleted and created again, and has other records now"]
    others = read(monkeypatch, Reader({0: (0, 9)}), history([{0: 9}], {0: 4}), {0: 9})
    assert len(rows_of(others)) == 4
    points = Points()
    levels: dict[Any, Any] = {(OF, "offset t/0"): 9, (OF, "start offset t/0"): 0}
    points.add(1, 1, Figures({("job", "duration_us"): 1, (OF, "rows_in"): 5}, levels))
    fewer = read(monkeypatch, Reader({0: (0, 9)}), tick_history(JobHistory(points.table())), {0: 9})
    assert not fewer.portions
    assert "they are others than those that the job has read" in words(fewer)[0]


def test_a_topic_of_which_nothing_was_read(monkeypatch: Any) -> None:
    monkeypatch.setattr(topics, "TopicReader", Reader({0: (0, 3)}))
    again = topics.topics_again(source(), {}, history([{}]), "UTC", frozenset(), set())
    assert rows_of(again) == {1: UNREAD, 2: UNREAD}


def test_rows_and_records_are_bounded(monkeypatch: Any) -> None:
    told = history([{0: 20}], {0: 0})
    monkeypatch.setattr(topics, "MOST_LEFT_OUT", 1)
    assert words(read(monkeypatch, Reader({0: (0, 20)}), told, {0: 20})) == [
        "3 more records could not be read here"
    ]
    monkeypatch.setattr(topics, "MOST_BYTES", len("broken") - 1)
    of_none = read(monkeypatch, Reader({0: (0, 1)}), history([{0: 1}], {0: 0}), {0: 1})
    assert "would take more" in words(of_none)[0]
    monkeypatch.setattr(topics, "MOST_BYTES", 10)
    again = read(monkeypatch, Reader({0: (0, 20)}), told, {0: 20})
    assert words(again) == ["its records are not read again: their rows would take more than 0 MB of memory"]


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (TopicReadError("so it is"), "its records are not read again: so it is"),
        (EngineError('"s": only Spark', code="x"), "its records are not read again: only Spark"),
    ],
)
def test_why_a_topic_is_not_read(why: Exception, said: str, monkeypatch: Any) -> None:
    assert words(read(monkeypatch, Refusing(why), history([{0: 9}], {0: 0}), {0: 9})) == [said]


def test_silent_brokers_are_contacted_only_once(monkeypatch: Any) -> None:
    silent: set[str] = set()
    for reader in (Refusing(SilentBrokers("no broker answers at nowhere:1")), Refusing(AssertionError())):
        monkeypatch.setattr(topics, "TopicReader", reader)
        again = topics.topics_again(source(), {}, history([{}]), "UTC", frozenset(), silent)
        assert words(again) == ["its records are not read again: no broker answers at nowhere:1"]
    assert silent == {"nowhere:1"}


@pytest.mark.parametrize(
    "options",
    [
        {
            "sasl.mechanism": "GSSAPI",
            "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;",
        },
        {"kafka.ssl.truststore.location": "trusted.jks"},
        {"ssl.truststore.location": "trusted", "ssl.truststore.type": "JKS"},
        {"kafka.sasl.login.callback.handler.class": "com.example.Handler"},
    ],
)
def test_settings_that_only_java_knows_are_named(options: dict[str, str]) -> None:
    *_, last = options
    with pytest.raises(
        TopicReadError, match=f"'{last}' is for Kafka's client in Java alone|'ssl.truststore.type'"
    ):
        TopicReader(source(**options))


def test_brokers_that_are_not_there_are_not_waited_for(monkeypatch: Any) -> None:
    monkeypatch.setattr(reading, "ANSWER_S", 0.3)
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="5ecret";'
    options = {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "SASL_PLAINTEXT",
        "kafka.max.poll.records": "7",
    }
    with TopicReader(source(**options, **{"sasl.mechanism": "PLAIN", "sasl.jaas.config": login})) as reader:
        with pytest.raises(SilentBrokers, match=r"no broker answers at 127\.0\.0\.1:9"):
            reader.topics()
        with pytest.raises(SilentBrokers, match=r"no broker answers at 127\.0\.0\.1:9"):
            list(reader.records({SourcePartition("t", 0): (0, 1)}))


def test_rejected_login_is_reported(monkeypatch: Any) -> None:
    monkeypatch.setattr(reading, "ANSWER_S", 0.3)
    options = {"bootstrap.servers": "127.0.0.1:9"}
    with TopicReader(source(**options)) as reader:
        reader._client._on_client_error(KafkaError(KafkaError._AUTHENTICATION, "no such user"))
        with pytest.raises(TopicReadError, match="no such user") as said:
            reader.topics()
        assert not isinstance(said.value, SilentBrokers)
        reader._client._on_client_error(KafkaError(KafkaError._AUTHENTICATION, "no such user"))
        with pytest.raises(TopicReadError, match="the records did not arrive \\(no such user\\)"):
            list(reader.records({SourcePartition("t", 0): (0, 1)}))


class Message:
    """A record, or what the client says instead of one."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error

    def key(self) -> bytes:
        return b"k"

    def value(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_NOT_AVAILABLE, -1


class Consumer:
    """One that gives these messages, one after the other, after a while each, and then nothing."""

    def __init__(self, messages: list[Message], after_s: float = 0.0) -> None:
        self.messages, self.after_s = messages, after_s

    def assign(self, places: Any) -> None: ...

    def pause(self, places: Any) -> None: ...

    def consume(self, count: int, timeout: float) -> list[Message]:
        time.sleep(self.after_s)
        return [self.messages.pop(0)] if self.messages else []


def read_records(consumer: Consumer, pause_s: float = 0.0) -> list[dict[str, Any]]:
    """The records 0 to 2 that it gives; ``pause_s``: what is done with each takes so long."""
    rows = []
    with TopicReader(source()) as reader:
        for place, batch in reader._read(consumer, {SourcePartition("t", 0): (0, 3)}):
            assert place.name == "t/0"
            rows += batch.to_pylist()
            time.sleep(pause_s)
    return rows


def test_the_time_that_is_counted_is_that_of_brokers(monkeypatch: Any) -> None:
    monkeypatch.setattr(reading, "ANSWER_S", 0.05)
    rows = read_records(Consumer([Message(0), Message(2), Message(3)]), pause_s=0.1)
    assert [row["offset"] for row in rows] == [0, 2]
    assert rows[0] == {"offset": 0, "key": b"k", "value": None, "timestamp": None}
    with pytest.raises(SilentBrokers):
        read_records(Consumer([Message(0)], after_s=0.03))
    monkeypatch.setattr(reading, "MAX_READ_S", 0.05)
    with pytest.raises(TopicReadError, match="the brokers would take more than 0 s"):
        read_records(Consumer([Message(0), Message(1), Message(2)], after_s=0.03))


def test_a_partition_may_end_before_its_last_offset() -> None:
    last = Message(2, KafkaError(KafkaError._PARTITION_EOF))
    assert len(read_records(Consumer([Message(0), last]))) == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, None),
        (KafkaError._TRANSPORT, None),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "does not give them: .*Topic authorization failed"),
        (KafkaError._AUTO_OFFSET_RESET, "some have gone while they were read: ask again"),
    ],
)
def test_persistent_kafka_errors_are_reported(code: int, said: str | None) -> None:
    messages = [Message(0), Message(0, KafkaError(code)), Message(2)]
    if said is None:
        assert len(read_records(Consumer(messages))) == 2
        return
    with pytest.raises(TopicReadError, match=said):
        read_records(Consumer(messages))
