"""Batch answers made by Spark, over the rows that a job has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from watersmeet.cli.diff.source_rows import SourceFiles
from watersmeet.diff.bags import AS_IT_IS, quote_identifier, text, types_of
from watersmeet.diff.dialect import SparkSql
from watersmeet.diff.statement import AT, PART
from watersmeet.errors import SpecError, raise_all
from watersmeet.spec.model import Job, Sink


def check_servers(
    read: Mapping[str, SourceFiles], sinks: Sequence[Sink], settings: Mapping[str, str]
) -> None:
    """Check before Java starts that the Kafka brokers of the compared sources and sinks answer.

    Args:
        sinks: the sinks whose topics are read.
        settings: the job's settings, for Spark.

    Raises:
        WatersmeetError: brokers do not answer; the error lists all of them.
    """
    from watersmeet.runtime.spark.preflight.run import collect_errors, uses_socks_proxy
    from watersmeet.runtime.spark.preflight.servers import WaitPolicy, check_brokers, check_topics

    if uses_socks_proxy(settings):
        return
    sources = [of.source for of in read.values() if of.ends]
    checks = [
        *(partial(check_topics, source, WaitPolicy()) for source in sources),
        *(partial(check_brokers, sink, WaitPolicy(), 0.0) for sink in sinks if sink.traits.log),
    ]
    raise_all([problem for check in checks for problem in collect_errors(check)])


class SparkAnswers:
    """Spark session with the sources of a plan as views.

    Sources whose rows can be retracted have no view: only DuckDB computes their contents.
    """

    def __init__(self, job: Job, read: Mapping[str, SourceFiles], settings: Mapping[str, str]) -> None:
        from watersmeet.runtime.spark.batch import Batch
        from watersmeet.runtime.spark.job import session

        kafka = any(of.ends for of in read.values())
        self._spark = session.start(
            session.build_session_settings(
                master=settings.get("master"),
                conf=dict(job.settings),
                jars=settings.get("jars"),
                kafka=kafka,
                time_zone=job.options.time_zone,
            )
        )
        batch = Batch(self._spark, PART, AT)
        for of in read.values():
            if of.source.changes or of.source.compared:
                continue
            if of.source.traits.files:
                batch.files(of.source, of.files, of.urls, of.asked)
            elif of.named:
                raise SpecError(
                    f"--input {of.source.name}: only DuckDB reads files of a {of.source.connector} source,"
                    " and this query needs Spark",
                    code="not-compared",
                    hint="remove --input, or write the files as Parquet with the declared columns",
                )
            else:
                batch.topics(of.source, of.ends, of.asked)
        self._batch = batch
        self.dialect = SparkSql(batch.tables)

    def answer(self, db: Any, sql: str, folder: str) -> str:
        """Run a statement on Spark and return its rows as a DuckDB relation, with times in UTC.

        Args:
            folder: Folder in which the rows are stored.
        """
        self._batch.write(sql, folder)
        files = f"read_parquet({text(f'{folder}/*.parquet')}, {AS_IT_IS})"
        columns = [
            f"timezone('UTC', {quote_identifier(name)}) AS {quote_identifier(name)}"
            if kind == "TIMESTAMP WITH TIME ZONE"
            else quote_identifier(name)
            for name, kind in types_of(db, files).items()
        ]
        return f"(SELECT {', '.join(columns)} FROM {files} r)"
