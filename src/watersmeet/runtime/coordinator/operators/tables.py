"""The driver's half of tables: retained rows, primary keys, snapshots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from watersmeet.event_time import MAX_TIME, NEVER, shift
from watersmeet.plan.identity.origins import digest_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import SnapshotPlan, TablePlan, UpsertPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.runtime.coordinator.operators.base import (
    CommonFields,
    NodeDriver,
    NodeInputs,
    NodeLimits,
    SideLayout,
)
from watersmeet.runtime.messages.shapes import (
    DELETED,
    SideShape,
    SnapshotShape,
    TableShape,
    UpsertShape,
)
from watersmeet.state.runs.layout import StoredColumn
from watersmeet.types.sql_type import PLAIN, UNKNOWN

# Rows of tables, kept until they are deleted, and of streams of changes, kept until they would be late.
# They are hashed by all that tells them apart.


class TableDriver(NodeDriver[TablePlan, TableShape]):
    def build_shape(
        self, query: QueryPlan, node: TablePlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> TableShape:
        return TableShape(**common)

    def held(self, query: QueryPlan, node: TablePlan, side: SidePlan) -> SideLayout:
        """Return a layout keyed by the columns whose types are known to have a hash."""
        types = {column.name: column.type for column in side.input.columns}
        return SideLayout(
            keys=tuple(
                name
                for name in side.kept
                if name not in side.event_times
                and ((type_ := types.get(name, UNKNOWN)).is_decimal or type_ in PLAIN)
            ),
            releasing=side.event_times,
        )

    def decide(self, node: TablePlan, given: NodeInputs) -> NodeLimits:
        """Release a row of a stream once it would be late: from then on nothing can retract it."""
        keys = [node.side.watermark_key(column) for column in node.side.event_times]
        return NodeLimits(
            {key: shift(given.watermarks.get(key, NEVER), -given.lateness.get(key, 0)) for key in keys}
        )


# Tables with a primary key: of each key the last row is kept, and, where changes have a sequence, which
# one deleted it, for as long as that is remembered.


class UpsertDriver(NodeDriver[UpsertPlan, UpsertShape]):
    def build_shape(
        self, query: QueryPlan, node: UpsertPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> UpsertShape:
        return UpsertShape(
            **common,
            table=_table(node, sides[0]),
            keys=node.primary_key.columns,
            sequence=node.primary_key.sequence,
            in_order=node.side.in_order,
            placeholders=_list_placeholders(node, sides[0]),
        )

    def held(self, query: QueryPlan, node: UpsertPlan, side: SidePlan) -> SideLayout:
        return SideLayout(keys=node.primary_key.columns, ties="ascending" if side.in_order else None)

    def decide(self, node: UpsertPlan, given: NodeInputs) -> NodeLimits:
        """Set the limit below which this tick drops tombstones by its clock.

        The tick's own rows still see these tombstones, so the result does not depend on the clock.
        """
        key = node.primary_key
        if key.sequence is None:
            return NodeLimits({})
        limit = MAX_TIME if key.tombstones_us is None else given.clock_us - key.tombstones_us + 1
        return NodeLimits({node.side.watermark_key(DELETED): limit})


def _list_placeholders(node: UpsertPlan, side: SideShape) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """List the placeholder values per stored column, except for the key and the sequence column."""
    ((_, branch),) = node.side.sources
    kept = {expr.name: name for name, expr in branch.columns if name in side.schema.names}
    return tuple(
        (kept[column], values)
        for column, values in node.placeholders.items()
        if column in kept and column not in node.primary_key.named
    )


def _table(node: UpsertPlan, side: SideShape) -> SideShape:
    """Build the shape of the table's stored rows.

    With a sequence column, the rows have an additional column: the time of a delete.
    """
    layout = replace(side.layout, ties=None)
    if node.primary_key.sequence is None:
        return replace(side, layout=layout)
    stored = StoredColumn(DELETED, digest_of(["deleted"]), "the time of a delete")
    layout = replace(layout, event_times=(DELETED,), releasing=(DELETED,), columns=(*layout.columns, stored))
    return replace(side, layout=layout, schema=side.schema.append(pa.field(DELETED, pa.int64())))


# Tables that are compared with what they held before: what was read last is kept, hashed by the primary
# key, or by all that has a hash.


class SnapshotDriver(NodeDriver[SnapshotPlan, SnapshotShape]):
    replaces = True

    def costs_by_new_rows(self, shape: SnapshotShape) -> bool:
        return True

    def build_shape(
        self, query: QueryPlan, node: SnapshotPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> SnapshotShape:
        keys = () if node.primary_key is None else node.primary_key.columns
        return SnapshotShape(**common, keys=keys)

    def held(self, query: QueryPlan, node: SnapshotPlan, side: SidePlan) -> SideLayout:
        if node.primary_key is not None:
            return SideLayout(keys=node.primary_key.columns)
        types = {column.name: column.type for column in side.input.columns}
        return SideLayout(
            keys=tuple(
                name for name in side.kept if (type_ := types.get(name, UNKNOWN)).is_decimal or type_ in PLAIN
            )
        )
