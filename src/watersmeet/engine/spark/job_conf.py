"""Spark's configuration for a job, and a Java that starts by it while the rest of the program is loaded.

Loads little itself: what is loaded here, Java waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from watersmeet.engine.spark.job import session
from watersmeet.engine.spark.job.submitted import refuse_connect, submitted
from watersmeet.engine.spark.tick.reading.java_rows import rows_pass_java
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.model import Job


def conf_of(
    job: Job,
    plan: JobPlan,
    *,
    master: str | None = None,
    jars: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """By what the job reads and writes; arguments as `session.settings`.

    Raises:
        EngineError: ``conf`` sets what rows rest on, there are no such jars, or Spark Connect is asked for.
    """
    connectors = {source.connector for source in plan.sources} | {sink.connector for sink in job.sinks}
    asked = submitted()
    settings = session.settings(
        master=master,
        conf=conf,
        jars=jars,
        kafka="kafka" in connectors,
        time_zone=job.options.time_zone,
        java_rows=rows_pass_java(plan, job.run, {**asked, **(conf or {})}),
        submitted=asked,
    )
    refuse_connect(settings)
    return settings


def conf_of_run(job: Job, plan: JobPlan) -> dict[str, str]:
    """By the settings of the job's run, too. Raises: EngineError as `conf_of`."""
    run = job.run
    return conf_of(job, plan, master=run.get("master"), jars=run.get("jars"), conf=dict(job.settings))


@contextmanager
def java_begun(job: Job, plan: JobPlan, on_java: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Within, the Java starts that `run_job` will want, if there is none in this process; ``on_java`` is
    called right before. Raises: EngineError as `conf_of`."""
    conf = conf_of_run(job, plan)
    on_java()
    with session.begun(conf):
        yield
