"""Which sinks of a job write to one target, and topics that a job must keep apart, as far as options tell."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from urllib.parse import urlsplit

from watersmeet.errors import SpecError
from watersmeet.spec.entry_points import load_reference
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options import postgres
from watersmeet.spec.options.files import in_store, local_path, parts_in_store, path_of
from watersmeet.spec.options.kafka import SINK_OURS, servers_in, topics_in
from watersmeet.spec.options.kafka_delivery import DeliveryOptions, client_settings, is_exactly_once
from watersmeet.spec.options.lake import IcebergOptions, catalog_options


def path_parts(path: str) -> tuple[str, ...]:
    """Return the names between the slashes of a path, after the bucket of a store; empty if unknown."""
    local = local_path(path) if path else ""
    if local:
        return Path(os.path.abspath(local)).parts
    return parts_in_store(path) if in_store(path) else ()


def shared_targets(sinks: Iterable[Sink]) -> Iterator[SpecError]:
    """Yield a problem for each sink that writes to the target of an earlier sink.

    A target is a directory, a table, or a topic whose records have keys. One sink would delete or
    replace rows of the other. The options of the sinks must be valid.
    """
    named: dict[tuple[str, ...], str] = {}
    files: dict[str, Sink] = {}
    for sink in sinks:
        if sink.connector == "file":
            for other in files.values():
                if other.name != sink.name and _is_shared(sink, other):
                    yield SpecError(
                        f'file sinks "{other.name}" and "{sink.name}" write to the same directory or one'
                        f' inside the other: "{path_of(other.options)}" and "{path_of(sink.options)}"',
                        code="shared-place",
                        hint="give each sink its own directory, not inside that of another",
                    )
            files[sink.name] = sink
        targets = sink.traits.targets
        for target, shown in () if targets is None else load_reference(targets)(sink):
            first = named.setdefault((sink.connector, *target), sink.name)
            if first != sink.name:
                yield SpecError(
                    f'"{first}" and "{sink.name}" write to the same {shown}',
                    code="shared-table",
                    hint="declare one sink, or give each its own target",
                )


def _is_shared(one: Sink, other: Sink) -> bool:
    """Return True if two file sinks write to one directory, or one inside the other.

    A directory whose path has a part with a leading . or _ does not count, because readers skip it.
    """
    parts, others = (path_parts(path_of(sink.options)) for sink in (one, other))
    if not parts or not others or any(a != b for a, b in zip(parts, others, strict=False)):
        return False
    beneath = max(parts, others, key=len)[min(len(parts), len(others)) :]
    return not any(name.startswith((".", "_")) for name in beneath)


Target = tuple[tuple[str, ...], str]
"""The identity of a target, and its name in messages."""


def postgres_targets(sink: Sink) -> Iterator[Target]:
    """Yield the table of a PostgreSQL sink, with its server."""
    given = {name.lower(): str(value) for name, value in sink.options.items()}
    parts, named = urlsplit(given["url"].strip()), postgres.PostgresOptions.of(sink.options).table
    place = f"{parts.hostname}:{parts.port or 5432}{parts.path}"
    yield (place, named.schema or "", named.table), f"table, {given['table'].strip()}"


def delta_targets(sink: Sink) -> Iterator[Target]:
    """Yield the table of a Delta sink, by its path."""
    path = path_of(sink.options)
    yield (_plain_path(path),), f"table, {path}"


def iceberg_targets(sink: Sink) -> Iterator[Target]:
    """Yield the table of an Iceberg sink, with its catalog."""
    table = IcebergOptions.of(sink.options).table
    yield (*_catalog(sink), table), f"table, {table}"


def kafka_targets(sink: Sink) -> Iterator[Target]:
    """Yield the topics of a Kafka sink whose records have keys; other sinks may share a topic."""
    if sink.primary_key:
        for server in servers_in(sink.options):
            for topic in topics_in(sink.options):
                yield (server, topic), f"topic, {topic}, by keys"


def _plain_path(path: str) -> str:
    local = local_path(path)
    if local is not None:
        return os.path.realpath(local)
    parts = urlsplit(path)
    scheme = "s3" if parts.scheme == "s3a" else parts.scheme
    return f"{scheme}://{parts.netloc}/{'/'.join(filter(None, parts.path.split('/')))}"


def _catalog(sink: Sink) -> tuple[str, ...]:
    """Return the identity of the catalog; the warehouse distinguishes those of one REST server."""
    options = catalog_options(sink.options)
    uri = options.get("uri", "").strip().rstrip("/")
    warehouse = options.get("warehouse", "").strip().rstrip("/")
    return options.get("name", "default"), uri, "" if uri and not uri.startswith("http") else warehouse


def mixed_topics(sinks: Sequence[Sink], sources: Iterable[Source]) -> Iterator[SpecError]:
    """Yield problems of control topics with other uses, and of shared transactional ids.

    Report each sink or source that uses a control topic as a normal topic, and each pair of sinks
    with one transactional id, if both spell the servers alike.

    Args:
        sinks: Sinks whose options are valid.
    """
    sinks = [sink for sink in sinks if sink.traits.log]
    marking = [sink for sink in sinks if is_exactly_once(sink.options)]
    endpoints: list[Sink | Source] = [*sinks, *(source for source in sources if source.traits.log)]
    for sink in marking:
        control = DeliveryOptions.of(sink.options).control_topic
        for other in endpoints:
            if control in topics_in(other.options) and _meet(sink, other):
                does = "writes to" if isinstance(other, Sink) else "reads"
                yield SpecError(
                    f'"{other.name}" {does} the topic "{control}", which is the control topic of'
                    f' "{sink.name}"',
                    code="control-topic",
                    hint="use another topic, or set 'control.topic' = '…': the control topic is only for"
                    " records about ticks",
                )
    for one, other in combinations(marking, 2):
        named = _transactional_id(one)
        if named and named == _transactional_id(other) and _meet(one, other):
            yield SpecError(
                f'"{one.name}" and "{other.name}" have the same transactional.id, "{named}", so each'
                " would fence the other",
                code="shared-transactional-id",
                hint="remove 'transactional.id', or give each sink its own",
            )


def _meet(one: Sink, other: Sink | Source) -> bool:
    return not set(servers_in(one.options)).isdisjoint(servers_in(other.options))


def _transactional_id(sink: Sink) -> str:
    return client_settings(sink.options, SINK_OURS).get("transactional.id", "").strip()
