"""Declare the connectors: their names, their abilities, and where their code is.

The rest of the package asks for abilities, not for names. A new connector is one declaration here; one that
can be read also has a line among the readers of streams (`runtime.spark.sources.frames`) or of tables
(`runtime.spark.sources.tables`). Other packages declare theirs as entry points (`spec.entry_points`). Code is
named as ``module:name`` and imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from watersmeet.errors import SpecError, near_names
from watersmeet.spec import entry_points
from watersmeet.spec.entry_points import SINKS, SOURCES

_MINUTE_US = 60_000_000
_YEAR_US = 365 * 24 * 60 * _MINUTE_US


@dataclass(frozen=True)
class Connector:
    """Name, abilities and code of a connector.

    Attributes:
        name: Canonical name, in lower case.
        aliases: Other names.
        tables: It can be read as a whole, any number of times.
        one_partition: Its rows carry no partition, because it has only one.
        tells_partitions: Each row carries its partition.
        in_order: Rows of a tick have an order, which is the same when the tick is repeated.
        log: Rows have offsets per partition, and the oldest rows may be deleted.
        files: It is a folder of files.
        snapshot: It reads the content of a database, not its changes.
        own_rate: It generates a number of rows per second.
        kept_by_spark: Spark stores more for it than offsets and its own output, unknown to the engine.
        max_ahead_us: Default limit in µs for a TIMESTAMP or DATE ahead of the clock; rows further ahead go
            to the side output. None: no limit by default.
        refresh_us: Default interval in µs at which a table is reread. None: it cannot be set.
        sinks: It accepts rows.
        unique_names: Its sink rejects duplicate column names.
        by_key: A row may replace another, by a PRIMARY KEY.
        parquet: Its target is a table of Parquet files.
        read_instead: Hint for users who try to read from a connector that only writes.
        sink: Code: from a declaration and a `RowPrinter` or None to the sink.
        source_options: Code: a `SystemOptions` class, or a function from a source to the problems of its
            options. None: other code checks them.
        sink_options: The same for sinks.
        targets: Code: from a sink with valid options to its targets, as identity and name for messages.
        read_hint: Code: from a sink to what a user types to read its rows.
        reader: Code, of packages: from a Spark session and a source to a streaming DataFrame with the
            declared columns.
    """

    name: str
    aliases: tuple[str, ...] = ()
    tables: bool = False
    one_partition: bool = False
    tells_partitions: bool = False
    in_order: bool = False
    log: bool = False
    files: bool = False
    snapshot: bool = False
    own_rate: bool = False
    kept_by_spark: bool = False
    max_ahead_us: int | None = None
    refresh_us: int | None = None
    sinks: bool = False
    unique_names: bool = False
    by_key: bool = False
    parquet: bool = False
    read_instead: str | None = None
    sink: str | None = None
    source_options: str | None = None
    sink_options: str | None = None
    targets: str | None = None
    read_hint: str | None = None
    reader: str | None = None

    @property
    def can_read(self) -> bool:
        """Return whether rows can be read from it, as a stream or as a table."""
        return self.tables or self.one_partition or self.tells_partitions

    @property
    def called(self) -> str:
        """In messages."""
        return "a DataFrame" if self.name == DATAFRAME else f"a {self.name} source"


_OPTIONS = "watersmeet.spec.options."
_TARGETS = "watersmeet.spec.options.targets:"
_HINTS = "watersmeet.sinks.read_hints:"

_ALL = (
    Connector(
        "kafka", tells_partitions=True, in_order=True, log=True, max_ahead_us=24 * 60 * _MINUTE_US,
        sinks=True, unique_names=True, by_key=True,
        sink="watersmeet.sinks.kafka.sink:kafka_sink",
        source_options=_OPTIONS + "names:kafka_source_problems",
        sink_options=_OPTIONS + "kafka:sink_problems",
        targets=_TARGETS + "kafka_targets", read_hint=_HINTS + "kafka_hint",
    ),
    Connector(
        "file", ("files", "filesystem"), tables=True, one_partition=True, in_order=True, files=True,
        max_ahead_us=_YEAR_US, refresh_us=0, sinks=True, unique_names=True,
        sink="watersmeet.sinks.registry:file_sink", read_hint=_HINTS + "files_hint",
    ),
    Connector(
        "postgres", ("postgresql",), sinks=True, unique_names=True, by_key=True,
        read_instead="'connector' = 'jdbc' reads a table as it is; its changes come by a topic of Kafka",
        sink="watersmeet.sinks.postgres.sink:PostgresSink",
        sink_options=_OPTIONS + "postgres:sink_problems",
        targets=_TARGETS + "postgres_targets", read_hint=_HINTS + "postgres_hint",
    ),
    Connector(
        "generator", ("datagen",), one_partition=True, own_rate=True,
        source_options=_OPTIONS + "names:generator_source_problems",
    ),
    Connector(
        "spark", one_partition=True, kept_by_spark=True, max_ahead_us=_YEAR_US, sinks=True, unique_names=True,
        sink="watersmeet.sinks.spark_writer:SparkSink",
        source_options=_OPTIONS + "spark:source_problems", sink_options=_OPTIONS + "spark:sink_problems",
    ),
    Connector(
        "console", ("print",), sinks=True,
        sink="watersmeet.sinks.console:ConsoleSink", sink_options=_OPTIONS + "names:console_sink_problems",
    ),
    Connector(
        "memory", tables=True, tells_partitions=True, in_order=True, sinks=True, unique_names=True,
        sink="watersmeet.sinks.memory:MemorySink",
        source_options=_OPTIONS + "names:memory_source_problems",
        sink_options=_OPTIONS + "names:memory_sink_problems",
    ),
    Connector(
        "delta", ("deltalake",), sinks=True, unique_names=True, by_key=True, parquet=True,
        read_instead="TYPE Spark OPTIONS ('format' = 'delta', …) reads it by Spark's own connector",
        sink="watersmeet.sinks.lake.delta:DeltaSink",
        sink_options=_OPTIONS + "lake:delta_problems",
        targets=_TARGETS + "delta_targets", read_hint=_HINTS + "delta_hint",
    ),
    Connector(
        "iceberg", sinks=True, unique_names=True, by_key=True, parquet=True,
        read_instead="TYPE Spark OPTIONS ('format' = 'iceberg', …) reads it by Spark's own connector",
        sink="watersmeet.sinks.lake.iceberg:IcebergSink",
        sink_options=_OPTIONS + "lake:iceberg_problems",
        targets=_TARGETS + "iceberg_targets", read_hint=_HINTS + "iceberg_hint",
    ),
    Connector(
        "function", sinks=True, unique_names=True, by_key=True,
        sink="watersmeet.sinks.function:FunctionSink", sink_options=_OPTIONS + "function:sink_problems",
    ),
    Connector(
        "jdbc", tables=True, snapshot=True, refresh_us=_MINUTE_US,
        source_options=_OPTIONS + "names:jdbc_source_problems",
    ),
)  # fmt: skip

MEMORY, SPARK = "memory", "spark"
NOWHERE = "nowhere"
"""What an index puts out goes nowhere."""
DATAFRAME = "dataframe"
"""Rows of a DataFrame of Spark's."""
DATAFRAME_TABLE = "dataframe_table"
"""Rows of DataFrames of Spark's that have an end, made anew for each look."""
FOREACH_BATCH = "foreach_batch"
"""A function of this process gets them."""

_OF_NO_TEXT = {
    NOWHERE: Connector(NOWHERE, sinks=True),
    DATAFRAME: Connector(DATAFRAME, one_partition=True, kept_by_spark=True, max_ahead_us=_YEAR_US),
    DATAFRAME_TABLE: Connector(DATAFRAME_TABLE, tables=True, snapshot=True, refresh_us=_MINUTE_US),
    FOREACH_BATCH: Connector(FOREACH_BATCH, sinks=True, unique_names=True, by_key=True),
}
"""Connectors that nobody can write in a text."""

CONNECTORS: Mapping[str, Connector] = {connector.name: connector for connector in _ALL}

BY_NAME: Mapping[str, Connector] = {
    name: connector for connector in _ALL for name in (connector.name, *connector.aliases)
}
"""By all names, in lower case, as people know them from Hazelcast, Flink and Spark."""


_BUILT_IN_ONLY = (
    "aliases", "tables", "tells_partitions", "in_order", "log", "files", "snapshot", "own_rate", "refresh_us",
    "parquet", "by_key", "read_instead", "targets",
)  # fmt: skip
"""Abilities that a package's connector cannot have: the engine has code of its own for each of them."""


def connector_of(name: str) -> Connector:
    """Return the connector with that canonical name.

    Raises:
        SpecError: There is no such connector, or the package that declares it cannot be used.
    """
    connector = _OF_NO_TEXT.get(name) or CONNECTORS.get(name) or _load_connector(name)
    if connector is None:
        raise SpecError(
            f'there is no connector "{name}"', code="unknown-connector", hint=near_names(name, list_names())
        )
    return connector


def find_connector(name: str) -> Connector | None:
    """Return the connector of that name or alias in any case: built in, or of an installed package.

    Raises:
        SpecError: The package that declares it cannot be used.
    """
    return BY_NAME.get(name.lower()) or _load_connector(name.lower())


def list_names(*, sinks: bool = False) -> list[str]:
    """Return the names of all connectors, or of those for sinks; no package is imported."""
    own = [name for name, connector in CONNECTORS.items() if connector.sinks or not sinks]
    groups = (SINKS,) if sinks else (SINKS, SOURCES)
    return [*own, *(name for group in groups for name in entry_points.list_entry_points(group))]


def list_name_problems() -> Iterator[SpecError]:
    """Yield a problem for each connector of a package whose name is taken; no package is imported."""
    for group in (SINKS, SOURCES):
        yield from entry_points.name_problems(group, BY_NAME)


@cache
def _load_connector(name: str) -> Connector | None:
    """Return the connector that a package declares. Raises: SpecError."""
    usable: Connector | None = None
    for group, code, options in ((SINKS, "sink", "sink_options"), (SOURCES, "reader", "source_options")):
        declared = entry_points.load_declared(group, name, Connector, BY_NAME)
        if declared is None:
            continue
        abilities = [ability for ability in _BUILT_IN_ONLY if getattr(declared, ability)]
        if usable is not None and usable != declared:
            wrong = "it declares one connector for sinks and another one for sources"
        elif abilities:
            wrong = f"only a built-in connector may have {', '.join(abilities)}"
        elif getattr(declared, code) is None or getattr(declared, options) is None:
            wrong = f"it needs {code} and {options}"
        elif group == SINKS and not declared.sinks:
            wrong = "it does not say sinks=True"
        elif group == SOURCES and not (declared.one_partition and declared.kept_by_spark):
            wrong = "a source says one_partition=True and kept_by_spark=True"
        else:
            usable = declared
            continue
        raise entry_points.extension_error(group, name, wrong)
    return usable


OF_ALL_SOURCES = (
    "idle_timeout", "on_idle", "on_broken", "max_ahead", "partitions", "rows_per_second", "refresh",
    "max_rows", "max_bytes",
    "op.column", "op.insert", "op.delete", "diff.column", "sequence_by", "tombstones", "changes",
)  # fmt: skip
"""What any source may say; none of these is left among a source's options once it has been read."""
