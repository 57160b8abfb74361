"""Requests to an object store: repeated while what is wrong may pass, and told in words when it does not.

All errors of the client come as few classes, most of them `GenericError` with a text. What may pass is told
by the status in that text; without one it is the network, which may pass. A request that failed may have
been carried out all the same: who asks for it has to see to that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import tenacity

from watersmeet.errors import SpecError, StateError
from watersmeet.spec.secrets import without_secrets

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

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
_SAYS_NO_ROOM = re.compile(r"\bstatus(?: code:?)? 507\b")
_AGAIN = "\n\nDebug source"
"""Behind it the client says all again, in other words."""
_ANSWER = re.compile(r"<Error\b|ExceptionName: ")
"""Where a server's own words begin, in errors of the clients that the package has."""
_MAY_PASS = frozenset({408, 409, 425, 429, *range(500, 600)}) - {501, 505}
_NOT_ASKED = "builder error"
"""What the client says when it sends nothing, for it cannot, or must not."""
_QUERY = re.compile(r"\?[^\s)]*")
_ENVIRONMENT = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or the machine's role",
    "gs": "GOOGLE_SERVICE_ACCOUNT (a path), or the machine's service account",
    "az": "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY, or the machine's identity",
}
_PREFIXES = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
_OF_THE_CLIENT = (
    "allow_http",
    "allow_invalid_certificates",
    "proxy_url",
    "proxy_ca_certificate",
    "proxy_excludes",
)
"""What the environment may say of the client itself, behind the provider's prefix; the client reads it no
more as soon as it is told anything."""


@dataclass(frozen=True)
class Place:
    """Where objects are, and how to get there. It holds no secrets: they are in each process's environment.

    Args:
        url: ``s3://bucket/prefix``, ``gs://…``, ``az://…``.
        options: of the client, such as ``endpoint`` and ``region``.
        allow_http: without TLS.
        timeout_s: of one request.
        patience_s: how long requests are repeated.

    Raises:
        SpecError: the URL is none of these, or has somebody's name or password in it.
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
        """This process's client.

        Raises:
            StateError: the library is not installed, or does not take the options.
        """
        return _client(self)


@lru_cache(maxsize=16)
def _client(place: Place) -> Client:
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
        **dict(_said_by_environment(place)),
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


def _said_by_environment(place: Place) -> Iterator[tuple[str, str]]:
    for name in _OF_THE_CLIENT:
        value = os.environ.get(f"{_PREFIXES[place.scheme]}_{name.upper()}")
        if value:
            yield name, value


def asked(
    place: Place,
    what: str,
    request: Callable[[Client], Answer],
    *,
    missing: Answer | None = None,
    patience_s: float | None = None,
) -> Answer:
    """The answer to a request, which is repeated while what is wrong may pass.

    Args:
        what: the request in words, for errors.
        missing: the answer when there is no such object; None: that is raised, as FileNotFoundError.
        patience_s: how long it is repeated, where that is less than the place's.

    Raises:
        StateError: it was refused for good, or the service was away for too long.
        AlreadyExistsError: of the client, for a conditional put.
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
            raise told(place, what, error) from None
        if missing is None:
            raise
        return missing
    except Exception as error:
        if type(error).__name__ == "AlreadyExistsError" or not is_clients(error):
            raise
        raise told(place, what, error) from None


def is_clients(error: BaseException) -> bool:
    """Whether the client raised it: classes of its own, and those of Python for what is missing."""
    return type(error).__module__.startswith("obstore") or isinstance(error, OSError)


def may_pass(error: BaseException) -> bool:
    """Whether a request that failed so may succeed later.

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
        return int(status[1]) in _MAY_PASS
    return _NOT_ASKED not in str(error)


def is_beyond(error: BaseException) -> bool:
    """Whether bytes were asked for that begin behind the end of the object."""
    status = _STATUS.search(str(error))
    return is_clients(error) and status is not None and status[1] == "416"


def is_full(said: str) -> bool:
    """Whether what a client of an object store says means that it has no room left. Names of objects do not.

    >>> is_full("status code: 403 Forbidden: <Error><Code>QuotaExceeded</Code></Error>")
    True
    >>> is_full("PUT http://s3/quotaexceeded - status code: 403 Forbidden: <Error><Code>AccessDenied</Code>")
    False
    """
    said = said.split(_AGAIN)[0]
    answer = _ANSWER.search(said)
    says_so = answer is not None and _NO_ROOM.search(said, answer.end()) is not None
    return says_so or _SAYS_NO_ROOM.search(said) is not None


def told(place: Place, what: str, error: BaseException) -> StateError:
    """What the client says, as an error that says what to do."""
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
    """A line of what the client says: no queries of URLs, which may be signed, and no XML."""
    text = str(error).split(_AGAIN)[0]
    words = _QUERY.sub("", " ".join(re.sub(r"<(\?xml|Error\b).*", "", text, flags=re.DOTALL).split()))
    code = _code(error)
    return without_secrets(words.rstrip(": ")[:400]) + (f" ({code})" if code else "")


def _code(error: BaseException) -> str | None:
    match = _CODE.search(str(error))
    return match[1] if match else None
