"""`run` and `explain`: the text of a job, through a plan, to an engine."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watersmeet.cli.output import LogOutput, log_to_stderr, to_stderr
from watersmeet.deprecated_names import notices_to, without_notices
from watersmeet.errors import EngineError, Location, SpecError, format_count, printable, raise_all
from watersmeet.runtime.spark.job.column_inference import ColumnInference
from watersmeet.runtime.spark.job.signals import handle_signals, list_handled_signals

if TYPE_CHECKING:
    from watersmeet.runtime.spark.job.settings import RunResult, RunSettings


@dataclass(frozen=True)
class Appearance:
    """Display options of a run.

    Args:
        live: True for the live view; None to use it if standard output is a terminal.
        quiet: True to print nothing about ticks, and the row accounting as JSON only.
        hints: True to print how to stop the run and how to read its output.
    """

    live: bool | None = None
    json: bool = False
    quiet: bool = False
    hints: bool = True

    def __post_init__(self) -> None:
        if self.quiet and self.live:
            raise SpecError("--quiet has no live view", code="wrong-option", hint="remove --quiet or --live")


@dataclass(frozen=True)
class RunOutcome:
    """Outcome of a run that has ended.

    Attributes:
        stopped: a signal stopped the run.
        result: result of the last tick; None if there was no tick.
        account: row accounting of the run; None if there was no tick.
        logged: the run's messages went to a log.
    """

    stopped: bool
    result: Any
    account: Any
    logged: bool = False


def settings_of(pairs: Sequence[str]) -> dict[str, str]:
    """Parse ``k=v`` texts into a mapping."""
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise SpecError(
                f'"--conf {pair}" is not of the form key=value',
                code="wrong-option",
                hint="--conf spark.driver.memory=2g",
            )
        settings[name.strip()] = value.strip()
    return settings


def explain_text(
    text: str, source_name: str | None, overrides: Mapping[str, str], checkpoint: str | None = None
) -> str:
    """Return the plans of all queries of the job, those of EXPLAIN statements last.

    Forecasts use the rates that a run measured in ``checkpoint``. Raises: StateError: it cannot be read.
    """
    from watersmeet.cli.job_file import job_in, settings_in
    from watersmeet.objects.settings import store_of
    from watersmeet.plan.explain import explain
    from watersmeet.plan.planner import plan_job

    store = None if checkpoint is None else store_of(settings_in(text, source_name, overrides))
    job = job_in(text, source_name, overrides, infer=ColumnInference(checkpoint, to_stderr, store))
    plans = []
    if job.inserts:
        plan, measured = plan_job(job), None
        if checkpoint is not None:
            from watersmeet.cli.state_measurements import load_measurements, manifest_in
            from watersmeet.runtime.coordinator.restore.plan_for_state import plan_for_state

            plan = plan_for_state(plan, manifest_in(checkpoint, store))
            measured = load_measurements(checkpoint, job, plan, store)
        plans.append(explain(plan, measured))
    return "\n".join([*plans, *_explain_queries(job)])


def preflight_sources(
    text: str, source_name: str | None, overrides: Mapping[str, str], *, really: bool
) -> None:
    """Check the sources of the job's INSERTs, without Spark.

    Args:
        really: If True, problems are errors, files are opened, brokers are contacted, and what cannot
            be checked is printed. If False, a path without files is a warning: the data may be
            elsewhere.

    Raises:
        WatersmeetError: All problems of the sources.
    """
    from watersmeet.cli.job_file import job_in
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.spark.broken_records import list_sample_notes
    from watersmeet.runtime.spark.preflight.sources import find_source_problems

    job = job_in(text, source_name, overrides, infer=ColumnInference())
    if not job.inserts:
        return
    plan = plan_job(job)
    if really:
        check_sources(plan)
        for words in list_sample_notes(plan):
            to_stderr(f"note: {words}")
        return
    for problem in find_source_problems(plan):
        if problem.code != "path-missing":
            continue
        print(f"warning: {problem.message}; a run is refused for it", file=sys.stderr)


def check_sources(plan: Any) -> None:
    """Check a plan's sources as closely as possible without Spark, and print notes for the user.

    Raises:
        WatersmeetError: All problems of the sources.
    """
    from watersmeet.runtime.spark.preflight.sources import find_source_problems, list_source_notes

    raise_all(find_source_problems(plan, thorough=True))
    for words in list_source_notes(plan):
        to_stderr(f"note: {words}")


def mermaid_text(text: str, source_name: str | None, overrides: Mapping[str, str]) -> str:
    """Format the job's queries as one Mermaid flowchart."""
    from watersmeet.cli.job_file import job_in
    from watersmeet.plan.explain.graph import mermaid
    from watersmeet.plan.model.job import JobPlan
    from watersmeet.plan.planner import plan_job

    job = job_in(text, source_name, overrides, infer=ColumnInference(say=to_stderr))
    planned = plan_job(job).queries if job.inserts else ()
    return mermaid(JobPlan((*planned, *_planned_explains(job))))


def _explain_queries(job: Any) -> list[str]:
    """Return the output of the job's EXPLAIN statements."""
    from watersmeet.plan.explain import explain_query

    return [explain_query(query) for query in _planned_explains(job)]


def _planned_explains(job: Any) -> list[Any]:
    from watersmeet.plan.planner import plan_query
    from watersmeet.spec.model import Sink

    console = Sink("console", "console")
    return [plan_query("explain", console, query, job.options) for query in job.explains]


def run_text(
    text: str,
    source_name: str,
    overrides: Mapping[str, str],
    appearance: Appearance,
    settings: RunSettings,
) -> RunOutcome:
    """Run a job until it ends or is stopped (Ctrl-C, SIGTERM, SIGHUP), and display it.

    What the text and ``overrides`` set takes precedence over `settings`.
    """
    from watersmeet.cli.job_file import settings_in

    asked = settings_in(text, source_name, overrides)
    with log_to_stderr(asked.get("log_format")) as said:
        return _run_text(text, source_name, overrides, asked, appearance, said, settings)


def _run_text(
    text: str,
    source_name: str,
    overrides: Mapping[str, str],
    asked: Mapping[str, str],
    appearance: Appearance,
    said: LogOutput,
    settings: RunSettings,
) -> RunOutcome:
    from watersmeet.cli.job_file import first_message, job_in, warnings_of
    from watersmeet.objects.settings import store_of
    from watersmeet.observe.reports import account_of
    from watersmeet.page.questions import JobReference
    from watersmeet.plan.planner import plan_job
    from watersmeet.running import run_planned

    with without_notices():
        first = first_message(text, source_name, overrides)
    if first is not None:
        said.note(first)
    directory = asked.get("checkpoint", settings.checkpoint)
    infer = ColumnInference(directory, said.plain, store_of(asked))
    with notices_to(said.warning):
        job = job_in(text, source_name, overrides, infer=infer)
    if job.explains:
        print("\n".join(_explain_queries(job)), end="")
    if not job.inserts:
        return RunOutcome(False, None, None)
    plan = plan_job(job)
    checkpoint, before = _state_before(job, source_name, settings.checkpoint)
    if before is not None and before.finished:
        _check_finished(job, before, _reset_command(job, source_name, settings.checkpoint))
        if appearance.json:
            _print_json(account_of(None))
        return RunOutcome(False, None, None)
    with without_notices():
        warnings = warnings_of(text, source_name, plan)
    for warning in warnings:
        said.warning(warning)
    views, printer, out = _views(appearance, source_name, job, plan, said)
    stopped, changed, ticks = False, {}, deque[Any](maxlen=1)

    def begin() -> None:
        if appearance.hints and not appearance.quiet:
            for line in start_lines(source_name, directory, overrides.get("checkpoint"), checkpoint, before):
                said.plain(line)

    with _stopping_as_interrupt(), ExitStack() as opened:
        for view in views:
            if isinstance(view, AbstractContextManager):
                opened.enter_context(view)
        try:
            result = run_planned(
                job,
                plan,
                replace(
                    settings,
                    inferred=infer.inferred,
                    console=printer,
                    on_notice=said.notice,
                    on_tick=lambda result, seconds, parts: ticks.append(result),
                ),
                watchers=views,
                of_text=JobReference(text, source_name, directory, overrides),
                on_java=begin,
                shown_on=None if said.to_log else sys.stderr,
            )
            _say_outcome(result, said)
            stopped, changed = bool(result.stopped), dict(result.changed)
        except KeyboardInterrupt:
            stopped = True
        except EngineError as error:
            raise locate_error(error, job, text, source_name) from None
    last = ticks[0] if ticks else None
    account = account_of(last, changed)
    if appearance.json:
        _print_json(account)
    if appearance.json or appearance.quiet or said.to_log:
        return RunOutcome(stopped, last, None if last is None else account, said.to_log)
    if last is not None:
        for table in account.tables(out.width):
            out.print(table)
        for line in account.late_lines():
            out.print(line, markup=False, highlight=False)
    for line in end_lines(job, plan, last, account, stopped=stopped) if appearance.hints else ():
        print(printable(line))
    return RunOutcome(stopped, last, None if last is None else account, said.to_log)


def start_lines(
    source_name: str, directory: str, own: str | None, checkpoint: Any, before: Any
) -> Iterator[str]:
    """Yield the lines that a run prints first: where its state is, and how to stop it.

    Args:
        directory: directory of the checkpoint, as the user wrote it.
        own: value of the flag --checkpoint; None if it was not given.
        before: manifest of the newest tick; None for a new job.
    """
    stored = "" if checkpoint.stored_job is None else f", state: {checkpoint.place}"
    since = "new" if before is None else f"resumes after tick {before.tick:,}"
    yield f"Starting Spark (takes a few seconds). Checkpoint: {directory}{stored} ({since})"
    named = [directory] if source_name == "-" else [source_name, *(["--checkpoint", own] if own else [])]
    stop = shlex.join(["watersmeet", "stop", *named])
    yield f"To stop: Ctrl-C, or {stop} (--savepoint DIR also copies the state to DIR)"


def end_lines(job: Any, plan: Any, last: Any, account: Any, *, stopped: bool) -> Iterator[str]:
    """Yield lines that explain how to read the output, and what happened to rows still in state."""
    from watersmeet.observe.reports import released_words
    from watersmeet.sinks.read_hints import read_hint

    for sink in _written(job, last, account) if last is not None else ():
        if (hint := read_hint(sink)) is not None:
            yield f"Read {sink.name}: {hint}"
    retained = 0 if last is None else sum(row.retained for row in account.inputs)
    stay = (
        f"; {format_count(retained, 'row')} {'stays' if retained == 1 else 'stay'} in state"
        if retained
        else ""
    )
    if stopped:
        after = "" if last is None else f" after tick {last.tick:,}"
        yield f"Stopped{after}{stay}. Run the same command again to resume."
    elif last is not None and last.finished:
        yield f"The input is closed{released_words(last, plan)}. The job is finished."
    elif stay:
        yield f"Caught up{stay} for the next run. --finish closes the input and emits what is left."


_SIDE_OUTPUTS = {
    "late_output": ("late", "null_time", "ahead"),
    "broken_output": ("broken",),
    "shed_output": ("shed",),
}
"""Settings that name a sink, and the places of the account whose rows it gets."""


def _written(job: Any, last: Any, account: Any) -> list[Any]:
    """Return the sinks that have got rows since the job's start."""
    from watersmeet.plan.checks.endpoints import written_sinks

    queries = {name for name, query in last.queries.items() if query.total_rows_out}
    names = {insert.sink.name for insert in job.inserts if insert.name in queries}
    names.add(job.run.get("progress_output"))
    names |= {
        job.run.get(setting)
        for setting, places in _SIDE_OUTPUTS.items()
        if any(getattr(row, place) for row in account.inputs for place in places)
    }
    return [sink for sink in written_sinks(job) if sink.name in names]


def _print_json(account: Any) -> None:
    print(json.dumps({"account": account.as_dict()}), flush=True)


def locate_error(error: EngineError, job: Any, text: str, source_name: str) -> EngineError:
    """Add the query's position in the job's text to an error that concerns a query and has none."""
    if error.code == "condition-failed" and len(job.inserts) == 1 and "INSERT " not in error.message:
        message = f'INSERT "{job.inserts[0].name}": {error.message}'
        error = type(error)(message, code=error.code, hint=error.hint, location=error.location)
    named = next((insert for insert in job.inserts if f'INSERT "{insert.name}"' in error.message), None)
    start = -1 if named is None or error.location is not None else text.find(named.query.sql)
    if start < 0:
        return error
    line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    place = Location(line, column, source_name)
    return type(error)(error.message, code=error.code, hint=error.hint, location=place)


def _state_before(job: Any, source_name: str, default_checkpoint: str) -> tuple[Any, Any]:
    """Return the job's checkpoint, and the manifest of its newest tick, if there is one.

    Raises:
        StateError: a reset was interrupted; the state cannot be read.
    """
    from watersmeet.objects.settings import store_of
    from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, check_reset_finished
    from watersmeet.state.manifest import load_newest

    checkpoint = Checkpoint(job.run.get("checkpoint", default_checkpoint), store_of(job.run))
    check_reset_finished(checkpoint, _reset_command(job, source_name, default_checkpoint))
    return checkpoint, load_newest(checkpoint.store)


def _reset_command(job: Any, source_name: str, default_checkpoint: str) -> str:
    directory = job.run.get("checkpoint", default_checkpoint)
    own = [] if directory == default_checkpoint else ["--checkpoint", directory]
    return shlex.join(["watersmeet", "reset", source_name, *own])


def _check_finished(job: Any, before: Any, again: str) -> None:
    """Say that the job's input was ended before.

    Raises:
        StateError: it is to read more.
    """
    from watersmeet.errors import StateError
    from watersmeet.spec.job_options import is_set

    message = f"the job was finished before, by tick {before.tick:,}: its input was ended (--finish)"
    if not is_set(job.run, "finish"):
        raise StateError(
            f"{message}, so it accepts no more rows", code="job-finished", hint=f"to start over: {again}"
        )
    to_stderr(f"Nothing to do: tick {before.tick:,} closed the input (--finish). To start over: {again}")


def _say_outcome(result: RunResult, said: LogOutput) -> None:
    """Say that nothing was read, and which files are not in the result as they are now."""
    if not result.ticks and not result.stopped:
        said.plain("Nothing was read: the job is finished" if result.finished else "Nothing new to read")
    for name, changed in result.changed.items():
        are, they_are = ("is", "it is") if changed.files == 1 else ("are", "they are")
        said.plain(
            f"{name}: {format_count(changed.files, 'file')} {are} not in the result as {they_are} now: "
            + ", ".join(changed.names)
            + (", …" if changed.files > len(changed.names) else "")
        )


def _views(
    appearance: Appearance, title: str, job: Any, plan: Any, said: LogOutput
) -> tuple[list[Any], Any, Any]:
    """Create the views of the ticks, the printer of the console sink's rows, and the console.

    A run that is logged is displayed only if that is also requested.
    """
    from rich.console import Console

    from watersmeet.observe.live.lines import JsonLines, PlainLines
    from watersmeet.observe.live.view import LiveView
    from watersmeet.observe.notebook import JsonPrinter, TablePrinter
    from watersmeet.observe.reports import integer_times
    from watersmeet.spec.job_options import is_set

    out = Console(file=sys.stdout)
    if appearance.json:
        return [] if appearance.quiet else [JsonLines(sys.stdout)], JsonPrinter(sys.stdout), out
    if appearance.quiet or (said.to_log and not appearance.live):
        return [], TablePrinter(out), out
    live = appearance.live
    if live is None:
        live = sys.stdout.isatty() and not (out.is_dumb_terminal or out.legacy_windows)
    if not live:
        return [PlainLines(sys.stdout, integer_times(plan))], TablePrinter(out), out
    bounded = is_set(job.run, "until_caught_up") or is_set(job.run, "finish")
    view = LiveView(out, Path(title).name, plan, bounded=bounded)
    return [view], TablePrinter(view), out


@contextmanager
def _stopping_as_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP stop the run as Ctrl-C does, within the block."""
    if threading.current_thread() is not threading.main_thread():  # whoever runs this there has the signals
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = [number for number in list_handled_signals() if number != signal.SIGINT]
    with handle_signals(numbers, interrupt):
        yield
