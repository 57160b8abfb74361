"""Rule: which groups and rankings over all rows can be run, and what to write instead of the others."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.plan.checks.tables import is_whole_table, quoted, source_name
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.nodes.aggregate import TAKEN_BACK, WITHOUT_ORDER
from watersmeet.spec.aggregates import call_of
from watersmeet.spec.model import Aggregation, Expr, Input, Query
from watersmeet.spec.ranking import Ranking

_EMIT = "write EMIT CHANGES (SET output_mode = changelog)"
_ENDS = ("window_start", "window_end")
_MAX_KEYS = 60
"""Characters of keys in a hint."""


def check_groups(query: Query, asked: Aggregation, *, is_final: bool) -> list[PlanError]:
    """Refuse groups over all rows whose results would never be final, and aggregates that have no retraction.

    Args:
        query: groups its rows as ``asked``.
        is_final: results may not be taken back.
    """
    stream = next((i for i in query.inputs if not i.is_table), None)
    if asked.ranking is not None and stream is not None and not is_whole_table(stream):
        return [_ranked_stream(asked, asked.ranking, stream, is_final=is_final)]
    if is_final and asked.ranking is not None:
        return [
            PlanError(
                f"{asked.ranking.text}: a later row may change the ranking, but output_mode append"
                " cannot retract results",
                code="unbounded",
                hint=_EMIT if stream is None else instead_of_groups(stream),
            )
        ]
    if is_final:
        return [
            PlanError(
                f"{asked.clause} over {_named(stream)} has no final result without a window",
                code="unbounded",
                hint=instead_of_groups(stream, _keys(asked)),
                location=asked.location,
            )
            if stream is not None
            else PlanError(
                f"{asked.clause} over changing rows has no final result in output_mode append",
                code="unbounded",
                hint=_EMIT,
                location=asked.location,
            )
        ]
    return [
        PlanError(
            f"{text_of(aggregate.expr)} is not supported yet where rows of a group can be retracted",
            code="not-yet",
            hint="use count, sum, avg, min, max, min_by, max_by, any_value, bool_and, bool_or, bit_and"
            " or bit_or",
        )
        for aggregate in asked.aggregates
        if not (call := call_of(aggregate.expr)).plain or call.function not in TAKEN_BACK | set(WITHOUT_ORDER)
    ]


def _named(stream: Input) -> str:
    """Return how messages name an input whose rows are grouped."""
    name = source_name(stream)
    kind = "the table" if is_whole_table(stream) else "the stream"
    return f'{kind} "{stream.alias if name == "…" else name}"'


def _keys(asked: Aggregation) -> list[str]:
    """Return what rows are grouped by, as SQL; "…" in place of many."""
    keys = [_written(key.expr) for key in asked.keys]
    return keys if len(", ".join(keys)) <= _MAX_KEYS else ["…"]


def instead_of_groups(stream: Input, keys: Sequence[str] = ("…",)) -> str:
    """Return what to write in place of groups over all rows of a stream."""
    name = source_name(stream)
    if is_whole_table(stream):
        return f"declare {name} with 'changes' = 'snapshot': a changing table can be grouped"
    changing = f"; or declare {name} as a changing table, and write EMIT CHANGES"
    return f"group by a window: {_by_window(stream, keys)}{'' if stream.event_times else changing}"


def _by_window(stream: Input, keys: Sequence[str]) -> str:
    """Return FROM and GROUP BY of windows over a stream, as SQL."""
    time, size = "event_time", "INTERVAL '10' MINUTES"
    if stream.event_times:
        time = stream.event_times[0]
        column = stream.column(time)
        if column is not None and column.type.is_integer:
            size = "10"
    by = ", ".join((*_ENDS, *keys))
    return (
        f"FROM TABLE(TUMBLE(TABLE {source_name(stream)}, DESCRIPTOR({quoted(time)}), {size})) GROUP BY {by}"
    )


def _ranked_stream(asked: Aggregation, ranking: Ranking, stream: Input, *, is_final: bool) -> PlanError:
    why = "a later row may change the ranking, but output_mode append cannot retract results"
    if not is_final:
        why = "a row of any partition may still arrive, so state could never be dropped"
    return PlanError(
        f"{ranking.text} over a stream, to remove duplicates or to rank rows, is not supported yet: {why}",
        code="unbounded",
        hint=f"select one row per key and window: {_one_per_window(asked, ranking, stream)}",
    )


def _one_per_window(asked: Aggregation, ranking: Ranking, stream: Input) -> str:
    """Return a SELECT of the first row of each partition in each window."""
    columns = {key.name: key.expr for key in asked.keys}
    keys = [_written(columns[name]) for name in ranking.partition]
    first = ranking.order[0]
    function = "max_by" if first.descending else "min_by"
    by = _written(columns[first.name])
    others = [name for name in columns if name not in ranking.partition]
    firsts = [f"{_first(function, _written(columns[name]), by)} AS {quoted(name)}" for name in others]
    return f"SELECT {', '.join((*_ENDS, *keys, *firsts))} {_by_window(stream, keys)}"


def _first(function: str, column: str, by: str) -> str:
    """Return the aggregate that gives a column of the first row."""
    return f"{function.removesuffix('_by')}({by})" if column == by else f"{function}({column}, {by})"


def _written(expr: Expr) -> str:
    """Return an expression as SQL over the stream alone, without its alias."""
    bare = expr.transform(
        lambda node: exp.column(exp.to_identifier(node.name)) if isinstance(node, exp.Column) else node
    )
    return bare.sql("spark")
