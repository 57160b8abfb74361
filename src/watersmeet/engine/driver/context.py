"""What all ticks of one run share: fixed when the run begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from watersmeet.engine.driver.inputs.states import InputStates
from watersmeet.engine.driver.settings import TickSettings
from watersmeet.engine.driver.snapshots import Snapshots
from watersmeet.engine.driver.tables import Tables
from watersmeet.engine.messages.shapes import NodeShape
from watersmeet.plan.model.job import JobPlan
from watersmeet.state.store import Store


@dataclass(frozen=True)
class RunContext:
    """What all ticks of one run share.

    Args:
        shapes: per query, of its nodes.
        inputs: the watermarks of the inputs, between two ticks.
        tables: those that rows meet as of their tick.
        snapshots: those that are compared with what they held before.
        names_of_queries: fields of a manifest by which it knows the queries.
        most_gone: per ``query/side`` how many bytes of deleted rows may be left in files.
        tells_broken: the arrangements of which records that do not parse are wanted.
    """

    plan: JobPlan
    store: Store
    settings: TickSettings
    shapes: Mapping[str, tuple[NodeShape, ...]]
    inputs: InputStates
    tables: Tables
    snapshots: Snapshots
    names_of_queries: Mapping[str, Any]
    most_gone: Mapping[str, int]
    tells_broken: frozenset[str]
