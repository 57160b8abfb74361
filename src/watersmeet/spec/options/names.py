"""Names of options of sources and sinks, but for files (`spec.options.files`): others are refused by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from watersmeet.errors import SpecError, near_names
from watersmeet.spec.connectors import OF_ALL_SOURCES
from watersmeet.spec.entry_points import SINKS, SOURCES, load_code
from watersmeet.spec.model import Sink, Source
from watersmeet.spec.options import kafka
from watersmeet.spec.options.model import SystemOptions
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

    Options of files are checked by `spec.options.files`.
    """
    return _problems(SOURCES, source.traits.source_options, source, OF_ALL_SOURCES)


def sink_option_problems(sink: Sink) -> list[SpecError]:
    """Return problems of the options of a sink.

    Options of files are checked by `spec.options.files`.
    """
    return _problems(SINKS, sink.traits.sink_options, sink, ())


def _problems(
    group: str, reference: str | None, described: Source | Sink, others: Collection[str]
) -> list[SpecError]:
    if reference is None:
        return []
    checks = load_code(group, described.connector, reference)
    if isinstance(checks, type) and issubclass(checks, SystemOptions):
        named = f'{described.connector} {"sink" if group == SINKS else "source"} "{described.name}"'
        return list(checks.problems(named, described.options, others=others))
    return list(checks(described))


def shared_target_problems(sinks: Iterable[Sink], sources: Iterable[Source] = ()) -> list[SpecError]:
    """Return problems of sinks that share a target, and of topics that must stay separate."""
    right = [sink for sink in sinks if not sink_option_problems(sink)]
    return [*shared_targets(right), *mixed_topics(right, sources)]


def jdbc_source_problems(source: Source) -> Iterator[SpecError]:
    """Yield problems of the options of a table that JDBC reads."""
    what, lowered = f'jdbc table "{source.name}"', {name.lower() for name in JDBC}
    for name in source.options:
        if name.lower() not in lowered and not name.lower().startswith(JDBC_PROPERTIES):
            problem = _unknown(what, name, [*JDBC, *OF_ALL_SOURCES])
            hint = _NOT_JDBC.get(name.lower()) or problem.hint
            problem.hint = f"{hint}; write properties of the JDBC driver as '{JDBC_PROPERTIES}{name}'"
            yield problem
    yield from _jdbc_problems(what, source.options)


def generator_source_problems(source: Source) -> Iterator[SpecError]:
    """Yield problems of the options of a generator, which depend on its columns."""
    fields = [f"field.{c.name}.{what}" for c in source.columns for what in ("kind", "nulls")]
    for name in source.options:
        if name not in GENERATOR and name not in fields:
            yield _unknown(f'generator "{source.name}"', name, [*GENERATOR, *fields, *OF_ALL_SOURCES])


def kafka_source_problems(source: Source) -> Iterable[SpecError]:
    """Return problems of the options of a Kafka source."""
    return kafka.source_problems(source, OF_ALL_SOURCES)


def memory_source_problems(source: Source) -> Iterator[SpecError]:
    """Yield a problem for each option: a memory source has none of its own."""
    for name in source.options:
        yield _unknown(f'memory source "{source.name}"', name, OF_ALL_SOURCES)


def console_sink_problems(sink: Sink) -> Iterator[SpecError]:
    """Yield problems of the options of a console sink."""
    return _unknown_options(sink, CONSOLE)


def memory_sink_problems(sink: Sink) -> Iterator[SpecError]:
    """Yield a problem for each option: a memory sink has none."""
    return _unknown_options(sink, ())


def _unknown_options(sink: Sink, names: Collection[str]) -> Iterator[SpecError]:
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
