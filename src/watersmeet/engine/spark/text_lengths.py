"""Texts that are longer than their VARCHAR(n) or CHAR(n) break their record. To Spark's readers both are
STRING, of any length.
"""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.engine.spark.text import literal, quoted
from watersmeet.spec.model import Column, Source


def limited_columns(source: Source) -> list[Column]:
    """Return the declared columns of files and topics that have a length."""
    if not (source.traits.files or source.traits.log):
        return []
    return [column for column in source.columns if column.type.length]


def too_long_sql(source: Source, texts: Sequence[str]) -> list[str]:
    """Return what breaks a record, as Spark SQL: per column the text that is too long, as JSON, else NULL.

    Args:
        texts: expressions over the source's columns: others are not read for this.
    """
    return [
        f"IF(char_length({value}) > {column.type.length},"
        f" to_json(named_struct({literal(column.name)}, {value})), NULL)"
        for column in limited_columns(source)
        if any((value := quoted(column.name)) in text for text in texts)
    ]
