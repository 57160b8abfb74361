"""A Kafka sink that is exactly once, without Spark, on a real broker: repeats, other runs, refusals."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter

import pytest

from tests.sinks.kafka_frames import COLUMNS, identity_of, prepare_sink, sink_of, stage, stopping_at
from watersmeet.errors import EngineError, SeveralErrors, SpecError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.sinks.kafka import transactions
from watersmeet.sinks.kafka.client import Client, library
from watersmeet.sinks.kafka.records import TopicRecords
from watersmeet.sinks.kafka.transactions import TransactionalProducer
from watersmeet.sinks.part_mark import Resumed
from watersmeet.spec.model import Sink
from watersmeet.spec.options.kafka import SINK_OURS
from watersmeet.spec.options.kafka_delivery import client_settings
from watersmeet.spec.options.names import sink_option_problems
from watersmeet.spec.secrets import public
from watersmeet.state.store import LocalStore

real = pytest.mark.kafka
ROWS = [(f"k{n}", None if n == 3 else f"v{n}") for n in range(8)]


@pytest.fixture
def topic(kafka_broker, request):
    name = request.node.name.replace("[", "-").replace("]", "")
    kafka_broker.create_topic(name, partitions=2)
    return name


@pytest.fixture
def sink_factory(kafka_broker, topic, tmp_path):
    """Makes sinks of a run each, and closes them."""
    sinks = []

    def make(owner="the job", *, begins=True, **options):
        sink = sink_of(kafka_broker.bootstrap_servers, topic, **options)
        sinks.append(sink)
        return prepare_sink(sink, tmp_path / "files", owner, begins=begins)

    yield make
    for sink in sinks:
        sink.close()


def publish(sink, tick, rows=ROWS, partitions=2, identity=None):
    attempt = stage(sink, tick, rows, partitions)
    sink.check("q", tick, identity or identity_of(tick))
    return sink.publish("q", tick, attempt, identity or identity_of(tick))


def catch_engine_error(call):
    with pytest.raises(EngineError) as raised:
        call()
    assert raised.value.hint
    return raised.value


def count_records(broker, topic):
    return Counter((key, value) for _, key, value in broker.consume_all(topic))


def times(count):
    texts = [(key.encode(), None if value is None else value.encode()) for key, value in ROWS]
    return Counter(dict.fromkeys(texts, count))


@real
def test_a_tick_that_is_repeated_comes_once_whatever_the_tasks(kafka_broker, topic, sink_factory, tmp_path):
    sink = sink_factory()
    assert not sink.has_part("q", 1)
    assert publish(sink, 1, partitions=1)
    assert sink.has_part("q", 1)
    assert publish(sink, 1, partitions=5), "in the same run"
    assert not publish(sink, 2, rows=[])
    again = sink_factory()
    assert again.has_part("q", 1, "the job")
    again.resume(["q"], Resumed(0, True, {}))
    # Of another number of tasks, and to the last digit not the same rows: what was published counts.
    assert publish(again, 1, rows=ROWS[:5], partitions=3)
    assert count_records(kafka_broker, topic) == times(1)
    assert publish(again, 2)
    assert count_records(kafka_broker, topic) == times(2)
    error = catch_engine_error(lambda: publish(again, 2, identity={"rows": "others"}))
    assert error.code == "sink-of-another-tick"
    assert "other rows" in error.message
    assert count_records(kafka_broker, topic) == times(2)


@real
def test_staged_rows_go_with_the_tick(topic, sink_factory, tmp_path):
    sink = sink_factory()
    attempt = stage(sink, 1, ROWS, 3)
    told = sink._staged["q", 1, attempt]
    assert all((tmp_path / "files" / name).stat().st_size for name, _ in told)
    sink.publish("q", 1, attempt, identity_of(1))
    assert not any((tmp_path / "files" / name).exists() for name, _ in told)
    attempt = stage(sink, 2, ROWS, 3)
    told = sink._staged["q", 2, attempt]
    sink.discard(attempt)
    assert not any((tmp_path / "files" / name).exists() for name, _ in told)
    assert (
        catch_engine_error(lambda: sink.publish("q", 2, attempt, identity_of(2))).code == "staged-rows-gone"
    )


@real
@pytest.mark.parametrize("point", [pytest.param("half-sent", marks=pytest.mark.full), "sent", "marked"])
def test_an_attempt_that_wakes_up_after_its_repeat_sends_no_more(kafka_broker, topic, sink_factory, point):
    """It slept within its transaction, while another run repeated the tick."""
    slept = []

    def sleep():
        slept.append(point)
        other = sink_factory()
        other.resume(["q"], Resumed(0, True, {}))
        assert publish(other, 1)
        assert count_records(kafka_broker, topic) == times(1), (
            "the open transaction is aborted: readers go on"
        )
        assert publish(other, 2)

    zombie = sink_factory()
    end = stopping_at(point, f"{topic}-ticks", 4, lambda: not slept and zombie_is_at_work, sleep)
    zombie_is_at_work = False
    try:
        zombie._producing.close()  # its next producer is one that stops
        zombie_is_at_work = True
        error = catch_engine_error(lambda: publish(zombie, 1))
    finally:
        end()
    assert slept
    assert error.code == "sink-taken"
    assert count_records(kafka_broker, topic) == times(2)


@real
def test_what_another_run_commits_until_the_last_moment_counts(kafka_broker, topic, sink_factory):
    """It commits as the repeat begins, right before it is fenced: the mark is read behind that."""
    first, committed = sink_factory(), []
    end = stopping_at(
        "initialising", "", 0, lambda: not committed, lambda: committed.append(publish(first, 1))
    )
    try:
        second = sink_factory()
    finally:
        end()
    assert committed == [True]
    second.resume(["q"], Resumed(0, True, {}))
    assert publish(second, 1)
    assert count_records(kafka_broker, topic) == times(1)


@real
def test_a_run_that_was_overtaken_before_it_began_its_transaction(kafka_broker, topic, sink_factory):
    first, second = sink_factory(), sink_factory()
    assert catch_engine_error(lambda: publish(first, 1)).code == "sink-taken"
    assert publish(second, 1)
    assert catch_engine_error(lambda: publish(first, 1)).code == "sink-taken"
    assert publish(second, 2), "what the first one tried does not stop the other"
    assert count_records(kafka_broker, topic) == times(2)


@real
def test_a_run_by_another_transactional_id_is_fenced_as_well(kafka_broker, topic, sink_factory):
    first = sink_factory(**{"transactional.id": "one"})
    slept = []

    def sleep():
        slept.append(1)
        assert publish(sink_factory(**{"transactional.id": "two"}), 1)

    publish(first, 0, rows=[])
    first._producing.close()
    end = stopping_at("sent", f"{topic}-ticks", 4, lambda: not slept, sleep)
    try:
        assert catch_engine_error(lambda: publish(first, 1)).code == "sink-taken"
    finally:
        end()
    assert count_records(kafka_broker, topic) == times(1)


@real
def test_two_runs_by_other_ids_that_begin_at_once(kafka_broker, topic, sink_factory, monkeypatch):
    """The other one begins, and sends, when this one has read the control topic and not said that it has the
    sink."""
    sink_factory().close()
    note, begun = TransactionalProducer.record_run, []

    def later(self, **told):
        if not begun:
            begun.append(None)
            begun[0] = sink_factory(**{"transactional.id": "other"})
            assert publish(begun[0], 1)
        note(self, **told)

    monkeypatch.setattr(TransactionalProducer, "record_run", later)
    sink = sink_factory(begins=False, **{"transactional.id": "own"})
    sink.resume(["q"], Resumed(0, True, {}))
    assert publish(sink, 1)
    assert count_records(kafka_broker, topic) == times(1)
    assert catch_engine_error(lambda: publish(begun[0], 2)).code == "sink-taken"
    assert publish(sink, 2)
    assert count_records(kafka_broker, topic) == times(2)


@real
def test_a_run_that_another_one_passes_while_it_begins_is_refused(
    kafka_broker, topic, sink_factory, monkeypatch
):
    note, begun = TransactionalProducer.record_run, []

    def sooner(self, **told):
        note(self, **told)
        if not begun:
            begun.append(None)
            begun[0] = sink_factory(**{"transactional.id": "other"})

    monkeypatch.setattr(TransactionalProducer, "record_run", sooner)
    assert catch_engine_error(lambda: sink_factory(**{"transactional.id": "own"})).code == "sink-taken"
    assert publish(begun[0], 1)
    assert count_records(kafka_broker, topic) == times(1)


@real
@pytest.mark.parametrize("is_open", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_sink_that_was_renamed_fences_the_old_run(kafka_broker, topic, sink_factory, tmp_path, is_open):
    old = sink_factory()
    publish(old, 1)

    def publish_under_new_name():
        sink = sink_of(kafka_broker.bootstrap_servers, topic, "renamed")
        prepare_sink(sink, tmp_path / "files", begins=False)
        sink.resume(["q"], Resumed(1, False, {"q": (1, identity_of(1))}))
        assert publish(sink, 2)
        return sink

    slept = []
    end = stopping_at(
        "sent" if is_open else "initialising",
        f"{topic}-ticks",
        4,
        lambda: not slept,
        lambda: slept.append(None) or slept.append(publish_under_new_name()),
    )
    try:
        old._producing.close()
        assert catch_engine_error(lambda: publish(old, 2)).code == "sink-taken"
    finally:
        end()
    assert count_records(kafka_broker, topic) == times(2)
    assert publish(slept[1], 3)
    slept[1].close()


@real
def test_two_sinks_of_a_run_over_one_topic_let_each_other_be(kafka_broker, topic, tmp_path):
    store = LocalStore(tmp_path)
    for run in range(2):
        sinks = []
        for name in ("one", "two"):
            sink = sink_of(kafka_broker.bootstrap_servers, topic, name)
            store = store if name == "two" else LocalStore(tmp_path)
            sink.stage_in(store)
            sink.prepare(COLUMNS, "the job")
            sink.resume([], Resumed(run, False, {}))
            assert sink._has_all
            sinks.append(sink)
        first = sinks[0]._producing._producer
        for sink, insert in zip(sinks, ("q", "r"), strict=True):
            attempt = stage(sink, run + 1, ROWS, 2, insert)
            assert sink.publish(insert, run + 1, attempt, identity_of(run + 1))
        assert sinks[0]._producing._producer is first, "it was not fenced"
        for sink in sinks:
            sink.close()
    assert count_records(kafka_broker, topic) == times(4)


@real
def test_deleted_tick_mark_is_rejected_on_resume(kafka_broker, topic, sink_factory):
    """Of the first tick with rows, which is repeated: the state knows of none. Its mark is deleted, and the
    records of runs stay."""
    sink = sink_factory()
    publish(sink, 1)
    sink_factory(begins=False).close()  # a run that began, and was killed
    control = sink._producing.control
    kafka_broker.produce(control.name, [(0, control.tick_record("q", 1, {})[0].decode(), None)])
    error = catch_engine_error(lambda: sink_factory(begins=False).resume(["q"], Resumed(0, True, {})))
    assert error.code == "sink-behind"
    again = catch_engine_error(lambda: sink_factory(begins=False).resume(["q"], Resumed(0, True, {})))
    assert again.code == "sink-behind"
    assert count_records(kafka_broker, topic) == times(1)


@real
def test_recreated_topic_is_reported_once(kafka_broker, topic, sink_factory, caplog):
    publish(sink_factory(), 1)
    publish(sink_factory(), 2)
    assert caplog.messages == []
    kafka_broker.delete_topic(topic)
    kafka_broker.create_topic(topic, partitions=2)
    assert publish(sink_factory(), 3)
    (message,) = caplog.messages
    assert (
        f'the topic "{topic}" was deleted and created again: it lacks the records of earlier ticks (2 of "q")'
        in message
    )
    assert publish(sink_factory(), 4)
    assert len(caplog.messages) == 1
    assert count_records(kafka_broker, topic) == times(2)


@real
def test_a_topic_that_not_all_brokers_know_yet_is_waited_for(kafka_broker, topic, sink_factory, monkeypatch):
    sink, transaction, tries = sink_factory(), TransactionalProducer.run_transaction, []

    def unknown(self, *told):
        tries.append(1)
        if len(tries) < 3:
            raise library().KafkaException(
                library().KafkaError(library().KafkaError.UNKNOWN_TOPIC_OR_PART, "not yet")
            )
        transaction(self, *told)

    monkeypatch.setattr(TransactionalProducer, "run_transaction", unknown)
    assert publish(sink, 1)
    assert len(tries) == 3
    assert count_records(kafka_broker, topic) == times(1)
    monkeypatch.setattr(transactions, "TOPIC_READY_S", 0.0)
    tries.clear()
    assert catch_engine_error(lambda: publish(sink, 2)).code == "sink-refused"


@real
def test_what_the_checkpoint_and_the_topic_know_must_fit(kafka_broker, topic, sink_factory):
    sink = sink_factory()
    for tick in (1, 2, 3):
        publish(sink, tick)
    known = {"q": (3, identity_of(3))}
    sink_factory().resume(["q"], Resumed(3, False, known))
    sink_factory().resume(["q"], Resumed(2, True, {"q": (2, identity_of(2))}))
    ahead = catch_engine_error(
        lambda: sink_factory().resume(["q"], Resumed(2, False, {"q": (2, identity_of(2))}))
    )
    assert ahead.code == "sink-ahead"
    assert "'begins_after_tick' = '2'" in ahead.hint
    other = catch_engine_error(
        lambda: sink_factory().resume(["q"], Resumed(3, False, {"q": (3, {"rows": "x"})}))
    )
    assert other.code == "sink-of-another-history"
    assert (
        catch_engine_error(
            lambda: sink_factory().resume(["q"], Resumed(9, False, {"q": (9, identity_of(9))}))
        ).code
        == "sink-behind"
    )
    sink_factory("another job").resume(["q"], Resumed(0))
    # The control topic is lost.
    kafka_broker.delete_topic(f"{topic}-ticks")
    behind = catch_engine_error(lambda: sink_factory(begins=False).resume(["q"], Resumed(3, False, known)))
    assert (behind.code, "'begins_after_tick' = '3'" in behind.hint) == ("sink-behind", True)
    kafka_broker.delete_topic(f"{topic}-ticks")
    began = catch_engine_error(lambda: sink_factory(begins=False).resume(["q"], Resumed(0, True, {})))
    assert (began.code, "interrupted tick 1" in began.message) == ("sink-behind", True)
    again = catch_engine_error(lambda: sink_factory(begins=False).resume(["q"], Resumed(0, True, {})))
    assert again.code == "sink-behind", "a run that was refused is none by which it could be told"
    assert sink_of(kafka_broker.bootstrap_servers, topic).has_part("q", 4, "the job")
    for tick in ("2", "3"):  # quiet ticks came after the last one with rows, and the next was begun
        asked = sink_of(kafka_broker.bootstrap_servers, topic, begins_after_tick=tick)
        assert asked.has_part("q", 4, "the job") == (tick == "2")
    known = {"q": (2, identity_of(2))}
    quiet = catch_engine_error(lambda: sink_factory(begins=False).resume(["q"], Resumed(3, True, known)))
    assert "'begins_after_tick' = '3'" in quiet.hint
    early = catch_engine_error(
        lambda: sink_factory(begins=False, begins_after_tick="2").resume(["q"], Resumed(3, True, known))
    )
    assert (early.code, "interrupted tick 4" in early.message) == ("sink-behind", True)
    told = sink_factory(begins=False, begins_after_tick="3")
    told.resume(["q"], Resumed(3, True, known))
    publish(told, 4)
    assert count_records(kafka_broker, topic) == times(4)


@real
def test_nobody_knows_of_a_control_topic_without_a_run(kafka_broker, topic, tmp_path):
    assert sink_of(kafka_broker.bootstrap_servers, topic).has_part("q", 1, "another job"), "nor is it there"
    sink = sink_of(kafka_broker.bootstrap_servers, topic)
    prepare_sink(sink, tmp_path, "another job")
    sink.close()
    asked = sink_of(kafka_broker.bootstrap_servers, topic)
    assert asked.has_part("q", 1, "the job"), "there may be one"
    assert not asked.has_part("q", 1, "another job")
    assert not sink_of(kafka_broker.bootstrap_servers, topic, begins_after_tick="0").has_part(
        "q", 1, "the job"
    )


@real
def test_marks_outlive_what_compaction_takes(kafka_broker, topic, sink_factory):
    """The control topic is compacted, and the last mark of each key is read behind many others."""
    sink = sink_factory()
    for tick in range(1, 40):
        publish(sink, tick, rows=ROWS[:1])
    policy = kafka_broker.config_of(f"{topic}-ticks")
    assert policy["cleanup.policy"] == "compact"
    records = kafka_broker.consume_all(f"{topic}-ticks")
    assert len({key for _, key, _ in records}) == 2, "of the run and of its INSERT"
    again = sink_factory()
    again.resume(["q"], Resumed(39, False, {"q": (39, identity_of(39))}))
    assert publish(again, 39)
    assert len(kafka_broker.consume_all(topic)) == 39


@real
def test_a_control_topic_that_forgets_is_refused(kafka_broker, topic, sink_factory):
    kafka_broker.create_topic("forgetful")
    error = catch_engine_error(lambda: sink_factory(**{"control.topic": "forgetful"}))
    assert error.code == "control-topic"
    assert "cleanup.policy is delete" in error.message


@real
def test_broker_rejection_is_reported_and_publishes_nothing(kafka_broker, topic, sink_factory):
    sink = sink_factory()
    error = catch_engine_error(lambda: publish(sink, 1, rows=[*ROWS, ("big", "x" * 2_000_000)]))
    assert (error.code, "too large" in error.message) == ("sink-refused", True)
    assert "'max.request.size'" in error.hint
    assert count_records(kafka_broker, topic) == Counter()
    assert publish(sink, 1), "and what fits goes on"
    assert count_records(kafka_broker, topic) == times(1)
    missing = catch_engine_error(lambda: sink_factory(topic="not-there"))
    assert (missing.code, 'the topic "not-there" does not exist' in missing.message) == (
        "topic-missing",
        True,
    )
    slow = catch_engine_error(lambda: sink_factory(**{"transaction.timeout.ms": "90000000"}))
    assert (slow.code, "transaction.max.timeout.ms" in slow.hint) == ("sink-refused", True)
    with pytest.raises(SpecError, match=r"ssl\.ca\.location") as wrong:
        sink_factory(
            **{
                "security.protocol": "SSL",
                "ssl.ca.location": "/no/where.pem",
                "ssl.key.password": "topsecret",
            }
        )
    assert "topsecret" not in str(wrong.value)


@real
def test_unreachable_brokers_are_reported(tmp_path):
    sink = sink_of("127.0.0.1:9", "x", max_wait="1 s")
    began = time.monotonic()
    error = catch_engine_error(lambda: prepare_sink(sink, tmp_path))
    assert error.code == "sink-unreachable"
    assert "refused" in error.message
    assert time.monotonic() - began < 45


@real
def test_an_open_transaction_of_others_in_the_control_topic_is_waited_for(
    kafka_broker, topic, sink_factory, tmp_path
):
    """Its mark may be of a tick that is committed behind it: readers of committed records stop before it."""
    sink = sink_factory()
    publish(sink, 1)
    other = sink_factory("another job")
    got = []

    def start_blocked_reader():
        reader = threading.Thread(target=lambda: got.append(sink_factory().has_part("q", 1)))
        reader.start()
        reader.join(1.5)
        assert not got
        threads.append(reader)

    threads: list[threading.Thread] = []
    other._producing.close()
    end = stopping_at(
        "marked",
        f"{topic}-ticks",
        4,
        lambda: not threads and not got,
        lambda: (end(), start_blocked_reader()),
    )
    publish(other, 1)
    threads[0].join(30)
    assert got == [True]


def options_of(**options):
    return Sink("a", "kafka", {"topic": "x", "bootstrap.servers": "x:1", **options})


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"delivery": "twice"}, "'exactly-once' or 'at-least-once'"),
        ({"delivery": "at-least-once", "max_wait": "1 s"}, "remove it"),
        ({"delivery": "at-least-once", "transactional.id": "x"}, "'exactly-once'"),
        ({"id.header": "row-id"}, "'at-least-once'"),
        ({"delivery": "at-least-once", "id.header": ""}, "'row-id'"),
        ({"max_wait": "soon"}, "'10 min'"),
        ({"begins_after_tick": "-1"}, "'begins_after_tick' = '5'"),
        ({"control.topic": "x"}, "the name of a separate topic"),
        ({"control.topic": "a b"}, "letters"),
        ({"acks": "1"}, "'at-least-once'"),
        ({"enable.idempotence": "false"}, "'true'"),
        ({"transaction.timeout.ms": "a minute"}, "'60000'"),
        ({"partitioner.class": "x"}, "as with the Java client"),
        ({"max.block.ms": "1"}, "'at-least-once'"),
        ({"ssl.truststore.location": "t.jks"}, "'ssl.truststore.type' = 'PEM'"),
        ({"ssl.truststore.location": "t.jks", "ssl.truststore.type": "JKS"}, "PEM"),
        ({"ssl.keystore.location": "k.p12"}, "'ssl.keystore.type' = 'PKCS12'"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "'sasl.username'"),
        ({"sasl.usrname": "x"}, "sasl.username"),
        ({"ssl.ca.locatoin": "x"}, "ssl.ca.location"),
    ],
)
def test_options_are_checked_before_anything_starts(options, hint):
    (refused,) = sink_option_problems(options_of(**options))
    assert hint in refused.hint
    assert 'Kafka sink "a"' in refused.message


def test_settings_are_those_of_the_library():
    jaas = (
        """org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="a\\"b";"""
    )
    sink = options_of(**{
        "kafka.security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas,
        "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem", "max.request.size": "5",
        "delivery": "exactly_once", "control.topic": "c", "key": "k", "kafka.my.own": "1",
    })  # fmt: skip
    assert sink_option_problems(sink) == []
    settings = client_settings(sink.options, SINK_OURS)
    assert settings == {
        "bootstrap.servers": "x:1", "security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me", "sasl.password": 'a"b', "ssl.ca.location": "ca.pem", "message.max.bytes": "5",
        "my.own": "1",
    }  # fmt: skip
    assert 'a"b' not in repr(settings)
    for name in ("sasl.password", "ssl.keystore.key", "ssl.key.pem", "sasl.oauthbearer.client.secret"):
        assert public(name, "x") == "***"


def test_prepare_without_an_owner_asks_no_broker():
    sink = sink_of("127.0.0.1:9", "x")
    sink.prepare(COLUMNS)
    assert isinstance(sink._records, TopicRecords)
    assert json.dumps(dict(sink.secrets)) == "{}"


@pytest.mark.parametrize(
    ("options", "kbytes"),
    [
        ({}, "65536"),
        ({"message.max.bytes": str(100 << 20)}, str(200 << 10)),
        ({"queue.buffering.max.kbytes": "9"}, "9"),
    ],
)
def test_what_the_client_holds_is_bounded(options, kbytes, monkeypatch):
    told = []
    monkeypatch.setattr(library(), "Producer", lambda settings, **_: told.append(settings))
    Client(options, "a").producer()
    assert told[0]["queue.buffering.max.kbytes"] == kbytes


TOPICS = """
CREATE TABLE a (id BIGINT, t BIGINT, WATERMARK FOR t AS t)
    WITH ('connector' = 'kafka', 'topic' = 'in,_watersmeet_ticks', 'bootstrap.servers' = 'x:1,y:1');
CREATE SINK one WITH ('connector' = 'kafka',
    'topic' = 'o', 'bootstrap.servers' = 'y:1', 'transactional.id' = 'i');
CREATE SINK two WITH ('connector' = 'kafka', 'topic' = 'p', 'bootstrap.servers' = 'y:1',
    'kafka.transactional.id' = 'i', 'control.topic' = 'o');
CREATE SINK far WITH ('connector' = 'kafka',
    'topic' = 'o', 'bootstrap.servers' = 'z:1', 'transactional.id' = 'i');
CREATE SINK own WITH ('connector' = 'kafka', 'topic' = '_watersmeet_ticks', 'bootstrap.servers' = 'q:1');
INSERT INTO one SELECT id FROM a;
INSERT INTO two SELECT id FROM a;
INSERT INTO far SELECT id FROM a;
INSERT INTO own SELECT id FROM a;
"""


def test_topics_and_ids_that_must_be_apart_are_refused_at_once():
    with pytest.raises(SeveralErrors) as caught:
        plan_job(parse_job(TOPICS))
    told = {error.message.split(",")[0]: error.code for error in caught.value.errors}
    assert told == {
        '"a" reads the topic "_watersmeet_ticks"': "control-topic",
        '"one" writes to the topic "o"': "control-topic",
        '"own" writes to the topic "_watersmeet_ticks"': "control-topic",
        '"one" and "two" have the same transactional.id': "shared-transactional-id",
    }


@real
@pytest.mark.parametrize("records", [10, *(pytest.param(n, marks=pytest.mark.full) for n in (8, 9, 11, 12))])
def test_the_mark_waits_for_room_as_well(kafka_broker, topic, sink_factory, records):
    sink = sink_factory(**{"queue.buffering.max.messages": "10", "linger.ms": "100"})
    assert publish(sink, 1, rows=[(f"k{n}", "v") for n in range(records)], partitions=1)
    assert count_records(kafka_broker, topic).total() == records


@real
def test_a_record_that_the_client_cannot_hold_is_refused(topic, sink_factory):
    sink = sink_factory(**{"queue.buffering.max.kbytes": "1"})
    publish(sink, 1, rows=[("k", "small")])
    assert (
        "larger than the client's buffer"
        in catch_engine_error(lambda: publish(sink, 2, rows=[("k", "x" * 5_000)])).message
    )


@real
def test_earlier_client_error_does_not_stop_publishing(kafka_broker, topic, sink_factory):
    from confluent_kafka import KafkaError

    sink = sink_factory()
    sink._client._on_client_error(KafkaError(KafkaError._AUTHENTICATION))
    slept = threading.Event()

    def fail():
        slept.set()
        raise library().KafkaException(KafkaError(KafkaError._TRANSPORT))

    end = stopping_at("marked", f"{topic}-ticks", 4, lambda: not slept.is_set(), fail)
    try:
        sink._producing.close()
        publish(sink, 1)
    finally:
        end()
    assert slept.is_set()
    assert count_records(kafka_broker, topic) == times(1)
