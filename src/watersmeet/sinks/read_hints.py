"""Commands that read what a sink has written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from watersmeet.errors import EngineError
from watersmeet.spec.entry_points import SINKS, load_code
from watersmeet.spec.model import Sink
from watersmeet.spec.options.files import format_of, local_path, path_of
from watersmeet.spec.options.kafka import servers_text, topics_in
from watersmeet.spec.options.kafka_delivery import is_exactly_once
from watersmeet.spec.options.lake import IcebergOptions
from watersmeet.spec.options.postgres import PostgresOptions

# Name the command that reads what a sink has written.


def read_hint(sink: Sink) -> str | None:
    """Return what to type to read the sink's rows; None where nothing is left to read, as on a console.

    >>> print(read_hint(Sink("out", "file", {"path": "out/delivered", "format": "csv"})))
    spark.read.csv("out/delivered", header=True)
    >>> print(read_hint(Sink("out", "postgres", {"url": "postgresql://db/x", "table": "shop.delivered"})))
    SELECT * FROM shop.delivered
    >>> read_hint(Sink("out", "console"))
    """
    named = sink.traits.read_hint
    return None if named is None else str(load_code(SINKS, sink.connector, named)(sink))


def files_hint(sink: Sink) -> str:
    """Return the call of Spark that reads the files of a sink."""
    options = [_spark_path(sink), *_csv_options(sink)]
    return f"spark.read.{format_of(sink.options)}({', '.join(options)})"


def delta_hint(sink: Sink) -> str:
    """Return the call of Spark that reads a Delta table."""
    return f'spark.read.format("delta").load({_spark_path(sink)})'


def iceberg_hint(sink: Sink) -> str:
    """Return the query that reads an Iceberg table."""
    return f"SELECT * FROM {IcebergOptions.of(sink.options).table}"


def postgres_hint(sink: Sink) -> str:
    """Return the query that reads a PostgreSQL table."""
    named = PostgresOptions.of(sink.options).table
    return (
        f"SELECT * FROM {'.'.join(_quote_identifier(part) for part in (named.schema, named.table) if part)}"
    )


def kafka_hint(sink: Sink) -> str:
    """Return the topics of a sink, with what their readers must set."""
    committed = " (isolation.level=read_committed)" if is_exactly_once(sink.options) else ""
    return f"topic {', '.join(topics_in(sink.options))} at {servers_text(sink.options)}{committed}"


def _csv_options(sink: Sink) -> Iterator[str]:
    given = {name.lower(): value for name, value in sink.options.items()}
    if format_of(sink.options) != "csv":
        return
    if given.get("header", "true").strip().lower() == "true":
        yield "header=True"
    if separator := given.get("sep", given.get("delimiter")):
        yield f"sep={_text(separator)}"


def _spark_path(sink: Sink) -> str:
    """Return the path as a quoted text, as Spark's readers take it."""
    path = path_of(sink.options)
    local = local_path(path)
    if local is not None:
        return _text(re.sub(r"([][{}*?\\])", r"\\\1", local.rstrip("/")))
    return _text((f"s3a{path[2:]}" if urlsplit(path).scheme == "s3" else path).rstrip("/"))


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _quote_identifier(name: str) -> str:
    is_plain = name.isascii() and name.isidentifier() and name == name.lower()
    return name if is_plain else '"' + name.replace('"', '""') + '"'


# What is said where what a sink has written cannot be read again.


def unreadable_error(sink: Sink, said: str, what: str = "table") -> EngineError:
    """Return the error for a sink whose output cannot be read."""
    first = next(iter(said.splitlines()), "no reason was given")
    return EngineError(
        f'"{sink.name}": its {what} cannot be read: {first}',
        code="not-compared",
        hint="check that it exists and is reachable from this machine",
    )
