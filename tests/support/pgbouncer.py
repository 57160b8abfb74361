"""A real PgBouncer before a server of tests: on loopback, a free port (Debian's package ``pgbouncer``)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.postgres import USER, Postgres, _hand_over, _server_user


class PgBouncer:
    """A context manager. ``mode``: ``transaction``, ``session`` or ``statement``."""

    def __init__(self, server: Postgres, mode: str) -> None:
        self._server, self._mode = server, mode
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = int(probe.getsockname()[1])

    @property
    def url(self) -> str:
        return self._server.url.replace(f":{self._server.port}/", f":{self._port}/")

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="watersmeet-pgbouncer-"))
        users, settings = self._folder / "users", self._folder / "settings"
        users.write_text(f'"{USER}" "{self._server.password}"\n')
        settings.write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={self._server.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\n"
            f"pool_mode = {self._mode}\n"
            f"auth_type = scram-sha-256\nauth_file = {users}\ndefault_pool_size = 4\n"
        )
        _hand_over(self._folder)
        path = f"{os.environ.get('PATH', '')}:/usr/sbin"
        program = shutil.which("pgbouncer", path=path) or "pgbouncer"  # scripts/postgres installs it
        self._process = subprocess.Popen(
            [program, "-q", str(settings)], user=_server_user(), stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return self
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(20)
        shutil.rmtree(self._folder, ignore_errors=True)
