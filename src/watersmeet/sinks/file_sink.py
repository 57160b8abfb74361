"""Directories of Parquet, JSON or CSV: exactly once, and readers see whole files only.

    path/_attempts/<attempt>/<insert>-<tick>/        staged: by Spark's tasks, any number of times
    path/_ticks/<insert>-<tick, 12 digits>/          committed: by one rename on the driver
    path/_ticks/<insert>-<tick, 12 digits>/_tick     what its rows were made from: the identity of its tick
    path/<insert>-<tick, 12 digits>-<partition>…     its files, moved up from there one by one
    path/_owner                                      whose parts these are
    path/_set_aside/<time>/                          parts that were taken out, if that was asked for

Why this is exactly once: the name of a part says its insert and tick, and a repeated tick has the same rows.
So a part that is there *with the same identity* stays, and the attempt that came second is dropped; one with
another identity is refused, as are parts of ticks that the state has not come to. Spark's tasks write only
into their own attempt's directory, and only the driver that started the attempt ever renames: what is left of
a killed job can write where it likes in there, it never lands in the final place. Files and directories are
synced before and after the rename, so a file that can be seen is also whole after a power failure. Files
that a killed run has not moved up are moved up by the next one, before anything else. A tick without rows
publishes nothing.

Readers: names that begin with ``_`` are invisible to Spark, so ``spark.read.parquet(path)`` reads the rows.
The files of a tick appear one after the other, in the order of ticks; a tick is complete when nothing but
``_tick`` is in its directory.

A local (or mounted) file system only: object stores have no atomic rename of a directory. On a cluster, the
directory has to be one that all machines share.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from watersmeet.durable_files import check_folder, make_folders, sync, sync_all
from watersmeet.errors import EngineError, SpecError, raise_all
from watersmeet.sinks.base import (
    TEXT_OPTIONS,
    ArrowPart,
    Frame,
    Omission,
    RowPrinter,
    Schema,
    Sink,
    check_unique_names,
    columns_of,
)
from watersmeet.sinks.directory import OWNER, Ownership, foreign_directory_error, translate_write_errors
from watersmeet.sinks.part_mark import (
    SET_ASIDE_FOLDER,
    Identity,
    Resumed,
    check_same,
    format_parts,
    newer_parts,
    read_mark,
    write_mark,
)
from watersmeet.sinks.row_counts import OPENERS, lines_in, records_in
from watersmeet.spec.job_options import MOST_KEPT_TICKS
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.files import (
    OURS,
    check_written,
    format_of,
    local_path,
    path_of,
    sink_problems,
)
from watersmeet.spec.options.spark import TIMESTAMPS
from watersmeet.spec.uncountable_sinks import untold_by

ATTEMPTS = "_attempts"
TICKS = "_ticks"

_EMPTY_LINES = Omission(
    "CSV has no line for a row of one column that is NULL",
    "say how it is written ('nullValue' = 'NULL'), put a second column out, or write JSON or Parquet",
)

_PART = re.compile(r".+-\d{12}")
_FILE = re.compile(r"(.+-\d{12})-\d{5,}([-.].+)?")
_BY_SPARK = re.compile(r"part-(\d+)-[0-9a-f-]{36}(.*)")
MOST_MARKS, MARKS_APART = MOST_KEPT_TICKS, 1_000
"""How many marks of ticks are kept of an insert: as many ticks as a state can go back; and how many ticks lie
between two removals of others."""
_DEFAULTS = {"csv": {**TEXT_OPTIONS["csv"], "header": "true"}, "json": TEXT_OPTIONS["json"]}
"""What Spark's writer is told unless the user says otherwise: what a file source here expects to read."""


class FileSink(Sink):
    """See the module. Options: ``path``, ``format`` (parquet), others are Spark's writer's (`WRITERS`)."""

    idempotent = True
    stages = True
    sets_aside = True

    def __init__(self, spec: SinkSpec, console: RowPrinter | None = None) -> None:
        self._spec = spec
        raise_all(sink_problems(spec))
        self._format = format_of(spec.options)
        self._path = Path(os.path.abspath(local_path(path_of(spec.options)) or ""))
        self._options = dict(_DEFAULTS.get(self._format, {}))
        self._options |= {k.lower(): v for k, v in spec.options.items() if k.lower() not in OURS}
        self._last: dict[str, tuple[int, str]] = {}  # insert -> (tick, attempt) that was published
        self._ownership: Ownership | None = None

    @property
    def path(self) -> Path:
        return self._path

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        columns = columns_of(schema)
        check_unique_names(columns, self._spec)
        check_written(self._spec, self._format, columns)
        left_out = self.leaves_out(len(columns))
        if left_out is not None and not self.tells_rows:
            raise SpecError(
                f'{left_out.what}, and with these options of "{self._spec.name}" a lost row would not'
                " be detected",
                code="rows-left-out",
                hint=left_out.hint,
            )
        try:
            make_folders(self._path)
            check_folder(self._path)
            self._take(owner)
            self._finish_publishing()
            shutil.rmtree(self._path / ATTEMPTS, ignore_errors=True)
        except OSError as error:
            raise self._not_writable(error) from error

    def check_target(self, owner: str | None, wait_s: float | None) -> None:
        """See `ChecksTarget`."""
        try:
            check_folder(self._path)
            if not self._path.is_dir():
                return
            mark = self._path / OWNER
            stored = mark.read_text(errors="replace").strip() if mark.exists() else None
            if (stored is None or stored != owner) and self._has_parts():
                raise foreign_directory_error(self._path, self._spec.name, has_parts=True)
        except OSError as error:
            raise self._not_writable(error) from None

    def _not_writable(self, error: OSError) -> EngineError:
        return EngineError(
            f'sink "{self._spec.name}" cannot write to {self._path}: {error.strerror or error}',
            code="sink-not-writable",
            hint="free some space there and run again, or use another path"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else "use a directory that the job's user can write to",
        )

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        staged = self._build_staging_path(insert, tick, attempt)
        if self._format == "parquet":
            # Spark's default is INT96, which newer readers take for a legacy
            frame.sparkSession.conf.set(TIMESTAMPS, "TIMESTAMP_MICROS")
        (
            frame.write.format(self._format)
            .mode("overwrite")
            .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
            .options(**self._options)
            .save(f"file://{staged}")  # not as_uri(): Hadoop does not decode %25
        )

    @property
    def tells_rows(self) -> bool:
        """Parquet files hold the number of their rows, JSON has a line for each, and CSV a record."""
        return untold_by(self._spec) is None

    def leaves_out(self, columns: int) -> Omission | None:
        """Return the omission of CSV records that would be empty lines, which Spark does not write.

        None if no record of the sink can be an empty line.
        """
        written = self._options.get("nullvalue"), self._options.get("emptyvalue", '""')
        return _EMPTY_LINES if self._format == "csv" and columns == 1 and not all(written) else None

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        from pyarrow import parquet

        staged = self._build_staging_path(insert, tick, attempt)
        if self._format == "parquet":
            return sum(parquet.read_metadata(file).num_rows for file in staged.glob("*.parquet"))
        files = list(staged.glob("part-*"))
        if self._format == "json":
            return sum(map(lines_in, files))
        records = map(records_in, files)
        return sum(max(0, rows - 1) for rows in records) if self._has_header else sum(records)

    def arrow_part(self, schema: Any, insert: str, tick: int, attempt: str) -> ArrowPart | None:
        """Return a part for Parquet with default options and plain types; else None."""
        from watersmeet.sinks.parquet import HINT, ParquetPart, can_write

        if self._format != "parquet" or self._options or not can_write(schema):
            return None
        staged = self._build_staging_path(insert, tick, attempt)
        with translate_write_errors(staged, HINT):
            staged.mkdir(parents=True, exist_ok=True)
        return ParquetPart(str(staged))

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        newer = newer_parts(
            self._spec.name,
            str(self._path),
            self.parts(),
            inserts,
            lambda insert, tick: read_mark(self._final(insert, tick)),
            resumed,
        )
        if not newer:
            return []
        aside = self._path / SET_ASIDE_FOLDER / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        try:
            aside.mkdir(parents=True, exist_ok=True)
            files = self.row_files()
            for folder in (self._final(*part) for part in newer):
                for moved in (*files.get(folder.name, ()), folder):  # the mark last: until then it is one
                    os.rename(moved, _free_name(aside / moved.name))
            for folder in (aside, aside.parent, self._path / TICKS, self._path):
                sync(folder)
        except OSError as error:
            raise EngineError(
                f'sink "{self._spec.name}" could not set parts aside: {error.strerror or error}',
                code="sink-failed",
            ) from error
        return [f"moved to {aside}, where readers do not see them: {format_parts(newer)}"]

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        final = self._final(insert, tick)
        return final.exists() or (self._path / final.name).exists()  # the latter before `prepare` moved it

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        if self._ownership is not None:
            self._ownership.check(self._spec.name)
        final = self._final(insert, tick)
        if final.exists():
            check_same(self._spec.name, str(self._path), insert, tick, read_mark(final), identity)

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        staged, final = self._build_staging_path(insert, tick, attempt), self._final(insert, tick)
        try:
            self.check(insert, tick, identity)
            there = True  # known by what was done: looked at again, the directory may be away
            if final.exists():
                self._show(final)
                shutil.rmtree(staged, ignore_errors=True)
            elif not staged.exists():
                if self._last.get(insert) == (tick, attempt):
                    return False
                raise EngineError(
                    f'the staged rows of tick {tick} for "{self._spec.name}" are gone from {staged}',
                    code="staged-rows-gone",
                    hint="check whether another job writes to the same directory, and run again, which"
                    " repeats the tick",
                )
            elif self._keep_data_files(staged):
                write_mark(staged, identity)
                sync_all([*staged.iterdir(), staged])
                make_folders(final.parent)
                os.rename(staged, final)
                sync(final.parent)
                self._show(final)
                if tick % MARKS_APART == 0:
                    self._remove_old_marks()
            else:
                shutil.rmtree(staged, ignore_errors=True)
                there = False
            self._last[insert] = (tick, attempt)
            _remove_if_empty(staged.parent)
            return there
        except OSError as error:
            raise EngineError(
                f'sink "{self._spec.name}" could not publish tick {tick}: {error.strerror or error}',
                code="sink-failed",
                hint="check the disk (space, permissions) and run again, which repeats the tick",
            ) from error

    def discard(self, attempt: str) -> None:
        directory = self._path / ATTEMPTS / _safe(attempt)
        shutil.rmtree(directory, ignore_errors=True)
        _remove_if_empty(directory.parent)

    def close(self) -> None:
        if self._ownership is not None:
            self._ownership.release()
            self._ownership = None

    def parts(self) -> list[tuple[str, int]]:
        """Return the published (insert, tick) pairs, sorted."""
        names = [part.name for part in self.part_folders()]
        return sorted((unquote(name[:-13]), int(name[-12:])) for name in names)

    def part_folders(self) -> list[Path]:
        """Return the folders of published parts, each with its identity."""
        folders = [self._path / TICKS, self._path] if (self._path / TICKS).is_dir() else [self._path]
        return sorted(
            (folder / name for folder in folders for name in os.listdir(folder) if _PART.fullmatch(name)),
            key=lambda part: part.name,
        )

    def row_files(self) -> dict[str, list[Path]]:
        """Return the files with rows, by the name of their part's folder."""
        files: dict[str, list[Path]] = {}
        for name in sorted(os.listdir(self._path)):
            if of_part := _FILE.fullmatch(name):
                files.setdefault(of_part[1], []).append(self._path / name)
        for folder in self.part_folders():
            files.setdefault(folder.name, []).extend(sorted(folder.glob("[!._]*")))
        return files

    def _finish_publishing(self) -> None:
        """Publish the files of each insert's last part, which a killed run may have left.

        Also publish the parts of old versions, which stored files in directories.
        """
        last: dict[str, Path] = {}
        for folder in self.part_folders():
            if folder.parent.name == TICKS:
                last[folder.name[:-13]] = folder
                continue
            self._show(folder)
            make_folders(self._path / TICKS)
            os.rename(folder, self._path / TICKS / folder.name)
            sync(self._path / TICKS)
            sync(self._path)
        for folder in last.values():
            self._show(folder)
        self._remove_old_marks()

    def _show(self, folder: Path) -> None:
        """Move the files of a part to where readers see them."""
        hidden = sorted(folder.glob("[!._]*"))
        for file in hidden:
            os.rename(file, self._path / _shown_name(folder.name, file.name))
        if hidden:
            sync(self._path)

    def _remove_old_marks(self) -> None:
        """Remove the marks of ticks to which no state can go back."""
        by_insert: dict[str, list[Path]] = {}
        for folder in self.part_folders():
            by_insert.setdefault(folder.name[:-13], []).append(folder)
        for folders in by_insert.values():
            for folder in folders[:-MOST_MARKS]:
                shutil.rmtree(folder, ignore_errors=True)  # a later removal tries again

    @property
    def _has_header(self) -> bool:
        return self._options["header"].strip().lower() == "true"

    def _build_staging_path(self, insert: str, tick: int, attempt: str) -> Path:
        return self._path / ATTEMPTS / _safe(attempt) / f"{_safe(insert)}-{tick}"

    def _final(self, insert: str, tick: int) -> Path:
        return self._path / TICKS / f"{_safe(insert)}-{tick:012d}"

    def _take(self, owner: str | None) -> None:
        """Hold the directory for this job, and remove what killed runs left in it."""
        if owner is None or self._ownership is not None:
            return
        if not (self._path / OWNER).exists() and self._has_parts():
            raise foreign_directory_error(self._path, self._spec.name, has_parts=True)
        self._ownership = Ownership.take(self._path, owner, self._spec.name, has_parts=self._has_parts)
        for name in os.listdir(self._path):
            if name.startswith(f"{OWNER}-"):
                (self._path / name).unlink(missing_ok=True)

    def _has_parts(self) -> bool:
        """Return True if there are published rows.

        Raises:
            EngineError: The directory contains other files.
        """
        if self.parts():
            return True
        foreign = sorted(name for name in os.listdir(self._path) if name[0] not in "._")
        if foreign:
            raise EngineError(
                f'{self._path} contains files that this job did not write, such as "{foreign[0]}" (sink'
                f' "{self._spec.name}")',
                code="sink-not-empty",
                hint="use an empty directory, or move these files away",
            )
        return False

    def _keep_data_files(self, staged: Path) -> bool:
        """Remove all but files with rows (Spark's checksums, markers, empty files); whether any is left."""
        kept = False
        for entry in sorted(staged.iterdir()):
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)  # readers do not see what is left of it
            elif entry.name.startswith((".", "_")) or not self._has_rows(entry):
                os.unlink(entry)
            else:
                kept = True
        return kept

    def _has_rows(self, file: Path) -> bool:
        if self._format == "parquet":
            from pyarrow import parquet

            return bool(parquet.read_metadata(file).num_rows)
        lines = OPENERS.get(file.suffix)
        if lines is None:  # another compression: an empty file does no harm
            return True
        with lines(file, "rb") as content:
            first = content.readline()
            if self._format == "json" or not self._has_header:
                return bool(first)
            # In doubt it has rows: a field may hold a line's end, and another line's end may be asked for.
            return bool(first) and ("linesep" in self._options or bool(content.read(1)))


def _shown_name(part: str, file: str) -> str:
    """Return the name by which readers see a file of a part, which has one of each of Spark's numbers."""
    by_spark = _BY_SPARK.fullmatch(file)
    return f"{part}-{by_spark[1]}{by_spark[2]}" if by_spark else f"{part}-{file.removeprefix('part-')}"


def _safe(name: str) -> str:
    """Return ``name`` as a directory name that is visible to readers.

    The result has no separator and does not look like a partition column.
    """
    quoted = quote(name, safe="")
    return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted[:1] in ("_", ".") else quoted


def _free_name(path: Path) -> Path:
    """Return ``path`` if nothing exists there, else ``path`` with the first free number."""
    free, number = path, 1
    while free.exists():
        free, number = path.with_name(f"{path.name}.{number}"), number + 1
    return free


def _remove_if_empty(directory: Path) -> None:
    """Remove the directory, and the one above when that is the attempts' own, if nothing is in them."""
    try:
        os.rmdir(directory)
        if directory.parent.name == ATTEMPTS:
            os.rmdir(directory.parent)
    except OSError:
        pass
