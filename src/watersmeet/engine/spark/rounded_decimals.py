"""Decimals of JSON and CSV with more digits behind the point than their columns have.

Spark's readers round them and say nothing. So a stream's column is read with more digits, as many as fit into
64 bits where these are enough, and rounded here, where it is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.engine.spark.text import literal, quoted
from watersmeet.names import ours
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import format_of
from watersmeet.spec.options.kafka import metadata_of, records_of
from watersmeet.spec.records.counted_times import FORMATS
from watersmeet.types.sql_type import MOST_DIGITS, SqlType, decimal

COMPACT_DIGITS = 18
"""Of decimals that Spark computes as 64 bits: others cost several times as much."""
_LEAST_MORE, _MORE = 4, 9
"""So many more digits behind the point are enough; so many there are beyond 64 bits: of more, usual values
would be no 64 bits to Java, and cost more."""
_TOO_LARGE = "!"
"""Before a value that no longer fits when it is rounded: 99.999 as DECIMAL(4,2)."""


def wider_decimal(type_: SqlType) -> SqlType | None:
    """Return the type as which a decimal is read; None: there is none with more digits behind the point.

    >>> [str(wider_decimal(decimal(*digits))) for digits in ((10, 2), (18, 2), (38, 4))]
    ['DECIMAL(18,10)', 'DECIMAL(27,11)', 'None']
    """
    more = COMPACT_DIGITS - type_.digits
    if more < _LEAST_MORE:
        more = min(_MORE, MOST_DIGITS - type_.digits)
    return decimal(type_.digits + more, type_.scale + more) if more >= _LEAST_MORE else None


def wider_columns(source: Source) -> dict[str, SqlType]:
    """Return the columns of records that are read with more digits, and as what."""
    log = source.traits.log
    if not log and not source.traits.files:
        return {}
    if (records_of(source.options) if log else format_of(source.options)) not in FORMATS:
        return {}
    elsewhere = metadata_of(source) if log else {}
    wider = {
        column.name: wider_decimal(column.type)
        for column in source.columns
        if column.type.is_decimal and column.name not in elsewhere
    }
    return {name: type_ for name, type_ in wider.items() if type_ is not None}


def with_more_digits(source: Source) -> Source:
    """Return a source whose decimals are read with more digits."""
    wider = wider_columns(source)
    columns = (replace(column, type=wider.get(column.name, column.type)) for column in source.columns)
    return replace(source, columns=tuple(columns)) if wider else source


def rounded(frame: DataFrame, source: Source) -> DataFrame:
    """Return the frame of `with_more_digits` with the decimals that the source declares, and beside each a
    column (`rounded_column`) with its value where that was rounded, else NULL."""
    columns = {}
    for name in wider_columns(source):
        column = source.column(name)
        assert column is not None
        value = quoted(name)
        own = f"try_cast({value} AS {column.type})"
        shown = f"concat({literal(f'{name} ')}, rtrim('0', CAST({value} AS STRING)))"
        columns[name] = F.expr(own)
        columns[rounded_column(name)] = F.expr(
            f"CASE WHEN {own} <> {value} THEN {shown}"
            f" WHEN {own} IS NULL AND {value} IS NOT NULL"
            f" THEN concat('{_TOO_LARGE}', to_json(named_struct({literal(name)}, {value}))) END"
        )
    return frame.withColumns(columns) if columns else frame


def rounded_column(name: str) -> str:
    """Return the name of the column that shows a value of another one before it was rounded."""
    return ours(f"rounded:{name}")


def rounded_sql(source: Source, texts: Sequence[str]) -> tuple[str, str] | None:
    """Return what a record had rounded, and what breaks it, as Spark SQL over the frame of `rounded`.

    Args:
        texts: expressions over the source's columns: others are not read for this.

    Returns:
        The first value that was rounded, and as JSON the first that is too large; each NULL where there is
        none. None: no expression has such a column.
    """
    names = [name for name in wider_columns(source) if any(quoted(name) in text for text in texts)]
    if not names:
        return None
    values = [quoted(rounded_column(name)) for name in names]
    too_large = [f"IF(startswith({v}, '{_TOO_LARGE}'), substring({v}, 2), NULL)" for v in values]
    return _first(values), _first(too_large)


def _first(values: Sequence[str]) -> str:
    return f"coalesce({', '.join(values)})" if len(values) > 1 else values[0]
