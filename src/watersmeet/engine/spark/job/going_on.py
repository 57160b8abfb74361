"""From where a run goes on: what the state remembers, once rows that are gone, files that were lost, and
sources that came or went are seen to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from watersmeet.engine.driver.opening.changed_sources import goes_on
from watersmeet.engine.spark.checkpoint.changed_sources import with_sources
from watersmeet.engine.spark.checkpoint.directory import Checkpoint
from watersmeet.engine.spark.checkpoint.host import TOPICS, offsets_in
from watersmeet.engine.spark.checkpoint.moved_files import Moves, moves_of
from watersmeet.engine.spark.checkpoint.restart import batch_in, check_sources, recover
from watersmeet.engine.spark.job.settings import RunSettings
from watersmeet.engine.spark.sources.topics import Topics, accepted
from watersmeet.errors import SpecError, near_names, raise_all
from watersmeet.plan.model.job import JobPlan
from watersmeet.state.manifest import Manifest


def of_the_sources(
    manifest: Manifest, plan: JobPlan, checkpoint: Checkpoint, settings: RunSettings
) -> Manifest:
    """The manifest as it is for the sources that the job reads now. Raises: StateError as `with_sources`."""
    host = with_sources(
        manifest.host,
        manifest.sources,
        plan,
        goes_on(manifest, plan),
        checkpoint.store,
        settings.inferred,
    )
    return manifest.model_copy(update={"host": host})


def with_moved_files(
    manifest: Manifest | None,
    plan: JobPlan,
    checkpoint: Checkpoint,
    settings: RunSettings,
    note: Callable[[str], None],
    check: Callable[[], object],
) -> tuple[Manifest | None, Moves]:
    """The manifest with the new paths of files that were moved; a local checkpoint of Spark gets them, too.

    Args:
        check: called before anything is changed.

    Raises:
        EngineError, StateError: as `moves_of` and `Moves.move_log`.
    """
    moves = moves_of(manifest, plan, checkpoint.store)
    if manifest is None or not moves:
        return manifest, moves
    check()
    if checkpoint.stored_job is None and not settings.rebuild:
        done = moves.move_log(checkpoint, batch_in(manifest))
        moved = [*moves.notes, *([done] if done else [])]
    else:
        moved = moves.notes
    for one in moved:
        note(one)
    host = moves.relocate(manifest.host, checkpoint.store)
    return manifest.model_copy(update={"host": host}), moves


def unknown_losses(accepted: Iterable[str], plan: JobPlan) -> list[SpecError]:
    """Return an error for each name of which a loss is accepted and that is no Kafka source."""
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


def recovered(
    manifest: Manifest | None,
    plan: JobPlan,
    checkpoint: Checkpoint,
    topics: Topics,
    settings: RunSettings,
    note: Callable[[str], None],
    interval: int,
    other_sources: bool,
) -> dict[str, Any]:
    """What the manifest remembers of the last batch, for the next one.

    Args:
        note: told what was done.
        interval: as for `recover`.
        other_sources: Spark's checkpoint is of other sources than the manifest.

    Raises:
        EngineError: rows are gone that were not read.
        StateError: as `recover`.
        SpecError: a loss is accepted of what is no Kafka source.
    """
    host = batch_in(manifest)
    raise_all(unknown_losses(settings.accept_loss, plan))
    losses = []
    if host and topics:
        check_sources(host, plan)
        losses = topics.losses(host.get(TOPICS, {}), offsets_in(host).sources)
    go_on = accepted(losses, settings.accept_loss)
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
