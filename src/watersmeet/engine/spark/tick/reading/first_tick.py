"""Whether a job's first tick needs tasks of Spark's: known before there is a session, so that no worker is
started for nothing. It may be wrong: then workers start when they are first needed, or are not."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from watersmeet.engine.driver.amount import MOST_THREADS, small_rows_in, threads_of_driver
from watersmeet.engine.spark.job.run_settings import asks_files_in_order
from watersmeet.engine.spark.tick.reading.by_tasks import few_rows
from watersmeet.engine.spark.tick.reading.plain_source import (
    begins_plain,
    columns_in,
    first_files,
    is_plain,
    reader_of,
)
from watersmeet.errors import EngineError
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import FileReader, format_of, reader_in
from watersmeet.spec.time_zones import UTC


def needs_tasks(plan: JobPlan, run: Mapping[str, str]) -> bool:
    """Whether the driver cannot do the first tick itself, by the files that are there. ``run``: the settings
    of the run."""
    most = small_rows_in(run, threads_of_driver(MOST_THREADS))
    if most < 0 or reader_in(run) is FileReader.SPARK or asks_files_in_order(plan):
        return True
    if not all(map(is_plain, plan.sources)):
        return True
    try:
        files = {source.name: first_files(source) for source in plan.sources}
        said = [
            (format_of(source.options), file, os.path.getsize(file))
            for source in plan.sources
            for file in files[source.name]
        ]
        if not said or few_rows(said, most) is None:
            return True
        return not all(_begins_plain(source, files[source.name]) for source in plan.sources)
    except (OSError, EngineError):
        return True


def _begins_plain(source: Source, files: Sequence[str]) -> bool:
    reader = reader_of(source, lambda: columns_in(source, files[0]) if files else None, UTC)
    return reader is not None and begins_plain(source, reader, files)
