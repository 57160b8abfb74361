"""Rule: which columns of a side are kept in state, and which of them leave the join."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from watersmeet.names import ours
from watersmeet.plan.conditions.conjuncts import join_all
from watersmeet.plan.conditions.flags import over_source
from watersmeet.spec.model import (
    Branch,
    Expr,
    Input,
    Insert,
    Options,
    OutputColumn,
    OutputMode,
    Query,
    Relation,
    bare,
)


@dataclass(frozen=True)
class RetainedColumns:
    """Names, in the side's order, then computed columns; ``carried`` are among ``kept``."""

    kept: tuple[str, ...]
    carried: tuple[str, ...]


def retained_columns(
    names: Iterable[str], joined: Callable[[str], str], needed: Collection[str], leaving: Collection[str]
) -> RetainedColumns:
    """Return the columns that a join needs itself, and those that later nodes need.

    Args:
        names: All columns that the side could have, in order; a name may occur twice.
        joined: Returns the name of a column after it leaves the join.
        needed: Columns that keys, the residual and the release of rows need.
        leaving: Joined names of the columns that the joins and expressions above need.
    """
    every = dict.fromkeys(names)
    carried = tuple(name for name in every if joined(name) in leaving)
    return RetainedColumns(tuple(name for name in every if name in needed or name in carried), carried)


def source_columns(i: Input, branch: Branch) -> Mapping[str, Expr]:
    """Return the columns of an input as expressions over the source of the branch."""
    return {column.name: expr for column, expr in zip(i.columns, branch.columns, strict=True)}


def branch_columns(
    kept: RetainedColumns,
    computed: Mapping[str, Expr],
    columns: Mapping[str, Expr],
    *,
    first: Sequence[Expr],
    then: Sequence[Expr],
    there: Sequence[Expr],
    times: Collection[str],
) -> tuple[tuple[str, Expr], ...]:
    """Return (name, expression over the source) of the retained columns.

    Expressions that may fail on a value are evaluated only for rows that belong to the input, as Spark
    evaluates a filter before the operators above it.

    Args:
        computed: Expressions over bare columns of the input.
        first: Conditions over the source that a row of the input has to meet.
        then: Further conditions, which drop rows that count for the watermarks of ``times``.
        there: Columns of the source; a row with NULL in one of them belongs to no side, so nothing is
            computed of it.
    """
    pairs = []
    for name in kept.kept:
        expr = bare(columns[name]).copy() if name in columns else over_source(computed[name], columns)
        mentioned = list(expr.find_all(exp.Column))
        others = [] if name in columns else [column for column in there if column not in mentioned]
        asked = join_all([*first, *(() if name in times else then), *map(_is_not_null, others)])
        if asked is not None and may_fail(expr):
            expr = exp.Case().when(asked, expr, copy=False)
        pairs.append((name, expr))
    return tuple(pairs)


def _is_not_null(column: Expr) -> Expr:
    return exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null()))


def may_fail(expr: Expr) -> bool:
    """Return True unless every part of the expression is known never to raise in Spark."""
    return not all(isinstance(node, _NEVER_FAILS) for node in expr.walk())


_NEVER_FAILS = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Boolean,
    exp.Null,
    exp.Paren,
    exp.And,
    exp.Or,
    exp.Not,
    exp.Is,
    exp.Lower,
    exp.Upper,
    exp.Length,
)


# Rule: which mode a query has. What it says itself (EMIT), else what the job says (output_mode), else
# final rows where its sources only bring rows, and changes where rows may be taken back. Of rows that may
# be taken back final ones come of windows, which go out when they close.


def with_mode(options: Options, query: Query) -> Options:
    """Return the job's options with the output mode of this query."""
    said = query.mode or options.output_mode
    inputs = [i for part in query.every for i in part.inputs]
    by_sources = OutputMode.CHANGELOG if changing(inputs) else OutputMode.APPEND
    return replace(options, output_mode=said or by_sources)


def changing(inputs: Iterable[Input]) -> list[Input]:
    """Return the inputs whose rows can be retracted.

    These are changing sources, and tables unless they are read as of a tick. The inputs of a stage
    report their own changes.
    """
    return [i for i in inputs if not i.as_of and any(s.changes or s.is_table for s in i.sources)]


def closes_changes(query: Query) -> bool:
    """Return True if the windows of a query turn rows that can be retracted into final rows.

    False if windows below have already done so for all inputs, because the rows are then final.
    """
    window = None if query.aggregation is None else query.aggregation.window
    return window is not None and not _has_final_input(query)


def _has_final_input(query: Query) -> bool:
    """Return True if all input rows of the query are final, or can become so."""
    stages = (stage for i in query.inputs for stage in i.stages)
    return not changing(query.inputs) and all(closes_changes(s) or _has_final_input(s) for s in stages)


# Further columns of a query that say which inputs have no match in a result row.


def match_markers(insert: Insert) -> dict[str, str]:
    """Return per input that may have no match in a result row an event time, which is NULL only there."""
    if insert.is_index or insert.query.aggregation is not None or insert.sink.primary_key:
        return {}
    nullable = _nullable(insert.query.relation, False)
    return {own.alias: own.event_times[0] for own in nullable if own.event_times}


def with_markers(insert: Insert, markers: Mapping[str, str]) -> Insert:
    """Return the INSERT with these event times as further, last columns, called `marker_name`."""
    columns = tuple(
        OutputColumn(marker_name(alias), exp.column(time, table=alias), f"{alias}.{time}")
        for alias, time in markers.items()
    )
    return replace(insert, query=replace(insert.query, outputs=(*insert.query.outputs, *columns)))


def marker_name(alias: str) -> str:
    """Return the name of the column of an input's event time."""
    return ours(f"match:{alias}")


def _nullable(relation: Relation, is_nullable: bool) -> Iterator[Input]:
    """Yield the inputs whose columns are NULL in rows without a match."""
    if isinstance(relation, Input):
        yield from [relation] if is_nullable else []
        return
    yield from _nullable(relation.left, is_nullable or relation.kind.pads_right)
    if not relation.kind.hides_right:
        yield from _nullable(relation.right, is_nullable or relation.kind.pads_left)
