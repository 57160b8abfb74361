"""Processes of Python that are forked from one that has imported everything.

A process that runs a short job takes three CPU seconds to import what it needs, and one for the rest.
`Forked` is, for whoever starts it, what `subprocess.Popen` is: arguments as Python's own (``-m MODULE``,
``-c TEXT`` or a file, and more), an environment and a folder of its own, a session and so a process group of
its own, signals, an exit status. The process that all are forked from (`server`) starts at the first, and
ends with this one.

Not for tests of how a process starts: what it imports, how fast, and what it does while it does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.support.serving import REPOSITORY, folder_of, serve

Arguments = Sequence[str | os.PathLike[str]]


class Forked:
    """One that runs from the moment that this is made. ``stdout``, ``stderr``: files; of the first also
    `subprocess.PIPE`, to be read."""

    def __init__(
        self,
        arguments: Arguments,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: IO[bytes] | int | None = None,
        stderr: IO[bytes] | int | None = None,
    ) -> None:
        self.args = [os.fspath(word) for word in arguments]
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = None
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(_server())
        opened = [os.open(os.devnull, os.O_RDWR)]
        try:
            places = [1 if stdout is None else stdout, 2 if stderr is None else stderr]
            if stdout == subprocess.PIPE:
                read, written = os.pipe()
                opened.append(written)
                self.stdout, places[0] = os.fdopen(read, "rb", buffering=0), written
            told = {
                "arguments": self.args,
                "folder": str(cwd or Path.cwd()),
                "environment": dict(os.environ if env is None else env),
            }
            socket.send_fds(
                self._server, [json.dumps(told).encode() + b"\n"], [opened[0], *map(_number, places)]
            )
        except BaseException:
            self._server.close()  # else it would be listened to
            raise
        finally:
            for each in opened:
                os.close(each)
        self._said = b""
        self.pid = int(self._line(None) or 0)
        assert self.pid, "the process that others are forked from has ended"

    def poll(self) -> int | None:
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._wait(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            line = self._line(timeout_s)
            if line is not None:
                self.returncode = int(line)
                self._server.close()
        return self.returncode

    def _line(self, timeout_s: float | None) -> bytes | None:
        """What the server says next: the number of the process, its exit status. None: nothing till then."""
        self._server.settimeout(timeout_s)
        try:
            while b"\n" not in self._said:
                piece = self._server.recv(100)
                assert piece, "the process that others are forked from has ended"
                self._said += piece
        except (TimeoutError, BlockingIOError):
            return None
        line, _, self._said = self._said.partition(b"\n")
        return line


def run_forked(arguments: Arguments, timeout_s: float, **more: Any) -> tuple[int, str]:
    """Exit status, and what was said on standard error, of one that is waited for."""
    with tempfile.TemporaryFile() as told:
        process = Forked(arguments, stderr=told, **more)
        try:
            status = process.wait(timeout_s)
        finally:
            process.kill()
        told.seek(0)
        return status, told.read().decode()


def _number(place: IO[bytes] | int) -> int:
    return place if isinstance(place, int) else place.fileno()


@cache
def _server() -> str:
    place = str(folder_of("forked") / "socket")
    serve("tests.support.forked.server", place, [REPOSITORY / "src", REPOSITORY])
    return place
