"""Decimals of JSON and CSV with more digits behind the point than their columns have.

Spark's readers round them and say nothing. So a stream's column is read with more digits, as many as fit into
64 bits, and rounded here, where it is seen.

To round twice is another value where the first result is half-way between two: 1.4949999999999999 is 1.495,
and then 1.50. Such a value is read once more as it is declared: of Kafka from the record (`sources.kafka`),
of files with its source (`tick.reading.again`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from watersmeet.engine.spark import lazy_functions as F
from watersmeet.engine.spark.text import literal, mentioned, quoted
from watersmeet.engine.spark.written_types import compares_values, format_read, read_columns, with_types
from watersmeet.engine.tasks.files.taken import wider_decimal
from watersmeet.names import ours
from watersmeet.spec.model import Source
from watersmeet.types.sql_type import SqlType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SURE, UNSURE = "=", "!"
"""Before a value that was rounded. `UNSURE`: only the record's text tells to what; alone: whether it fits."""
_FORMATS = ("json", "csv")


def wider_columns(source: Source) -> dict[str, SqlType]:
    """Return the columns of records that are read with more digits, and as what."""
    if format_read(source) not in _FORMATS:
        return {}
    wider = {c.name: wider_decimal(c.type) for c in read_columns(source) if c.type.is_decimal}
    return {name: type_ for name, type_ in wider.items() if type_ is not None}


def with_more_digits(source: Source) -> Source:
    """Return a source whose decimals are read with more digits."""
    return with_types(source, wider_columns(source))


def loses_digits(value: str, declared: SqlType) -> str:
    """Return the condition that a value of the wider type is not one of the declared type."""
    return f"NOT (try_cast({value} AS {declared}) <=> {value})"


def shown_value(name: str, value: str, mark: str = SURE) -> str:
    """Return a column and its value of the wider type as a text behind a mark, as Spark SQL."""
    return f"concat({literal(f'{mark}{name} ')}, rtrim('0', CAST({value} AS STRING)))"


def rounded(frame: DataFrame, source: Source) -> DataFrame:
    """Return the frame of `with_more_digits` with the decimals that the source declares, and beside each a
    column (`rounded_column`) with its value where that was rounded, else NULL.

    The text begins with `SURE`; with `UNSURE` where a value is half-way between two, maybe by being rounded,
    or no longer fits.
    """
    columns = {}
    for name in wider_columns(source):
        column = source.column(name)
        assert column is not None
        value, own = quoted(name), f"try_cast({quoted(name)} AS {column.type})"
        half = f"0.{'0' * column.type.scale}5BD"
        shown = (
            f"CASE WHEN {own} IS NULL THEN '{UNSURE}' WHEN abs({own} - {value}) = {half}"
            f" THEN {shown_value(name, value, UNSURE)} ELSE {shown_value(name, value)} END"
        )
        columns[name] = F.expr(own)
        columns[rounded_column(name)] = F.expr(f"IF({loses_digits(value, column.type)}, {shown}, NULL)")
    return frame.withColumns(columns) if columns else frame


def with_none_rounded(frame: DataFrame, source: Source) -> DataFrame:
    """Return a frame of the declared columns with the columns that `rounded` adds, all of them NULL."""
    null = F.lit(None).cast("string")
    return frame.withColumns({rounded_column(name): null for name in wider_columns(source)})


def rounded_column(name: str) -> str:
    """Return the name of the column that shows a value of another one before it was rounded."""
    return ours(f"rounded:{name}")


def rounded_sql(source: Source, texts: Sequence[str]) -> str | None:
    """Return what a record had rounded, as Spark SQL over the frame of `rounded`: the first such value, one
    of those that begin with `UNSURE` if there is one; NULL where there is none.

    Args:
        texts: expressions over the source's columns. Values of others are not shown; whether they fit counts
            where Spark's parser is asked for all columns of files: such a value breaks its record.

    Returns:
        None: no column can have such a value.
    """
    wider = wider_columns(source)
    values = {name: quoted(rounded_column(name)) for name in mentioned([*wider], texts)}
    parses_all = source.traits.files and compares_values(source)
    parsed = {name: quoted(rounded_column(name)) for name in wider} if parses_all else values
    if len(parsed) < 2 and parsed == values:
        return next(iter(values.values()), None)
    too_large = [f"IF({value} = '{UNSURE}', {value}, NULL)" for value in parsed.values()]
    unsure = [f"IF(startswith({value}, '{UNSURE}'), {value}, NULL)" for value in values.values()]
    some = f"coalesce({', '.join(parsed.values())})"
    return f"IF({some} IS NULL, NULL, coalesce({', '.join([*too_large, *unsure, *values.values()])}))"
