"""Parquet files in an object store: exactly once, readers see whole ticks."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import parquet

from watersmeet.errors import EngineError, StateError, raise_all
from watersmeet.objects.object_store import (
    MAX_PARALLEL_REQUESTS,
    TIMEOUT_S,
    ObjectLocation,
    ObjectStore,
    send_request,
)
from watersmeet.parallel import parallel_map
from watersmeet.sinks.base import (
    RowPrinter,
    Schema,
    StagedPart,
    check_unique_names,
    columns_of,
)
from watersmeet.sinks.directory import OWNER, foreign_directory_error, translate_write_errors
from watersmeet.sinks.lake.columns import columns_wanted
from watersmeet.sinks.lake.data_files import in_table, table_schema
from watersmeet.sinks.parquet import dictionaries_of, encodings_of_own
from watersmeet.sinks.part_mark import (
    SET_ASIDE_FOLDER,
    Identity,
    Resumed,
    check_same,
    format_parts,
    newer_parts,
)
from watersmeet.sinks.staging import Key, PartsSink
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.files import StoredFileOptions, sink_problems

# Objects of a file sink: put, got, moved, and looked at, by requests that are repeated.

LARGEST = 5 << 30
"""Bytes that a store takes in one put, which alone can be made to depend on there being nothing yet."""

_IN_PARTS = 256 << 20
_MIN_BYTES_PER_SECOND = 4 << 20
"""Bytes a second that are waited for."""
_FOOTER = 64 << 10
"""Bytes at the end of a file that are read at once: most footers are shorter."""
_PREFIX, _OLD_S = "watersmeet-stored-", 86_400
_LENGTH = 8
"""Bytes at the very end: the footer's length, and four letters."""


def stored_place(url: str, endpoint: str, region: str) -> ObjectLocation:
    """Build the location of the objects.

    Args:
        endpoint: URL of an S3 server, whose scheme selects TLS or plain HTTP; empty for the default.
        region: Region; empty for the default.
    """
    given = {"endpoint": endpoint, "region": region}
    options = tuple((name, value) for name, value in given.items() if value)
    return ObjectLocation(url, options, allow_http=urlsplit(endpoint).scheme == "http")


@contextmanager
def translate_store_errors(sink: str) -> Iterator[None]:
    """Translate errors of the object store into errors of the sink.

    Raises:
        EngineError: The store refused a request.
    """
    try:
        yield
    except StateError as error:
        hint = (error.hint or "").replace("state_store_", "the sink's ")
        raise EngineError(f'sink "{sink}": {error.message}', code=error.code, hint=hint) from None


def upload_file(place: ObjectLocation, name: str, file: Path) -> None:
    """Put a file; there is no other object of that name. Raises: StateError."""
    size = file.stat().st_size
    place = extend_timeout(place, min(size, _IN_PARTS))
    send_request(
        place,
        f'take "{name}"',
        lambda client: client.put(name, file, use_multipart=size > _IN_PARTS) and None,
    )


def create(place: ObjectLocation, name: str, file: Path) -> bool:
    """Put a file unless an object of that name exists.

    Returns:
        True if there was no object. False if there was one, or if the answer of the store was lost: then
        nobody knows.

    Raises:
        StateError: The store does not accept the request.
    """
    from obstore.exceptions import AlreadyExistsError

    def create_object(client: Any) -> bool:
        try:
            client.put(name, file, mode="create", use_multipart=False)
        except AlreadyExistsError:
            try:
                client.head(name)
            except FileNotFoundError:  # it was deleted since, or another put is under way (409)
                raise ConnectionError("an object was in the way, but no longer exists") from None
            return False
        return True

    return send_request(extend_timeout(place, file.stat().st_size), f'take "{name}"', create_object)


def get_all(place: ObjectLocation, names: Sequence[str], folder: Path) -> Iterator[Path]:
    """Download objects in parallel, and yield them in order as files in a folder.

    Each file is deleted when the next one is requested.

    Raises:
        StateError, EngineError, FileNotFoundError: An object cannot be read.
    """
    files = [folder / f"{number}" for number in range(len(names))]
    with ThreadPoolExecutor(MAX_PARALLEL_REQUESTS) as threads:
        for file, _ in zip(files, threads.map(lambda n, f: _get(place, n, f), names, files), strict=True):
            yield file
            file.unlink()


def _get(place: ObjectLocation, name: str, file: Path) -> None:
    def read(client: Any) -> None:
        with translate_disk_errors():
            out = file.open("wb")
        with out:
            for chunk in client.get(name).stream(min_chunk_size=8 << 20):
                with translate_disk_errors():
                    out.write(chunk)
                    out.flush()

    send_request(place, f'give "{name}"', read)


def move(place: ObjectLocation, name: str, to: str) -> None:
    """Copy an object and delete the original.

    A step that a killed call has already done is no error.

    Raises:
        StateError: The store does not accept a request.
    """
    try:
        size = send_request(
            place, f'say how large "{name}" is', lambda client: int(client.head(name)["size"])
        )
        send_request(extend_timeout(place, size), f'copy "{name}"', lambda client: client.copy(name, to))
    except FileNotFoundError:
        return
    remove(place, [name])


def remove(place: ObjectLocation, names: Sequence[str], patience_s: float | None = None) -> None:
    """Remove objects; what is gone already is no error. Raises: StateError."""

    def delete(name: str) -> None:  # one by one: some servers fail a request for many if one is gone
        with suppress(FileNotFoundError):
            send_request(place, f'delete "{name}"', lambda client: client.delete(name), patience_s=patience_s)

    parallel_map(delete, names, MAX_PARALLEL_REQUESTS)


def exists(place: ObjectLocation, name: str) -> bool:
    """Return True if an object of that name exists.

    Raises:
        StateError: The store does not answer the request.
    """
    return send_request(
        place,
        f'say whether there is "{name}"',
        lambda client: client.head(name) is not None,
        missing=False,
    )


def list_entries(place: ObjectLocation, folder: str | None = None) -> tuple[list[str], list[str]]:
    """List the folders and objects in a folder, or at the top level, by their last path segment.

    Raises:
        StateError: The request failed.
    """

    def list_folder_entries(client: Any) -> tuple[list[str], list[str]]:
        listing = client.list_with_delimiter(folder)
        objects = [str(entry["path"]) for entry in listing["objects"]]
        return [_last(path) for path in listing["common_prefixes"]], [_last(path) for path in objects]

    return send_request(place, "list what it holds", list_folder_entries)


def list_folder(place: ObjectLocation, folder: str) -> list[str]:
    """List all objects of a folder and its subfolders.

    Raises:
        StateError: The request failed.
    """
    return send_request(
        place,
        f'list "{folder}"',
        lambda client: [str(entry["path"]) for batch in client.list(folder) for entry in batch],
    )


def footer_of(place: ObjectLocation, name: str) -> parquet.FileMetaData | None:
    """Read the footer of a Parquet file; None if there is no such object or it is not Parquet.

    Raises:
        StateError: The request failed.
    """

    def read(client: Any) -> bytes:
        size = int(client.head(name)["size"])
        length = min(size, _FOOTER)
        if length <= _LENGTH:
            return b""
        tail = bytes(client.get_range(name, start=size - length, length=length))
        wanted = int.from_bytes(tail[-_LENGTH:-4], "little") + _LENGTH
        if length < wanted <= size:
            tail = bytes(client.get_range(name, start=size - wanted, length=wanted))
        return tail

    try:
        tail = send_request(place, f'give "{name}"', read)
    except FileNotFoundError:
        return None
    try:
        return parquet.read_metadata(pa.BufferReader(tail))
    except (pa.ArrowException, OSError, ValueError):
        return None


def translate_disk_errors() -> AbstractContextManager[None]:
    """Translate write errors of this machine's disk within the block.

    Raises:
        EngineError: The disk refused a write.
    """
    return translate_write_errors(
        tempfile.gettempdir(),
        "make room there, or let the variable TMPDIR name another directory, then run again: the tick is "
        "repeated",
    )


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder on this machine's disk for files in transit.

    Also removes folders that killed processes left, once they are one day old.

    Raises:
        EngineError: The disk refused a write within the block.
    """
    with translate_disk_errors():
        for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with suppress(OSError):
                if left.stat().st_mtime < time.time() - _OLD_S:
                    shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
            yield Path(folder)


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def extend_timeout(place: ObjectLocation, size: int) -> ObjectLocation:
    """Return ``place`` with a timeout in which a slow network moves ``size`` bytes.

    There are few different timeouts, since each has a client of its own.
    """
    timeout = place.timeout_s
    while timeout * _MIN_BYTES_PER_SECOND < size and timeout < TIMEOUT_S * 64:
        timeout *= 4
    return replace(place, timeout_s=timeout, patience_s=max(place.patience_s, timeout * 2))


# Parquet files that tasks put into an object store, where readers do not look.
#
# Every attempt of a task puts an object of a new name, whole, and says so to the driver, which makes one
# object of those of a tick.

_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 128 << 20
"""Of a row group, at most, about."""


@dataclass(frozen=True)
class StoredPart:
    """Stages rows as objects ``folder/name-….parquet``.

    Args:
        url, endpoint, region: see `stored_place`.
    """

    url: str
    endpoint: str
    region: str
    folder: str
    name: str

    def write(
        self, partition: int, schema: pa.Schema, rows: Iterator[pa.RecordBatch]
    ) -> dict[str, Any] | None:
        """Put all ``rows``: the object's ``name``, its ``rows``. None: there are no rows, and no object."""
        wanted = table_schema(schema, widened=False)
        name = f"{self.folder}/{self.name}-{partition:05d}-{uuid.uuid4().hex}.parquet"
        count = 0
        with temporary_folder() as folder:
            staged = folder / "part.parquet"
            groups = _groups(rows)
            first = next(groups, wanted.empty_table())
            with parquet.ParquetWriter(staged, wanted, **encodings_of_own(first, wanted)) as writer:
                for group in chain((first,), groups):
                    count += group.num_rows
                    writer.write_table(in_table(group, wanted))
            if count:
                upload_file(stored_place(self.url, self.endpoint, self.region), name, staged)
        return {"name": name, "rows": count} if count else None


def _groups(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in tables that are large enough for row groups."""
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in rows:
        held.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, count, size = [], 0, 0
    if count:
        yield pa.Table.from_batches(held)


# Parquet files in an object store: exactly once, and readers never see a hole or a half.
#
#     path/_attempts/<attempt>/<insert>-<tick>-….parquet   staged: by tasks, any number of times
#     path/<insert>-<tick, 12 digits>.parquet              published: by one put, if there is nothing yet
#     path/_owner                                          whose parts these are
#     path/_set_aside/<time>/…                             parts that were taken out, if that was asked
#       for
#
# Why this is exactly once: the name of a part says its insert and tick, a put that is to create an object
# does so once, and the file's own footer says what its rows were made from. A part that is there with the
# same identity stays; one with another identity is refused, as are parts of ticks that the state has not
# come to. Tasks put objects of their own attempts only, and the driver makes one file of those of a tick:
# a store has no step that makes several objects visible at once. A tick without rows publishes nothing.
#
# Readers: names that begin with ``_`` are invisible to Spark, so ``spark.read.parquet(path)`` reads the
# rows.

ATTEMPTS = "_attempts"
_ROWS_BEFORE = "rows.parquet"
"""Name of the one object in the folder of a part, in versions that had such folders."""
_MADE_FROM = b"watersmeet.tick"
"""In a file's footer: the identity of its tick."""
_FOLDER_BEFORE = re.compile(r".+-\d{12}")
_PART = re.compile(r"(.+)-(\d{12})\.parquet")
_LEFT_S = 5.0
"""So long it is tried to remove what is garbage."""


class StoredFileSink(PartsSink):
    """See the module. Options: ``path``, ``compression``, ``endpoint``, ``region``."""

    sets_aside = True

    def __init__(self, spec: SinkSpec, console: RowPrinter | None = None) -> None:
        super().__init__(spec)
        raise_all(sink_problems(spec))
        options = StoredFileOptions.of(spec.options)
        self._url, self._endpoint, self._region = options.url, options.endpoint, options.region
        self._place = stored_place(self._url, self._endpoint, self._region)
        self._compression = options.compression
        self._owner: str | None = None

    def prepare(self, schema: Schema, owner: str | None = None) -> None:
        columns = columns_of(schema)
        check_unique_names(columns, self._spec)
        what = f'file sink "{self._spec.name}"'
        raise_all(columns_wanted(columns, what, widened=False, forbidden="")[1])
        if owner is None or self._owner == owner:
            return
        with translate_store_errors(self._spec.name):
            self._check_store()
            self._take(owner)
            self._owner = owner
            for folder in filter(_FOLDER_BEFORE.fullmatch, list_entries(self._place)[0]):
                move(self._place, f"{folder}/{_ROWS_BEFORE}", f"{folder}.parquet")
            with suppress(StateError):
                remove(self._place, list_folder(self._place, ATTEMPTS), _LEFT_S)

    def check_target(self, owner: str | None, wait_s: float | None) -> None:
        """See `ChecksTarget`."""
        if wait_s is None:
            return
        with translate_store_errors(self._spec.name):
            store = ObjectStore(self._place)
            if not store.has(OWNER):
                self._check_unowned()
            elif bytes(store.read(OWNER)).decode(errors="replace") != owner:
                raise foreign_directory_error(self._url, self._spec.name, has_parts=bool(self.parts()))

    def resume(self, inserts: Sequence[str], resumed: Resumed) -> list[str]:
        with translate_store_errors(self._spec.name):
            newer = newer_parts(self._spec.name, self._url, self.parts(), inserts, self._identity, resumed)
            if not newer:
                return []
            aside = f"{SET_ASIDE_FOLDER}/{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
            for insert, tick in newer:
                name = _final(insert, tick)
                move(self._place, name, f"{aside}/{name}")
        return [f"moved to {self._url}/{aside}, where readers do not see them: {format_parts(newer)}"]

    def has_part(self, insert: str, tick: int, owner: str | None = None) -> bool:
        with translate_store_errors(self._spec.name):
            return exists(self._place, _final(insert, tick))

    def check(self, insert: str, tick: int, identity: Identity) -> None:
        with translate_store_errors(self._spec.name):
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
        with translate_store_errors(self._spec.name):
            is_there = self._write_final_object(parts, insert, tick, identity) if parts else False
            is_there = is_there or self._is_there(insert, tick, identity)
            if parts and not is_there:
                raise EngineError(
                    f"{self._url} no longer has the object of tick {tick}, which was written: another"
                    f' program deletes objects there (sink "{self._spec.name}")',
                    code="sink-failed",
                    hint="check what else writes there, and run again, which repeats the tick",
                )
        self._remove(key)
        return is_there

    def parts(self) -> list[tuple[str, int]]:
        """Return the published (insert, tick) pairs, sorted.

        Raises:
            StateError: The request failed.
        """
        parts = filter(None, map(_PART.fullmatch, list_entries(self._place)[1]))
        return sorted((unquote(part[1].replace("!", "%")), int(part[2])) for part in parts)

    def _write_final_object(
        self, parts: Sequence[StagedPart], insert: str, tick: int, identity: Identity
    ) -> bool:
        """Write the part; return True if this call created it, as far as the store can tell."""
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
        """Return True if there is a part of the tick.

        Raises:
            EngineError: The part has another identity: its rows were made from something else.
        """
        name = _final(insert, tick)
        stored = self._identity(insert, tick)
        if stored is None and not exists(self._place, name):
            return False
        check_same(self._spec.name, self._url, insert, tick, stored, identity)
        return True

    def _identity(self, insert: str, tick: int) -> Identity | None:
        """Read the identity of a part; None if there is no part or it records no identity."""
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
        """Take ownership of the place.

        Raises:
            EngineError: The parts there belong to another job, or to none.
        """
        content = owner.encode()
        store = ObjectStore(self._place)
        if not store.has(OWNER):
            self._check_unowned()
        if not store.create(OWNER, content):
            raise foreign_directory_error(self._url, self._spec.name, has_parts=bool(self.parts()))

    def _check_unowned(self) -> None:
        folders, objects = list_entries(self._place)
        parts = [
            *filter(_FOLDER_BEFORE.fullmatch, folders),
            *filter(_PART.fullmatch, objects),
        ]
        others = [name for name in (*folders, *objects) if name[0] not in "._" and name not in parts]
        if parts:
            raise foreign_directory_error(self._url, self._spec.name, has_parts=True)
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

    def _remove(self, key: Key) -> None:
        """Remove staged objects; those that cannot be removed now are left to the next run."""
        with suppress(StateError):
            remove(self._place, [str(part["name"]) for part in self._staged.pop(key)], _LEFT_S)

    def _part(self, insert: str, tick: int, attempt: str) -> StoredPart:
        self._staged.setdefault((insert, tick, attempt), [])
        folder = f"{ATTEMPTS}/{_safe(attempt)}"
        return StoredPart(self._url, self._endpoint, self._region, folder, f"{_safe(insert)}-{tick:012d}")


def _final(insert: str, tick: int) -> str:
    return f"{_safe(insert)}-{tick:012d}.parquet"


def _safe(name: str) -> str:
    """Return ``name`` as part of an object's name that no store or reader interprets specially."""
    quoted = quote(name, safe="").replace("~", "%7E").replace("%", "!")
    return f"!{ord(quoted[0]):02X}{quoted[1:]}" if quoted[:1] in ("_", ".") else quoted
