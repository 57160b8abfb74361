"""A file with a pipeline, as commands are given it: its job, its settings, and what is said of it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from watersmeet.pipelines.around import first_line, run_settings_of
from watersmeet.pipelines.build import build
from watersmeet.pipelines.limits import warnings_of
from watersmeet.pipelines.pipeline import Pipeline, read_pipeline

if TYPE_CHECKING:
    from watersmeet.front.ddl.create import Infer
    from watersmeet.pipelines.places import Places
    from watersmeet.plan.model.job import JobPlan
    from watersmeet.relations.job import Job


def _read(text: str, source_name: str) -> tuple[Pipeline, Places, list[str]]:
    """Return the pipeline, where its keys stand, and notices of earlier names in it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FutureWarning)
        pipeline, places = read_pipeline(text, source_name)
    return pipeline, places, list(dict.fromkeys(str(one.message) for one in caught))


def job_of(
    text: str, source_name: str, overrides: Mapping[str, str], infer: Infer | None
) -> tuple[Pipeline, Job]:
    """The pipeline, and its job. Raises: WatersmeetError, with file, line and key."""
    pipeline, places, _ = _read(text, source_name)
    return pipeline, build(pipeline, place=places.of, infer=infer, overrides=overrides)


def settings_in(text: str, source_name: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """The settings of its run. Raises: WatersmeetError, if it cannot be read: where its state is would be
    guessed, and another job's be taken for it."""
    pipeline, places, _ = _read(text, source_name)
    return run_settings_of(pipeline, overrides, places.of)


def first_line_of(text: str, source_name: str, overrides: Mapping[str, str]) -> str | None:
    """What is said first of all. Raises: as `job_of`."""
    pipeline, places, _ = _read(text, source_name)
    return first_line(pipeline, run_settings_of(pipeline, overrides, places.of))


def warnings_in(text: str, source_name: str, plan: JobPlan) -> list[str]:
    """What a person should know before it runs, by its plan. Raises: as `job_of`."""
    pipeline, _, notices = _read(text, source_name)
    return [*notices, *warnings_of(pipeline, plan)]
