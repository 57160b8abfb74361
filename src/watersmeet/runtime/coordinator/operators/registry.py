"""Registry of all node kinds, one line each.

A line has the planner's node plan, the shape that its tasks receive, the tasks' operator
(`runtime.operators`), and the driver's part (a module of this package).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import pyarrow as pa

from watersmeet.plan.model.nodes import (
    AggregatePlan,
    ArrangePlan,
    DeltaPlan,
    GroupPlan,
    JoinPlan,
    LookupPlan,
    NodePlan,
    PassPlan,
    RankPlan,
    ReusedPlan,
    SnapshotPlan,
    TablePlan,
    UpsertPlan,
    WindowGroupPlan,
)
from watersmeet.runtime.coordinator.operators.base import NodeDriver, P, PassDriver, RestDriver, S
from watersmeet.runtime.coordinator.operators.delta import ArrangeDriver, DeltaDriver
from watersmeet.runtime.coordinator.operators.groups import (
    GroupDriver,
    RankDriver,
    WindowDriver,
    WindowGroupDriver,
)
from watersmeet.runtime.coordinator.operators.joins import JoinDriver, LookupDriver
from watersmeet.runtime.coordinator.operators.tables import SnapshotDriver, TableDriver, UpsertDriver
from watersmeet.runtime.messages.shapes import (
    AggregateShape,
    ArrangeShape,
    DeltaShape,
    GroupShape,
    JoinShape,
    LookupShape,
    PassShape,
    RankShape,
    RestShape,
    SnapshotShape,
    TableShape,
    UpsertShape,
    WindowGroupShape,
)
from watersmeet.runtime.operators.changelog_windows import window_group_rows
from watersmeet.runtime.operators.delta import arrange_rows, delta_rows
from watersmeet.runtime.operators.groups import group_rows, rank_rows
from watersmeet.runtime.operators.join import join_rows
from watersmeet.runtime.operators.stateless import lookup_rows, no_rows, pass_rows
from watersmeet.runtime.operators.tables import snapshot_rows, table_rows, upsert_rows
from watersmeet.runtime.operators.windows import aggregate_rows
from watersmeet.runtime.tasks.side import TaskPartition


@dataclass(frozen=True)
class NodeKind(Generic[P, S]):
    """Kind of node.

    Attributes:
        task: produces the rows that a task of the node emits.
        driver: makes the decisions between the tasks.
    """

    plan: type[P]
    shape: type[S]
    task: Callable[[S, TaskPartition], Iterator[pa.RecordBatch]]
    driver: NodeDriver[P, S]


NODE_KINDS = (
    NodeKind(PassPlan, PassShape, pass_rows, PassDriver()),
    NodeKind(ReusedPlan, RestShape, no_rows, RestDriver()),
    NodeKind(UpsertPlan, UpsertShape, upsert_rows, UpsertDriver()),
    NodeKind(SnapshotPlan, SnapshotShape, snapshot_rows, SnapshotDriver()),
    NodeKind(TablePlan, TableShape, table_rows, TableDriver()),
    NodeKind(JoinPlan, JoinShape, join_rows, JoinDriver()),
    NodeKind(LookupPlan, LookupShape, lookup_rows, LookupDriver()),
    NodeKind(AggregatePlan, AggregateShape, aggregate_rows, WindowDriver()),
    NodeKind(WindowGroupPlan, WindowGroupShape, window_group_rows, WindowGroupDriver()),
    NodeKind(GroupPlan, GroupShape, group_rows, GroupDriver()),
    NodeKind(RankPlan, RankShape, rank_rows, RankDriver()),
    NodeKind(ArrangePlan, ArrangeShape, arrange_rows, ArrangeDriver()),
    NodeKind(DeltaPlan, DeltaShape, delta_rows, DeltaDriver()),
)

_KINDS_BY_PLAN: Mapping[type[NodePlan], NodeKind[Any, Any]] = {kind.plan: kind for kind in NODE_KINDS}


def find_kind(node: NodePlan) -> NodeKind[Any, Any]:
    return _KINDS_BY_PLAN[type(node)]


def find_driver(node: NodePlan) -> NodeDriver[Any, Any]:
    return find_kind(node).driver
