"""Rule: inner joins that stand together are put into the order that is expected to keep the least state.

The query's own order is kept unless another one is better for a reason that is there before anything runs:

* some join of it has no condition of its own over both its sides (``FROM a, b, c``, conditions between a and
  c, and c and b): it would make every pair that derived bounds let meet, for a later join to throw away;
* all streams declare ``rows_per_second``, and the forecast for another order is smaller.

All other joins (outer, SEMI, ANTI, ASOF, with a table as of the tick) keep their place: each is one part
among the inner joins around it. The joins of a stage (a branch of a UNION ALL, what windows are over) are put
in order for themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TypeGuard

from watersmeet.plan.conditions.conjuncts import join_all, written
from watersmeet.plan.join_inputs import refs
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.order.forecast import state_bytes
from watersmeet.spec.model import (
    Expr,
    Input,
    Join,
    JoinKind,
    Query,
    Relation,
    StageBranch,
    inputs_of,
    with_inputs,
)

MOST_PARTS = 5
"""Inner joins of more parts keep the query's order: there are too many others to plan them all."""


@dataclass(frozen=True)
class _Choice:
    """A query, its plan, and the orders in it that are not as they were written."""

    query: Query
    plan: QueryPlan
    orders: tuple[tuple[str, ...], ...] = ()


def in_best_order(plan: QueryPlan, query: Query, planned: Callable[[Query], QueryPlan | None]) -> QueryPlan:
    """``plan`` (of ``query``), or the plan of the query in a better order.

    Args:
        planned: the plan of a query, None if it cannot be run.
    """
    choice = _Choice(query, plan)
    for stage in query.every:
        choice = _ordered(choice, _names(stage), planned)
    return replace(choice.plan, reordered=choice.orders)


def _ordered(choice: _Choice, names: frozenset[str], planned: Callable[[Query], QueryPlan | None]) -> _Choice:
    """With the joins of the stage of those inputs in the best order."""
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
            asked = _with_relation(base, names, _replaced(own.relation, top, other))
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
    """Its inputs, by which a stage is known: no two inputs have one name."""
    return frozenset(i.alias for i in query.inputs)


def _stage(query: Query, names: frozenset[str]) -> Query:
    return next(stage for stage in query.every if _names(stage) == names)


def _with_relation(query: Query, names: frozenset[str], relation: Relation) -> Query:
    """The query with another relation in the stage of those inputs."""
    if _names(query) == names:
        return replace(query, relation=relation)

    def with_relation(i: Input) -> Input:
        return with_stages_changed(i, lambda stage: _with_relation(stage, names, relation))

    return replace(query, relation=with_inputs(query.relation, with_relation))


def with_stages_changed(i: Input, change: Callable[[Query], Query]) -> Input:
    """The input, each stage of it changed."""
    if not i.stages:
        return i
    branches = (
        replace(branch, stage=change(branch.stage)) if isinstance(branch, StageBranch) else branch
        for branch in i.branches
    )
    return replace(i, branches=tuple(branches))


def _clusters(relation: Relation) -> Iterator[Join]:
    """The topmost of inner joins that stand together, three parts of them or more."""
    if isinstance(relation, Input):
        return
    parts = parts_of(relation)
    if is_inner(relation) and 3 <= len(parts) <= MOST_PARTS:
        yield relation
    for part in parts if is_inner(relation) else (relation.left, relation.right):
        yield from _clusters(part)


def is_inner(relation: Relation) -> TypeGuard[Join]:
    return isinstance(relation, Join) and relation.kind is JoinKind.INNER and not relation.is_lookup


def parts_of(relation: Relation) -> list[Relation]:
    """What the inner joins at the top join, in the query's order."""
    if not is_inner(relation):
        return [relation]
    return parts_of(relation.left) + parts_of(relation.right)


def _conditions(query: Query) -> list[Expr]:
    def of_relation(relation: Relation) -> list[Expr]:
        if isinstance(relation, Input):
            return []
        own = [*written(relation.on), *written(relation.where)]
        return of_relation(relation.left) + of_relation(relation.right) + own

    return of_relation(query.relation) + written(query.where)


def _orders(top: Join, links: Sequence[frozenset[str]]) -> Iterator[Join]:
    """The inner joins in every order in which each has a condition over both its sides: left-deep; the first
    two parts are not swapped, for that makes no difference."""
    parts, conditions = parts_of(top), own_conditions(top)
    for order in permutations(range(len(parts))):
        moved = [parts[n] for n in order]
        if order[0] < order[1]:
            other = _left_deep(moved, conditions)
            if other != top and _is_linked(other, links) and not _broadcasts_both(other):
                yield other


def own_conditions(relation: Relation) -> list[Expr]:
    """Those of the inner joins at the top."""
    if not is_inner(relation):
        return []
    own = [*written(relation.on), *written(relation.where)]
    return own_conditions(relation.left) + own_conditions(relation.right) + own


def _is_linked(relation: Relation, links: Sequence[frozenset[str]]) -> bool:
    """Whether each of the inner joins at the top has a condition over both its sides."""
    if not is_inner(relation):
        return True
    left, right = (frozenset(i.alias for i in inputs_of(side)) for side in (relation.left, relation.right))
    own = any(link <= left | right and link & left and link & right for link in links)
    return own and _is_linked(relation.left, links) and _is_linked(relation.right, links)


def _broadcasts_both(joined: Join) -> bool:
    """Whether both sides of the first join are to be broadcast: of those above, one is made of joins."""
    first = joined
    while isinstance(first.left, Join) and is_inner(first.left):
        first = first.left
    return all(isinstance(side, Input) and side.broadcast for side in (first.left, first.right))


def _left_deep(parts: Sequence[Relation], conditions: Sequence[Expr]) -> Join:
    joined = Join(parts[0], parts[1], JoinKind.INNER, None)
    for part in parts[2:]:
        joined = Join(joined, part, JoinKind.INNER, None)
    return replace(joined, where=join_all(list(conditions)))  # from where each sinks to its join


def _replaced(relation: Relation, old: Join, new: Join) -> Relation:
    if relation is old:
        return new
    if isinstance(relation, Input):
        return relation
    left, right = _replaced(relation.left, old, new), _replaced(relation.right, old, new)
    return replace(relation, left=left, right=right)
