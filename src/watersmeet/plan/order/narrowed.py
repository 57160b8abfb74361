"""Rule: an outer join whose padded rows WHERE drops anyway is an inner one.

It is asked when the query as written would keep rows for ever: ``a LEFT JOIN b USING (k) WHERE b.t BETWEEN
a.t AND a.t + 5`` has its bounds in WHERE, which holds for no padded row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.plan.conditions.conjuncts import split
from watersmeet.spec.model import Expr, Join, JoinKind, Query, Relation, visible_inputs
from watersmeet.spec.nulls import is_not_true_where

_WITHOUT_PADS_OF_LEFT = {JoinKind.LEFT: JoinKind.INNER, JoinKind.FULL: JoinKind.RIGHT}
_WITHOUT_PADS_OF_RIGHT = {JoinKind.RIGHT: JoinKind.INNER, JoinKind.FULL: JoinKind.LEFT}


def narrowed(query: Query) -> Query | None:
    """``query`` with its joins as narrow as WHERE makes them; None: they are so already."""
    if query.where is None or query.aggregation is not None:
        return None
    relation = _narrowed(query.relation, _conjuncts(query.where))
    return None if relation == query.relation else replace(query, relation=relation)


def _narrowed(relation: Relation, holding: Sequence[Expr]) -> Relation:
    """Args: holding: what is TRUE of every row that anything above makes of the relation's."""
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
    left = _narrowed(relation.left, holding)
    # Of ASOF, other rows on the right may mean another nearest one.
    right = relation.right if kind.is_asof or kind.hides_right else _narrowed(relation.right, holding)
    return replace(relation, left=left, right=right, kind=kind)


def _is_sure(side: Relation, holding: Sequence[Expr]) -> bool:
    """Whether no row in which ``side`` is padded with NULLs is left."""
    aliases = {i.alias for i in visible_inputs(side)}

    def is_null(column: exp.Column) -> bool:
        return column.table in aliases

    return any(is_not_true_where(condition, is_null) for condition in holding)


def _conjuncts(condition: Expr) -> list[Expr]:
    return [conjunct.expr for conjunct in split(condition)]
