"""Decimals of JSON and CSV with more digits behind the point than their columns have.

Spark's readers round them and say nothing. So a stream's column is read with more digits, as many as fit into
as many bytes, and rounded here, where it is seen; also within STRUCT, ARRAY and MAP.

To round twice is another value where the first result is half-way between two: 1.4949999999999999 is 1.495,
and then 1.50. Such a value is read once more as it is declared: of Kafka from the record (`TopicRecord`),
of files with its source (`tick.reading.again`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from watersmeet.names import ours
from watersmeet.runtime.files.supported_types import wider_decimal
from watersmeet.runtime.spark import lazy_functions as F
from watersmeet.runtime.spark.read_types import (
    compares_values,
    format_read,
    read_columns,
    replace_types,
)
from watersmeet.runtime.spark.rejected_values import any_nested_misfit
from watersmeet.runtime.spark.sql_text import bind_value, find_mentioned_names, literal, quote_name
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.changes import UPSERT
from watersmeet.types.sql_type import SqlType

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_WIDER, _DECLARED = ours("wider"), ours("declared")

CERTAIN_MARK, UNCERTAIN_MARK = "=", "!"
"""Before a value that was rounded. `UNCERTAIN_MARK`: only the record's text tells to what; alone: whether it
fits."""
_FORMATS = ("json", "csv", UPSERT)
_SHOWN = 100
"""Characters of a value that has others within."""


def wider_columns(source: Source) -> dict[str, SqlType]:
    """Return the columns of records that are read with more digits, and as what."""
    if format_read(source) not in _FORMATS:
        return {}
    wider = {column.name: _widen_decimals(column.type) for column in read_columns(source)}
    return {column.name: wider[column.name] for column in source.columns if _is_wider(column, wider)}


def _is_wider(column: Column, wider: Mapping[str, SqlType]) -> bool:
    return wider.get(column.name, column.type) != column.type


def _widen_decimals(type_: SqlType) -> SqlType:
    """Return the type with more digits in its decimals, at any depth."""
    if type_.is_decimal:
        return wider_decimal(type_) or type_
    parts = tuple(map(_widen_decimals, type_.parts))
    fields = tuple(replace(field, type=_widen_decimals(field.type)) for field in type_.fields)
    return replace(type_, parts=parts, fields=fields) if parts or fields else type_


def use_wider_decimals(source: Source) -> Source:
    """Return a source whose decimals are read with more digits."""
    return replace_types(source, wider_columns(source))


def loses_digits(value: str, declared: SqlType) -> str:
    """Return Spark SQL that is TRUE if a value of the wider type is not a value of the declared type.

    Otherwise the SQL is FALSE or NULL.
    """
    return _any_wider_decimal(
        value, declared, lambda own, type_: f"NOT (try_cast({own} AS {type_}) <=> {own})"
    )


def _any_wider_decimal(value: str, declared: SqlType, condition: Callable[[str, SqlType], str]) -> str:
    """Return whether a condition holds for one of the decimals in a value that are read with more digits."""

    def of_decimal(own: str, type_: SqlType) -> str | None:
        return condition(own, type_) if type_.is_decimal and wider_decimal(type_) is not None else None

    return any_nested_misfit(value, declared, of_decimal) or "false"


def rounded_value_sql(name: str, value: str, declared: SqlType, mark: str = CERTAIN_MARK) -> str:
    """Return a column and its value of the wider type as a text behind a mark, as Spark SQL."""
    text = f"left(to_json({value}), {_SHOWN})" if declared.is_nested else f"CAST({value} AS STRING)"
    shown = text if declared.is_nested else f"rtrim('0', {text})"
    return f"concat({literal(f'{mark}{name} ')}, {shown})"


def round_decimals(frame: DataFrame, source: Source) -> DataFrame:
    """Round the decimals in the frame of `use_wider_decimals` to the types that the source declares.

    The result has a column (`rounded_column`) beside each decimal: the value as text where it was rounded,
    otherwise NULL. The text begins with `CERTAIN_MARK`, or with `UNCERTAIN_MARK` where a value is half-way
    between two, possibly because of rounding, or no longer fits.
    """
    columns = {}
    for name in wider_columns(source):
        column = source.column(name)
        assert column is not None
        value, own = quote_name(name), f"try_cast({quote_name(name)} AS {column.type})"
        too_large = _any_wider_decimal(value, column.type, _is_too_large)
        shown = (
            f"CASE WHEN {too_large} THEN '{UNCERTAIN_MARK}' WHEN "
            f"{_any_wider_decimal(value, column.type, _is_half_way)}"
            f" THEN {rounded_value_sql(name, value, column.type, UNCERTAIN_MARK)}"
            f" ELSE {rounded_value_sql(name, value, column.type)} END"
        )
        columns[name] = F.expr(own)
        columns[rounded_column(name)] = F.expr(f"IF({loses_digits(value, column.type)}, {shown}, NULL)")
    return frame.withColumns(columns) if columns else frame


def _is_too_large(value: str, type_: SqlType) -> str:
    return f"{value} IS NOT NULL AND try_cast({value} AS {type_}) IS NULL"


def _is_half_way(value: str, type_: SqlType) -> str:
    """Return the SQL condition that a value is half way between two values of the type.

    It uses the remainder: a difference would need more digits than DECIMAL has.
    """
    least = "1" if type_.scale == 0 else f"0.{'0' * (type_.scale - 1)}1"
    return f"abs({value} % {least}BD) = 0.{'0' * type_.scale}5BD"


@dataclass(frozen=True)
class TopicRecord:
    """A topic's record, parsed with more digits, and once more as declared where it loses some.

    Args:
        source: with the columns as they are read (`use_read_types`).
        types: the columns of the record.
        parsed: the column that has what `parse` gives.
        row_in: of what a text is parsed into, its row, as Spark SQL.
    """

    source: Source
    types: Mapping[str, SqlType]
    parsed: str
    row_in: Callable[[str], str]

    def parse(self, parse: Callable[[Mapping[str, SqlType]], str], *, by_place: bool = False) -> str:
        """Return the parsed record, as Spark SQL.

        Args:
            parse: the record's text, as these columns.
            by_place: columns go by their places, and all are parsed again.
        """
        told = parse({**self.types, **self._wider})
        if not self._wider:
            return told
        values = ((self._row(_WIDER, name), self.types[name]) for name in self._wider)
        lost = " OR ".join(f"({loses_digits(value, type_)})" for value, type_ in values)
        again = self.types if by_place else {name: self.types[name] for name in self._wider}
        both = f"named_struct('{_WIDER}', {_WIDER}, '{_DECLARED}', IF({lost}, {parse(again)}, NULL))"
        return bind_value(_WIDER, told, both)

    @property
    def first(self) -> str:
        """SQL of the first parse result, which has more digits where the columns need them."""
        return f"{self.parsed}.{_WIDER}" if self._wider else self.parsed

    @property
    def second(self) -> str | None:
        """SQL of the second parse result, with the declared types.

        It is NULL for a record that loses no digits; the property is None if no column can lose digits.
        """
        return f"{self.parsed}.{_DECLARED}" if self._wider else None

    def value(self, name: str) -> str:
        """Return a column as it is declared."""
        value = self._row(self.first, name)
        if self.second is None or name not in self._wider:
            return value
        own = self._row(self.second, name)
        return f"IF({self.second} IS NULL, try_cast({value} AS {self.types[name]}), {own})"

    def rounded_columns(self) -> list[SparkColumn]:
        """Return beside each column its value where it was rounded, as `round_decimals` does."""
        columns = []
        for name in self._wider:
            value, type_ = self._row(self.first, name), self.types[name]
            is_lost = f"{self.second} IS NOT NULL AND ({loses_digits(value, type_)})"
            shown = f"IF({is_lost}, {rounded_value_sql(name, value, type_)}, NULL)"
            columns.append(F.expr(shown).alias(rounded_column(name)))
        return columns

    @cached_property
    def _wider(self) -> Mapping[str, SqlType]:
        return {name: type_ for name, type_ in wider_columns(self.source).items() if name in self.types}

    def _row(self, parsed: str, name: str) -> str:
        return f"{self.row_in(parsed)}.{quote_name(name)}"


def add_null_rounded(frame: DataFrame, source: Source) -> DataFrame:
    """Add the columns of `round_decimals` to a frame of the declared columns, with NULL in every row."""
    null = F.lit(None).cast("string")
    return frame.withColumns({rounded_column(name): null for name in wider_columns(source)})


def rounded_column(name: str) -> str:
    """Return the name of the column that shows a value of another one before it was rounded."""
    return ours(f"rounded:{name}")


def rounded_sql(source: Source, texts: Sequence[str]) -> str | None:
    """Return the SQL of the first rounded value of a record, over the frame of `round_decimals`.

    Values that begin with `UNCERTAIN_MARK` come first. The SQL is NULL if there is no such value.

    Args:
        texts: expressions over the source's columns. Values of other columns are not shown; they only
            count where Spark's parser parses all columns of files, because a value that does not fit
            breaks its record there.

    Returns:
        The SQL, or None if no column can have such a value.
    """
    wider = wider_columns(source)
    values = {name: quote_name(rounded_column(name)) for name in find_mentioned_names([*wider], texts)}
    parses_all = source.traits.files and compares_values(source)
    parsed = {name: quote_name(rounded_column(name)) for name in wider} if parses_all else values
    if len(parsed) < 2 and parsed == values:
        return next(iter(values.values()), None)
    too_large = [f"IF({value} = '{UNCERTAIN_MARK}', {value}, NULL)" for value in parsed.values()]
    unsure = [f"IF(startswith({value}, '{UNCERTAIN_MARK}'), {value}, NULL)" for value in values.values()]
    some = f"coalesce({', '.join(parsed.values())})"
    return f"IF({some} IS NULL, NULL, coalesce({', '.join([*too_large, *unsure, *values.values()])}))"
