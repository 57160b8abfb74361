"""The connectors: their names as people write them, and what each can do. Who asks, asks for an ability.

A new connector is a line here, and then what has it: a reader of streams (`runtime.spark.sources.frames`), of
tables (`runtime.spark.sources.tables`), a sink (`sinks.registry`), its options (`spec.options.names`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watersmeet.errors import SpecError, near_names

_MINUTE_US = 60_000_000
_YEAR_US = 365 * 24 * 60 * _MINUTE_US


@dataclass(frozen=True)
class Connector:
    """What a connector can do.

    ``aliases``: other names of it. Of what is read: ``tables``: as a whole, again and again;
    ``one_partition``: its rows carry no partition, for there is only one; ``tells_partitions``: each row
    carries one; ``in_order``: rows of a tick come in an order, which is the same when it is repeated;
    ``log``: rows have offsets per partition, and the oldest may be gone; ``files``: it is a folder of files;
    ``snapshot``: what a database holds, which tells no changes; ``own_rate``: it makes rows, so many per
    second; ``kept_by_spark``: what Spark keeps of it beside its offsets, and what it has written, is not
    known here; ``max_ahead_us``: rows with a TIMESTAMP or DATE further ahead of the clock are set aside, if
    nothing else is said; ``refresh_us``: a table is looked at so often, if nothing else is said (None: it
    cannot be said). Of what is written: ``sinks``: rows can be put there; ``unique_names``: not under one
    name twice; ``compact_by_key``: a row may take the place of another, by a PRIMARY KEY; ``parquet``: a
    table of
    Parquet files; ``read_instead``: what to write where somebody wants to read from a connector that cannot.
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

    @property
    def can_read(self) -> bool:
        """Return whether rows can be read from it, as a stream or as a table."""
        return self.tables or self.one_partition or self.tells_partitions

    @property
    def called(self) -> str:
        """In messages."""
        return "a DataFrame" if self.name == DATAFRAME else f"a {self.name} source"


_ALL = (
    Connector(
        "kafka", tells_partitions=True, in_order=True, log=True, max_ahead_us=24 * 60 * _MINUTE_US,
        sinks=True, unique_names=True, by_key=True,
    ),
    Connector(
        "file", ("files", "filesystem"), tables=True, one_partition=True, in_order=True, files=True,
        max_ahead_us=_YEAR_US, refresh_us=0, sinks=True, unique_names=True,
    ),
    Connector(
        "postgres", ("postgresql",), sinks=True, unique_names=True, by_key=True,
        read_instead="'connector' = 'jdbc' reads a table as it is; its changes come by a topic of Kafka",
    ),
    Connector("generator", ("datagen",), one_partition=True, own_rate=True),
    Connector(
        "spark", one_partition=True, kept_by_spark=True, max_ahead_us=_YEAR_US, sinks=True, unique_names=True,
    ),
    Connector("console", ("print",), sinks=True),
    Connector("memory", tables=True, tells_partitions=True, in_order=True, sinks=True, unique_names=True),
    Connector(
        "delta", ("deltalake",), sinks=True, unique_names=True, by_key=True, parquet=True,
        read_instead="TYPE Spark OPTIONS ('format' = 'delta', …) reads it by Spark's own connector",
    ),
    Connector(
        "iceberg", sinks=True, unique_names=True, by_key=True, parquet=True,
        read_instead="TYPE Spark OPTIONS ('format' = 'iceberg', …) reads it by Spark's own connector",
    ),
    Connector("function", sinks=True, unique_names=True, by_key=True),
    Connector("jdbc", tables=True, snapshot=True, refresh_us=_MINUTE_US),
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


def connector_of(name: str) -> Connector:
    """The connector so named by us. Raises: SpecError, when there is none."""
    try:
        return _OF_NO_TEXT.get(name) or CONNECTORS[name]
    except KeyError:
        raise SpecError(
            f'there is no connector "{name}"', code="unknown-connector", hint=near_names(name, CONNECTORS)
        ) from None


OF_ALL_SOURCES = (
    "idle_timeout", "on_idle", "on_broken", "max_ahead", "partitions", "rows_per_second", "refresh",
    "max_rows", "max_bytes",
    "op.column", "op.insert", "op.delete", "diff.column", "sequence_by", "tombstones", "changes",
)  # fmt: skip
"""What any source may say; none of these is left among a source's options once it has been read."""
