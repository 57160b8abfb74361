"""All that is wrong with a run as far as it is known before Java starts, reported at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread

from watersmeet.engine.spark.checkpoint.directory import Checkpoint
from watersmeet.engine.spark.job.going_on import unknown_losses
from watersmeet.engine.spark.preflight.databases import check_database
from watersmeet.engine.spark.preflight.patience import Patience, waiting_notice
from watersmeet.engine.spark.preflight.sources import problems_of
from watersmeet.engine.spark.preflight.state import Resumption, check_state
from watersmeet.engine.spark.preflight.topics import check_brokers, check_topics
from watersmeet.engine.spark.start_failures import VARIABLES, check_pyspark
from watersmeet.errors import SeveralErrors, WatersmeetError
from watersmeet.plan.checks.endpoints import check_checkpoint, written_sinks
from watersmeet.plan.model.job import JobPlan
from watersmeet.sinks.base import ChecksTarget, Sink
from watersmeet.sinks.registry import make_sink, remembering
from watersmeet.spec.connectors import MEMORY
from watersmeet.spec.model import Job
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.function import OfBatches
from watersmeet.spec.options.kafka_delivery import is_exactly_once

SINK_S = 30.0
"""Seconds to wait for the servers of sinks; their options may say less."""
_LOOK_S = 0.1
"""Seconds between two looks whether the run is to stop."""
BRIEF_WAIT_S = 1.0
"""Seconds to wait for what servers say where something else is wrong."""


@dataclass(frozen=True)
class IntendedRun:
    """A run that is to be checked. ``directory``: of its checkpoint, as it is named; ``functions``: of sinks
    that are one of this process; ``accept_loss``, ``accept_target``: as for the run."""

    job: Job
    plan: JobPlan
    directory: str
    checkpoint: Checkpoint
    resumption: Resumption
    accept_loss: Collection[str] = ()
    accept_target: Collection[str] = ()
    functions: Mapping[str, OfBatches] = field(default_factory=dict)


def problems_before_start(run: IntendedRun) -> list[WatersmeetError]:
    """Return what is wrong with the sources, the checkpoint and the sinks. Of servers, only schema registries
    and stores of the job's state are asked."""
    return _problems(run, None, lambda notice: None)


def problems_before_java(run: IntendedRun, stop: Event, say: Callable[[str], None]) -> list[WatersmeetError]:
    """Return all of that, what Java lacks, and the Kafka brokers, databases and servers of sinks that do not
    answer.

    Args:
        stop: ends waiting for servers, of which nothing is reported then.
        say: is told of servers that are waited for.
    """
    given_up = Event()
    servers = _server_checks(run, Patience(True, given_up, stop, say))
    asked = [_begin(check) for check in servers]
    try:
        problems = _problems(run, SINK_S, say)
        if problems:
            given_up.set()
        until = time.monotonic() + BRIEF_WAIT_S  # a name server may take longer
        done, pending = wait(asked, 0)
        while pending and not stop.is_set() and not (problems and time.monotonic() > until):
            done, pending = wait(asked, _LOOK_S)
        answers = [] if stop.is_set() else [one for one in asked if one in done]
        return [*problems, *(problem for one in answers for problem in one.result())]
    finally:
        given_up.set()


def _begin(check: Callable[[], None]) -> Future[Sequence[WatersmeetError]]:
    """Check in a thread for which neither Ctrl-C nor the end of the program waits."""
    future: Future[Sequence[WatersmeetError]] = Future()

    def work() -> None:
        try:
            future.set_result(problems_in(check))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work, name="preflight", daemon=True).start()
    return future


def _server_checks(run: IntendedRun, patience: Patience) -> list[Callable[[], None]]:
    if connects_otherwise(run.job.settings):
        return []
    sinks = [sink for sink in written_sinks(run.job) if sink.traits.log and is_exactly_once(sink.options)]
    return [
        *(partial(check_topics, source, patience) for source in run.plan.sources if source.traits.log),
        *(partial(check_database, table, patience) for table in run.plan.tables if table.traits.snapshot),
        *(partial(check_brokers, sink, patience, SINK_S) for sink in sinks),
    ]


def _problems(run: IntendedRun, sinks_s: float | None, say: Callable[[str], None]) -> list[WatersmeetError]:
    """``sinks_s``: maximum seconds to wait for a server of a sink; None: none is asked."""
    state = check_state(run.checkpoint, run.directory, run.plan, run.resumption)
    problems = [
        *check_checkpoint(run.job, run.directory),
        *problems_of(run.plan),
        *unknown_losses(run.accept_loss, run.plan),
        *state.problems,
    ]
    problems += problems_in(partial(_check_spark, run, java=sinks_s is not None))
    sinks: dict[str, Sink] = {}
    specs = [spec for spec in written_sinks(run.job) if spec.connector != MEMORY]  # a new one forgets columns
    for spec in specs:
        problems += problems_in(partial(_make, run, spec, sinks))
    if len(sinks) == len(specs):
        problems += problems_in(lambda: remembering(sinks, run.accept_target))
    for name, sink in sinks.items():
        if isinstance(sink, ChecksTarget) and state.is_known:  # else nobody knows whose targets should be
            of_target = problems_in(partial(sink.check_target, state.owner, sinks_s and 0.0))
            if sinks_s and not problems and [problem.code for problem in of_target] == ["sink-unreachable"]:
                # the sink's own 'max_wait' may be shorter
                say(waiting_notice(f'the server of sink "{name}"', sinks_s))
                of_target = problems_in(partial(sink.check_target, state.owner, sinks_s))
            problems += of_target
    return problems


def _check_spark(run: IntendedRun, *, java: bool) -> None:
    """Check what Spark needs to start. ``java``: that, too. Raises: WatersmeetError."""
    check_pyspark("the job")
    if java:
        from watersmeet.engine.spark.job.gateway import check_start
        from watersmeet.engine.spark.job_conf import conf_of_run

        check_start(conf_of_run(run.job, run.plan))


def _make(run: IntendedRun, spec: SinkSpec, sinks: dict[str, Sink]) -> None:
    sinks[spec.name] = make_sink(spec, functions=run.functions)


def connects_otherwise(settings: Mapping[str, str]) -> bool:
    """Return True if Java connects to servers in another way than this process.

    Args:
        settings: of the job, for Spark.
    """
    said = [*settings.values(), *(os.environ.get(name, "") for name in VARIABLES)]
    return any("socksProxyHost" in options for options in said)


def problems_in(check: Callable[[], object]) -> Sequence[WatersmeetError]:
    """Return what a check raises; none: nothing is wrong."""
    try:
        check()
    except SeveralErrors as several:
        return several.errors
    except WatersmeetError as error:
        return [error]
    return []
