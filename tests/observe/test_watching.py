"""Who watches a run is told all of it, in order; and who does by its settings."""

from __future__ import annotations

import io

import pytest

from tests.observe.watched import TICKS, WatchedJob
from watersmeet import running
from watersmeet.errors import EngineError
from watersmeet.observe.listeners import Listener, ListenerGroup, run_with_listeners
from watersmeet.observe.live.lines import PlainLines
from watersmeet.observe.log import LogWatcher
from watersmeet.observe.metrics.figures import RunMetrics
from watersmeet.observe.spans import SpanWatcher
from watersmeet.running import open_listeners


class Telling(Listener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def started(self, waiting, before):
        self.told.append(("started", tuple(waiting)))

    def tick_begins(self, tick):
        self.told.append(("begins", tick))

    def tick(self, report, result):
        self.told.append(("tick", report.tick, report.tick == result.tick, dict(report.phases)))

    def notice(self, said):
        self.told.append(("notice", said))

    def ended(self, error):
        self.told.append(("ended", error))


def test_all_listeners_receive_the_same_events_in_order():
    one, two = Telling(), Telling()
    job = WatchedJob(one, two, Listener())
    job.ticks(TICKS[:2])
    job.watching.notice("so")
    job.watching.end(None)
    parts = {"begin": 0.125, "ingest": 0.25}
    assert (
        one.told
        == two.told
        == [
            ("started", ()),
            ("begins", 1),
            ("tick", 1, True, parts),
            ("begins", 2),
            ("tick", 2, True, parts),
            ("notice", "so"),
            ("ended", None),
        ]
    )


def test_end_of_a_run_is_reported_to_listeners():
    told = Telling()
    error = EngineError("no", code="no")

    def fail(watching: ListenerGroup) -> None:
        raise error

    def interrupt(watching: ListenerGroup) -> None:
        raise KeyboardInterrupt

    with pytest.raises(EngineError):
        run_with_listeners([told], fail)
    with pytest.raises(KeyboardInterrupt):
        run_with_listeners([told], interrupt)
    assert run_with_listeners([told], lambda watching: 7) == 7
    assert told.told == [("ended", error), ("ended", None), ("ended", None)]


def test_lines_of_ticks_are_a_watcher():
    out = io.StringIO()
    WatchedJob(PlainLines(out)).ticks(TICKS[:1])
    assert out.getvalue().startswith("tick 1: 0.50 s, in 6 ")


def test_settings_choose_the_listeners(monkeypatch, capfd):
    run, said = WatchedJob().about(), list[str]()
    with open_listeners({}, run, said.append) as watchers:
        assert [type(watcher) for watcher in watchers] == [LogWatcher, SpanWatcher]
    monkeypatch.setattr(running.spans, "is_installed", lambda: False)
    with open_listeners({"metrics": "0", "log_format": "text"}, run, said.append) as watchers:
        assert [type(watcher) for watcher in watchers] == [LogWatcher, RunMetrics]
        watchers[1].ended(None)
    (shown,) = said
    assert shown.startswith("metrics are shown at http://127.0.0.1:")
    assert capfd.readouterr().err.endswith(f" INFO job=shop: {shown}\n")
