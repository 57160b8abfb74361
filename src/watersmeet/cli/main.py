"""The command ``watersmeet``.

Each command imports the heavy libraries that it needs; ``--help`` imports none.

Exit statuses:

- 0: done, or stopped cleanly by Ctrl-C, SIGTERM or SIGHUP: rows that were read are committed, or will be
  read again by the next run, which resumes.
- 1: the answer is no: a replayed case differs or is rejected, the results of the demo differ, an output
  differs from the batch answer for no known reason, or the user did not confirm a reset.
- 2: an error in the user's job, options or environment.
- 70: a bug of watersmeet; WATERSMEET_TRACEBACK=1 shows the traceback.
- 130: interrupted where nothing can be stopped cleanly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from watersmeet.cli import flags
from watersmeet.cli.completion import case_files, pipeline_files
from watersmeet.cli.diff.entry import diff
from watersmeet.cli.init import init
from watersmeet.cli.install.doctor import doctor
from watersmeet.cli.job_file import default_checkpoint, text_of
from watersmeet.cli.output import (
    OutputError,
    complain,
    guard_stdout,
    ignore_closed_pipe,
    require_stdout,
)
from watersmeet.cli.page_commands import insert_default_port, report
from watersmeet.cli.page_commands import ui as ui_command
from watersmeet.cli.prepare import prepare
from watersmeet.cli.state_commands import commands as state_commands
from watersmeet.cli.whatif.entry import whatif
from watersmeet.cli.why.entry import why
from watersmeet.deprecated_names import flags_of_today, notices_to
from watersmeet.errors import EngineError, SpecError, WatersmeetError, place_error

DIFFERS, USER_ERROR, BUG, INTERRUPTED = 1, 2, 70, 130

app = typer.Typer(
    name="watersmeet",
    help="Join live streams and changing tables by event time, in SQL or Python, on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
START, ASK, LOOK, OTHER = "Start", "Ask", "Look", "Other"
"""The groups in which ``--help`` shows the commands."""


class Engine(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


class DemoQuery(StrEnum):
    WEATHER = "weather"
    CONNECTIONS = "connections"


def _print_version(asked: bool) -> None:
    if asked:
        from watersmeet import __version__

        print(f"watersmeet {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def run(
    job: flags.JobFile,
    checkpoint: flags.Checkpoint = None,
    partitions: Annotated[int | None, typer.Option(min=1, help="Number of join tasks per tick.")] = None,
    trigger: Annotated[str | None, typer.Option(help="Time between ticks, such as '2 seconds'.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master, such as local[4].")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="A Spark setting; repeatable.")
    ] = None,
    jars: Annotated[
        str | None, typer.Option(help="Local jars, separated by commas, instead of Maven's.")
    ] = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Process the input that exists, then end.")
    ] = False,
    finish: Annotated[
        bool,
        typer.Option(
            "--finish",
            help="Process the input that exists, then end all inputs and emit every remaining row.",
        ),
    ] = False,
    replace_newer_files: Annotated[
        bool,
        typer.Option(
            "--replace-newer-files",
            help="After restoring a checkpoint: hide newer sink files from readers.",
        ),
    ] = False,
    change_queries: Annotated[
        bool,
        typer.Option(
            "--change-queries",
            help="Allow queries to be added or removed since the last run; the others resume.",
        ),
    ] = False,
    keep_ticks: flags.KeepTicks = None,
    watermark_rule: flags.Rule = None,
    lateness: flags.By = None,
    allowed_lateness: flags.Lateness = None,
    output_mode: flags.Mode = None,
    plan: flags.Plan = None,
    max_rows: flags.MaxRows = None,
    max_bytes: flags.MaxBytes = None,
    max_rows_per_key: flags.MaxPerKey = None,
    max_output_rows_per_tick: flags.MaxOutput = None,
    max_job_rows: flags.MaxJobRows = None,
    max_job_bytes: flags.MaxJobBytes = None,
    at_limit: flags.AtLimit = None,
    max_drift: flags.MaxDrift = None,
    max_broken: flags.MaxBroken = None,
    max_task_memory: flags.TaskMemory = None,
    on_null_time: flags.OnNullTime = None,
    time_zone: flags.TimeZone = None,
    late_output: Annotated[str | None, typer.Option(help="Sink for late rows.")] = None,
    broken_output: Annotated[str | None, typer.Option(help="Sink for records that do not parse.")] = None,
    shed_output: Annotated[str | None, typer.Option(help="Sink for rows that are shed at a limit.")] = None,
    progress_output: Annotated[
        str | None, typer.Option(help="Sink for one row per tick, written when the tick is complete.")
    ] = None,
    rebuild_spark_checkpoint: Annotated[
        bool,
        typer.Option(
            "--rebuild-spark-checkpoint",
            help="Recreate Spark's part of a lost checkpoint from the job's state.",
        ),
    ] = False,
    accept_loss: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE", help="Resume although Kafka deleted unread rows of this source; repeatable."
        ),
    ] = None,
    accept_target: Annotated[
        list[str] | None,
        typer.Option(metavar="SINK", help="Resume although this sink's table was replaced; repeatable."),
    ] = None,
    accept_moved: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE", help="Resume with the same files of this source at another path; repeatable."
        ),
    ] = None,
    live: Annotated[
        bool | None, typer.Option("--live/--no-live", help="Show the live view (default: on a terminal).")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON line per tick, and the row accounting.")
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Print no ticks and no row accounting; with --json, only the accounting."
        ),
    ] = False,
    ui: flags.Ui = None,
    metrics: flags.Metrics = None,
    token_file: flags.TokenFile = None,
    no_token: flags.NoToken = False,
    log_format: flags.LoggedAs = None,
) -> None:
    """Run a job on Spark until Ctrl-C; running it again resumes where it stopped."""
    from watersmeet.cli.run import Appearance, run_text, settings_of
    from watersmeet.runtime.spark.job.settings import RunSettings
    from watersmeet.runtime.spark.start_failures import check_pyspark

    check_pyspark("watersmeet run")
    require_stdout()  # by the account, and rows of console sinks: not to be told in the end
    overrides = _overrides(
        checkpoint=checkpoint,
        partitions=partitions,
        trigger=trigger,
        master=master,
        jars=jars,
        until_caught_up=until_caught_up or finish or None,
        finish=finish or None,
        replace_newer_files=replace_newer_files or None,
        change_queries=change_queries or None,
        keep_ticks=keep_ticks,
        watermark_rule=watermark_rule,
        lateness=lateness,
        allowed_lateness=allowed_lateness,
        output_mode=output_mode,
        plan=plan,
        max_rows=max_rows,
        max_bytes=max_bytes,
        max_rows_per_key=max_rows_per_key,
        max_output_rows_per_tick=max_output_rows_per_tick,
        max_job_rows=max_job_rows,
        max_job_bytes=max_job_bytes,
        at_limit=at_limit,
        max_drift=max_drift,
        max_broken=max_broken,
        max_task_memory=max_task_memory,
        on_null_time=on_null_time,
        time_zone=time_zone,
        late_output=late_output,
        broken_output=broken_output,
        shed_output=shed_output,
        progress_output=progress_output,
        ui=ui,
        metrics=metrics,
        token_file=flags.token_setting(token_file, no_token),
        log_format=log_format,
    )
    overrides |= settings_of(conf or [])
    try:
        run_text(
            text_of(job),
            str(job),
            overrides,
            Appearance(live, json, quiet),
            RunSettings(
                str(default_checkpoint(job)),
                rebuild=rebuild_spark_checkpoint,
                accept_loss=accept_loss or (),
                accept_target=accept_target or (),
                accept_moved=accept_moved or (),
            ),
        )
    except OutputError as error:
        raise EngineError(
            f"{error.message}, so the run was stopped",
            code=error.code,
            hint="only console rows are lost, and the state is intact: run again with the output redirected"
            " elsewhere",
        ) from None


def explain(
    job: flags.JobFile,
    watermark_rule: flags.Rule = None,
    lateness: flags.By = None,
    allowed_lateness: flags.Lateness = None,
    output_mode: flags.Mode = None,
    plan: flags.Plan = None,
    max_rows: flags.MaxRows = None,
    max_bytes: flags.MaxBytes = None,
    max_job_rows: flags.MaxJobRows = None,
    max_job_bytes: flags.MaxJobBytes = None,
    at_limit: flags.AtLimit = None,
    max_task_memory: flags.TaskMemory = None,
    on_null_time: flags.OnNullTime = None,
    time_zone: flags.TimeZone = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Checkpoint of an earlier run: forecast from its measured rates."),
    ] = None,
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print a Mermaid flowchart instead of text.")
    ] = False,
    check_sources: Annotated[
        bool,
        typer.Option("--check-sources", help="Also check paths, files, brokers and databases."),
    ] = False,
) -> None:
    """Show a job's plan: keys, time bounds, how long rows stay in state, and how much state that is."""
    from watersmeet.cli.run import explain_text, mermaid_text, preflight_sources

    overrides = _overrides(
        watermark_rule=watermark_rule,
        lateness=lateness,
        allowed_lateness=allowed_lateness,
        output_mode=output_mode,
        plan=plan,
        max_rows=max_rows,
        max_bytes=max_bytes,
        max_job_rows=max_job_rows,
        max_job_bytes=max_job_bytes,
        at_limit=at_limit,
        max_task_memory=max_task_memory,
        on_null_time=on_null_time,
        time_zone=time_zone,
    )
    if mermaid and checkpoint is not None:
        raise SpecError(
            "--mermaid cannot show measured values",
            code="wrong-option",
            hint="remove --mermaid or --checkpoint",
        )
    text = text_of(job)
    shown = (
        mermaid_text(text, str(job), overrides)
        if mermaid
        else explain_text(text, str(job), overrides, checkpoint)
    )
    preflight_sources(text, str(job), overrides, really=check_sources)
    print(shown, end="")


def validate(
    pipeline: Annotated[
        Path,
        typer.Argument(metavar="PIPELINE.TOML", help="The pipeline.", autocompletion=pipeline_files),
    ],
    max_rows: flags.MaxRows = None,
    max_rows_per_key: flags.MaxPerKey = None,
) -> None:
    """Report every problem of a TOML pipeline, and the limits that its forecast exceeds."""
    from watersmeet.cli.validate import validate_file

    validate_file(pipeline, _overrides(max_rows=max_rows, max_rows_per_key=max_rows_per_key))


def schema(of: Annotated[str, typer.Argument(metavar="pipeline", help="What the schema is of.")]) -> None:
    """Print the JSON schema of TOML pipelines, for editors."""
    from watersmeet.cli.validate import schema_text

    print(schema_text(of))


def preview(
    job: flags.JobFile,
    limit: Annotated[int, typer.Option(min=1, help="Rows to show per result.")] = 20,
    rows: Annotated[int, typer.Option(min=1, help="Rows to read per source.")] = 1000,
    watermark_rule: flags.Rule = None,
    lateness: flags.By = None,
    allowed_lateness: flags.Lateness = None,
    output_mode: flags.Mode = None,
    plan: flags.Plan = None,
    max_rows: flags.MaxRows = None,
    on_null_time: flags.OnNullTime = None,
    time_zone: flags.TimeZone = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON line per result, and one for the sources.")
    ] = False,
) -> None:
    """Show the first result rows, computed from the first rows of the sources; write nothing."""
    from watersmeet.cli.preview import preview_text

    overrides = _overrides(
        watermark_rule=watermark_rule,
        lateness=lateness,
        allowed_lateness=allowed_lateness,
        output_mode=output_mode,
        plan=plan,
        max_rows=max_rows,
        on_null_time=on_null_time,
        time_zone=time_zone,
    )
    preview_text(text_of(job), str(job), overrides, rows=rows, limit=limit, as_json=json)


def reset(
    job: flags.JobFile,
    checkpoint: flags.Checkpoint = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a job's checkpoint and the files of its file sinks, so that it starts from scratch."""
    from watersmeet.cli.reset import reset_text

    cleared = reset_text(
        text_of(job), str(job), _overrides(checkpoint=checkpoint), default_checkpoint(job), yes=yes
    )
    _exit(0 if cleared else DIFFERS)


def replay(
    case: Annotated[
        Path,
        typer.Argument(metavar="CASE.JSON", help="One case, or a list of them.", autocompletion=case_files),
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the results that the case expects.")
    ] = False,
    engine: Annotated[Engine, typer.Option(help="Run ticks in this process or on Spark.")] = Engine.LOCAL,
    partitions: Annotated[int, typer.Option(min=1, help="Join tasks per tick.")] = 1,
    trace: Annotated[
        bool, typer.Option("--trace", help="Print what each step did and why, as text.")
    ] = False,
) -> None:
    """Replay a conformance case step by step; print one JSON line per step."""
    from watersmeet.cli.replay import replay_file

    with ignore_closed_pipe() if check else nullcontext():
        status = replay_file(case, engine=engine.value, partitions=partitions, check=check, trace=trace)
    _exit(status)


def demo(
    query: Annotated[DemoQuery, typer.Option(help="The join to run.")] = DemoQuery.WEATHER,
    directory: Annotated[Path, typer.Option("--dir", help="Directory for data, state and results.")] = Path(
        ".demo"
    ),
    live: Annotated[
        bool | None, typer.Option("--live/--no-live", help="Show the live view (default: on a terminal).")
    ] = None,
) -> None:
    """Join New York's flights and weather of 2013 as two live streams, in about a minute."""
    from watersmeet.cli.demo import run_demo

    _exit(run_demo(query.value, directory, live))


for panel, commands in {
    START: (init, doctor, preview, explain, run, state_commands.stop),
    ASK: (why, diff, whatif),
    LOOK: (ui_command, report),
    OTHER: (demo, validate, schema, reset, replay, prepare),
}.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(state_commands.app, rich_help_panel=LOOK)


def _overrides(**given: object) -> dict[str, str]:
    """Return the given flags as settings."""
    return {
        name: "true" if value is True else str(value) for name, value in given.items() if value is not None
    }


def _exit(status: int) -> None:
    if status:
        raise typer.Exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; ``argv`` without the program's name."""
    words = insert_default_port(sys.argv[1:] if argv is None else argv)
    with notices_to(lambda notice: complain(f"note: {notice}")):
        words = flags_of_today(words)
        return _run_reporting_errors(lambda: _commands()(args=words, prog_name="watersmeet"))


@cache
def _commands() -> Callable[..., object]:
    """Build all commands from their functions, once, because some processes run several."""
    return typer.main.get_command(app)


def _run_reporting_errors(command: Callable[[], object]) -> int:
    """Run a command, print its errors to standard error, and return the exit status."""
    try:
        with guard_stdout():
            return _status(command)
    except OutputError as error:
        if error.closed:  # `watersmeet … | head`
            return 0
        complain(error)
        return USER_ERROR
    except WatersmeetError as error:
        complain(error)
        return USER_ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if _raised_by_ctrl_c(error):
            return INTERRUPTED
        if os.environ.get("WATERSMEET_TRACEBACK"):
            raise
        if (place := place_error(error)) is not None:
            complain(place)
            return USER_ERROR
        text = str(error).strip().splitlines()
        complain(f"watersmeet failed: {type(error).__name__}: {text[0] if text else ''}")
        complain("Hint: this should not happen; WATERSMEET_TRACEBACK=1 shows where")
        return BUG


def _raised_by_ctrl_c(error: BaseException | None) -> bool:
    """Return True if the error or one of its causes is a KeyboardInterrupt.

    Python 3.11 turns what is raised while a class sets its attributes (`__set_name__`) into a
    RuntimeError. This happens while libraries are loaded.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None


def _status(command: Callable[[], object]) -> int:
    try:
        command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else USER_ERROR
    return 0


def app_main() -> int:
    """Run the installed command; see `cli.start`."""
    return main()


if __name__ == "__main__":
    sys.exit(main())
