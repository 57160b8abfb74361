"""A streaming DataFrame that the user made, as a source: its columns, where a tick that is repeated gets the
same rows of it.

What Spark keeps for a query of its own would not be what our state is made of, so a frame may filter, project
and call functions, but not aggregate, drop duplicates, or join. Of what its rows are depends on more than the
source (random numbers, tables that are read beside), they would be others when a tick is repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.engine.spark.errors import readable
from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.engine.spark.text import quoted
from watersmeet.errors import EngineError, SpecError, near_names, raise_all
from watersmeet.names import PARTITION
from watersmeet.plan.model.job import JobPlan
from watersmeet.spec.connectors import DATAFRAME
from watersmeet.spec.model import Source
from watersmeet.spec.options.spark_source import format_of, reader_options

_KEEP_STATE = {
    "Aggregate": "aggregates",
    "Distinct": "drops duplicates",
    "Deduplicate": "drops duplicates",
    "DeduplicateWithinWatermark": "drops duplicates",
    "Join": "joins",
    "AsOfJoin": "joins",
    "FlatMapGroupsWithState": "keeps state of groups",
    "FlatMapGroupsInPandasWithState": "keeps state of groups",
    "TransformWithState": "keeps state of groups",
    "TransformWithStateInPySpark": "keeps state of groups",
    "TransformWithStateInPandas": "keeps state of groups",
    "GlobalLimit": "takes the first rows",
    "Offset": "passes over the first rows",
    "Sort": "sorts",
    "Sample": "draws rows by chance",
}
"""Nodes of Spark's plans whose rows depend on other rows than their own, and what they do, in words."""

_INSTEAD = "do that of the relation: stream(df, …).join(…), .group_by(…), .distinct()"
_FORGETFUL = ("socket", "memory")
"""Sources of Spark's that do not have the rows of a batch any more when it is repeated."""
_KEPT = re.compile(r"(kafka|delta|iceberg|rate|rate-micro-batch|FileSource\[.*|DeltaSource\[.*)", re.DOTALL)
"""Sources that have them."""


def notes_of_given(plan: JobPlan, given: Mapping[str, DataFrame]) -> list[str]:
    """What a person should know of the frames of a plan's sources."""
    names = {
        source.name: str(leaf.sourceName())
        for source in plan.sources
        if source.connector == DATAFRAME
        for leaf in _streams(given[source.name])
    }
    return [
        f'"{source}" reads {name}: a tick that is repeated after a crash is right only if that gives the rows'
        " of a batch again"
        for source, name in names.items()
        if not _KEPT.fullmatch(name)
    ]


def problems_of_given(plan: JobPlan, given: Mapping[str, DataFrame]) -> list[SpecError]:
    """What is wrong with the frames of a plan's sources: rows that may be others when they are read again."""
    sources = [source for source in plan.sources if source.connector == DATAFRAME]
    missing = [source.name for source in sources if source.name not in given]
    problems = [
        SpecError(
            f'"{name}" is a DataFrame, and none is given',
            code="not-supported",
            hint="run the job where the DataFrame is made",
        )
        for name in missing
    ]
    there = [source for source in sources if source.name in given]
    problems += [problem for source in there for problem in _problems(source, given[source.name])]
    return problems + list(_shared(there, given))


def _shared(sources: Sequence[Source], given: Mapping[str, DataFrame]) -> Iterator[SpecError]:
    """Frames that one source of Spark's feeds, which has its offsets once."""
    seen: list[tuple[str, Any]] = []
    for source in sources:
        for leaf in _streams(given[source.name]):
            other = next((name for name, before in seen if before.equals(leaf)), None)
            if other is not None:
                yield SpecError(
                    f'the DataFrames of "{other}" and "{source.name}" are made of one, which is read once',
                    code="not-supported",
                    hint="load it once for each of them, or make one stream of it and filter that: .where(…)",
                )
            seen.append((source.name, leaf))


def _streams(frame: DataFrame) -> list[Any]:
    plan: Any = frame._jdf.queryExecution().analyzed()
    return [node for node in _nodes(plan) if not node.children().size() and node.isStreaming()]


def by_format(spark: SparkSession, source: Source) -> DataFrame:
    """The streaming frame of a source that one of Spark's data sources reads; see `sources`.

    Raises:
        EngineError: there is no such data source, or it has other columns.
        SpecError: it does not have the rows of a batch that is repeated.
    """
    reader = spark.readStream.format(format_of(source.options)).options(**reader_options(source.options))
    try:
        frame = reader.load()
    except AnalysisException as error:
        raise EngineError(
            f'"{source.name}": {readable(error)}',
            code="not-read",
            hint="'format' names one of Spark's data sources, whose jar is there (--jars) or that the session"
            " has; the other options are its own",
        ) from None
    raise_all(list(_problems(source, frame)))
    _check_columns(spark, source, frame)
    return read(spark, source, frame)


def _check_columns(spark: SparkSession, source: Source, frame: DataFrame) -> None:
    """That it has the declared columns, of their types."""
    there = {field.name.lower(): field.dataType.simpleString() for field in frame.schema.fields}
    nulls = [f"CAST(NULL AS {column.type}) AS {quoted(column.name)}" for column in source.columns]
    wanted = spark.range(0).selectExpr(*nulls)
    problems = []
    for field in wanted.schema.fields:
        type_ = there.get(field.name.lower())
        if type_ is None:
            hint = near_names(field.name, there)
            problems.append(
                EngineError(f'"{source.name}" has no column "{field.name}"', code="wrong-columns", hint=hint)
            )
        elif type_ != field.dataType.simpleString():
            problems.append(
                EngineError(
                    f'"{source.name}": column "{field.name}" is {type_.upper()}',
                    code="wrong-columns",
                    hint="declare it so, and cast it in a view",
                )
            )
    raise_all(problems)


def read(spark: SparkSession, source: Source, frame: DataFrame) -> DataFrame:
    """The streaming frame of ``source`` in the session ``spark``; see `sources`."""
    null = F.lit(None).cast("string")
    chosen = [F.col(quoted(column.name)) for column in source.columns]
    return _in_session(spark, frame).select(*chosen, null.alias(PARTITION), null.alias(BROKEN))


def _in_session(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The same rows, asked for in another session of the same application."""
    jvm: Any = spark._jvm
    datasets = getattr(jvm.org.apache.spark.sql.classic, "Dataset$")
    plan: Any = frame._jdf.queryExecution().analyzed()  # means what it meant where it was made
    rows = getattr(datasets, "MODULE$").ofRows(spark._jsparkSession, plan)
    return DataFrame(rows, spark)


def _problems(source: Source, frame: DataFrame) -> Iterator[SpecError]:
    what = f'the DataFrame of "{source.name}"'
    plan: Any = frame._jdf.queryExecution().analyzed()
    nodes = list(_nodes(plan))
    leaves = [node for node in nodes if not node.children().size()]
    streams = [leaf for leaf in leaves if leaf.isStreaming()]
    if len(streams) != 1:
        yield SpecError(
            f"{what} has {len(streams)} streaming sources; it needs one",
            code="not-supported",
            hint="make a stream of each, and put them together: a.union_all(b)",
        )
    if len(leaves) > len(streams) or any(node.subqueries().size() for node in nodes):
        yield SpecError(
            f"{what} reads a table beside its stream, whose rows may be others when a tick is repeated",
            code="not-supported",
            hint="declare it as a table, and join the stream with that: JOIN … FOR SYSTEM_TIME AS OF",
        )
    said = {_KEEP_STATE[name] for node in nodes if (name := node.nodeName()) in _KEEP_STATE}
    for does in sorted(said):
        yield SpecError(f"{what} {does}, for which Spark would keep state beside the job's",
                        code="not-supported", hint=_INSTEAD)  # fmt: skip
    unsure = [node for node in nodes if not _is_deterministic(node)]
    if unsure:
        yield SpecError(
            f"{what} has values that are others when a tick is repeated: {unsure[0].simpleString(10)}",
            code="not-supported",
            hint="leave out rand(), uuid(), monotonically_increasing_id() and the like",
        )
    for name in [str(leaf.sourceName()) for leaf in streams]:
        if name in _FORGETFUL:
            yield SpecError(
                f"{what} reads a {name} source, which does not have the rows of a tick that is repeated",
                code="not-supported",
                hint="put its rows into files or Kafka first",
            )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number))


def _is_deterministic(node: Any) -> bool:
    expressions = node.expressions()
    return all(expressions.apply(number).deterministic() for number in range(expressions.size()))
