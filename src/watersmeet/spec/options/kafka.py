"""Options of Kafka sources and sinks, and the settings of Kafka's clients."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options.changes import DEBEZIUM, UPSERT
from watersmeet.spec.options.debezium import EVENT_FIELDS, METADATA_PREFIX, is_event_field, placeholders
from watersmeet.spec.options.debezium import OPTIONS as OF_DEBEZIUM
from watersmeet.spec.options.debezium import value_problems as debezium_problems
from watersmeet.spec.options.files import READERS, SPECIFIC_TO_FILES
from watersmeet.spec.options.kafka_delivery import (
    DELIVERY_OPTIONS,
    OF_LIBRDKAFKA,
    delivery_problems,
    is_exactly_once,
    lacking,
    plain_name,
)
from watersmeet.spec.options.records import FORMATS as WITH_SCHEMA
from watersmeet.spec.options.records import OPTIONS as OF_SCHEMAS
from watersmeet.spec.options.records import record_problems
from watersmeet.spec.options.values import Use, value_problems, wrong_value
from watersmeet.spec.records.text_records import UNIT, unit_problems
from watersmeet.spec.secrets import public_option

# Names of the settings of Kafka's own clients, as the version that Spark comes with knows them; a test
# asks it again.
#
# A client passes over names that it does not know, in silence.

_BOTH = (
    "auto.include.jmx.reporter", "bootstrap.servers", "client.dns.lookup", "client.id",
    "connections.max.idle.ms", "enable.metrics.push", "interceptor.classes", "metadata.max.age.ms",
    "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms",
    "reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms",
    "sasl.client.callback.handler.class", "sasl.jaas.config", "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.callback.handler.class", "sasl.login.class", "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms",
    "sasl.mechanism", "sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
    "sasl.oauthbearer.token.endpoint.url", "security.protocol", "security.providers", "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms", "ssl.cipher.suites",
    "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", "ssl.engine.factory.class",
    "ssl.key.password", "ssl.keymanager.algorithm", "ssl.keystore.certificate.chain", "ssl.keystore.key",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type", "ssl.protocol", "ssl.provider",
    "ssl.secure.random.implementation", "ssl.trustmanager.algorithm", "ssl.truststore.certificates",
    "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type",
)  # fmt: skip
CONSUMER = frozenset(_BOTH) | {
    "allow.auto.create.topics", "auto.commit.interval.ms", "auto.offset.reset", "check.crcs",
    "client.rack", "default.api.timeout.ms", "enable.auto.commit", "exclude.internal.topics",
    "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "group.id", "group.instance.id",
    "group.protocol", "group.remote.assignor", "heartbeat.interval.ms", "internal.leave.group.on.close",
    "internal.throw.on.fetch.stable.offset.unsupported", "isolation.level", "key.deserializer",
    "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records",
    "partition.assignment.strategy", "session.timeout.ms", "value.deserializer",
}  # fmt: skip
"""Of what reads."""

PRODUCER = frozenset(_BOTH) | {
    "acks", "batch.size", "buffer.memory", "compression.gzip.level", "compression.lz4.level",
    "compression.type", "compression.zstd.level", "delivery.timeout.ms", "enable.idempotence",
    "key.serializer", "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection",
    "max.request.size", "metadata.max.idle.ms", "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms", "partitioner.class", "partitioner.ignore.keys", "retries",
    "transaction.timeout.ms", "transactional.id", "value.serializer",
}  # fmt: skip
"""Of what writes."""


# Options of Kafka sources and sinks: where the records are, each by two names, and how they are written.
#
# A name with a dot that is none of ours is one of Kafka's client, with or without ``kafka.`` before it.
# The client passes over names that it does not know; a class of the user's own may read them, and then
# they are written with ``kafka.``.

READER = (
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "failOnDataLoss",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "groupIdPrefix",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs",
)  # fmt: skip
"""Options of Spark's reader."""

SOURCE_NAMES = ("topic", "format", "bootstrap.servers", "key.format", UNIT)
"""Ours, as they are named to people."""

SOURCE_OURS = (*SOURCE_NAMES, "topics", "kafka.bootstrap.servers")
SINK_OURS = ("topic", "format", "key", "key.format", *DELIVERY_OPTIONS)
KEYED = (UPSERT, DEBEZIUM)
"""Formats of sinks with one record per key and tick."""

KEY_FORMAT = "key.format"
JSON, RAW = "json", "raw"
SOURCE_FORMATS = (JSON, "csv", RAW, DEBEZIUM, UPSERT, *WITH_SCHEMA)
SINK_FORMATS = (JSON, "csv", RAW, *KEYED)

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What brokers without ids of topics (before Kafka 2.8) give."""

METADATA = ("key", "topic", "partition", "offset", "timestamp")
"""What a column of a source can be filled from, beside the record."""

_CLIENT = "kafka."
_PARSERS = ("json", "csv")
_OF_SPARK = {
    "key.deserializer": "Spark reads bytes; use 'format' to decode them",
    "value.deserializer": "Spark reads bytes; use 'format' to decode them",
    "key.serializer": "Spark writes bytes; use 'format' to encode them",
    "value.serializer": "Spark writes bytes; use 'format' to encode them",
    "enable.auto.commit": "the job's checkpoint stores the offsets",
    "auto.offset.reset": "use 'startingOffsets' to choose where reading begins",
    "interceptor.classes": "interceptors could change records unnoticed",
}
"""Settings of the client that Spark refuses, and why."""

_OF_PARSERS = {
    "mode": "records that do not parse are counted; SET broken_output writes them to a sink",
    "columnnameofcorruptrecord": "SET broken_output writes records that do not parse to a sink",
}
_COUNTS = ("maxoffsetspertrigger", "minoffsetspertrigger", "minpartitions", "fetchoffset.numretries")
_WAITS = ("fetchoffset.retryintervalms", "kafkaconsumer.polltimeoutms", "startingtimestamp")


def source_problems(source: Source, others: Iterable[str]) -> Iterator[SpecError]:
    """Yield problems of the options of a Kafka source.

    Args:
        others: Option names that any source may have.
    """
    what = f'Kafka source "{source.name}"'
    names = [*SOURCE_NAMES, *READER, *OF_SCHEMAS, *others]
    readers = {name.lower() for name in READER}
    columns = {column.name.lower() for column in source.columns}
    of_debezium = records_of(source.options) == DEBEZIUM
    for name, value in source.options.items():
        if name in SOURCE_OURS:
            continue
        prefix, _, rest = name.partition(".")
        if name.lower() in readers:
            hint = _reader_problem(name.lower(), value, source)
            if hint is not None:
                yield wrong_value(what, name, value, hint)
        elif name.startswith(METADATA_PREFIX):
            if name.removeprefix(METADATA_PREFIX).lower() not in columns:
                near = near_names(name.removeprefix(METADATA_PREFIX), [c.name for c in source.columns])
                yield SpecError(
                    f'{what}: option "{name}" does not name a declared column',
                    code="unknown-option",
                    hint=near,
                )
            if (
                source.changes
                and source.primary_key is None
                and value.strip().lower() in ("offset", "timestamp")
            ):
                hint = (
                    "leave it out: a delete must have the same values as its insert, but its record has"
                    " another one"
                )
                yield wrong_value(what, name, value, hint)
            elif of_debezium:
                if not is_event_field(value):
                    hint = "columns of Debezium records are columns of the table, or fields of the event:"
                    yield wrong_value(what, name, value, f"{hint} {EVENT_FIELDS}")
                continue
            if value.strip().lower() not in METADATA:
                hint = near_names(value, METADATA) or f"it can be {', '.join(METADATA)}"
                yield wrong_value(what, name, value, hint)
        elif (prefix in _PARSERS and rest) or (name in OF_DEBEZIUM and of_debezium) or name in OF_SCHEMAS:
            continue
        else:
            yield from _of_client(what, name, CONSUMER, names)
    yield from _place_problems(what, source.options, "orders")
    yield from _format_problems(what, "read", records_of(source.options), SOURCE_FORMATS)
    yield from _raw_problems(what, source)
    yield from _find_duplicate_options(what, source.options)
    yield from _key_problems(what, source)
    yield from record_problems(what, source, records_of(source.options))
    yield from unit_problems(what, source, records_of(source.options))
    if of_debezium:
        yield from debezium_problems(what, source)
    for parser in _PARSERS:
        yield from _of_parser(what, source.options, parser)


def _place_problems(what: str, options: Mapping[str, str], topic: str) -> Iterator[SpecError]:
    """Yield problems of the options that locate the records.

    Args:
        topic: An example of a topic.
    """
    if not topics_in(options):
        yield SpecError(
            f'{what} needs the option "topic"', code="missing-option", hint=f"'topic' = '{topic}'"
        )
    if not servers_in(options):
        yield SpecError(
            f'{what} needs the option "bootstrap.servers"',
            code="missing-option",
            hint="'bootstrap.servers' = 'localhost:9092'",
        )


def _format_problems(what: str, does: str, wanted: str, formats: tuple[str, ...]) -> Iterator[SpecError]:
    if wanted not in formats:
        shown = public_option("format", wanted)
        message = f'{what} cannot {does} format "{shown}"'
        yield SpecError(message, code="unknown-format", hint=near_names(wanted, formats))


def _raw_problems(what: str, source: Source) -> Iterator[SpecError]:
    filled = metadata_of(source)
    values = [column for column in source.columns if column.name not in filled]
    if records_of(source.options) == RAW and len(values) > 1:
        yield SpecError(
            f"{what}: format raw fills one column, but {len(values)} are declared",
            code="raw-needs-one-column",
            hint="fill the others from metadata: 'metadata.column' = 'key', 'topic', 'partition',"
            " 'offset' or 'timestamp'",
        )


def _key_problems(what: str, source: Source) -> Iterator[SpecError]:
    """Yield problems of the keys of records in format ``upsert-json``."""
    records, written = records_of(source.options), source.options.get(KEY_FORMAT)
    key = source.primary_key
    if records != UPSERT or key is None:
        if written is not None:
            yield wrong_value(what, KEY_FORMAT, written, f"remove it: it is for the format {UPSERT} only")
        return
    yield from _key_format_problems(what, key_format(source.options), len(key.columns))
    filled = [name for name in key.columns if f"{METADATA_PREFIX}{name}" in source.options]
    if filled:
        hint = f'leave it out: "{filled[0]}" is in the primary key, which comes from the record\'s key'
        option = f"{METADATA_PREFIX}{filled[0]}"
        yield wrong_value(what, option, source.options[option], hint)


def sink_problems(sink: Sink) -> Iterator[SpecError]:
    """Yield problems of the options of a Kafka sink."""
    what = f'Kafka sink "{sink.name}"'
    exactly_once = is_exactly_once(sink.options)
    for name in sink.options:
        plain = name.lower().removeprefix(_CLIENT)
        if name in SINK_OURS or (plain in OF_LIBRDKAFKA and exactly_once):
            continue
        hint = lacking(plain) if exactly_once and plain in PRODUCER and plain not in _OF_SPARK else None
        if hint is not None:
            yield SpecError(f'{what}: option "{name}" cannot be set', code="wrong-option", hint=hint)
        else:
            names = PRODUCER | OF_LIBRDKAFKA if exactly_once else PRODUCER
            yield from _of_client(what, name, names, (*SINK_OURS, "bootstrap.servers"))
    yield from _place_problems(what, sink.options, "delivered")
    yield from _format_problems(what, "write", records_of(sink.options), SINK_FORMATS)
    yield from delivery_problems(sink)
    yield from _find_duplicate_options(what, sink.options)
    yield from _keyed_problems(what, sink)
    yield from lost_records(sink)


def _keyed_problems(what: str, sink: Sink) -> Iterator[SpecError]:
    """Yield problems of options that conflict with a PRIMARY KEY, or that need one."""
    format_, formats = records_of(sink.options), " or ".join(f"'{name}'" for name in KEYED)
    if format_ in KEYED and not sink.primary_key:
        hint = f"CREATE SINK {sink.name} (…, PRIMARY KEY (id) NOT ENFORCED) WITH (…)"
        yield SpecError(f"{what}: format {format_} needs a PRIMARY KEY", code="primary-key", hint=hint)
    if format_ not in KEYED and sink.primary_key:
        hint = f"use 'format' = {formats}; 'key' = 'column' only sets the record's key"
        message = f"{what} has a PRIMARY KEY, but records of format {format_} do not replace each other"
        yield SpecError(message, code="primary-key", hint=hint)
    if format_ in KEYED and "key" in sink.options:
        yield wrong_value(what, "key", sink.options["key"], "remove it: the PRIMARY KEY is the record's key")
    if KEY_FORMAT not in sink.options:
        return
    given = key_format(sink.options)
    if format_ not in KEYED:
        yield wrong_value(what, KEY_FORMAT, given, f"remove it: it needs 'format' = {formats}")
    else:
        yield from _key_format_problems(what, given, len(sink.primary_key))


def _key_format_problems(what: str, given: str, columns: int) -> Iterator[SpecError]:
    if given not in (JSON, RAW):
        yield wrong_value(what, KEY_FORMAT, given, near_names(given, (JSON, RAW)) or f"{JSON} or {RAW}")
    elif given == RAW and columns > 1:
        hint = f"use 'key.format' = 'json': a text is one column, but the key has {columns}"
        yield wrong_value(what, KEY_FORMAT, given, hint)


def _of_client(
    what: str, name: str, client_options: frozenset[str], ours: Iterable[str]
) -> Iterator[SpecError]:
    plain = name.lower().removeprefix(_CLIENT)  # Spark takes letters of any case
    if plain in _OF_SPARK:
        yield SpecError(f'{what}: option "{name}" cannot be set', code="wrong-option", hint=_OF_SPARK[plain])
        return
    if plain in client_options:
        return
    near = get_close_matches(plain, client_options, n=1, cutoff=0.85)
    if name.lower().startswith(_CLIENT) and not near:  # a class of the user's own may know it
        return
    names = [*ours, *(option for option in client_options if "." in plain or "." not in option)]
    hint = f'did you mean "{name[: len(name) - len(plain)]}{near[0]}"?' if near else near_names(name, names)
    if "." in name and not near:
        hint = f"{hint}; write settings for a class of your own as '{_CLIENT}{name}'"
    yield SpecError(f'{what} has no option "{name}"', code="unknown-option", hint=hint)


def _find_duplicate_options(what: str, options: Mapping[str, str]) -> Iterator[SpecError]:
    pairs = [(name.removeprefix(_CLIENT), name) for name in options if name.startswith(_CLIENT)]
    if "topic" in options and "topics" in options:
        pairs.append(("topic", "topics"))
    for one, other in pairs:
        if one in options:
            hint = f"remove it or '{one}', which is the same option"
            yield wrong_value(what, other, options[other], hint)


def _of_parser(what: str, options: Mapping[str, str], parser: str) -> Iterator[SpecError]:
    prefix = f"{parser}."
    given = {name: value for name, value in options.items() if name.startswith(prefix)}
    names = [f"{prefix}{name}" for name in READERS[parser] if name not in SPECIFIC_TO_FILES]
    lowered = {name.lower() for name in names}
    for name in given:
        if parser != parser_of(records_of(options)):
            message = (
                f'{what}: option "{name}" is for the format {parser}, but the format is {records_of(options)}'
            )
            yield SpecError(
                message, code="unknown-option", hint=f"set 'format' = '{parser}', or remove the option"
            )
        elif name.lower() not in lowered:
            hint = _OF_PARSERS.get(name.removeprefix(prefix).lower()) or near_names(name, names)
            yield SpecError(f'{what} has no option "{name}"', code="unknown-option", hint=hint)
    for name, hint in value_problems(given, parser, Use.PARSE, prefix=prefix):
        yield wrong_value(what, name, given[name], hint)


def _reader_problem(name: str, value: str, source: Source) -> str | None:
    """Return what to write instead of a value that the option of Spark's reader cannot have.

    Return None if the value is valid.
    """
    if name == "failondataloss" and value.strip().lower() != "true":
        return (
            "remove it: rows would be lost silently. Without it the job stops and names the number of"
            f" lost rows; --accept-loss {source.name} then continues without them"
        )
    if name in _COUNTS or name in _WAITS:
        least = 1 if name in _COUNTS else 0
        fits = re.fullmatch(r"[0-9]{1,18}", value) and int(value) >= least
        return None if fits else f"a whole number{' above zero' if least else ''}, such as '1000'"
    if name == "startingoffsets":
        if value.lower() in ("earliest", "latest"):
            return None
        return _by_partition(value, "'earliest', 'latest'", topics_in(source.options))
    if name == "startingoffsetsbytimestamp":
        return _by_partition(value, "times in milliseconds since 1970", topics_in(source.options))
    return None


def _by_partition(value: str, other: str, topics: list[str]) -> str | None:
    """Return a hint if the value is not an object of numbers per partition and topic; else None."""
    example = json.dumps({topic: {"0": 23} for topic in topics[:1] or ["orders"]})
    hint = f"it can be {other}, or offsets by partition, such as '{example}'"
    try:
        offsets = json.loads(value)
    except ValueError:
        return hint
    if (
        not isinstance(offsets, dict)
        or not offsets
        or not all(isinstance(of_topic, dict) for of_topic in offsets.values())
    ):
        return hint
    for topic, partitions in offsets.items():
        if topics and topic not in topics:
            return f'the source does not read the topic "{topic}"; {hint}'
        if not all(n.isdecimal() and type(offset) is int for n, offset in partitions.items()):
            return hint
    return None


def topics_in(options: Mapping[str, str]) -> list[str]:
    """Return the topics that the options name, in order."""
    return _split_list(options.get("topic") or options.get("topics"))


def servers_in(options: Mapping[str, str]) -> list[str]:
    """Return the brokers that the options name, in order."""
    return _split_list(servers_text(options))


def servers_text(options: Mapping[str, str]) -> str:
    """Return the list of brokers as written; empty if it is not set."""
    written = (value for name, value in options.items() if plain_name(name) == "bootstrap.servers")
    return next(written, "").strip()


def parser_of(format_: str) -> str:
    """Return the parser of a format; its options begin with the parser's name and a dot."""
    return JSON if format_ in (DEBEZIUM, UPSERT) else format_


def records_of(options: Mapping[str, str]) -> str:
    """Return the format of the records' values, in lower case; JSON if it is not set."""
    return options.get("format", "json").strip().lower()


def placeholders_of(source: Source) -> dict[str, tuple[Any, ...]]:
    """Return per column the values that stand for one that an update left out; only Debezium writes any."""
    if records_of(source.options) != DEBEZIUM:
        return {}
    return {column.name: values for column in source.columns if (values := placeholders(column.type))}


def key_format(options: Mapping[str, str]) -> str:
    """Return the format of the records' keys, in lower case; JSON if it is not set."""
    return options.get(KEY_FORMAT, JSON).strip().lower()


def metadata_of(source: Source) -> dict[str, str]:
    """Return the metadata that fills each column, by the column's name."""
    metadata = {
        name.removeprefix(METADATA_PREFIX): value.strip().lower()
        for name, value in source.options.items()
        if name.startswith(METADATA_PREFIX)
    }
    if records_of(source.options) == RAW:
        metadata |= {
            column.name: column.name.lower() for column in source.columns if column.name.lower() in METADATA
        }
    return metadata


def is_another_topic(before: str | None, now: str | None) -> bool:
    """Return True if two ids are those of two topics; brokers may give none."""
    return before != now and not {before, now} & {None, NO_TOPIC_ID}


def lost_records(sink: Sink) -> list[SpecError]:
    """Return problems of options by which a Kafka sink would lose records silently."""
    return [
        wrong_value(
            f'Kafka sink "{sink.name}"',
            name,
            value,
            "it can be 'all' (the default) or '1': records without an acknowledgement may be lost silently",
        )
        for name, value in sink.options.items()
        if name.lower().removeprefix("kafka.") == "acks" and value.strip() == "0"
    ]


def _split_list(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]
