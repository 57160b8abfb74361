"""Starts what the first tick needs as soon as there is a session, while the driver still reads and plans the
job, which is mostly one thread's work: Python workers, and Spark's planner.

The first task with Python in it waits for the daemon (which loads the libraries of all tasks) and for its
worker. What fails here fails again, and is said, in the first tick.

Spark keeps a daemon per environment of its workers. That of functions in SQL has one variable more, so a job
with an RDD, which is at work long before SQL could be planned, has to have it, too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable

from pyspark.sql import SparkSession

from watersmeet.runtime.spark.tick.reading.arrow_ingest import build_listing_frame

OF_SQL = "SPARK_SIMPLIFIED_TRACEBACK"

_warmup_lock = threading.Lock()


def start_workers(session: SparkSession) -> threading.Thread:
    """Start Python workers with one small job, a task per core, in a thread; do not wait for it."""
    return _run_in_thread(_run, session, name="early-workers")


def load_planner(session: SparkSession) -> threading.Thread:
    """Plan a batch of no rows, as the stream of a job has them, in a thread of its own: the classes that Java
    loads for the first plan are most of what that takes."""
    return _run_in_thread(_plan, session, name="early-planner")


def _run_in_thread(
    work: Callable[[SparkSession], object], session: SparkSession, *, name: str
) -> threading.Thread:
    def tried() -> None:
        with contextlib.suppress(Exception):  # the session may have been stopped meanwhile
            work(session)

    thread = threading.Thread(target=tried, name=name, daemon=True)
    thread.start()
    return thread


def _plan(session: SparkSession) -> None:
    build_listing_frame([session.range(0)] * 2)._jdf.queryExecution().executedPlan()


def _run(session: SparkSession) -> None:
    context = session.sparkContext
    tasks = context.defaultParallelism
    numbers = context.parallelize(range(tasks), tasks).mapPartitions(_pass_through)
    with _warmup_lock:
        environment = context.environment
        context.environment = {**environment, OF_SQL: "1"}
        try:
            planned = numbers._jrdd  # here the environment goes in
        finally:
            context.environment = environment
    planned.count()


def _pass_through(numbers: Iterable[int]) -> Iterable[int]:
    return numbers
