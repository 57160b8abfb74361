"""`reset`: what a job has left behind is removed, so that it can begin anew. Nothing else is touched.

What goes is the checkpoint directory, and of each file sink of the job the parts in a directory whose owner
mark is that checkpoint's. The checkpoint is renamed first, in one step, and removed last: a reset that was
killed half way is finished by the next one, and until then no run takes what is left for its own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from watersmeet.durable_files import sync
from watersmeet.errors import SpecError, StateError, WatersmeetError, format_count
from watersmeet.objects.settings import store_of
from watersmeet.plan.checks.endpoints import written_sinks
from watersmeet.runtime.spark.checkpoint.directory import (
    NAMES,
    OLD,
    STORE,
    Checkpoint,
    read_value,
    removal_path,
)
from watersmeet.sinks.directory import OWNER
from watersmeet.sinks.file_sink import ATTEMPTS, TICKS, FileSink
from watersmeet.sinks.part_mark import SET_ASIDE_FOLDER
from watersmeet.spec.model import Job, Sink
from watersmeet.spec.options.files import in_store, path_of
from watersmeet.state.manifest import load_newest

_NO_OWNER = "it says which sinks are the job's: remove those directories and the checkpoint by hand"


@dataclass(frozen=True)
class OwnedDirectory:
    """A file sink's directory that is the checkpoint's: names in it that go, and whether others stay."""

    sink: str
    path: Path
    names: tuple[str, ...]
    others: tuple[str, ...]

    def words(self) -> str:
        files = sum(not name.startswith("_") for name in self.names)
        stays = f"; other files stay: {', '.join(self.others[:3])}" if self.others else ""
        aside = ", and those that were set aside" if SET_ASIDE_FOLDER in self.names else ""
        words = f"{format_count(files, 'file')}{aside}{stays}"
        return f'sink "{self.sink}": {self.path} ({words})'


@dataclass(frozen=True)
class Reset:
    """Files and directories that a reset deletes.

    Args:
        roots: Checkpoint directories; one that an earlier reset renamed comes first.
        is_stored: True if some of the job's data is in an object store.
    """

    checkpoint: Checkpoint
    roots: tuple[Path, ...]
    owned: tuple[OwnedDirectory, ...]
    kept: tuple[str, ...]
    is_stored: bool = False

    def lines(self) -> Iterator[str]:
        """Yield descriptions of what is deleted and what stays."""
        for root in self.roots:
            yield f"checkpoint {root}{_state_in(root)}"
        if self.is_stored:
            yield f"state {self.checkpoint.place}"
            yield "  first stop a run on another machine: it is not seen from here and would lose its state"
        yield from (owned.words() for owned in self.owned)
        yield from (f"not deleted: {kept}" for kept in self.kept)

    def run(self) -> None:
        """Remove it. May be called again after a kill.

        Raises:
            StateError: a run of the job holds the checkpoint.
        """
        half = removal_path(self.checkpoint)
        with ExitStack() as held:
            if self.checkpoint.root.exists():
                held.enter_context(self.checkpoint.lock())
            if self.checkpoint.stored_job is not None:
                self.empty_sinks(self.checkpoint.stored_job.begin_reset())
                self.checkpoint.stored_job.remove()
            if half in self.roots:
                self._remove(half)
            if self.checkpoint.root.exists():
                os.rename(self.checkpoint.root, half)
                self._remove(half)

    def _remove(self, root: Path) -> None:
        self.empty_sinks(_owner_of(root))
        for entry in sorted(root.iterdir(), key=lambda entry: entry.name == "job"):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        root.rmdir()

    def empty_sinks(self, owner: str | None) -> None:
        """Delete what the checkpoint ``owner`` has written to file sinks; None: delete nothing."""
        for owned in self.owned:
            if owner is not None and _is_owned(owned.path, owner):
                _empty(owned)


def reset_text(
    text: str, source_name: str, overrides: Mapping[str, str], default: Path, *, yes: bool
) -> bool:
    """Delete everything that the job left, once the user has agreed.

    Args:
        yes: True if the user has agreed; otherwise the terminal asks.

    Returns:
        True if everything is deleted.

    Raises:
        SpecError: The terminal cannot ask.
        StateError: A run holds the checkpoint, or its directory contains something else.
    """
    from watersmeet.cli.job_file import job_in, settings_in
    from watersmeet.runtime.spark.job.column_inference import ColumnInference

    settings = settings_in(text, source_name, overrides)
    infer = ColumnInference(settings.get("checkpoint", str(default)), store=store_of(settings))
    job = job_in(text, source_name, overrides, infer=infer)
    removal = plan_reset(job, job.run.get("checkpoint", str(default)))
    if not removal.roots and not removal.is_stored:
        print(f"Nothing to delete: no checkpoint in {removal.checkpoint.root}")
        for line in removal.lines():
            print(f"  {line}")
        return True
    print("This will be deleted:")
    for line in removal.lines():
        print(f"  {line}")
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise SpecError(
                "reset needs a confirmation, but there is no terminal",
                code="not-asked",
                hint="add --yes to remove it without asking",
            )
        if input("Delete it? [y/N] ").strip().lower() not in ("y", "yes"):
            print("Nothing was deleted.")
            return False
    removal.run()
    print("Deleted. The next run starts from scratch.")
    return True


def plan_reset(job: Job, directory: str) -> Reset:
    """Determine what a reset of the job with that checkpoint directory deletes; change nothing.

    Raises:
        StateError: The directory contains something that is not part of a checkpoint.
    """
    checkpoint = Checkpoint(os.path.realpath(os.path.expanduser(directory)), store_of(job.run))
    if not checkpoint.root.name:
        raise StateError(
            f"{checkpoint.root} is not a checkpoint",
            code="not-a-checkpoint",
            hint="pass its directory (--checkpoint DIR)",
        )
    roots = [root for root in (removal_path(checkpoint), checkpoint.root) if root.is_dir()]
    for root in roots:
        _check(root)
    owners = [owner for root in roots if (owner := _owner_of(root)) is not None]
    if checkpoint.root.is_dir():
        _ = checkpoint.store  # it is where the job's text says
    stored = checkpoint.stored_job
    if stored is not None and (owner := stored.owner_of_reset() or stored.find_owner()) is not None:
        owners.append(owner)
    is_stored = stored is not None and stored.has_any_files()
    owned, kept = [], []
    for sink in written_sinks(job):
        if not sink.traits.files:
            if sink.traits.log:
                kept.append(f'sink "{sink.name}": what was sent to Kafka')
            elif sink.traits.kept_by_spark:
                kept.append(f'sink "{sink.name}": what Spark has written')
            elif sink.traits.by_key:
                kept.append(f'sink "{sink.name}": the rows of its table')
            continue
        if in_store(path_of(sink.options)):
            kept.append(f'sink "{sink.name}": its rows in {path_of(sink.options)}')
            continue
        path = FileSink(sink).path
        if any(_is_owned(path, owner) for owner in owners):
            owned.append(_list_owned_files(sink, path))
        elif path.is_dir():
            kept.append(f'sink "{sink.name}": {path}, which is not this checkpoint\'s')
    return Reset(checkpoint, tuple(roots), tuple(owned), tuple(kept), is_stored)


def _check(root: Path) -> None:
    foreign = sorted(
        entry.name
        for entry in root.iterdir()
        if entry.name not in NAMES
        and not entry.name.startswith(OLD)
        and not (entry.name.startswith(".") and entry.name.endswith(".tmp"))
    )
    if foreign:
        raise StateError(
            f"{root} contains files that are not part of a checkpoint: {', '.join(foreign[:3])}",
            code="not-a-checkpoint",
            hint="check the directory (--checkpoint DIR); move your own files away and reset again",
        )


def _owner_of(root: Path) -> str | None:
    """Return the owner of the state in a directory; None if it has no owner yet.

    Raises:
        StateError: The owner cannot be read.
    """
    stored = read_value(root / "job", _NO_OWNER)
    return None if stored is None else str(stored["id"])


def _is_owned(path: Path, owner: str) -> bool:
    try:
        return owner in (path / OWNER).read_text()
    except OSError:
        return False


def _list_owned_files(sink: Sink, path: Path) -> OwnedDirectory:
    written = FileSink(sink)
    of_rows = [file for files in written.row_files().values() for file in files]
    parts = {entry.name for entry in (*written.part_folders(), *of_rows)}
    names = [
        name
        for name in sorted(os.listdir(path))
        if name in parts
        or name in (ATTEMPTS, TICKS, SET_ASIDE_FOLDER)
        or name.startswith((OWNER, "_writable-"))
    ]
    others = sorted(set(os.listdir(path)) - set(names))
    return OwnedDirectory(sink.name, path, tuple(names), tuple(others))


def _empty(owned: OwnedDirectory) -> None:
    """Remove what is the job's; its mark last, by which a next reset knows the directory."""
    for name in sorted(owned.names, key=lambda name: name.startswith(OWNER)):
        entry = owned.path / name
        if name.startswith(OWNER):
            sync(owned.path)
            entry.unlink(missing_ok=True)
        elif entry.is_dir():
            shutil.rmtree(entry, ignore_errors=not entry.exists())
        else:
            entry.unlink(missing_ok=True)
    if not any(owned.path.iterdir()):
        owned.path.rmdir()


def _state_in(root: Path) -> str:
    """Describe the state in a directory, for people."""
    if (root / STORE).exists():
        return " (its state is in a store)"
    try:
        manifest = load_newest(Checkpoint(root).store)
    except WatersmeetError:
        return " (its state cannot be read)"
    if manifest is None:
        return " (no tick was committed)"
    return f" ({'finished' if manifest.finished else 'state'} after tick {manifest.tick:,})"
