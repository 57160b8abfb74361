"""Spark's configuration for a job, and a Java that starts by it while the rest of the program is loaded.

Loads little itself: what is loaded here, Java waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.spark.job import session
from watersmeet.runtime.spark.job.external_session import load_submit_settings, refuse_connect
from watersmeet.runtime.spark.tick.reading.read_path import do_rows_pass_java
from watersmeet.spec.model import Job


def build_conf(job: Job, plan: JobPlan) -> dict[str, str]:
    """Build the Spark settings from the job's settings and from its sources and sinks.

    Raises:
        EngineError: a setting is fixed, a jar does not exist, or Spark Connect is requested.
    """
    connectors = {source.connector for source in plan.sources} | {sink.connector for sink in job.sinks}
    asked = load_submit_settings()
    settings = session.build_session_settings(
        master=job.run.get("master"),
        conf=dict(job.settings),
        jars=job.run.get("jars"),
        kafka="kafka" in connectors,
        time_zone=job.options.time_zone,
        java_rows=do_rows_pass_java(plan, job.run, {**asked, **job.settings}),
        submitted=asked,
    )
    refuse_connect(settings)
    return settings


@contextmanager
def prestart_java_for_job(
    job: Job, plan: JobPlan, on_java: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Start, for the block, the JVM that `run_job` will need, if this process has none.

    Args:
        on_java: called directly before the start.

    Raises:
        EngineError: as `build_conf`.
    """
    conf = build_conf(job, plan)
    on_java()
    with session.prestart_java(conf):
        yield
