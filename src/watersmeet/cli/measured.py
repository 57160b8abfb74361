"""What the last committed manifest of a checkpoint says of a job's queries, as EXPLAIN takes it."""

from __future__ import annotations

from pathlib import Path

from watersmeet.engine.driver.opening.moved import home_of, node_of
from watersmeet.engine.spark.checkpoint.directory import Checkpoint
from watersmeet.errors import StateError
from watersmeet.event_time import ENDED, NEVER
from watersmeet.objects.remote import RemoteStore
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.order.advised import other_orders
from watersmeet.plan.order.measured import MeasuredQuery, MeasuredSide
from watersmeet.spec.model import Insert, Job, Options
from watersmeet.state.manifest import Arrangement, Manifest, NodeState, QueryState, load_newest


def measured_in(
    checkpoint: str | Path, job: Job, plan: JobPlan, store: RemoteStore | None = None
) -> dict[str, MeasuredQuery]:
    """Per query of the plan, what a run with that checkpoint directory has measured. Nothing is changed
    there, and the job may be running.

    Raises:
        StateError: no tick was committed there, or the manifest cannot be read.
    """
    manifest = manifest_in(checkpoint, store)
    return {
        query.name: measured_of(manifest, insert, job.options, query)
        for insert, query in zip(job.inserts, plan.queries, strict=True)
    }


def manifest_in(checkpoint: str | Path, store: RemoteStore | None = None) -> Manifest:
    """The newest one of a checkpoint directory, or of ``store``. Raises: StateError as `measured_in`."""
    manifest = load_newest(Checkpoint(checkpoint, store).store)
    if manifest is None:
        place = checkpoint if store is None else store.place.url
        raise StateError(
            f"there is no state in {place}: no tick was committed there",
            code="no-state",
            hint="name the directory that `watersmeet run` was given, or leave --checkpoint out",
        )
    return manifest


def measured_of(manifest: Manifest, insert: Insert, options: Options, plan: QueryPlan) -> MeasuredQuery:
    """The same of one query. The state of another plan is not looked at: what its sides are called says
    nothing of what they hold."""
    if plan.name not in manifest.fingerprints:
        return MeasuredQuery(problem="the checkpoint has no query of this name")
    if manifest.fingerprints[plan.name] != plan.fingerprint:
        return MeasuredQuery(problem="the checkpoint is of another plan of this query")
    sides = _sides(manifest, manifest.queries[plan.name])
    return MeasuredQuery(manifest.tick, sides, better=other_orders(insert, options, plan.alone, sides))


def _sides(manifest: Manifest, state: QueryState) -> dict[str, MeasuredSide]:
    """Of all nodes, those that rest too, for another query's keep their rows."""
    return {
        name: _side(arrangement)
        for node in (_kept_for(manifest, node) for node in state.nodes)
        for name, arrangement in node.arrangements.items()
        if node.table is None
    }


def _kept_for(manifest: Manifest, node: NodeState) -> NodeState:
    return node if node.elsewhere is None else node_of(manifest, home_of(manifest, node.elsewhere))


def _side(arrangement: Arrangement) -> MeasuredSide:
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
