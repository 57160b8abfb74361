"""Expressions of a plan over Arrow tables, as Spark evaluates them: those that `expressions` lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.event_time import MIN_TIME
from watersmeet.expressions.compiler import compile_in_run
from watersmeet.expressions.evaluate import Computed
from watersmeet.expressions.trees import tree_of
from watersmeet.expressions.typed_tree import UnsupportedExpression
from watersmeet.kernel.aggregate import consolidate_table
from watersmeet.kernel.batches import one_array
from watersmeet.kernel.slots import BORDER_BITS, Slots
from watersmeet.names import CHANGE_COLUMNS, DIFF, FLAG, PARTITION, TICK
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.model.sides import BranchPlan, SidePlan
from watersmeet.plan.query_inputs import JoinInputs, mentioned_columns, source_inputs, unquoted_text, words_of
from watersmeet.runtime.values import arrow_type_of
from watersmeet.spec.model import Column, Expr, Input, Source
from watersmeet.spec.records.changes import computed_expr
from watersmeet.spec.time_zones import UTC
from watersmeet.types.arrow import in_arrow


def move_to_borders(hashes: Slots) -> Slots:
    """Hashes moved next to multiples of 2**44, where tasks' ranges may begin and end; for tests."""
    values = hashes.view(np.uint64)
    prefix = (values % np.uint64(840)) * np.uint64((1 << (64 - BORDER_BITS)) // 840)
    offset = (values // np.uint64(840)) % np.uint64(3)
    moved = (prefix << np.uint64(BORDER_BITS)) + offset - np.uint64(1)
    return (moved + np.uint64(MIN_TIME & 0xFFFF_FFFF_FFFF_FFFF)).view(np.int64)


def build_row_inputs(node: NodePlan, zone: str = UTC) -> JoinInputs:
    """Build inputs in which a node's columns (``alias.column`` as one name) are bare columns."""
    inputs = (Input(alias="", columns=node.columns, event_times=(), branches=()),)
    return JoinInputs(inputs, time_zone=zone)


def declared_schema(side: SidePlan) -> pa.Schema:
    """Build the schema of an input's stored columns that are declared, in native types."""
    declared = {column.name: column for column in side.input.columns if in_arrow(column.type) is not None}
    return pa.schema(
        [pa.field(name, arrow_type_of(declared[name])) for name in side.kept if name in declared]
    )


class BranchEvaluator:
    """Evaluator of the columns that ingest reads from a source for one branch, and of `FLAG`.

    ``columns`` lists the columns of the source that the branch mentions.

    Args:
        where: the prefix of expression names in messages.
    """

    def __init__(self, side: SidePlan, branch: BranchPlan, zone: str = UTC, where: str = "") -> None:
        inputs = source_inputs(branch.source, zone)
        declared = {column.name: column for column in side.input.columns}
        self._plain = {name: expr.name for name, expr in branch.columns if expr.key == "column"}
        self._computed = [
            _compile_column(name, expr, inputs, words=where + words_of(branch, name, expr))
            for name, expr in branch.columns
            if name not in self._plain
        ]
        self._flag = None
        if branch.flag is not None:
            words = where + words_of(branch, FLAG, branch.flag)
            self._flag = _compile_column(FLAG, branch.flag, inputs, words=words)
        self._casts = {
            name: arrow_type_of(declared[name])
            for name, _ in branch.columns
            if name in declared and in_arrow(declared[name].type) is not None
        }
        self._casts |= {
            other.name: arrow_type_of(Column(other.name, other.type))
            for other in side.of_others
            if other.type is not None and in_arrow(other.type) is not None
        }
        self._names = [name for name, _ in branch.columns]
        mentioned = mentioned_columns(branch)
        self.columns = tuple(column for column in branch.source.columns if column.name in mentioned)

    def __call__(self, rows: pa.Table) -> pa.RecordBatch:
        columns = {name: rows.column(column) for name, column in self._plain.items()}
        columns |= {PARTITION: rows.column(PARTITION), DIFF: rows.column(DIFF)}
        columns |= {computed.name: computed.of(rows) for computed in self._computed}
        if self._flag is not None:
            columns[FLAG] = self._flag.of(rows).cast(pa.int8())
        arrays = []
        for name, column in columns.items():
            array = one_array(column) if isinstance(column, pa.ChunkedArray) else column
            if name in self._casts and array.type != self._casts[name]:
                array = array.cast(self._casts[name], safe=False)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def schema(self, source: Source) -> pa.Schema:
        """Return the schema of the stored columns, in native types."""
        fields = [pa.field(column.name, arrow_type_of(column)) for column in self.columns]
        fields += [pa.field(PARTITION, pa.string()), pa.field(DIFF, pa.int64())]
        batch = self(pa.schema(fields).empty_table())
        return pa.schema([batch.schema.field(name) for name in self._names])


def evaluate_column(source: Source, name: str, rows: pa.Table, zone: str = UTC) -> pa.ChunkedArray:
    """Return a column of the records of a source, or one that is computed of them.

    Raises: EngineError, where the expression fails, or is computed by Spark alone.
    """
    expr = computed_expr(source.computed, name)
    if expr is None:
        return rows.column(name)
    words = f'source "{source.name}": the column {name} AS {unquoted_text(expr)}'
    return pa.chunked_array([_compile_column(name, expr, source_inputs(source, zone), words=words).of(rows)])


class Projection:
    """The query's filter after the last node, and its output columns.

    Args:
        changelog: Sum the changes of each row, with `CHANGE_COLUMNS`.
        zoned: TIMESTAMPs carry UTC.
    """

    def __init__(self, query: QueryPlan, changelog: bool, *, zoned: bool = False) -> None:
        inputs = build_row_inputs(query.root, query.options.time_zone)
        where = f'INSERT "{query.name}": '
        self._names = [*(output.name for output in query.outputs), *(CHANGE_COLUMNS if changelog else ())]
        self._outputs = [
            _compile_column(
                f"c{n}",
                output.expr,
                inputs,
                zoned,
                words=f"{where}the column {output.name} = {unquoted_text(output.expr)}",
            )
            for n, output in enumerate(query.outputs)
        ]
        self._where = None
        if query.where is not None:
            words = f"{where}the condition {unquoted_text(query.where)}"
            self._where = _compile_column(FLAG, query.where, inputs, words=words)
        self._changelog = changelog

    def __call__(self, rows: pa.Table, tick: int) -> tuple[list[str], pa.Table]:
        """Project rows; return the column names, which may repeat, and the resulting table."""
        if self._where is not None:
            rows = rows.filter(pc.fill_null(self._where.of(rows), False))
        columns = {output.name: output.of(rows) for output in self._outputs}
        if self._changelog:
            changes = consolidate_table(pa.table({**columns, DIFF: rows.column(DIFF)}), DIFF)
            ticks = np.full(changes.num_rows, tick, dtype=np.int64)
            return self._names, changes.append_column(TICK, pa.array(ticks))
        return self._names, pa.table(columns)


def _compile_column(
    name: str, expr: Expr, inputs: JoinInputs, zoned: bool = False, *, words: str
) -> Computed:
    try:
        expression = compile_in_run(expr, inputs)
    except UnsupportedExpression as why:
        raise EngineError(
            f"the in-process engine does not compute {text_of(expr)}: {why}",
            code="not-computed",
            hint="run it on Spark: watersmeet run, or replay --engine spark",
        ) from None
    return Computed(name, tree_of(expression.tree), expression.type, words, zoned=zoned)
