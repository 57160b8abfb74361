"""A file with a pipeline, as commands are given it: its job and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from watersmeet.pipelines.build import build
from watersmeet.pipelines.pipeline import Pipeline, read_pipeline
from watersmeet.pipelines.run_options import run_settings_of

if TYPE_CHECKING:
    from watersmeet.parser.ddl.create import Infer
    from watersmeet.relations.job import Job


def job_of(
    text: str, source_name: str, overrides: Mapping[str, str], infer: Infer | None
) -> tuple[Pipeline, Job]:
    """Build the pipeline and its job.

    Raises:
        WatersmeetError: the text is wrong; the error has file, line and key.
    """
    pipeline, places = read_pipeline(text, source_name)
    return pipeline, build(pipeline, place=places.of, infer=infer, overrides=overrides)


def settings_in(text: str, source_name: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """Read the settings of the pipeline's run.

    Raises:
        WatersmeetError: the text cannot be read. A guessed place of its state could be another job's.
    """
    pipeline, places = read_pipeline(text, source_name)
    return run_settings_of(pipeline, overrides, places.of)
