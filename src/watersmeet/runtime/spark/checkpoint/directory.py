"""The checkpoint directory: Spark's part, ours, small files, and the lock of a run."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from watersmeet.durable_files import check_folder, sync
from watersmeet.errors import EngineError, StateError
from watersmeet.objects.remote import RemoteStore
from watersmeet.runtime.spark.checkpoint.job_record import StoredJob
from watersmeet.runtime.spark.checkpoint.spark_log import REBUILD, SparkFiles, read_file_text
from watersmeet.state.checksums import add_checksum, verify_checksum
from watersmeet.state.manifest import FOLDERS
from watersmeet.state.store import FILE_MODE, STAGED_SUFFIX, LocalStore, Store, make_private
from watersmeet.state.stored_record import damage_error, translate_os_errors

# The small files of a checkpoint directory: one value each, sealed (`state.checksums`), put in place whole.


def write_value(path: Path, value: Any) -> None:
    """Replace a file's content with ``value``, durably.

    Raises:
        StateError: the file cannot be written.
    """
    with translate_os_errors(path):
        _write_durably(path, add_checksum(path.name, json.dumps(value)))


def _write_durably(path: Path, data: bytes) -> None:
    staged = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{STAGED_SUFFIX}")
    handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with open(handle, "wb") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staged, path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    sync(path.parent)


def read_value(path: Path, hint: str) -> dict[str, Any] | None:
    """Load the JSON value of a file; None if the file does not exist.

    Args:
        hint: what the user can do if the file is damaged.

    Raises:
        StateError: the file is damaged.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    what = f'file "{path}"'
    value = json.loads(verify_checksum(path.name, data, what=what, hint=hint))
    if not isinstance(value, dict):
        raise damage_error(what, "its content is not valid", hint)
    return value


def remove_staged_files(folder: Path) -> None:
    """Remove incomplete files of writers that were killed or ran out of disk space."""
    for file in folder.glob(f".*{STAGED_SUFFIX}"):
        try:
            file.unlink()
        except OSError:  # held open elsewhere: the next run tries again
            continue


# The file ``lock`` of a checkpoint directory: held by one run at a time (flock), whose id is in it.
#
# A local or mounted, shared file system: what is held is so on all machines that see the directory.

LOCK = "lock"
"""The name of the file."""

_PAUSES_S = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.1, 0.15, 0.2, 0.3, None)
"""Whoever looks who holds the lock (`holder`) shares it for a moment, again and again."""


class DirectoryLock:
    """A lock that is held until `release`.

    Args:
        run: unique id of the run.

    Raises:
        OSError: the file cannot be made or written.
        EngineError: the file system does not lock files.
        StateError: another run holds it.
    """

    def __init__(self, root: Path) -> None:
        self.run = uuid.uuid4().hex
        self._handle = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            _lock(self._handle)
        except OSError as error:
            os.close(self._handle)
            if error.errno != errno.EWOULDBLOCK:
                raise EngineError(
                    f"the file system of {root} does not support file locks ({error.strerror}), which"
                    " prevent two runs of a job at a time",
                    code="checkpoint-not-lockable",
                    hint="put the checkpoint on another file system: a local disk, or NFS with locks",
                ) from None
            raise _in_use_error(root) from None
        try:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, self.run.encode(), 0)
        except OSError:
            os.close(self._handle)
            raise

    def release(self) -> None:
        os.close(self._handle)


def check_free(root: Path) -> None:
    """Raise StateError if a run holds the directory and does not end within a second."""
    for pause_s in _PAUSES_S:
        if holder(root) is None:
            return
        if pause_s is not None:
            time.sleep(pause_s)
    raise _in_use_error(root)


def holder(root: Path) -> str | None:
    """Return the id of the run that holds the directory's lock; None if no run does.

    The directory may be read-only, such as a snapshot or a read-only mount of a state to copy. Several
    processes may check at the same time.
    """
    try:
        handle = os.open(root / LOCK, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno != errno.EWOULDBLOCK:
            raise
        return os.pread(handle, 100, 0).decode(errors="replace")
    else:
        return None
    finally:
        os.close(handle)


def _in_use_error(root: Path) -> StateError:
    return StateError(
        f"another run of the job uses the checkpoint directory {root}",
        code="checkpoint-locked",
        hint="stop it first (watersmeet stop), or use another directory: --checkpoint DIR",
    )


def _lock(handle: int) -> None:
    for pause_s in _PAUSES_S:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if pause_s is None or error.errno != errno.EWOULDBLOCK:
                raise
            time.sleep(pause_s)
        else:
            return


# The checkpoint directory: ``spark`` (Spark's), ``state`` (ours), and small files beside them.
#
# * ``lock``: held by the running driver (flock); a second one is refused.
# * ``job``: who owns the state, made once: a new checkpoint is another owner.
# * ``intent``: the last tick that no batch of Spark stands for (one without rows, or the end of input),
#   with
#   its clock. Written before anything of that tick goes out; after a crash it is run first, as it was: a
#     part
#   that was published under its number must not be taken for one of the batch that comes next.
# * ``stop``: asks the run that holds the directory to end.
# * ``settings``: what may change from run to run but not within a tick (lags, output columns, …).
#
# A local or mounted, shared file system. Where the state is in an object store, so is all that makes the
# job the same job (`stored_job`); of these names only ``spark``, ``lock`` and ``store``, which says where
# the state is, are there then, and any machine can make them anew.

_INTENT_HINT = (
    "if the job was stopped cleanly, remove the file and run again; else restore the checkpoint"
    " directory and the sinks from copies of the same moment. The file records an interrupted tick"
    " without rows"
)
_SETTINGS_HINT = (
    "if the job's text and flags are those of the last run, remove the file and run again. The file"
    " records the settings of the last run, in case a tick was interrupted"
)

_OWNER_HINT = "remove the file and run the job again: the newest manifest also records the owner of the state"

STORE = "store"
"""Where the state is, if that is not in the directory, and who owns it."""

_STORE_HINT = "remove the file, and run again"

NAMES = frozenset({"lock", "job", "intent", "settings", "stop", "spark", "state", "spark.new", STORE})
OLD = "spark.old-"
"""What was put aside when Spark's files were made anew; the rest of the name is when."""

REMOVAL_SUFFIX = ".reset"
"""What the name of a checkpoint directory that is being removed ends with."""


@dataclass(frozen=True)
class Offsets:
    """Offsets that Spark wrote before batch ``batch``.

    They consist of the whole text, its clock, the end offsets of each source, and the settings that the
    query retains from batch to batch.
    """

    batch: int
    text: str
    clock_us: int
    sources: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: int, text: str) -> Offsets:
        """Parse the text of an offsets file.

        Raises:
            ValueError, KeyError, TypeError: Spark did not write the text.
        """
        _, line, *sources = text.split("\n")
        metadata = json.loads(line)
        clock_us = int(metadata["batchTimestampMs"]) * 1000
        return cls(batch, text, clock_us, tuple(sources), dict(metadata.get("conf", {})))


@dataclass(frozen=True)
class Intent:
    """A tick of the engine's own: without rows, or the end of input (``end``)."""

    tick: int
    clock_us: int
    end: bool


class Checkpoint:
    """Paths and small files of one checkpoint directory; see the module."""

    def __init__(self, root: str | os.PathLike[str], store: RemoteStore | None = None) -> None:
        self._stored = store
        self._run: str | None = None
        self.stored_job = None if store is None else StoredJob(store)
        self.root = Path(os.path.abspath(os.path.expanduser(os.fspath(root))))
        self.spark = self.root / "spark"
        self.state = self.root / "state"
        self.spark_files = SparkFiles(self.spark)

    @property
    def job(self) -> str:
        """Name of the job in views of several jobs: the name of its directory.

        >>> Checkpoint(".watersmeet/orders").job
        'orders'
        """
        return self.root.name or "job"

    @property
    def spark_url(self) -> str:
        return f"file://{self.spark}"  # not as_uri(): Hadoop does not decode %25

    @property
    def store(self) -> Store:
        """Raises: StateError when the state of this directory is, or was, somewhere else."""
        self._check_place()
        return self._stored or LocalStore(self.state)

    @property
    def place(self) -> str:
        """Location of the state, as shown to users: a path or a URL."""
        return str(self.root) if self._stored is None else self._stored.place.url

    def _check_place(self) -> None:
        before = read_value(self.root / STORE, _STORE_HINT)
        url = None if self._stored is None else self._stored.place.url
        if url is not None and before is None and any(LocalStore(self.state).names("manifests")):
            raise StateError(
                f"the job's state is in {self.state}, but state_store is {url}",
                code="state-elsewhere",
                hint="remove state_store to continue the job, or use another checkpoint directory to"
                " start over in that store",
            )
        if before is not None and before["url"] != url:
            raise StateError(
                f"the job's state is in {before['url']}, but "
                + ("state_store is not set" if url is None else f"state_store is {url}"),
                code="state-elsewhere",
                hint=f"SET state_store = '{before['url']}' to continue the job, or use another"
                " checkpoint directory to start over",
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the directory for this process.

        Raises:
            EngineError: it cannot be made or written.
            StateError: another run has locked it, or it is the checkpoint of a query of Spark's own.
        """
        self._check_not_spark()
        try:
            if not self.root.is_dir():
                make_private(self.root)
            if self._stored is None:
                for folder in ("manifests", *FOLDERS):
                    make_private(self.state / folder)
            hold = DirectoryLock(self.root)
        except OSError as error:
            raise self._not_writable(error) from None
        self._run = hold.run
        try:
            remove_staged_files(self.root)
            self._check_place()
            if self._stored is not None and not (self.root / STORE).exists():
                self._stored.check()  # a name that was mistyped is not to be held on to
                write_value(self.root / STORE, {"url": self._stored.place.url})
            yield
        finally:
            self._run = None
            hold.release()

    def check_free(self) -> None:
        """Make the checks of `lock` without locking the directory.

        Raises:
            EngineError: the directory cannot be made or written.
            StateError: another run has locked it, the state is somewhere else, or it is the checkpoint of a
                query of Spark's own.
        """
        self._check_not_spark()
        try:
            if (self.root / LOCK).exists():
                os.close(os.open(self.root / LOCK, os.O_RDWR))
            else:
                check_folder(self.root)
        except OSError as error:
            raise self._not_writable(error) from None
        with suppress(OSError):  # a file system without locks is refused by `lock`
            check_free(self.root)
        self._check_place()

    def _check_not_spark(self) -> None:
        """Raise if a query of Spark's own has its checkpoint here: both would store files in ``state``."""
        is_of_a_query = (self.root / "metadata").is_file() and (self.root / "offsets").is_dir()
        if is_of_a_query and not (self.root / "job").exists() and not (self.root / STORE).exists():
            raise StateError(
                f"{self.root} is a checkpoint of Spark Structured Streaming, from which watersmeet"
                " cannot resume",
                code="checkpoint-of-spark",
                hint="use an empty directory; the job then reads its sources from the beginning, or"
                " from where their options say",
            )

    def _not_writable(self, error: OSError) -> EngineError:
        return EngineError(
            f"the checkpoint directory {self.root} cannot be written: {error.strerror or error}",
            code="checkpoint-not-writable",
            hint="use a directory that you can write to: --checkpoint DIR",
        )

    def holder(self) -> str | None:
        """Return the id of the active run on this or any machine that sees the directory, or None."""
        return holder(self.root)

    def is_locked(self) -> bool | None:
        """Return True if a run has locked the directory.

        None if this is unknown: if the state is in a store, the run may be on another machine, and not every
        file system has locks.
        """
        with suppress(OSError):
            return self.holder() is not None or (None if self._stored is not None else False)
        return None

    def no_state_error(self) -> StateError:
        """Return the error of a command that needs a committed tick where there is none."""
        if self.is_locked():
            return StateError(
                f"the run that uses {self.place} has not committed its first tick yet",
                code="no-state",
                hint="wait for the first tick, then run this command again",
            )
        return StateError(
            f"there is no state in {self.place}: the job has not committed a tick there",
            code="no-state",
            hint="run the job first (watersmeet run), or name its directory: --checkpoint DIR",
        )

    def owner(self, expected: str | None = None) -> str:
        """Return the owner id of the state; create one if there is none.

        Args:
            expected: the id in the newest manifest.

        Raises:
            StateError: the file contains a different id.
        """
        if self.stored_job is not None:
            owner = self.stored_job.owner(expected)
            stored = read_value(self.root / STORE, _STORE_HINT)
            if stored is not None and stored.get("id") != owner:
                write_value(self.root / STORE, {**stored, "id": owner})
            return owner
        path = self.root / "job"
        if expected:
            hint = (
                f"remove the file and run again: the id of this state is {expected}, according to"
                " its manifest"
            )
        else:
            hint = "remove the file, empty the sink and run again: no tick was committed with it"
        stored = read_value(path, hint)
        if stored is None:
            write_value(path, {"id": expected or uuid.uuid4().hex})
            return self.owner(expected)
        if expected and stored["id"] != expected:
            raise StateError(
                f'the file "{path}" belongs to another checkpoint directory',
                code="checkpoint-mixed",
                hint=hint,
            )
        return str(stored["id"])

    def check_not_lost(self) -> None:
        """Check that the store still has the state that Spark's files continue from.

        Raises:
            StateError: the store no longer has this state.
        """
        if self.stored_job is None or self.last_committed() is None:
            return
        before = (read_value(self.root / STORE, _STORE_HINT) or {}).get("id")
        there = self.stored_job.find_owner()
        if before is None or there == before:
            return
        raise StateError(
            f"{self.place} has {'no state' if there is None else 'the state of another job'}, but"
            f" according to {self.root} this job has committed ticks there",
            code="state-lost",
            hint="check the URL and the endpoint, or restore the objects. If the job was reset on"
            f" another machine, move {self.root} away to start over",
        )

    def find_owner(self) -> str | None:
        """Return the owner id of the state; None if it has no owner yet.

        Raises:
            StateError: the file is damaged.
        """
        if self.stored_job is not None:
            return self.stored_job.find_owner()
        stored = read_value(self.root / "job", _OWNER_HINT)
        return None if stored is None else str(stored["id"])

    def intend(self, intent: Intent, follows: str = "") -> None:
        """Record a tick for which Spark runs no batch, before any of its output is published.

        Args:
            follows: writer of the manifest that the tick continues from.
        """
        if self.stored_job is not None:
            self.stored_job.begin(intent.tick, {"clock_us": intent.clock_us, "end": intent.end}, follows)
            return
        write_value(
            self.root / "intent", {"tick": intent.tick, "clock_us": intent.clock_us, "end": intent.end}
        )

    def intent(self, tick: int = 0, follows: str = "") -> Intent | None:
        """Return the last tick intent; in a remote store that of ``tick``. None if none is recorded."""
        if self.stored_job is not None:
            begun = self.stored_job.begun(tick, follows)
            is_own = begun is not None and "clock_us" in begun
            return Intent(tick, int(begun["clock_us"]), bool(begun["end"])) if begun and is_own else None
        stored = read_value(self.root / "intent", _INTENT_HINT)
        return None if stored is None else Intent(stored["tick"], stored["clock_us"], stored["end"])

    def forget_begun(self, after: int) -> None:
        """Delete the recorded intents of all ticks later than ``after``."""
        if self.stored_job is not None:
            self.stored_job.forget_after(after)
        (self.root / "intent").unlink(missing_ok=True)

    def settings(self, digest: str | None = None) -> tuple[str, dict[str, str]] | None:
        """Return the digest and the settings by name of the last run; None before the first run.

        In a remote store, return the settings with this digest.
        """
        if self.stored_job is not None:
            by_name = None if digest is None else self.stored_job.settings(digest)
            return None if digest is None or by_name is None else (digest, by_name)
        stored = read_value(self.root / "settings", _SETTINGS_HINT)
        return (str(stored["digest"]), dict(stored["settings"])) if stored is not None else None

    def keep_settings(self, digest: str, settings: Mapping[str, str]) -> None:
        if self.stored_job is not None:
            self.stored_job.keep_settings(digest, settings)
            return
        write_value(self.root / "settings", {"digest": digest, "settings": dict(settings)})

    def ask_to_stop(self, run: str) -> None:
        """Request that the run with the directory's lock end after the current tick."""
        write_value(self.root / "stop", {"run": run})

    def is_stop_requested(self) -> bool:
        """Return True if this run, which holds the directory, received a request to stop."""
        if not (self.root / "stop").exists():
            return False
        asked = read_value(self.root / "stop", "remove the file")
        return asked is not None and asked["run"] == self._run

    def forget_stop(self) -> None:
        """Delete a stop request that was meant for an earlier run."""
        if not self.is_stop_requested():
            (self.root / "stop").unlink(missing_ok=True)

    def query_id(self) -> str | None:
        """Return Spark's id of the streaming query; None before the first start."""
        return self.spark_files.query_id()

    def last_planned(self) -> int | None:
        return max(self.spark_files.numbers("offsets"), default=None)

    def last_committed(self) -> int | None:
        return max(self.spark_files.numbers("commits"), default=None)

    def offsets(self, batch: int) -> Offsets:
        """Load the offsets that Spark wrote before ``batch``.

        Raises:
            StateError: the offsets are missing or unreadable.
        """
        path = self.spark / "offsets" / str(batch)
        try:
            return Offsets.of(batch, read_file_text(path))
        except (OSError, ValueError, KeyError, TypeError):
            raise StateError(
                f"Spark's offsets of batch {batch} cannot be read from {path}",
                code="spark-checkpoint-damaged",
                hint=REBUILD,
            ) from None


def removal_path(checkpoint: Checkpoint) -> Path:
    """Return the directory's name during its removal, with symbolic links resolved."""
    root = Path(os.path.realpath(checkpoint.root))
    return root.with_name(root.name + REMOVAL_SUFFIX)


def check_reset_finished(checkpoint: Checkpoint, reset: str) -> None:
    """Raise StateError if an interrupted reset left files of the job.

    A run must not mistake these files for the state of a job.

    Args:
        reset: the command that finishes the reset.
    """
    stored = checkpoint.stored_job
    if removal_path(checkpoint).is_dir() or (stored is not None and stored.is_reset_unfinished()):
        raise StateError(
            f"a reset of {checkpoint.place} was interrupted, and some of the job's files are still there",
            code="reset-unfinished",
            hint=f"finish the reset: {reset}",
        )
