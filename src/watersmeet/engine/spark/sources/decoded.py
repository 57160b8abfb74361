"""Frames of Kafka's records that have a schema beside them: decoded by tasks, in Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from watersmeet.engine.records.decoders import decoder_of, registry_of
from watersmeet.engine.records.decoding import VALUE, Decoding
from watersmeet.engine.spark import lazy_functions as F
from watersmeet.engine.spark.carried import Carrying
from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.spark.text import quoted
from watersmeet.names import PARTITION
from watersmeet.spec.model import Source

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame


def decoded(
    raw: DataFrame, source: Source, partition: SparkColumn, filled: Mapping[str, SparkColumn]
) -> DataFrame:
    """The declared columns, `PARTITION` and `BROKEN`.

    Args:
        filled: columns that are filled from beside the value.
    """
    plain = raw.select(F.col("value").alias(VALUE), *filled.values(), partition.alias(PARTITION))
    names = (*(column.name for column in source.columns), PARTITION)
    types = {column.name: str(column.type.nullable) for column in source.columns} | {PARTITION: "STRING"}
    schema = ", ".join(f"{quoted(name)} {types[name]}" for name in names)
    task = Decoding(decoder_of(source, registry_of(source)), names, BROKEN)
    return plain.mapInArrow(Carrying(task), f"{schema}, {quoted(BROKEN)} STRING")
