"""State in an object store (S3, GCS, Azure), with requests that are retried."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
import tenacity

from watersmeet.errors import SpecError, StateError
from watersmeet.objects.cache import Cache, CachedStore
from watersmeet.parallel import parallel_map
from watersmeet.spec.secrets import without_secrets
from watersmeet.state.manifest import is_manifest
from watersmeet.state.store import (
    Section,
    group_adjacent,
    group_by_object,
    object_of,
    split_sections,
)
from watersmeet.state.stored_record import damage_error, missing_error

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client


# Requests to an object store: repeated while what is wrong may pass, and told in words when it does not.
#
# All errors of the client come as few classes, most of them `GenericError` with a text. What may pass is
# told by the status in that text; without one it is the network, which may pass. A request that failed
# may have been carried out all the same: who asks for it has to see to that.

Answer = TypeVar("Answer")

SCHEMES = ("s3", "gs", "az")

PATIENCE_S = 150.0
"""So long is what may pass waited for: a service that is away for a minute or two is lived through."""

TIMEOUT_S = 60.0
"""Of one request, with its content."""

MAKE_ROOM = "make room there, or raise its quota, then run again: the tick is repeated, and nothing is lost"

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 10.0

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_ROOM = re.compile(
    r"quota_?exceeded|storage_?full|insufficient_?storage|no_?space|storage (cap|quota) exceeded",
    re.IGNORECASE,
)
"""What servers say when there is none, in an answer's code or message, whatever the status: 507 and 400 of
MinIO, 403 of Ceph."""
_NO_ROOM_STATUS = re.compile(r"\bstatus(?: code:?)? 507\b")
_DEBUG_SUFFIX = "\n\nDebug source"
"""Behind it the client says all again, in other words."""
_ANSWER = re.compile(r"<Error\b|ExceptionName: ")
"""Where a server's own words begin, in errors of the clients that the package has."""
_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)}) - {501, 505}
_NOT_ASKED = "builder error"
"""What the client says when it sends nothing, for it cannot, or must not."""
_QUERY = re.compile(r"\?[^\s)]*")
_ENVIRONMENT = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or the machine's role",
    "gs": "GOOGLE_SERVICE_ACCOUNT (a path), or the machine's service account",
    "az": "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY, or the machine's identity",
}
_PREFIXES = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
_CLIENT_SETTINGS = (
    "allow_http",
    "allow_invalid_certificates",
    "proxy_url",
    "proxy_ca_certificate",
    "proxy_excludes",
)
"""What the environment may say of the client itself, behind the provider's prefix; the client reads it no
more as soon as it is told anything."""


@dataclass(frozen=True)
class ObjectLocation:
    """The location of objects and how to access it.

    It contains no secrets: they are in each process's environment.

    Args:
        url: ``s3://bucket/prefix``, ``gs://…``, ``az://…``.
        options: of the client, such as ``endpoint`` and ``region``.
        allow_http: allow access without TLS.
        timeout_s: the time limit of one request.
        patience_s: how long requests are retried.

    Raises:
        SpecError: the URL is none of these, or contains a user name or a password.
    """

    url: str
    options: tuple[tuple[str, str], ...] = ()
    allow_http: bool = False
    timeout_s: float = TIMEOUT_S
    patience_s: float = PATIENCE_S
    scheme: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        shown = without_secrets(self.url.split("?")[0])
        if parts.scheme not in SCHEMES:
            raise SpecError(
                f'"{shown}" is not a place for the state',
                code="bad-store",
                hint="use s3://bucket/prefix, gs://…, az://…, postgresql://… or a directory",
            )
        if not parts.netloc:
            raise SpecError(
                f'the state store "{shown}" has no bucket',
                code="bad-store",
                hint="for example SET state_store = 's3://bucket/prefix', or gs://…, az://…",
            )
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise SpecError(
                f'the state store "{shown}" may contain only a bucket and a prefix',
                code="bad-store",
                hint=f"set credentials in the environment of each process: {_ENVIRONMENT[parts.scheme]}",
            )
        if any("@" in value for name, value in self.options if name == "endpoint"):
            raise SpecError(
                "state_store_endpoint contains a user name",
                code="bad-store",
                hint=f"set credentials in the environment of each process: {_ENVIRONMENT[parts.scheme]}",
            )
        object.__setattr__(self, "url", self.url.rstrip("/"))
        object.__setattr__(self, "scheme", parts.scheme)

    def client(self) -> Client:
        """Return this process's client.

        Raises:
            StateError: the library is not installed, or rejects the options.
        """
        return _client(self)


@lru_cache(maxsize=16)
def _client(place: ObjectLocation) -> Client:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError:
        raise StateError(
            f"{place.url} is an object store, but the library for object stores is not installed",
            code="missing-library",
            hint="run `pip install 'watersmeet[objects]'`, also where Spark's Python workers run",
        ) from None
    options: dict[str, Any] = dict(place.options)
    client: Any = {  # what is not said is the environment's to say
        **dict(_settings_from_environment(place)),
        "timeout": f"{int(place.timeout_s * 1000)}ms",
        **({"allow_http": True} if place.allow_http else {}),
    }
    try:
        return from_url(
            place.url,
            client_options=client,
            retry_config={"max_retries": 0},  # ours are repeated here: a conditional one needs care
            **options,
        )
    except (BaseError, ValueError, TypeError) as error:
        raise StateError(
            f"{place.url} cannot be reached with these options: {plain(error)}",
            code="store-refused",
            hint="check the options of the object store, such as state_store_region, and the environment",
        ) from None


def _settings_from_environment(place: ObjectLocation) -> Iterator[tuple[str, str]]:
    for name in _CLIENT_SETTINGS:
        value = os.environ.get(f"{_PREFIXES[place.scheme]}_{name.upper()}")
        if value:
            yield name, value


def send_request(
    place: ObjectLocation,
    what: str,
    request: Callable[[Client], Answer],
    *,
    missing: Answer | None = None,
    patience_s: float | None = None,
) -> Answer:
    """Send a request and return its answer; retry it while the error is transient.

    Args:
        what: the request in plain text, for errors.
        missing: the answer if there is no such object; None: raise FileNotFoundError.
        patience_s: how long to retry, if shorter than the location's patience.

    Raises:
        StateError: the request was rejected permanently, or the service was unavailable for too long.
        AlreadyExistsError: from the client, for a conditional put.
    """
    client, patience_s = place.client(), min(place.patience_s, patience_s or place.patience_s)
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_delay(patience_s),
        wait=tenacity.wait_random_exponential(
            multiplier=_FIRST_PAUSE_S, max=min(_LONGEST_PAUSE_S, patience_s / 15)
        ),
        retry=tenacity.retry_if_exception(may_pass),
        reraise=True,
    )
    try:
        return retrying(request, client)
    except FileNotFoundError as error:
        if _code(error) == "NoSuchBucket":
            raise object_store_error(place, what, error) from None
        if missing is None:
            raise
        return missing
    except Exception as error:
        if type(error).__name__ == "AlreadyExistsError" or not is_clients(error):
            raise
        raise object_store_error(place, what, error) from None


def is_clients(error: BaseException) -> bool:
    """Return True if the client raised the error: its own classes, and OSError of Python."""
    return type(error).__module__.startswith("obstore") or isinstance(error, OSError)


def may_pass(error: BaseException) -> bool:
    """Return True if a request that failed with this error may succeed later.

    >>> may_pass(ConnectionResetError()), may_pass(FileNotFoundError()), may_pass(KeyError())
    (True, False, False)
    """
    if not is_clients(error) or isinstance(error, FileNotFoundError):
        return False
    if is_full(str(error)):  # what was merged is deleted meanwhile, and others make room
        return True
    if isinstance(error, PermissionError):
        return False
    if type(error).__name__ not in ("GenericError", "JoinError") and not isinstance(error, OSError):
        return False
    status = _STATUS.search(str(error))
    if status is not None:
        return int(status[1]) in _RETRYABLE_STATUSES
    return _NOT_ASKED not in str(error)


def is_beyond(error: BaseException) -> bool:
    """Return True if a requested range begins past the end of the object."""
    status = _STATUS.search(str(error))
    return is_clients(error) and status is not None and status[1] == "416"


def is_full(said: str) -> bool:
    """Return True if an object store's error means that it has no room left.

    Names of objects in the text do not count.

    >>> is_full("status code: 403 Forbidden: <Error><Code>QuotaExceeded</Code></Error>")
    True
    >>> is_full("PUT http://s3/quotaexceeded - status code: 403 Forbidden: <Error><Code>AccessDenied</Code>")
    False
    """
    said = said.split(_DEBUG_SUFFIX)[0]
    answer = _ANSWER.search(said)
    says_so = answer is not None and _NO_ROOM.search(said, answer.end()) is not None
    return says_so or _NO_ROOM_STATUS.search(said) is not None


def object_store_error(place: ObjectLocation, what: str, error: BaseException) -> StateError:
    """Convert a client's error to an error with a hint for the user."""
    status, kind = _STATUS.search(str(error)), type(error).__name__
    said = f"{place.url} did not {what}: {plain(error)}"
    if _code(error) == "NoSuchBucket":
        return StateError(said, code="no-bucket", hint="create the bucket, or check its name and endpoint")
    if is_full(str(error)):
        return StateError(said, code="store-full", hint=MAKE_ROOM)
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or (status and status[1] in ("401", "403")):
        hint = f"check the permissions of the job (read, write, delete, list): {_ENVIRONMENT[place.scheme]}"
        return StateError(said, code="store-denied", hint=hint)
    if may_pass(error):
        hint = "run again when it is back: the job resumes after its last tick"
        return StateError(said, code="store-away", hint=hint)
    hint = "check the URL, the region and the endpoint"
    if _NOT_ASKED in str(error) and "http://" in str(error):
        name = f"{_PREFIXES[place.scheme]}_ALLOW_HTTP"
        hint += (
            f"; without TLS (http://) a server is asked by SET state_store_allow_http = true"
            f" alone, or {name}=true in the environment of each process"
        )
    return StateError(said, code="store-refused", hint=hint)


def plain(error: BaseException) -> str:
    """Return one line of the client's error, without XML and without URL queries.

    The queries may be signed.
    """
    text = str(error).split(_DEBUG_SUFFIX)[0]
    words = _QUERY.sub("", " ".join(re.sub(r"<(\?xml|Error\b).*", "", text, flags=re.DOTALL).split()))
    code = _code(error)
    return without_secrets(words.rstrip(": ")[:400]) + (f" ({code})" if code else "")


def _code(error: BaseException) -> str | None:
    match = _CODE.search(str(error))
    return match[1] if match else None


# State in an object store: S3, GCS, Azure, by `obstore`.
#
# One put per name, none is ever written twice, and a put is whole or not there. `create` is a put on the
# condition that there is nothing yet. Its answer may be lost: then a repeated one is told that there is
# something, and looks whether that is what it put. So what different processes create under one name must
# differ (a manifest has its writer's random number).
#
# A list, and each delete, costs a request's time: a tick makes none of either (`state.garbage`).

MAX_PARALLEL_REQUESTS = 16
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
    """Uploads in progress within `together`; their content can already be read."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(MAX_PARALLEL_REQUESTS, thread_name_prefix="uploads")
        self.waiting: dict[str, tuple[pa.Buffer, Future[None]]] = {}
        self._bytes = 0

    def add(self, name: str, content: pa.Buffer, upload: Future[None]) -> None:
        """Add an upload; while too many or too large ones are in progress, wait for the oldest.

        Raises:
            StateError: An earlier upload failed.
        """
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
        """Wait for all uploads.

        Raises:
            StateError: An upload failed.
        """
        for _, upload in self.waiting.values():
            upload.result()


class ObjectStore(CachedStore[ObjectLocation]):
    """See the module. It holds no secrets."""

    def __init__(self, place: ObjectLocation, cache: Cache | None = None) -> None:
        super().__init__(place, cache)
        self._uploads: _Uploads | None = None

    def write(
        self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True, sections: Sequence[str] = ()
    ) -> None:
        content = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
        self.traffic.add(written=content.size, requests=1)
        uploads = self._uploads
        if uploads is None:
            self._upload_object(name, content, sections)
        else:
            uploads.add(name, content, uploads.threads.submit(self._upload_object, name, content, sections))

    def _upload_object(self, name: str, content: pa.Buffer, sections: Sequence[str]) -> None:
        def upload_content(client: Client) -> None:
            in_parts = content.size > LARGEST_PUT
            client.put(name, _bytes_of(content), use_multipart=in_parts, chunk_size=_PART)

        send_request(self.place, f'take "{name}"', upload_content)
        for own, part in split_sections(name, content, sections):
            self._remember(own, part)

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
        """Store ``data`` unless ``name`` exists; return True if the object contains ``data``.

        Raises:
            StateError: it is unknown whether the object was stored; it may still appear later.
        """
        self.traffic.add(written=len(data), requests=1)

        def create_object(client: Client) -> bool:
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

        return send_request(self.place, f'take "{name}"', create_object)

    def read_all(self, names: Sequence[str]) -> list[pa.Buffer]:
        """Read several names, in order.

        The store fetches missing objects together, and adjacent sections of one object in one request.

        Raises:
            StateError: one of the names does not exist.
        """
        there = {name: content for name in names if (content := self._at_hand(name)) is not None}
        fetched = group_by_object(name for name in names if name not in there)
        for contents in parallel_map(lambda of: self._fetch(*of), fetched.items(), MAX_PARALLEL_REQUESTS):
            for name, content in contents:
                there[name] = content
                self._remember(name, content)
        return [there[name] for name in names]

    def _unwritten(self, name: str) -> pa.Buffer | None:
        waiting = None if self._uploads is None else self._uploads.waiting.get(name)
        return None if waiting is None else waiting[0]

    def _fetch(self, name: str, sections: list[Section | None]) -> _Fetched:
        """Fetch the requested sections of one object, or all of it.

        Raises:
            StateError: the object is missing or cannot be read.
        """
        parts = group_adjacent(section for section in sections if section is not None)

        def fetch_sections(client: Client) -> _Fetched:
            whole = [(name, pa.py_buffer(client.get(name).bytes()))] if None in sections else []
            return [*whole, *self._cut(client, name, parts)] if parts else whole

        try:
            contents = send_request(self.place, f'give "{name}"', fetch_sections)
        except FileNotFoundError:
            raise missing_error(name, f" in {self.place.url}") from None
        nbytes = sum(content.size for _, content in contents)
        self.traffic.add(fetched=nbytes, requests=(None in sections) + len(parts))
        return contents

    def _cut(self, client: Client, name: str, parts: Sequence[Sequence[Section]]) -> _Fetched:
        """Fetch sections of an object; one request per group of adjacent sections.

        Raises:
            StateError: the object ends before the sections do.
        """
        starts = [part[0].offset for part in parts]
        lengths = [part[-1].end - start for part, start in zip(parts, starts, strict=True)]
        try:
            contents = client.get_ranges(name, starts=starts, lengths=lengths, coalesce=0)
        except Exception as error:
            if not is_beyond(error):
                raise
            contents = []
        if [len(content) for content in contents] != lengths:
            raise damage_error(f'object "{name}" in {self.place.url}', "it ends before what was written does")
        buffers = zip(parts, starts, map(pa.py_buffer, contents), strict=True)
        return [
            (section.name, content.slice(section.offset - start, section.length))
            for part, start, content in buffers
            for section in part
        ]

    def has(self, name: str) -> bool:
        self.traffic.add(requests=1)

        def head_object(client: Client) -> bool:
            client.head(object_of(name))
            return True

        return send_request(self.place, f'say whether there is "{name}"', head_object, missing=False)

    def names(self, folder: str) -> list[str]:
        self.traffic.add(requests=1)

        def list_folder(client: Client) -> list[str]:
            objects = client.list_with_delimiter(folder)["objects"]
            return sorted(f"{folder}/{entry['path'].rpartition('/')[2]}" for entry in objects)

        return send_request(self.place, f'list "{folder}"', list_folder)

    def delete(self, name: str) -> None:
        self._delete([name])

    def delete_all(self, names: Sequence[str]) -> int:
        if self.cache is not None:
            self.cache.drop_tick_files(names)
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
        """Delete objects by few requests, in no order.

        Raises:
            StateError: the store rejects a request.
        """
        if names:
            self.traffic.add(requests=1)

            def delete_objects(client: Client) -> bool:
                client.delete(list(names))
                return True

            try:
                send_request(self.place, f'delete "{names[0]}"', delete_objects, patience_s=DELETES_S)
            except FileNotFoundError:
                if len(names) > 1:  # by then others may not have been deleted
                    parallel_map(lambda name: self._delete([name]), names, MAX_PARALLEL_REQUESTS)

    def clear(self, folders: Collection[str], last: str) -> None:
        """Remove all that is in these folders, the manifests first and ``last`` at last."""

        def list_all_objects(client: Client) -> list[str]:
            return [str(entry["path"]) for batch in client.list() for entry in batch]

        def there() -> list[str]:
            names = send_request(self.place, "list what it holds", list_all_objects)
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
