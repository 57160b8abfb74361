"""A job from its description to its end on Spark: session, sinks, run. What the command line calls."""

from __future__ import annotations

import threading

from watersmeet.engine.spark.errors import java_needed
from watersmeet.engine.spark.job import gateway, session
from watersmeet.engine.spark.job.run import run
from watersmeet.engine.spark.job.settings import RunResult, RunSettings
from watersmeet.engine.spark.job.submitted import session_of
from watersmeet.engine.spark.job_conf import conf_of
from watersmeet.engine.spark.preflight.sources import notes_of_tables
from watersmeet.engine.spark.sources.dataframes import look_at
from watersmeet.engine.spark.tick.outputs import (
    BROKEN_INSERT,
    LATE_INSERT,
    PROGRESS_INSERT,
    SHED_INSERT,
    Outputs,
)
from watersmeet.engine.spark.tick.reading.first_tick import needs_tasks
from watersmeet.errors import SpecError, raise_all
from watersmeet.kernel.embedded import connection
from watersmeet.plan.checks.endpoints import BESIDE
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.nodes import GroupedPlan
from watersmeet.sinks.base import Sink
from watersmeet.sinks.registry import make_sink, remembering
from watersmeet.spec.model import Job

_STARTING = threading.Lock()
"""Two jobs that start at once make one session."""


def run_job(job: Job, plan: JobPlan, settings: RunSettings) -> RunResult:
    """Run ``plan``, the plan of ``job``, until it ends or is stopped.

    Raises:
        WatersmeetError: whatever went wrong, readable.
    """
    settings = settings.resolve(job)
    outputs = outputs_of(job, plan, settings)
    with java_needed():
        theirs = session_of(settings.given)
        looked = look_at(plan, settings.given)
    raise_all(looked.problems)
    with java_needed():
        conf = conf_of(job, plan)
    notes = [*looked.notes, *notes_of_tables(plan)]
    if theirs is None and (exposed := gateway.exposed_settings(conf)):
        notes.append(
            f"all users of this machine can read {', '.join(exposed)} among the arguments of the Java"
            " process: keep secrets out of these settings"
        )
    for note in notes:
        if settings.on_notice is not None:
            settings.on_notice(note)
    if any(query.every(GroupedPlan) for query in plan.queries):
        connection()  # loaded before rows come; where Java was begun ahead, it starts meanwhile
    with _STARTING, java_needed():
        if theirs is None and settings.is_background:
            theirs = session.running()
        if theirs is None:
            spark = session.start(conf, workers=needs_tasks(plan, settings.run))
        else:
            spark = session.beside(theirs, conf)
    with java_needed():
        return run(spark, plan, settings, outputs)


def outputs_of(job: Job, plan: JobPlan, settings: RunSettings) -> Outputs:
    """The sinks of all queries, one object per declared sink, and those that get rows beside them (`BESIDE`).

    Raises:
        SpecError: options are wrong, an INSERT has a name that is kept for these, or a sink of
            ``accept_target`` is none that remembers its target.
    """
    made: dict[str, Sink] = {}

    def sink_named(name: str) -> Sink:
        if name not in made:
            made[name] = make_sink(declared[name], console=settings.console, functions=settings.functions)
        return made[name]

    into = {query.name: query.sink for query in plan.queries if not query.is_index}
    declared = {sink.name: sink for sink in (*job.sinks, *into.values())}
    for name in (LATE_INSERT, BROKEN_INSERT, SHED_INSERT, PROGRESS_INSERT):
        if name in into:
            raise SpecError(
                f'the name "{name}" is reserved for side outputs; an INSERT cannot use it',
                code="reserved-name",
                hint="give the sink another name",
            )
    queries = {name: sink_named(sink.name) for name, sink in into.items()}
    beside: dict[str, Sink | None] = {}
    for setting in BESIDE:
        wanted = job.run.get(setting)
        beside[setting] = None if wanted is None else sink_named(wanted)
    for sink in remembering(made, settings.accept_target):
        sink.accept_target()
    late, broken, shed, progress = (beside[name] for name in BESIDE)
    return Outputs(queries, late, broken, progress, shed)
