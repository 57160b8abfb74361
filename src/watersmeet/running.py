"""A job's text, run on Spark until it ends or is stopped: what Python calls, and the command line with it.

PySpark is loaded when a job is run, not before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

from watersmeet.errors import SpecError, raise_all, without_hidden
from watersmeet.history.recorder import HistoryRecorder, RunDescription
from watersmeet.objects.settings import store_of
from watersmeet.observe import spans
from watersmeet.observe.listeners import Listener, ListenerGroup, WatchedRun, run_with_listeners
from watersmeet.observe.log import LogToStream, LogWatcher
from watersmeet.page.questions import JobReference
from watersmeet.parser.ddl.settings import as_text
from watersmeet.parser.statements import parse_job, run_settings
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.job.column_inference import ColumnInference
from watersmeet.runtime.spark.job.settings import RunSettings as RunSettings
from watersmeet.runtime.spark.start_failures import check_pyspark
from watersmeet.sinks.base import RowPrinter
from watersmeet.spec.job_options import is_set
from watersmeet.spec.model import Job
from watersmeet.spec.monitoring import TOKEN_FILE, Address, address_in, load_token

if TYPE_CHECKING:
    from watersmeet.observe.metrics.endpoint import Endpoint
    from watersmeet.page.server import ServedPage
    from watersmeet.runtime.spark.job.settings import OnTick as OnTick
    from watersmeet.runtime.spark.job.settings import RunResult as RunResult


def run(
    text: str,
    settings: Mapping[str, str | int | bool] | None = None,
    *,
    accept_loss: Collection[str] = (),
    accept_target: Collection[str] = (),
    accept_moved: Collection[str] = (),
    rebuild: bool = False,
    on_tick: OnTick | None = None,
    on_notice: Callable[[str], None] | None = None,
    console: RowPrinter | None = None,
) -> RunResult:
    """Run a job until it ends or is stopped, in this process's Spark session, or in one that is begun.

    In the main thread, SIGINT, SIGTERM and SIGHUP let the tick in hand finish and end the run. A job goes on
    where its checkpoint says, whoever ran it before.

    Args:
        text: the job, as in a file that ``watersmeet run`` is given.
        settings: as with SET in the text, which they take precedence over; ``checkpoint``, the directory of
            the job's state, has to be in one of the two.
        accept_loss: names of Kafka sources that go on though rows are gone before they were read.
        accept_target: names of sinks whose table may be another one than the job has written to.
        accept_moved: names of file sources whose files were moved: those at their paths are the same ones.
        rebuild: make Spark's checkpoint anew from the job's state.
        on_tick: called after every tick with its result, its seconds, and the seconds of its parts.
        on_notice: called with what a person should know and does not stop the job, warnings of the plan among
            it.
        console: prints the rows of console sinks.

    Returns how many ticks there were, the last one's result, and how the run ended.

    Raises:
        WatersmeetError: whatever went wrong, readable; nothing is lost, and the job can be run again.

    What is wrong with a job is raised before Spark is started:

    >>> from watersmeet import WatersmeetError, run
    >>> try:
    ...     run('''CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
    ...         SELECT t FROM a''', {"trigger": "soon"})
    ... except WatersmeetError as error:
    ...     print(error.code)
    bad-setting
    """
    check_pyspark("run()")
    asked = {name: as_text(value) for name, value in (settings or {}).items()}
    directory = run_settings(text, asked).get("checkpoint")
    if directory is None:
        parse_job(text, overrides=asked, infer=ColumnInference())  # what is wrong with the text comes first
        raise no_checkpoint(
            "run(text, {'checkpoint': 'state/delivered'}), or SET checkpoint = '…' in the text"
        )
    infer = ColumnInference(directory, on_notice, store_of(run_settings(text, asked)))
    job = parse_job(text, overrides=asked, infer=infer)
    if not job.inserts:
        message = "there is nothing to run but EXPLAIN"
        raise SpecError(message, code="nothing-to-run", hint="add INSERT INTO sink SELECT …")
    plan = plan_job(job)
    if on_notice is not None:
        for warning in plan.warnings:
            on_notice(without_hidden(warning))
    return run_planned(
        job,
        plan,
        RunSettings(
            directory,
            accept_loss=accept_loss,
            accept_target=accept_target,
            accept_moved=accept_moved,
            rebuild=rebuild,
            inferred=infer.inferred,
            console=console,
            on_notice=on_notice,
            on_tick=on_tick,
        ),
        of_text=JobReference(text, "-", directory, asked),
    )


def run_planned(
    job: Job,
    plan: JobPlan,
    settings: RunSettings,
    *,
    watchers: Sequence[Listener] = (),
    of_text: JobReference | None = None,
    on_java: Callable[[], None] | None = None,
    shown_on: TextIO | None = None,
) -> RunResult:
    """Check a job, observe it, and run it on Spark.

    Args:
        settings: the settings of the run; those of the job are added.
        watchers: listeners of the run, besides those that its settings configure.
        of_text: the job as text, for questions on its page about the outcome of rows; None if the job
            has no text.
        on_java: called after all checks and before Java starts. Java then starts while the rest of the
            program loads, and no other job runs in that time.
        shown_on: the only stream to which notices are written; None: they may go to a log, and the
            notices omit the token of the page.

    Raises:
        WatersmeetError: as `run`.
    """
    plan, settings = replace(plan, moved=frozenset(settings.accept_moved)), settings.resolve(job)
    check_before_java(job, plan, settings)
    from watersmeet.runtime.spark.java_start import prestart_java_for_job

    asked, on_notice = settings.run, settings.on_notice
    place = Checkpoint(settings.checkpoint, settings.store)
    pause_ms = 0 if settings.until_caught_up else settings.trigger_ms

    about = WatchedRun(place.job, plan, pause_ms / 1000)
    recording = None
    if is_set(asked, "history", default=True):
        recording = HistoryRecorder(lambda: place.store, RunDescription.of(job, plan))

    def run_watched(watching: ListenerGroup) -> RunResult:
        from watersmeet.runtime.spark.job.run import run_job

        told = replace(
            settings,
            on_start=watching.start,
            on_notice=combine_callbacks(watching.notice, on_notice),
            on_begin=watching.begin,
            on_backlog=watching.behind,
            on_tick=combine_callbacks(watching.tick, settings.on_tick),
        )
        return run_job(job, plan, told)

    def run_shown(watching: ListenerGroup) -> RunResult:
        if page is not None:
            watching.announce_page(page.url, page.access)
            combine_callbacks(on_notice)(f"the page of the job is at {page.describe(shown_on)}")
        return run_recorded(watching)

    def run_recorded(watching: ListenerGroup) -> RunResult:
        if recording is None:
            return run_watched(watching)
        with recording.recording_run(combine_callbacks(watching.notice, on_notice)) as ended:
            result = run_watched(watching)
            ended(result)
        return result

    say = on_notice or (lambda said: None)
    text = of_text or JobReference(None, "-", settings.checkpoint)
    with (
        _page_of(asked, place, recording is not None, text) as page,
        open_listeners(asked, about, say) as own,
        prestart_java_for_job(job, plan, on_java) if on_java is not None else nullcontext(),
    ):
        kept = [] if recording is None else [recording]
        return run_with_listeners([*kept, *watchers, *own], run_shown)


def check_before_java(job: Job, plan: JobPlan, settings: RunSettings, *, servers: bool = True) -> None:
    """Check all that can be known of a run without Java; its servers, too, unless ``servers`` is False.

    Raises:
        WatersmeetError: all that is wrong.
    """
    from watersmeet.runtime.spark.preflight.run import find_server_problems, find_start_problems

    problems_of = find_server_problems if servers else find_start_problems
    raise_all(problems_of(job, plan, settings.resolve(job)))


@contextmanager
def _page_of(
    asked: Mapping[str, str], place: Checkpoint, has_history: bool, text: JobReference
) -> Iterator[ServedPage | None]:
    """Serve the page of the run while the run lasts; yield None if no page is configured.

    Raises:
        SpecError: the job has no history, which the page needs.
    """
    address = address_in(asked.get("ui", ""))
    if address is None:
        yield None
        return
    if not has_history:
        raise SpecError(
            "the page of a job needs its history, but history = 'off'",
            code="bad-setting",
            hint="remove history = 'off', or ui",
        )
    from watersmeet.page.live_server import serve_run_page

    token = load_token(asked.get(TOKEN_FILE))
    with serve_run_page(address, place.store, place.job, token=token, asked=text) as page:
        yield page


def inferring(
    settings: Mapping[str, str], directory: str, say: Callable[[str], None] | None = None
) -> ColumnInference:
    """Build the inference of columns that a job leaves to its files.

    If the job has state, the columns stored in it apply.

    Args:
        settings: the settings of the run (`Job.run`).
        directory: the checkpoint directory.
        say: receives messages about the inferred columns.
    """
    return ColumnInference(directory, say, store_of(settings))


def no_checkpoint(hint: str) -> SpecError:
    """Build the error for a job without a checkpoint.

    Args:
        hint: how to configure one.
    """
    message = "the job has no checkpoint: a directory for its state"
    return SpecError(message, code="no-checkpoint", hint=hint)


def combine_callbacks(*told: Callable[..., None] | None) -> Callable[..., None]:
    """Combine callbacks into one that calls them in order; skip those that are None."""
    every = [one for one in told if one is not None]

    def call(*arguments: Any) -> None:
        for one in every:
            one(*arguments)

    return call


@contextmanager
def open_listeners(
    settings: Mapping[str, str], run: WatchedRun, say: Callable[[str], None]
) -> Iterator[list[Listener]]:
    """Yield the listeners that the settings request, and close them when the run ends.

    Args:
        settings: settings of the run.
        say: receives lines for people about where metrics are shown.

    Raises:
        WatersmeetError: metrics cannot be shown at the requested address.
    """
    with ExitStack() as stack:
        form = settings.get("log_format")
        if form is not None and sys.stderr is not None:
            stack.enter_context(LogToStream(form, sys.stderr))
        log = LogWatcher(run)
        watchers: list[Listener] = [log]
        if spans.is_installed():
            watchers.append(spans.SpanWatcher(run))
        address = address_in(settings.get("metrics", ""))
        if address is not None:
            endpoint = _endpoint_at(address)
            watchers.append(endpoint.watch(run, load_token(settings.get(TOKEN_FILE))))
            shown = f"metrics are shown at {endpoint.url} ({endpoint.access})"
            log.note(shown)
            say(shown)
        yield watchers


def _endpoint_at(address: Address) -> Endpoint:
    """Return the process's endpoint at `address`; load the metrics library only on this call."""
    from watersmeet.observe.metrics.endpoint import endpoint_at

    return endpoint_at(address)
