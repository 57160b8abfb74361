"""Tables with a primary key: of each key the last row is kept, and, where changes have a sequence, which one
deleted it, for as long as that is remembered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from watersmeet.engine.driver.kinds.base import CommonFields, Decided, Held, Incoming, NodeDriver
from watersmeet.engine.messages.shapes import DELETED, SideShape, UpsertShape
from watersmeet.event_time import MAX_TIME
from watersmeet.plan.identity.origins import digest_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import UpsertPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.options.changes import DEBEZIUM
from watersmeet.spec.options.debezium import placeholders
from watersmeet.spec.options.kafka import records_of
from watersmeet.state.runs.columns import StoredColumn


class UpsertDriver(NodeDriver[UpsertPlan, UpsertShape]):
    def shape_of(
        self, query: QueryPlan, node: UpsertPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> UpsertShape:
        return UpsertShape(
            **common,
            table=_table(node, sides[0]),
            keys=node.primary_key.columns,
            sequence=node.primary_key.sequence,
            in_order=node.side.in_order,
            placeholders=_placeholders(node, sides[0]),
        )

    def held(self, query: QueryPlan, node: UpsertPlan, side: SidePlan) -> Held:
        return Held(keys=node.primary_key.columns, ties="ascending" if side.in_order else None)

    def decide(self, node: UpsertPlan, given: Incoming) -> Decided:
        """Deletes are forgotten with the tick whose clock says that they are old enough; what that tick
        brings still meets them, so its rows do not depend on its clock."""
        key = node.primary_key
        if key.sequence is None:
            return Decided({})
        limit = MAX_TIME if key.tombstones_us is None else given.clock_us - key.tombstones_us + 1
        return Decided({node.side.watermark_key(DELETED): limit})


def _placeholders(node: UpsertPlan, side: SideShape) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Per column that is kept, but for the key and the sequence, the values that are placeholders."""
    ((_, branch),) = node.side.sources
    if records_of(branch.source.options) != DEBEZIUM:
        return ()
    kept = {expr.name: name for name, expr in branch.columns if name in side.schema.names}
    return tuple(
        (kept[column.name], values)
        for column in branch.source.columns
        if column.name in kept and column.name not in node.primary_key.named
        for values in [placeholders(column.type)]
        if values
    )


def _table(node: UpsertPlan, side: SideShape) -> SideShape:
    """How the table's rows are stored."""
    layout = replace(side.layout, ties=None)
    if node.primary_key.sequence is None:
        return replace(side, layout=layout)
    stored = StoredColumn(DELETED, digest_of(["deleted"]), "the time of a delete")
    layout = replace(layout, event_times=(DELETED,), releasing=(DELETED,), columns=(*layout.columns, stored))
    return replace(side, layout=layout, schema=side.schema.append(pa.field(DELETED, pa.int64())))
