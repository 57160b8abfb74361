"""Whether a job's first tick needs tasks of Spark's: known before there is a session, so that no worker is
started for nothing. It may be wrong: then workers start when they are first needed, or are not. Of files that
are still to come nothing is known; as a rule they come a few at a time."""

from __future__ import annotations

import os
from collections.abc import Mapping

from watersmeet.engine.driver.amount import MOST_THREADS, small_rows_in, threads_of_driver
from watersmeet.engine.spark.job.run_settings import asks_files_in_order
from watersmeet.engine.spark.tick.reading.by_tasks import few_rows
from watersmeet.engine.spark.tick.reading.plain_source import is_plain
from watersmeet.engine.spark.tick.reading.readers import first_files, seems_plain
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.options.files import FileReader, format_of, reader_in


def needs_tasks(plan: JobPlan, run: Mapping[str, str]) -> bool:
    """Whether the driver cannot do the first tick itself, by the files that are there. ``run``: the settings
    of the run."""
    most = small_rows_in(run, threads_of_driver(MOST_THREADS))
    if most < 0 or reader_in(run) is FileReader.SPARK or asks_files_in_order(plan):
        return True
    if plan.tables:  # which are read as a whole, by tasks
        return True
    if not all(map(is_plain, plan.sources)):
        return True
    try:
        said = [
            (format_of(source.options), file, os.path.getsize(file))
            for source in plan.sources
            for file in first_files(source)
        ]
        if few_rows(said, most) is None:
            return True
    except OSError:
        return True
    return not all(map(seems_plain, plan.sources))
