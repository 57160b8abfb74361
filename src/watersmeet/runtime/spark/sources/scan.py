"""The sources of a whole job, in the plan's order, each read once: a frame per source, and what is in it.

Every distinct expression of every branch of every query is evaluated once per source, by Spark, into a
column of its own. Which columns make up which branch's rows is in the `SourceView`. The order of sources is
part of what a restart is checked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from watersmeet.event_time import Side
from watersmeet.names import DIFF, FLAG, PARTITION, is_ours, ours
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import LookupPlan, MatchPlan, SnapshotPlan
from watersmeet.plan.model.sides import BranchPlan, SidePlan
from watersmeet.runtime.spark.broken_records import build_check
from watersmeet.runtime.spark.rejected_values import misfit_sql
from watersmeet.runtime.spark.rounded_decimals import rounded_sql
from watersmeet.runtime.spark.sources.columns import (
    BROKEN,
    BROKEN_FILE,
    FILE,
    FILE_NUMBER,
    LATE,
    ROUNDED,
    SAMPLE_CHARACTERS,
)
from watersmeet.runtime.spark.sources.frames import can_have_broken_records, has_partitions
from watersmeet.runtime.spark.sources.views import BranchView, SourceView
from watersmeet.runtime.spark.sql_text import find_mentioned_names, name_unresolved, quote_name, to_spark_sql
from watersmeet.spec.model import Source
from watersmeet.spec.records.changes import computed_of_changes
from watersmeet.types.arrow import in_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_ANY = ours("any")

ReadSource = Callable[[Source], "DataFrame"]


@dataclass(frozen=True)
class Scan:
    """Scan of the sources of a plan.

    ``sources``: per source its frame and the view that splits the frame into branches. ``schemas``: the
    Arrow types of the retained columns, per ``query/alias``. ``columns``: per source the columns of its
    frame, as Spark SQL over the result of `frames.read`. ``tables``: per ``query/alias`` of tables that
    rows join as of their tick, and of compared tables, which have no frame here, the expressions over
    their rows as (Spark SQL over the declared columns, name), with `FLAG` if some rows can match
    nothing.
    ``plain``: for sources of which the job needs only columns, per column of the frame the declared
    one.
    """

    sources: tuple[tuple[DataFrame, SourceView], ...]
    schemas: Mapping[str, pa.Schema]
    columns: Mapping[str, Sequence[str]]
    tables: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    plain: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass
class _ScannedBranch:
    """A branch of an input while its expressions are being collected: name -> SQL text over its source."""

    arrangement: str
    number: int
    sql: dict[str, str]


@dataclass
class _ScannedSource:
    source: Source
    frame: DataFrame
    branches: list[_ScannedBranch] = field(default_factory=list)
    late: dict[str, str] | None = None
    types: dict[str, DataType] = field(default_factory=dict)

    def texts(self) -> list[str]:
        """List the distinct expressions in order of first use."""
        texts = [text for branch in self.branches for text in branch.sql.values()]
        return list(dict.fromkeys(texts + list((self.late or {}).values())))

    def list_checked_texts(self) -> list[str]:
        """List the distinct expressions, and those that classify a record's change."""
        return [*self.texts(), *(to_spark_sql(own.expr) for own in computed_of_changes(self.source))]

    def names(self) -> dict[str, str]:
        """Return the column name of each distinct expression."""
        return {text: ours(str(number)) for number, text in enumerate(self.texts())}


def scan(
    spark: SparkSession,
    plan: JobPlan,
    read: ReadSource,
    *,
    keep_late: bool = False,
    keep_broken: bool = False,
) -> Scan:
    """Build the scan of ``plan`` over the frames that ``read`` returns (batch or streaming).

    Args:
        keep_late: rejected rows go to a side output: carry all declared columns.
        keep_broken: broken records go to a side output: carry their whole text.
    """
    sources = [_ScannedSource(source, read(source)) for source in plan.sources]
    by_name = {source.source.name: source for source in sources}
    frames = {source.source.name: source.frame for source in sources}
    for table in plan.tables:
        frames.setdefault(
            table.name, _empty_frame(spark, {column.name: str(column.type) for column in table.columns})
        )
    tables: dict[str, tuple[tuple[str, str], ...]] = {}
    for query in plan.queries:
        casts = _key_casts(spark, query, frames)
        for lookup in query.every(LookupPlan):
            name = f"{query.name}/{lookup.table.name}"
            tables[name] = _table_sql(lookup.table, casts.get(lookup.table.name, {}))
        for node in query.every(SnapshotPlan):
            tables[f"{query.name}/{node.side.name}"] = _table_sql(node.side, {})
        for side in query.sides:
            wanted = _common_stage_types(side) | casts.get(side.name, {})
            for number, branch in side.ingested:
                sql = _branch_sql(branch, wanted)
                owner = by_name[branch.source.name]
                owner.branches.append(_ScannedBranch(f"{query.name}/{side.name}", number, sql))
    for read_source in sources:
        if keep_late:
            read_source.late = {
                f"{LATE}{column.name}": quote_name(column.name) for column in read_source.source.columns
            }
    _find_types(sources)
    _unify_branches(spark, sources)
    schemas = {**_schemas(sources), **_declared_schemas(spark, plan)}
    for query, lookup in plan.lookups:
        name = f"{query.name}/{lookup.table.name}"
        schemas[name] = _table_schema(frames[lookup.source.name], tables[name])
    for query, node in plan.compared:
        name = f"{query.name}/{node.side.name}"
        schemas[name] = _table_schema(frames[node.source.name], tables[name])
    columns = {source.source.name: _columns(source, keep_broken) for source in sources}
    frames_and_views = tuple(
        (source.frame.selectExpr(*columns[source.source.name]), _build_view(source, keep_broken))
        for source in sources
    )
    plain = {
        source.source.name: of_frame
        for source in sources
        if (of_frame := _map_declared_columns(source)) is not None
    }
    return Scan(frames_and_views, schemas, columns, tables, plain)


def _table_sql(table: SidePlan, casts: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    ((_, branch),) = table.sources
    columns = [
        (f"CAST({to_spark_sql(expr)} AS {casts[name]})" if name in casts else to_spark_sql(expr), name)
        for name, expr in branch.columns
    ]
    if branch.flag is not None:
        columns.append((f"CAST({to_spark_sql(branch.flag)} AS TINYINT)", FLAG))
    return tuple(columns)


def _table_schema(declared: DataFrame, columns: Sequence[tuple[str, str]]) -> pa.Schema:
    fields = declared.selectExpr(*(f"{text} AS {quote_name(name)}" for text, name in columns)).schema.fields
    return pa.schema([pa.field(f.name, _arrow_type(f.dataType)) for f in fields if f.name != FLAG])


def _common_stage_types(side: SidePlan) -> dict[str, str]:
    """Return per column the common type of rows from sources and stages, for an input with both."""
    if not side.stages:
        return {}
    return {column.name: str(column.type) for column in side.input.columns if column.name in side.kept}


def _declared_schemas(spark: SparkSession, plan: JobPlan) -> dict[str, pa.Schema]:
    """Return the retained columns of inputs that only stages feed, if their types are declared.

    The types are native Arrow types.
    """
    schemas = {}
    for query in plan.queries:
        for side in query.sides:
            if not side.sources:
                types_declared = {
                    c.name: str(c.type) for c in side.input.columns if in_arrow(c.type) is not None
                }
                types = {name: types_declared[name] for name in side.kept if name in types_declared}
                fields = _empty_frame(spark, types).schema.fields if types else []
                schemas[f"{query.name}/{side.name}"] = pa.schema(
                    [pa.field(field.name, _arrow_type(field.dataType)) for field in fields]
                )
    return schemas


def _branch_sql(branch: BranchPlan, casts: Mapping[str, str]) -> dict[str, str]:
    sql = {
        name: f"CAST({to_spark_sql(expr)} AS {casts[name]})" if name in casts else to_spark_sql(expr)
        for name, expr in branch.columns
    }
    if branch.flag is not None:
        sql[FLAG] = f"CAST({to_spark_sql(branch.flag)} AS TINYINT)"
    if has_partitions(branch.source):
        sql[PARTITION] = PARTITION
    if branch.source.changes or branch.source.is_table:
        sql[DIFF] = f"CAST({DIFF} AS BIGINT)"
    return sql


def _common_type(spark: SparkSession, types: Sequence[DataType]) -> str | None:
    """Return the type in which Spark compares two key sides of different types; None if equal."""
    if types[0] == types[1]:
        return None
    both = _empty_frame(spark, {"l": types[0].simpleString(), "r": types[1].simpleString()})
    analyzed: Any = both.selectExpr("l = r AS e")._jdf.queryExecution().analyzed()
    return str(analyzed.expressions().head().child().left().dataType().sql())


def _key_casts(
    spark: SparkSession, query: QueryPlan, frames: Mapping[str, DataFrame]
) -> dict[str, dict[str, str]]:
    """Return per input the computed key columns that need a cast, with the type to cast to.

    These are the columns of keys whose two sides have different types; the type is the one in which
    Spark
    compares them.
    """
    casts: dict[str, dict[str, str]] = {}
    for join in query.every(MatchPlan):
        if join.left.feeds or join.right.feeds:
            continue  # the planner has seen to one type
        for key in join.keys:
            types = [_first_type(join.side(side), key.column(side), frames) for side in Side]
            common = _common_type(spark, types)
            for side in Side:
                if common is not None and is_ours(key.column(side)):
                    casts.setdefault(join.side(side).name, {})[key.column(side)] = common
    return casts


def _first_type(side: SidePlan, column: str, frames: Mapping[str, DataFrame]) -> DataType:
    """Return the type of a retained column in the first branch of an input."""
    _, branch = side.sources[0]
    text = to_spark_sql(dict(branch.columns)[column])
    return frames[branch.source.name].selectExpr(f"{text} AS k").schema[0].dataType


def _empty_frame(spark: SparkSession, columns: Mapping[str, str]) -> DataFrame:
    return spark.range(0).selectExpr(
        *(f"CAST(NULL AS {type_}) AS {quote_name(name)}" for name, type_ in columns.items())
    )


def _find_types(sources: Sequence[_ScannedSource]) -> None:
    for source in sources:
        texts = source.texts()
        with name_unresolved(f'source "{source.source.name}"', partial(_list_expressions, source)):
            fields = source.frame.selectExpr(
                *(f"{text} AS c{n}" for n, text in enumerate(texts))
            ).schema.fields
        source.types = {text: field.dataType for text, field in zip(texts, fields, strict=True)}


def _list_expressions(source: _ScannedSource) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield every expression of a source with the query that uses it."""
    for branch in source.branches:
        query, _, alias = branch.arrangement.partition("/")
        for text in branch.sql.values():
            yield f'INSERT "{query}", input {alias}: {text}', partial(source.frame.selectExpr, text)


def _unify_branches(spark: SparkSession, sources: Sequence[_ScannedSource]) -> None:
    """Cast the branches of a UNION ALL to the types that Spark gives the union."""
    by_column: dict[tuple[str, str], list[tuple[_ScannedSource, _ScannedBranch]]] = {}
    for source in sources:
        for branch in source.branches:
            for name in branch.sql:
                by_column.setdefault((branch.arrangement, name), []).append((source, branch))
    for (_, name), users in by_column.items():
        types = [owner.types[branch.sql[name]] for owner, branch in users]
        if all(type_ == types[0] for type_ in types):
            continue
        values = ", ".join(f"CAST(NULL AS {type_.simpleString()})" for type_ in types)
        common = spark.range(0).selectExpr(f"coalesce({values})").schema[0].dataType
        for owner, branch in users:
            branch.sql[name] = f"CAST({branch.sql[name]} AS {common.simpleString()})"
            owner.types[branch.sql[name]] = common


def _columns(source: _ScannedSource, keep_broken: bool) -> list[str]:
    """Build a source's expressions as columns.

    If records can be broken, add `BROKEN` with their text or, without ``keep_broken``, its beginning.
    """
    columns = [f"{text} AS {name}" for text, name in source.names().items()]
    if can_have_broken_records(source.source):
        misfit = misfit_sql(source.source, source.list_checked_texts())
        told = BROKEN if misfit is None else f"coalesce({BROKEN}, {misfit})"
        sample = f"substring({told}, 1, {SAMPLE_CHARACTERS + 1})"  # one more shows that it was cut
        columns.append(f"{told if keep_broken else sample} AS {BROKEN}")
        if source.source.traits.files:
            columns.append(f"xxhash64({FILE}) AS {FILE_NUMBER}")
            columns.append(f"IF({told} IS NULL, NULL, {FILE}) AS {BROKEN_FILE}")
        if (value := rounded_sql(source.source, source.list_checked_texts())) is not None:
            columns.append(f"{value} AS {ROUNDED}")
        declared = [column.name for column in source.source.columns]
        if declared and not find_mentioned_names(declared, source.texts()):
            # Spark's readers of text refuse to say which records are broken and nothing else.
            columns.append(f"{quote_name(declared[0])} IS NULL AS {_ANY}")
    return columns


def _map_declared_columns(source: _ScannedSource) -> dict[str, str] | None:
    """Map each column of the source's frame to its declared column; None if one is computed."""
    declared = {quote_name(column.name): column.name for column in source.source.columns}
    names = source.names()
    return {name: declared[text] for text, name in names.items()} if names.keys() <= declared.keys() else None


def _build_view(source: _ScannedSource, keep_broken: bool) -> SourceView:
    name_of = source.names()
    branches = tuple(
        BranchView(
            branch.arrangement,
            branch.number,
            tuple((name, name_of[text]) for name, text in branch.sql.items()),
        )
        for branch in source.branches
    )
    late = None
    if source.late is not None:
        late = tuple((name.removeprefix(LATE), name_of[text]) for name, text in source.late.items())
    parses = can_have_broken_records(source.source)
    check = build_check(source.source) if parses else None
    rounds = rounded_sql(source.source, source.list_checked_texts()) is not None
    return SourceView(source.source.name, branches, late, parses, keep_broken, rounds, check)


def _schemas(sources: Sequence[_ScannedSource]) -> dict[str, pa.Schema]:
    schemas: dict[str, pa.Schema] = {}
    for source in sources:
        for branch in source.branches:
            if branch.arrangement not in schemas:
                fields = [
                    pa.field(name, _arrow_type(source.types[text]))
                    for name, text in branch.sql.items()
                    if name not in (FLAG, PARTITION, DIFF)
                ]
                schemas[branch.arrangement] = pa.schema(fields)
    return schemas


def _arrow_type(type_: DataType) -> pa.DataType:
    """Return the Arrow type that Spark sends to Python for a type, in the session's zone, UTC."""
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        return to_arrow_type(type_, timezone="UTC")
    except TypeError:  # Spark 4.0: UTC without being told
        return to_arrow_type(type_)
