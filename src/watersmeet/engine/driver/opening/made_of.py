"""What an input makes of the rows of its source, made of rows that another query keeps: kept columns, keys
and conditions, which Spark computes of rows that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.engine.messages.shapes import SideShape
from watersmeet.kernel.batches import one_array
from watersmeet.kernel.expressions.evaluate import Computed, fits, tree_of
from watersmeet.names import DIFF, FLAG
from watersmeet.plan.evaluated import mentioned_by, shown, source_inputs, words_of
from watersmeet.plan.exact import NotExact, exact_in_run
from watersmeet.plan.model.sides import BranchPlan, SidePlan
from watersmeet.state.runs.columns import StoredColumn


@dataclass(frozen=True)
class MadeOf:
    """``source``: the columns of the source that are needed, as they are stored; ``plain``: kept column ->
    that of the source; ``computed``: the others, and `FLAG`; ``schema``: of the kept columns."""

    source: tuple[StoredColumn, ...]
    plain: Mapping[str, str]
    computed: tuple[Computed, ...]
    schema: pa.Schema

    def rows(self, stored: pa.RecordBatch, diffs: pa.Array) -> pa.RecordBatch:
        """What ingest takes, of rows with the columns of ``source``. Raises: EngineError as in a query."""
        table = pa.Table.from_batches([stored])
        columns = {name: table.column(column) for name, column in self.plain.items()}
        columns |= {computed.name: computed.of(table) for computed in self.computed}
        arrays = []
        for field in self.schema:
            column = columns[field.name]
            array = one_array(column) if isinstance(column, pa.ChunkedArray) else column
            arrays.append(array if array.type == field.type else array.cast(field.type))
        names = list(self.schema.names)
        if FLAG in columns:
            arrays.append(columns[FLAG].cast(pa.int8()))
            names.append(FLAG)
        return pa.RecordBatch.from_arrays([*arrays, diffs], names=[*names, DIFF])


def made_of(
    side: SidePlan,
    branch: BranchPlan,
    shape: SideShape,
    held: BranchPlan,
    held_shape: SideShape,
    *,
    zone: str,
    zoned: bool,
) -> MadeOf | str:
    """What ``side`` makes of the rows of its ``branch``, of those that another side keeps; or why it cannot.

    Args:
        held, held_shape: the branch of the side that keeps them, and how.
        zone: the query's time zone; zoned: TIMESTAMPs carry UTC.
    """
    stored = {column.name: column for column in held_shape.layout.columns}
    there = {
        expr.name: stored[name]
        for name, expr in held.columns
        if expr.key == "column" and name in stored and name in held_shape.stored_schema.names
    }
    exprs = dict(branch.columns) | ({} if branch.flag is None else {FLAG: branch.flag})
    needed = mentioned_by(branch)
    missing = sorted(needed - there.keys())
    if missing:
        return f"lack {', '.join(missing)}"
    declared = {column.name: column for column in branch.source.columns}
    for name in sorted(needed):
        if not fits(held_shape.stored_schema.field(there[name].name).type, declared[name].type):
            return f"have {name} with another type than declared"
    inputs, computed = source_inputs(branch.source, zone), []
    for name, expr in exprs.items():
        if expr.key == "column" and name != FLAG:
            continue
        try:
            made = exact_in_run(expr, inputs)
        except NotExact as why:
            return f"would need Spark, which alone computes {shown(expr)} ({why})"
        words = words_of(branch, name, expr)
        computed.append(Computed(name, tree_of(made.tree), made.type, words, zoned))
    return MadeOf(
        tuple(StoredColumn(name, there[name].origin, there[name].text) for name in sorted(needed)),
        {name: expr.name for name, expr in branch.columns if expr.key == "column"},
        tuple(computed),
        shape.schema,
    )
