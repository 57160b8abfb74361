"""What a manifest says of how much the sides of its queries keep, and how fast rows came: what forecasts are
made from."""

from __future__ import annotations

from watersmeet.event_time import ENDED, NEVER
from watersmeet.plan.order.forecast import MeasuredSide
from watersmeet.runtime.coordinator.shared_inputs import home_of, node_of
from watersmeet.state.manifest import Arrangement, Manifest, NodeState, QueryState


def measured_sides(manifest: Manifest, state: QueryState) -> dict[str, MeasuredSide]:
    """Measure the sides of all nodes of a query in the manifest.

    This includes reused nodes, whose rows another query retains; nodes with a table copy are left out.
    """
    return {
        name: _measure_side(arrangement)
        for node in (_find_stored_node(manifest, node) for node in state.nodes)
        for name, arrangement in node.arrangements.items()
        if node.table is None
    }


def _find_stored_node(manifest: Manifest, node: NodeState) -> NodeState:
    return node if node.elsewhere is None else node_of(manifest, home_of(manifest, node.elsewhere))


def _measure_side(arrangement: Arrangement) -> MeasuredSide:
    rows = sum(live.run.rows for live in arrangement.runs)
    file_bytes = sum(live.run.nbytes for live in arrangement.runs)
    reaches: dict[str, int | None] = {}
    for column, pace in arrangement.paces.items():
        limit = arrangement.limits.get(column, NEVER)
        if isinstance(pace.mark, int) and limit < ENDED:
            reaches[column] = pace.mark - limit if isinstance(limit, int) else None
    return MeasuredSide(
        retained=arrangement.stored,
        most=arrangement.most,
        file_bytes=file_bytes,
        row_bytes=file_bytes / rows if rows else None,
        paces={column: pace.measured for column, pace in arrangement.paces.items() if pace.measured[1] > 0},
        reaches=reaches,
    )
