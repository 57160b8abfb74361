"""Spark's configuration for a job, and a Java that starts by it while the rest of the program is loaded.

Loads little itself: what is loaded here, Java waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from watersmeet.engine.spark.job import session
from watersmeet.engine.spark.job.submitted import refuse_connect, submitted
from watersmeet.engine.spark.tick.reading.java_rows import rows_pass_java
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.model import Job


def conf_of(job: Job, plan: JobPlan) -> dict[str, str]:
    """Return what the job's settings, and what it reads and writes, ask of Spark.

    Raises:
        EngineError: a setting is fixed, there are no such jars, or Spark Connect is asked for.
    """
    connectors = {source.connector for source in plan.sources} | {sink.connector for sink in job.sinks}
    asked = submitted()
    settings = session.settings(
        master=job.run.get("master"),
        conf=dict(job.settings),
        jars=job.run.get("jars"),
        kafka="kafka" in connectors,
        time_zone=job.options.time_zone,
        java_rows=rows_pass_java(plan, job.run, {**asked, **job.settings}),
        submitted=asked,
    )
    refuse_connect(settings)
    return settings


@contextmanager
def java_begun(job: Job, plan: JobPlan, on_java: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Within, the Java starts that `run_job` will want, if there is none in this process; ``on_java`` is
    called right before. Raises: EngineError as `conf_of`."""
    conf = conf_of(job, plan)
    on_java()
    with session.begun(conf):
        yield
