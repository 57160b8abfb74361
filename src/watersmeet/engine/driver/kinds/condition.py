"""What kinds of node have in common whose rows meet others by a condition: the condition as tasks have it,
and how rows are held to be looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from watersmeet.engine.driver.kinds.base import Held
from watersmeet.engine.driver.kinds.columns import joined
from watersmeet.engine.messages.shapes import SideShape
from watersmeet.errors import EngineError
from watersmeet.event_time import Side
from watersmeet.expressions.evaluate import Condition as ExactCondition
from watersmeet.expressions.physical_types import fits
from watersmeet.expressions.trees import columns_of, tree_of
from watersmeet.kernel.hashing import family
from watersmeet.kernel.joined import JoinedColumn
from watersmeet.kernel.match.elsewhere import Elsewhere
from watersmeet.kernel.match.pairs import Condition, PairTest
from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.model.conditions import Bands
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import MatchPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import Expr, JoinKind
from watersmeet.types.arrow import sql_name


def held_to_match(query: QueryPlan, node: MatchPlan, plan: SidePlan) -> Held:
    """How rows of a side, or table, are held: by keys, and sorted by what bands bound."""
    side = Side.LEFT if plan is node.left else Side.RIGHT
    evicted = {bound.evicted for bound in node.bounds}
    releasing = tuple(c for c in plan.event_times if plan.watermark_key(c) in evicted)
    leaves_early = node.changes or (node.kind is JoinKind.SEMI and side is Side.LEFT)
    return Held(
        keys=tuple(key.column(side) for key in node.keys),
        indexes=node.indexes(side),
        by_value=node.by_value,
        releasing=releasing,
        watched=tuple(c for c in plan.event_times if c not in releasing) if leaves_early else (),
    )


def condition_of(query: QueryPlan, node: MatchPlan, shapes: Mapping[Side, SideShape]) -> Condition:
    """The condition, by the types that the engine found.

    Raises:
        EngineError: the two sides of a key have types that are never equal.
    """
    _check_keys(query, node, shapes)
    columns = {
        node.side(side).joined(column): joined(side, node.side(side), shape, column)
        for side, shape in shapes.items()
        for column in shape.schema.names
    }
    careful = node.careful
    residual = _residual(node.residual, node.residual_exact, columns)
    if careful is None:
        return _with(node, node.values, residual, [columns[name] for name in node.residual_columns])
    asked = _residual(careful.residual, careful.exact, columns)
    own, held = node.residual_columns, [columns[name] for name in careful.columns]
    if isinstance(residual, Elsewhere) or isinstance(asked, Elsewhere):  # Spark is asked one condition
        residual = asked = Elsewhere(_text(careful.residual))
        own = careful.columns
    return replace(
        _with(node, node.values, residual, [columns[name] for name in own]),
        sums=careful.sums,
        careful=_with(node, careful.values, asked, held),
    )


def _with(
    node: MatchPlan, values: Bands, residual: PairTest | None, columns: Sequence[JoinedColumn]
) -> Condition:
    """The node's keys and time bounds, with bands over other values and a residual."""
    return Condition(
        keys=tuple(key.columns for key in node.keys),
        bands=(*node.bands, *values.exact),
        comparisons=(*node.comparisons, *values.comparisons),
        rechecks=(*node.rechecks, *values.rechecks),
        slack=max(node.slack, values.slack),
        residual=residual,
        residual_columns=tuple(columns),
        reals=values.real,
    )


def _check_keys(query: QueryPlan, node: MatchPlan, shapes: Mapping[Side, SideShape]) -> None:
    for key in node.keys:
        kinds = [shapes[side].schema.field(key.column(side)).type for side in Side]
        if family(kinds[0]) != family(kinds[1]):
            raise EngineError(
                f'"{query.name}": the join key {key.columns.left} = {key.columns.right} compares'
                f" {sql_name(kinds[0])} with {sql_name(kinds[1])}",
                code="wrong-types",
                hint="cast one column to the type of the other: CAST(… AS type)",
            )


def _residual(
    condition: Expr | None, tree: tuple[Any, ...] | None, columns: Mapping[str, JoinedColumn]
) -> PairTest | None:
    """Tasks compute it where the columns have the types that it was planned with; else they ask."""
    if condition is None:
        return None
    if tree is None or not all(fits(columns[name].type, type_) for name, type_ in columns_of(tree).items()):
        return Elsewhere(_text(condition))
    return ExactCondition(tree_of(tree), _text(condition))


def _text(condition: Expr) -> str:
    return text_of(condition).replace("`", "")
