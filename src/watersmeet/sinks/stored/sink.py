"""Parquet files in an object store: exactly once, and readers never see a hole or a half.

    path/_attempts/<attempt>/<insert>-<tick>-….parquet   staged: by tasks, any number of times
    path/<insert>-<tick, 12 digits>.parquet              published: by one put, if there is nothing yet
    path/_owner                                          whose parts these are
    path/_set_aside/<time>/…                             parts that were taken out, if that was asked for

Why this is exactly once: the name of a part says its insert and tick, a put that is to create an object does
so once, and the file's own footer says what its rows were made from. A part that is there with the same
identity stays; one with another identity is refused, as are parts of ticks that the state has not come to.
Tasks put objects of their own attempts only, and the driver makes one file of those of a tick: a store has no
step that makes several objects visible at once. A tick without rows publishes nothing.

Readers: names that begin with ``_`` are invisible to Spark, so ``spark.read.parquet(path)`` reads the rows.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
from pyarrow import parquet

from watersmeet.errors import EngineError, StateError, raise_all
from watersmeet.objects.store import ObjectStore
from watersmeet.sinks.base import (
    ArrowPart,
    Frame,
    LeftOut,
    RowPrinter,
    Schema,
    StagedPart,
    check_unique_names,
    columns_of,
)
from watersmeet.sinks.by_tasks import staged_by_tasks
from watersmeet.sinks.dictionaries import dictionaries_of
from watersmeet.sinks.lake.columns import columns_wanted
from watersmeet.sinks.ownership import OWNER, of_another
from watersmeet.sinks.part_mark import ASIDE, Identity, Resumed, check_same, listed, newer_parts
from watersmeet.sinks.stored.place import (
    LARGEST,
    beneath,
    create,
    exists,
    footer_of,
    get_all,
    move,
    remove,
    stored_place,
    temporary_folder,
    there,
    told_of,
)
from watersmeet.sinks.stored.stored_part import StoredPart
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.files import sink_problems
from watersmeet.spec.options.stored_files import StoredFileOptions

ATTEMPTS = "_attempts"
_ROWS_BEFORE = "rows.parquet"
"""Name of the one object in the folder of a part, in versions that had such folders."""
_MADE_FROM = b"watersmeet.tick"
"""In a file's footer: the identity of its tick."""
_FOLDER_BEFORE = re.compile(r".+-\d{12}")
_PART = re.compile(r"(.+)-(\d{12})\.parquet")
_LEFT_S = 5.0
"""So long it is tried to remove what is garbage."""


class StoredFileSink:
    """See the module. Options: ``path``, ``compression``, ``endpoint``, ``region``."""

    idempotent = True
    stages = True
    sets_aside = True
    tells_rows = True
    appends_to = None
    keyed = None
    secrets: Mapping[str, str] = MappingProxyType({})

    def __init__(self, spec: SinkSpec, console: RowPrinter | None = None) -> None:
        self._spec = spec
        raise_all(sink_problems(spec))
        options = StoredFileOptions.of(spec.options)
        self._url, self._endpoint, self._region = options.url, options.endpoint, options.region
        self._place = stored_place(self._url, self._endpoint, self._region)
        self._compression = options.compression
        self._owner: str | None = None
        self._staged: dict[tuple[str, int, str], list[StagedPart]] = {}

    def leaves_out(self, columns: int) -> LeftOut | None:
        return None

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        columns = columns_of(schema)
        check_unique_names(columns, self._spec)
        what = f'file sink "{self._spec.name}"'
        raise_all(columns_wanted(columns, what, widened=False, forbidden="")[1])
        if owner is None or self._owner == owner:
            return
        with told_of(self._spec.name):
            self._check_store()
            self._take(owner)
            self._owner = owner
            for folder in filter(_FOLDER_BEFORE.fullmatch, there(self._place)[0]):
                move(self._place, f"{folder}/{_ROWS_BEFORE}", f"{folder}.parquet")
            with suppress(StateError):
                remove(self._place, beneath(self._place, ATTEMPTS), _LEFT_S)

    def check_target(self, owner: str | None, wait_s: float | None) -> None:
        """See `ChecksTarget`."""
        if wait_s is None:
            return
        with told_of(self._spec.name):
            store = ObjectStore(self._place)
            if not store.has(OWNER):
                self._check_nobodys()
            elif bytes(store.read(OWNER)).decode(errors="replace") != owner:
                raise of_another(self._url, self._spec.name, has_parts=bool(self.parts()))

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        with told_of(self._spec.name):
            newer = newer_parts(self._spec.name, self._url, self.parts(), inserts, self._identity, resumed)
            if not newer:
                return []
            aside = f"{ASIDE}/{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
            for insert, tick in newer:
                name = _final(insert, tick)
                move(self._place, name, f"{aside}/{name}")
        return [f"moved to {self._url}/{aside}, where readers do not see them: {listed(newer)}"]

    def write(self, frame: Frame, insert: str, tick: int, attempt: str) -> None:
        self.take_parts(insert, tick, attempt, staged_by_tasks(frame, self._part(insert, tick, attempt)))

    def arrow_part(self, schema: Any, insert: str, tick: int, attempt: str) -> ArrowPart | None:
        return self._part(insert, tick, attempt)

    def take_parts(self, insert: str, tick: int, attempt: str, parts: Sequence[StagedPart]) -> None:
        self._staged[insert, tick, attempt] = [part for part in parts if part]

    def staged_rows(self, insert: str, tick: int, attempt: str) -> int:
        return sum(int(part["rows"]) for part in self._staged[insert, tick, attempt])

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        with told_of(self._spec.name):
            return exists(self._place, _final(insert, tick))

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        with told_of(self._spec.name):
            self._check_owner()
            self._is_there(insert, tick, identity)

    def publish(self, insert: str, tick: int, attempt: str, identity: Identity) -> bool:
        key = (insert, tick, attempt)
        if key not in self._staged:
            raise EngineError(
                f'the staged rows of tick {tick} for "{self._spec.name}" are missing',
                code="staged-rows-gone",
                hint="run again, which repeats the tick",
            )
        parts = self._staged[key]
        with told_of(self._spec.name):
            is_there = self._put(parts, insert, tick, identity) if parts else False
            is_there = is_there or self._is_there(insert, tick, identity)
            if parts and not is_there:
                raise EngineError(
                    f"{self._url} no longer has the object of tick {tick}, which was written: another"
                    f' program deletes objects there (sink "{self._spec.name}")',
                    code="sink-failed",
                    hint="check what else writes there, and run again, which repeats the tick",
                )
        del self._staged[key]
        self._remove_staged(parts)
        return is_there

    def discard(self, attempt: str) -> None:
        for key in [key for key in self._staged if key[2] == attempt]:
            self._remove_staged(self._staged.pop(key))

    def close(self) -> None:
        """Nothing is held: puts that create keep runs apart."""

    def parts(self) -> list[tuple[str, int]]:
        """The published (insert, tick) pairs, sorted. Raises: StateError."""
        parts = filter(None, map(_PART.fullmatch, there(self._place)[1]))
        return sorted((_insert_of(part[1]), int(part[2])) for part in parts)

    def _put(self, parts: Sequence[StagedPart], insert: str, tick: int, identity: Identity) -> bool:
        """Whether the part was created by this call, as far as can be said."""
        with temporary_folder() as folder:
            whole = folder / "whole.parquet"
            self._compose(parts, whole, folder, identity)
            size = whole.stat().st_size
            if size > LARGEST:
                raise EngineError(
                    f"tick {tick} has {size:,} bytes for {self._url}, more than the {LARGEST:,} of one"
                    f' object (sink "{self._spec.name}"): it was not published',
                    code="tick-too-large",
                    hint="set 'compression' = 'zstd', or write to a table (delta, iceberg), and run again,"
                    " which repeats the tick",
                )
            self._check_owner()
            return create(self._place, _final(insert, tick), whole)

    def _compose(self, parts: Sequence[StagedPart], whole: Path, folder: Path, identity: Identity) -> None:
        """Make one file of the staged ones, in the order of partitions."""
        names = sorted(str(staged["name"]) for staged in parts)
        writer: parquet.ParquetWriter | None = None
        try:
            for file in get_all(self._place, names, folder):
                with parquet.ParquetFile(file) as rows:
                    for number in range(rows.num_row_groups):
                        group = rows.read_row_group(number)
                        if writer is None:
                            writer = parquet.ParquetWriter(
                                whole,
                                group.schema,
                                compression=self._compression,
                                use_dictionary=dictionaries_of(group),
                            )
                            writer.add_key_value_metadata({_MADE_FROM: json.dumps(dict(identity))})
                        writer.write_table(group)
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise EngineError(
                f"an object of the tick in {self._url}/{ATTEMPTS} is missing or damaged (sink"
                f' "{self._spec.name}"): {error}',
                code="staged-rows-gone",
                hint="check whether another run of this job is active, and run again, which repeats the tick",
            ) from None
        finally:
            if writer is not None:
                writer.close()

    def _is_there(self, insert: str, tick: int, identity: Identity) -> bool:
        """Whether there is a part of the tick. Raises: EngineError if it was made from something else."""
        name = _final(insert, tick)
        stored = self._identity(insert, tick)
        if stored is None and not exists(self._place, name):
            return False
        check_same(self._spec.name, self._url, insert, tick, stored, identity)
        return True

    def _identity(self, insert: str, tick: int) -> Identity | None:
        """What a part was made from; None where there is none, or nothing says it."""
        footer = footer_of(self._place, _final(insert, tick))
        try:
            return None if footer is None else dict(json.loads((footer.metadata or {})[_MADE_FROM]))
        except (KeyError, ValueError, TypeError):
            return None

    def _check_store(self) -> None:
        try:
            ObjectStore(self._place).check()
        except StateError as error:
            if error.code == "no-conditional-put":
                raise EngineError(
                    f"{self._url} does not support conditional writes, which the sink needs to write"
                    f' rows once (sink "{self._spec.name}")',
                    code="no-conditional-put",
                    hint="use a store with conditional writes (S3, GCS, Azure, MinIO, R2), or write to a"
                    " table",
                ) from None
            raise

    def _take(self, owner: str) -> None:
        """Raises: EngineError when these are another job's parts, or nobody's."""
        content = owner.encode()
        store = ObjectStore(self._place)
        if not store.has(OWNER):
            self._check_nobodys()
        if not store.create(OWNER, content):
            raise of_another(self._url, self._spec.name, has_parts=bool(self.parts()))

    def _check_nobodys(self) -> None:
        folders, objects = there(self._place)
        parts = [
            *filter(_FOLDER_BEFORE.fullmatch, folders),
            *filter(_PART.fullmatch, objects),
        ]
        others = [name for name in (*folders, *objects) if name[0] not in "._" and name not in parts]
        if parts:
            raise of_another(self._url, self._spec.name, has_parts=True)
        if others:
            raise EngineError(
                f'{self._url} contains objects that this job did not write, such as "{others[0]}" (sink'
                f' "{self._spec.name}")',
                code="sink-not-empty",
                hint="use an empty path",
            )

    def _check_owner(self) -> None:
        if self._owner is None:
            return
        try:
            stored = bytes(ObjectStore(self._place).read(OWNER)).decode(errors="replace")
        except StateError as error:
            if error.code != "state-missing":
                raise
            stored = ""
        if stored != self._owner:
            raise EngineError(
                f'{self._url} now belongs to another job (sink "{self._spec.name}"): nothing was published',
                code="sink-taken",
                hint=f"stop other jobs that write there, restore the object {OWNER}, and run again,"
                " which repeats the tick",
            )

    def _remove_staged(self, parts: Sequence[StagedPart]) -> None:
        """What cannot be removed now is left to the next run."""
        with suppress(StateError):
            remove(self._place, [str(part["name"]) for part in parts], _LEFT_S)

    def _part(self, insert: str, tick: int, attempt: str) -> StoredPart:
        self._staged.setdefault((insert, tick, attempt), [])
        folder = f"{ATTEMPTS}/{_safe(attempt)}"
        return StoredPart(self._url, self._endpoint, self._region, folder, f"{_safe(insert)}-{tick:012d}")


def _final(insert: str, tick: int) -> str:
    return f"{_safe(insert)}-{tick:012d}.parquet"


def _safe(name: str) -> str:
    """``name`` as a part of an object's name: nothing that stores or readers take for something else."""
    quoted = quote(name, safe="").replace("~", "%7E").replace("%", "!")
    return f"!{ord(quoted[0]):02X}{quoted[1:]}" if quoted[:1] in ("_", ".") else quoted


def _insert_of(safe: str) -> str:
    return unquote(safe.replace("!", "%"))
