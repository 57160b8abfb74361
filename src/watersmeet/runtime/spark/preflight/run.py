"""All that is wrong with a run as far as it is known before Java starts, reported at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from threading import Event, Thread

from watersmeet.errors import SeveralErrors, WatersmeetError
from watersmeet.plan.checks.endpoints import check_checkpoint, written_sinks
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.checkpoint.moved_files import unknown_move_errors
from watersmeet.runtime.spark.job.resume_point import unknown_loss_errors
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.runtime.spark.preflight.servers import (
    WaitPolicy,
    check_brokers,
    check_database,
    check_topics,
    waiting_notice,
)
from watersmeet.runtime.spark.preflight.sources import find_source_problems
from watersmeet.runtime.spark.preflight.state import check_state
from watersmeet.runtime.spark.start_failures import VARIABLES, check_pyspark
from watersmeet.sinks.base import ChecksTarget, Sink
from watersmeet.sinks.registry import make_sink, target_sinks
from watersmeet.spec.connectors import MEMORY, list_name_problems
from watersmeet.spec.functions import list_function_name_problems
from watersmeet.spec.model import Job
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.options.kafka_delivery import is_exactly_once

SINK_S = 30.0
"""Seconds to wait for the servers of sinks; their options may say less."""
_POLL_S = 0.1
"""Seconds between two looks whether the run is to stop."""
BRIEF_WAIT_S = 1.0
"""Seconds to wait for what servers say where something else is wrong."""


def find_start_problems(job: Job, plan: JobPlan, settings: RunSettings) -> list[WatersmeetError]:
    """Return the problems of the sources, the checkpoint and the sinks.

    The only servers that it contacts are schema registries and stores of the job's state.
    """
    return _problems(job, plan, settings, None)


def find_server_problems(job: Job, plan: JobPlan, settings: RunSettings) -> list[WatersmeetError]:
    """Return the problems that can be found before the start, servers included.

    These are the problems of `find_start_problems`, the requirements that Java does not meet, and the Kafka
    brokers, databases and servers of sinks that do not answer. A stop of the run ends the wait for them;
    notices name the servers that are waited for.
    """
    given_up, stop = Event(), settings.stop
    servers = _server_checks(job, plan, WaitPolicy(True, given_up, stop, _notify(settings)))
    asked = [_begin(check) for check in servers]
    try:
        problems = _problems(job, plan, settings, SINK_S)
        if problems:
            given_up.set()
        until = time.monotonic() + BRIEF_WAIT_S  # a name server may take longer
        done, pending = wait(asked, 0)
        while pending and not stop.is_set() and not (problems and time.monotonic() > until):
            done, pending = wait(asked, _POLL_S)
        answers = [] if stop.is_set() else [one for one in asked if one in done]
        return [*problems, *(problem for one in answers for problem in one.result())]
    finally:
        given_up.set()


def _begin(check: Callable[[], None]) -> Future[Sequence[WatersmeetError]]:
    """Check in a thread for which neither Ctrl-C nor the end of the program waits."""
    future: Future[Sequence[WatersmeetError]] = Future()

    def work() -> None:
        try:
            future.set_result(collect_errors(check))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work, name="preflight", daemon=True).start()
    return future


def _notify(settings: RunSettings) -> Callable[[str], None]:
    return settings.on_notice or (lambda notice: None)


def _server_checks(job: Job, plan: JobPlan, patience: WaitPolicy) -> list[Callable[[], None]]:
    if uses_socks_proxy(job.settings):
        return []
    sinks = [sink for sink in written_sinks(job) if sink.traits.log and is_exactly_once(sink.options)]
    return [
        *(partial(check_topics, source, patience) for source in plan.sources if source.traits.log),
        *(partial(check_database, table, patience) for table in plan.tables if table.traits.snapshot),
        *(partial(check_brokers, sink, patience, SINK_S) for sink in sinks),
    ]


def _problems(job: Job, plan: JobPlan, settings: RunSettings, sinks_s: float | None) -> list[WatersmeetError]:
    """Find the problems that prevent a start.

    Args:
        sinks_s: maximum seconds to wait for a server of a sink; None: contact no server.
    """
    state = check_state(Checkpoint(settings.checkpoint, settings.store), plan, settings)
    problems = [
        *list_name_problems(),
        *list_function_name_problems(),
        *check_checkpoint(job, settings.checkpoint),
        *find_source_problems(plan),
        *unknown_loss_errors(settings.accept_loss, plan),
        *unknown_move_errors(plan),
        *state.problems,
    ]
    problems += collect_errors(partial(_check_spark, job, plan, java=sinks_s is not None))
    sinks: dict[str, Sink] = {}
    specs = [spec for spec in written_sinks(job) if spec.connector != MEMORY]  # a new one forgets columns
    for spec in specs:
        problems += collect_errors(partial(_make_sink, settings, spec, sinks))
    if len(sinks) == len(specs):
        problems += collect_errors(lambda: target_sinks(sinks, settings.accept_target))
    for name, sink in sinks.items():
        if isinstance(sink, ChecksTarget) and state.is_known:  # else nobody knows whose targets should be
            of_target = collect_errors(partial(sink.check_target, state.owner, sinks_s and 0.0))
            if sinks_s and not problems and [problem.code for problem in of_target] == ["sink-unreachable"]:
                # the sink's own 'max_wait' may be shorter
                _notify(settings)(waiting_notice(f'the server of sink "{name}"', sinks_s))
                of_target = collect_errors(partial(sink.check_target, state.owner, sinks_s))
            problems += of_target
    return problems


def _check_spark(job: Job, plan: JobPlan, *, java: bool) -> None:
    """Check what Spark needs to start. ``java``: that, too. Raises: WatersmeetError."""
    check_pyspark("the job")
    if java:
        from watersmeet.runtime.spark.java_start import build_conf
        from watersmeet.runtime.spark.job.gateway import check_start

        check_start(build_conf(job, plan))


def _make_sink(settings: RunSettings, spec: SinkSpec, sinks: dict[str, Sink]) -> None:
    sinks[spec.name] = make_sink(spec, functions=settings.functions)


def uses_socks_proxy(settings: Mapping[str, str]) -> bool:
    """Return True if Java connects to servers in another way than this process.

    Args:
        settings: of the job, for Spark.
    """
    said = [*settings.values(), *(os.environ.get(name, "") for name in VARIABLES)]
    return any("socksProxyHost" in options for options in said)


def collect_errors(check: Callable[[], object]) -> Sequence[WatersmeetError]:
    """Return what a check raises; none: nothing is wrong."""
    try:
        check()
    except SeveralErrors as several:
        return several.errors
    except WatersmeetError as error:
        return [error]
    return []
