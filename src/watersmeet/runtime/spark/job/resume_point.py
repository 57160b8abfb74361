"""Find the point at which a run resumes.

The stored state is adjusted for rows that no longer exist, files that were lost, and sources that were
added or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from watersmeet.errors import SpecError, near_names, raise_all
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.restore.changed_queries import goes_on
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.checkpoint.moved_files import MovedSources, find_moved_sources
from watersmeet.runtime.spark.checkpoint.restart import (
    adapt_host_to_sources,
    check_sources,
    load_batch,
    recover,
)
from watersmeet.runtime.spark.checkpoint.spark_positions import TOPICS, load_offsets
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.runtime.spark.sources.topics import Topics, accept_losses
from watersmeet.state.manifest import Manifest


def adapt_manifest_to_sources(
    manifest: Manifest, plan: JobPlan, checkpoint: Checkpoint, settings: RunSettings
) -> Manifest:
    """Return the manifest adapted to the sources that the job reads now.

    Raises:
        StateError: as `adapt_host_to_sources`.
    """
    host = adapt_host_to_sources(
        manifest.host,
        manifest.sources,
        plan,
        goes_on(manifest, plan),
        checkpoint.store,
        settings.inferred,
    )
    return manifest.model_copy(update={"host": host})


def apply_moved_files(
    manifest: Manifest | None,
    plan: JobPlan,
    checkpoint: Checkpoint,
    settings: RunSettings,
    note: Callable[[str], None],
    check: Callable[[], object],
) -> tuple[Manifest | None, MovedSources]:
    """Return the manifest with the new paths of moved files; update Spark's local checkpoint.

    Args:
        check: called before anything changes.

    Raises:
        EngineError, StateError: as `find_moved_sources` and `MovedSources.move_log`.
    """
    moves = find_moved_sources(manifest, plan, checkpoint.store)
    if manifest is None or not moves:
        return manifest, moves
    check()
    if checkpoint.stored_job is None and not settings.rebuild:
        done = moves.move_log(checkpoint, load_batch(manifest))
        moved = [*moves.notes, *([done] if done else [])]
    else:
        moved = moves.notes
    for one in moved:
        note(one)
    host = moves.relocate(manifest.host, checkpoint.store)
    return manifest.model_copy(update={"host": host}), moves


def unknown_loss_errors(accepted: Iterable[str], plan: JobPlan) -> list[SpecError]:
    """Return an error for each name with an accepted loss that is not a Kafka source."""
    kafkas = [source.name for source in plan.sources if source.traits.log]
    return [
        SpecError(
            f'--accept-loss {name}: this job has no Kafka source "{name}"',
            code="wrong-option",
            hint=near_names(name, kafkas) or "the job has no Kafka sources",
        )
        for name in accepted
        if name not in kafkas
    ]


def recover_batch(
    manifest: Manifest | None,
    plan: JobPlan,
    checkpoint: Checkpoint,
    topics: Topics,
    settings: RunSettings,
    note: Callable[[str], None],
    interval: int,
    other_sources: bool,
) -> dict[str, Any]:
    """Return the manifest's fields of the last batch, prepared for the next one.

    Args:
        note: receives a message for each repair.
        interval: as for `recover`.
        other_sources: Spark's checkpoint has other sources than the manifest.

    Raises:
        EngineError: rows were deleted before the job read them.
        StateError: as `recover`.
        SpecError: a loss is accepted for a name that is not a Kafka source.
    """
    host = load_batch(manifest)
    raise_all(unknown_loss_errors(settings.accept_loss, plan))
    losses = []
    if host and topics:
        check_sources(host, plan)
        losses = topics.losses(host.get(TOPICS, {}), load_offsets(host).sources)
    go_on = accept_losses(losses, settings.accept_loss)
    for loss in losses:
        note(f"accepted: {loss.error.message}")
    return recover(
        checkpoint,
        manifest,
        plan,
        note,
        interval=interval,
        accepted=go_on,
        asked=settings.rebuild,
        other_sources=other_sources,
    )
