"""A schema registry for tests: the requests of Confluent's REST API that reading takes, over HTTP."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class SchemaRegistry:
    """``schemas``: answers by path. ``asked``: paths so far. ``login``: (user, password) that it wants."""

    def __init__(self, login: tuple[str, str] | None = None) -> None:
        self.schemas: dict[str, Any] = {}
        self.asked: list[str] = []
        self.failures = 0
        self.answers: dict[str, tuple[int, bytes]] = {}
        """By path what is answered instead of what a registry would."""
        registry = self
        wanted = None if login is None else "Basic " + base64.b64encode(":".join(login).encode()).decode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                code, answer = 200, registry.schemas.get(self.path)
                if registry.failures:
                    registry.failures -= 1
                    code = 503
                elif wanted is not None and self.headers.get("Authorization") != wanted:
                    code = 401
                elif answer is None:
                    code = 404
                if code == 404:
                    answer = {"error_code": 40403, "message": "Schema not found"}
                body = json.dumps(answer).encode()
                if self.path in registry.answers:
                    code, body = registry.answers[self.path]
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def add(self, number: int, schema: Any, **more: Any) -> None:
        self.schemas[f"/schemas/ids/{number}"] = {"schema": json.dumps(schema), **more}

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
