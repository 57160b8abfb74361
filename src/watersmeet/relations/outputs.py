"""Sinks that relations write to, from calls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.deprecated_names import options_of_today
from watersmeet.errors import SqlError, near_names
from watersmeet.parser.ddl.columns import primary_key_problem
from watersmeet.parser.ddl.options import connector_options, is_same_option
from watersmeet.parser.ddl.settings import as_text
from watersmeet.parser.query.inserts import MODES
from watersmeet.relations.expressions import check_duplicates, names_of, whole_error
from watersmeet.spec.connectors import SPARK, find_connector, list_names
from watersmeet.spec.model import OutputMode, Sink
from watersmeet.spec.options.spark import FORMAT
from watersmeet.spec.secrets import wrap_secret

# Where the rows of a relation go: the sinks that SQL has, from calls.

_NAMED_BY = ("path", "table", "dbtable", "topic", "function")


def sink(
    connector: str,
    name: str | None = None,
    *,
    primary_key: str | Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> Sink:
    """Create a sink, as ``CREATE SINK`` does in SQL, with the same options.

    Args:
        connector: file, kafka, postgres, delta, iceberg, function, spark, console or memory, or one that
            an installed package declares.
        name: name by which a job that resumes identifies the sink; None: the last part of its path,
            table, topic or function.
        primary_key: the columns by which a row replaces another.
        options: options by their names; ``more`` are options, too.

    >>> sink("file", path="out/delivered", format="parquet").name
    'delivered'
    """
    traits = find_connector(connector) if isinstance(connector, str) else None
    if traits is None or not traits.sinks:
        hint = near_names(str(connector), list_names(sinks=True))
        raise whole_error("sink", f"is {connector!r}, which is not a connector for sinks", hint)
    said = options_of_today(_collect_options(options, more), traits.name)
    own = checked_name(name) or _last_part(said) or traits.name
    keys = names_of(primary_key, "primary_key") if primary_key else ()
    problem = primary_key_problem(traits.name) if keys else None
    if problem is not None:
        raise SqlError(f'"{own}": {problem[0]}', code="primary-key", hint=problem[1])
    return Sink(own, traits.name, connector_options(said), None, keys)


def written_by_spark(what: str, value: Any, options: Mapping[str, Any] | None, name: str | None) -> Sink:
    """Create a sink that one of Spark's own writers writes.

    Args:
        what: whether ``value`` is a format or a table.
    """
    if not isinstance(value, str) or not value.strip():
        raise whole_error(what, f"is {value!r}", "'jdbc'" if what == FORMAT else "'catalog.db.t'")
    said = _collect_options(options, {})
    if any(key.lower() == FORMAT for key in said):
        raise whole_error("options", "also contain a format", "remove it")
    said = {what: value, **said}
    own = checked_name(name) or _last_part(said) or value
    return Sink(own, SPARK, {key: wrap_secret(key, text) for key, text in said.items()})


def checked_name(name: Any) -> str | None:
    """Check a sink's name as passed to a call, and return it.

    Raises:
        SqlError: it is not a text, or is blank.
    """
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise whole_error("name", f"is {name!r}", "pass the sink's name")
    return name


def _collect_options(options: Any, more: Mapping[str, Any]) -> dict[str, str]:
    if options is not None and not isinstance(options, Mapping):
        raise whole_error("options", f"is {options!r}", "{'catalog.type': 'sql'}")
    said = [(key, value) for key, value in (*(options or {}).items(), *more.items()) if value is not None]
    check_duplicates((key for key, _ in said), "option", is_same_option)
    return {str(key): as_text(value) for key, value in said}


def _last_part(options: Mapping[str, str]) -> str:
    by, place = next(
        ((key.lower(), value) for key, value in options.items() if key.lower() in _NAMED_BY), ("", "")
    )
    parts = [part for part in re.split(r"[/\\]+" if by == "path" else "[.:]+", place) if part]
    return parts[-1] if parts else ""


def files(path: str, name: str | None = None, *, format: str = "parquet", **options: Any) -> Sink:
    """Create a sink of files in the directory ``path``, of ``format`` parquet, json or csv.

    Options are those of `sink`.

    >>> files("out/delivered", compression="zstd").options
    {'path': 'out/delivered', 'format': 'parquet', 'compression': 'zstd'}
    """
    return sink("file", name, path=path, format=format, **options)


def kafka(topic: str, servers: str, name: str | None = None, **options: Any) -> Sink:
    """Create a sink for a Kafka topic at ``servers`` (``broker:9092``).

    Options are those of `sink`.

    >>> kafka("delivered", "broker:9092", key="order_id").name
    'delivered'
    """
    said = {"topic": topic, "bootstrap.servers": servers}
    return sink("kafka", name, options=said, **options)


def delta(path: str, name: str | None = None, **options: Any) -> Sink:
    """Create a sink for a Delta Lake table at ``path``, with the options of `sink`.

    >>> delta("lake/delivered", primary_key="order_id").primary_key
    ('order_id',)
    """
    return sink("delta", name, path=path, **options)


def iceberg(table: str, name: str | None = None, **options: Any) -> Sink:
    """Create a sink for an Iceberg table, with the options of `sink`.

    ``options`` define the catalog.

    >>> catalog = {"catalog.type": "sql", "catalog.uri": "sqlite:///catalog.db", "catalog.warehouse": "lake"}
    >>> iceberg("shop.delivered", options=catalog).name
    'delivered'
    """
    return sink("iceberg", name, table=table, **options)


def postgres(url: str, table: str, name: str | None = None, **options: Any) -> Sink:
    """Create a sink for a PostgreSQL table, with the options of `sink`.

    >>> postgres("postgresql://writer@db:5432/shop", "public.delivered").name
    'delivered'
    """
    return sink("postgres", name, url=url, table=table, **options)


def console(name: str | None = None, **options: Any) -> Sink:
    """Create a sink that prints to the terminal, with the options of `sink`.

    >>> console(rows=5).options
    {'rows': '5'}
    """
    return sink("console", name, **options)


def memory(name: str) -> Sink:
    """Create a sink that stores rows in this process, for tests.

    >>> memory("delivered").connector
    'memory'
    """
    return sink("memory", name)


def output_mode(emit: str | None) -> OutputMode | None:
    """Read ``emit`` of a call. Raises: SqlError."""
    if emit is not None and (not isinstance(emit, str) or emit.upper() not in MODES):
        raise whole_error("emit", f"is {emit!r}", near_names(str(emit), [mode.lower() for mode in MODES]))
    return None if emit is None else MODES[emit.upper()]
