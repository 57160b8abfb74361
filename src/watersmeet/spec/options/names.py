"""Names of options of sources and sinks, but for files (`spec.options.files`): others are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.connectors import OF_ALL_SOURCES, SPARK
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options import function, kafka, lake, postgres, spark
from watersmeet.spec.options.targets import mixed_topics, shared_targets
from watersmeet.spec.secrets import without_secrets

JDBC = (
    "url", "dbtable", "query", "prepareQuery", "user", "password", "driver", "partitionColumn", "lowerBound",
    "upperBound", "numPartitions", "queryTimeout", "fetchsize", "sessionInitStatement", "customSchema",
    "preferTimestampNTZ", "pushDownPredicate", "keytab", "principal", "refreshKrb5Config",
    "connectionProvider", "hint", "timestampNTZFormat",
)  # fmt: skip
JDBC_PROPERTIES = "properties."
"""Options that begin so are the driver's own, such as ``properties.sslmode``."""

_NOT_JDBC = {
    "username": "the option is called 'user'",
    "table-name": "the option is called 'dbtable'",
    "table": "the option is called 'dbtable'",
    "batchsize": "remove it: it is for writing",
    "truncate": "remove it: it is for writing",
    "isolationlevel": "remove it: it is for writing",
    "createtableoptions": "remove it: it is for writing",
}
GENERATOR = ("rate", "disorder", "keys", "seed", "rows", "start")

CONSOLE = ("rows",)


def source_option_problems(source: Source) -> list[SpecError]:
    """Return problems of the options of a source: unknown options, and missing ones.

    Check Kafka, JDBC, generator and memory sources, and the options that a Spark source needs.
    """
    problems_of = _SOURCES.get(source.connector)
    return [] if problems_of is None else list(problems_of(source))


def sink_option_problems(sink: Sink) -> list[SpecError]:
    """Return problems of the options of a sink.

    Check sinks that print, write to Kafka or PostgreSQL, call a function, use a Spark writer, or
    retain rows in memory.
    """
    problems_of = _SINKS.get(sink.connector)
    return [] if problems_of is None else list(problems_of(sink))


def shared_target_problems(sinks: Iterable[Sink], sources: Iterable[Source] = ()) -> list[SpecError]:
    """Return problems of sinks that share a target, and of topics that must stay separate."""
    right = [sink for sink in sinks if not sink_option_problems(sink)]
    return [*shared_targets(right), *mixed_topics(right, sources)]


def _jdbc_source(source: Source) -> Iterator[SpecError]:
    what, lowered = f'jdbc table "{source.name}"', {name.lower() for name in JDBC}
    for name in source.options:
        if name.lower() not in lowered and not name.lower().startswith(JDBC_PROPERTIES):
            problem = _unknown(what, name, [*JDBC, *OF_ALL_SOURCES])
            hint = _NOT_JDBC.get(name.lower()) or problem.hint
            problem.hint = f"{hint}; write properties of the JDBC driver as '{JDBC_PROPERTIES}{name}'"
            yield problem
    yield from _jdbc_problems(what, source.options)


def _generator_source(source: Source) -> Iterator[SpecError]:
    fields = [f"field.{c.name}.{what}" for c in source.columns for what in ("kind", "nulls")]
    for name in source.options:
        if name not in GENERATOR and name not in fields:
            yield _unknown(f'generator "{source.name}"', name, [*GENERATOR, *fields, *OF_ALL_SOURCES])


def _plain_sink(names: Collection[str], sink: Sink) -> Iterator[SpecError]:
    for name in sink.options:
        if name not in names:
            yield _unknown(f'{sink.connector} sink "{sink.name}"', name, names)


def _jdbc_problems(what: str, options: Mapping[str, str]) -> Iterator[SpecError]:
    """Yield problems of the options that locate the table."""
    given = {name.lower(): value for name, value in options.items()}
    url = given.get("url", "")
    example = "'url' = 'jdbc:postgresql://localhost:5432/shop'"
    if not url:
        yield SpecError(f'{what} needs the option "url"', code="missing-option", hint=example)
    elif not url.startswith("jdbc:"):
        message = f'{what}: "{without_secrets(url)}" does not begin with jdbc:'
        yield SpecError(message, code="bad-option", hint=example)
    if ("dbtable" in given) == ("query" in given):
        yield SpecError(
            f'{what} needs one of the options "dbtable" and "query"',
            code="missing-option",
            hint="'dbtable' = 'public.customers', or 'query' = 'SELECT … FROM …'",
        )


def _unknown(what: str, name: str, names: Iterable[str]) -> SpecError:
    return SpecError(f'{what} has no option "{name}"', code="unknown-option", hint=near_names(name, names))


_SOURCES: Mapping[str, Callable[[Source], Iterable[SpecError]]] = {
    "kafka": lambda source: kafka.source_problems(source, OF_ALL_SOURCES),
    "jdbc": _jdbc_source,
    "generator": _generator_source,
    "memory": lambda source: [
        _unknown(f'memory source "{source.name}"', name, OF_ALL_SOURCES) for name in source.options
    ],
    SPARK: spark.source_problems,
}
_SINKS: Mapping[str, Callable[[Sink], Iterable[SpecError]]] = {
    "kafka": kafka.sink_problems,
    "postgres": postgres.sink_problems,
    "delta": lake.delta_problems,
    "iceberg": lake.iceberg_problems,
    "function": function.sink_problems,
    "console": partial(_plain_sink, CONSOLE),
    "memory": partial(_plain_sink, ()),
    SPARK: spark.sink_problems,
}
