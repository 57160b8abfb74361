"""Signals that stop a run."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager

import pytest

from watersmeet.errors import EngineError
from watersmeet.runtime.spark.job import gateway
from watersmeet.runtime.spark.job.signals import stop_on_signals
from watersmeet.runtime.spark.job.stream_end import is_signal_failure


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_and_a_second_one_stops_it_at_once(number):
    stop = threading.Event()
    before = signal.getsignal(number)
    with stop_on_signals(stop) as came:
        assert not came.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
        assert came.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


@contextmanager
def handle_signal(number, handler):
    """This process handles a signal so, within."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_repeated_sighup_stops_the_run_without_killing_it():
    """The shell sends SIGHUP, and so does the kernel."""
    stop = threading.Event()
    with handle_signal(signal.SIGHUP, signal.SIG_DFL):
        with stop_on_signals(stop):
            signal.raise_signal(signal.SIGHUP)
            assert stop.is_set()
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_a_run_without_a_terminal_goes_on():
    """As by `nohup watersmeet run job.sql`."""
    stop = threading.Event()
    with handle_signal(signal.SIGHUP, signal.SIG_IGN), stop_on_signals(stop):
        signal.raise_signal(signal.SIGHUP)
        assert not stop.is_set()


def test_a_ctrl_c_that_the_process_ignores_does_not_stop_the_run():
    """As in `nohup watersmeet run job.sql &`; SIGTERM stops it."""
    stop = threading.Event()
    with handle_signal(signal.SIGINT, signal.SIG_IGN), stop_on_signals(stop):
        signal.raise_signal(signal.SIGINT)
        assert not stop.is_set()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, "so do processes that the run starts"
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()


@pytest.mark.parametrize(
    ("code", "has_come", "java_ended", "expected"),
    [
        ("spark-gone", True, True, True),
        ("worker-gone", True, False, True),
        ("spark-gone", False, True, False),
        ("spark-failed", True, True, True),
        ("spark-failed", True, False, False),
        ("spark-failed", False, True, False),
        ("disk-full", True, True, False),
    ],
)
def test_a_failure_that_a_signal_has_caused_is_a_stop(monkeypatch, code, has_come, java_ended, expected):
    """A Java that ends says that its context is stopped, its stream has failed, or nothing."""
    monkeypatch.setattr(gateway, "has_ended", lambda within_s: java_ended)
    signalled = threading.Event()
    if has_come:
        signalled.set()
    assert is_signal_failure(EngineError("failed", code=code), signalled) is expected
