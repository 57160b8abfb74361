"""Types that columns are read as, where Spark's parser would take other values for those that are declared.

Timestamps are read as texts where the source says the unit of its numbers (`counted_times`), and TINYINT in
JSON as SMALLINT (`narrow`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from watersmeet.runtime.spark import lazy_functions as F
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sources.files.narrow_integers import (
    JSON,
    misfit_sql,
    narrow_columns,
    widen_integers,
)
from watersmeet.runtime.spark.sql_text import quote_name
from watersmeet.runtime.spark.time_values import time_sql
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import UPSERT
from watersmeet.spec.options.files import format_of
from watersmeet.spec.options.kafka import metadata_of, records_of
from watersmeet.spec.records.text_records import get_declared_unit
from watersmeet.types.sql_type import STRING, TIMESTAMP, TIMESTAMP_NTZ, SqlType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_JSON_FORMATS = ("json", UPSERT)
"""Of Debezium's events `debezium` sees to it, for a change has to be read as a whole."""

_TIME_OPTIONS = frozenset(
    {"timestampformat", "timestampntzformat", "timezone", "locale", "enabledatetimeparsingfallback"}
)
"""Options of Spark's parsers by which texts are times."""


def use_read_types(source: Source) -> Source:
    """Return the source with the columns as they are read."""
    types = {column.name: STRING for column in _counted_columns(source)}
    types |= {column.name: widen_integers(column.type, JSON) for column in _narrow_columns(source)}
    return replace_types(source, types)


def replace_types(source: Source, types: Mapping[str, SqlType]) -> Source:
    """Return the source with other types of some columns, by their names."""
    columns = (replace(column, type=types.get(column.name, column.type)) for column in source.columns)
    return replace(source, columns=tuple(columns)) if types else source


def compares_values(source: Source) -> bool:
    """Return whether `cast_to_declared` looks at every record, and so at all of its columns."""
    return bool(_counted_columns(source) or _narrow_columns(source))


def cast_to_declared(frame: DataFrame, source: Source) -> DataFrame:
    """Return the frame of `use_read_types` with the columns as they are declared.

    A record with a value that is none of its column's is broken; shown are its columns, as JSON.
    """
    times, narrow = _time_columns(source), _narrow_columns(source)
    if not times and not narrow:
        return frame
    wrong = [f"({quote_name(name)} IS NOT NULL AND {time} IS NULL)" for name, time in times.items()]
    wrong += [f"({misfit_sql(quote_name(column.name), column.type, JSON)})" for column in narrow]
    row = ", ".join(quote_name(column.name) for column in source.columns)
    broken = F.expr(f"coalesce({BROKEN}, IF({' OR '.join(wrong)}, to_json(struct({row})), NULL))")
    casts = {c.name: f"CAST(IF({BROKEN} IS NULL, {quote_name(c.name)}, NULL) AS {c.type})" for c in narrow}
    frame = frame.withColumns({BROKEN: broken, **{name: F.expr(time) for name, time in times.items()}})
    return frame.withColumns({name: F.expr(cast) for name, cast in casts.items()})


def _time_columns(source: Source) -> Mapping[str, str]:
    """Return the timestamps that texts are, as SQL, by the columns' names."""
    unit = get_declared_unit(source.options)
    if unit is None:
        return {}
    named = {name.rpartition(".")[2]: value for name, value in source.options.items()}
    parser = {name: value for name, value in named.items() if name.lower() in _TIME_OPTIONS}
    return {c.name: time_sql(quote_name(c.name), c.type, unit, parser) for c in _counted_columns(source)}


def _counted_columns(source: Source) -> list[Column]:
    """Return the columns whose numbers count what the source says."""
    if get_declared_unit(source.options) is None:
        return []
    return [column for column in read_columns(source) if column.type in (TIMESTAMP, TIMESTAMP_NTZ)]


def _narrow_columns(source: Source) -> list[Column]:
    if format_read(source) not in _JSON_FORMATS:
        return []
    read = read_columns(source)
    return [column for column in narrow_columns(source, JSON) if column in read]


def format_read(source: Source) -> str | None:
    """Return the format of the source's files, or of its topic's records; None: it has neither."""
    if source.traits.log:
        return records_of(source.options)
    return format_of(source.options) if source.traits.files else None


def read_columns(source: Source) -> list[Column]:
    """Return the columns that records hold."""
    elsewhere = metadata_of(source) if source.traits.log else {}
    return [column for column in source.columns if column.name not in elsewhere]
