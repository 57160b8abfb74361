"""Windows whose rows come and go: what is kept of panes and groups until the last window of a pane closes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from watersmeet.engine.driver.kinds.base import (
    CommonFields,
    Decided,
    Held,
    Incoming,
    NodeDriver,
    Outgoing,
    risen_to,
)
from watersmeet.engine.driver.kinds.columns import grouped_columns
from watersmeet.engine.driver.kinds.groups import kept_of_groups, parts_of_groups
from watersmeet.engine.driver.kinds.windows import window_type
from watersmeet.engine.messages.shapes import SideShape
from watersmeet.engine.messages.summed import PANE, WindowGroupShape
from watersmeet.event_time import NEVER, Watermark, shift
from watersmeet.kernel.joined import JoinedColumn
from watersmeet.measure import Measured
from watersmeet.plan.identity.origins import digest_of
from watersmeet.plan.model.job import QueryPlan
from watersmeet.plan.model.nodes import WindowGroupPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.spec.model import WINDOW_END, WINDOW_START, WindowKind
from watersmeet.state.runs.columns import StoredColumn
from watersmeet.watermark.windows import passed_below, release_limit, start_watermark


class WindowGroupDriver(NodeDriver[WindowGroupPlan, WindowGroupShape]):
    def shape_of(
        self, query: QueryPlan, node: WindowGroupPlan, sides: tuple[SideShape, ...], common: CommonFields
    ) -> WindowGroupShape:
        (side,) = sides
        types = {column.name: column.type for column in common["columns"]}
        parts = parts_of_groups(query, node, types)
        results = parts.result_types
        kept = kept_of_groups(side, [column for _, column in node.keys], parts, types)
        return WindowGroupShape(
            **common,
            keys=node.keys,
            parts=parts,
            kept=_of_panes(kept, node, side),
            results=tuple((call.name, results[call.name]) for call in node.calls),
            kind=node.kind,
            time=node.time,
            size=node.size,
            slide=node.slide,
            pane=node.pane,
            window_type=window_type(side.schema.field(node.time).type),
            is_final=node.is_final,
        )

    def leaving(self, node: WindowGroupPlan, sides: tuple[SideShape, ...]) -> tuple[JoinedColumn, ...]:
        """What has to be grouped: the keys, and what the calls mention."""
        return grouped_columns(node, sides)

    def held(self, query: QueryPlan, node: WindowGroupPlan, side: SidePlan) -> Held:
        return Held(keys=tuple(dict.fromkeys(column for _, column in node.keys)))

    def decide(self, node: WindowGroupPlan, given: Incoming) -> Decided:
        key = node.time_key
        watermark = shift(given.watermarks.get(key, NEVER), -given.lateness.get(key, 0))
        if node.kind is WindowKind.SESSION:
            return Decided({key: passed_below(node.size, watermark)})
        return Decided({node.side.watermark_key(PANE): release_limit(node.size, node.slide, watermark)})

    def outputs(self, node: WindowGroupPlan, given: Outgoing) -> dict[str, Watermark]:
        watermark = given.watermarks.get(node.time_key, NEVER)
        is_session = node.kind is WindowKind.SESSION
        open_from = given.least.get(node.side.watermark_key(PANE)) if is_session else None
        start = start_watermark(0 if is_session else node.size, watermark, open_from)
        return risen_to({WINDOW_START: start, WINDOW_END: watermark}, given.emitted)


def _of_panes(kept: SideShape, node: WindowGroupPlan, side: SideShape) -> SideShape:
    """What is kept of groups, of each pane for itself, which is known by its width and the time's origin.
    Panes go by a limit; of sessions, whose panes are times, they are looked at in order, and by key."""
    (time,) = (column for column in side.layout.columns if column.name == node.time)
    is_session = node.kind is WindowKind.SESSION
    stored = StoredColumn(PANE, digest_of(["pane", time.origin, node.pane]), f"panes of {time.text}")
    layout = replace(
        kept.layout,
        event_times=(PANE,),
        releasing=() if is_session else (PANE,),
        watched=(PANE,) if is_session else (),
        indexes=(Measured(PANE),) if is_session else (),
        columns=(stored, *kept.layout.columns),
    )
    return replace(kept, layout=layout, schema=pa.schema([pa.field(PANE, pa.int64()), *kept.schema]))
