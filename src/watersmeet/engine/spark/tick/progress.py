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
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from watersmeet.engine.driver.results import TickResult
from watersmeet.engine.spark.text import literal
from watersmeet.event_time import shown_time
from watersmeet.plan.model.job import JobPlan, QueryPlan

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
    """The row of a tick; None: no row."""
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
    values = {
        "tick": f"{result.tick}",
        "clock": f"timestamp_micros({result.clock_us})",
        "rows_in": _json(result.rows_in),
        "rows_out": _json({query.name: result.queries[query.name].rows_out for query in of_inserts}),
        "watermarks": _json(marks),
        "shed": _json(_shed(result, of_inserts)),
        "shed_joined": _json(
            {
                query.name: dict(joined)
                for query in of_inserts
                if (joined := result.queries[query.name].newly_shed_joined)
            }
        ),
        "finished": str(result.finished).upper(),
    }
    columns = (f"CAST({values[name]} AS {type_}) AS {name}" for name, type_ in COLUMNS.items())
    return spark.range(0, 1, 1, 1).selectExpr(*columns)


def _shed(result: TickResult, queries: Sequence[QueryPlan]) -> dict[str, dict[str, int]]:
    shed = {
        query.name: {
            alias: counts["shed"]
            for alias, counts in result.queries[query.name].counts.items()
            if counts.get("shed")
        }
        for query in queries
    }
    return {name: by_alias for name, by_alias in shed.items() if by_alias}


def _json(values: Mapping[str, Any]) -> str:
    return literal(json.dumps(values, ensure_ascii=False, sort_keys=True))
