"""Whether a run can go on from the state that its checkpoint has, as far as it is known without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from watersmeet.errors import SeveralErrors, WatersmeetError
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.driver import check_not_finished
from watersmeet.runtime.coordinator.restore.changed_queries import are_others, check_same_job
from watersmeet.runtime.coordinator.restore.plan_for_state import plan_for_state
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, check_reset_finished
from watersmeet.runtime.spark.checkpoint.moved_files import find_moved_sources
from watersmeet.runtime.spark.checkpoint.restart import check_recoverable, load_batch
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.state.manifest import Manifest, load_newest


@dataclass(frozen=True)
class StateCheck:
    """Problems of a state and its owner; the owner is None if nobody owns the state yet.

    ``is_known``: the state could be read.
    """

    problems: tuple[WatersmeetError, ...]
    owner: str | None = None
    is_known: bool = False


def check_state(checkpoint: Checkpoint, plan: JobPlan, settings: RunSettings) -> StateCheck:
    """Look at a checkpoint and its state, and change nothing."""
    again = f"watersmeet reset JOB.sql --checkpoint {settings.checkpoint}"
    try:
        check_reset_finished(checkpoint, again)
        checkpoint.check_free()
        manifest = load_newest(checkpoint.store)
        stored = checkpoint.find_owner()
    except WatersmeetError as error:
        return StateCheck((error,))
    owner = stored if manifest is None else manifest.owner or stored
    problems = tuple(_find_problems(checkpoint, manifest, plan, settings))
    return StateCheck(problems, owner, is_known=True)


def _find_problems(
    checkpoint: Checkpoint, manifest: Manifest | None, plan: JobPlan, settings: RunSettings
) -> Iterator[WatersmeetError]:
    is_over = manifest is not None and manifest.finished
    try:
        if manifest is not None:
            plan = plan_for_state(plan, manifest)
            check_same_job(manifest, plan, may_change=settings.change_queries)
        if is_over and not settings.finish:
            check_not_finished(manifest)
        if not is_over:
            find_moved_sources(manifest, plan, checkpoint.store)
        is_mended = settings.rebuild or bool(settings.accept_loss)
        if is_over or is_mended or (manifest is not None and are_others(manifest, plan)):
            return
        if checkpoint.stored_job is not None:  # Spark's files are made of the state
            checkpoint.check_not_lost()
        else:
            check_recoverable(checkpoint, None if manifest is None else load_batch(manifest), plan)
    except SeveralErrors as several:
        yield from several.errors
    except WatersmeetError as error:
        yield error
