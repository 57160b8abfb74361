"""Whether a job's first tick needs tasks of Spark's: known before there is a session, so that no worker is
started for nothing. It may be wrong: then workers start when they are first needed, or are not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice

from watersmeet.engine.driver.amount import MOST_THREADS, small_rows_in, threads_of_driver
from watersmeet.engine.spark.job.run_settings import asks_files_in_order
from watersmeet.engine.spark.tick.reading.by_tasks import few_rows
from watersmeet.engine.spark.tick.reading.plain_source import is_plain
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import FileReader, format_of, local_path, path_of, reader_in
from watersmeet.spec.options.lowered import lowered

MOST_LISTED = 1_000
"""Of the files of a directory, whose times of change are asked for before Java is."""


def needs_tasks(plan: JobPlan, run: Mapping[str, str]) -> bool:
    """Whether the driver cannot do the first tick itself, by the files that are there. ``run``: the settings
    of the run."""
    most = small_rows_in(run, threads_of_driver(MOST_THREADS))
    if most < 0 or reader_in(run) is FileReader.SPARK or asks_files_in_order(plan):
        return True
    if not all(map(is_plain, plan.sources)):
        return True
    try:
        files = [
            (format_of(source.options), file, os.path.getsize(file))
            for source in plan.sources
            for file in _first_files(source)
        ]
        return not files or few_rows(files, most) is None
    except OSError:
        return True


def _first_files(source: Source) -> list[str]:
    """Those of a directory that the first tick reads. Raises: OSError: it is none, or that is not known."""
    folder, options = local_path(path_of(source.options)), lowered(source.options)
    if "maxbytespertrigger" in options:
        raise OSError("by bytes")
    with os.scandir(folder) as entries:
        there = list(islice(entries, MOST_LISTED + 1))
    if len(there) > MOST_LISTED:
        raise OSError("too many to look at each")
    files = [entry for entry in there if entry.name[0] not in "._" and entry.is_file()]
    files.sort(key=lambda entry: entry.stat().st_mtime)
    return [entry.path for entry in files[: int(options.get("maxfilespertrigger", len(files)))]]
