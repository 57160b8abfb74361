"""A real PostgreSQL server for tests: on loopback, a free port, in a directory that goes when it goes.

It runs from the programs of the system (Debian's package ``postgresql``; ``scripts/postgres`` installs it).
The server refuses to run as root: then it runs as ``postgres``, or ``nobody``.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.certificates import create_certificates
from watersmeet.errors import WatersmeetError

BINARIES_VARIABLE = "WATERSMEET_POSTGRES_BIN"
USER = "watersmeet"


def postgres_binaries() -> Path:
    """The directory of the server's programs.

    Raises:
        WatersmeetError: there is none (``no-postgres``).
    """
    named = os.environ.get(BINARIES_VARIABLE)
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name)
    on_path = shutil.which("initdb")
    found = [Path(named)] if named else [*reversed(installed), *([Path(on_path).parent] if on_path else [])]
    for folder in found:
        if all((folder / name).exists() for name in ("initdb", "pg_ctl", "psql")):
            return folder
    raise WatersmeetError(
        "there is no PostgreSQL server to test with",
        code="no-postgres",
        hint="run scripts/postgres (apt-get install postgresql), or let"
        f" {BINARIES_VARIABLE} name the directory of initdb and pg_ctl",
    )


class Postgres:
    """One server; a context manager. ``password``: of the user ``watersmeet``, made anew for each.
    ``tls``: it takes connections by TLS alone; ``authority`` is the certificate that clients are to trust.
    ``fsync``: what it confirms is on the disk. ``connections``: how many it lets in.

    Example::

        with Postgres() as server:
            server.run("CREATE TABLE customers (id bigint, name text)")
            assert server.jdbc_url.startswith("jdbc:postgresql://127.0.0.1:")
    """

    def __init__(self, *, tls: bool = False, fsync: bool = False, connections: int = 100) -> None:
        self._is_tls = tls
        self._connections = connections
        self._fsync = "on" if fsync else "off"
        self._bin = postgres_binaries()
        self.password = secrets.token_hex(12)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])

    @property
    def jdbc_url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    @property
    def url(self) -> str:
        """With the password."""
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/postgres"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="watersmeet-postgres-"))
        try:
            secret = self._folder / "password"
            secret.write_text(self.password)
            _hand_over(self._folder)
            self._do(
                "initdb", "-D", self._data, "-U", USER, "-A", "scram-sha-256", "--pwfile", str(secret),
                "-E", "UTF8", "--locale=C", "--no-sync",
            )  # fmt: skip
            if self._is_tls:
                self._take_tls_alone()
            self.start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._do("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _take_tls_alone(self) -> None:
        given = create_certificates(self._folder / "certificates")
        self.authority = self._folder / "authority.pem"
        shutil.copy(given.authority, self.authority)
        data = Path(self._data)
        for name, file in (("server.crt", given.certificate), ("server.key", given.key)):
            shutil.copy(file, data / name)
            (data / name).chmod(0o600)
        (data / "pg_hba.conf").write_text(
            "hostssl all all 127.0.0.1/32 scram-sha-256\nhostnossl all all 127.0.0.1/32 reject\n"
        )
        with (data / "postgresql.conf").open("a") as settings:
            settings.write("ssl = on\n")
        _hand_over(data)

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def start(self) -> None:
        """Start the server, which was stopped."""
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=''"
            f" -c fsync={self._fsync}"
            " -c wal_level=logical -c timezone=UTC"
            f" -c max_connections={self._connections} -c superuser_reserved_connections=0"
        )
        log = str(self._folder / "log")
        self._do("pg_ctl", "-D", self._data, "-l", log, "-o", options, "-w", "-t", "60", "start")

    def stop(self, *, crash: bool = False) -> None:
        """Stop it; ``crash``: it has to recover when it is started, and unlogged tables are empty then."""
        self._do("pg_ctl", "-D", self._data, "-m", "immediate" if crash else "fast", "-w", "stop")

    def staging(self) -> set[str]:
        """The tables that rows of sinks wait in."""
        return set(
            self.run("SELECT relname FROM pg_class WHERE relname ~ '_watersmeet_[0-9a-f]{16}'").split()
        )

    def run(self, sql: str) -> str:
        """Run statements; what they print. Raises: WatersmeetError with what the server says."""
        command = ["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", "postgres"]
        return self._do(*command, "-v", "ON_ERROR_STOP=1", "-qAtc", sql)

    def _do(self, program: str, *arguments: str) -> str:
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "PGPASSWORD": self.password}
        with tempfile.TemporaryFile() as said:  # a pipe would stay open in the server that pg_ctl starts
            done = subprocess.run(
                [str(self._bin / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=environment,
                user=_server_user(),
                cwd=self._folder,
                check=False,
                timeout=120,
            )
            said.seek(0)
            text = said.read().decode(errors="replace")
        if done.returncode != 0:
            raise WatersmeetError(f"{program} failed: {text.strip()}", code="postgres-failed")
        return text


def _server_user() -> str | None:
    """Whom the server runs as; None: as whoever runs this."""
    if os.getuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


def _hand_over(folder: Path) -> None:
    user = _server_user()
    if user is not None:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, user)
