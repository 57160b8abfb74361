"""Options of Kafka sources and sinks: where the records are, each by two names, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping


def topics_in(options: Mapping[str, str]) -> list[str]:
    """The topics that are named, in order."""
    return _listed(options.get("topic") or options.get("topics"))


def servers_in(options: Mapping[str, str]) -> list[str]:
    """The brokers that are named, in order."""
    return _listed(servers_text(options))


def servers_text(options: Mapping[str, str]) -> str:
    """The same as it is written; empty when it is not said."""
    return (options.get("bootstrap.servers") or options.get("kafka.bootstrap.servers") or "").strip()


def records_of(options: Mapping[str, str]) -> str:
    """The format of the records' values, in lower case; JSON when it is not said."""
    return options.get("format", "json").strip().lower()


def _listed(text: str | None) -> list[str]:
    return [each.strip() for each in (text or "").split(",") if each.strip()]
