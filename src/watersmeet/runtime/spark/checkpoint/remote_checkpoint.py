"""Spark's checkpoint when the state is in an object store.

What counts is the manifest, and what the next tick was begun with (`stored_job`). Spark's files are left as
they are when they say the same; else they are put aside and made of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from watersmeet.errors import StateError
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.commit import ResumePoint, explain_fencing
from watersmeet.runtime.coordinator.restore.changed_queries import are_others
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, Intent
from watersmeet.runtime.spark.checkpoint.moved_files import MovedSources
from watersmeet.runtime.spark.checkpoint.rebuild import archive_spark_files, find_damage, rebuild
from watersmeet.runtime.spark.checkpoint.restart import load_batch
from watersmeet.runtime.spark.checkpoint.spark_positions import BATCH, OFFSETS, QUERY_ID
from watersmeet.state.manifest import Manifest


def align_spark_files(
    checkpoint: Checkpoint,
    host: Mapping[str, Any],
    begun: Mapping[str, Any] | None,
    plan: JobPlan,
    interval: int,
) -> str | None:
    """Make Spark's files match the state.

    Args:
        host: the batch fields of the manifest; empty if there was no batch.
        begun: the same fields of the next batch, if a run began one.
        interval: as for `rebuild`.

    Returns:
        A message that says what was done; None if nothing was necessary.
    """
    if begun is not None and OFFSETS not in begun:
        begun = None
    if not host and begun is None:
        if checkpoint.query_id() is None or checkpoint.last_committed() is None:
            return None
        return (
            "Spark's checkpoint there belonged to another state; it was moved to "
            f"{archive_spark_files(checkpoint)}"
        )
    if _is_aligned(checkpoint, host, begun, plan):
        return None
    batch = int((begun or host)[BATCH])
    aside = rebuild(checkpoint, host, plan, interval, planned=begun)
    what = "which the next run repeats" if begun is not None else "which is complete"
    return f"Spark's checkpoint was rebuilt from the state, up to batch {batch}, {what}" + (
        f"; the old one was moved to {aside}" if aside else ""
    )


def _is_aligned(
    checkpoint: Checkpoint, host: Mapping[str, Any], begun: Mapping[str, Any] | None, plan: JobPlan
) -> bool:
    last = int(host[BATCH]) if host else -1
    planned, committed = checkpoint.last_planned(), checkpoint.last_committed()
    if checkpoint.query_id() != (begun or host)[QUERY_ID] or planned is None:
        return False
    if planned > last + 1 or planned < last or (committed is not None and committed > last):
        return False
    if host and find_damage(checkpoint, host, plan) is not None:
        return False
    if begun is None:
        return True
    try:
        return checkpoint.offsets(last + 1).text == str(begun[OFFSETS])
    except StateError:
        return False


class TickIntent:
    """Intent of a run's next tick: the input of the tick, stored with a remote state.

    It does nothing for a state in the checkpoint directory, where Spark's files and ``intent`` contain
    this information.

    ``is_due``: an earlier run began the next tick with a batch of Spark.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._tick = 0
        self._planned: int | None = None
        self._is_known = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="begun")
        self.is_due = False

    def fit(
        self, tick: int, manifest: Manifest | None, plan: JobPlan, interval: int, moves: MovedSources
    ) -> list[str]:
        """Align Spark's files with the state before the run's first tick, ``tick``.

        See `align_spark_files`.

        Returns:
            Messages that say what was done.

        Raises:
            StateError: the state that Spark's files continue from does not exist.
            EngineError: as `MovedSources.check_times`.
        """
        self._tick = tick
        if self._checkpoint.stored_job is None:
            return []
        self._checkpoint.check_not_lost()
        begun = self._checkpoint.stored_job.begun(tick, _writer_id(manifest))
        if moves and begun is not None and OFFSETS in begun:
            moves.check_times(load_batch(manifest), begun, self._checkpoint.store)
            begun = moves.relocate(begun, self._checkpoint.store)
        self._is_known = begun is not None
        self._planned = int(begun[BATCH]) if begun is not None and OFFSETS in begun else None
        self.is_due = begun is not None and OFFSETS in begun
        if manifest is not None and are_others(manifest, plan):
            return []
        said = align_spark_files(self._checkpoint, load_batch(manifest), begun, plan, interval)
        return [] if said is None else [said]

    def told(self, error: Exception, goes_on_from: ResumePoint | None) -> Exception:
        """Return the error that the run ends with; see `explain_fencing`."""
        stored = self._checkpoint.stored_job
        return explain_fencing(
            error, goes_on_from, None if stored is None or self._is_known else stored.begun
        )

    def forget(self) -> None:
        """Delete the intent of the run's first tick, which now uses other input.

        No part of the tick was emitted.
        """
        if self._checkpoint.stored_job is not None:
            self._checkpoint.stored_job.forget(self._tick)
        self.is_due = False

    def forget_if_replanned(self) -> None:
        """Delete the intent if Spark's repaired files do not plan its batch; Spark plans it again.

        This happens, for example, when the files were rebuilt from the manifest.
        """
        if self.is_due and self._checkpoint.last_planned() != self._planned:
            self.forget()

    def remember(self, after: Manifest | None, host: Mapping[str, Any]) -> Callable[[], None]:
        """Store that the tick that follows the manifest ``after`` is made of a batch.

        Returns:
            A function that waits until the intent is stored.
        """
        self.is_due, self._is_known = False, True
        if self._checkpoint.stored_job is None:
            return lambda: None
        tick = 1 if after is None else after.tick + 1
        begin = self._checkpoint.stored_job.begin
        return self._thread.submit(begin, tick, dict(host), _writer_id(after)).result

    def intend(self, after: Manifest | None, intent: Intent) -> None:
        """Remember that the tick ``after`` that manifest's is one of our own."""
        self._is_known = True
        self._checkpoint.intend(intent, _writer_id(after))

    def intent(self, after: Manifest | None) -> Intent | None:
        """Return the intent of the tick that follows manifest ``after``.

        Returns:
            The intent, if the tick began as one of the project's own ticks, without a batch of Spark; else
            None.
        """
        tick = 1 if after is None else after.tick + 1
        intent = self._checkpoint.intent(tick, _writer_id(after))
        if intent is not None and intent.tick > tick:  # left by a restore that was killed
            self._checkpoint.forget_begun(after=tick)
        return intent if intent is not None and intent.tick == tick else None

    def close(self) -> None:
        self._thread.shutdown()


def _writer_id(manifest: Manifest | None) -> str:
    return "" if manifest is None else manifest.writer
