"""The live view of a run on Spark, on a terminal: drawn in place, stopped by Ctrl-C, the account below."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.lent_jvms import lent
from tests.support.screen import Screen

SOURCES = Path(__file__).resolve().parents[2] / "src"
JOB = """
CREATE TABLE orders (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' SECOND)
  WITH ('connector' = 'file', 'path' = '{folder}/orders', 'format' = 'json');
CREATE TABLE deliveries (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' SECOND)
  WITH ('connector' = 'file', 'path' = '{folder}/deliveries', 'format' = 'json');
SELECT o.k FROM orders o LEFT JOIN deliveries d
  ON o.k = d.k AND d.t BETWEEN o.t AND o.t + INTERVAL '1' HOUR;
"""


class OnTerminal:
    """A command on a terminal of its own, and what that shows."""

    def __init__(self, words: list[str], environment: dict[str, str], columns: int, rows: int) -> None:
        self.screen = Screen(columns, rows)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.process, self._terminal = pty.fork()
        if not self.process:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execvpe(words[0], words, environment)

    def until(self, true: Callable[[list[str]], object]) -> None:
        """Read what it writes until that is true of the lines of the screen; or None: until it ends."""
        ends = time.monotonic() + 240
        while not true(self.screen.all):
            assert time.monotonic() < ends, "\n".join(self.screen.all)
            if not self._read():
                return

    def _read(self) -> bool:
        if not select.select([self._terminal], [], [], 1)[0]:
            return True
        try:
            written = os.read(self._terminal, 65_536)
        except OSError:  # the other side is closed
            return False
        self.screen.write(self._decoder.decode(written).replace("\r\n", "\n"))
        return bool(written)

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def ended(self) -> int:
        self.until(lambda lines: False)
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


@pytest.mark.full
@pytest.mark.spark
def test_live_view_on_a_terminal(tmp_path):
    for name in ("orders", "deliveries"):
        (tmp_path / name).mkdir()
        rows = [
            f'{{"k": {n}, "t": "2024-01-01T00:00:{n:02}Z"}}\n' for n in range(30 if name == "orders" else 20)
        ]
        (tmp_path / name / "1.json").write_text("".join(rows))
    job = tmp_path / "job.sql"
    job.write_text(JOB.format(folder=tmp_path))
    environment = os.environ | {"PYTHONPATH": str(SOURCES), "TERM": "xterm-256color"} | lent()
    words = [sys.executable, "-m", "watersmeet", "run", str(job), "--checkpoint", str(tmp_path / "state")]
    run = OnTerminal(words, environment, 80, 24)
    # Which part comes first is a matter of what takes longest.
    run.until(lambda lines: any(line.startswith("parts ") and " ingest " in line for line in lines))
    shown = run.screen.shown
    (head,) = [line for line in shown if line.startswith("job.sql")]
    assert "  running for " in head
    assert any(line.startswith("read 50 rows") for line in shown)
    assert any(line.startswith("o.t        2024-01-01 00:00:28") for line in shown)
    run.type("\x03")
    assert run.ended() == 0
    lines = run.screen.all
    assert sum(line.startswith("job.sql") for line in lines) == 1
    view = next(n for n, line in enumerate(lines) if line.startswith("job.sql  ended after "))
    assert "console, tick 1" in lines[:view]
    account = lines.index("Row accounting")
    assert account > view
    assert any("│ adds up " in line for line in lines[account:])
    assert lines[-1].endswith("Run the same command again to resume.")
    assert not run.screen.hidden
    assert run.screen.styles
