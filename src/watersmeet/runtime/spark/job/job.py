"""A job from its description to its end on Spark: session, sinks, run. What the command line calls."""

from __future__ import annotations

import threading

from watersmeet.errors import SpecError, raise_all
from watersmeet.kernel.duckdb import connection
from watersmeet.plan.checks.endpoints import SIDE_OUTPUT_SETTINGS
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.nodes import GroupedPlan
from watersmeet.runtime.spark.errors import explain_java_end
from watersmeet.runtime.spark.java_start import build_conf
from watersmeet.runtime.spark.job import gateway, session
from watersmeet.runtime.spark.job.external_session import find_frames_session
from watersmeet.runtime.spark.job.run import run
from watersmeet.runtime.spark.job.settings import RunResult, RunSettings
from watersmeet.runtime.spark.preflight.sources import list_table_notes
from watersmeet.runtime.spark.sources.dataframes import inspect_frames
from watersmeet.runtime.spark.tick.outputs import (
    BROKEN_INSERT,
    LATE_INSERT,
    PROGRESS_INSERT,
    SHED_INSERT,
    Outputs,
)
from watersmeet.runtime.spark.tick.reading.read_path import needs_tasks
from watersmeet.sinks.base import Sink
from watersmeet.sinks.registry import make_sink, target_sinks
from watersmeet.spec.model import Job

_STARTING = threading.Lock()
"""Two jobs that start at once make one session."""


def run_job(job: Job, plan: JobPlan, settings: RunSettings) -> RunResult:
    """Run ``plan``, the plan of ``job``, until it ends or is stopped.

    Raises:
        WatersmeetError: whatever went wrong, readable.
    """
    settings = settings.resolve(job)
    outputs = build_outputs(job, plan, settings)
    with explain_java_end():
        theirs = find_frames_session(settings.given)
        looked = inspect_frames(plan, settings.given)
    raise_all(looked.problems)
    with explain_java_end():
        conf = build_conf(job, plan)
    notes = [*looked.notes, *list_table_notes(plan)]
    if theirs is None and (exposed := gateway.list_exposed_settings(conf)):
        notes.append(
            f"all users of this machine can read {', '.join(exposed)} among the arguments of the Java"
            " process: keep secrets out of these settings"
        )
    for note in notes:
        if settings.on_notice is not None:
            settings.on_notice(note)
    if any(query.every(GroupedPlan) for query in plan.queries):
        connection()  # loaded before rows come; where Java was begun ahead, it starts meanwhile
    with _STARTING, explain_java_end():
        if theirs is None and settings.is_background:
            theirs = session.find_session()
        if theirs is None:
            spark = session.start(conf, workers=needs_tasks(plan, settings.run))
        else:
            spark = session.clone_session(theirs, conf)
    with explain_java_end():
        return run(spark, plan, settings, outputs)


def build_outputs(job: Job, plan: JobPlan, settings: RunSettings) -> Outputs:
    """Build the sinks of all queries, one object per declared sink, and the side-output sinks.

    See `SIDE_OUTPUT_SETTINGS` for side outputs.

    Raises:
        SpecError: options are wrong, an INSERT uses a name reserved for side outputs, or a sink of
            ``accept_target`` does not remember its target.
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
    for setting in SIDE_OUTPUT_SETTINGS:
        wanted = job.run.get(setting)
        beside[setting] = None if wanted is None else sink_named(wanted)
    for sink in target_sinks(made, settings.accept_target):
        sink.accept_target()
    late, broken, shed, progress = (beside[name] for name in SIDE_OUTPUT_SETTINGS)
    return Outputs(queries, late, broken, progress, shed)
