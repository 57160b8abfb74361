"""Decide by declaration whether tasks or Spark's Java read a source. Imports nothing heavy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from sqlglot import exp

from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import GroupedPlan
from watersmeet.plan.model.sides import BranchPlan
from watersmeet.runtime.coordinator.node_cost import MAX_THREADS, count_driver_threads, inline_row_limit
from watersmeet.runtime.spark.job.run_identity import needs_file_order
from watersmeet.runtime.spark.tick.reading.arrow_ingest import (
    count_few_rows,
    is_likely_readable,
    list_first_files,
)
from watersmeet.runtime.spark.tick.reading.arrow_sources import SETTINGS, is_arrow_readable
from watersmeet.spec.model import Expr, OutputMode, Sink, Source
from watersmeet.spec.options.files import OURS, FileReader, format_of, reader_in
from watersmeet.spec.options.spark import says_how
from watersmeet.spec.options.values import lower_names

# Whether rows of a job pass through Java, as far as its plan says, and of text its first file: where none
# do, Java plans and schedules, and no more.
#
# A guess that is wrong costs time alone: files that turn out to be for Spark to read are read by less
# optimised code.


def do_rows_pass_java(plan: JobPlan, run: Mapping[str, str], conf: Iterable[str]) -> bool:
    """Return True if rows of the job pass through Java.

    Args:
        run: the settings of the run.
        conf: the names of Spark's settings.
    """
    by_tasks = (
        reader_in(run) is FileReader.AUTO
        and not says_how(conf, *SETTINGS)
        and all(is_arrow_readable(source) and not _is_nested(source) for source in plan.sources)
        and not plan.tables
        and not needs_file_order(plan)
        and all(query.is_index or _is_written_by_tasks(query.sink) for query in plan.queries)
    )
    return (
        not by_tasks
        or not all(_is_computed_by_tasks(query) for query in plan.queries)
        or not all(map(_seems_plain, plan.sources))
    )


def _is_written_by_tasks(sink: Sink) -> bool:
    if sink.traits.parquet:
        return True
    return (
        sink.traits.files
        and format_of(sink.options) == "parquet"
        and set(lower_names(sink.options)) <= {*OURS}
    )


def _is_nested(source: Source) -> bool:
    return any(column.type.is_nested for column in source.columns)


def _seems_plain(source: Source) -> bool:
    from watersmeet.runtime.spark.tick.reading.arrow_ingest import is_likely_readable

    return format_of(source.options) == "parquet" or is_likely_readable(source)


def _is_computed_by_tasks(query: QueryPlan) -> bool:
    """Return True if tasks compute everything that the query needs of rows, except conditions."""
    if query.where is not None or any(query.every(GroupedPlan)):
        return False
    if query.options.output_mode is not OutputMode.APPEND:
        return False
    read = [branch for side in query.sides for _, branch in side.ingested]
    computed = [output.expr for output in query.outputs if not isinstance(output.expr, exp.Column)]
    return all(_is_read(branch) for branch in read) and all(_is_exact(query, expr) for expr in computed)


def _is_exact(query: QueryPlan, expr: Expr) -> bool:
    from watersmeet.runtime.spark.tick.arrow_output import (
        compile_output_expression,  # takes long to load, and Java waits
    )

    return compile_output_expression(query, expr) is not None


def _is_read(branch: BranchPlan) -> bool:
    return branch.flag is None and all(isinstance(expr, exp.Column) for _, expr in branch.columns)


# Whether a job's first tick needs tasks of Spark's: known before there is a session, so that no worker is
# started for nothing. It may be wrong: then workers start when they are first needed, or are not. Of
# files that are still to come nothing is known; as a rule they come a few at a time.


def needs_tasks(plan: JobPlan, run: Mapping[str, str]) -> bool:
    """Return True if the driver cannot run the first tick inline, judging by the existing files.

    Args:
        run: the settings of the run.
    """
    most = inline_row_limit(run, count_driver_threads(MAX_THREADS))
    if most < 0 or reader_in(run) is FileReader.SPARK or needs_file_order(plan):
        return True
    if plan.tables:  # which are read as a whole, by tasks
        return True
    if not all(map(is_arrow_readable, plan.sources)):
        return True
    try:
        said = [
            (format_of(source.options), file, os.path.getsize(file))
            for source in plan.sources
            for file in list_first_files(source)
        ]
        if count_few_rows(said, most) is None:
            return True
    except OSError:
        return True
    return not all(map(is_likely_readable, plan.sources))
