"""Whether rows of a job pass through Java, as far as its plan says, and of text its first file: where none
do, Java plans and schedules, and no more.

A guess that is wrong costs time alone: files that turn out to be for Spark to read are read by less
optimised code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from watersmeet.engine.spark.job.run_settings import asks_files_in_order
from watersmeet.engine.spark.tick.reading.plain_source import SETTINGS, is_plain
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import GroupedPlan
from watersmeet.plan.model.sides import BranchPlan
from watersmeet.spec.model import Expr, OutputMode, Sink, Source
from watersmeet.spec.options.files import OURS, FileReader, format_of, reader_in
from watersmeet.spec.options.lowered import lowered
from watersmeet.spec.options.spark_settings import says_how


def rows_pass_java(plan: JobPlan, run: Mapping[str, str], conf: Iterable[str]) -> bool:
    """``run``: the settings of the run; ``conf``: names of those of Spark."""
    by_tasks = (
        reader_in(run) is FileReader.AUTO
        and not says_how(conf, *SETTINGS)
        and all(is_plain(source) and not _is_nested(source) for source in plan.sources)
        and not plan.tables
        and not asks_files_in_order(plan)
        and all(query.is_index or _is_written_by_tasks(query.sink) for query in plan.queries)
    )
    return (
        not by_tasks
        or not all(_is_of_columns(query) for query in plan.queries)
        or not all(map(_seems_plain, plan.sources))
    )


def _is_written_by_tasks(sink: Sink) -> bool:
    if sink.traits.parquet:
        return True
    return (
        sink.traits.files and format_of(sink.options) == "parquet" and set(lowered(sink.options)) <= {*OURS}
    )


def _is_nested(source: Source) -> bool:
    return any(column.type.is_nested for column in source.columns)


def _seems_plain(source: Source) -> bool:
    from watersmeet.engine.spark.tick.reading.readers import seems_plain  # takes long to load, and Java waits

    return format_of(source.options) == "parquet" or seems_plain(source)


def _is_of_columns(query: QueryPlan) -> bool:
    """Whether tasks compute all that it asks of rows, beside its conditions."""
    if query.where is not None or any(query.every(GroupedPlan)):
        return False
    if query.options.output_mode is not OutputMode.APPEND:
        return False
    read = [branch for side in query.sides for _, branch in side.ingested]
    computed = [output.expr for output in query.outputs if not isinstance(output.expr, exp.Column)]
    return all(_is_read(branch) for branch in read) and all(_is_exact(query, expr) for expr in computed)


def _is_exact(query: QueryPlan, expr: Expr) -> bool:
    from watersmeet.engine.spark.tick.plain import exact_output  # takes long to load, and Java waits

    return exact_output(query, expr) is not None


def _is_read(branch: BranchPlan) -> bool:
    return branch.flag is None and all(isinstance(expr, exp.Column) for _, expr in branch.columns)
