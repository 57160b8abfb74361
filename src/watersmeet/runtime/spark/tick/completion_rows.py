"""A row per tick that says that the tick is complete: it is written when all sinks have their rows of it.

Columns: ``tick``; ``clock``, the tick's own, which a repeated tick has again; ``rows_in``, per source, and
``rows_out``, per INSERT: of this tick, as JSON objects; ``watermarks``: per INSERT those of its result, by
``alias.column``, as text, a JSON object of objects (no later row of the result has a time below);
``shed``: per INSERT and input how many of its rows left at a limit in this tick, and ``shed_joined``, per
inputs that were joined, how many rows that were joined of them, as JSON objects of objects, without those of
which there are none; ``finished``: the input was ended, and no tick comes after.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from watersmeet.event_time import shown_time
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.results import TickResult, count_shed_rows
from watersmeet.runtime.spark.sql_text import literal

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
