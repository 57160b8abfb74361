"""Serve the page over HTTP: the requests, the address, and how long it listens.

The page is read-only and of one job. Every request needs the token, because any user of this machine can
reach the port. Requests for another host name are refused, so that no foreign page can reach it through a
browser.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, TextIO, TypeVar, TypeVarTuple
from urllib.parse import quote

import uvicorn
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from watersmeet.errors import StateError
from watersmeet.history.reader import HistoryReader, JobHistory
from watersmeet.page.document import Document, document_of, samples_of
from watersmeet.page.html import SCRIPTS, STYLES, served_page, static
from watersmeet.page.questions import AnswerError, QuestionRunner
from watersmeet.spec.monitoring import (
    LOOPBACK,
    AccessToken,
    Address,
    cannot_listen,
    describe_access,
    is_equal,
)

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


STATIC = dict.fromkeys(STYLES, "text/css") | dict.fromkeys(SCRIPTS, "text/javascript")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
COOKIE = "watersmeet"
NO_TOKEN_SHOWN = (
    "this page asks for a token: open the link that the command printed, or add ?token= and what is in the"
    " file that it named; a program sends Authorization: Bearer TOKEN"
)
HISTORY_POLL_S = 2.0

Made = TypeVar("Made")
Given = TypeVarTuple("Given")


class PageFeed:
    """Source of the page's data on a job.

    It reads the job's history every `HISTORY_POLL_S` seconds while a browser shows the page, once for
    all browsers.

    Args:
        asker: answers questions about rows.
        is_held: returns whether a process holds the checkpoint; None: unknown.
    """

    def __init__(
        self,
        reader: HistoryReader,
        title: str,
        look_s: float = HISTORY_POLL_S,
        asker: QuestionRunner | None = None,
        is_held: Callable[[], bool | None] = lambda: None,
    ) -> None:
        self._reader = reader
        self._is_held = is_held
        self._was_held: bool | None = None
        self.held: bool | None = None
        self.title = title
        self.asker = asker
        self.look_s = look_s
        self._lock = threading.Lock()
        self._past: JobHistory | None = None
        self._looked = float("-inf")
        self._whole: tuple[object, str] | None = None

    def past(self, now: float) -> JobHistory:
        """Return the history as of at most `look_s` seconds ago.

        Args:
            now: monotonic seconds.
        """
        with self._lock:
            return self._read(now)

    def document(self, now: float) -> str:
        """Return the current document as JSON; build all but the clock once for all requests."""
        with self._lock:
            past = self._read(now)
            if self._whole is None or self._whole[0] != self.state(past):
                self._whole = self.state(past), self.updates_after(past)
            return f'{self._whole[1][:-1]},"now":{time.time()}}}'

    def updates_after(self, past: JobHistory, after: int = 0) -> str:
        """Return the document of a history as JSON, with points of time series after `after` (µs)."""
        return json.dumps(_document(past, self, after), separators=(",", ":"))

    def state(self, past: JobHistory) -> object:
        """Return a value that changes whenever the document does."""
        return past.until_us, len(past.runs), past.runs[-1].ended if past.runs else None, self.held

    def _read(self, now: float) -> JobHistory:
        if self._past is None or now - self._looked >= self.look_s:
            is_held, was_held = self._is_held(), self._was_held
            self._past, self._looked = self._reader.read(), now
            runs = self._past.runs
            # a run releases its checkpoint just before it writes how it ended
            is_ending = was_held and is_held is False and bool(runs) and runs[-1].ended is None
            self._was_held, self.held = is_held, is_ending or is_held
        return self._past


def _document(past: JobHistory, feed: PageFeed, after: int) -> Document:
    """Build the document with samples of the last run's side outputs.

    ``why`` in it describes how the page can ask about rows.
    """
    begun = past.runs[-1].begun if past.runs else None
    files = () if begun is None else dict.fromkeys((begun.late_files, begun.broken_files))
    samples = [row for of in files for row in samples_of(of)]
    asked = None if feed.asker is None else feed.asker.job.document
    document = document_of(past, feed.title, after, is_held=feed.held)
    return {**document, "samples": samples, "why": asked}


def app_of(feed: PageFeed, hosts: list[str], token: AccessToken | None, port: int) -> Starlette:
    """Make the page an application.

    Args:
        hosts: the names under which it may be asked for.
        token: what has to be known to see it; None: nothing.
        port: where it listens, for which a browser keeps a cookie.
    """

    async def index(_: Request) -> Response:
        # It is made while the browser loads the scripts; who asks for it is told what went wrong.
        _run_in_thread(feed.document, _clock()).add_done_callback(
            lambda made: made.cancelled() or made.exception()
        )
        return HTMLResponse(served_page(feed.title))

    async def document(_: Request) -> Response:
        try:
            return Response(await _run_in_thread(feed.document, _clock()), media_type="application/json")
        except StateError as error:
            return PlainTextResponse(error.message, 503)

    async def events(request: Request) -> Response:
        after = _number(request.headers.get("last-event-id") or request.query_params.get("after"))
        return EventSourceResponse(_news(after), ping=15)

    async def _news(after: int) -> AsyncIterator[dict[str, Any]]:
        seen: object = None
        while True:
            try:
                whole = await _run_in_thread(feed.past, _clock())
            except StateError as error:
                yield {"event": "problem", "data": json.dumps(error.message)}
                seen = None
                await asyncio.sleep(feed.look_s)
                continue
            if feed.state(whole) != seen:
                seen = feed.state(whole)
                more = await _run_in_thread(feed.updates_after, whole, after)
                after = max(after, whole.until_us)
                yield {"id": str(after), "event": "more", "data": more}
            await asyncio.sleep(feed.look_s)

    async def why(request: Request) -> Response:
        return await _respond_to_question(request, _question_of(request))

    async def inputs(request: Request) -> Response:
        return await _respond_to_question(request, None)

    async def _respond_to_question(request: Request, question: Mapping[str, Any] | None) -> Response:
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return PlainTextResponse("pages of others may not ask", 403)
        if feed.asker is None:
            return PlainTextResponse("there is no such page", 404)
        try:
            return JSONResponse(await feed.asker.told(question, lambda: _wait_for_disconnect(request)))
        except AnswerError as error:
            return PlainTextResponse(error.words, error.status)
        except asyncio.CancelledError:  # the page ends, and does not wait for it
            return PlainTextResponse("the page has ended", 503)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return PlainTextResponse("there is no such page", 404)
        return Response(static(name), media_type=STATIC[name])

    middleware = [
        Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
        Middleware(_TokenGuard, token=token, cookie=f"{COOKIE}-{port}"),
        Middleware(GZipMiddleware, compresslevel=3),
    ]
    routes = [
        Route("/", index),
        Route("/document.json", document),
        Route("/events", events),
        Route("/why.json", why),
        Route("/inputs.json", inputs),
        Route("/{name}", file),
    ]
    return Starlette(routes=routes, middleware=middleware)


def _question_of(request: Request) -> dict[str, Any]:
    """Return the request's parameters as a question for `QuestionRunner.told`."""
    said = request.query_params
    return {
        "input": said.get("input", ""),
        "query": said.get("query") or None,
        "time": said.get("time") or None,
        "keys": said.getlist("key"),
    }


async def _wait_for_disconnect(request: Request) -> None:
    """Wait until the browser disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _run_in_thread(work: Callable[[*Given], Made], *given: *Given) -> asyncio.Future[Made]:
    return asyncio.get_running_loop().run_in_executor(None, work, *given)


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else 0


class _TokenGuard:
    """Asks for the token, and sets `HEADERS`.

    A program sends it in a header each time. A browser sends it once, in the query of the link, and a cookie
    from then on. Cookies go to all ports of a host, and so to servers of other users: the cookie is named
    after the port, and does not reveal the token.
    """

    def __init__(self, app: ASGIApp, token: AccessToken | None, cookie: str) -> None:
        self._app = app
        self._token = token
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message.get("headers", ())}
                told = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *(h for h in told if h[0] not in names)]
            await send(message)

        refusal = None if self._token is None else self._refusal(Request(scope), self._token)
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, request: Request, token: AccessToken) -> Response | None:
        """Return the answer to a request without a valid header or cookie; None if it has one."""
        cookie, shown = token.derive(self._cookie), request.cookies.get(self._cookie, "")
        if token.is_in_header(request.headers.get("authorization")) or is_equal(shown, cookie):
            return None
        if request.url.path == "/" and token.is_known(request.query_params.get("token")):
            response = RedirectResponse("/", 303)
            response.set_cookie(self._cookie, cookie, httponly=True, samesite="lax")
            return response
        return PlainTextResponse(NO_TOKEN_SHOWN, 401, {"WWW-Authenticate": "Bearer"})
