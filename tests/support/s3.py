"""An S3 server over HTTP, and what may go wrong on the way to it."""

from __future__ import annotations

import http.client
import io
import itertools
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

from watersmeet.objects.object_store import ObjectLocation, ObjectStore

Fault = str
FAULTS: tuple[Fault, ...] = ("unavailable", "reset", "lost", "unavailable but done", "slow", "cut")
"""``lost``: done, and no answer; ``slow``: done when the client has given up; ``cut``: half of an answer."""

FULL: tuple[Fault, ...] = (
    "full 507 XMinioStorageFull",
    "full 400 XMinioAdminBucketQuotaExceeded",
    "full 403 QuotaExceeded",
    "full 403 StorageQuotaExceeded",
)
"""What servers say when there is no room: MinIO, twice; Ceph; others. What is put then is not there."""

KEYS = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "of-the-tests", "AWS_REGION": "us-east-1"}
OF_A_CONNECTION = ("content-length", "connection", "transfer-encoding", "date", "server")
TIMEOUT_S = 0.25


class ClientWith:
    """A client of an object store with some ``methods`` of a test's own."""

    def __init__(self, client: Any, **methods: Callable[..., Any]) -> None:
        self._client = client
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@contextmanager
def s3_server() -> Iterator[str]:
    """Its endpoint; all that is put is in memory."""
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    serving = _one_write_at_a_time(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, serving, threaded=True, request_handler=MotoRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _one_write_at_a_time(serve: Callable[..., Any]) -> Callable[..., Any]:
    """Moto looks whether there is an object, and then puts its own there: of two at once both would be told
    that theirs is the first."""
    writing = threading.Lock()

    def serve_in_turn(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return serve(environ, start_response)
        if length := environ.get("CONTENT_LENGTH"):  # nobody waits for a client that is slow
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with writing:
            return serve(environ, start_response)

    return serve_in_turn


def make_bucket(endpoint: str) -> str:
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    urlopen(Request(f"{endpoint}/{name}", method="PUT")).close()
    return name


def store_at(endpoint: str, bucket: str, prefix: str = "state", **place: Any) -> ObjectStore:
    """A store there, whose client gives up soon. The keys have to be in the environment."""
    options = (("endpoint", endpoint), ("region", "us-east-1"))
    limits = {"timeout_s": TIMEOUT_S, "patience_s": 6.0} | place
    return ObjectStore(ObjectLocation(f"s3://{bucket}/{prefix}", options, allow_http=True, **limits))


class FullBucket:
    """A fault of `Proxy`: while it is told to, what is put is answered with one of `FULL`; all else is done.

    Attributes:
        says: the answer; None: there is room.
        only: a part of the names for which there is none.
    """

    def __init__(self) -> None:
        self.says: Fault | None = None
        self.only = ""

    def __call__(self, method: str, path: str, number: int) -> Fault | None:
        takes_room = method == "PUT" or (method == "POST" and "?delete" not in path)
        return self.says if takes_room and self.only in path else None


class Proxy:
    """Between a client and the server. ``fault``: is asked with method, path and number of each request;
    ``delay_s``: so long each is on its way.

    Attributes:
        requests: how many came, per method and folder.
        ignores: a header that the server does not get to see.
        status: what all requests are answered with.
        sent: bytes of objects that were put; ``given``: of those that were got.
    """

    def __init__(
        self,
        endpoint: str,
        fault: Callable[[str, str, int], Fault | None] | None = None,
        delay_s: float = 0.0,
    ) -> None:
        self.fault = fault or (lambda method, path, number: None)
        self.requests: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[Fault] = Counter()
        self.sent = self.given = 0
        self.ignores: str | None = None
        self.status: int | None = None
        self._numbers, self._lock = itertools.count(), threading.Lock()
        proxy, target = self, endpoint.removeprefix("http://")

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: Any) -> None:
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (ConnectionError, TimeoutError):
                    self.close_connection = True

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return self._any
                raise AttributeError(name)

            def _any(self) -> None:
                chunked = self.headers.get("Transfer-Encoding", "").lower() == "chunked"
                body = (
                    self._chunks() if chunked else self.rfile.read(int(self.headers.get("Content-Length", 0)))
                )
                fault = proxy._count(self.command, self.path, body)
                time.sleep(delay_s)
                if proxy.status is not None:
                    return self._answer(proxy.status, {}, b"<Error><Code>AccessDenied</Code></Error>")
                if fault == "reset":
                    self.close_connection = True
                    return
                if fault == "unavailable":
                    return self._answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
                if fault is not None and fault.startswith("full "):
                    _, answered, code = fault.split()
                    return self._answer(int(answered), {}, f"<Error><Code>{code}</Code></Error>".encode())
                if fault == "conflict":
                    return self._answer(409, {}, b"<Error><Code>ConditionalRequestConflict</Code></Error>")
                if fault == "slow":
                    time.sleep(TIMEOUT_S * 1.3)
                connection = http.client.HTTPConnection(target)
                try:
                    left_out = ("connection", "transfer-encoding", "expect", proxy.ignores)
                    kept = {k: v for k, v in self.headers.items() if k.lower() not in left_out}
                    connection.request(self.command, self.path, body or None, kept)
                    answer = connection.getresponse()
                    content, headers, status = answer.read(), dict(answer.getheaders()), answer.status
                finally:
                    connection.close()
                if fault in ("lost", "slow"):
                    self.close_connection = True
                    return
                if fault == "unavailable but done":
                    return self._answer(503, {}, b"<Error><Code>InternalError</Code></Error>")
                if self.command == "GET" and status in (200, 206):
                    proxy.given += len(content)
                return self._answer(status, headers, content, cut=fault == "cut")

            def _chunks(self) -> bytes:
                content = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    content += self.rfile.read(size)
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    pass  # trailers
                return content

            def _answer(
                self, status: int, headers: dict[str, str], content: bytes, cut: bool = False
            ) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in OF_A_CONNECTION:
                        self.send_header(name, value)
                length = headers.get("Content-Length", headers.get("content-length"))
                size = int(length) if self.command == "HEAD" and length else len(content)
                self.send_header("Content-Length", str(size))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content[: len(content) // 2] if cut else content)
                if cut:
                    self.close_connection = True

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def _count(self, method: str, path: str, body: bytes) -> Fault | None:
        with self._lock:
            number = next(self._numbers)
            fault = self.fault(method, path, number)
            folder = "list" if "list-type" in path else "delete" if "?delete" in path else path.split("/")[-2]
            self.requests[method, folder] += 1
            self.sent += len(body) if method == "PUT" else 0
            if fault is not None:
                self.faults[fault] += 1
            return fault

    def forget(self) -> None:
        """Count anew."""
        self.requests.clear()
        self.sent = self.given = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
