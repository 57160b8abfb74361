"""From joins whose conditions are understood to their plans: which columns each keeps, and what leaves it.

Columns are decided from the root downwards, for what a join keeps is what leaves the one beneath it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from watersmeet.errors import PlanError
from watersmeet.event_time import MAX_TIME, Side
from watersmeet.plan.columns import branch_columns, kept_columns, source_columns
from watersmeet.plan.conditions import Conditions
from watersmeet.plan.conjuncts import Conjunct
from watersmeet.plan.feed import Derived, Feed
from watersmeet.plan.flags import SideConditions, flag_of
from watersmeet.plan.join import Draft, bounds_in, looks_above
from watersmeet.plan.keys import bare
from watersmeet.plan.model import BranchPlan, JoinPlan, Key, SidePlan, joined_name
from watersmeet.plan.residual import after_join
from watersmeet.plan.scope import Ref, refs
from watersmeet.plan.tree import Node
from watersmeet.spec.model import Expr, Input


def plan_joins(
    drafts: Sequence[Draft], conditions: Conditions, after: Iterable[Expr]
) -> tuple[tuple[JoinPlan, ...], list[PlanError]]:
    """The plans of all joins of a query, in order of their numbers, and what is wrong with them.

    Args:
        after: expressions over the rows of the last join.
    """
    chain = _Chain(drafts, conditions)
    root = drafts[-1].node.number
    leaving = {joined_name(*ref) for expr in after for ref in refs(expr)}
    chain.leaving[root] = leaving or {_any_column(drafts[-1])}  # rows without a column could not be counted
    for draft in reversed(drafts):
        chain.plan_keys(draft)
    joins = tuple(chain.join(draft) for draft in drafts)
    return joins, chain.errors


def _any_column(draft: Draft) -> str:
    first = draft.scope.inputs[0]
    return joined_name(first.alias, (*first.event_times, first.columns[0].name)[0])


@dataclass
class _Chain:
    drafts: Sequence[Draft]
    conditions: Conditions
    derived: Derived = field(default_factory=Derived)
    leaving: dict[int, set[str]] = field(default_factory=dict)
    """Per join, the joined names of what has to leave it."""
    keys: dict[int, tuple[Key, ...]] = field(default_factory=dict)
    sides: dict[tuple[int, Side], SidePlan] = field(default_factory=dict)
    """Of rows that come from joins."""
    errors: list[PlanError] = field(default_factory=list)

    def plan_keys(self, draft: Draft) -> None:
        """The join's keys and its sides that are joins; says what has to leave those."""
        node = draft.node
        feeds = {side: Feed(node, side, self.derived) for side in Side if isinstance(node.side(side), Node)}
        keys = []
        for number, equality in enumerate(draft.keys):
            columns = {
                side: feeds[side].key(number, equality)
                if side in feeds
                else _own_column(draft, equality.expr(side), number, equality.is_open)
                for side in Side
            }
            left, right = (
                after_join(equality.expr(side)) if side in feeds else bare(equality.expr(side))
                for side in Side
            )
            keys.append(Key(left, right, columns[Side.LEFT], columns[Side.RIGHT], equality.null_safe))
        self.keys[node.number] = tuple(keys)
        for side, feed in feeds.items():
            self._plan_feed(draft, side, feed)

    def _plan_feed(self, draft: Draft, side: Side, feed: Feed) -> None:
        node, keys = draft.node, self.keys[draft.node.number]
        plan = feed.plan(
            [(key.column(side), key.null_safe) for key in keys],
            self.conditions.sides[node.number, side],
            [c for where, c in draft.parts.one_sided if where is side],
            self._never_null(draft, side),
            matchable=draft.matchable,
        )
        self.errors += feed.errors
        inputs = node.inputs(side)
        times = tuple(joined_name(i.alias, column) for i in inputs for column in i.event_times)
        available = [joined_name(i.alias, c.name) for i in inputs for c in i.columns]
        available += [
            joined_name(i.alias, name) for i in inputs for name in self.derived.columns.get(i.alias, ())
        ]
        needed = {*times, *(joined_name(*ref) for ref in _compared_refs(draft, side))}
        needed |= {key.column(side) for key in keys}
        kept = kept_columns(
            [*available, *feed.computed], lambda name: name, needed, self.leaving[node.number]
        )
        self.leaving[plan.join] = feed.needs(plan, kept.kept)
        self.sides[node.number, side] = SidePlan(
            name=f"#{plan.join + 1}",
            inputs=inputs,
            branches=(),
            feed=plan,
            event_times=times,
            kept=kept.kept,
            carried=kept.carried,
            nullable=tuple(
                joined_name(i.alias, c)
                for i in inputs
                if i.alias in node.nullable(side)
                for c in i.event_times
            ),
            padded=node.padded(side),
        )

    def _never_null(self, draft: Draft, side: Side) -> list[Ref]:
        """Columns of a side whose NULL lets its rows match nothing: those of bounds and bands."""
        timed = [ref for part in draft.parts.times for ref in (part.first, part.second)]
        found = dict.fromkeys([*timed, *draft.parts.band_columns])
        return [ref for ref in found if draft.scope.side(ref[0]) is side]

    def join(self, draft: Draft) -> JoinPlan:
        """The join's plan; all joins above have said what they need."""
        node, parts, residual = draft.node, draft.parts, draft.residual
        sides = {side: self.sides.get((node.number, side)) or self._input_side(draft, side) for side in Side}
        filters = [
            (sides[side].title, conjunct.text) for side in Side for conjunct in self._filters(node, side)
        ]
        one_sided = [(sides[side].title, conjunct.text) for side, conjunct in parts.one_sided]
        bounds = bounds_in(draft, self.drafts)
        return JoinPlan(
            number=node.number,
            kind=node.kind,
            left=sides[Side.LEFT],
            right=sides[Side.RIGHT],
            keys=self.keys[node.number],
            bands=draft.bands,
            comparisons=tuple(dict.fromkeys(part.comparison for part in parts.times)),
            rechecks=tuple(dict.fromkeys(part.comparison for part in parts.times if not part.is_exact)),
            slack=min(max((part.span for part in parts.times), default=0), MAX_TIME),
            bounds=bounds,
            looks_above=looks_above(draft, self.drafts, bounds),
            residual=None if residual is None else residual.expr,
            residual_duckdb=None if residual is None else residual.duckdb,
            residual_columns=() if residual is None else residual.columns,
            matchable=draft.matchable,
            one_sided=tuple(one_sided),
            filters=tuple(filters),
            recheck_texts=tuple(dict.fromkeys(p.conjunct.text for p in parts.times if not p.is_exact)),
            warnings=draft.warnings,
            values=draft.values,
        )

    def _filters(self, node: Node, side: Side) -> Sequence[Conjunct]:
        child = node.side(side)
        if isinstance(child, Input):
            return self.conditions.inputs[child.alias]
        return self.conditions.sides[node.number, side]

    def _input_side(self, draft: Draft, side: Side) -> SidePlan:
        node, keys = draft.node, self.keys[draft.node.number]
        i = node.side(side)
        assert isinstance(i, Input)
        conditions = SideConditions(
            filters=tuple(bare(c.expr) for c in self.conditions.inputs[i.alias]),
            one_sided=tuple(bare(c.expr) for where, c in draft.parts.one_sided if where is side),
            not_null=self._not_null(draft, i, side),
            matchable=draft.matchable,
        )
        derived = self.derived.columns.get(i.alias, {})
        names = [column.name for column in i.columns]
        key_columns = [key.column(side) for key in keys]
        needed = {*i.event_times, *(column for _, column in _compared_refs(draft, side)), *key_columns}
        if i.changes:  # a delete names a whole row
            needed |= set(names)
        kept = kept_columns(
            [*names, *derived, *key_columns],
            lambda name: joined_name(i.alias, name),
            needed,
            self.leaving[node.number],
        )
        computed = {key.column(side): key.expr(side) for key in keys} | derived
        branches = []
        for branch in i.branches:
            columns = source_columns(i, branch)
            branches.append(
                BranchPlan(
                    source=branch.source,
                    lags=branch.lags,
                    columns=branch_columns(kept, computed, columns),
                    flag=flag_of(branch, conditions, columns),
                )
            )
        return SidePlan(
            name=i.alias,
            inputs=(i,),
            branches=tuple(branches),
            feed=None,
            event_times=i.event_times,
            kept=kept.kept,
            carried=kept.carried,
            nullable=(),
            padded=node.padded(side),
        )

    def _not_null(self, draft: Draft, i: Input, side: Side) -> tuple[Expr, ...]:
        """Keys and band columns whose NULL lets the row match nothing; an event time is never NULL here."""
        bands = [
            exp.column(exp.to_identifier(column, quoted=True))
            for alias, column in draft.parts.band_columns
            if alias == i.alias
        ]
        keys = [key.expr(side) for key in self.keys[draft.node.number] if not key.null_safe]
        found = {
            e.sql(dialect="spark"): e
            for e in [*keys, *bands]
            if not (isinstance(e, exp.Column) and e.name in i.event_times)
        }
        return tuple(found.values())


def _own_column(draft: Draft, expr: Expr, number: int, is_open: bool) -> str:
    """An input's own column; an event time, which is held as a plain number, gets a second one as a key, and
    so does a column whose type has yet to be found."""
    plain = isinstance(expr, exp.Column) and not draft.scope.is_event_time((expr.table, expr.name))
    return str(expr.name) if plain and not is_open else f"#key{number + 1}"


def _compared_refs(draft: Draft, side: Side) -> list[Ref]:
    """Columns of a side that bands and the residual look at."""
    found = [ref for part in draft.parts.bands for ref in part.refs]
    if draft.residual is not None:
        mentioned = [ref for conjunct in draft.conjuncts for ref in refs(conjunct.expr)]
        found += [ref for ref in mentioned if joined_name(*ref) in draft.residual.columns]
    return [ref for ref in dict.fromkeys(found) if draft.scope.side(ref[0]) is side]
