"""What the last committed manifest of a checkpoint says of a job's queries, as EXPLAIN takes it."""

from __future__ import annotations

from pathlib import Path

from watersmeet.objects.remote import RemoteStore
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.order.forecast import MeasuredQuery
from watersmeet.plan.order.suggested_order import other_orders
from watersmeet.runtime.coordinator.node_cost import measured_sides
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.spec.model import Insert, Job, Options
from watersmeet.state.manifest import Manifest, load_newest


def load_measurements(
    checkpoint: str | Path, job: Job, plan: JobPlan, store: RemoteStore | None = None
) -> dict[str, MeasuredQuery]:
    """Load what a run with that checkpoint directory has measured, for each query of the plan.

    Changes nothing there; the job may be running.

    Raises:
        StateError: No tick was committed there, or the manifest cannot be read.
    """
    manifest = manifest_in(checkpoint, store)
    return {
        query.name: measure_query(manifest, insert, job.options, query)
        for insert, query in zip(job.inserts, plan.queries, strict=True)
    }


def manifest_in(checkpoint: str | Path, store: RemoteStore | None = None) -> Manifest:
    """Load the newest manifest of a checkpoint directory or of ``store``.

    Raises:
        StateError: No tick was committed there, or the manifest cannot be read.
    """
    directory = Checkpoint(checkpoint, store)
    manifest = load_newest(directory.store)
    if manifest is None:
        raise directory.no_state_error()
    return manifest


def measure_query(manifest: Manifest, insert: Insert, options: Options, plan: QueryPlan) -> MeasuredQuery:
    """Return what a run has measured for one query.

    Ignores the state of another plan, because the names of its sides say nothing about their content.
    """
    if plan.name not in manifest.fingerprints:
        return MeasuredQuery(problem="the checkpoint has no query of this name")
    if manifest.fingerprints[plan.name] != plan.fingerprint:
        return MeasuredQuery(problem="the checkpoint belongs to another version of this query")
    sides = measured_sides(manifest, manifest.queries[plan.name])
    return MeasuredQuery(manifest.tick, sides, better=other_orders(insert, options, plan.alone, sides))
