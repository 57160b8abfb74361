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
from watersmeet.plan.model.job import JobPlan, QueryPlan
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
from watersmeet.runtime.coordinator.results import QueryResult, TickResult, find_broken_reporters
from watersmeet.runtime.coordinator.retained_runs import incomplete_runs
from watersmeet.runtime.coordinator.run_context import RunContext, TickSettings
from watersmeet.runtime.coordinator.shapes import job_shapes
from watersmeet.runtime.coordinator.shared_inputs import values_by_query
from watersmeet.runtime.coordinator.table_reads import SnapshotReader, Snapshots, TableReader, Tables
from watersmeet.state.copy import verify_files
from watersmeet.state.manifest import Manifest, QueryState, load_newest, manifest_names
from watersmeet.state.store import Store
from watersmeet.watermark.tracker import InputState

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


def restore_last_result(plan: JobPlan, manifest: Manifest | None) -> TickResult | None:
    """Rebuild the result of the last committed tick, without the facts of that tick alone.

    Queries that are new to the state are not included.

    Returns:
        The result; None if no tick is committed.
    """
    if manifest is None:
        return None
    states = {query.name: manifest.queries.get(query.name, QueryState()) for query in plan.queries}
    inputs = values_by_query(plan.queries, lambda query: states[query.name].inputs)
    held: dict[str, dict[str, int]] = {}
    for query in plan.queries:
        held[query.name] = _count_retained_rows(query, states[query.name], held)
    return TickResult(
        tick=manifest.tick,
        clock_us=manifest.clock_us,
        queries={
            query.name: _result(query, states[query.name], held[query.name], inputs[query.name])
            for query in plan.queries
            if query.name in manifest.queries
        },
        finished=manifest.finished,
        rows_in={},
        state=manifest,
    )


def _count_retained_rows(
    query: QueryPlan, state: QueryState, others: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """Count the retained rows per alias, including inputs that another query reads."""
    held = {
        side.name: node.arrangements[side.name].retained
        for side in query.accounted
        for node in state.nodes
        if side.name in node.arrangements
    }
    for own, maker, there in query.shared_inputs:
        if there in others[maker]:
            held[own] = others[maker][there]
    return held


def _result(
    query: QueryPlan, state: QueryState, held: Mapping[str, int], inputs: Mapping[str, InputState]
) -> QueryResult:
    emitted = state.nodes[-1].emitted if state.nodes else {}
    aliases = [*(side.name for side in query.sides), *(own for own, _, _ in query.shared_inputs)]
    return QueryResult(
        risen_watermarks={},
        output_watermarks=emitted,
        input_watermarks={f"{a}.{c}": w for a, i in inputs.items() for c, w in i.watermarks.items()},
        state={alias: held[alias] for alias in aliases if alias in held},
        counts={},
        account={alias: {**rows, "retained": held.get(alias, 0)} for alias, rows in state.account.items()},
        rows_out=0,
        total_rows_out=state.rows_out,
        matches=0,
        state_bytes=state.nbytes,
        shed_joined=state.shed_joined,
        late=state.late,
        idle=tuple(alias for alias, read in inputs.items() if read.idle),
    )
