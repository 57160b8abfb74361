"""Write late, unusable and rejected rows to side outputs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.event_time import shown_time
from watersmeet.kernel.batches import batches_in, cut_points, sizes
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.runtime.coordinator.results import TickResult, count_shed_rows
from watersmeet.runtime.coordinator.tick_phases import RunningTick
from watersmeet.runtime.spark.errors import ErrorSealingTask
from watersmeet.runtime.spark.sql_text import literal
from watersmeet.runtime.spark.tick.ingest import BROKEN_REASON
from watersmeet.runtime.spark.tick.outputs import BROKEN_INSERT, LATE_INSERT, SHED_INSERT
from watersmeet.runtime.tasks.ingest import SIDE_OUTPUT_COLUMNS
from watersmeet.runtime.tasks.memory import OUTPUT_BYTES
from watersmeet.sinks.base import text_options_sql
from watersmeet.spec.model import AtLimit
from watersmeet.state.store import Store

COLUMNS = {
    "tick": "BIGINT",
    "clock": "TIMESTAMP",
    "rows_in": "STRING",
    "rows_out": "STRING",
    "watermarks": "STRING",
    "shed": "STRING",
    "shed_joined": "STRING",
    "finished": "BOOLEAN",
}


def progress_frame(spark: SparkSession, plan: JobPlan, result: TickResult | None) -> DataFrame:
    """Build the frame with the progress row of a tick; without a result it is empty."""
    if result is None:
        return spark.createDataFrame([], ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items()))
    marks = {}
    of_inserts = [query for query in plan.queries if not query.is_index]
    for query in of_inserts:
        integers = {
            side.watermark_key(column.name)
            for side in query.sides
            for column in side.input.columns
            if not column.type.is_time
        } | {column.name for column in query.root.columns if not column.type.is_time}
        emitted = result.queries[query.name].output_watermarks
        marks[query.name] = {key: str(shown_time(mark, key in integers)) for key, mark in emitted.items()}
    told = {query.name: result.queries[query.name] for query in of_inserts}
    values = {
        "tick": f"{result.tick}",
        "clock": f"timestamp_micros({result.clock_us})",
        "rows_in": _json(result.rows_in),
        "rows_out": _json({name: of.rows_out for name, of in told.items()}),
        "watermarks": _json(marks),
        "shed": _json({name: shed for name, of in told.items() if (shed := count_shed_rows(of.counts))}),
        "shed_joined": _json(
            {name: of.newly_shed_joined for name, of in told.items() if of.newly_shed_joined}
        ),
        "finished": str(result.finished).upper(),
    }
    columns = (f"CAST({values[name]} AS {type_}) AS {name}" for name, type_ in COLUMNS.items())
    return spark.range(0, 1, 1, 1).selectExpr(*columns)


def _json(values: Mapping[str, Any]) -> str:
    return literal(json.dumps(values, ensure_ascii=False, sort_keys=True))


# Rows that were set aside (late, NULL time, too far ahead, broken) → a sink of the tick.
#
# Columns: ``stream`` (the source; of a late row of a stage the alias of the input), ``input``
# (``query/alias``; NULL for broken records), ``reason``, ``record`` (JSON of the declared columns, of a
# stage's row those that the query keeps, or the text of a broken record). Of late rows also which
# watermark they missed: ``watermark_key`` (``alias.column``), ``watermark`` (as text, less
# allowed_lateness, at the start of the tick), and ``late_by`` (µs, or plain units where times are
# integers); NULL for others.

SCHEMA = (
    "stream STRING, input STRING, reason STRING, record STRING, "
    "watermark_key STRING, watermark STRING, late_by BIGINT"
)

_JSON = f"to_json(record, {text_options_sql('json')})"
_NO_WATERMARK_COLUMNS = (
    "CAST(NULL AS STRING) AS watermark_key",
    "CAST(NULL AS STRING) AS watermark",
    "CAST(NULL AS BIGINT) AS late_by",
)


@dataclass(frozen=True)
class SideOutputFile:
    """A side-output file: rows of one source that were rejected for one reason.

    Attributes:
        reader: ``query/alias`` of the input that judged the rows, if another query reads them for the
            owner.
    """

    source: str
    owner: str
    reason: str
    name: str
    rows: int
    reader: str | None = None

    def of(self, owner: str) -> SideOutputFile:
        """Return a copy for input ``owner``, whose rows the input of this file reads."""
        return replace(self, owner=owner, reader=self.owner)

    @property
    def missed(self) -> tuple[str, ...]:
        """Spark SQL of the watermark that the rows missed, by keys of the owner."""
        key, *others = SIDE_OUTPUT_COLUMNS[1:]
        if self.reader is None:
            return key, *others
        there, own = (name.rpartition("/")[2] for name in (self.reader, self.owner))
        return f"{literal(own)} || substr({key}, {len(there) + 1}) AS {key}", *others

    @classmethod
    def from_json(cls, text: str) -> SideOutputFile:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class ReadSideOutput:
    """The function given to `mapInArrow`: numbers of files → their rows."""

    names: tuple[str, ...]
    store: Store

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                reader = pa.ipc.open_file(self.store.read(self.names[number]))
                for rows in batches_in(reader):
                    borders = cut_points(sizes(rows.columns, np.arange(rows.num_rows)), OUTPUT_BYTES)
                    for low, high in pairwise(borders):
                        yield rows.slice(low, high - low)


def build_side_frame(spark: SparkSession, store: Store, files: Sequence[SideOutputFile]) -> DataFrame:
    """Build one frame of the rows of the files; see the module."""
    if not files:
        return spark.createDataFrame([], SCHEMA)
    return reduce(DataFrame.unionAll, (_build_frame(spark, store, group) for group in _group_files(files)))


def _group_files(files: Sequence[SideOutputFile]) -> list[list[SideOutputFile]]:
    keys = dict.fromkeys((file.source, file.owner, file.reason) for file in files)
    return [[file for file in files if (file.source, file.owner, file.reason) == key] for key in keys]


def _build_frame(spark: SparkSession, store: Store, files: Sequence[SideOutputFile]) -> DataFrame:
    names = tuple(file.name for file in files)
    schema = pa.ipc.open_file(store.read(names[0])).schema
    rows = spark.range(0, len(names), 1, 1).mapInArrow(
        ErrorSealingTask(ReadSideOutput(names, store)), from_arrow_schema(schema)
    )
    first = files[0]
    broken = first.reason == BROKEN_REASON
    return rows.selectExpr(
        f"{literal(first.source)} AS stream",
        f"{'CAST(NULL AS STRING)' if broken else literal(first.owner)} AS input",
        f"{literal(first.reason)} AS reason",
        f"{'record' if broken else _JSON} AS record",
        *(_NO_WATERMARK_COLUMNS if broken else first.missed),
    )


# The rows that a tick sets aside: late ones, those that were shed, and records that do not parse.

_SHED_REASONS = tuple(choice.value for choice in AtLimit if choice.sheds)
_INSERTS = {BROKEN_REASON: BROKEN_INSERT, **dict.fromkeys(_SHED_REASONS, SHED_INSERT)}


def find_insert(file: SideOutputFile) -> str:
    """Return the insert that takes the rows of a file."""
    return _INSERTS.get(file.reason, LATE_INSERT)


def list_side_outputs(tick: RunningTick, of_ingest: list[SideOutputFile]) -> list[SideOutputFile]:
    """Return all files of rows that a tick sets aside; ``of_ingest``: those that its ingest tasks wrote."""
    plan = tick.begun.run.plan
    return [
        *of_ingest,
        *_list_reader_files(plan, of_ingest),
        *_list_node_files(plan, tick),
        *_list_table_files(plan, tick),
    ]


def _list_reader_files(plan: JobPlan, of_ingest: list[SideOutputFile]) -> Iterator[SideOutputFile]:
    """Yield the same rows for queries whose inputs others read."""
    for query in plan.queries:
        for own, reader, there in query.shared_inputs:
            yield from (
                file.of(f"{query.name}/{own}") for file in of_ingest if file.owner == f"{reader}/{there}"
            )


def _list_node_files(plan: JobPlan, tick: RunningTick) -> Iterator[SideOutputFile]:
    """Yield late rows of stages, and rows that joins have shed."""
    for query in plan.queries:
        for alias, files in tick.aside(query.name).items():
            for file in files:
                yield SideOutputFile(
                    source=_source_name(query, alias) if file.reason else alias,
                    owner=f"{query.name}/{_input_title(query, alias)}",
                    reason=file.reason or "late",
                    name=file.name,
                    rows=file.rows,
                )


def _list_table_files(plan: JobPlan, tick: RunningTick) -> Iterator[SideOutputFile]:
    """Yield records of tables that do not parse."""
    for query in plan.queries:
        for source, files in tick.broken(query.name).items():
            for file in files:
                yield SideOutputFile(
                    source=source, owner="", reason=BROKEN_REASON, name=file.name, rows=file.rows
                )


def _source_name(query: QueryPlan, alias: str) -> str:
    """Return the name of an input's source; of a UNION ALL that of the input, of joined rows the inputs'."""
    names = [branch.source.name for side in query.sides if side.name == alias for _, branch in side.sources]
    return names[0] if len(names) == 1 else _input_title(query, alias)


def _input_title(query: QueryPlan, alias: str) -> str:
    """Return an input's alias; of joined rows those of the inputs."""
    return next((side.title for node in query.nodes for side in node.sides if side.name == alias), alias)
