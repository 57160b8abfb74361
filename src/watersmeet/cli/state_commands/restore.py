"""`state restore`: the state is again what it was after an earlier tick that is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from watersmeet.cli.state_commands.place import Place
from watersmeet.cli.state_commands.ticks import tick_of
from watersmeet.engine.spark.checkpoint.rebuild import put_aside
from watersmeet.errors import StateError, counted
from watersmeet.objects.setting import store_of
from watersmeet.sinks.part_mark import ASIDE, SET_ASIDE
from watersmeet.state.manifest import PARTS, load, manifest_name
from watersmeet.state.whole import verify_files


@dataclass(frozen=True)
class Restoring:
    """``tick``: to which the state goes back; ``later``: the manifests that go, newest first."""

    place: Place
    tick: int
    later: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """What it means."""
        where, newest = self.place.checkpoint.place, tick_of(self.later[0])
        yield f"Restore {where} from tick {newest:,} to tick {self.tick:,}:"
        yield f"  deletes the state of {counted(len(self.later), 'later tick')} for good"
        if self.place.checkpoint.stored_job is not None:
            yield "  a run on another machine can commit no more: stop it first"
        yield f"  the job reads again what came after tick {self.tick:,}"
        yield from (f"  {said}" for said in _of_sinks(self.place))

    def run(self) -> None:
        """Go back. A kill in between leaves the state as of some tick between the two, without the one that
        was interrupted: what that was begun with, and how it was cut, goes before any manifest does, or a
        tick that comes by its number later would take it for its own.

        Raises:
            StateError: the job is running, or has gone on since, or the state of the tick is not whole.
        """
        checkpoint = self.place.checkpoint
        with checkpoint.locked():
            if tuple(self.place.ticks()[::-1][: len(self.later)]) != self.later:
                raise StateError(
                    "the job has run since the state was read",
                    code="state-moves-on",
                    hint="run `watersmeet state ls` again, then restore",
                )
            store = checkpoint.store
            verify_files(load(store, self.place.ticks()[-1 - len(self.later)]), store)
            if checkpoint.spark.exists():
                put_aside(checkpoint)
            self._forget_interrupted()
            left = store.delete_all(self.later)
            if left:
                raise StateError(
                    f"{counted(left, 'later manifest')} could not be removed",
                    code="state-not-written",
                    hint="check the permissions, and restore again",
                )
            if self.place.ticks()[-1] != manifest_name(self.tick):
                raise StateError(
                    "another run of the job has continued since", code="state-moves-on", hint="stop it first"
                )
            self._forget_interrupted()  # of a run elsewhere that was still at it
        os.sync()  # what was removed does not come back when power goes

    def _forget_interrupted(self) -> None:
        """Nothing is left of a tick that was begun. Raises: StateError."""
        checkpoint = self.place.checkpoint
        checkpoint.forget_begun(after=self.tick)
        left = checkpoint.store.delete_all(
            [name for folder in (PARTS, "work") for name in checkpoint.store.names(folder)]
        )
        if left:
            raise StateError(
                f"{counted(left, 'file')} of the interrupted tick could not be removed",
                code="state-not-written",
                hint="check the permissions, and restore again",
            )


def planned(place: Place, tick: int) -> Restoring:
    """What going back to ``tick`` means; nothing is changed yet.

    Raises:
        StateError: it is not kept, or the newest.
    """
    names = place.ticks()
    ticks = [tick_of(name) for name in names]
    if tick not in ticks:
        kept = ", ".join(f"{kept:,}" for kept in ticks[-8:])
        raise StateError(
            f"the state of tick {tick:,} is not kept (there is {'…, ' if len(ticks) > 8 else ''}{kept})",
            code="tick-not-kept",
            hint="`watersmeet state ls` lists those that are; SET keep_ticks = N keeps the newest N",
        )
    if tick == ticks[-1]:
        raise StateError(f"the state is already that of tick {tick:,}", code="nothing-to-restore")
    load(place.checkpoint.store, names[ticks.index(tick)])
    return Restoring(place, tick, tuple(names[: ticks.index(tick) : -1]))


def _of_sinks(place: Place) -> Iterator[str]:
    """What becomes of what later ticks put out."""
    if place.text is None:
        yield "sinks keep the rows of later ticks: name the job's file, not its checkpoint, to see each"
        return
    from watersmeet.cli.job_file import job_in
    from watersmeet.engine.spark.job.inferring import Inferring
    from watersmeet.plan.checks.endpoints import written_sinks
    from watersmeet.sinks.base import CallsInTasks
    from watersmeet.sinks.registry import make_sink

    infer = Inferring(str(place.checkpoint.root), store=store_of(place.settings))
    job = job_in(place.text, place.named, infer=infer)
    for sink in written_sinks(job):
        if sink.traits.files:
            means = f"run once with {SET_ASIDE}, which moves its later files to {ASIDE}"
        elif isinstance(made := make_sink(sink), CallsInTasks):
            means = (
                "the function gets other rows under the same tick numbers: delete what it stored of later"
                " ticks, by job, INSERT and tick"
            )
        elif made.idempotent:
            means = "it has the rows of later ticks: restore it to the same moment, or the run is rejected"
        else:
            means = "it keeps the rows of later ticks and gets them again"
        yield f'sink "{sink.name}" ({sink.connector}): {means}'
