"""The workers that are started with the session are those that the ticks use."""

from __future__ import annotations

import psutil
import pytest

from watersmeet.engine.spark.job.early import start_workers

pytestmark = pytest.mark.spark


def daemons():
    """Processes that the JVM started to fork workers from."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            command, parent = process.cmdline(), process.parent()
        except psutil.Error:
            continue
        if (
            "watersmeet.engine.spark.tick.daemon" in command
            and parent is not None
            and parent.name() == "java"
        ):
            found.append(process.pid)
    return found


def test_sql_finds_the_daemon_that_is_there(spark):
    start_workers(spark).join()
    before = daemons()
    assert before
    rows = spark.range(0, 4, 1, 2).mapInArrow(lambda batches: batches, "id BIGINT").collect()
    assert len(rows) == 4
    assert daemons() == before
    assert "SPARK_SIMPLIFIED_TRACEBACK" not in spark.sparkContext.environment
