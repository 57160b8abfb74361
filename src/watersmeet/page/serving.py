"""Serves the page: where it listens, and until when."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette

from watersmeet.errors import EngineError, SpecError
from watersmeet.page.served import Feed, app_of

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Address:
    """Where it listens; port 0: any that is free."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> Address:
        """From ``8080`` or ``host:8080``. Raises: SpecError when it is neither."""
        host, _, port = text.strip().rpartition(":")
        if not port.isdecimal() or int(port) > 65_535 or (":" in host and not host.startswith("[")):
            raise SpecError(
                f'"{text}" is no port to listen at',
                code="bad-address",
                hint="8080, 0.0.0.0:8080 or [::]:8080",
            )
        return cls(host.strip("[]") or LOOPBACK, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def listening(self) -> socket.socket:
        """Raises: EngineError when the port is taken, or the host is not this machine's."""
        try:
            family = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((self.host, self.port), family=family)
        except OSError as error:
            raise EngineError(
                f"the page cannot listen at {self.host}:{self.port}: {error.strerror or error}",
                code="cannot-listen",
                hint="name another port; 0 takes one that is free",
            ) from None


@dataclass(frozen=True)
class Serving:
    """A page that listens, and is answered from when it is run. ``url``: for a browser, with the token."""

    app: Starlette
    listening: socket.socket
    url: str

    @classmethod
    def of(cls, feed: Feed, address: Address) -> Serving:
        """Raises: EngineError as `Address.listening`."""
        listening = address.listening()
        port = listening.getsockname()[1]
        shown = f"[{address.host}]" if ":" in address.host else address.host
        token = None if address.is_loopback else secrets.token_urlsafe(24)
        hosts = ["localhost", LOOPBACK, "[::1]", shown] if token is None else ["*"]
        url = f"http://{shown}:{port}/" + ("" if token is None else f"?token={token}")
        return cls(app_of(feed, hosts, token), listening, url)

    def run(self) -> None:
        """Answer until SIGINT or SIGTERM."""
        self._server().run(sockets=[self.listening])

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Answer in a thread of its own, until the end of the block."""
        server = self._server()
        thread = threading.Thread(target=server.run, args=([self.listening],), name="page", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()

    def _server(self) -> uvicorn.Server:
        config = uvicorn.Config(self.app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
        return uvicorn.Server(config)
