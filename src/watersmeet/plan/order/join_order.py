"""Choose the order of inner joins; turn outer joins into inner ones where padded rows are dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TypeGuard

from sqlglot import exp

from watersmeet.plan.conditions.conjuncts import join_all, split, split_as_written
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.order.forecast import state_bytes
from watersmeet.plan.query_inputs import refs
from watersmeet.spec.model import (
    Expr,
    Input,
    Join,
    JoinKind,
    Query,
    Relation,
    StageBranch,
    inputs_of,
    visible_inputs,
    with_inputs,
)
from watersmeet.spec.nulls import is_not_true_where

# Rule: an outer join whose padded rows WHERE drops anyway is an inner one.
#
# It is asked when the query as written would keep rows for ever: ``a LEFT JOIN b USING (k) WHERE b.t
# BETWEEN a.t AND a.t + 5`` has its bounds in WHERE, which holds for no padded row.

_WITHOUT_PADS_OF_LEFT = {JoinKind.LEFT: JoinKind.INNER, JoinKind.FULL: JoinKind.RIGHT}
_WITHOUT_PADS_OF_RIGHT = {JoinKind.RIGHT: JoinKind.INNER, JoinKind.FULL: JoinKind.LEFT}


def narrow_joins(query: Query) -> Query | None:
    """Narrow the outer joins of ``query`` where WHERE drops their padded rows.

    Returns:
        None if WHERE narrows no join.
    """
    if query.where is None or query.aggregation is not None:
        return None
    relation = _narrow_relation(query.relation, _conjuncts(query.where))
    return None if relation == query.relation else replace(query, relation=relation)


def _narrow_relation(relation: Relation, holding: Sequence[Expr]) -> Relation:
    """Narrow the outer joins of a relation.

    Args:
        holding: Conditions that are TRUE for every row that anything above makes of the relation's
            rows.
    """
    if not isinstance(relation, Join):
        return relation
    if relation.where is not None:
        holding = [*holding, *_conjuncts(relation.where)]
    kind = relation.kind
    if _is_sure(relation.right, holding):
        kind = _WITHOUT_PADS_OF_LEFT.get(kind, kind)
    if _is_sure(relation.left, holding):
        kind = _WITHOUT_PADS_OF_RIGHT.get(kind, kind)
    if kind is JoinKind.INNER and relation.on is not None:
        holding = [*holding, *_conjuncts(relation.on)]
    left = _narrow_relation(relation.left, holding)
    # Of ASOF, other rows on the right may mean another nearest one.
    right = relation.right if kind.is_asof or kind.hides_right else _narrow_relation(relation.right, holding)
    return replace(relation, left=left, right=right, kind=kind)


def _is_sure(side: Relation, holding: Sequence[Expr]) -> bool:
    """Return True if the conditions drop every row in which ``side`` is padded with NULLs."""
    aliases = {i.alias for i in visible_inputs(side)}

    def is_null(column: exp.Column) -> bool:
        return column.table in aliases

    return any(is_not_true_where(condition, is_null) for condition in holding)


def _conjuncts(condition: Expr) -> list[Expr]:
    return [conjunct.expr for conjunct in split(condition)]


# Rule: inner joins that stand together are put into the order that is expected to keep the least state.
#
# The query's own order is kept unless another one is better for a reason that is there before anything
# runs:
#
# * some join of it has no condition of its own over both its sides (``FROM a, b, c``, conditions between
#   a and
#   c, and c and b): it would make every pair that derived bounds let meet, for a later join to throw
#     away;
# * all streams declare ``rows_per_second``, and the forecast for another order is smaller.
#
# All other joins (outer, SEMI, ANTI, ASOF, with a table as of the tick) keep their place: each is one
# part among the inner joins around it. The joins of a stage (a branch of a UNION ALL, what windows are
# over) are put in order for themselves.

MAX_ORDERED_PARTS = 5
"""Inner joins of more parts keep the query's order: there are too many others to plan them all."""


@dataclass(frozen=True)
class _Choice:
    """A query, its plan, and the orders in it that are not as they were written."""

    query: Query
    plan: QueryPlan
    orders: tuple[tuple[str, ...], ...] = ()


def choose_join_order(
    plan: QueryPlan, query: Query, planned: Callable[[Query], QueryPlan | None]
) -> QueryPlan:
    """Return ``plan`` (of ``query``), or the plan of the query in a better order.

    Args:
        planned: Plans a query, or returns None if the query cannot run.
    """
    choice = _Choice(query, plan)
    for stage in query.every:
        choice = _improve_order(choice, _names(stage), planned)
    return replace(choice.plan, reordered=choice.orders)


def _improve_order(
    choice: _Choice, names: frozenset[str], planned: Callable[[Query], QueryPlan | None]
) -> _Choice:
    """Put the joins of the stage with these inputs in the best order."""
    best, plan = choice.query, choice.plan
    for cluster in range(len(list(_clusters(_stage(best, names).relation)))):
        base = best
        own = _stage(base, names)
        top = list(_clusters(own.relation))[cluster]
        links = [frozenset(alias for alias, _ in refs(c)) for c in _conditions(own)]
        connected = _is_linked(top, links)
        cost = state_bytes(plan, names) if connected else None
        for other in _orders(top, links):
            if connected and cost is None:
                break  # nothing says which is better
            asked = _with_relation(base, names, _replace_join(own.relation, top, other))
            candidate = planned(asked)
            expected = None if candidate is None else state_bytes(candidate, names)
            if candidate is None or (connected and (cost is None or expected is None or expected >= cost)):
                continue
            best, plan, connected, cost = asked, candidate, True, expected
    if best is choice.query:
        return choice
    order = tuple(i.alias for i in _stage(best, names).inputs)
    return _Choice(best, plan, (*choice.orders, order))


def _names(query: Query) -> frozenset[str]:
    """Return the aliases of a query's inputs, which identify a stage.

    No two inputs have the same name.
    """
    return frozenset(i.alias for i in query.inputs)


def _stage(query: Query, names: frozenset[str]) -> Query:
    return next(stage for stage in query.every if _names(stage) == names)


def _with_relation(query: Query, names: frozenset[str], relation: Relation) -> Query:
    """Return the query with another relation in the stage with these inputs."""
    if _names(query) == names:
        return replace(query, relation=relation)

    def with_relation(i: Input) -> Input:
        return with_stages_changed(i, lambda stage: _with_relation(stage, names, relation))

    return replace(query, relation=with_inputs(query.relation, with_relation))


def with_stages_changed(i: Input, change: Callable[[Query], Query]) -> Input:
    """Return the input with ``change`` applied to each of its stages."""
    if not i.stages:
        return i
    branches = (
        replace(branch, stage=change(branch.stage)) if isinstance(branch, StageBranch) else branch
        for branch in i.branches
    )
    return replace(i, branches=tuple(branches))


def _clusters(relation: Relation) -> Iterator[Join]:
    """Yield the topmost join of each group of adjacent inner joins.

    A group joins at least three parts, and at most MAX_ORDERED_PARTS.
    """
    if isinstance(relation, Input):
        return
    parts = parts_of(relation)
    if is_inner(relation) and 3 <= len(parts) <= MAX_ORDERED_PARTS:
        yield relation
    for part in parts if is_inner(relation) else (relation.left, relation.right):
        yield from _clusters(part)


def is_inner(relation: Relation) -> TypeGuard[Join]:
    return isinstance(relation, Join) and relation.kind is JoinKind.INNER and not relation.is_lookup


def parts_of(relation: Relation) -> list[Relation]:
    """Return the relations that the inner joins at the top join, in the query's order."""
    if not is_inner(relation):
        return [relation]
    return parts_of(relation.left) + parts_of(relation.right)


def _conditions(query: Query) -> list[Expr]:
    def of_relation(relation: Relation) -> list[Expr]:
        if isinstance(relation, Input):
            return []
        own = [*split_as_written(relation.on), *split_as_written(relation.where)]
        return of_relation(relation.left) + of_relation(relation.right) + own

    return of_relation(query.relation) + split_as_written(query.where)


def _orders(top: Join, links: Sequence[frozenset[str]]) -> Iterator[Join]:
    """Yield the inner joins in every other left-deep order.

    Each join has a condition over both its sides. The first two parts are not swapped, because that
    makes no difference.
    """
    parts, conditions = parts_of(top), own_conditions(top)
    for order in permutations(range(len(parts))):
        moved = [parts[n] for n in order]
        if order[0] < order[1]:
            other = _left_deep(moved, conditions)
            if other != top and _is_linked(other, links) and not _broadcasts_both(other):
                yield other


def own_conditions(relation: Relation) -> list[Expr]:
    """Return the conditions of the inner joins at the top."""
    if not is_inner(relation):
        return []
    own = [*split_as_written(relation.on), *split_as_written(relation.where)]
    return own_conditions(relation.left) + own_conditions(relation.right) + own


def _is_linked(relation: Relation, links: Sequence[frozenset[str]]) -> bool:
    """Return True if each of the inner joins at the top has a condition over both its sides."""
    if not is_inner(relation):
        return True
    left, right = (frozenset(i.alias for i in inputs_of(side)) for side in (relation.left, relation.right))
    own = any(link <= left | right and link & left and link & right for link in links)
    return own and _is_linked(relation.left, links) and _is_linked(relation.right, links)


def _broadcasts_both(joined: Join) -> bool:
    """Return True if both sides of the first join have a BROADCAST hint.

    Each join above it has a side that is made of joins, so it cannot have two hints.
    """
    first = joined
    while isinstance(first.left, Join) and is_inner(first.left):
        first = first.left
    return all(isinstance(side, Input) and side.broadcast for side in (first.left, first.right))


def _left_deep(parts: Sequence[Relation], conditions: Sequence[Expr]) -> Join:
    joined = Join(parts[0], parts[1], JoinKind.INNER, None)
    for part in parts[2:]:
        joined = Join(joined, part, JoinKind.INNER, None)
    return replace(joined, where=join_all(list(conditions)))  # from where each sinks to its join


def _replace_join(relation: Relation, old: Join, new: Join) -> Relation:
    if relation is old:
        return new
    if isinstance(relation, Input):
        return relation
    left, right = _replace_join(relation.left, old, new), _replace_join(relation.right, old, new)
    return replace(relation, left=left, right=right)
