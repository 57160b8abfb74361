"""What is settled before Spark starts. No JVM here."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from watersmeet.engine.spark.job import gateway, session

LET_WORKERS_IMPORT = session._let_workers_import


@pytest.fixture(autouse=True)
def no_session(monkeypatch):
    """As if no session ran; what `start` sets in this process is taken back."""
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(session.SparkContext, "_gateway", None)
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    monkeypatch.setattr(session, "_let_workers_import", lambda: None)
    monkeypatch.setenv("PYSPARK_PYTHON", "as it was")


def test_ctrl_c_while_spark_starts_prints_no_stack(monkeypatch):
    """py4j logs the stack of what interrupts it, by the root logger."""
    shown = []

    def launch(*_):
        record = logging.LogRecord("root", logging.ERROR, "/x/py4j/java_gateway.py", 1, "", (), None)
        shown.append(bool(logging.getLogger().filter(record)))
        raise KeyboardInterrupt

    monkeypatch.setattr(gateway, "launch", launch)
    with pytest.raises(KeyboardInterrupt):
        session.start(session.settings())
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
            session.start(session.settings())
        assert [proc.poll() is not None for proc in started] == [True]
    finally:
        for proc in started:
            proc.kill()
            proc.wait()


def test_workers_import_the_package_from_where_it_is(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    LET_WORKERS_IMPORT()
    first, *others = os.environ["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "watersmeet" / "__init__.py").is_file()
    assert others == ["elsewhere"]
