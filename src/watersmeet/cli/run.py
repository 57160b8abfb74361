"""`run` and `explain`: the text of a job, through a plan, to an engine."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watersmeet.cli.logged import Said, logged
from watersmeet.cli.output import to_stderr
from watersmeet.earlier_names import notices_to, without_notices
from watersmeet.engine.spark.job.inferring import Inferring
from watersmeet.engine.spark.job.signals import heeded_signals
from watersmeet.errors import EngineError, Location, SpecError, counted, raise_all

if TYPE_CHECKING:
    from watersmeet.page.asking import AskedJob


@dataclass(frozen=True)
class Appearance:
    """How a run shows itself. ``live``: the view in place; None: if standard output is a terminal; ``quiet``:
    nothing of ticks, and the account as JSON alone."""

    live: bool | None = None
    json: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.quiet and self.live:
            raise SpecError(
                "a quiet run has no live view", code="wrong-option", hint="leave out --quiet, or --live"
            )


@dataclass(frozen=True)
class Recovery:
    """What a run is to do about losses. ``rebuild``: make Spark's checkpoint anew; ``accept_loss``: the Kafka
    sources that go on though rows are gone; ``accept_target``: the sinks whose table may be another one."""

    rebuild: bool = False
    accept_loss: tuple[str, ...] = ()
    accept_target: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ended:
    """A run that ended. ``stopped``: by a signal. ``result``: the last tick's, if there was one;
    ``logged``: what it said went into a log."""

    stopped: bool
    result: Any
    account: Any
    logged: bool = False


def settings_of(pairs: Sequence[str]) -> dict[str, str]:
    """``k=v`` texts as a mapping."""
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
    """The plans of all queries of the job, those of EXPLAIN statements last. ``checkpoint``: the directory of
    a run of the job, whose measured rates the forecasts of its INSERTs are made from.

    Raises:
        StateError: there is no state, or it cannot be read.
    """
    from watersmeet.cli.job_file import job_in, settings_in
    from watersmeet.objects.setting import store_of
    from watersmeet.plan.explain import explain
    from watersmeet.plan.planner import plan_job

    store = None if checkpoint is None else store_of(settings_in(text, source_name, overrides))
    job = job_in(text, source_name, overrides, infer=Inferring(checkpoint, to_stderr, store))
    plans = []
    if job.inserts:
        plan, measured = plan_job(job), None
        if checkpoint is not None:
            from watersmeet.cli.measured import manifest_in, measured_in
            from watersmeet.engine.driver.opening.as_kept import as_kept

            plan = as_kept(plan, manifest_in(checkpoint, store))
            measured = measured_in(checkpoint, job, plan, store)
        plans.append(explain(plan, measured))
    return "\n".join([*plans, *_explained(job)])


def looked_at(text: str, source_name: str | None, overrides: Mapping[str, str], *, really: bool) -> None:
    """Look at the sources of the job's INSERTs, without Spark.

    Args:
        really: what is wrong is an error, files are opened, brokers are asked, and what cannot be looked at
            is said. Else a path at which there is nothing is a warning: the data may be elsewhere.

    Raises:
        WatersmeetError: all that is wrong with the sources.
    """
    from watersmeet.cli.job_file import job_in
    from watersmeet.engine.spark.broken_records import sample_notes
    from watersmeet.engine.spark.preflight.sources import problems_of
    from watersmeet.plan.planner import plan_job

    job = job_in(text, source_name, overrides, infer=Inferring())
    if not job.inserts:
        return
    plan = plan_job(job)
    if really:
        check_sources(plan)
        for words in sample_notes(plan):
            to_stderr(f"note: {words}")
        return
    for problem in problems_of(plan):
        if problem.code != "path-missing":
            continue
        print(f"warning: {problem.message}; a run is refused for it", file=sys.stderr)


def check_sources(plan: Any) -> None:
    """Look at a plan's sources as closely as can be without Spark; what a person should know is said.

    Raises:
        WatersmeetError: all that is wrong with them.
    """
    from watersmeet.engine.spark.preflight.sources import notes_of, problems_of

    raise_all(problems_of(plan, thorough=True))
    for words in notes_of(plan):
        to_stderr(f"note: {words}")


def mermaid_text(text: str, source_name: str | None, overrides: Mapping[str, str]) -> str:
    """The same queries as one Mermaid flowchart."""
    from watersmeet.cli.job_file import job_in
    from watersmeet.plan.explain.mermaid import mermaid
    from watersmeet.plan.model.job import JobPlan
    from watersmeet.plan.planner import plan_job

    job = job_in(text, source_name, overrides, infer=Inferring(say=to_stderr))
    planned = plan_job(job).queries if job.inserts else ()
    return mermaid(JobPlan((*planned, *_planned_explains(job))))


def _explained(job: Any) -> list[str]:
    """What the job's EXPLAIN statements print."""
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
    *,
    recovery: Recovery | None = None,
    default_checkpoint: Path,
) -> Ended:
    """Run the job until it ends or is stopped (Ctrl-C, SIGTERM, SIGHUP), and show it.

    Without ``checkpoint`` among the settings, the state is kept in ``default_checkpoint``.
    """
    from watersmeet.cli.job_file import settings_in

    settings = settings_in(text, source_name, overrides)
    with logged(settings.get("log_format")) as said:
        return _run_text(
            text,
            source_name,
            overrides,
            settings,
            appearance,
            said,
            recovery or Recovery(),
            default_checkpoint,
        )


def _run_text(
    text: str,
    source_name: str,
    overrides: Mapping[str, str],
    settings: Mapping[str, str],
    appearance: Appearance,
    said: Said,
    recovery: Recovery,
    default_checkpoint: Path,
) -> Ended:
    from watersmeet.cli.job_file import job_in, said_first, warnings_of
    from watersmeet.objects.setting import store_of
    from watersmeet.observe.reports import account_of
    from watersmeet.page.asking import AskedJob
    from watersmeet.plan.planner import plan_job

    with without_notices():
        first = said_first(text, source_name, overrides)
    if first is not None:
        said.note(first)
    directory = settings.get("checkpoint", str(default_checkpoint))
    infer = Inferring(directory, said.plain, store_of(settings))
    with notices_to(said.warning):
        job = job_in(text, source_name, overrides, infer=infer)
    if job.explains:
        print("\n".join(_explained(job)), end="")
    if not job.inserts:
        return Ended(False, None, None)
    plan = plan_job(job)
    if _was_finished(job, source_name, str(default_checkpoint)):
        if appearance.json:
            _print_json(account_of(None))
        return Ended(False, None, None)
    with without_notices():
        warnings = warnings_of(text, source_name, plan)
    for warning in warnings:
        said.warning(warning)
    views, printer, out = _views(appearance, source_name, job, plan, said)
    stopped, changed, ticks = False, {}, deque[Any](maxlen=1)
    with _stopping_as_interrupt(), ExitStack() as opened:
        for view in views:
            if isinstance(view, AbstractContextManager):
                opened.enter_context(view)
        try:
            result = _run(
                job,
                plan,
                recovery,
                str(default_checkpoint),
                infer.inferred,
                printer,
                ticks.append,
                views,
                said,
                AskedJob(text, source_name, directory, overrides),
            )
            stopped, changed = bool(result.stopped), dict(result.changed)
        except KeyboardInterrupt:
            stopped = True
        except EngineError as error:
            raise placed(error, job, text, source_name) from None
    last = ticks[0] if ticks else None
    account = account_of(last, changed)
    if appearance.json:
        _print_json(account)
    if last is None:
        return Ended(stopped, None, None, said.to_log)
    if not (appearance.json or appearance.quiet or said.to_log):
        for table in account.tables(out.width):
            out.print(table)
        for line in account.late_lines():
            out.print(line, markup=False, highlight=False)
    return Ended(stopped, last, account, said.to_log)


def _print_json(account: Any) -> None:
    print(json.dumps({"account": account.as_dict()}), flush=True)


def placed(error: EngineError, job: Any, text: str, source_name: str) -> EngineError:
    """The error of a query with the place of that in the job's text, where it has none and is one."""
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


def _was_finished(job: Any, source_name: str, default_checkpoint: str) -> bool:
    """Whether the job's input was ended before, and that is all right; said before Spark starts.

    Raises:
        StateError: it was, and there is to be more; a reset was interrupted; the state cannot be read.
    """
    from watersmeet.engine.spark.checkpoint.directory import Checkpoint, check_not_half_gone
    from watersmeet.errors import StateError
    from watersmeet.objects.setting import store_of
    from watersmeet.running import is_set
    from watersmeet.state.manifest import load_newest

    directory = job.run.get("checkpoint", default_checkpoint)
    again = f"watersmeet reset {source_name}"
    if directory != default_checkpoint:
        again += f" --checkpoint {directory}"
    checkpoint = Checkpoint(directory, store_of(job.run))
    check_not_half_gone(checkpoint, again)
    manifest = load_newest(checkpoint.store)
    if manifest is None or not manifest.finished:
        return False
    message = f"the job was finished before, by tick {manifest.tick:,}: its input was ended (--finish)"
    if not is_set(job.run, "finish"):
        raise StateError(
            f"{message}, and it takes no more rows", code="job-finished", hint=f"to begin anew: {again}"
        )
    print(f"{message}, and nothing was read\nHint: to begin anew: {again}", file=sys.stderr)
    return True


def state_text(
    text: str, source_name: str, overrides: Mapping[str, str], default: Path, *, as_json: bool
) -> None:
    """Print what the job keeps.

    Raises:
        StateError: there is no state, or it cannot be read.
    """
    from rich.console import Console

    from watersmeet.cli.job_file import job_in, settings_in
    from watersmeet.cli.measured import manifest_in
    from watersmeet.cli.state_commands.show import state_report
    from watersmeet.engine.driver.opening.as_kept import as_kept
    from watersmeet.objects.setting import store_of
    from watersmeet.plan.planner import plan_job

    settings = settings_in(text, source_name, overrides)
    directory, store = settings.get("checkpoint", str(default)), store_of(settings)
    manifest = manifest_in(directory, store)
    infer = Inferring(directory, store=store)
    job = job_in(text, source_name, overrides, infer=infer)
    report = state_report(manifest, as_kept(plan_job(job), manifest))
    if as_json:
        print(json.dumps(report.as_dict()))
        return
    print(f"{directory if store is None else store.place.url}: {report.head()}")
    Console(file=sys.stdout, highlight=False).print(report.table())
    for line in report.lines():
        print(line)


def reset_text(
    text: str, source_name: str, overrides: Mapping[str, str], default: Path, *, yes: bool
) -> bool:
    """Remove what the job left behind, once that was agreed to; whether it is gone.

    Args:
        yes: it is agreed to; else that is asked on the terminal.

    Raises:
        SpecError: it cannot be asked.
        StateError: a run holds the checkpoint, or there is something else in its directory.
    """
    from watersmeet.cli.job_file import job_in, settings_in
    from watersmeet.cli.reset import planned
    from watersmeet.objects.setting import store_of

    settings = settings_in(text, source_name, overrides)
    infer = Inferring(settings.get("checkpoint", str(default)), store=store_of(settings))
    job = job_in(text, source_name, overrides, infer=infer)
    removal = planned(job, job.run.get("checkpoint", str(default)))
    if not removal.roots and not removal.is_stored:
        print(f"there is nothing to remove: no checkpoint in {removal.checkpoint.root}")
        for line in removal.lines():
            print(f"  {line}")
        return True
    print("this will be removed:")
    for line in removal.lines():
        print(f"  {line}")
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise SpecError("nobody is there to be asked", code="not-asked", hint="--yes removes it unasked")
        if input("Remove it? [y/N] ").strip().lower() not in ("y", "yes"):
            print("nothing was removed")
            return False
    removal.run()
    print("removed: the job begins anew when it is run")
    return True


def _run(
    job: Any,
    plan: Any,
    recovery: Recovery,
    default_checkpoint: str,
    inferred: Mapping[str, Any],
    printer: Any,
    on_result: Callable[[Any], None],
    views: Sequence[Any],
    said: Said,
    of_text: AskedJob,
) -> Any:
    """Run on Spark; see `engine.spark.job.settings.RunResult`. ``on_result``: takes each tick's; ``of_text``:
    the job, as its page asks about rows of it."""
    from watersmeet.running import run_planned

    result = run_planned(
        job,
        plan,
        checkpoint=default_checkpoint,
        rebuild=recovery.rebuild,
        accept_loss=recovery.accept_loss,
        accept_target=recovery.accept_target,
        inferred=inferred,
        watchers=views,
        on_notice=said.notice,
        on_tick=lambda result, seconds, parts: on_result(result),
        console=printer,
        of_text=of_text,
        java_ahead=True,
        shown_on=None if said.to_log else sys.stderr,
    )
    if not result.ticks and not result.stopped:
        why = "the job was finished before" if result.finished else "there is nothing new"
        said.plain(f"{why}: nothing was read")
    for name, changed in result.changed.items():
        are, they_are = ("is", "it is") if changed.files == 1 else ("are", "they are")
        said.plain(
            f"{name}: {counted(changed.files, 'file')} {are} not in the result as {they_are} now: "
            + ", ".join(changed.names)
            + (", …" if changed.files > len(changed.names) else "")
        )
    return result


def _views(appearance: Appearance, title: str, job: Any, plan: Any, said: Said) -> tuple[list[Any], Any, Any]:
    """Who shows the ticks, what prints the console sink's rows, and the console. Where the run is logged it
    is shown only if that is asked for, too."""
    from rich.console import Console

    from watersmeet.observe.live.lines import JsonLines, PlainLines
    from watersmeet.observe.live.view import LiveView
    from watersmeet.observe.reports import integer_times
    from watersmeet.observe.rows import JsonPrinter, TablePrinter
    from watersmeet.running import is_set

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
    """Within, SIGTERM and SIGHUP stop as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # whoever runs this there has the signals
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = [number for number in heeded_signals() if number != signal.SIGINT]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
