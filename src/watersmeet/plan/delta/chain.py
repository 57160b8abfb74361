"""The nodes of a delta join within the query's chain.

Each path is planned as a chain of its own; then all chains are combined.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import cast

from sqlglot import exp

from watersmeet.event_time import Side
from watersmeet.plan.conditions.keys import Equality
from watersmeet.plan.delta.nodes import PlannedPath, Roles, delta_nodes
from watersmeet.plan.delta.paths import DeltaJoin, Equalities
from watersmeet.plan.model.nodes import JoinPlan, NodePlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.nodes.build_plans import ClassifiedQuery, NodeChain
from watersmeet.plan.nodes.input_side import InputSide
from watersmeet.plan.nodes.join import Draft
from watersmeet.plan.query_inputs import refs
from watersmeet.spec.model import Input


def plan_delta(chain: NodeChain, delta: DeltaJoin, leaving: Collection[str]) -> list[NodePlan]:
    """Plan the nodes of the delta join, and append errors to the chain."""
    roles: Roles = {}
    planned = []
    for path in delta.paths:
        query = ClassifiedQuery(path.tree, path.conditions, path.drafts, {})
        of_path = _PathChain(query, chain.of_delta, derived=chain.derived, roles=roles)
        nodes = sorted(of_path.plan(leaving), key=lambda node: node.number)
        chain.errors += of_path.errors
        joins = [cast(JoinPlan, node) for node in nodes[1:]]
        asked = zip(joins, path.drafts[1:], path.found_by, strict=True)
        equalities = [_equalities(join, draft, by) for join, draft, by in asked]
        planned.append(PlannedPath(path, tuple(map(_keys_in_order, joins)), tuple(equalities)))
    nodes, errors = delta_nodes(delta, planned, roles, chain.stage_of)
    chain.errors += errors
    return nodes


def _keys_in_order(join: JoinPlan) -> JoinPlan:
    """Sort the keys of a join so that every path hashes by them in one order."""
    return replace(join, keys=tuple(sorted(join.keys, key=lambda key: key.columns.right)))


def _equalities(join: JoinPlan, draft: Draft, found_by: frozenset[str]) -> Equalities:
    """Return the equalities by which a look-up may find rows, with their source inputs."""
    parts = [
        (frozenset(alias for alias, _ in refs(equality.left)), key.column(Side.RIGHT))
        for key, equality in zip(join.keys, draft.keys, strict=True)
    ]
    usable = [part for part in parts if part[0] <= found_by] or parts
    return Equalities(join.right.name, tuple(sorted(usable, key=lambda part: part[1])))


@dataclass
class _PathChain(NodeChain):
    """One path. Of inputs it only says what it needs of them, in ``roles``."""

    roles: Roles = field(default_factory=dict)

    def own_column(self, draft: Draft, side: Side, number: int, equality: Equality) -> str:
        """Return the column of one side of an equality.

        A computed column has one name in all paths.
        """
        expr, i = equality.expr(side), draft.node.side(side)
        assert isinstance(i, Input)
        if isinstance(expr, exp.Column) and not draft.join_inputs.is_event_time((expr.table, expr.name)):
            return str(expr.name)
        return self.derived.column(i.alias, expr)

    def input_side(self, draft: Draft, side: Side) -> SidePlan:
        i = draft.node.side(side)
        assert isinstance(i, Input)
        role = InputSide(
            draft=draft,
            side=side,
            keys=self.keys[draft.node.number],
            filters=self.conditions.inputs[i.alias],
            derived=self.derived.columns.setdefault(i.alias, {}),
            leaving=self.leaving[draft.node.number],
        )
        self.roles.setdefault(i.alias, []).append(role)
        kept = role.kept()
        return SidePlan(
            name=i.alias,
            inputs=(i,),
            branches=(),
            feed=None,
            event_times=i.event_times,
            kept=kept.kept,
            carried=kept.carried,
            nullable=(),
            padded=False,
            not_null=role.not_null(),
        )
