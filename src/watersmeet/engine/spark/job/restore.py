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

from watersmeet.engine.driver.amount import small_rows_in, threads_of_driver
from watersmeet.engine.driver.driver import Restored, restore
from watersmeet.engine.driver.opening.changed_sources import are_others
from watersmeet.engine.driver.opening.plan_for_state import plan_for_state
from watersmeet.engine.driver.settings import TickSettings
from watersmeet.engine.spark.checkpoint.directory import Checkpoint, Intent
from watersmeet.engine.spark.checkpoint.elsewhere import Begun
from watersmeet.engine.spark.checkpoint.host import BATCH, COMPACT_INTERVAL, TOPICS
from watersmeet.engine.spark.checkpoint.restart import batch_in, check_checkpoint, check_settings
from watersmeet.engine.spark.configuration import cores_of_driver, max_line_bytes
from watersmeet.engine.spark.job.going_on import of_the_sources, recovered, with_moved_files
from watersmeet.engine.spark.job.run_settings import all_settings
from watersmeet.engine.spark.job.settings import RunSettings
from watersmeet.engine.spark.job.telling import Telling
from watersmeet.engine.spark.sources.backlog import Reached
from watersmeet.engine.spark.sources.brokers import Brokers
from watersmeet.engine.spark.sources.files.elsewhere import gone_in
from watersmeet.engine.spark.sources.files.read import FilesRead
from watersmeet.engine.spark.sources.frames import read
from watersmeet.engine.spark.sources.scan import Scan, scan
from watersmeet.engine.spark.sources.tables import snapshot_readers, table_of, table_readers
from watersmeet.engine.spark.sources.topics import TopicIds, Topics
from watersmeet.engine.spark.tick.outputs import Outputs
from watersmeet.plan.identity.settings import digest_of
from watersmeet.plan.model.job import JobPlan
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
    telling: Telling,
) -> OpenedJob:
    """Read the state of a job, and check that it belongs to the plan. Raises: WatersmeetError."""
    store = checkpoint.store
    plan = plan_for_state(plan, load_newest(store))
    run_settings = all_settings(plan, settings.run, spark.sparkContext, settings.secrets)
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
    threads = threads_of_driver(cores_of_driver(spark.sparkContext))
    tick_settings = TickSettings(
        digest=digest_of(run_settings),
        change_queries=settings.change_queries,
        keep_ticks=settings.keep_ticks,
        keep_late=outputs.late is not None or outputs.shed is not None,
        keep_broken=outputs.broken is not None,
        tasks_asked=settings.partitions is not None,
        small_rows=small_rows_in(settings.run, threads),
        threads=threads,
    )
    read_table = partial(table_of, spark, makers=settings.makers)
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
    files: FilesRead
    reached: Reached
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
    begun: Begun,
    telling: Telling,
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
    last = batch_in(manifest)

    def is_as_begun(host: Mapping[str, Any]) -> tuple[bool, bool]:
        """Return whether the next tick was begun, and if so, whether with the settings of this run."""
        pending = repeated is not None or is_batch_due(checkpoint, begun, host)
        return pending, _is_as_begun(opened, settings, outputs, checkpoint, pending=pending)

    manifest, moves = with_moved_files(
        manifest, plan, checkpoint, settings, telling.note, lambda: is_as_begun(last)
    )
    state = replace(state, committed=replace(state.committed, manifest=manifest))
    telling.note(*begun.fit(state.tick + 1, manifest, plan, interval, moves))
    other_sources = manifest is not None and are_others(manifest, plan)
    if manifest is not None and other_sources:
        is_as_begun(last)  # else it is planned no more
        begun.forget()
        manifest = of_the_sources(manifest, plan, checkpoint, settings)
    host = recovered(
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
    reached = Reached(plan.sources, host, kept, spark_files)
    begun.recovered()
    check_checkpoint(checkpoint, None if manifest is None else host, plan)
    planned_before = checkpoint.last_planned()
    files = FilesRead(
        plan.sources, spark_files, checkpoint.store, kept, telling.note, gone_in(spark), moves.at_old_path
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
        owner=checkpoint.owner(_owner_in(manifest)),
        repeated=repeated,
        pending=pending,
        repeats=pending and as_begun,
        is_changed=bool(state.said or moves),
    )


def is_batch_due(checkpoint: Checkpoint, begun: Begun, host: Mapping[str, Any]) -> bool:
    """Return True if Spark has planned a batch that is no tick yet: part of it may be in sinks."""
    planned = checkpoint.last_planned()
    return begun.is_due or (planned is not None and planned > host.get(BATCH, -1))


def _is_as_begun(
    opened: OpenedJob, settings: RunSettings, outputs: Outputs, checkpoint: Checkpoint, *, pending: bool
) -> bool:
    """Return True unless the next tick was begun with other settings than those of this run."""
    state, out = opened.state, list[str]()
    begun_with = state.begun_with() if pending else None
    if begun_with is not None:
        owner, aside = checkpoint.owner(_owner_in(state.manifest)), settings.replace_newer_files
        out = outputs.may_be_out(checkpoint.store, state.tick + 1, owner, set_aside=aside)
    return check_settings(checkpoint, opened.run_settings, begun_with, out)


def _owner_in(manifest: Manifest | None) -> str | None:
    return None if manifest is None else manifest.owner
