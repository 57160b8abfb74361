"""Spark's own files in a checkpoint: what they are called, whether they are whole, putting them on disk.

    metadata             the query's id
    offsets/N            what batch N reads up to, written before it begins
    commits/N            batch N is done; may be lost: Spark gives the batch again, and it is passed over
    sources/S/L          the files that source S lists as its L-th step; every tenth (`L.compact`) has all
    sources/S/0          of a Kafka source S: the offsets at which it began

Spark writes these without syncing them. What a batch rests on is put on disk here before anything of it is
published: a manifest or a part never outlives the offsets that it was made by.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from watersmeet.durable_files import MAX_THREADS, sync, sync_all
from watersmeet.errors import StateError, place_error
from watersmeet.parallel import parallel_map

VERSION = "v1"
COMPACT = ".compact"

REBUILD = (
    "run the job once with --rebuild-spark-checkpoint, which rebuilds Spark's files from the job's"
    " state and keeps the old ones; no row is lost or read twice"
)


class SparkFiles:
    """Files of the Spark checkpoint in ``root``; see the module."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._on_disk: set[str] = set()

    def sync(self, batch: int) -> None:
        """Put on disk what ``batch`` rests on. Costs what is new since the last call."""
        first = not self._on_disk
        folders = [self.root / "offsets", self.root / "commits", *self._sources()]
        new = [
            self.root / "metadata",
            *(self.root / "offsets" / file_name for file_name in _batch_file_names(batch)),
        ]
        if batch > 0:
            new += [
                path
                for kind in ("offsets", "commits")
                for path in (self.root / kind / file_name for file_name in _batch_file_names(batch - 1))
            ]
        new += [Path(entry) for folder in self._sources() for entry in _list_entries(folder)]
        new = [path for path in new if os.fspath(path) not in self._on_disk]
        synced = [
            path for path, there in zip(new, parallel_map(_try_sync, new, MAX_THREADS), strict=True) if there
        ]
        self._on_disk.update(map(os.fspath, synced))
        touched = {path.parent for path in synced}
        touched_folders = [folder for folder in folders if folder in touched or (first and folder.is_dir())]
        if first:
            above = (self.root / "sources", self.root, self.root.parent)
            touched_folders += [folder for folder in above if folder.is_dir()]
        sync_all(touched_folders)

    def query_id(self) -> str | None:
        """Return the id of the query; None if its file is missing or has no id."""
        try:
            return str(json.loads(read_file_text(self.root / "metadata"))["id"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def numbers(self, kind: str) -> list[int]:
        """List in order the batches that have a file in folder ``kind``: ``offsets`` or ``commits``."""
        try:
            names = os.listdir(self.root / kind)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(name) for name in names if name.isdigit())

    def drop_torn_commits(self) -> list[int]:
        """Remove commits that a power failure left without content; which. Batches without one come again."""
        torn = self.torn_commits()
        for number in torn:
            for name in _batch_file_names(number):
                (self.root / "commits" / name).unlink(missing_ok=True)
        return torn

    def torn_commits(self) -> list[int]:
        """List the batches whose commit files are empty or incomplete."""
        return [number for number in self.numbers("commits") if not self._is_commit(number)]

    def _is_commit(self, number: int) -> bool:
        try:
            version, content = read_file_text(self.root / "commits" / str(number)).split("\n", 1)
            return version == VERSION and isinstance(json.loads(content), dict)
        except (OSError, ValueError):
            return False

    def file_log(self, source: int, step: int) -> list[dict[str, Any]]:
        """Load the entries of the files that source ``source`` listed in step ``step``.

        Raises:
            ValueError: the log file is missing or incomplete.
        """
        folder = self.root / "sources" / str(source)
        for name in (str(step), f"{step}{COMPACT}"):
            path = folder / name
            if path.exists():
                lines = [log_line for log_line in log_lines(path) if log_line["batchId"] == step]
                if not lines:
                    raise ValueError(f"{path} belongs to another batch")
                return lines
        raise ValueError(f"{folder / str(step)} is missing")

    def check_file_log(self, source: int, last: int, expected: set[tuple[int, str]]) -> None:
        """Check that Spark's log lists the ``expected`` (step, path) pairs up to step ``last``.

        Raises:
            ValueError: the log differs; the message says what is wrong.
        """
        folder = self.root / "sources" / str(source)
        files: set[tuple[int, str]] = set()
        for step in range(last, -1, -1):
            compact = folder / f"{step}{COMPACT}"
            path = compact if compact.exists() else folder / str(step)
            files |= {(log_line["batchId"], log_line["path"]) for log_line in log_lines(path)}
            if path == compact:
                break
        if files != expected:
            raise ValueError(f"{folder} lists other files than those that the job read")

    def first_offsets(self, source: int) -> str | None:
        """Return Spark's text of the first offsets of Kafka source ``source``; None if missing."""
        try:
            text = read_file_text(self.root / "sources" / str(source) / "0")
            version, offsets = text.lstrip("\0").split("\n", 1)
            return offsets if version == VERSION and isinstance(json.loads(offsets), dict) else None
        except (OSError, ValueError):
            return None

    def file_logs(self, source: int) -> list[Path]:
        """Return the files of the log of a source."""
        names = _list_entries(self.root / "sources" / str(source))
        return [path for path in map(Path, names) if path.name.removesuffix(COMPACT).isdigit()]

    def last_step(self, source: int) -> int:
        """Return the last step in the log of a source; -1 if the log is empty."""
        folder = self.root / "sources" / str(source)
        names = (os.path.basename(entry).removesuffix(COMPACT) for entry in _list_entries(folder))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _sources(self) -> list[Path]:
        try:
            return sorted(path for path in (self.root / "sources").iterdir() if path.is_dir())
        except FileNotFoundError:
            return []


def damaged_list_error(error: ValueError) -> StateError:
    """Return the error of a run whose list of files read, as Spark keeps it, is not whole."""
    return StateError(
        f"Spark's list of files read is damaged: {error}", code="spark-checkpoint-damaged", hint=REBUILD
    )


def read_file_text(path: Path) -> str:
    """Return the text of one of Spark's files.

    Raises:
        EngineError: this process has no right to read it, which is no damage.
        OSError, ValueError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except PermissionError as error:
        raise place_error(error, "Spark's checkpoint") or error from None


def log_text(lines: Sequence[Any]) -> str:
    """Format JSON values as a file of offsets, commits or a source's log."""
    texts = (json.dumps(line, separators=(",", ":"), ensure_ascii=False) for line in lines)
    return "\n".join([VERSION, *texts])


def log_lines(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a file of a source's log. Raises: ValueError: it is not whole."""
    try:
        version, *lines = read_file_text(path).split("\n")
        entries = [json.loads(line) for line in lines if line]
        if version != VERSION or not all({"path", "timestamp", "batchId"} <= line.keys() for line in entries):
            raise ValueError
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, AttributeError):
        raise ValueError(f"{path} is incomplete") from None
    return entries


def _batch_file_names(batch: int) -> tuple[str, str]:
    """Return the names of a batch's file and of Hadoop's checksum file, which may not exist."""
    return str(batch), f".{batch}.crc"


def _list_entries(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from (
                entry.path for entry in entries if entry.is_file() and not entry.name.endswith(".tmp")
            )
    except FileNotFoundError:
        return


def _try_sync(path: Path) -> bool:
    try:
        sync(path)
    except FileNotFoundError:
        return False
    return True
