"""Read a job's file for commands: its text, its job, and the default location of its state.

A file whose name ends in .toml is a pipeline; any other, and standard input, is SQL.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from watersmeet.deprecated_names import without_notices
from watersmeet.errors import SpecError, near_names
from watersmeet.regular_files import read_text as read_regular

if TYPE_CHECKING:
    from watersmeet.plan.model.job import JobPlan
    from watersmeet.spec.model import Column, Job, Source

    Infer = Callable[[Source, Sequence[str]], Sequence[Column]]

_PIPELINE = ".toml"


def is_pipeline(source_name: str | None) -> bool:
    return source_name is not None and source_name.lower().endswith(_PIPELINE)


def job_in(
    text: str,
    source_name: str | None,
    overrides: Mapping[str, str] | None = None,
    infer: Infer | None = None,
) -> Job:
    """Parse the job in a file's text.

    Raises:
        WatersmeetError: All problems of the text.
    """
    if is_pipeline(source_name):
        from watersmeet.pipelines.file import job_of

        return job_of(text, str(source_name), overrides or {}, infer)[1].description
    from watersmeet.parser.statements import parse_job

    return parse_job(text, source_name=source_name, overrides=overrides, infer=infer)


def settings_in(text: str, source_name: str | None, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """Parse the run settings in a file's text.

    Ignores problems of the SQL; parsing the job reports them.

    Raises:
        WatersmeetError: Problems of a pipeline, which names the location of its state.
    """
    with without_notices():
        if is_pipeline(source_name):
            from watersmeet.pipelines import file

            return file.settings_in(text, str(source_name), overrides)
        from watersmeet.parser.statements import run_settings

        return run_settings(text, overrides)


def default_checkpoint(job: Path) -> Path:
    return Path(".watersmeet") / ("stdin" if str(job) == "-" else job.stem)


def read_text(path: Path) -> str:
    """Read a file's text without a byte order mark.

    Raises:
        SpecError: The file cannot be read.
    """
    try:
        return read_regular(path, "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SpecError(
            f'cannot read "{path}": {reason}', code="file-not-readable", hint=_suggest_job_files(path)
        ) from error


def _suggest_job_files(path: Path) -> str:
    """Return a hint with the job files in the directory of a path."""
    try:
        names = [one.name for one in path.parent.iterdir() if one.suffix in (".sql", ".toml")]
    except OSError:
        names = []
    near = near_names(path.name, sorted(names))
    return "name the SQL or TOML file of a job" + (f"; {near}" if near else "")


def text_of(job: Path) -> str:
    """Return the text of a job's file, or of standard input for "-".

    Raises:
        SpecError: the text cannot be read.
    """
    if str(job) != "-":
        return read_text(job)
    if sys.stdin is None:
        raise SpecError("there is no job: standard input is closed", code="not-readable")
    return sys.stdin.read()


def first_message(text: str, source_name: str | None, overrides: Mapping[str, str]) -> str | None:
    """Return the message that a run prints first; None if there is none.

    Raises:
        WatersmeetError: As `job_in`.
    """
    if not is_pipeline(source_name):
        return None
    from watersmeet.pipelines.pipeline import read_pipeline
    from watersmeet.pipelines.run_options import first_line, run_settings_of

    pipeline, places = read_pipeline(text, str(source_name))
    return first_line(pipeline, run_settings_of(pipeline, overrides, places.of))


def warnings_of(text: str, source_name: str | None, plan: JobPlan) -> list[str]:
    """Return the plan's warnings that the user should see before the run."""
    if not is_pipeline(source_name):
        return plan.warnings
    from watersmeet.pipelines import rules
    from watersmeet.pipelines.pipeline import read_pipeline

    return rules.warnings_of(read_pipeline(text, str(source_name))[0], plan)
