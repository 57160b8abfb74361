"""The first rows of a tick as a terminal shows them: the driver's own need no frame of Spark's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import pyarrow as pa

from watersmeet.kernel.expressions.functions.from_texts import (
    date_to_text,
    decimal_to_text,
    time_to_text,
    timestamp_to_text,
)
from watersmeet.kernel.expressions.functions.texts import boolean_to_text, whole_to_text
from watersmeet.sinks.base import ShowsRows, Sink, Texts
from watersmeet.types.json_values import rows_of

Convert = Callable[[pa.Array], pa.Array]

_SIMPLE = (
    *(pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_decimal),
    *(pa.types.is_date32, pa.types.is_timestamp),
)


def shows(sink: Sink, schema: pa.Schema, zone: str) -> Shows | None:
    """How a sink shows rows of ``schema`` without Spark; None: it does not. ``zone``: the session's, in which
    texts have their times."""
    if not isinstance(sink, ShowsRows):
        return None
    if sink.shows_values:
        simple = (*_SIMPLE, pa.types.is_floating, pa.types.is_binary)
        return Shows(sink, {}) if all(any(is_it(f.type) for is_it in simple) for f in schema) else None
    texts = {field.name: _text_of(field.type, zone) for field in schema}
    exact = {name: to_text for name, to_text in texts.items() if to_text is not None}
    return Shows(sink, exact) if len(exact) == len(schema) else None


class Shows:
    """``texts``: how columns become texts; none: values are shown as JSON has them."""

    def __init__(self, sink: ShowsRows, texts: Mapping[str, Convert]) -> None:
        self._sink, self._texts = sink, texts

    def take(
        self, rows: Iterable[pa.RecordBatch], schema: pa.Schema, insert: str, tick: int, attempt: str
    ) -> None:
        """Stage the rows of a tick, all of which are computed, the first ones to be shown."""
        left, first, total = self._sink.most_shown, list[Texts](), 0
        for batch in rows:
            total += batch.num_rows
            if left and batch.num_rows:
                head = batch.slice(0, left)
                left -= head.num_rows
                first += rows_of(head if not self._texts else self._as_texts(head))
        self._sink.take_shown(insert, tick, attempt, schema.names, first, total)

    def _as_texts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.schema.names
        return pa.record_batch([self._texts[name](batch.column(name)) for name in names], names=names)


def _text_of(kind: pa.DataType, zone: str) -> Convert | None:
    """`CAST(… AS STRING)` of Spark, where it is known what that is; None: versions of Java write it in other
    ways, or it is no simple value. See `plan.exact.casts`."""
    if pa.types.is_string(kind):
        return lambda column: column
    if pa.types.is_boolean(kind):
        return boolean_to_text
    if pa.types.is_integer(kind):
        return whole_to_text
    if pa.types.is_decimal(kind):
        return decimal_to_text
    if pa.types.is_date32(kind):
        return lambda column: date_to_text(column.cast(pa.int32()))
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        to_text = time_to_text if kind.tz is None else partial(timestamp_to_text, name=zone)
        return lambda column: to_text(column.cast(pa.int64()))
    return None
