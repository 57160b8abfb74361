"""The embedded SQL engine, when several threads ask for it at once, on a machine that is not in UTC."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from importlib.util import find_spec, module_from_spec

import duckdb

from watersmeet.parallel import parallel_map


def test_threads_that_ask_at_once_have_one_engine_whose_settings_are_made(monkeypatch):
    found = find_spec("watersmeet.kernel.duckdb")
    embedded = module_from_spec(found)  # as in a process that has no engine yet
    found.loader.exec_module(embedded)
    made, connect = [], duckdb.connect
    together = threading.Barrier(4)

    def slow(*given, **named):
        time.sleep(0.02)
        made.append(connect(*given, **named))
        return made[-1]

    def connect_after_barrier(_):
        together.wait(10)
        return embedded.connection()

    monkeypatch.setattr(duckdb, "connect", slow)
    assert set(map(id, parallel_map(connect_after_barrier, range(4)))) == {id(made[0])}
    assert len(made) == 1


def test_its_cursors_are_in_utc_wherever_the_process_is():
    asked = "SELECT current_setting('TimeZone')"
    text = "from watersmeet.kernel.duckdb import connection as c\n"
    text += f"print(*c().cursor().execute({asked!r}).fetchone())"
    elsewhere = {**os.environ, "TZ": "America/New_York"}
    told = subprocess.run(
        [sys.executable, "-c", text], env=elsewhere, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "UTC"
