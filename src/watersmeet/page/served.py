"""The page over HTTP: of a job that runs in any process, or has ended, from the history beside its state.

Read only, and of one job. Whoever asks for it by another name than it is served under is refused, so that no
page of somebody else's reaches it through a browser; where it listens for other machines it wants a token.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar, TypeVarTuple

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
from watersmeet.history.past import Past, Reader
from watersmeet.page.aside import samples_of
from watersmeet.page.asking import Asker, NotAnswered
from watersmeet.page.document import Document, document_of
from watersmeet.page.html import SCRIPTS, STYLES, served_page, static

STATIC = dict.fromkeys(STYLES, "text/css") | dict.fromkeys(SCRIPTS, "text/javascript")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
COOKIE = "watersmeet"
LOOK_S = 2.0

Made = TypeVar("Made")
Given = TypeVarTuple("Given")


class Feed:
    """What the page is told of a job: from its history, which is looked at every `LOOK_S` seconds while
    somebody looks at the page, once for all who do. ``asker``: is asked about its rows."""

    def __init__(
        self, reader: Reader, title: str, look_s: float = LOOK_S, asker: Asker | None = None
    ) -> None:
        self._reader = reader
        self.title = title
        self.asker = asker
        self.look_s = look_s
        self._lock = threading.Lock()
        self._past: Past | None = None
        self._looked = float("-inf")
        self._whole: tuple[object, str] | None = None

    def past(self, now: float) -> Past:
        """The history, as it was at most `look_s` seconds ago. ``now``: seconds, that only grow."""
        with self._lock:
            return self._read(now)

    def document(self, now: float) -> str:
        """The document of that, as JSON; it is made once for all who ask."""
        with self._lock:
            past = self._read(now)
            if self._whole is None or self._whole[0] != _state(past):
                self._whole = _state(past), self.news(past)
            return self._whole[1]

    def news(self, past: Past, after: int = 0) -> str:
        """The document of a history, as JSON: of time lines what came after that clock (µs)."""
        return json.dumps(_document(past, self, after), separators=(",", ":"))

    def _read(self, now: float) -> Past:
        if self._past is None or now - self._looked >= self.look_s:
            self._past, self._looked = self._reader.read(), now
        return self._past


def _document(past: Past, feed: Feed, after: int) -> Document:
    """With samples of the rows that the last run has set aside, and how rows can be asked for."""
    files = past.runs[-1].begun.late_files if past.runs else None
    asked = None if feed.asker is None else feed.asker.job.document
    return {**document_of(past, feed.title, after), "samples": samples_of(files), "why": asked}


def _state(past: Past) -> object:
    """What changes when the history does."""
    return past.until_us, len(past.runs), past.runs[-1].ended if past.runs else None


def app_of(feed: Feed, hosts: list[str], token: str | None) -> Starlette:
    """The page as an application.

    Args:
        hosts: the names under which it may be asked for.
        token: what has to be known to see it; None: nothing.
    """

    async def index(_: Request) -> Response:
        # It is made while the browser loads the scripts; who asks for it is told what went wrong.
        _in_a_thread(feed.document, _clock()).add_done_callback(
            lambda made: made.cancelled() or made.exception()
        )
        return HTMLResponse(served_page(feed.title))

    async def document(_: Request) -> Response:
        try:
            return Response(await _in_a_thread(feed.document, _clock()), media_type="application/json")
        except StateError as error:
            return PlainTextResponse(error.message, 503)

    async def events(request: Request) -> Response:
        after = _number(request.headers.get("last-event-id") or request.query_params.get("after"))
        return EventSourceResponse(_news(after), ping=15)

    async def _news(after: int) -> AsyncIterator[dict[str, Any]]:
        seen: object = None
        while True:
            try:
                whole = await _in_a_thread(feed.past, _clock())
            except StateError as error:
                yield {"event": "problem", "data": json.dumps(error.message)}
                await asyncio.sleep(feed.look_s)
                continue
            if _state(whole) != seen:
                seen = _state(whole)
                more = await _in_a_thread(feed.news, whole, after)
                after = max(after, whole.until_us)
                yield {"id": str(after), "event": "more", "data": more}
            await asyncio.sleep(feed.look_s)

    async def why(request: Request) -> Response:
        return await _asked(request, _question_of(request))

    async def inputs(request: Request) -> Response:
        return await _asked(request, None)

    async def _asked(request: Request, question: Mapping[str, Any] | None) -> Response:
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return PlainTextResponse("pages of others may not ask", 403)
        if feed.asker is None:
            return PlainTextResponse("there is no such page", 404)
        try:
            return JSONResponse(await feed.asker.told(question, lambda: _gone(request)))
        except NotAnswered as error:
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
        Middleware(_Guarded, token=token),
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
    """As `Asker.told` wants it."""
    said = request.query_params
    return {
        "input": said.get("input", ""),
        "query": said.get("query") or None,
        "time": said.get("time") or None,
        "keys": said.getlist("key"),
    }


async def _gone(request: Request) -> None:
    """Ends when the browser has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _in_a_thread(work: Callable[[*Given], Made], *given: *Given) -> asyncio.Future[Made]:
    return asyncio.get_running_loop().run_in_executor(None, work, *given)


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else 0


class _Guarded:
    """Asks for the token, by a parameter once and by a cookie from then on, and sets `HEADERS`."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

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

        request = Request(scope)
        if self._token is None or self._is_known(request.cookies.get(COOKIE)):
            await self._app(scope, receive, with_headers)
        elif self._is_known(request.query_params.get("token")):
            response = RedirectResponse(request.url.path, 303)
            response.set_cookie(COOKIE, str(self._token), httponly=True, samesite="strict")
            await response(scope, receive, with_headers)
        else:
            told = PlainTextResponse("a token is wanted: use the address that the command printed", 401)
            await told(scope, receive, with_headers)

    def _is_known(self, said: str | None) -> bool:
        return said is not None and hmac.compare_digest(said.encode(), str(self._token).encode())
