"""How often records of a Kafka sink come, and what the client is told that sends them exactly once.

At least once Spark's client sends them, which is Kafka's own, in Java. Exactly once librdkafka does, which
calls most settings the same, some otherwise, and lacks some: these are translated, or refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.model import Sink
from watersmeet.spec.options.model import BEGINS_AFTER, Seconds, SystemOptions, TickNumber
from watersmeet.spec.options.values import wrong_value
from watersmeet.spec.secrets import wrap_secret

DELIVERY, CONTROL, ID_HEADER = "delivery", "control.topic", "id.header"
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
TRANSACTION_TIMEOUT_MS = 60_000
"""After so long a broker gives up a transaction of a client that is gone, unless it is said otherwise."""

_CLIENT = "kafka."
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

_SAME = frozenset({
    "acks", "batch.size", "bootstrap.servers", "client.dns.lookup", "client.id", "compression.type",
    "connections.max.idle.ms", "delivery.timeout.ms", "enable.idempotence", "enable.metrics.push",
    "linger.ms", "max.in.flight.requests.per.connection", "metadata.max.age.ms", "metadata.recovery.strategy",
    "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retry.backoff.max.ms",
    "retry.backoff.ms", "sasl.kerberos.kinit.cmd", "sasl.kerberos.service.name", "sasl.mechanism",
    "security.protocol", "socket.connection.setup.timeout.ms", "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm", "ssl.key.password", "ssl.keystore.location",
    "ssl.keystore.password", "transaction.timeout.ms", "transactional.id",
})  # fmt: skip
"""Of the settings of Java's client those that librdkafka calls the same."""

_RENAMED = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.truststore.location": "ssl.ca.location",
}
_READ_HERE = frozenset({"sasl.jaas.config", "ssl.keystore.type", "ssl.truststore.type"})
OF_LIBRDKAFKA = frozenset({
    "message.max.bytes", "queue.buffering.max.kbytes", "queue.buffering.max.messages",
    "sasl.kerberos.keytab", "sasl.kerberos.principal", "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret", "sasl.oauthbearer.method", "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url", "sasl.password", "sasl.username", "ssl.ca.location", "ssl.ca.pem",
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem",
})  # fmt: skip
"""Its own, for which Java's client has no name."""

_LOGIN = re.compile(r"""(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_BY_PASSWORD = re.compile(r"\.(PlainLoginModule|ScramLoginModule)\b")


def _read_delivery(written: str) -> str:
    return written.strip().lower().replace("_", "-").replace(" ", "-")


def _read_topic(written: str) -> str:
    if not _TOPIC.fullmatch(written.strip()):
        raise ValueError("use the name of a separate topic, with letters, digits, '.', '_' and '-'")
    return written.strip()


def _read_header(written: str) -> str:
    if not written.strip():
        raise ValueError("the name of a header, such as 'row-id'")
    return written.strip()


class DeliveryOptions(SystemOptions):
    """Delivery guarantee of a Kafka sink's records."""

    delivery: Annotated[Literal["exactly-once", "at-least-once"], BeforeValidator(_read_delivery)] = (
        "exactly-once"
    )
    control_topic: Annotated[str, BeforeValidator(_read_topic)] = Field(
        "_watersmeet_ticks", alias="control.topic"
    )
    """The topic that says which ticks came."""
    begins_after_tick: TickNumber | None = None
    """Rows of ticks up to this one are elsewhere; None: it is not said."""
    max_wait: Seconds = 600
    """For how long brokers that do not answer are waited for."""
    id_header: Annotated[str, BeforeValidator(_read_header)] | None = Field(None, alias="id.header")
    """The header that has a row's id, by which a reader knows what came again; None: there is none."""

    @classmethod
    def _own(cls, options: Mapping[str, str]) -> Mapping[str, str]:
        return {name: value for name, value in options.items() if name in cls.names()}


DELIVERY_OPTIONS = DeliveryOptions.names()


def is_exactly_once(options: Mapping[str, str]) -> bool:
    """Return True if a repeated tick writes its records only once."""
    return _read_delivery(options.get(DELIVERY, EXACTLY_ONCE)) != AT_LEAST_ONCE


def delivery_problems(sink: Sink) -> Iterator[SpecError]:
    """Yield problems of the delivery options of a Kafka sink."""
    what, options = f'Kafka sink "{sink.name}"', sink.options
    yield from DeliveryOptions.problems(what, options)
    if not is_exactly_once(options):
        for name in (CONTROL, BEGINS_AFTER, "max_wait", *sorted(OF_LIBRDKAFKA)):
            if name in options:
                yield wrong_value(what, name, "…", f"remove it: it needs '{DELIVERY}' = '{EXACTLY_ONCE}'")
        for name in options:
            if plain_name(name) == "transactional.id":
                hint = f"transactions need '{DELIVERY}' = '{EXACTLY_ONCE}'"
                yield wrong_value(what, name, options[name], hint)
        return
    if options.get(ID_HEADER, "").strip():
        hint = f"remove it: it needs '{DELIVERY}' = '{AT_LEAST_ONCE}'"
        yield wrong_value(what, ID_HEADER, options[ID_HEADER], hint)
    if CONTROL in options and options[CONTROL].strip() == options.get("topic"):
        yield wrong_value(what, CONTROL, options[CONTROL], "use the name of a separate topic")
    yield from _client_problems(what, options)


def _client_problems(what: str, options: Mapping[str, str]) -> Iterator[SpecError]:
    otherwise = f"or use '{DELIVERY}' = '{AT_LEAST_ONCE}' with Kafka's Java client"
    client = _client(options)
    for name, (written, value) in client.items():
        if name == "acks" and value.strip() not in ("all", "-1", "0"):  # 0 is refused for all
            yield wrong_value(
                what,
                written,
                value,
                f"remove it: exactly-once delivery needs all replicas to acknowledge; {otherwise}",
            )
        elif name == "enable.idempotence" and value.strip().lower() != "true":
            yield wrong_value(
                what, written, value, f"remove it: exactly-once delivery needs 'true'; {otherwise}"
            )
        elif name == "transaction.timeout.ms" and not re.fullmatch("[1-9][0-9]{2,8}", value.strip()):
            yield wrong_value(what, written, value, "milliseconds, such as '60000'")
        elif _is_other_store(name, value):
            types = " or ".join(_STORES[name])
            yield wrong_value(
                what, written, value, f"with exactly-once delivery it can be {types}; {otherwise}"
            )
        elif name == "sasl.jaas.config" and not _is_login(value):
            yield SpecError(
                f"{what}: exactly-once delivery does not support this '{written}'",
                code="wrong-option",
                hint="use PlainLoginModule or ScramLoginModule with user and password, or set"
                " 'sasl.username' and 'sasl.password', or librdkafka's options for the mechanism",
            )
    if _is_without_type(client, "ssl.truststore"):
        written, value = client["ssl.truststore.location"]
        hint = f"set 'ssl.truststore.type' = 'PEM', the supported type, {otherwise}"
        yield wrong_value(what, written, value, hint)
    if _is_without_type(client, "ssl.keystore"):
        written, value = client["ssl.keystore.location"]
        hint = f"set 'ssl.keystore.type' = 'PKCS12', the supported type, {otherwise}"
        yield wrong_value(what, written, value, hint)


_STORES = {"ssl.keystore.type": ("PKCS12", "PEM"), "ssl.truststore.type": ("PEM",)}


def first_unsupported(options: Mapping[str, str]) -> str | None:
    """Return the first client setting, as written, that librdkafka does not support, or None."""
    client = _client(options)
    for name, (written, value) in client.items():
        if (
            lacking(name) is not None
            or _is_other_store(name, value)
            or (name == "sasl.jaas.config" and not _is_login(value))
            or (name.endswith("store.location") and _is_without_type(client, name.removesuffix(".location")))
        ):
            return written
    return None


def _is_other_store(name: str, value: str) -> bool:
    return name in _STORES and value.strip().upper() not in _STORES[name]


def _is_without_type(client: Mapping[str, tuple[str, str]], store: str) -> bool:
    return f"{store}.location" in client and f"{store}.type" not in client


def _is_login(jaas: str) -> bool:
    """Return True if the setting contains a user and a password, and nothing else."""
    said = {key for key, _ in _LOGIN.findall(jaas)}
    return bool(_BY_PASSWORD.search(jaas)) and said == {"username", "password"}


def lacking(name: str) -> str | None:
    """Return the advice for a setting of Java's producer that librdkafka lacks, or None."""
    if name in _SAME or name in _RENAMED or name in _READ_HERE or name in OF_LIBRDKAFKA:
        return None
    instead = (
        "records go to the same partitions as with the Java client"
        if name.startswith("partitioner.")
        else (near_names(name, sorted({*_SAME, *_RENAMED, *OF_LIBRDKAFKA})))
    )
    return (
        f"remove it, or set '{DELIVERY}' = '{AT_LEAST_ONCE}': exactly-once delivery uses librdkafka,"
        f" which does not have this option ({instead})"
    )


def client_settings(options: Mapping[str, str], ours: tuple[str, ...]) -> dict[str, str]:
    """Return the settings of a sink by librdkafka's names.

    Args:
        ours: Names of the other options, which are left out.
    """
    settings: dict[str, str] = {}
    for name, (_, value) in _client(options).items():
        if name in ours or name in ("ssl.keystore.type", "ssl.truststore.type"):
            continue
        if name == "sasl.jaas.config":
            for key, quoted in _LOGIN.findall(value):
                plain = re.sub(r"\\(.)", r"\1", quoted[1:-1])
                settings[f"sasl.{key}"] = wrap_secret(f"sasl.{key}", plain)
        elif name == "security.protocol":
            settings[name] = value.strip().lower()
        else:
            settings[_RENAMED.get(name, name)] = value
    return settings


def _client(options: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return each client setting as written and its value, by the setting's plain name."""
    return {plain_name(name): (name, value) for name, value in options.items()}


def plain_name(name: str) -> str:
    """Return Kafka's name of a client setting.

    >>> plain_name("kafka.Security.Protocol")
    'security.protocol'
    """
    return name.lower().removeprefix(_CLIENT)
