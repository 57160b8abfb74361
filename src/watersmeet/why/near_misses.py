"""Find near misses of a row that matched nothing, and the reason why each did not match.

Also find the WHERE conditions that filtered out a joined row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import EngineError
from watersmeet.event_time import MAX_TIME, Mask
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.query_inputs import JoinInputs, refs
from watersmeet.spec.model import Branch, Expr, Join, JoinKind
from watersmeet.why.answer import Near
from watersmeet.why.expressions import (
    Conditions,
    columns_of,
    join_columns,
    mentioned_columns,
    repeat_row,
)
from watersmeet.why.replay import NOBODY
from watersmeet.why.rows import InputRows, QueryRows, Spot, joins_of

WhyNot = Callable[[Spot, Spot], list[str]]
"""Says of two rows what but the condition kept them from meeting."""

MAX_NEAR = 3

JoinedRow = Mapping[str, int]
"""Per alias the number of a row, or `NOBODY`."""


def near_misses(
    rows: QueryRows,
    join: Join,
    other: str,
    own: JoinedRow,
    spot: Spot,
    why_not: WhyNot,
    among: Callable[[InputRows], Mask] | None = None,
) -> list[Near]:
    """Return the rows of the ``other`` input that came nearest to matching a joined row.

    Rows with equal keys come first, if there are any; then the rows are ordered by the number of failed
    conditions and by their times. The result is empty if only Spark can compute a condition.

    Args:
        spot: the requested row, which is part of the joined one.
        why_not: explains what other than the condition prevented two rows from matching.
        among: selects the rows of a branch to search; None: all.
    """
    condition, query, names = [join.on], rows.insert.query, {*own, other}
    if all(one.kind is JoinKind.INNER for one in joins_of(query.relation)):
        where = Conditions.of(JoinInputs(()), [query.where]).conjuncts
        condition += [c.expr for c in where if {alias for alias, _ in refs(c.expr)} <= names]
        condition.append(join.where)
    sides = {side.name: side for side in rows.query.sides}
    inputs = tuple(sides[alias].input for alias in (*own, other))
    conditions = Conditions.of(JoinInputs(inputs, time_zone=rows.zone), condition)
    try:
        return _nearest(rows, conditions, sides[other], own, spot, why_not, among)
    except EngineError:
        return []


def _nearest(
    rows: QueryRows,
    conditions: Conditions,
    other: SidePlan,
    own: JoinedRow,
    spot: Spot,
    why_not: WhyNot,
    among: Callable[[InputRows], Mask] | None,
) -> list[Near]:
    exprs = [conjunct.expr for conjunct in conditions.conjuncts]
    columns = joined_columns(rows, own, exprs)
    candidates: list[tuple[int, int, int, Near]] = []
    for branch in rows.inputs[other.name]:
        count, of_input = len(branch.came_to), other.input.branches[branch.number]
        if not count or not isinstance(of_input, Branch):
            continue
        there = columns_of(
            other.input, of_input, mentioned_columns(exprs, other.name), branch.of.rows, rows.zone
        )
        pairs = join_columns(repeat_row(columns, count), there)
        failing = conditions.failing(pairs)
        failed, others = np.zeros((2, count), dtype=np.int64)  # of these it has other keys
        for number, mask in enumerate(failing):
            failed += mask
            others += mask & conditions.is_equality(number)
        apart = _apart(other, spot, branch)
        order = np.lexsort((apart, failed, others))
        if among is not None:
            order = order[among(branch)[order]]
        for row in order[:MAX_NEAR].tolist():
            if failing and failed[row] == len(failing) > 1:
                continue
            near = Spot(branch, row)
            words = [conditions.words(n, pairs.slice(row, 1)) for n, mask in enumerate(failing) if mask[row]]
            words += why_not(spot, near)
            if words:
                rank = (int(others[row]), int(failed[row]), int(apart[row]))
                candidates.append((*rank, Near(near.values, near.place, words)))
    candidates.sort(key=lambda of: of[:3])
    return [near for others, _, _, near in candidates[:MAX_NEAR] if others == candidates[0][0]]


def failing_where(rows: QueryRows, own: JoinedRow) -> str | None:
    """Return the conditions of WHERE that a joined row does not meet; None: it meets all."""
    where = rows.insert.query.where
    if where is None:
        return None
    inputs = tuple(side.input for side in rows.query.sides if side.name in own)
    conditions = Conditions.of(JoinInputs(inputs, time_zone=rows.zone), [where])
    table = joined_columns(rows, own, [conjunct.expr for conjunct in conditions.conjuncts])
    return "; ".join(conditions.failing_words(table)) or None


def joined_columns(rows: QueryRows, own: JoinedRow, exprs: Sequence[Expr]) -> pa.Table:
    """Compute the columns that expressions mention, for one joined row."""
    table = pa.table({"": pa.nulls(1)})
    for side in rows.query.sides:
        if side.name in own:
            names, number = mentioned_columns(exprs, side.name), own[side.name]
            is_null = number == NOBODY
            more = rows.nulls(side, names) if is_null else rows.columns(rows.spot(side.name, number), names)
            table = join_columns(table, more)
    return table


def _apart(other: SidePlan, spot: Spot, branch: InputRows) -> npt.NDArray[np.float64]:
    """Compute how far the rows' first event times are from the row's own."""
    side = spot.branch.side
    if not (side.event_times and other.event_times):
        return np.zeros(len(branch.came_to), dtype=np.float64)
    column = other.event_times[0]
    times, present = branch.own.times[column], branch.own.present[column]
    own = float(spot.branch.own.times[side.event_times[0]][spot.row])
    apart = np.abs(times.astype(np.float64) - own)
    return apart if present is None else np.where(present, apart, float(MAX_TIME))
