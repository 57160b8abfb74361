"""`state copy`, and the savepoint of `stop`: the same state in another directory or object store."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from watersmeet.cli.state_commands.check import interrupted
from watersmeet.cli.state_commands.place import Place
from watersmeet.engine.spark.checkpoint.directory import Checkpoint
from watersmeet.engine.spark.checkpoint.held import LOCK
from watersmeet.errors import EngineError, StateError, counted
from watersmeet.history.copied import copy_history
from watersmeet.objects.setting import STORE, store_at
from watersmeet.sinks.part_mark import SET_ASIDE
from watersmeet.spec.options.files import local_path
from watersmeet.state.copied import copy_newest
from watersmeet.state.manifest import Manifest, manifest_names


def copied(place: Place, to: str) -> Iterator[str]:
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
        with _held(target), _or_nothing(target):
            manifest = copy_newest(place.checkpoint.store, target.store, begun.append)
            target.owner(manifest.owner)
            settings = place.checkpoint.settings()
            if settings is not None:
                target.keep_settings(*settings)
            copy_history(place.checkpoint.store, target.store)
    files = counted(len(manifest.files()), "file")
    yield f"copied tick {manifest.tick:,} ({files}) to {target.place} and verified the copy"
    pending = interrupted(place.checkpoint, manifest.tick) if stopped else None
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
            flags.append(SET_ASIDE)
        own = shlex.join(["watersmeet", "run", *job, "--checkpoint", target.place, *flags])
        yield f"To go on from the copy: {own}"
    yield "Never run the original and the copy at the same time: they write to the same sinks."


@contextmanager
def _or_nothing(target: Checkpoint) -> Iterator[None]:
    """What is written into a directory goes again if it does not become a copy, so that the place is free for
    the next try. It is locked; a copy that another command made there meanwhile stays. Raises: StateError."""
    if manifest_names(target.store):
        raise _taken(target)
    try:
        yield
    except BaseException:
        _empty(target)
        raise


def _empty(target: Checkpoint) -> None:
    for path in target.root.iterdir() if target.stored_job is None else ():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK:
            path.unlink(missing_ok=True)


@contextmanager
def _held(target: Checkpoint) -> Iterator[None]:
    """The place of a copy, made and held. Raises: EngineError, StateError."""
    with ExitStack() as held:
        try:
            held.enter_context(target.locked())
        except EngineError as error:
            if error.code != "checkpoint-not-writable":
                raise
            raise EngineError(
                f"the state cannot be copied: {error.message}",
                code=error.code,
                hint="use a directory that you may write to",
            ) from None
        yield


def check_free(place: Place, to: str) -> None:
    """That a copy can be made there, by writing: before a run is stopped for it. A directory is there then.

    Raises:
        StateError: it is no free place, or a store that cannot be written.
        EngineError: it cannot be written.
        SpecError: ``to`` is the URL of no store.
    """
    with free_place(place, to) as target, _held(target):
        _empty(target)


@contextmanager
def free_place(place: Place, to: str) -> Iterator[Checkpoint]:
    """``to`` as the place of a state. Raises: StateError if something is there."""
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
        taken = target.stored_job.is_half_gone() or target.stored_job.owner_there() is not None
    if taken:
        raise _taken(target)
    return target


def _taken(target: Checkpoint) -> StateError:
    return StateError(
        f"{target.place} is not empty",
        code="not-empty",
        hint="use an empty or a new directory",
    )
