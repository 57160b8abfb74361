"""Whether a run can go on from the state that its checkpoint has, as far as it is known without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from watersmeet.engine.driver.opening.changed_queries import check_not_finished, check_same_job
from watersmeet.engine.driver.opening.changed_sources import are_others
from watersmeet.engine.driver.opening.plan_for_state import plan_for_state
from watersmeet.engine.spark.checkpoint.directory import Checkpoint, check_not_half_gone
from watersmeet.engine.spark.checkpoint.moved_files import moves_of
from watersmeet.engine.spark.checkpoint.restart import batch_in, check_ahead
from watersmeet.engine.spark.job.settings import RunSettings
from watersmeet.errors import SeveralErrors, WatersmeetError
from watersmeet.plan.model.job import JobPlan
from watersmeet.state.manifest import Manifest, load_newest


@dataclass(frozen=True)
class StateReport:
    """What is wrong with a state, and whose it is: None, if nobody owns it yet. ``is_known``: it could be
    read."""

    problems: tuple[WatersmeetError, ...]
    owner: str | None = None
    is_known: bool = False


def check_state(checkpoint: Checkpoint, plan: JobPlan, settings: RunSettings) -> StateReport:
    """Look at a checkpoint and its state, and change nothing."""
    again = f"watersmeet reset JOB.sql --checkpoint {settings.checkpoint}"
    try:
        check_not_half_gone(checkpoint, again)
        checkpoint.check_free()
        manifest = load_newest(checkpoint.store)
        stored = checkpoint.owner_there()
    except WatersmeetError as error:
        return StateReport((error,))
    owner = stored if manifest is None else manifest.owner or stored
    problems = tuple(_problems(checkpoint, manifest, plan, settings))
    return StateReport(problems, owner, is_known=True)


def _problems(
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
            moves_of(manifest, plan, checkpoint.store)
        is_mended = settings.rebuild or bool(settings.accept_loss)
        if is_over or is_mended or (manifest is not None and are_others(manifest, plan)):
            return
        if checkpoint.stored_job is not None:  # Spark's files are made of the state
            checkpoint.check_not_lost()
        else:
            check_ahead(checkpoint, None if manifest is None else batch_in(manifest), plan)
    except SeveralErrors as several:
        yield from several.errors
    except WatersmeetError as error:
        yield error
