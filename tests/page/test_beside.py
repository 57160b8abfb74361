"""The page of a run, served by the run's own process."""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from contextlib import suppress

from tests.support.recorded import RecordedJob
from watersmeet.errors import EngineError
from watersmeet.page import live_server
from watersmeet.page.live_server import serve_run_page
from watersmeet.spec.monitoring import Address
from watersmeet.state.store import MemoryStore

TEXT = """
CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE SINK out WITH ('connector' = 'memory');
INSERT INTO out SELECT t FROM a;
"""


def test_open_page_shows_the_error_of_a_failed_run(monkeypatch):
    monkeypatch.setattr(live_server, "LIVE_POLL_S", 1.2)  # longer than connections are given to end
    store, told, looks = MemoryStore(), bytearray(), threading.Event()
    job = RecordedJob(TEXT, store)

    def look(url: str) -> None:
        with urllib.request.urlopen(f"{url}events?after=0", timeout=20) as events:
            while line := events.readline():
                told.extend(line)
                looks.set()

    with (
        suppress(EngineError),
        serve_run_page(Address("127.0.0.1", 0), store, "shop", token=None) as page,
        job.run(None),
    ):
        browser = threading.Thread(target=look, args=(page.url,), daemon=True)
        browser.start()
        assert looks.wait(20)
        raise EngineError("the disk is full", code="no-room")
    browser.join(20)
    assert b"the disk is full" in told
    statuses = re.findall(rb'"status":"([^"]*)"', told)
    assert (statuses[0], statuses[-1]) == (b"running", b"failed")


def test_nobody_is_waited_for_who_does_not_look():
    with serve_run_page(Address("127.0.0.1", 0), MemoryStore(), "shop", token=None):
        began = time.monotonic()
    assert time.monotonic() - began < live_server.LIVE_POLL_S
