"""Starts Python workers as soon as there is a session, while the driver still reads and plans the job.

The first task with Python in it waits for the daemon (which loads the libraries of all tasks) and for its
worker; and planning is mostly one thread's work. What fails here fails again, and is said, in the first tick.

Spark keeps a daemon per environment of its workers. That of functions in SQL has one variable more, so a job
with an RDD, which is at work long before SQL could be planned, has to have it, too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable

from pyspark.sql import SparkSession

OF_SQL = "SPARK_SIMPLIFIED_TRACEBACK"

_one_at_a_time = threading.Lock()


def start_workers(session: SparkSession) -> threading.Thread:
    """One small job in a thread of its own, a task per core. The thread may be waited for; nobody has to."""
    thread = threading.Thread(target=_run, args=(session,), name="early-workers", daemon=True)
    thread.start()
    return thread


def _run(session: SparkSession) -> None:
    with contextlib.suppress(Exception):  # the session may have been stopped meanwhile
        context = session.sparkContext
        tasks = context.defaultParallelism
        numbers = context.parallelize(range(tasks), tasks).mapPartitions(_as_they_are)
        with _one_at_a_time:
            environment = context.environment
            context.environment = {**environment, OF_SQL: "1"}
            try:
                planned = numbers._jrdd  # here the environment goes in
            finally:
                context.environment = environment
        planned.count()


def _as_they_are(numbers: Iterable[int]) -> Iterable[int]:
    return numbers
