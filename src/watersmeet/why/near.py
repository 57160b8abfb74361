"""Of a row that met none: the rows of the other input that came nearest, and what kept them from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.event_time import MAX_TIME, Mask
from watersmeet.plan.join_inputs import JoinInputs
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import Branch, Expr, Input, Join, JoinKind
from watersmeet.why.answer import Near
from watersmeet.why.columns import beside, columns_of, mentioned, repeated
from watersmeet.why.conditions import Conditions
from watersmeet.why.judged import InputRows
from watersmeet.why.rows import QueryRows, Spot

WhyNot = Callable[[Spot, Spot], list[str]]
"""Says of two rows what but the condition kept them from meeting."""

Among = Callable[[InputRows], Mask]

Reals = npt.NDArray[np.float64]

NEAREST = 3
"""No more are told."""


def nearest_to(
    rows: QueryRows, other: SidePlan, spot: Spot, why_not: WhyNot, among: Among | None = None
) -> list[Near]:
    """Of the join of two inputs that is all of a query: `nearest` to one row of the one."""
    side = spot.branch.side
    relation = rows.insert.query.relation
    assert isinstance(relation, Join)
    return nearest(
        rows,
        other,
        spot,
        why_not,
        [relation.on, *_where_of_inner(rows, relation)],
        (side.input,),
        lambda exprs: rows.columns(spot, mentioned(exprs, side.name)),
        among,
    )


def nearest(
    rows: QueryRows,
    other: SidePlan,
    spot: Spot,
    why_not: WhyNot,
    condition: Sequence[Expr | None],
    inputs_of_own: tuple[Input, ...],
    own_columns: Callable[[Sequence[Expr]], pa.Table],
    among: Among | None = None,
) -> list[Near]:
    """The rows of the ``other`` input that came nearest to meeting one: with its keys, if there are some,
    then by how many conditions failed, then by their times.

    Args:
        spot: the one, or of joined rows the one that is asked for.
        why_not: says of two rows what but the condition kept them from meeting.
        inputs_of_own, own_columns: the inputs joined in it, and what expressions mention of it.
        among: which rows of a branch are looked at; None: all.
    """
    inputs = JoinInputs((*inputs_of_own, other.input), time_zone=rows.zone)
    conditions = Conditions.of(inputs, condition)
    exprs = [own.expr for own in conditions.conjuncts]
    own = own_columns(exprs)
    candidates: list[tuple[int, int, int, Near]] = []
    for branch in rows.inputs[other.name]:
        count = len(branch.came_to)
        of_input = other.input.branches[branch.number]
        if not count or not isinstance(of_input, Branch):
            continue
        names = mentioned(exprs, other.name)
        there = columns_of(other.input, of_input, names, branch.of.rows, rows.zone)
        pairs = beside(repeated(own, count), there)
        failing = conditions.failing(pairs)
        failed = np.zeros(count, dtype=np.int64)
        others = np.zeros(count, dtype=np.int64)  # of how many keys it has others
        for number, mask in enumerate(failing):
            failed += mask
            others += mask & conditions.is_equality(number)
        apart = _apart(other, spot, branch)
        order = np.lexsort((apart, failed, others))
        if among is not None:
            order = order[among(branch)[order]]
        for row in order[:NEAREST].tolist():
            if failing and failed[row] == len(failing) > 1:
                continue
            near = Spot(branch, row)
            words = [conditions.words(n, pairs.slice(row, 1)) for n, mask in enumerate(failing) if mask[row]]
            words += why_not(spot, near)
            if words:
                rank = (int(others[row]), int(failed[row]), int(apart[row]))
                candidates.append((*rank, Near(near.values, near.place, words)))
    candidates.sort(key=lambda of: of[:3])
    return [near for others, _, _, near in candidates[:NEAREST] if others == candidates[0][0]]


def _where_of_inner(rows: QueryRows, relation: Join) -> list[Expr | None]:
    if relation.kind is not JoinKind.INNER:
        return []
    return [rows.insert.query.where, relation.where]


def _apart(other: SidePlan, spot: Spot, branch: InputRows) -> Reals:
    """How far the rows' first event times are from its own."""
    side = spot.branch.side
    if not (side.event_times and other.event_times):
        return np.zeros(len(branch.came_to), dtype=np.float64)
    column = other.event_times[0]
    times, present = branch.own.times[column], branch.own.present[column]
    own = float(spot.branch.own.times[side.event_times[0]][spot.row])
    apart = np.abs(times.astype(np.float64) - own)
    return apart if present is None else np.where(present, apart, float(MAX_TIME))
