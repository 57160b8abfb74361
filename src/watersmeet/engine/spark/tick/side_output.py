"""Rows that were set aside (late, NULL time, too far ahead, broken) → a sink of the tick.

Columns: ``stream`` (the source; of a late row of a stage the alias of the input), ``input`` (``query/alias``;
NULL for broken records), ``reason``, ``record`` (JSON of the declared columns, of a stage's row those that
the query keeps, or the text of a broken record). Of late rows also which watermark they missed:
``watermark_key`` (``alias.column``), ``watermark`` (as text, less allowed_lateness, at the start of the
tick), and ``late_by`` (µs, or plain units where times are integers); NULL for others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.engine.spark.carried import Carrying
from watersmeet.engine.spark.text import literal
from watersmeet.engine.spark.tick.ingest import BROKEN_REASON
from watersmeet.engine.tasks.aside import ASIDE_COLUMNS
from watersmeet.engine.tasks.memory import OUTPUT_BYTES
from watersmeet.kernel.batches import batches_in, cuts, sizes
from watersmeet.sinks.base import text_options_sql
from watersmeet.state.store import Store

SCHEMA = (
    "stream STRING, input STRING, reason STRING, record STRING, "
    "watermark_key STRING, watermark STRING, late_by BIGINT"
)

_JSON = f"to_json(record, {text_options_sql('json')})"
_NONE = (
    "CAST(NULL AS STRING) AS watermark_key",
    "CAST(NULL AS STRING) AS watermark",
    "CAST(NULL AS BIGINT) AS late_by",
)


@dataclass(frozen=True)
class Aside:
    """A file of rows of one source, set aside for one reason. ``reader``: ``query/alias`` of the input whose
    rows they were judged as, where another query reads them for the owner."""

    source: str
    owner: str
    reason: str
    name: str
    rows: int
    reader: str | None = None

    def of(self, owner: str) -> Aside:
        """The same rows as those of another input, that is read by this one's."""
        return replace(self, owner=owner, reader=self.owner)

    @property
    def missed(self) -> tuple[str, ...]:
        """What says which watermark the rows missed, by keys of the owner, as Spark SQL."""
        key, *others = ASIDE_COLUMNS[1:]
        if self.reader is None:
            return key, *others
        there, own = (name.rpartition("/")[2] for name in (self.reader, self.owner))
        return f"{literal(own)} || substr({key}, {len(there) + 1}) AS {key}", *others

    @classmethod
    def from_json(cls, text: str) -> Aside:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class ReadAside:
    """The function given to `mapInArrow`: numbers of files → their rows."""

    names: tuple[str, ...]
    store: Store

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                reader = pa.ipc.open_file(self.store.read(self.names[number]))
                for rows in batches_in(reader):
                    borders = cuts(sizes(rows.columns, np.arange(rows.num_rows)), OUTPUT_BYTES)
                    for low, high in pairwise(borders):
                        yield rows.slice(low, high - low)


def side_frame(spark: SparkSession, store: Store, files: Sequence[Aside]) -> DataFrame:
    """The rows of the files as one frame; see the module."""
    if not files:
        return spark.createDataFrame([], SCHEMA)
    return reduce(DataFrame.unionAll, (_frame_of(spark, store, group) for group in _groups(files)))


def _groups(files: Sequence[Aside]) -> list[list[Aside]]:
    keys = dict.fromkeys((file.source, file.owner, file.reason) for file in files)
    return [[file for file in files if (file.source, file.owner, file.reason) == key] for key in keys]


def _frame_of(spark: SparkSession, store: Store, files: Sequence[Aside]) -> DataFrame:
    names = tuple(file.name for file in files)
    schema = pa.ipc.open_file(store.read(names[0])).schema
    rows = spark.range(0, len(names), 1, 1).mapInArrow(
        Carrying(ReadAside(names, store)), from_arrow_schema(schema)
    )
    first = files[0]
    broken = first.reason == BROKEN_REASON
    return rows.selectExpr(
        f"{literal(first.source)} AS stream",
        f"{'CAST(NULL AS STRING)' if broken else literal(first.owner)} AS input",
        f"{literal(first.reason)} AS reason",
        f"{'record' if broken else _JSON} AS record",
        *(_NONE if broken else first.missed),
    )
