"""Rows of JSON files as Spark's reader has them, mended by the texts of their records (`JsonTexts`).

The rows that Spark reads of a file are numbered in their order; the texts say of how many rows each is, and
so which rows are of a text. Those of a text that runs on behind its value are left out, and the text is one
broken record. Of a text that has fields in another case than they are declared, the columns that Spark left
NULL are read once more; where that can be read in two ways, its rows are broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from watersmeet.engine.spark import lazy_functions as F
from watersmeet.engine.spark.sources.files.json_texts import JsonTexts, leniently
from watersmeet.engine.spark.sources.files.texts import TEXT
from watersmeet.engine.spark.sources.files.there import local_of, shown
from watersmeet.engine.spark.sources.frames import BLOCK, ROW, read_again
from watersmeet.engine.spark.sources.views import BROKEN, FILE
from watersmeet.engine.spark.text import quoted
from watersmeet.errors import EngineError
from watersmeet.names import ours
from watersmeet.spec.model import Column as Declared
from watersmeet.spec.model import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.window import WindowSpec

NOTHING_OUT = "nothing of this tick was written. "
_HINT = (
    f"{NOTHING_OUT}Write one JSON value per line (with 'multiLine' per file), or remove the text after"
    " the first value"
)

_RUNS_ON, _RENAMED, _ROWS, _FIRST, _LAST = map(ours, ("runs_on", "renamed", "rows", "first", "last"))
_NUMBER, _PARSED, _MENDED, _READ = map(ours, ("number", "parsed", "mended", "read"))


def rows_by_texts(
    spark: SparkSession, source: Source, texts: JsonTexts, paths: str | Sequence[str]
) -> DataFrame:
    """Return the frame of files of a source as `frames.read` gives it, mended.

    Args:
        paths: of files; one text: where a table's files are.

    Raises:
        EngineError: Spark's rows of a file with a record that runs on are not those that its texts have.
    """
    told = _told(spark, texts, paths)
    return read_again(spark, source, paths, lambda rows: _mended(source, rows, told))


def _told(spark: SparkSession, texts: JsonTexts, paths: str | Sequence[str]) -> DataFrame:
    """`FILE`, `TEXT`, `_RUNS_ON`, the numbers of its `_FIRST` and `_LAST` row in the file, whether it has
    names in another case (`_RENAMED`), and `_READ`: its rows then, NULL where it has two readings."""
    with leniently(spark):
        frame = texts.read(spark, paths).select(
            F.col(TEXT),
            F.expr("_metadata.file_path").alias(FILE),
            F.expr("_metadata.file_block_start").alias(BLOCK),
            F.expr("monotonically_increasing_id()").alias(ROW),
            F.expr(texts.run_on).alias(_RUNS_ON),
            F.expr(texts.has_another_case).alias(_RENAMED),
            F.expr(texts.count_of_rows).alias(_ROWS),
            F.expr(f"IF({texts.has_another_case}, {texts.rows_renamed}, NULL)").alias(_READ),
        )
    frame = frame.withColumn(_LAST, F.sum(_ROWS).over(_in_order()))
    return frame.withColumn(_FIRST, F.col(_LAST) - F.col(_ROWS) + 1)


def _mended(source: Source, rows: DataFrame, texts: DataFrame) -> DataFrame:
    """The rows in the order of files and their rows; see the module."""
    rows = rows.withColumn(_NUMBER, F.row_number().over(_in_order()).cast("bigint"))
    _check_counts(source, rows, texts)
    run_on = texts.where(F.col(_RUNS_ON))
    their_rows = F.explode(F.sequence(_FIRST, _LAST))
    of_none = run_on.where(F.col(_ROWS) > 0).select(FILE, their_rows.alias(_NUMBER))
    kept = _with_renamed(source, rows.join(of_none, [FILE, _NUMBER], "left_anti"), texts)
    names = [name for name in rows.columns if name not in (BROKEN, FILE, BLOCK, ROW, _NUMBER)]
    nothing = [F.lit(None).cast(rows.schema[name].dataType).alias(name) for name in names]
    broken = run_on.select(*nothing, F.col(TEXT).alias(BROKEN), FILE, BLOCK, ROW)
    columns = [F.col(quoted(name)) for name in [*names, BROKEN, FILE, BLOCK, ROW]]
    return kept.select(*columns).unionByName(broken).repartition(1).sortWithinPartitions(FILE, BLOCK, ROW)


def _with_renamed(source: Source, rows: DataFrame, texts: DataFrame) -> DataFrame:
    """The rows with the columns that are there in another case; broken where the text is not to be read.

    A column that Spark's reader found stays as it is, but for a STRUCT, in which fields may be missing.
    """
    renamed = texts.where(F.col(_RENAMED) & ~F.col(_RUNS_ON) & (F.col(_ROWS) > 0))
    element = f"get({_READ}, CAST(n - {_FIRST} AS INT))"
    numbered = (
        f"explode(transform(sequence({_FIRST}, {_LAST}), n -> struct(n AS {_NUMBER}, {element} AS {_READ})))"
    )
    renamed = renamed.select(FILE, TEXT, F.expr(numbered).alias(_MENDED))
    renamed = renamed.select(FILE, TEXT, f"{_MENDED}.{_NUMBER}", f"{_MENDED}.{_READ}")
    both = rows.join(renamed, [FILE, _NUMBER], "left")
    broken = F.expr(f"IF({quoted(TEXT)} IS NOT NULL AND {_READ} IS NULL, {quoted(TEXT)}, NULL)")
    columns = {column.name: F.expr(_found(column)) for column in source.columns}
    return both.withColumns({**columns, BROKEN: F.coalesce(F.col(BROKEN), broken)})


def _found(column: Declared) -> str:
    own, renamed = quoted(column.name), f"{_READ}.{quoted(column.name)}"
    has_fields = any(inner.is_struct for inner in column.type.every)
    return f"coalesce({renamed}, {own})" if has_fields else f"coalesce({own}, {renamed})"


def _check_counts(source: Source, rows: DataFrame, texts: DataFrame) -> None:
    """Raises: EngineError when Spark reads other numbers of rows of files than their texts should have."""
    read, told = ours("read_rows"), ours("told")
    values = [name for name in rows.columns if name not in (FILE, BLOCK, ROW, _NUMBER)]
    # Asked for no values, Spark would count lines and parse none.
    are_parsed = reduce(add, (F.count(quoted(name)) for name in values)) >= 0
    read_rows = rows.groupBy(FILE).agg(F.max(_NUMBER).alias(read), are_parsed.alias(_PARSED))
    is_looked_at = F.max(F.col(_RUNS_ON) | F.col(_RENAMED)).alias(_RUNS_ON)
    told_rows = texts.groupBy(FILE).agg(F.max(_LAST).alias(told), is_looked_at)
    both = told_rows.join(read_rows, FILE, "left")
    equal = f"coalesce({read}, 0) <=> {told} AND coalesce({_PARSED}, true)"
    other = both.where(f"{_RUNS_ON} AND NOT ({equal})")
    paths = [row[0] for row in other.select(FILE).limit(1).collect()]
    if paths:
        raise EngineError(
            f'file source "{source.name}": {shown(local_of(paths[0]) or paths[0])} has a record with'
            " text after its JSON value, or with field names that differ in case, so its rows cannot be"
            " identified",
            code="record-runs-on",
            hint=_HINT,
        )


def _in_order() -> WindowSpec:
    from pyspark.sql.window import Window

    return Window.partitionBy(FILE).orderBy(BLOCK, ROW)
