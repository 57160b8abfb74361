"""The first rows of a tick as a terminal shows them: the driver's own need no frame of Spark's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from watersmeet.expressions.casts import cast_to
from watersmeet.expressions.evaluate import Computed
from watersmeet.expressions.physical_types import fits
from watersmeet.expressions.trees import tree_of
from watersmeet.expressions.typed_tree import TypedTree, UnsupportedExpression
from watersmeet.sinks.base import ShowsRows, Sink, Texts, columns_of
from watersmeet.spec.model import Column
from watersmeet.types.json_values import rows_of
from watersmeet.types.sql_type import STRING

_AS_VALUES = (
    *(pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_decimal),
    *(pa.types.is_date32, pa.types.is_timestamp, pa.types.is_floating, pa.types.is_binary),
)


def shows(sink: Sink, own: pa.Schema, schema: StructType, zone: str) -> Shows | None:
    """How a sink shows rows without Spark; None: it does not.

    Args:
        own, schema: of the rows, and of Spark's frame in their place.
        zone: the session's, in which texts have their times.
    """
    if not isinstance(sink, ShowsRows):
        return None
    if sink.shows_values:
        return Shows(sink, ()) if all(any(is_it(f.type) for is_it in _AS_VALUES) for f in own) else None
    try:
        texts = [_as_text(column, own.field(column.name).type, zone) for column in columns_of(schema)]
    except UnsupportedExpression:
        return None
    return Shows(sink, texts)


class Shows:
    """``texts``: what columns are as texts; none: values are shown as JSON has them."""

    def __init__(self, sink: ShowsRows, texts: Sequence[Computed]) -> None:
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
        rows = pa.Table.from_batches([batch])
        return pa.record_batch([text.of(rows) for text in self._texts], names=batch.schema.names)


def _as_text(column: Column, kind: pa.DataType, zone: str) -> Computed:
    """Return `CAST(… AS STRING)` as tasks compute it. Raises: UnsupportedExpression."""
    name, type_ = column.name, column.type
    if not fits(kind, type_):
        raise UnsupportedExpression(f"{name} is {type_}")
    text = cast_to(TypedTree(("column", name, type_), type_), STRING, zone)
    return Computed(name, tree_of(text.tree), STRING, f"CAST({name} AS STRING)", zoned=False)
