"""A job from its description to its end on Spark: session, sinks, run. What the command line calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from pyspark.sql import DataFrame

from watersmeet.engine.driver.results import TickResult
from watersmeet.engine.spark.errors import java_needed
from watersmeet.engine.spark.job import gateway, session
from watersmeet.engine.spark.job.run import run
from watersmeet.engine.spark.job.settings import DEFAULT_TRIGGER, OnStart, RunResult, RunSettings
from watersmeet.engine.spark.job.submitted import session_of
from watersmeet.engine.spark.job_conf import conf_of
from watersmeet.engine.spark.preflight.sources import notes_of_tables
from watersmeet.engine.spark.sources.backlog import Backlog
from watersmeet.engine.spark.sources.dataframes import Maker, look_at
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
from watersmeet.objects.remote import RemoteStore
from watersmeet.plan.checks.endpoints import BESIDE
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.model.nodes import GroupedPlan
from watersmeet.sinks.base import RowPrinter, Sink
from watersmeet.sinks.registry import make_sink, remembering
from watersmeet.spec.limits import LEAST_KEPT_TICKS
from watersmeet.spec.model import Column, Job
from watersmeet.spec.options.function import OfBatches
from watersmeet.spec.secrets import OpaqueSecret

_STARTING = threading.Lock()
"""Two jobs that start at once make one session."""

OnTick = Callable[[TickResult, float, Mapping[str, float]], None]


def run_job(
    job: Job,
    plan: JobPlan,
    *,
    checkpoint: str,
    partitions: int | None = None,
    trigger: str | None = None,
    master: str | None = None,
    jars: str | None = None,
    conf: Mapping[str, str] | None = None,
    until_caught_up: bool = False,
    finish: bool = False,
    replace_newer_files: bool = False,
    change_queries: bool = False,
    keep_ticks: int = LEAST_KEPT_TICKS,
    rebuild: bool = False,
    store: RemoteStore | None = None,
    accept_loss: Collection[str] = (),
    accept_target: Collection[str] = (),
    inferred: Mapping[str, Sequence[Column]] | None = None,
    given: Mapping[str, DataFrame | Maker] | None = None,
    functions: Mapping[str, OfBatches] | None = None,
    stop: threading.Event | None = None,
    on_start: OnStart | None = None,
    on_notice: Callable[[str], None] | None = None,
    on_begin: Callable[[int], None] | None = None,
    on_backlog: Callable[[Backlog], None] | None = None,
    on_tick: OnTick | None = None,
    console: RowPrinter | None = None,
) -> RunResult:
    """Run ``plan``, the plan of ``job``, until it ends or is stopped; see `RunSettings` for the arguments.

    Args:
        accept_target: names of sinks whose target may be another one than the job has written to.
        functions: of sinks that are one of this process, by their names.
        console: shows the rows of console sinks.

    Raises:
        WatersmeetError: whatever went wrong, readable.
    """
    settings = RunSettings(
        checkpoint=checkpoint,
        partitions=partitions,
        trigger=trigger or DEFAULT_TRIGGER,
        until_caught_up=until_caught_up or finish,
        finish=finish,
        run=job.run,
        secrets=[name for name, value in (conf or {}).items() if isinstance(value, OpaqueSecret)],
        replace_newer_files=replace_newer_files,
        change_queries=change_queries,
        keep_ticks=keep_ticks,
        rebuild=rebuild,
        store=store,
        accept_loss=accept_loss,
        inferred=inferred or {},
        given={name: made for name, made in (given or {}).items() if not callable(made)},
        makers={name: maker for name, maker in (given or {}).items() if callable(maker)},
        stop=stop or threading.Event(),
        on_start=on_start,
        on_notice=on_notice,
        on_begin=on_begin,
        on_backlog=on_backlog,
        on_tick=on_tick,
    )
    outputs = outputs_of(job, plan, console, functions, accept_target)
    with java_needed():
        theirs = session_of(settings.given)
        looked = look_at(plan, settings.given)
    raise_all(looked.problems)
    with java_needed():
        conf = conf_of(job, plan, master=master, jars=jars, conf=conf)
    notes = [*looked.notes, *notes_of_tables(plan)]
    if theirs is None and (exposed := gateway.exposed_settings(conf)):
        notes.append(
            f"all users of this machine can read {', '.join(exposed)} among the arguments of the Java"
            " process: keep secrets out of these settings"
        )
    for note in notes:
        if on_notice is not None:
            on_notice(note)
    if any(query.every(GroupedPlan) for query in plan.queries):
        connection()  # loaded before rows come; where Java was begun ahead, it starts meanwhile
    with _STARTING, java_needed():
        if theirs is None and stop is not None:  # it has a thread of its own, beside what its process does
            theirs = session.running()
        if theirs is None:
            spark = session.start(conf, workers=needs_tasks(plan, settings.run))
        else:
            spark = session.beside(theirs, conf)
    with java_needed():
        return run(spark, plan, settings, outputs)


def outputs_of(
    job: Job,
    plan: JobPlan,
    console: RowPrinter | None,
    functions: Mapping[str, OfBatches] | None = None,
    accept_target: Collection[str] = (),
) -> Outputs:
    """The sinks of all queries, one object per declared sink, and those that get rows beside them (`BESIDE`).

    Raises:
        SpecError: options are wrong, an INSERT has a name that is kept for these, or a sink of
            ``accept_target`` is none that remembers its target.
    """
    made: dict[str, Sink] = {}

    def sink_named(name: str) -> Sink:
        if name not in made:
            made[name] = make_sink(declared[name], console=console, functions=functions or {})
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
    for sink in remembering(made, accept_target):
        sink.accept_target()
    late, broken, shed, progress = (beside[name] for name in BESIDE)
    return Outputs(queries, late, broken, progress, shed)
