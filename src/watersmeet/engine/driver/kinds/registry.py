"""All kinds of node there are, a line each: what the planner makes of it, what goes to its tasks, what those
do (`engine.nodes`), and what the driver does (a module beside this one)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import pyarrow as pa

from watersmeet.engine.driver.kinds.base import NodeDriver, P, S
from watersmeet.engine.driver.kinds.changing_windows import WindowGroupDriver
from watersmeet.engine.driver.kinds.delta import ArrangeDriver, DeltaDriver
from watersmeet.engine.driver.kinds.groups import GroupDriver
from watersmeet.engine.driver.kinds.join import JoinDriver
from watersmeet.engine.driver.kinds.lookup import LookupDriver
from watersmeet.engine.driver.kinds.passing import PassDriver
from watersmeet.engine.driver.kinds.ranks import RankDriver
from watersmeet.engine.driver.kinds.resting import RestDriver
from watersmeet.engine.driver.kinds.snapshot import SnapshotDriver
from watersmeet.engine.driver.kinds.table import TableDriver
from watersmeet.engine.driver.kinds.upsert import UpsertDriver
from watersmeet.engine.driver.kinds.windows import WindowDriver
from watersmeet.engine.messages.delta import ArrangeShape, DeltaShape
from watersmeet.engine.messages.shapes import (
    AggregateShape,
    JoinShape,
    LookupShape,
    PassShape,
    RestShape,
    SnapshotShape,
    TableShape,
    UpsertShape,
)
from watersmeet.engine.messages.summed import GroupShape, RankShape, WindowGroupShape
from watersmeet.engine.nodes.aggregate import aggregate_rows
from watersmeet.engine.nodes.arrange import arrange_rows
from watersmeet.engine.nodes.delta import delta_rows
from watersmeet.engine.nodes.grouped.groups import group_rows
from watersmeet.engine.nodes.grouped.ranks import rank_rows
from watersmeet.engine.nodes.grouped.windows import window_group_rows
from watersmeet.engine.nodes.join import join_rows
from watersmeet.engine.nodes.lookup import lookup_rows
from watersmeet.engine.nodes.passing import pass_rows
from watersmeet.engine.nodes.resting import no_rows
from watersmeet.engine.nodes.snapshot import snapshot_rows
from watersmeet.engine.nodes.table import table_rows
from watersmeet.engine.nodes.upsert import upsert_rows
from watersmeet.engine.tasks.share import Share
from watersmeet.plan.model.delta import ArrangePlan, DeltaPlan
from watersmeet.plan.model.nodes import (
    AggregatePlan,
    GroupPlan,
    JoinPlan,
    LookupPlan,
    NodePlan,
    PassPlan,
    RankPlan,
    RestPlan,
    SnapshotPlan,
    TablePlan,
    UpsertPlan,
    WindowGroupPlan,
)


@dataclass(frozen=True)
class NodeKind(Generic[P, S]):
    """``task``: the rows that a task of it puts out; ``driver``: what is decided between the tasks."""

    plan: type[P]
    shape: type[S]
    task: Callable[[S, Share], Iterator[pa.RecordBatch]]
    driver: NodeDriver[P, S]


NODE_KINDS = (
    NodeKind(PassPlan, PassShape, pass_rows, PassDriver()),
    NodeKind(RestPlan, RestShape, no_rows, RestDriver()),
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

_BY_PLAN: Mapping[type[NodePlan], NodeKind[Any, Any]] = {kind.plan: kind for kind in NODE_KINDS}


def kind_of(node: NodePlan) -> NodeKind[Any, Any]:
    return _BY_PLAN[type(node)]


def driver_of(node: NodePlan) -> NodeDriver[Any, Any]:
    return kind_of(node).driver
