"""Between a client and a PostgreSQL server: sessions that end at any message, with and without its effect."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.support.postgres import Postgres

Fault = str
FAULTS: tuple[Fault, ...] = ("reset", "lost", "terminated")
"""``reset``: the message does not arrive; ``lost``: it does, and the server's answer does not;
``terminated``: the server ends the session just before the message (``pg_terminate_backend``)."""

_KEY = re.compile(rb"K\x00\x00\x00\x0c(.{4}).{4}Z\x00\x00\x00\x05", re.DOTALL)


class PostgresProxy:
    """A context manager. ``fault``: is asked with the number of each message of a client; ``delay_s``: so
    long each of them is on its way.

    Attributes:
        messages: how many came; ``connections``: of how many sessions.
        sent, given: bytes to the server, and from it.
        faults: how many of each there were.
    """

    def __init__(
        self, server: Postgres, fault: Callable[[int], Fault | None] | None = None, *, delay_s: float = 0.0
    ) -> None:
        self.server, self._delay_s = server, delay_s
        self.fault = fault or (lambda number: None)
        self.faults: Counter[Fault] = Counter()
        self.messages = self.connections = self.sent = self.given = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        parts = urlsplit(self.server.url)
        return parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{self._port}")).geturl()

    def forget(self) -> None:
        """Count anew."""
        self.messages = self.connections = self.sent = self.given = 0

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.server.port))
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session: dict[str, int] = {}
        answers = threading.Event()
        muted = threading.Event()

        def back() -> None:
            begun = b""
            with contextlib.suppress(OSError):
                while data := server.recv(1 << 16):
                    self.given += len(data)
                    if "pid" not in session:
                        begun += data
                        if (match := _KEY.search(begun)) is not None:
                            session["pid"] = int.from_bytes(match[1], "big")
                    answers.set()
                    if not muted.is_set():
                        client.sendall(data)
            _close(client, server)

        threading.Thread(target=back, daemon=True).start()
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                with self._lock:
                    fault = self.fault(self.messages)
                    self.messages += 1
                    self.sent += len(data)
                    if fault is not None:
                        self.faults[fault] += 1
                if fault == "reset":
                    break
                if fault == "lost":
                    muted.set()
                    answers.clear()
                    server.sendall(data)
                    answers.wait(1.0)
                    break
                if fault == "terminated" and "pid" in session:
                    self.server.run(f"SELECT pg_terminate_backend({session['pid']}, 5000)")
                if self._delay_s:
                    time.sleep(self._delay_s)
                server.sendall(data)
        _close(client, server)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
