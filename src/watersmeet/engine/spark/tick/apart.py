"""Ticks in which a record of a JSON file runs on behind its value (`run_on`): it is broken, no rows are its.

Before the rows of a tick are read, its JSON files are looked at as texts, in one job. Where no record may run
on, that is all. Else the rows of their source come from a frame of its own, and ingest passes over those of
the stream. In that frame the rows that Spark reads of a file are numbered in their order; its texts say of
how many rows each is, and so which rows are of a text that runs on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import reduce
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window, WindowSpec

from watersmeet.engine.spark.sources.files.read import BatchFiles
from watersmeet.engine.spark.sources.files.run_on import TEXT, JsonTexts, leniently
from watersmeet.engine.spark.sources.files.there import local_of, shown
from watersmeet.engine.spark.sources.frames import (
    BLOCK,
    FILE,
    ROW,
    declared_fields,
    lowered,
    read_apart,
)
from watersmeet.engine.spark.sources.scan import Scan
from watersmeet.engine.spark.sources.views import BROKEN, SourceView
from watersmeet.engine.spark.text import quoted
from watersmeet.engine.spark.tick.ingest import Apart, reports_of
from watersmeet.errors import EngineError
from watersmeet.names import ours
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import format_of
from watersmeet.state.file_lists import FileRead
from watersmeet.state.store import Store

_SOURCE, _RUNS_ON, _ROWS, _FIRST, _LAST = map(ours, ("source", "runs_on", "rows", "first", "last"))
_NUMBER, _PARSED = ours("number"), ours("parsed")

_HINT = (
    "nothing of this tick was put out. Write one JSON value per line (by 'multiLine' per file), or take away "
    "what stands behind the first one"
)


class ReadApart:
    """Of one run of a job; see the module. ``sources``: of the plan, in its order."""

    def __init__(self, spark: SparkSession, sources: Sequence[Source], scanned: Scan, store: Store) -> None:
        self._spark = spark
        self._scanned = scanned
        self._store = store
        self._sources = {
            number: source
            for number, source in enumerate(sources)
            if source.traits.files and format_of(source.options) == "json"
        }

    def of_batch(self, batch: BatchFiles | None) -> Apart | None:
        """What is read apart of the files of a batch; None: nothing, as nearly always.

        Raises: EngineError when Spark's rows of a file are not those that its texts have.
        """
        paths: dict[int, list[str]] = {}
        for file in [] if batch is None else batch.files:
            if file.source in self._sources and file.batch >= 0 and (path := _path_of(file)) is not None:
                paths.setdefault(file.source, []).append(path)
        numbers = running_on(self._spark, {n: (self._sources[n], there) for n, there in paths.items()})
        if not numbers:
            return None
        frames = [self._frame(self._sources[number], paths[number]) for number in numbers]
        names = frozenset(self._sources[number].name for number in numbers)
        return Apart(names, reports_of(frames, self._store))

    def _frame(self, source: Source, paths: Sequence[str]) -> tuple[DataFrame, SourceView]:
        view = next(view for _, view in self._scanned.sources if view.source == source.name)
        texts = self._texts(source, paths)
        frame = read_apart(self._spark, source, paths, lambda rows: _mended(source, rows, texts))
        return frame.selectExpr(*self._scanned.columns[source.name]), view

    def _texts(self, source: Source, paths: Sequence[str]) -> DataFrame:
        """`FILE`, `TEXT`, `_RUNS_ON`, and the numbers of its `_FIRST` and `_LAST` row in the file."""
        texts = JsonTexts(lowered(source.options))
        with leniently(self._spark):
            frame = texts.read(self._spark, paths).select(
                F.col(TEXT),
                F.expr("_metadata.file_path").alias(FILE),
                F.expr("_metadata.file_block_start").alias(BLOCK),
                F.expr("monotonically_increasing_id()").alias(ROW),
                F.expr(texts.run_on).alias(_RUNS_ON),
                F.expr(texts.rows(declared_fields(source))).alias(_ROWS),
            )
        frame = frame.withColumn(_LAST, F.sum(_ROWS).over(_in_order()))
        return frame.withColumn(_FIRST, F.col(_LAST) - F.col(_ROWS) + 1)


def running_on(spark: SparkSession, given: Mapping[int, tuple[Source, Sequence[str]]]) -> list[int]:
    """The sources, by number, of which a record runs on in the files at the paths beside them. One job; if
    some may, two."""
    texts = {number: JsonTexts(lowered(source.options)) for number, (source, _) in given.items()}
    read = {number: texts[number].read(spark, paths) for number, (_, paths) in given.items()}
    may = _with_some({number: frame.where(texts[number].may_run_on) for number, frame in read.items()})
    with leniently(spark):
        return _with_some({number: read[number].where(texts[number].run_on) for number in may})


def _with_some(frames: Mapping[int, DataFrame]) -> list[int]:
    """Those that have rows, by number."""
    if not frames:
        return []
    told = (frame.select(F.lit(number).alias(_SOURCE)) for number, frame in frames.items())
    numbers = reduce(DataFrame.unionAll, told).toArrow().column(_SOURCE)
    return sorted(numbers.unique().to_pylist())


def _mended(source: Source, rows: DataFrame, texts: DataFrame) -> DataFrame:
    """The rows but those of texts that run on, and these as broken; in the order of files and their rows."""
    rows = rows.withColumn(_NUMBER, F.row_number().over(_in_order()).cast("bigint"))
    _check_counts(source, rows, texts)
    run_on = texts.where(F.col(_RUNS_ON))
    their_rows = F.explode(F.sequence(_FIRST, _LAST))
    of_none = run_on.where(F.col(_ROWS) > 0).select(FILE, their_rows.alias(_NUMBER))
    kept = rows.join(of_none, [FILE, _NUMBER], "left_anti")
    names = [name for name in rows.columns if name not in (BROKEN, FILE, BLOCK, ROW, _NUMBER)]
    nothing = [F.lit(None).cast(rows.schema[name].dataType).alias(name) for name in names]
    broken = run_on.select(*nothing, F.col(TEXT).alias(BROKEN), FILE, BLOCK, ROW)
    columns = [F.col(quoted(name)) for name in [*names, BROKEN, FILE, BLOCK, ROW]]
    return kept.select(*columns).unionByName(broken).repartition(1).sortWithinPartitions(FILE, BLOCK, ROW)


def _check_counts(source: Source, rows: DataFrame, texts: DataFrame) -> None:
    """Raises: EngineError when Spark reads other numbers of rows of files than their texts should have."""
    read, told = ours("read"), ours("told")
    values = [name for name in rows.columns if name not in (FILE, BLOCK, ROW, _NUMBER)]
    # Asked for no values, Spark would count lines and parse none.
    are_parsed = reduce(Column.__add__, (F.count(quoted(name)) for name in values)) >= 0
    read_rows = rows.groupBy(FILE).agg(F.max(_NUMBER).alias(read), are_parsed.alias(_PARSED))
    told_rows = texts.groupBy(FILE).agg(F.max(_LAST).alias(told), F.max(_RUNS_ON).alias(_RUNS_ON))
    both = told_rows.join(read_rows, FILE, "left")
    equal = f"coalesce({read}, 0) <=> {told} AND coalesce({_PARSED}, true)"
    other = both.where(f"{_RUNS_ON} AND NOT ({equal})")
    paths = [row[0] for row in other.select(FILE).limit(1).collect()]
    if paths:
        raise EngineError(
            f'file source "{source.name}": {shown(local_of(paths[0]) or paths[0])} has a record that runs on '
            "behind its value, and which of its rows are of it cannot be told",
            code="record-runs-on",
            hint=_HINT,
        )


def _in_order() -> WindowSpec:
    return Window.partitionBy(FILE).orderBy(BLOCK, ROW)


def _path_of(file: FileRead) -> str | None:
    """As Spark's readers take it; None: it is gone."""
    local = local_of(file.path)
    if local is not None:
        return local if file.size >= 0 and os.path.exists(local) else None
    parts = urlsplit(file.path)
    return parts._replace(path=unquote(parts.path)).geturl()
