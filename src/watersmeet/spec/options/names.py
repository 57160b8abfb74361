"""Names of options of sources and sinks, but for files (`spec.options.files`): others are refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.connectors import OF_ALL_SOURCES, SPARK
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options import kafka, lake, postgres, spark
from watersmeet.spec.options.function import FunctionOptions
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
    """A problem for every option of a Kafka, JDBC, generator or memory source that there is not, or that one
    of Spark's needs."""
    return list(_of_source(source))


def sink_option_problems(sink: Sink) -> list[SpecError]:
    """The same of a sink that prints, writes to Kafka or PostgreSQL, calls a function, is written by Spark,
    or keeps rows in memory."""
    if sink.connector == "kafka":
        return list(kafka.sink_problems(sink))
    if sink.connector == "delta":
        return lake.delta_problems(sink)
    if sink.connector == "postgres":
        return list(postgres.sink_problems(sink))
    if sink.connector == "iceberg":
        return lake.iceberg_problems(sink)
    if sink.connector == "function":
        return list(FunctionOptions.problems(f'function sink "{sink.name}"', sink.options))
    if sink.connector == SPARK:
        return list(spark.sink_problems(sink))
    if sink.connector not in ("console", "memory"):
        return []
    what, own = f'{sink.connector} sink "{sink.name}"', CONSOLE if sink.connector == "console" else ()
    return [_unknown(what, name, own) for name in sink.options if name not in own]


def shared_target_problems(sinks: Iterable[Sink], sources: Iterable[Source] = ()) -> list[SpecError]:
    """A problem for every two sinks that write to one target, and for topics that are to be kept apart."""
    right = [sink for sink in sinks if not sink_option_problems(sink)]
    return [*shared_targets(right), *mixed_topics(right, sources)]


def _of_source(source: Source) -> Iterator[SpecError]:
    if source.connector == "kafka":
        yield from kafka.source_problems(source, OF_ALL_SOURCES)
    elif source.connector == "jdbc":
        lowered = {name.lower() for name in JDBC}
        for name in source.options:
            if name.lower() not in lowered and not name.lower().startswith(JDBC_PROPERTIES):
                problem = _unknown(f'jdbc table "{source.name}"', name, [*JDBC, *OF_ALL_SOURCES])
                hint = _NOT_JDBC.get(name.lower()) or problem.hint
                problem.hint = f"{hint}; write properties of the JDBC driver as '{JDBC_PROPERTIES}{name}'"
                yield problem
        yield from _jdbc_problems(f'jdbc table "{source.name}"', source.options)
    elif source.connector == "generator":
        fields = [f"field.{c.name}.{what}" for c in source.columns for what in ("kind", "nulls")]
        for name in source.options:
            if name not in GENERATOR and name not in fields:
                yield _unknown(f'generator "{source.name}"', name, [*GENERATOR, *fields, *OF_ALL_SOURCES])
    elif source.connector == SPARK:
        yield from spark.source_problems(source)
    elif source.connector == "memory":
        for name in source.options:
            yield _unknown(f'memory source "{source.name}"', name, OF_ALL_SOURCES)


def _jdbc_problems(what: str, options: Mapping[str, str]) -> Iterator[SpecError]:
    """Of options that say where the table is."""
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
