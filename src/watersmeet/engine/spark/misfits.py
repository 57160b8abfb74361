"""Values that break their record although Spark's readers take them: texts that are longer than their
VARCHAR(n) or CHAR(n), which Spark reads as STRING of any length."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.engine.spark.text import literal, mentioned, quoted
from watersmeet.spec.model import Column, Source
from watersmeet.spec.options.kafka import metadata_of


def limited_columns(source: Source) -> list[Column]:
    """Return the declared columns of files and topics that have a length."""
    if not (source.traits.files or source.traits.log):
        return []
    return [column for column in source.columns if column.type.length]


def misfit_sql(source: Source, texts: Sequence[str]) -> str | None:
    """Return a record with such a value, as JSON, as Spark SQL; NULL where all values fit.

    Args:
        texts: expressions over the source's columns: others are not read for this, and not in the JSON.

    Returns:
        None: no expression has a column that may have such a value.
    """
    names = mentioned([column.name for column in source.columns], texts)
    limits = {column.name: column.type.length for column in limited_columns(source) if column.name in names}
    wrong = [f"char_length({quoted(name)}) > {length}" for name, length in limits.items()]
    if not wrong:
        return None
    elsewhere = metadata_of(source) if source.traits.log else {}
    values = {name: quoted(name) for name in names if name not in elsewhere}
    fields = ", ".join(f"{literal(name)}, {value}" for name, value in values.items())
    return f"IF({' OR '.join(wrong)}, to_json(named_struct({fields})), NULL)"
