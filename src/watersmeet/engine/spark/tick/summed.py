"""Results of output_mode changelog on their way into the sink: summed per equal row, over all tasks.

Rows of several hash ranges may be equal once they are projected, so Spark's groupBy sums them up. Equal is
what it takes for equal: NULL like NULL, NaN like NaN, 0.0 like -0.0 (0.0 goes out, inside of other values,
too), maps whatever the order of their entries.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, CalendarIntervalType, DataType, MapType, StructType, VariantType

from watersmeet.engine.spark.text import quoted
from watersmeet.errors import EngineError
from watersmeet.names import DIFF, SHOWN_DIFF, SHOWN_TICK, TICK


def summed(frame: DataFrame, outputs: Sequence[tuple[str, str]], query: str) -> DataFrame:
    """One row for all equal ones of a tick, with the sum of their diffs; none where that is 0.

    Args:
        frame: what left the tasks, with `DIFF` and `TICK`.
        outputs: (Spark SQL over it, name); names may repeat.

    Returns:
        Columns `plain_names`, `DIFF`, `TICK`.

    Raises:
        EngineError: a column has values that cannot be told to be equal.
    """
    names = plain_names(outputs)
    columns = [F.expr(sql).alias(plain) for (sql, _), plain in zip(outputs, names, strict=True)]
    rows = frame.select(*columns, F.col(quoted(DIFF)), F.col(quoted(TICK)))
    for field, (_, name) in zip(rows.schema.fields, outputs, strict=False):
        if _has_no_equals(field.dataType):
            raise EngineError(
                f'INSERT "{query}": the column "{name}" is {field.dataType.simpleString().upper()},'
                " whose values cannot be compared, so deletes cannot cancel inserts",
                code="type-not-supported",
                hint="write it as text: CAST(… AS STRING) or to_json(…)",
            )
    sums = rows.groupBy(*names).agg(F.sum(DIFF).alias(DIFF), F.max(TICK).alias(TICK))
    return sums.where(F.col(DIFF) != 0)


def shown(frame: DataFrame, outputs: Sequence[tuple[str, str]]) -> DataFrame:
    """What `summed` gave, as the sink takes it."""
    names = [*(name for _, name in outputs), SHOWN_DIFF, SHOWN_TICK]
    plain = [*plain_names(outputs), DIFF, TICK]
    return frame.select(*(F.col(column).alias(name) for column, name in zip(plain, names, strict=True)))


def plain_names(outputs: Sequence[tuple[str, str]]) -> list[str]:
    """Names of outputs that do not repeat."""
    return [f"c{n}" for n in range(len(outputs))]


def _has_no_equals(kind: DataType) -> bool:
    """Spark groups by all types but these."""
    if isinstance(kind, ArrayType):
        return _has_no_equals(kind.elementType)
    if isinstance(kind, MapType):
        return _has_no_equals(kind.keyType) or _has_no_equals(kind.valueType)
    if isinstance(kind, StructType):
        return any(_has_no_equals(field.dataType) for field in kind.fields)
    return isinstance(kind, CalendarIntervalType | VariantType)
