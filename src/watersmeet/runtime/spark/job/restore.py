"""What the checkpoint of a job holds, checked, and what a run of it has to do first.

    open_job ── the plan as the state has it, the scan, the state ──>
    restore_job ── from which batch, with which files and topics, and what is repeated ──> RestoredJob

`open_job` changes nothing. `restore_job` may make Spark's own files anew from the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.plan.identity.settings import digest_of
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.driver import Restored
from watersmeet.runtime.coordinator.node_cost import count_driver_threads, inline_row_limit
from watersmeet.runtime.coordinator.restore.changed_queries import are_others
from watersmeet.runtime.coordinator.restore.job_state import restore
from watersmeet.runtime.coordinator.restore.plan_for_state import plan_for_state
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, Intent
from watersmeet.runtime.spark.checkpoint.remote_checkpoint import TickIntent
from watersmeet.runtime.spark.checkpoint.restart import check_checkpoint, check_settings, load_batch
from watersmeet.runtime.spark.checkpoint.spark_positions import BATCH, COMPACT_INTERVAL, TOPICS
from watersmeet.runtime.spark.configuration import count_driver_cores, max_line_bytes
from watersmeet.runtime.spark.job.listeners import RunListeners
from watersmeet.runtime.spark.job.resume_point import (
    adapt_manifest_to_sources,
    apply_moved_files,
    recover_batch,
)
from watersmeet.runtime.spark.job.run_identity import list_settings
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.runtime.spark.sources.backlog import SourceProgress
from watersmeet.runtime.spark.sources.files.missing_files import build_missing_check
from watersmeet.runtime.spark.sources.files.progress import FileProgress
from watersmeet.runtime.spark.sources.frames import read
from watersmeet.runtime.spark.sources.scan import Scan, scan
from watersmeet.runtime.spark.sources.tables import open_table, snapshot_readers, table_readers
from watersmeet.runtime.spark.sources.topics import Brokers, TopicIds, Topics
from watersmeet.runtime.spark.tick.outputs import Outputs
from watersmeet.state.manifest import Manifest, load_newest


@dataclass(frozen=True)
class OpenedJob:
    """A job whose state was read and belongs to it.

    Args:
        plan: as the state has it.
        run_settings: what a tick's rows depend on, by name.
        scanned: how Spark reads its sources.
        state: what the checkpoint holds.
        topics: those of Kafka sources; to be closed.
    """

    plan: JobPlan
    run_settings: Mapping[str, str]
    scanned: Scan
    state: Restored
    topics: Topics
    brokers: Brokers


def open_job(
    spark: SparkSession,
    plan: JobPlan,
    settings: RunSettings,
    outputs: Outputs,
    checkpoint: Checkpoint,
    telling: RunListeners,
) -> OpenedJob:
    """Read the state of a job, and check that it belongs to the plan. Raises: WatersmeetError."""
    store = checkpoint.store
    plan = plan_for_state(plan, load_newest(store))
    run_settings = list_settings(plan, settings.run, spark.sparkContext, settings.secrets)
    sources = plan.sources
    topics, brokers = Topics(spark, sources), Brokers(spark, sources)  # by their places: those of the state
    partitions, trigger_s = brokers.partitions(), settings.trigger_ms / 1000
    scanned = scan(
        spark,
        plan,
        partial(read, spark, sources=len(sources), trigger_s=trigger_s, given=settings.given),
        keep_late=outputs.late is not None,
        keep_broken=outputs.broken is not None,
    )
    threads = count_driver_threads(count_driver_cores(spark.sparkContext))
    tick_settings = TickSettings(
        digest=digest_of(run_settings),
        change_queries=settings.change_queries,
        keep_ticks=settings.keep_ticks,
        keep_late=outputs.late is not None or outputs.shed is not None,
        keep_broken=outputs.broken is not None,
        tasks_asked=settings.partitions is not None,
        small_rows=inline_row_limit(settings.run, threads),
        threads=threads,
    )
    read_table = partial(open_table, spark, makers=settings.table_functions)
    state = restore(
        plan,
        scanned.schemas,
        store,
        tick_settings,
        started_us=settings.clock(),
        tables=table_readers(plan, scanned, read_table),
        snapshots=snapshot_readers(plan, scanned, read_table, telling.note),
    )
    telling.note(*state.said)
    state.context.inputs.declare_partitions(partitions)
    return OpenedJob(plan, run_settings, scanned, state, topics, brokers)


@dataclass(frozen=True)
class RestoredJob:
    """From where a run of a job goes on.

    Args:
        host: what the manifest remembers of the last batch; empty: there was none.
        topic_ids: the ids of Kafka's topics, as the state and the brokers have them.
        files: which files were read.
        reached: how far the sources were read.
        planned_before: the last batch that an earlier run has planned.
        owner: the id of the state.
        repeated: the next tick, if an earlier run began it as one of our own.
        pending: the next tick was begun by an earlier run; ``repeats``: and is repeated as that began it.
        is_changed: queries came or went, or files were moved: the state is to say so.
    """

    opened: OpenedJob
    host: Mapping[str, Any]
    topic_ids: TopicIds
    files: FileProgress
    reached: SourceProgress
    planned_before: int | None
    owner: str
    repeated: Intent | None
    pending: bool
    repeats: bool
    is_changed: bool


def restore_job(
    spark: SparkSession,
    opened: OpenedJob,
    settings: RunSettings,
    outputs: Outputs,
    checkpoint: Checkpoint,
    begun: TickIntent,
    telling: RunListeners,
) -> RestoredJob:
    """Find from where a run goes on: from which batch, and whether it repeats a tick that was interrupted.

    Raises:
        WatersmeetError: rows are gone, sources are others, Spark's files do not belong to the state, or a
            tick that was begun with other settings may be out in part.
    """
    plan, state, spark_files = opened.plan, opened.state, checkpoint.spark_files
    manifest = state.manifest
    repeated = begun.intent(manifest)
    interval = int(spark.conf.get(COMPACT_INTERVAL, "10") or 10)
    last = load_batch(manifest)

    def is_as_begun(host: Mapping[str, Any]) -> tuple[bool, bool]:
        """Return whether the next tick was begun, and if so, whether with the settings of this run."""
        pending = repeated is not None or is_batch_due(checkpoint, begun, host)
        return pending, _has_same_settings(opened, settings, outputs, checkpoint, pending=pending)

    manifest, moves = apply_moved_files(
        manifest, plan, checkpoint, settings, telling.note, lambda: is_as_begun(last)
    )
    state = replace(state, committed=replace(state.committed, manifest=manifest))
    telling.note(*begun.fit(state.tick + 1, manifest, plan, interval, moves))
    other_sources = manifest is not None and are_others(manifest, plan)
    if manifest is not None and other_sources:
        is_as_begun(last)  # else it is planned no more
        begun.forget()
        manifest = adapt_manifest_to_sources(manifest, plan, checkpoint, settings)
    host = recover_batch(
        manifest,
        plan,
        checkpoint,
        opened.topics,
        settings,
        telling.note,
        interval,
        other_sources,
    )
    kept = {} if manifest is None else manifest.host
    reached = SourceProgress(plan.sources, host, kept, spark_files)
    begun.forget_if_replanned()
    check_checkpoint(checkpoint, None if manifest is None else host, plan)
    planned_before = checkpoint.last_planned()
    files = FileProgress(
        plan.sources,
        spark_files,
        checkpoint.store,
        kept,
        telling.note,
        build_missing_check(spark),
        moves.to_old_path,
    )
    topic_ids = {**opened.topics.ids(), **host.get(TOPICS, {})}
    files.start(max_line_bytes(spark))
    pending, as_begun = is_as_begun(host)
    if not as_begun:
        state.forget_begun()
        begun.forget()
    return RestoredJob(
        opened=replace(opened, state=state),
        host=host,
        topic_ids=topic_ids,
        files=files,
        reached=reached,
        planned_before=planned_before,
        owner=checkpoint.owner(_state_owner(manifest)),
        repeated=repeated,
        pending=pending,
        repeats=pending and as_begun,
        is_changed=bool(state.said or moves),
    )


def is_batch_due(checkpoint: Checkpoint, begun: TickIntent, host: Mapping[str, Any]) -> bool:
    """Return True if Spark planned a batch that is not yet a tick; sinks may have part of it."""
    planned = checkpoint.last_planned()
    return begun.is_due or (planned is not None and planned > host.get(BATCH, -1))


def _has_same_settings(
    opened: OpenedJob, settings: RunSettings, outputs: Outputs, checkpoint: Checkpoint, *, pending: bool
) -> bool:
    """Return True unless the next tick was begun with other settings than those of this run."""
    state, out = opened.state, list[str]()
    begun_with = state.load_pending_settings() if pending else None
    if begun_with is not None:
        owner, aside = checkpoint.owner(_state_owner(state.manifest)), settings.replace_newer_files
        out = outputs.list_possible_outputs(checkpoint.store, state.tick + 1, owner, set_aside=aside)
    return check_settings(checkpoint, opened.run_settings, begun_with, out)


def _state_owner(manifest: Manifest | None) -> str | None:
    return None if manifest is None else manifest.owner
