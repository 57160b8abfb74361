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
    """Capabilities of a connector.

    ``aliases``: its other names.

    For reading: ``tables``: it can be read completely and repeatedly; ``one_partition``: its rows
    carry no partition, because it has only one; ``tells_partitions``: each row carries its partition;
    ``in_order``: rows of a tick have an order, which is the same when the tick is repeated; ``log``:
    rows have offsets per partition, and the oldest rows may be deleted; ``files``: it is a folder of
    files; ``snapshot``: it reads a database's content, which does not include changes; ``own_rate``:
    it generates a number of rows per second; ``kept_by_spark``: the engine does not know what Spark
    stores for it in addition to its offsets and what Spark wrote; ``max_ahead_us``: default limit in
    µs for a TIMESTAMP or DATE ahead of the clock; rows further ahead go to the side output;
    ``refresh_us``: default interval in µs at which a table is reread (None: it cannot be set).

    For writing: ``sinks``: it accepts rows; ``unique_names``: it rejects duplicate column names;
    ``by_key``: a row may replace another, by a PRIMARY KEY; ``parquet``: it is a table of Parquet
    files; ``read_instead``: the advice for users who try to read from a connector that only writes.
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
    """Return the connector with that canonical name.

    Raises:
        SpecError: There is no such connector.
    """
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
