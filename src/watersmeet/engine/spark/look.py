"""What can be known of a job's sources without starting Spark: paths, headers and columns of files, options
of generators, and whether a Kafka broker answers and has the topics."""

from __future__ import annotations

from collections.abc import Iterable

from watersmeet.engine.spark import generator
from watersmeet.engine.spark.sources import check_files
from watersmeet.engine.spark.tables import check_table_files
from watersmeet.engine.spark.topic_check import check_topics, is_plain
from watersmeet.errors import SeveralErrors, WatersmeetError
from watersmeet.plan.model import JobPlan
from watersmeet.spec.files import local_path, path_of
from watersmeet.spec.model import Source


def problems_of(plan: JobPlan, *, brokers: bool = False) -> list[WatersmeetError]:
    """What is wrong with the plan's sources and tables, as far as this process can see.

    Args:
        brokers: ask Kafka brokers, too.
    """
    found: list[WatersmeetError] = []
    for source, table in _all(plan):
        try:
            _look(source, table, brokers)
        except SeveralErrors as several:
            found += several.errors
        except WatersmeetError as error:
            found.append(error)
    return found


def not_looked_at(plan: JobPlan) -> list[str]:
    """What `problems_of` cannot see, in words."""
    words = []
    for source, table in _all(plan):
        what = f'{"table" if table else "source"} "{source.name}"'
        if source.connector == "kafka":
            if not is_plain(source):
                words.append(f"{what}: a broker answers; Spark looks for its topics when the job runs")
        elif source.connector == "jdbc":
            words.append(f"{what}: a database is asked by Spark alone, when the job runs")
        elif source.connector == "file" and local_path(path_of(source.options)) is None:
            words.append(
                f"{what}: {path_of(source.options)} is no local path, and is looked at by Spark alone"
            )
    return words


def _all(plan: JobPlan) -> Iterable[tuple[Source, bool]]:
    """Every source, and whether it is read as a table."""
    tables = {node.source.name: node.source for _, node in plan.lookups}
    yield from ((source, False) for source in plan.sources)
    yield from ((source, True) for source in tables.values())


def _look(source: Source, table: bool, brokers: bool) -> None:
    if source.connector == "file":
        (check_table_files if table else check_files)(source)
    elif source.connector == "generator":
        generator.check(source)
    elif source.connector == "kafka" and brokers:
        check_topics(source)
