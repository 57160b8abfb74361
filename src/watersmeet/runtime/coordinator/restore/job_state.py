"""Restore a job's state: load the newest manifest, check it against the plan, carry over what changed.

Another run may commit while the state is loaded, and delete files that its newest tick does not need: then
loading is retried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.driver import Restored
from watersmeet.runtime.coordinator.input_watermarks import InputStates
from watersmeet.runtime.coordinator.ledger import CommittedState
from watersmeet.runtime.coordinator.merge_policy import compute_released_byte_limits
from watersmeet.runtime.coordinator.restore.changed_queries import (
    check_columns,
    check_same_job,
    identify_queries,
    with_changed,
)
from watersmeet.runtime.coordinator.restore.plan_for_state import check_plan_for_state
from watersmeet.runtime.coordinator.results import find_broken_reporters
from watersmeet.runtime.coordinator.retained_runs import incomplete_runs
from watersmeet.runtime.coordinator.run_context import RunContext, TickSettings
from watersmeet.runtime.coordinator.shapes import job_shapes
from watersmeet.runtime.coordinator.table_reads import SnapshotReader, Snapshots, TableReader, Tables
from watersmeet.state.manifest import load_newest, manifest_names
from watersmeet.state.store import Store
from watersmeet.state.verification import verify_files

_MAX_RETRIES = 5
"""Another run commits no more ticks than these while a state is loaded."""

_Plan = TypeVar("_Plan")
_Schemas = TypeVar("_Schemas")
_More = ParamSpec("_More")
_Opened = TypeVar("_Opened")


def retry_if_superseded(
    opened: Callable[Concatenate[_Plan, _Schemas, Store, _More], _Opened],
) -> Callable[Concatenate[_Plan, _Schemas, Store, _More], _Opened]:
    """Retry ``opened`` when a file is missing and another run has committed a newer tick since."""

    @wraps(opened)
    def once_more(
        plan: _Plan, schemas: _Schemas, store: Store, /, *args: _More.args, **named: _More.kwargs
    ) -> _Opened:
        for _ in range(_MAX_RETRIES):
            newest = manifest_names(store)[-1:]
            try:
                return opened(plan, schemas, store, *args, **named)
            except StateError as error:
                if error.code != "state-missing" or manifest_names(store)[-1:] == newest:
                    raise
        return opened(plan, schemas, store, *args, **named)

    return once_more


@retry_if_superseded
def restore(
    plan: JobPlan,
    schemas: Mapping[str, pa.Schema],
    store: Store,
    settings: TickSettings | None = None,
    *,
    started_us: int | None = None,
    tables: Mapping[str, TableReader] | None = None,
    snapshots: Mapping[str, SnapshotReader] | None = None,
) -> Restored:
    """Load the newest state, if any, and check that it belongs to this plan and is whole.

    Args:
        schemas: per ``query/alias`` the kept columns in native Arrow types; see `node_shapes`.
        started_us: the clock now: idle times start here (None: with the first tick).
        tables: what reads the tables that rows meet as of their tick, per ``query/alias``.
        snapshots: what reads the tables that are compared, per source.

    Raises:
        StateError: the state is of another query, other sources, lacks columns, or is damaged.
    """
    settings = settings or TickSettings()
    store.check()
    store.sweep()
    manifest = load_newest(store)
    if manifest is not None:
        check_same_job(manifest, plan, may_change=settings.change_queries)
        check_plan_for_state(plan, manifest)
        verify_files(manifest, store)
    shapes = job_shapes(plan, schemas, zoned=settings.zoned)
    context = RunContext(
        plan,
        store,
        settings,
        shapes,
        InputStates(plan, started_us),
        Tables(tables or {}),
        Snapshots(snapshots or {}, plan, shapes),
        identify_queries(plan),
        compute_released_byte_limits(plan),
        find_broken_reporters(plan, shapes) if settings.keep_broken else frozenset(),
    )
    if manifest is None:
        return Restored(context, CommittedState())
    changed = with_changed(manifest, plan, shapes, store, zoned=settings.zoned)
    check_columns(changed.manifest, shapes, store)
    incomplete = incomplete_runs(shapes, changed.manifest, store)
    committed = CommittedState(changed.manifest, changed.begins, tuple(changed.contents), incomplete)
    return Restored(context, committed, tuple(changed.said))
