"""Consolidate rows before a sink: one per key, or summed per equal row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, singledispatch

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, CalendarIntervalType, DataType, MapType, StructType, VariantType

from watersmeet.errors import EngineError
from watersmeet.names import CHANGE_COLUMNS, DELETED, DIFF, SHOWN_DIFF, SHOWN_TICK, TICK
from watersmeet.plan.model.nodes import AggregatePlan, NodePlan
from watersmeet.runtime.messages.shapes import AggregateShape, NodeShape
from watersmeet.runtime.spark.sql_text import literal, quote_name, to_spark_sql
from watersmeet.sinks.base import Keyed, KeyedRows, text_options_sql
from watersmeet.spec.model import WINDOW_END, WINDOW_START
from watersmeet.types.sql_type import TIMESTAMP, SqlType

_WINDOW = (WINDOW_START, WINDOW_END)


ResultFunction = Callable[[DataFrame], DataFrame]


@singledispatch
def build_results(node: NodePlan, shape: NodeShape) -> ResultFunction | None:
    """Return the function that computes a node's output from the rows of its tasks.

    Returns:
        The function, or None if the tasks' rows are the output.
    """
    return None


@build_results.register
def _(node: AggregatePlan, shape: AggregateShape) -> ResultFunction | None:
    zoned = getattr(shape.window_type, "tz", None) is not None
    if not shape.by_spark and (_window_type(node) != TIMESTAMP or zoned):
        return None
    return partial(_group_frame if shape.by_spark else _compute_windows, node)


def _compute_windows(node: AggregatePlan, frame: DataFrame) -> DataFrame:
    """Return the rows with their windows as the plan defines them."""
    others = [F.col(quote_name(name)) for name in frame.columns if name not in _WINDOW]
    return frame.select(*_windows(node), *others)


def _group_frame(node: AggregatePlan, frame: DataFrame) -> DataFrame:
    """Group and aggregate the rows as `AggregatePlan.results` describes."""
    keys = [F.col(quote_name(column)).alias(name) for name, column in node.keys]
    calls = [F.expr(to_spark_sql(call.expr)).alias(call.name) for call in node.calls]
    return frame.groupBy(*_windows(node), *keys).agg(*calls)


def _windows(node: AggregatePlan) -> list[Column]:
    return [F.col(name).cast(str(_window_type(node))).alias(name) for name in _WINDOW]


def _window_type(node: AggregatePlan) -> SqlType:
    return next(column.type for column in node.results if column.name == WINDOW_START)


# Rows of a tick as one record (`KeyedRecords`) or one row (`KeyedRows`) per key, on their way into a
# sink.
#
# Of a key at most one row goes and one comes in a tick: then its record says what became of it, an update
# as one. More of them are two rows of one key, and fail the tick; so does a second row beside one of an
# earlier tick, where rows are counted (`plan.nodes.top_n`).

_WRONG = """CASE
    WHEN {null} THEN concat({where}, 'NULL in the PRIMARY KEY ', {key})
    WHEN came > 1 OR gone > 1 THEN concat({where}, 'the PRIMARY KEY ', {key}, ' has ', greatest(came, gone),
        ' rows at once: this tick inserted ', came, ' and deleted ', gone)
    WHEN there > 1 THEN concat({where}, 'the PRIMARY KEY ', {key}, ' has ', there, ' rows at once:',
        ' choose a key that is unique in the result')
    END"""
_ROW = "IF(came > 0, after, NULL)"
_EVENT = """concat('{{"before":', IF(gone > 0, before, 'null'), ',"after":', IF(came > 0, after, 'null'),
    ',"op":"', CASE WHEN gone = 0 THEN 'c' WHEN came = 0 THEN 'd' ELSE 'u' END, '"}}')"""


def compact_by_key(
    frame: DataFrame, keyed: Keyed, query: str, *, changes: bool, rows: str | None = None
) -> DataFrame:
    """Reduce the rows of a tick to one row per key.

    Args:
        frame: rows in the sink's form, with changes consolidated per row.
        changes: the frame has `CHANGE_COLUMNS`; else all rows are inserts.
        rows: the column with the multiplicity of a row; None: each row counts once.

    Returns:
        Columns ``key`` and ``value``; for `KeyedRows`, the columns of the result and `DELETED`.
    """
    columns = [n for n in frame.columns if not (changes and n in CHANGE_COLUMNS) and n != rows]
    options = text_options_sql("json")
    names = [f"k{n}" for n in range(len(keyed.columns))]
    keys = [F.col(quote_name(name)).alias(plain) for name, plain in zip(keyed.columns, names, strict=True)]
    of_values = isinstance(keyed, KeyedRows)
    values = [f"{quote_name(name)} AS v{n}" for n, name in enumerate(columns) if name not in keyed.columns]
    row = f"to_json(struct({', '.join(map(quote_name, columns))}), {options})"
    if of_values:
        row = f"struct({', '.join([*values, 'true AS v'])})"
    diff = F.col(SHOWN_DIFF) if changes else F.lit(1).cast("bigint")
    there = F.lit(1).cast("bigint") if rows is None else F.col(rows)
    told = frame.select(*keys, F.expr(row).alias("row"), diff.alias("diff"), there.alias("there"))
    grouped = told.groupBy(*names).agg(
        F.expr("sum(greatest(diff, 0L))").alias("came"),
        F.expr("sum(greatest(-diff, 0L))").alias("gone"),
        F.expr("first(IF(diff > 0, row, NULL), true)").alias("after"),
        F.expr("first(IF(diff < 0, row, NULL), true)").alias("before"),
        F.expr("max(IF(diff > 0, there, 1L))").alias("there"),
    )
    pairs = ", ".join(
        f"{plain} AS {quote_name(name)}" for name, plain in zip(keyed.columns, names, strict=True)
    )
    text = f"to_json(struct({pairs}), {options})"
    wrong = _WRONG.format(
        null=" OR ".join(f"{name} IS NULL" for name in names),
        where=literal(f'the sink of "{query}": '),
        key=text,
    )
    if isinstance(keyed, KeyedRows):
        key_of = dict(zip(keyed.columns, names, strict=True))
        row = "IF(came > 0, after, before)"
        return grouped.select(
            *(F.expr(key_of.get(name, f"{row}.v{n}")).alias(name) for n, name in enumerate(columns)),
            F.expr(f"IF({wrong} IS NULL, came = 0, CAST(raise_error({wrong}) AS BOOLEAN))").alias(DELETED),
        )
    value = _EVENT.format() if keyed.events else _ROW
    return grouped.select(
        F.expr("CAST(k0 AS STRING)" if keyed.plain_key else text).alias("key"),
        F.expr(f"IF({wrong} IS NULL, {value}, CAST(raise_error({wrong}) AS STRING))").alias("value"),
    )


# Results of output_mode changelog on their way into the sink: summed per equal row, over all tasks.
#
# Rows of several hash ranges may be equal once they are projected, so Spark's groupBy sums them up. Equal
# is what it takes for equal: NULL like NULL, NaN like NaN, 0.0 like -0.0 (0.0 goes out, inside of other
# values, too), maps whatever the order of their entries.


def sum_changes(frame: DataFrame, outputs: Sequence[tuple[str, str]], query: str) -> DataFrame:
    """Consolidate the equal rows of a tick to one row with the sum of their diffs.

    Rows with sum 0 are dropped.

    Args:
        frame: the rows of the tasks, with `DIFF` and `TICK`.
        outputs: (Spark SQL over it, name); names may repeat.

    Returns:
        Columns `unique_output_names`, `DIFF`, `TICK`.

    Raises:
        EngineError: a column has values that cannot be compared for equality.
    """
    names = unique_output_names(outputs)
    columns = [F.expr(sql).alias(plain) for (sql, _), plain in zip(outputs, names, strict=True)]
    rows = frame.select(*columns, F.col(quote_name(DIFF)), F.col(quote_name(TICK)))
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


def rename_for_sink(frame: DataFrame, outputs: Sequence[tuple[str, str]]) -> DataFrame:
    """Rename the columns of the result of `sum_changes` for the sink."""
    names = [*(name for _, name in outputs), SHOWN_DIFF, SHOWN_TICK]
    plain = [*unique_output_names(outputs), DIFF, TICK]
    return frame.select(*(F.col(column).alias(name) for column, name in zip(plain, names, strict=True)))


def unique_output_names(outputs: Sequence[tuple[str, str]]) -> list[str]:
    """Return names of the outputs that do not repeat."""
    return [f"c{n}" for n in range(len(outputs))]


def _has_no_equals(kind: DataType) -> bool:
    """Return True if Spark cannot group by the type."""
    if isinstance(kind, ArrayType):
        return _has_no_equals(kind.elementType)
    if isinstance(kind, MapType):
        return _has_no_equals(kind.keyType) or _has_no_equals(kind.valueType)
    if isinstance(kind, StructType):
        return any(_has_no_equals(field.dataType) for field in kind.fields)
    return isinstance(kind, CalendarIntervalType | VariantType)
