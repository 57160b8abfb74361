"""`state check`, `state gc`, `state copy`, `state restore`."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from watersmeet.cli.state_commands.show import StateLocation, tick_of
from watersmeet.errors import EngineError, StateError, format_count
from watersmeet.history.segments import copy_history
from watersmeet.objects.settings import STORE, store_at, store_of
from watersmeet.runtime.spark.checkpoint.directory import LOCK, Checkpoint
from watersmeet.runtime.spark.checkpoint.rebuild import archive_spark_files
from watersmeet.sinks.part_mark import REPLACE_NEWER_FILES, SET_ASIDE_FOLDER
from watersmeet.spec.options.files import local_path
from watersmeet.state.copy import copy_newest, damage_in, verify_files
from watersmeet.state.garbage_collection import garbage_in
from watersmeet.state.manifest import FOLDERS, PARTS, Manifest, load, manifest_name, manifest_names

# `state check`: all that is kept is read and compared with its checksums. `state gc`: orphans go.


@dataclass
class StateVerification:
    """Findings of a check.

    Args:
        files: Number of files read, each once.
        problems: Problems by tick; those of the newest tick make the state unusable.
        orphans: Names of files that no retained tick needs.
    """

    ticks: list[int] = field(default_factory=list)
    files: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield f"checked {format_count(len(self.ticks), 'tick')}, {format_count(self.files, 'file')}"
        for tick, problem in self.problems:
            yield f"tick {tick:,}: {problem}"
        if self.orphans:
            yield (
                f"{format_count(len(self.orphans), 'file')} that no restorable tick needs: "
                "the job deletes them"
                " later, `watersmeet state gc` at once"
            )
        if not self.problems:
            yield "all files are there and match their checksums"


def verify_state(place: StateLocation) -> StateVerification:
    """Read all of the state. The job may be running.

    Raises:
        StateError: there is no state.
    """
    store, result, whole = place.checkpoint.store, StateVerification(), set[str]()
    needed = set[str]()
    place.ticks()
    for read in (place.checkpoint.find_owner, place.checkpoint.intent, place.checkpoint.settings):
        try:
            read()
        except StateError as error:
            result.problems.append((tick_of(place.ticks()[-1]), error.message))
    stored = {name for folder in FOLDERS for name in store.names(folder)}
    for name in place.ticks():
        try:
            manifest = load(store, name)
            problems = [error.message for error in damage_in(manifest, store, whole)]
        except StateError as error:
            manifest, problems = None, [error.message]
        if name not in manifest_names(store):
            continue  # the job has gone on, and its files with it
        result.ticks.append(tick_of(name))
        result.problems += [(tick_of(name), problem) for problem in problems]
        if manifest is not None:
            needed |= manifest.files()
            whole |= set() if problems else manifest.names()
    result.files = len(needed)
    if not any("manifest" in problem for _, problem in result.problems):
        result.orphans = sorted(stored - needed)
    return result


def collect_garbage(place: StateLocation) -> list[str]:
    """Remove what no kept tick names; the names.

    Raises:
        StateError: there is no state; the job is running; a kept tick cannot be read, so nobody knows what it
            names; a tick was interrupted, which has to be repeated by what it left.
    """
    place.require_directory()
    with place.checkpoint.lock():
        store = place.checkpoint.store
        ticks = place.ticks()
        begun = interrupted_tick(place.checkpoint, tick_of(ticks[-1]))
        if begun is not None:
            raise StateError(
                f"tick {begun:,} was interrupted, and the next run repeats it from these files",
                code="tick-interrupted",
                hint="run the job again: its next tick removes what is not needed",
            )
        needed = set[str]().union(*(load(store, name).files() for name in ticks))
        store.sweep()
        garbage = garbage_in(store, ticks, needed)
        store.delete_all(garbage)
    return garbage


def interrupted_tick(checkpoint: Checkpoint, committed: int) -> int | None:
    """Return the tick after the last committed one if it was begun and must be repeated.

    Returns None if no files of that tick exist.
    """
    following = committed + 1
    begun = any(name.startswith(f"work/{following}-") for name in checkpoint.store.names("work"))
    return following if begun else None


# `state copy`, and the savepoint of `stop`: the same state in another directory or object store.


def copy_state(place: StateLocation, to: str) -> Iterator[str]:
    """Copy the state, and say what was copied.

    Args:
        to: a directory, or the URL of a store (reached as the job's own, if its settings say how).

    Raises:
        StateError: there is no state, it is damaged, or ``to`` is no free place.
        EngineError: ``to`` cannot be written.
        SpecError: ``to`` is the URL of no store.
    """
    with free_place(place, to) as target:
        place.ticks()
        stopped = place.checkpoint.holder() is None
        begun = list[Manifest]()
        with _lock_target(target), _clean_up_on_failure(target):
            manifest = copy_newest(place.checkpoint.store, target.store, begun.append)
            target.owner(manifest.owner)
            settings = place.checkpoint.settings()
            if settings is not None:
                target.keep_settings(*settings)
            copy_history(place.checkpoint.store, target.store)
    files = format_count(len(manifest.files()), "file")
    yield f"copied tick {manifest.tick:,} ({files}) to {target.place} and verified the copy"
    pending = interrupted_tick(place.checkpoint, manifest.tick) if stopped else None
    if pending is not None:
        yield (
            f"tick {pending:,} was interrupted; what it may have written is known only to the original, which"
            " repeats it"
        )
    job = [place.named] if place.text is not None else ["JOB.SQL"]
    if target.stored_job is not None:
        own = shlex.join(["watersmeet", "run", *job, "--checkpoint", f"{place.checkpoint.root}-copy"])
        yield f"To go on from the copy, add SET {STORE} = '{target.place}'; to the job, then: {own}"
    else:
        flags = ["--rebuild-spark-checkpoint"]
        if not stopped or pending is not None:
            flags.append(REPLACE_NEWER_FILES)
        own = shlex.join(["watersmeet", "run", *job, "--checkpoint", target.place, *flags])
        yield f"To go on from the copy: {own}"
    yield "Never run the original and the copy at the same time: they write to the same sinks."


@contextmanager
def _clean_up_on_failure(target: Checkpoint) -> Iterator[None]:
    """Remove the files of a failed copy, so that the directory is free for the next attempt.

    The directory is locked. A copy that another command made there in the meantime stays.

    Raises:
        StateError: The directory already contains a state.
    """
    if manifest_names(target.store):
        raise _not_empty_error(target)
    try:
        yield
    except BaseException:
        _remove_contents(target)
        raise


def _remove_contents(target: Checkpoint) -> None:
    for path in target.root.iterdir() if target.stored_job is None else ():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK:
            path.unlink(missing_ok=True)


@contextmanager
def _lock_target(target: Checkpoint) -> Iterator[None]:
    """Create and lock the target directory of a copy.

    Raises:
        EngineError, StateError: It cannot be created or locked.
    """
    with ExitStack() as held:
        try:
            held.enter_context(target.lock())
        except EngineError as error:
            if error.code != "checkpoint-not-writable":
                raise
            raise EngineError(
                f"the state cannot be copied: {error.message}",
                code=error.code,
                hint="use a directory that you may write to",
            ) from None
        yield


def check_free(place: StateLocation, to: str) -> None:
    """Check by writing that a copy can be made there, before a run is stopped for it.

    Creates the directory.

    Raises:
        StateError: It is not empty, or it is a store that cannot be written.
        EngineError: It cannot be written.
        SpecError: ``to`` is not the URL of a store.
    """
    with free_place(place, to) as target, _lock_target(target):
        _remove_contents(target)


@contextmanager
def free_place(place: StateLocation, to: str) -> Iterator[Checkpoint]:
    """Return ``to`` as the location of a state.

    Raises:
        StateError: The location is not empty.
    """
    if not to.strip():
        raise StateError(
            "the target of the copy is empty",
            code="no-place",
            hint="pass a directory or the URL of an object store",
        )
    if to.startswith("file:"):
        to = local_path(to) or to
    if "://" in to:
        store = store_at(to, place.settings)
        with tempfile.TemporaryDirectory() as folder:
            yield _free(Checkpoint(folder, store))
    else:
        place.check_outside(Path(to))
        yield _free(Checkpoint(Path(to)))


def _free(target: Checkpoint) -> Checkpoint:
    if target.stored_job is None:
        taken = target.root.exists() and (
            not target.root.is_dir() or any(path.name != LOCK for path in target.root.iterdir())
        )
    else:
        taken = target.stored_job.is_reset_unfinished() or target.stored_job.find_owner() is not None
    if taken:
        raise _not_empty_error(target)
    return target


def _not_empty_error(target: Checkpoint) -> StateError:
    return StateError(
        f"{target.place} is not empty",
        code="not-empty",
        hint="use an empty or a new directory",
    )


# `state restore`: the state is again what it was after an earlier tick that is kept.


@dataclass(frozen=True)
class RestorePlan:
    """``tick``: to which the state goes back; ``later``: the manifests that go, newest first."""

    place: StateLocation
    tick: int
    later: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield descriptions of the effects of the restore."""
        where, newest = self.place.checkpoint.place, tick_of(self.later[0])
        yield f"Restore {where} from tick {newest:,} to tick {self.tick:,}:"
        yield f"  deletes the state of {format_count(len(self.later), 'later tick')} for good"
        if self.place.checkpoint.stored_job is not None:
            yield "  a run on another machine can commit no more: stop it first"
        yield f"  the job reads again what came after tick {self.tick:,}"
        yield from (f"  {said}" for said in _sink_effects(self.place))

    def run(self) -> None:
        """Restore the state of the earlier tick.

        A kill in between leaves the state of some tick between the two, without the interrupted tick: the
        files that record how that tick was started and partitioned are deleted before any manifest.
        Otherwise a later tick with the same number would take them for its own.

        Raises:
            StateError: The job is running or has run since the plan was made, the state of the tick is not
                complete, or files cannot be deleted.
        """
        checkpoint = self.place.checkpoint
        with checkpoint.lock():
            if tuple(self.place.ticks()[::-1][: len(self.later)]) != self.later:
                raise StateError(
                    "the job has run since the state was read",
                    code="state-moves-on",
                    hint="run `watersmeet state ls` again, then restore",
                )
            store = checkpoint.store
            verify_files(load(store, self.place.ticks()[-1 - len(self.later)]), store)
            if checkpoint.spark.exists():
                archive_spark_files(checkpoint)
            self._forget_interrupted()
            left = store.delete_all(self.later)
            if left:
                raise StateError(
                    f"{format_count(left, 'later manifest')} could not be removed",
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
        """Remove everything that an interrupted tick left.

        Raises:
            StateError: Some files could not be removed.
        """
        checkpoint = self.place.checkpoint
        checkpoint.forget_begun(after=self.tick)
        left = checkpoint.store.delete_all(
            [name for folder in (PARTS, "work") for name in checkpoint.store.names(folder)]
        )
        if left:
            raise StateError(
                f"{format_count(left, 'file')} of the interrupted tick could not be removed",
                code="state-not-written",
                hint="check the permissions, and restore again",
            )


def plan_restore(place: StateLocation, tick: int) -> RestorePlan:
    """Determine the effects of a restore to ``tick``; change nothing.

    Raises:
        StateError: The tick is not retained, or is the newest.
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
    return RestorePlan(place, tick, tuple(names[: ticks.index(tick) : -1]))


def _sink_effects(place: StateLocation) -> Iterator[str]:
    """Yield descriptions of what happens to the output of later ticks."""
    if place.text is None:
        yield "sinks keep the rows of later ticks: name the job's file, not its checkpoint, to see each"
        return
    from watersmeet.cli.job_file import job_in
    from watersmeet.plan.checks.endpoints import written_sinks
    from watersmeet.runtime.spark.job.column_inference import ColumnInference
    from watersmeet.sinks.base import CallsInTasks
    from watersmeet.sinks.registry import make_sink

    infer = ColumnInference(str(place.checkpoint.root), store=store_of(place.settings))
    job = job_in(place.text, place.named, infer=infer)
    for sink in written_sinks(job):
        if sink.traits.files:
            means = f"run once with {REPLACE_NEWER_FILES}, which moves its later files to {SET_ASIDE_FOLDER}"
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
