"""Check a job's sources before Java starts.

The checks cover paths, headers and columns of files, contents of files, options of generators, whether a
Kafka broker answers and has the topics, and whether databases and schema registries answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from watersmeet.errors import SeveralErrors, WatersmeetError
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.files.listing import list_special_files, special_note
from watersmeet.runtime.files.validation import find_file_problems, list_file_notes
from watersmeet.runtime.records.decoding import build_registry
from watersmeet.runtime.spark.preflight.servers import (
    WaitPolicy,
    check_database,
    check_topics,
    is_plain,
    list_database_servers,
    list_registry_notes,
    registry_problems,
)
from watersmeet.runtime.spark.sources import generator
from watersmeet.runtime.spark.sources.frames import check_files
from watersmeet.runtime.spark.sources.tables import check_table_files
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import local_path, path_of


def find_source_problems(plan: JobPlan, *, thorough: bool = False) -> list[WatersmeetError]:
    """Return the problems of the plan's sources and tables that this process can detect.

    Args:
        thorough: also read files, and contact Kafka brokers and databases.
    """
    problems: list[WatersmeetError] = []
    for source, table in _list_sources(plan):

        def inside(source: Source = source, table: bool = table) -> list[WatersmeetError]:
            wanted = thorough and source.traits.files
            return (
                [*find_file_problems(_describe_source(source, table), source, table=table)] if wanted else []
            )

        try:
            _check_source(source, table, thorough)
            problems += inside()
        except WatersmeetError as error:
            # What a file is says more than which columns it has not.
            several = error.errors if isinstance(error, SeveralErrors) else [error]
            problems += (inside() if error.code == "wrong-columns" else []) or several
        registry = build_registry(source) if source.traits.log else None
        if registry is not None:
            problems += registry_problems(source, registry, thorough=thorough)
    return problems


def list_source_notes(plan: JobPlan) -> list[str]:
    """List notes for the user about the sources.

    They include what `find_source_problems` cannot check.
    """
    words = []
    for source, table in _list_sources(plan):
        what = f'{"table" if table else "source"} "{source.name}"'
        if source.traits.log:
            if not is_plain(source.options):
                words.append(f"{what}: a broker answers; Spark checks its topics when the job runs")
            registry = build_registry(source)
            if registry is not None:
                words += [f"{what}: {note}" for note in list_registry_notes(source, registry)]
        elif source.traits.snapshot:
            answers = "a database answers; " if list_database_servers(source) else ""
            words.append(f"{what}: {answers}Spark checks the table when the job runs")
        elif source.traits.files and local_path(path_of(source.options)) is not None:
            words += list_file_notes(_describe_source(source, table), source)
        elif source.traits.files:
            words.append(
                f"{what}: {path_of(source.options)} is not a local path; Spark checks it when the job runs"
            )
    return words


def list_table_notes(plan: JobPlan) -> list[str]:
    """Return notices of FIFOs, sockets and devices among tables' files, which are not read.

    Notices about streams come while the job reads them.
    """
    tables = [source for source in plan.tables if source.traits.files]
    special = [(_describe_source(source, True), list_special_files(source)) for source in tables]
    return [special_note(what, paths) for what, paths in special if paths]


def _describe_source(source: Source, table: bool) -> str:
    return f'{"table" if table else "file source"} "{source.name}"'


def _list_sources(plan: JobPlan) -> Iterable[tuple[Source, bool]]:
    """Yield every source, and True if it is read as a table."""
    yield from ((source, False) for source in plan.sources)
    yield from ((source, True) for source in plan.tables)


def _check_source(source: Source, table: bool, thorough: bool) -> None:
    if source.traits.files:
        (check_table_files if table else check_files)(source)
    elif source.traits.own_rate:
        generator.check_options(source)
    elif source.traits.log and thorough:
        check_topics(source)
    elif source.traits.snapshot and thorough:
        check_database(source, WaitPolicy())
