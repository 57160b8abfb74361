"""Rows that go into a sink as they left the tasks: which those are, and sums of them without Spark.

Rows of changes are summed before they leave (`tick.summed`). Those of groups have nothing to sum where a
row says all of its group: what a group was and what it is differ, and groups differ by their keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from watersmeet.engine.messages.shapes import NodeShape
from watersmeet.names import DIFF, SHOWN_DIFF, SHOWN_TICK, TICK
from watersmeet.plan.model.job import QueryPlan
from watersmeet.spec.model import OutputMode


@dataclass(frozen=True)
class Plain:
    """Columns that leave as they are.

    Args:
        outputs: (column of the tasks' rows, name in the sink), no name twice.
        summed: rows have to be summed first, by all of the columns but the last two: diff and tick.
        schema: of the rows in the sink.
    """

    outputs: tuple[tuple[str, str], ...]
    summed: bool
    schema: pa.Schema

    def rows(self, batches: Sequence[pa.RecordBatch], tick: int) -> pa.Table:
        """All rows of a tick as the sink takes them, of what left the tasks."""
        names = [column for column, _ in self.outputs]
        if not batches:
            return self.schema.empty_table()
        table = pa.Table.from_batches(batches)
        if TICK in names:
            table = table.append_column(TICK, pa.repeat(pa.scalar(tick), table.num_rows))
        if self.summed:
            values = [name for name in names if name not in (DIFF, TICK)]
            sums = table.group_by(values, use_threads=False).aggregate([(DIFF, "sum"), (TICK, "max")])
            table = sums.select([*values, f"{DIFF}_sum", f"{TICK}_max"]).rename_columns([*values, DIFF, TICK])
            table = table.filter(pc.not_equal(table.column(DIFF), 0))
        return pa.Table.from_arrays(table.select(names).columns, schema=self.schema)


def plain_outputs(query: QueryPlan, shape: NodeShape) -> Plain | None:
    """How the rows of the query's last node go out as they are; None: they do not."""
    columns = [
        (output.expr.name, output.name) for output in query.outputs if isinstance(output.expr, exp.Column)
    ]
    if not len(columns) == len(query.outputs) == len({name for _, name in columns}):
        return None
    kinds = {field.name: field.type for field in shape.row_schema} | {TICK: pa.int64()}
    summed = False
    if query.options.output_mode is OutputMode.CHANGELOG:
        if not all(_is_one_value(kinds[column]) for column, _ in columns):
            return None
        summed = shape.telling is None or not shape.telling <= {column for column, _ in columns}
        columns += [(DIFF, SHOWN_DIFF), (TICK, SHOWN_TICK)]
        if summed and len({column for column, _ in columns}) < len(columns):
            return None
    schema = pa.schema([pa.field(name, kinds[column]) for column, name in columns])
    return Plain(tuple(columns), summed, schema)


def _is_one_value(kind: pa.DataType) -> bool:
    """Equal values are the same ones: none is written in two ways, as 0.0 and −0.0 are."""
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
