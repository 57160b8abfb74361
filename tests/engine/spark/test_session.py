"""What is settled before Spark starts. No JVM here."""

from __future__ import annotations

import logging

import pytest

from watersmeet.engine.spark import session


def test_ctrl_c_while_spark_starts_prints_no_stack(monkeypatch):
    """py4j logs the stack of what interrupts it, by the root logger."""
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    monkeypatch.setattr(session, "_let_workers_import", lambda: None)
    monkeypatch.setenv("PYSPARK_PYTHON", "as it was")
    shown = []

    def launch(*_):
        record = logging.LogRecord("root", logging.ERROR, "/x/py4j/java_gateway.py", 1, "", (), None)
        shown.append(bool(logging.getLogger().filter(record)))
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "_launch", launch)
    with pytest.raises(KeyboardInterrupt):
        session.start(session.settings())
    assert shown == [False]
