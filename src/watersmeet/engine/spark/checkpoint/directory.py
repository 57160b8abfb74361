"""The checkpoint directory: ``spark`` (Spark's), ``state`` (ours), and small files beside them.

* ``lock``: held by the running driver (flock); a second one is refused.
* ``job``: who owns the state, made once: a new checkpoint is another owner.
* ``intent``: the last tick that no batch of Spark stands for (one without rows, or the end of input), with
  its clock. Written before anything of that tick goes out; after a crash it is run first, as it was: a part
  that was published under its number must not be taken for one of the batch that comes next.
* ``settings``: what may change from run to run but not within a tick (lags, output columns, …).

A local or mounted, shared file system.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from watersmeet.engine.spark.checkpoint import small_files
from watersmeet.engine.spark.checkpoint.small_files import read_value, write_value
from watersmeet.engine.spark.checkpoint.spark_files import REBUILD, SparkFiles
from watersmeet.errors import EngineError, StateError
from watersmeet.state.manifest import FOLDERS
from watersmeet.state.store import FILE_MODE, LocalStore, make_private

_INTENT_HINT = (
    "it says whether a tick without rows (an idle source, or the end of input) was interrupted. Restore the "
    "checkpoint directory and the sinks from copies of one moment. If the job was stopped cleanly, nothing "
    "was interrupted: then remove the file and run again"
)
_SETTINGS_HINT = (
    "it says how the last run was set, for the case that it was interrupted in the middle of a tick. If the "
    "job's text and its flags are what they were then, remove the file and run again"
)

NAMES = frozenset({"lock", "job", "intent", "settings", "spark", "state", "spark.new"})
OLD = "spark.old-"
"""What was put aside when Spark's files were made anew; the rest of the name is when."""

HALF = ".reset"
"""What the name of a checkpoint directory that is being removed ends with."""


@dataclass(frozen=True)
class Offsets:
    """What Spark wrote before batch ``batch``: the whole text, its clock, and per source the end offsets."""

    batch: int
    text: str
    clock_us: int
    sources: tuple[str, ...]

    @classmethod
    def of(cls, batch: int, text: str) -> Offsets:
        """From the text. Raises: ValueError or KeyError when it is none of Spark's."""
        _, metadata, *sources = text.split("\n")
        return cls(batch, text, int(json.loads(metadata)["batchTimestampMs"]) * 1000, tuple(sources))


@dataclass(frozen=True)
class Intent:
    """A tick of the engine's own: without rows, or the end of input (``end``)."""

    tick: int
    clock_us: int
    end: bool


class Checkpoint:
    """Paths and small files of one checkpoint directory; see the module."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(os.path.abspath(os.path.expanduser(os.fspath(root))))
        self.spark = self.root / "spark"
        self.state = self.root / "state"
        self.spark_files = SparkFiles(self.spark)

    @property
    def spark_url(self) -> str:
        return f"file://{self.spark}"  # not as_uri(): Hadoop does not decode %25

    @property
    def store(self) -> LocalStore:
        return LocalStore(self.state)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for this process.

        Raises:
            EngineError: it cannot be made or written.
            StateError: another run holds it.
        """
        try:
            if not self.root.is_dir():
                make_private(self.root)
            for folder in ("manifests", *FOLDERS):
                make_private(self.state / folder)
            handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, FILE_MODE)
        except OSError as error:
            raise EngineError(
                f"the checkpoint directory {self.root} cannot be written: {error.strerror or error}",
                code="checkpoint-not-writable",
                hint="--checkpoint DIR names a directory that you may write to",
            ) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            if error.errno != errno.EWOULDBLOCK:
                raise EngineError(
                    f"the file system of {self.root} does not lock files ({error.strerror}); by the lock two "
                    "runs of a job are kept apart",
                    code="checkpoint-not-lockable",
                    hint="keep the checkpoint on another file system: a local disk, or NFS with its locks",
                ) from None
            raise StateError(
                f"another run of the job uses the checkpoint directory {self.root}",
                code="checkpoint-locked",
                hint="stop it first, or give this job a directory of its own: --checkpoint DIR",
            ) from None
        try:
            small_files.sweep(self.root)
            yield
        finally:
            os.close(handle)

    def owner(self, expected: str | None = None) -> str:
        """Who owns the state; made when there is none.

        ``expected``: what the newest manifest says. Raises: StateError when the file says something else.
        """
        path = self.root / "job"
        if expected:
            hint = f"the id of this state is {expected}, as its manifest says: remove the file, and run again"
        else:
            hint = "no tick was committed with it: remove the file, and run again with an empty sink"
        stored = read_value(path, hint)
        if stored is None:
            write_value(path, {"id": expected or uuid.uuid4().hex})
            return self.owner(expected)
        if expected and stored["id"] != expected:
            raise StateError(
                f'the file "{path}" is that of another checkpoint directory',
                code="checkpoint-mixed",
                hint=hint,
            )
        return str(stored["id"])

    def intend(self, intent: Intent) -> None:
        """Record a tick that no batch of Spark stands for, before anything of it goes out."""
        write_value(
            self.root / "intent", {"tick": intent.tick, "clock_us": intent.clock_us, "end": intent.end}
        )

    def intent(self) -> Intent | None:
        """The last tick that was recorded so; None when there was none."""
        stored = read_value(self.root / "intent", _INTENT_HINT)
        return Intent(**stored) if stored is not None else None

    def settings(self) -> tuple[str, dict[str, str]] | None:
        """How the last run was set: a digest, and the settings by name; None before the first."""
        stored = read_value(self.root / "settings", _SETTINGS_HINT)
        return (str(stored["digest"]), dict(stored["settings"])) if stored is not None else None

    def keep_settings(self, digest: str, settings: Mapping[str, str]) -> None:
        write_value(self.root / "settings", {"digest": digest, "settings": dict(settings)})

    def query_id(self) -> str | None:
        """Spark's id of the streaming query, None before the first start."""
        return self.spark_files.query_id()

    def last_planned(self) -> int | None:
        return max(self.spark_files.numbers("offsets"), default=None)

    def last_committed(self) -> int | None:
        return max(self.spark_files.numbers("commits"), default=None)

    def offsets(self, batch: int) -> Offsets:
        """What Spark wrote before ``batch``. Raises: StateError when that is not there."""
        path = self.spark / "offsets" / str(batch)
        try:
            return Offsets.of(batch, path.read_text())
        except (OSError, ValueError, KeyError, TypeError):
            raise StateError(
                f"Spark's offsets of batch {batch} cannot be read from {path}",
                code="spark-checkpoint-damaged",
                hint=REBUILD,
            ) from None


def half_of(checkpoint: Checkpoint) -> Path:
    """What the checkpoint directory is called while it is being removed; it may have been named by a link."""
    root = Path(os.path.realpath(checkpoint.root))
    return root.with_name(root.name + HALF)


def check_not_half_gone(checkpoint: Checkpoint, reset: str) -> None:
    """Whether a run may begin. ``reset``: the command that finishes a reset.

    Raises:
        StateError: a reset was interrupted, and what it left is not to be taken for a job's.
    """
    if half_of(checkpoint).is_dir():
        raise StateError(
            f"a reset of {checkpoint.root} was interrupted: some of what the job left behind is still there",
            code="reset-unfinished",
            hint=f"finish it: {reset}",
        )
