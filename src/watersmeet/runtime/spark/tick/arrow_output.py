"""Rows that go into a sink as they left the tasks: which those are, and sums of them without Spark.

Rows of changes are summed before they leave (`tick.summed`). Those of groups have nothing to sum where a
row says all of its group: what a group was and what it is differ, and groups differ by their keys. Columns
may be computed, too, where that is done as Spark does it (`expressions`): a row's way through Spark costs
more than all else that is done for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType
from sqlglot import exp

from watersmeet.errors import EngineError
from watersmeet.expressions.compiler import compile_in_run
from watersmeet.expressions.evaluate import Computed
from watersmeet.expressions.physical_types import fits
from watersmeet.expressions.trees import columns_of, tree_of
from watersmeet.expressions.typed_tree import TypedTree, UnsupportedExpression
from watersmeet.kernel.batches import batches_of, size
from watersmeet.names import DIFF, SHOWN_DIFF, SHOWN_TICK, TICK, ours
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.query_inputs import JoinInputs
from watersmeet.runtime.messages.shapes import NodeShape
from watersmeet.runtime.tasks.side import ManyMatches
from watersmeet.spec.model import Expr, Input, OutputColumn, OutputMode

FIRST_ROWS = 16
PIECE_BYTES = 32 << 20
MAX_GROWTH = 16
"""What is computed may be far wider than what it is computed of: so many rows come first, then as many as
would come to so many bytes, were they as those before, and at most so many times as many as these."""
SUMMED_BYTES = 64 << 20
"""Of rows that are summed without Spark, as they are computed: all of them are held."""
TOO_WIDE = frozenset({"texts-too-long", "too-many-elements"})
"""Codes of errors that fewer rows at once may not have."""


@dataclass(frozen=True)
class ArrowOutput:
    """Columns that leave as they are.

    Args:
        outputs: (column of the tasks' rows, name in the sink), no name twice.
        computed: columns that are made of the tasks' rows.
        summed: rows have to be summed first, by all of the columns but the last two: diff and tick.
        schema: of the rows in the sink.
    """

    outputs: tuple[tuple[str, str], ...]
    summed: bool
    schema: pa.Schema
    computed: tuple[Computed, ...] = ()

    def matches_schema(self, schema: StructType) -> bool:
        """Return True if Spark would write columns of these types."""
        own = from_arrow_schema(self.schema)
        return [field.dataType for field in own] == [field.dataType for field in schema]

    def find_python_schema(self, schema: StructType, time_zone: str) -> pa.Schema | None:
        """Return the schema in which Spark passes rows of ``schema`` to Python.

        Returns:
            The schema, or None if these columns cannot be cast to it.
        """
        try:
            wanted = to_arrow_schema(schema, timezone=time_zone)
            self.schema.empty_table().cast(wanted)
        except (PySparkException, pa.ArrowException):
            return None
        return wanted

    def rows(self, batches: Iterable[pa.RecordBatch], tick: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a tick in the sink's form, from the rows of the tasks.

        Consolidated rows come when all are complete; other rows keep their order, one batch after the
        other.

        Raises:
            ManyMatches: the consolidated rows exceed `SUMMED_BYTES`.
        """
        made = self._convert_batches(batches, tick)
        yield from batches_of(self._sums(made)) if self.summed else made

    def _convert_batches(self, batches: Iterable[pa.RecordBatch], tick: int) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not self.computed:
                yield self._convert_batch(batch, tick)
                continue
            at, count = 0, FIRST_ROWS
            while at < batch.num_rows:
                try:
                    made = self._convert_batch(batch.slice(at, count), tick)
                except EngineError as error:
                    if error.code not in TOO_WIDE or count == 1:
                        raise
                    count = max(count // MAX_GROWTH, 1)  # these are wider than those before them
                    continue
                yield made
                at += count
                fitting = PIECE_BYTES * count // max(size(made.columns), 1)
                count = max(min(fitting, count * MAX_GROWTH), 1)

    def _convert_batch(self, batch: pa.RecordBatch, tick: int) -> pa.RecordBatch:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        rows = pa.Table.from_batches([batch]) if self.computed else None
        columns |= {column.name: column.of(rows) for column in self.computed}
        if any(column == TICK for column, _ in self.outputs):
            columns.setdefault(TICK, pa.repeat(pa.scalar(tick), batch.num_rows))
        return pa.RecordBatch.from_arrays([columns[name] for name, _ in self.outputs], schema=self.schema)

    def _sums(self, made: Iterable[pa.RecordBatch]) -> pa.Table:
        held: list[pa.RecordBatch] = []
        nbytes = 0
        for batch in made:
            held.append(batch)
            nbytes += size(batch.columns)
            if self.computed and nbytes > SUMMED_BYTES:
                raise ManyMatches
        # by their places: a user's column may have the name that Arrow would give to a sum
        *values, diff, tick = map(str, range(len(self.schema)))
        rows = pa.Table.from_batches(held, self.schema).rename_columns([*values, diff, tick])
        sums = rows.group_by(values, use_threads=False).aggregate([(diff, "sum"), (tick, "max")])
        sums = sums.filter(pc.not_equal(sums.column(f"{diff}_sum"), 0))
        columns = [sums.column(name) for name in (*values, f"{diff}_sum", f"{tick}_max")]
        return pa.Table.from_arrays(columns, schema=self.schema)


def plan_arrow_output(query: QueryPlan, shape: NodeShape) -> ArrowOutput | None:
    """Plan the output of the query's last node as Arrow rows; None if Spark has to write them."""
    is_changes = query.options.output_mode is OutputMode.CHANGELOG
    computed: list[Computed] = []
    columns: list[tuple[str, str]] = []
    for output in query.outputs:
        if isinstance(output.expr, exp.Column):
            columns.append((output.expr.name, output.name))
            continue
        column = _compile_output_column(query, shape, output, len(columns))
        if column is None:
            return None
        computed.append(column)
        columns.append((column.name, output.name))
    if len({name for _, name in columns}) < len(columns):
        return None
    kinds = {field.name: field.type for field in shape.row_schema} | {TICK: pa.int64()}
    kinds |= {column.name: column.of(shape.row_schema.empty_table()).type for column in computed}
    summed = False
    if is_changes:
        if not all(_is_one_value(kinds[column]) for column, _ in columns):
            return None
        told = {column for column, _ in columns}
        summed = bool(computed) or shape.telling is None or not shape.telling <= told
        columns += [(DIFF, SHOWN_DIFF), (TICK, SHOWN_TICK)]
    schema = pa.schema([pa.field(name, kinds[column]) for column, name in columns])
    return ArrowOutput(tuple(columns), summed, schema, tuple(computed))


def compile_output_expression(query: QueryPlan, expr: Expr) -> TypedTree | None:
    """Compile an expression over the last node's rows that tasks compute exactly as Spark does.

    Times, and expressions over them, are left to Spark, which writes them in its time zone.

    Returns:
        The expression, or None if tasks cannot compute it.
    """
    rows = Input(alias="", columns=query.root.columns, event_times=(), branches=())
    try:
        expression = compile_in_run(expr, JoinInputs((rows,), time_zone=query.options.time_zone))
    except UnsupportedExpression:
        return None
    types = (expression.type, *columns_of(expression.tree).values())
    return None if any(part.is_time for whole in types for part in whole.every) else expression


def _compile_output_column(
    query: QueryPlan, shape: NodeShape, output: OutputColumn, number: int
) -> Computed | None:
    """Compile a column that tasks compute exactly as Spark does; None if they cannot."""
    expression = compile_output_expression(query, output.expr)
    if expression is None:
        return None
    kinds = {field.name: field.type for field in shape.row_schema}
    asked = columns_of(expression.tree)
    if not all(name in kinds and fits(kinds[name], type_) for name, type_ in asked.items()):
        return None
    text = f'INSERT "{query.name}": the column {output.name} = {text_of(output.expr).replace("`", "")}'
    return Computed(ours(f"out{number}"), tree_of(expression.tree), expression.type, text, zoned=False)


def _is_one_value(kind: pa.DataType) -> bool:
    """Return True if equal values of the type are identical, unlike 0.0 and −0.0."""
    asked = (
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_decimal,
        pa.types.is_date,
        pa.types.is_timestamp,
        pa.types.is_string,
        pa.types.is_binary,
    )
    return any(is_of(kind) for is_of in asked)
