"""What librdkafka is told to reach the brokers of a source as Kafka's client in Java does: where they are,
and who asks. How much that client fetches, and how it waits, is not the other's matter."""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.spec.options.kafka_delivery import client_settings, first_unsupported, plain_name

_REACHING = ("bootstrap.servers", "client.dns.lookup", "client.id", "security.protocol")
_ANY_OF = ("sasl.", "ssl.")


def reading_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Of a source's options, those of librdkafka by its names."""
    return client_settings(_reaching(options), ())


def lacking_for_reading(options: Mapping[str, str]) -> str | None:
    """One that decides how brokers are reached, and that librdkafka lacks; None: it has them all."""
    return first_unsupported(_reaching(options))


def isolation_of(options: Mapping[str, str]) -> str:
    """Which records are seen: committed ones, unless it is said otherwise."""
    given = {plain_name(name): value for name, value in options.items()}
    return given.get("isolation.level", "read_committed").strip().lower()


def _reaching(options: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in options.items()
        if plain_name(name) in _REACHING or plain_name(name).startswith(_ANY_OF)
    }
