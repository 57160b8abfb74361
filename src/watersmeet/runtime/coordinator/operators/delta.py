"""Delta joins: what is kept of their inputs and for how long, and what each look-up sees of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from watersmeet.errors import EngineError
from watersmeet.event_time import Side, Watermark
from watersmeet.kernel.gather import JoinedColumn
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import Arranged, ArrangePlan, DeltaLookup, DeltaPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.nodes.retention import limits
from watersmeet.runtime.coordinator.operators.base import (
    ArrangedTick,
    CommonFields,
    NodeDriver,
    NodeInputs,
    NodeLimits,
    Outgoing,
    SideLayout,
    build_joined_column,
    list_joined_columns,
)
from watersmeet.runtime.coordinator.operators.joins import build_pair_condition
from watersmeet.runtime.messages.shapes import (
    ArrangeShape,
    DeltaShape,
    LookupShape,
    PassShape,
    SideShape,
)
from watersmeet.runtime.messages.work import LookupView
from watersmeet.watermark.tracker import output_watermarks


class ArrangeDriver(NodeDriver[ArrangePlan, ArrangeShape]):
    carries_changes = True

    def build_shape(
        self, query: QueryPlan, node: ArrangePlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> ArrangeShape:
        common["changelog"] = True
        leaving = []
        for plan, side in zip(node.leaving, sides, strict=False):
            columns = tuple(build_joined_column(Side.LEFT, plan, side, name) for name in side.schema.names)
            own = common.copy()
            own["sides"], own["columns"] = (side,), columns
            leaving.append(PassShape(**own))
        common["columns"] = tuple(column for shape in leaving for column in shape.columns)
        return ArrangeShape(**common, changes=tuple(leaving), final=node.has_tables)

    def leaving(self, node: ArrangePlan, sides: tuple[SideShape, ...]) -> tuple[JoinedColumn, ...]:
        return ()

    def costs_by_new_rows(self, shape: ArrangeShape) -> bool:
        return True

    def held(self, query: QueryPlan, node: ArrangePlan, side: SidePlan) -> SideLayout:
        place = [own.name for own in node.sides].index(side.name)
        return build_arrangement_layout(node.arranged[place], side, {bound.evicted for bound in node.bounds})

    def decide(self, node: ArrangePlan, given: NodeInputs) -> NodeLimits:
        """Set each eviction bound to the least of the bounds that the other streams set.

        A row is released when no other stream can bring a match for it.
        """
        least: dict[str, Watermark] = {}
        for retention in node.retentions:
            by_other = [limits(other, given.watermarks, given.lateness) for other in retention.others]
            for key in set.intersection(*(set(own) for own in by_other)) if by_other else ():
                least[key] = min(own[key] for own in by_other)
        return NodeLimits(least, closed=_find_closed_paths(node, given))

    def outputs(self, node: ArrangePlan, given: Outgoing) -> dict[str, Watermark]:
        return output_watermarks(
            given.watermarks, given.limits, given.least, given.emitted, tight=given.tight
        )


class DeltaDriver(NodeDriver[DeltaPlan, DeltaShape]):
    drops_new = True
    carries_changes = True

    def build_shape(
        self, query: QueryPlan, node: DeltaPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> DeltaShape:
        met = sides[len(node.sides) :]
        lookups = tuple(
            _build_lookup_shape(query, lookup, coming, table, common)
            for lookup, coming, table in zip(node.lookups, sides, met, strict=False)
        )
        leaving = {column.name: column for lookup in lookups for column in lookup.columns}
        common["columns"] = tuple(leaving.values())
        if not node.is_last:
            common["changelog"] = True
        return DeltaShape(
            **common,
            lookups=lookups,
            by=tuple(lookup.by for lookup in node.lookups),
            times=tuple(key for key in node.keys if key in leaving) if node.is_last else (),
            is_last=node.is_last,
        )

    def leaving(self, node: DeltaPlan, sides: tuple[SideShape, ...]) -> tuple[JoinedColumn, ...]:
        return ()

    def costs_by_new_rows(self, shape: DeltaShape) -> bool:
        return True

    def held(self, query: QueryPlan, node: DeltaPlan, side: SidePlan) -> SideLayout:
        for number, own in enumerate(node.sides):
            if own is side:
                join = node.lookups[number].join
                equal = {key.column(Side.RIGHT): key.column(Side.LEFT) for key in reversed(join.keys)}
                lookup = node.lookups[number]
                keys = tuple(equal[column] for column in node.met_arranged[number].keys_of(lookup.by))
                return SideLayout(keys=keys, indexes=join.indexes(Side.LEFT))
        place = next(number for number, met in enumerate(node.met) if met is side)
        return build_arrangement_layout(node.met_arranged[place], side, node.releasing)

    def seen(self, node: DeltaPlan, arranged: Callable[[int], ArrangedTick]) -> list[LookupView]:
        tick = arranged(node.arrangements)
        return [tick.seen(lookup.place, after=lookup.sees_tick) for lookup in node.lookups]


def build_arrangement_layout(
    arranged: Arranged, side: SidePlan, evicted: frozenset[str] | set[str]
) -> SideLayout:
    """Build the layout of an arrangement, for the side that retains it and for its look-ups."""
    releasing = tuple(column for column in side.event_times if side.watermark_key(column) in evicted)
    return SideLayout(
        keys=arranged.keys,
        indexes=arranged.indexes,
        releasing=releasing,
        watched=tuple(column for column in side.event_times if column not in releasing),
        hides_released=True,
        found_by=tuple(other.keys for other in arranged.others),
        counts_keys=True,
    )


def _find_closed_paths(node: ArrangePlan, given: NodeInputs) -> tuple[int, ...]:
    """Find the paths that produce no rows in the tick, whatever their order.

    A path is closed if its own input brought no rows, if an input before it had no rows and brings
    none, or if an input after it had no rows before the tick. So a first load runs only the path of the
    last input.
    """
    held = [bool(given.kept_before(side).runs) for side in node.leaving]
    come = [any(run.rows for run in given.brought(side)) for side in node.leaving]
    return tuple(
        path
        for path in range(len(come))
        if not come[path]
        or not all(before or now for before, now in zip(held[:path], come[:path], strict=True))
        or not all(held[path + 1 :])
    )


def _build_lookup_shape(
    query: QueryPlan, lookup: DeltaLookup, coming: SideShape, table: SideShape, common: CommonFields
) -> LookupShape:
    join = lookup.join
    table = replace(table, carried=join.right.carried)
    own = common.copy()
    own["sides"], own["changelog"] = (coming,), False
    own["columns"] = tuple(sorted(list_joined_columns(join, (coming, table)), key=lambda column: column.name))
    shape = LookupShape(
        **own,
        kind=join.kind,
        condition=build_pair_condition(query, join, {Side.LEFT: coming, Side.RIGHT: table}),
        table=table,
    )
    if shape.elsewhere is not None:
        raise EngineError(
            f"\"{query.name}\": with plan = 'delta' a join condition cannot be evaluated, because its"
            " columns do not have the declared types",
            code="wrong-types",
            hint="declare the columns with the types that the source has, or SET plan = 'cascade'",
        )
    return shape
