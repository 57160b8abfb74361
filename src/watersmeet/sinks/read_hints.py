"""Commands that read what a sink has written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

from watersmeet.errors import EngineError
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
    named = _HINTS.get(sink.connector)
    return None if named is None else named(sink)


def _of_files(sink: Sink) -> str:
    options = [_spark_path(sink), *_csv_options(sink)]
    return f"spark.read.{format_of(sink.options)}({', '.join(options)})"


def _of_delta(sink: Sink) -> str:
    return f'spark.read.format("delta").load({_spark_path(sink)})'


def _of_iceberg(sink: Sink) -> str:
    return f"SELECT * FROM {IcebergOptions.of(sink.options).table}"


def _of_postgres(sink: Sink) -> str:
    named = PostgresOptions.of(sink.options).table
    return (
        f"SELECT * FROM {'.'.join(_quote_identifier(part) for part in (named.schema, named.table) if part)}"
    )


def _of_kafka(sink: Sink) -> str:
    committed = " (isolation.level=read_committed)" if is_exactly_once(sink.options) else ""
    return f"topic {', '.join(topics_in(sink.options))} at {servers_text(sink.options)}{committed}"


_HINTS: Mapping[str, Callable[[Sink], str]] = {
    "file": _of_files,
    "delta": _of_delta,
    "iceberg": _of_iceberg,
    "postgres": _of_postgres,
    "kafka": _of_kafka,
}
"""By connector."""


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
