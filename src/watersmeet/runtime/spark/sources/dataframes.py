"""A streaming DataFrame that the user made, as a source whose rows a repeated tick reads again.

State that Spark keeps for a query of its own would not match the engine's state, so a frame may filter,
project and call functions, but not aggregate, drop duplicates, or join. If its rows depend on more than the
source (random numbers, tables that it reads, too), a repeated tick would read other rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from watersmeet.errors import EngineError, SpecError, raise_all
from watersmeet.names import PARTITION
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.spark import lazy_functions as F
from watersmeet.runtime.spark.errors import innermost_message
from watersmeet.runtime.spark.sources.columns import BROKEN, check_columns, check_types
from watersmeet.runtime.spark.sql_text import quote_name
from watersmeet.spec.connectors import DATAFRAME, SPARK
from watersmeet.spec.model import Source
from watersmeet.spec.options.spark import format_of, own_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    "Offset": "skips the first rows",
    "Sort": "sorts",
    "Sample": "samples rows",
}
"""Nodes of Spark's plans whose rows depend on other rows than their own, and what they do, in words."""

_RELATION_HINT = "apply that to the relation instead: stream(df, …).join(…), .group_by(…), .distinct()"
Maker = Callable[[], "DataFrame"]
"""Makes a frame that has an end, in a session of the user's."""

_UNREPEATABLE_SOURCES = ("socket", "memory")
"""Sources of Spark's that do not have the rows of a batch any more when it is repeated."""
_REPEATABLE_SOURCES = re.compile(
    r"(kafka|delta|iceberg|rate|rate-micro-batch|FileSource\[.*|DeltaSource\[.*)", re.DOTALL
)
"""Sources that have them."""
_REPEATABLE_FORMATS = {
    "delta",
    "iceberg",
    "rate",
    "rate-micro-batch",
    "orc",
    "text",
    "avro",
    "xml",
    "binaryfile",
}
"""The same, by the formats of their readers that have no connector of ours."""

_SKIPPED_DELETES_NOTE = "rows that are deleted before the job reads them are skipped silently"
_SILENT: Mapping[tuple[str, str], str] = {
    ("failondataloss", "false"): _SKIPPED_DELETES_NOTE,
    ("ignoremissingfiles", "true"): _SKIPPED_DELETES_NOTE,
    ("ignorecorruptfiles", "true"): "unreadable files are skipped silently",
    ("ignorechanges", "true"): "rows of rewritten files are read again",
    ("ignoredeletes", "true"): "deleted rows stay in the result",
    ("skipchangecommits", "true"): "commits that change rows are skipped silently",
    ("mode", "dropmalformed"): "broken records are dropped and not counted",
    ("cleansource", "delete"): "files are deleted after reading, so a repeated tick cannot read them again",
    ("cleansource", "archive"): "files are moved after reading, so a repeated tick cannot read them again",
}
"""Options of Spark's readers by which rows are missing, or too many, without a word; and how."""


@dataclass(frozen=True)
class FrameFindings:
    """Problems of the DataFrames of a plan's sources, and notes about them for the user."""

    problems: Sequence[SpecError]
    notes: Sequence[str]


def inspect_frames(plan: JobPlan, given: Mapping[str, DataFrame]) -> FrameFindings:
    """Inspect the frames of a plan's sources for rows that may change or be lost.

    Rows may differ when they are read again, or be lost without notice. Each frame is inspected once. Sources
    that Spark's own data sources read are inspected, too, as far as their options tell.
    """
    problems: list[SpecError] = []
    notes = [
        note for source in plan.sources if source.connector == SPARK for note in _list_option_notes(source)
    ]
    seen: list[tuple[str, Any]] = []
    for source in plan.sources:
        if source.connector != DATAFRAME:
            continue
        if source.name not in given:
            problems.append(
                SpecError(
                    f'"{source.name}" is a DataFrame of the Python program that defines the job',
                    code="not-supported",
                    hint="run the job in the Python program that creates the DataFrame",
                )
            )
            continue
        nodes = list(_list_nodes(_plan_of(given[source.name])))
        problems += _find_problems(source, nodes)
        for leaf in _streaming_leaves(nodes):
            other = next((name for name, before in seen if before.equals(leaf)), None)
            if other is not None:
                problems.append(_shared_source_error(other, source.name))
            seen.append((source.name, leaf))
            name = str(leaf.sourceName())
            notes += _replay_notes(
                source, name, _options(given[source.name], leaf), kept=_REPEATABLE_SOURCES.fullmatch(name)
            )
    return FrameFindings(problems, notes)


def _list_option_notes(source: Source) -> list[str]:
    """List notes on the options of a source that one of Spark's data sources reads."""
    name = format_of(source.options)
    return _replay_notes(source, name, own_options(source.options), kept=name.lower() in _REPEATABLE_FORMATS)


def _replay_notes(source: Source, name: str, options: Mapping[str, str], *, kept: object) -> list[str]:
    notes = []
    if not kept:
        notes.append(
            f'"{source.name}" reads {name}: results after a crash are correct only if this source can'
            " read the rows of a batch again"
        )
    for key, value in options.items():
        how = _SILENT.get((key.lower(), str(value).strip().lower()))
        if how is not None:
            notes.append(f"\"{source.name}\" reads with '{key}' = '{value}': {how}")
    return notes


def _options(frame: DataFrame, leaf: Any) -> dict[str, str]:
    """Return the options of a stream's reader; empty where Spark does not expose them."""
    kind, jvm = str(leaf.getClass().getSimpleName()), cast(Any, frame.sparkSession._jvm)
    if kind == "StreamingRelation":
        return dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(leaf.dataSource().options()))
    return dict(leaf.extraOptions().asCaseSensitiveMap()) if kind == "StreamingRelationV2" else {}


def _shared_source_error(one: str, other: str) -> SpecError:
    """Build the error for DataFrames that read the same Spark source.

    Spark tracks the offsets of a source only once.
    """
    return SpecError(
        f'the DataFrames of "{one}" and "{other}" read the same source DataFrame, which Spark reads once',
        code="not-supported",
        hint="load the source once for each of them, or use one stream and filter it: .where(…)",
    )


def read_by_format(spark: SparkSession, source: Source) -> DataFrame:
    """Return the streaming frame of a source that a Spark data source reads; see `sources`.

    Raises:
        EngineError: there is no such data source, or it has other columns.
        SpecError: the data source cannot repeat the rows of a batch.
    """
    from pyspark.errors import AnalysisException

    reader = spark.readStream.format(format_of(source.options)).options(**own_options(source.options))
    try:
        frame = reader.load()
    except AnalysisException as error:
        raise EngineError(
            f'"{source.name}": {innermost_message(error)}',
            code="not-read",
            hint="set 'format' to a data source of Spark, add its jar (--jars), and check the other"
            " options, which go to that data source",
        ) from None
    return read_checked(spark, source, frame)


def read_checked(spark: SparkSession, source: Source, frame: DataFrame) -> DataFrame:
    """Return the streaming frame of ``source`` if ``frame`` has its columns and can repeat its rows.

    Raises:
        EngineError: the frame has other columns.
        SpecError: it cannot repeat the rows of a batch.
    """
    raise_all(list(_find_problems(source, list(_list_nodes(_plan_of(frame))))))
    what = f'source "{source.name}"'
    check_columns(what, source, frame.columns, "the data source has")
    check_types(spark, what, source, frame)
    return read(spark, source, frame)


def read(spark: SparkSession, source: Source, frame: DataFrame) -> DataFrame:
    """Return the streaming frame of ``source`` in the session ``spark``; see `sources`."""
    null = F.lit(None).cast("string")
    chosen = [F.col(quote_name(column.name)) for column in source.columns]
    return move_to_session(spark, frame).select(*chosen, null.alias(PARTITION), null.alias(BROKEN))


def move_to_session(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """Return a frame with the same rows in another session of the same application."""
    jvm: Any = spark._jvm
    datasets = getattr(jvm.org.apache.spark.sql.classic, "Dataset$")
    rows = getattr(datasets, "MODULE$").ofRows(spark._jsparkSession, _plan_of(frame))
    from pyspark.sql import DataFrame

    return DataFrame(rows, spark)


def _plan_of(frame: DataFrame) -> Any:
    """Return the analyzed plan of a frame, whose names are resolved in the frame's session."""
    return frame._jdf.queryExecution().analyzed()


def _streaming_leaves(nodes: Sequence[Any]) -> list[Any]:
    return [node for node in nodes if not node.children().size() and node.isStreaming()]


def _find_problems(source: Source, nodes: Sequence[Any]) -> Iterator[SpecError]:
    what = f'the DataFrame of "{source.name}"'
    leaves = [node for node in nodes if not node.children().size()]
    streams = _streaming_leaves(nodes)
    if len(streams) != 1:
        yield SpecError(
            f"{what} has {len(streams)} streaming sources; it needs one",
            code="not-supported",
            hint="create a stream for each of them and combine them: a.union_all(b)",
        )
    if len(leaves) > len(streams) or any(node.subqueries().size() for node in nodes):
        yield SpecError(
            f"{what} joins its stream with a table, whose rows may change before a tick is repeated",
            code="not-supported",
            hint="declare the table to watersmeet, and write JOIN … FOR SYSTEM_TIME AS OF PROCTIME()",
        )
    said = {_KEEP_STATE[name] for node in nodes if (name := node.nodeName()) in _KEEP_STATE}
    for does in sorted(said):
        yield SpecError(f"{what} {does}, so Spark would keep state outside of the job's state",
                        code="not-supported", hint=_RELATION_HINT)  # fmt: skip
    unsure = [node for node in nodes if not _is_deterministic(node)]
    if unsure:
        yield SpecError(
            f"{what} has values that differ each time a tick is repeated: {unsure[0].simpleString(10)}",
            code="not-supported",
            hint="remove functions such as rand(), uuid() and monotonically_increasing_id()",
        )
    for name in [str(leaf.sourceName()) for leaf in streams]:
        if name in _UNREPEATABLE_SOURCES:
            yield SpecError(
                f"{what} reads a {name} source, which cannot provide the rows of a tick again",
                code="not-supported",
                hint="write its rows to files or Kafka first, and read those",
            )


def _list_nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from _list_nodes(children.apply(number))


def _is_deterministic(node: Any) -> bool:
    expressions = node.expressions()
    return all(expressions.apply(number).deterministic() for number in range(expressions.size()))
