"""Made-up streams: deterministic in the row's number and the seed, so a repeated tick has the same rows.

Options: ``rate`` (rows a second, 1000), ``disorder`` (seconds by which event times are out of order, 0),
``keys`` (distinct values of key columns, 100), ``seed`` (0), ``rows`` (how many in all; without it they
never end), ``start`` (first event time, 2024-01-01 00:00:00), and per column ``field.<column>.kind`` = time
| key | sequence | random and ``field.<column>.nulls`` (share of NULLs, 0). Without a kind, event times,
timestamps and dates are times, other numbers without a fraction and strings are keys, the rest is random.

Rows n, n+1, … are 1/rate seconds of event time apart; integer event times count seconds from 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from watersmeet.errors import SpecError, near_names, raise_all
from watersmeet.names import PARTITION
from watersmeet.runtime.spark import lazy_functions as F
from watersmeet.runtime.spark.checkpoint.spark_positions import NOTHING_READ
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sql_text import literal
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.names import source_option_problems
from watersmeet.types.sql_type import BOOLEAN, INTEGERS, STRING, TIMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("time", "key", "sequence", "random")
_MIN_ROWS_PER_TICK = 1


def read(spark: SparkSession, source: Source, trigger_s: float) -> DataFrame:
    """Return the streaming frame of the generator; see `sources`."""
    per_tick = rows_per_tick(source, trigger_s)
    frame = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", str(per_tick))
        .option("numPartitions", str(min(spark.sparkContext.defaultParallelism, max(1, per_tick // 10_000))))
        .load()
    )
    bound = total_rows(source)
    if bound is not None:
        frame = frame.where(F.col("value") < F.lit(bound))
    columns = [F.expr(value_sql(source, column)).alias(column.name) for column in source.columns]
    nothing = F.lit(None).cast("string")
    return frame.select(*columns, nothing.alias(PARTITION), nothing.alias(BROKEN))


def rows_per_tick(source: Source, trigger_s: float) -> int:
    """Return the rows that the rate gives per trigger interval, or per second if it is 0."""
    return max(_MIN_ROWS_PER_TICK, math.ceil(_number_option(source, "rate", 1000) * (trigger_s or 1.0)))


def total_rows(source: Source) -> int | None:
    """Return the option ``rows``; None: unlimited."""
    return int(_number_option(source, "rows", 0)) if "rows" in source.options else None


def count_rows_read(offset: str) -> int:
    """Return the number of rows generated up to an offset, as Spark writes it.

    >>> count_rows_read('{"offset":200,"timestamp":0}'), count_rows_read("-")
    (200, 0)
    """
    return 0 if offset == NOTHING_READ else int(json.loads(offset)["offset"])


def has_more_rows(
    sources: Sequence[Source], offsets: Sequence[str], passed_over: Collection[str] = ()
) -> bool:
    """Return True if a bounded generator among the sources has rows after its offset.

    Args:
        offsets: empty, or one per source.
        passed_over: names of sources to ignore.
    """
    return any(
        count_rows_read(text) < (total_rows(source) or 0)
        for source, text in zip(sources, offsets, strict=bool(offsets))
        if source.traits.own_rate and source.name not in passed_over
    )


def value_sql(source: Source, column: Column) -> str:
    """Build the SQL of the column's value over ``value``, the number of the row."""
    check_options(source)
    kind = source.options.get(f"field.{column.name}.kind", "").strip().lower() or _default_kind(
        source, column
    )
    if kind not in KINDS:
        raise SpecError(
            f"generator \"{source.name}\": option 'field.{column.name}.kind' is '{kind}'",
            code="unknown-option",
            hint=near_names(kind, KINDS),
        )
    written = {"time": _time, "key": _key, "sequence": _sequence, "random": _random}[kind](source, column)
    nulls = _number_option(source, f"field.{column.name}.nulls", 0)
    if nulls:
        return f"IF({_random_fraction(source, column, 'nulls')} < {nulls:.9f}, NULL, {written})"
    return written


def check_options(source: Source) -> None:
    """Check the options of a source.

    Raises:
        SpecError: An option does not exist.
    """
    raise_all(source_option_problems(source))


def _default_kind(source: Source, column: Column) -> str:
    if column.type in TIMES or any(time.column == column.name for time in source.event_times):
        return "time"
    return "key" if column.type in (*INTEGERS, STRING) else "random"


def _hash(source: Source, what: str) -> str:
    seed = int(_number_option(source, "seed", 0))
    return f"xxhash64(value, {literal(f'{source.name}/{what}')}, {seed}L)"


def _random_fraction(source: Source, column: Column, what: str) -> str:
    """Build the SQL of a number in [0, 1) that is evenly distributed and repeatable."""
    return f"(pmod({_hash(source, f'{column.name}/{what}')}, 1000000007L) / 1000000007D)"


def _time(source: Source, column: Column) -> str:
    rate = _number_option(source, "rate", 1000)
    disorder = int(_number_option(source, "disorder", 0) * 1_000_000)
    micros = f"CAST(value * {1_000_000 / rate!r}D AS BIGINT)"
    if disorder:
        micros = f"({micros} - pmod({_hash(source, 'disorder')}, {disorder}L))"
    if column.type not in TIMES:
        return f"CAST(floor({micros} / 1000000) AS {column.type})"
    start = literal(source.options.get("start", "2024-01-01 00:00:00"))
    return f"CAST(timestamp_micros(unix_micros(TIMESTAMP {start}) + {micros}) AS {column.type})"


def _key(source: Source, column: Column) -> str:
    keys = max(1, int(_number_option(source, "keys", 100)))
    number = f"pmod({_hash(source, column.name)}, {keys}L)"
    return f"concat('k', {number})" if column.type == STRING else f"CAST({number} AS {column.type})"


def _sequence(source: Source, column: Column) -> str:
    return f"CAST(value AS {column.type})"


def _random(source: Source, column: Column) -> str:
    share = _random_fraction(source, column, "value")
    if column.type == BOOLEAN:
        return f"({share} < 0.5)"
    return f"CAST({share} * 100 AS {column.type})"


def _number_option(source: Source, name: str, default: float) -> float:
    options: Mapping[str, str] = source.options
    text = options.get(name, str(default)).strip().replace("_", "")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value < 0 or (name == "rate" and value == 0):
        raise SpecError(
            f"generator \"{source.name}\": option '{name}' is '{text}'",
            code="bad-option",
            hint="use a number above zero",
        )
    return value
