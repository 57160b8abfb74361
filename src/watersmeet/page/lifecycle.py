"""Serves the page: where it listens, and until when."""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TextIO
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette

from watersmeet.page.server import PageFeed, app_of
from watersmeet.spec.monitoring import LOOPBACK, AccessToken, Address, cannot_listen, describe_access

_POLL_S = 0.05
_END_S = 5.0
"""So long is waited in the end for who still reads the history for the page: its store may not answer."""
_NOT_TOLD = ("Invalid HTTP request received.", "Cancel %s running task(s)")
"""What the server says of browsers: that one sent nonsense, which it is told itself, or still waited for an
answer when the page ended. It would stand between the lines of the job."""


@dataclass(frozen=True)
class ServedPage:
    """Page that listens, and answers once it is served.

    Attributes:
        url: address for a browser that has already sent the token.
        link: address with the token.
        access: description of who may see the page.
    """

    app: Starlette
    listening: socket.socket
    url: str
    link: str
    access: str

    @classmethod
    def of(cls, feed: PageFeed, address: Address, token: AccessToken | None) -> ServedPage:
        """Listen at an address. ``token``: what a browser must know; None: anybody may see the page.

        Raises:
            EngineError: the port is taken, or the host is not this machine's.
        """
        listening = _listening(address)
        at = address._replace(port=listening.getsockname()[1])
        hosts = ["localhost", LOOPBACK, "[::1]", at.words.rpartition(":")[0]] if at.is_loopback else ["*"]
        url = f"http://{at.words}/"
        link = url if token is None else f"{url}?token={quote(token.text, safe='')}"
        return cls(app_of(feed, hosts, token, at.port), listening, url, link, describe_access(token, address))

    def describe(self, stream: TextIO | None) -> str:
        """Say where the page is; the token is shown on a terminal only, for others may read a log."""
        on_terminal = stream is not None and stream.isatty()
        return self.link if on_terminal and self.link != self.url else f"{self.url} ({self.access})"

    def run(self) -> None:
        """Answer until SIGINT or SIGTERM; an ignored SIGINT stays ignored."""
        self._server().run(sockets=[self.listening])

    @contextmanager
    def serve_in_thread(self, linger_s: float = 0.0) -> Iterator[None]:
        """Serve the page in a thread of its own until the end of the block.

        If a browser shows the page at the end, serve it for at most `linger_s` more seconds.
        """
        server = self._server()
        thread = threading.Thread(target=server.run, args=([self.listening],), name="page", daemon=True)
        thread.start()
        try:
            yield
        finally:
            until = time.monotonic() + linger_s
            while server.server_state.connections and time.monotonic() < until:
                time.sleep(_POLL_S)
            server.should_exit = True
            thread.join(_END_S)

    def _server(self) -> uvicorn.Server:
        config = uvicorn.Config(self.app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
        logging.getLogger("uvicorn.error").addFilter(_is_logged)
        return _Server(config)


class _Server(uvicorn.Server):
    """A server that SIGINT does not stop if the process ignores it, as a background job of a shell does."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ignores_ctrl_c = signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not (sig == signal.SIGINT and self._ignores_ctrl_c):
            super().handle_exit(sig, frame)


def _is_logged(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_NOT_TOLD)


def _listening(address: Address) -> socket.socket:
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        hint = "use another port, such as 8766, or 0 for any free one"
        raise cannot_listen("the page cannot be shown", address, error, hint) from None
