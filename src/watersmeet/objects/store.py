"""State in an object store: S3, GCS, Azure, by `obstore`.

One put per name, none is ever written twice, and a put is whole or not there. `create` is a put on the
condition that there is nothing yet. Its answer may be lost: then a repeated one is told that there is
something, and looks whether that is what it put. So what different processes create under one name must
differ (a manifest has its writer's random number).

A list, and each delete, costs a request's time: a tick makes none of either (`state.garbage`).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.objects.cache import Cache, may_be_kept
from watersmeet.objects.requests import Place, asked, is_beyond
from watersmeet.state.damage import damaged, missing
from watersmeet.state.manifest import is_manifest
from watersmeet.state.sections import Section, by_object, object_of, read_as, section_of, side_by_side
from watersmeet.state.traffic import Meter

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

AT_ONCE = 16
"""Puts that are under way together, and gets."""

LARGEST_PUT = 256 << 20
"""Bytes; what is larger goes up in parts, and is there when the last one is."""

DELETES_S = 5.0
"""So long a delete is tried: what is left is garbage, for which nobody waits."""

MOST_WAITING, MOST_WAITING_BYTES = 128, 256 << 20
"""Of puts within `together`: so many contents are held, and so large ones together; then the oldest is waited
for."""

_PART = 32 << 20

_Fetched = list[tuple[str, pa.Buffer]]
"""Names, and what is stored under them."""

_CREATES = 2
"""So often an object is created at once, when what was in its way is gone: whoever slept meanwhile has no
patience left."""

_PROBE = ".probe"
_CLEARS = 5
"""How often it is looked whether all is gone."""


class _Uploads:
    """What is on its way within `together`, and can be read all the same."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="uploads")
        self.waiting: dict[str, tuple[pa.Buffer, Future[None]]] = {}
        self._bytes = 0

    def add(self, name: str, content: pa.Buffer, upload: Future[None]) -> None:
        """Raises: StateError for an earlier one that did not get there."""
        self.waiting[name] = content, upload
        self._bytes += content.size
        while len(self.waiting) > MOST_WAITING or (
            self._bytes > MOST_WAITING_BYTES and len(self.waiting) > 1
        ):
            oldest = next(iter(self.waiting))
            content, upload = self.waiting[oldest]
            upload.result()
            del self.waiting[oldest]
            self._bytes -= content.size

    def end(self) -> None:
        """Raises: StateError for one that did not get there."""
        for _, upload in self.waiting.values():
            upload.result()


class ObjectStore:
    """See the module. It may be pickled, and holds neither secrets nor connections."""

    is_remote = True

    def __init__(self, place: Place, cache: Cache | None = None) -> None:
        self.place = place
        self.cache = cache
        self.traffic = Meter()
        self._uploads: _Uploads | None = None

    def __getstate__(self) -> tuple[Place, Cache | None]:
        return self.place, self.cache

    def __setstate__(self, state: tuple[Place, Cache | None]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"ObjectStore({self.place.url!r})"

    def write(
        self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True, sections: Sequence[str] = ()
    ) -> None:
        content = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        self.traffic.add(written=content.size, requests=1)
        uploads = self._uploads
        if uploads is None:
            self._put(name, content, sections)
        else:
            uploads.add(name, content, uploads.threads.submit(self._put, name, content, sections))

    def _put(self, name: str, content: pa.Buffer, sections: Sequence[str]) -> None:
        def put(client: Client) -> None:
            in_parts = content.size > LARGEST_PUT
            client.put(name, _bytes_of(content), use_multipart=in_parts, chunk_size=_PART)

        asked(self.place, f'take "{name}"', put)
        for own, part in read_as(name, content, sections):
            self._remember(own, part)

    def _remember(self, name: str, content: pa.Buffer) -> None:
        if self.cache is not None and may_be_kept(name):
            self.cache.add(name, content)

    @contextmanager
    def together(self) -> Iterator[None]:
        if self._uploads is not None:  # within another such block, at whose end it is waited for
            yield
            return
        self._uploads = uploads = _Uploads()
        try:
            yield
            uploads.end()
        finally:
            self._uploads = None
            uploads.threads.shutdown(cancel_futures=True)

    def create(self, name: str, data: bytes) -> bool:
        """As `Store.create`. Raises: StateError when nobody can say whether it was stored; then it may still
        appear."""
        self.traffic.add(written=len(data), requests=1)

        def created(client: Client) -> bool:
            from obstore.exceptions import AlreadyExistsError

            for _ in range(_CREATES):
                try:
                    client.put(name, data, mode="create", use_multipart=False)
                    return True
                except AlreadyExistsError:
                    with suppress(FileNotFoundError):  # deleted before it was read
                        return bytes(client.get(name).bytes()) == data
            raise ConnectionError(
                "an object was in the way, but no longer exists"
            )  # a put is under way (409)

        return asked(self.place, f'take "{name}"', created)

    def read(self, name: str) -> pa.Buffer:
        return self.read_all([name])[0]

    def read_all(self, names: Sequence[str]) -> list[pa.Buffer]:
        """As `Store.read_all`: what has to be fetched comes together, sections of one object that lie side by
        side by one request."""
        there = {name: content for name in names if (content := self._at_hand(name)) is not None}
        fetched = by_object(name for name in names if name not in there)
        for contents in self._at_once(list(fetched.items())):
            for name, content in contents:
                there[name] = content
                self._remember(name, content)
        return [there[name] for name in names]

    def _at_hand(self, name: str) -> pa.Buffer | None:
        """What need not be fetched: it is on its way to the store, or in the cache."""
        section = section_of(name)
        object_name = name if section is None else section.object
        if self._uploads is not None and object_name in self._uploads.waiting:
            content = self._uploads.waiting[object_name][0]
            return content if section is None else section.of(content)
        if self.cache is None or not may_be_kept(name):
            return None
        kept = self.cache.read(name)
        if kept is not None:
            self.traffic.add(cached=kept.size)
        return kept

    def _at_once(self, objects: list[tuple[str, list[Section | None]]]) -> Iterator[_Fetched]:
        if len(objects) < 2:
            yield from (self._fetch(*asked_for) for asked_for in objects)
            return
        with ThreadPoolExecutor(min(AT_ONCE, len(objects)), thread_name_prefix="fetches") as threads:
            yield from threads.map(lambda asked_for: self._fetch(*asked_for), objects)

    def _fetch(self, name: str, sections: list[Section | None]) -> _Fetched:
        """Of one object what is asked for. Raises: StateError."""
        parts = side_by_side(section for section in sections if section is not None)

        def fetched(client: Client) -> _Fetched:
            whole = [(name, pa.py_buffer(client.get(name).bytes()))] if None in sections else []
            return [*whole, *self._cut(client, name, parts)] if parts else whole

        try:
            contents = asked(self.place, f'give "{name}"', fetched)
        except FileNotFoundError:
            raise missing(name, f" in {self.place.url}") from None
        nbytes = sum(content.size for _, content in contents)
        self.traffic.add(fetched=nbytes, requests=(None in sections) + len(parts))
        return contents

    def _cut(self, client: Client, name: str, parts: Sequence[Sequence[Section]]) -> _Fetched:
        """Sections of an object, of which one request each brings those that lie side by side. Raises:
        StateError for an object that ends before they do."""
        starts = [part[0].offset for part in parts]
        lengths = [part[-1].end - start for part, start in zip(parts, starts, strict=True)]
        try:
            contents = client.get_ranges(name, starts=starts, lengths=lengths, coalesce=0)
        except Exception as error:
            if not is_beyond(error):
                raise
            contents = []
        if [len(content) for content in contents] != lengths:
            raise damaged(f'object "{name}" in {self.place.url}', "it ends before what was written does")
        buffers = zip(parts, starts, map(pa.py_buffer, contents), strict=True)
        return [
            (section.name, content.slice(section.offset - start, section.length))
            for part, start, content in buffers
            for section in part
        ]

    def has(self, name: str) -> bool:
        self.traffic.add(requests=1)

        def looked(client: Client) -> bool:
            client.head(object_of(name))
            return True

        return asked(self.place, f'say whether there is "{name}"', looked, missing=False)

    def names(self, folder: str) -> list[str]:
        self.traffic.add(requests=1)

        def listed(client: Client) -> list[str]:
            objects = client.list_with_delimiter(folder)["objects"]
            return sorted(f"{folder}/{entry['path'].rpartition('/')[2]}" for entry in objects)

        return asked(self.place, f'list "{folder}"', listed)

    def delete(self, name: str) -> None:
        self._delete([name])

    def delete_all(self, names: Sequence[str]) -> int:
        if self.cache is not None:
            self.cache.drop_of_a_tick(names)
        ordered = [name for name in names if is_manifest(name)]
        rest = [name for name in names if not is_manifest(name)]
        try:
            for name in ordered:
                self._delete([name])
            self._delete(rest)
        except StateError:
            return len(names)
        return 0

    def _delete(self, names: Sequence[str]) -> None:
        """By few requests, in no order. Raises: StateError."""
        if names:
            self.traffic.add(requests=1)

            def gone(client: Client) -> bool:
                client.delete(list(names))
                return True

            try:
                asked(self.place, f'delete "{names[0]}"', gone, patience_s=DELETES_S)
            except FileNotFoundError:
                if len(names) > 1:  # by then others may not have been deleted
                    with ThreadPoolExecutor(AT_ONCE) as threads:
                        for _ in threads.map(lambda name: self._delete([name]), names):
                            pass

    def clear(self, folders: Collection[str], last: str) -> None:
        """Remove all that is in these folders, the manifests first and ``last`` at last."""

        def listed(client: Client) -> list[str]:
            return [str(entry["path"]) for batch in client.list() for entry in batch]

        def there() -> list[str]:
            names = asked(self.place, "list what it holds", listed)
            return [name for name in names if name != last and name.partition("/")[0] in folders]

        for _ in range(_CLEARS):
            names = there()
            if not names:
                return self._delete([last])
            for of_manifests in (True, False):
                self._delete([name for name in names if is_manifest(name) is of_manifests])
        raise StateError(
            f"{self.place.url} cannot be emptied: another process keeps writing to it, such as {names[0]}",
            code="state-moves-on",
            hint="stop the run of the job, perhaps on another machine, then run the command again",
        )

    def sweep(self) -> None:
        return

    def check(self) -> None:
        name = f"{_PROBE}-{uuid.uuid4().hex}"
        try:
            refused = self.create(name, b"1") and not self.create(name, b"2")
        except NotImplementedError:
            refused = False
        except StateError as error:
            if error.code != "store-refused" or "501" not in error.message:
                raise
            refused = False
        if not refused:
            self.delete(name)
            raise StateError(
                f"{self.place.url} does not support conditional writes, which prevent two runs from"
                " committing the same tick",
                code="no-conditional-put",
                hint="use a store with conditional writes (S3, GCS, Azure, MinIO, R2), or a directory",
            )
        self.delete(name)


def _bytes_of(content: pa.Buffer) -> memoryview:
    return memoryview(content).cast("B") if content.size else memoryview(b"")
