"""Values that make a record broken although Spark's readers accept them.

These are texts longer than their VARCHAR(n) or CHAR(n), at any depth: Spark reads those types as STRING of
any length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from watersmeet.runtime.spark.sql_text import find_mentioned_names, literal, quote_name
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.kafka import metadata_of
from watersmeet.types.sql_type import SqlType

Leaf = Callable[[str, SqlType], str | None]


def limited_columns(source: Source) -> list[Column]:
    """Return the declared columns of files and topics that have a length, or something with one within."""
    if not (source.traits.files or source.traits.log):
        return []
    return [column for column in source.columns if has_length(column.type)]


def has_length(type_: SqlType) -> bool:
    """Return whether it is, or has within, a text of a limited length."""
    return any(own.length for own in type_.every)


def any_nested_misfit(
    value: str, type_: SqlType, misfit: Leaf, numbers: Iterator[int] | None = None
) -> str | None:
    """Return the Spark SQL condition that a value, or a value nested in it, does not fit.

    Args:
        misfit: Returns the condition for a value alone, by its type; None: the value cannot misfit.
        numbers: Numbers for the names of variables.

    Returns:
        A condition that is TRUE if the value does not fit, else FALSE or NULL; None if nothing in the type
        can misfit.
    """
    numbers = count() if numbers is None else numbers
    if (own := misfit(value, type_)) is not None:
        return own
    parts = [
        any_nested_misfit(f"{value}.{quote_name(f.name)}", f.type, misfit, numbers) for f in type_.fields
    ]
    lists = [value] if len(type_.parts) == 1 else [f"map_keys({value})", f"map_values({value})"]
    for values, element in zip(lists, type_.parts, strict=False):
        name = f"e{next(numbers)}"
        within = any_nested_misfit(name, element, misfit, numbers)
        parts.append(None if within is None else f"exists({values}, {name} -> {within})")
    return " OR ".join(f"({part})" for part in parts if part is not None) or None


def misfit_sql(source: Source, texts: Sequence[str]) -> str | None:
    """Return a record with such a value, as JSON, as Spark SQL; NULL where all values fit.

    Args:
        texts: expressions over the source's columns: others are not read for this, and not in the JSON.

    Returns:
        None: no expression has a column that may have such a value.
    """
    names = find_mentioned_names([column.name for column in source.columns], texts)
    limited = [column for column in limited_columns(source) if column.name in names]
    wrong = [any_nested_misfit(quote_name(column.name), column.type, _too_long_sql) for column in limited]
    if not wrong:
        return None
    elsewhere = metadata_of(source) if source.traits.log else {}
    values = {name: quote_name(name) for name in names if name not in elsewhere}
    fields = ", ".join(f"{literal(name)}, {value}" for name, value in values.items())
    return f"IF({' OR '.join(filter(None, wrong))}, to_json(named_struct({fields})), NULL)"


def _too_long_sql(value: str, type_: SqlType) -> str | None:
    return f"char_length({value}) > {type_.length}" if type_.length else None
