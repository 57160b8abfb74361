"""What is settled before Spark starts. No JVM here."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from watersmeet.runtime.spark.job import gateway, session


@pytest.fixture(autouse=True)
def no_session(monkeypatch):
    """As if no session ran; what `start` sets in this process is taken back."""
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(gateway, "current_gateway", lambda: None)
    monkeypatch.setattr(gateway, "adopt_gateway", lambda _: None)
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    for name in ("PYTHONPATH", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


class _Started:
    """A session of local Spark, as far as `start` looks at it; and what makes it."""

    sparkContext = SimpleNamespace(master="local[2]", setLogLevel=lambda _: None, _jvm=None)

    def config(self, name, value):
        return self

    def getOrCreate(self):
        return self


@pytest.fixture
def started(monkeypatch):
    """A session that starts at once, without workers."""
    made = _Started()
    monkeypatch.setattr(gateway, "launch", lambda *_: None)
    monkeypatch.setattr(session.SparkSession, "builder", made)
    monkeypatch.setattr(session, "context_settings", lambda _: {})
    monkeypatch.setattr(session, "load_planner", lambda _: None)
    return made


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler], ids=["ignored", "default"])
def test_spark_does_not_take_over_a_ctrl_c_that_the_process_ignores(monkeypatch, started, handler):
    """A `SparkContext` sets a handler that cancels its jobs."""

    def cancel(number, frame):
        raise KeyboardInterrupt

    def make():
        signal.signal(signal.SIGINT, cancel)
        return started

    monkeypatch.setattr(started, "getOrCreate", make)
    before = signal.signal(signal.SIGINT, handler)
    try:
        session.start(session.build_session_settings(), workers=False)
        assert signal.getsignal(signal.SIGINT) is (handler if handler is signal.SIG_IGN else cancel)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("workers", "begun"), [(True, ["planner", "workers"]), (False, ["planner"])])
def test_what_is_begun_with_a_session(monkeypatch, started, workers, begun):
    told = []
    monkeypatch.setattr(session, "load_planner", lambda _: told.append("planner"))
    monkeypatch.setattr(session, "start_workers", lambda _: told.append("workers"))
    assert isinstance(session.start(session.build_session_settings(), workers=workers), _Started)
    assert told == begun


def test_nothing_is_begun_in_a_session_that_runs(monkeypatch):
    monkeypatch.setattr(session.SparkSession, "getActiveSession", _Started)
    monkeypatch.setattr(session, "hold_fixed", lambda *_: None)
    monkeypatch.setattr(session, "hold_java", lambda _: None)
    monkeypatch.setattr(session, "load_planner", pytest.fail)
    monkeypatch.setattr(session, "start_workers", pytest.fail)
    assert isinstance(session.start(session.build_session_settings(), workers=True), _Started)


def test_ctrl_c_while_spark_starts_prints_no_stack(monkeypatch):
    """py4j logs the stack of what interrupts it, by the root logger."""
    shown = []

    def launch(*_):
        record = logging.LogRecord("root", logging.ERROR, "/x/py4j/java_gateway.py", 1, "", (), None)
        shown.append(bool(logging.getLogger().filter(record)))
        raise KeyboardInterrupt

    monkeypatch.setattr(gateway, "launch", launch)
    with pytest.raises(KeyboardInterrupt):
        session.start(session.build_session_settings())
    assert shown == [False]


def test_ctrl_c_while_spark_starts_leaves_no_process(monkeypatch):
    """PySpark leaves the JVM to itself, which then never ends."""
    started = []

    def launch_gateway(*_, **__):
        proc = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        started.append(proc)
        raise KeyboardInterrupt

    monkeypatch.setattr(gateway, "launch_gateway", launch_gateway)
    monkeypatch.setattr(gateway, "java_command", lambda *_: None)
    try:
        with pytest.raises(KeyboardInterrupt):
            session.start(session.build_session_settings())
        assert [proc.poll() is not None for proc in started] == [True]
    finally:
        for proc in started:
            proc.kill()
            proc.wait()


def test_workers_import_the_package_from_where_it_is(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setattr(gateway, "start_ahead", lambda *_: None)
    with session.prestart_java(session.build_session_settings()):
        pass
    first, *others = os.environ["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "watersmeet" / "__init__.py").is_file()
    assert others == ["elsewhere"]


@pytest.mark.parametrize(
    ("master", "is_on"),
    [
        (None, True),
        ("local", True),
        ("local[*]", True),
        ("local[2,3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://host:7077", False),
        ("yarn", False),
    ],
)
def test_spark_asks_for_a_secret_where_it_can_draw_one(master, is_on):
    assert session.build_session_settings(master=master).get("spark.authenticate") == (
        "true" if is_on else None
    )
    assert (
        session.build_session_settings(master=master, conf={"spark.authenticate": "false"})[
            "spark.authenticate"
        ]
        == "false"
    )
