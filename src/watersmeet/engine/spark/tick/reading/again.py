"""Files of text that are looked at as texts before the rows of a tick are read: Spark's readers say nothing
of records of JSON that run on behind their value (`run_on`), nor of CSV that is no UTF-8 (`not_utf8`).

One job looks at both. Where nothing is to be found, that is all. CSV that is no UTF-8 stops the job. A record
of JSON that runs on is broken, and no rows are its: the rows of its source come from a frame of its own, and
ingest passes over those of the stream. In that frame the rows that Spark reads of a file are numbered in
their order; its texts say of how many rows each is, and so which rows are of a text that runs on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window, WindowSpec

from watersmeet.engine.spark.sources.files.not_utf8 import must_be_utf8, no_utf8, not_utf8
from watersmeet.engine.spark.sources.files.read import BatchFiles
from watersmeet.engine.spark.sources.files.run_on import JsonTexts, leniently
from watersmeet.engine.spark.sources.files.texts import TEXT
from watersmeet.engine.spark.sources.files.there import local_of, reader_path, shown
from watersmeet.engine.spark.sources.frames import (
    BLOCK,
    FILE,
    ROW,
    declared_fields,
    read_again,
)
from watersmeet.engine.spark.sources.scan import Scan
from watersmeet.engine.spark.sources.views import BROKEN, SourceView
from watersmeet.engine.spark.text import quoted
from watersmeet.engine.spark.tick.ingest import reports_of
from watersmeet.errors import EngineError
from watersmeet.names import ours
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import format_of
from watersmeet.state.store import Store

_SOURCE, _RUNS_ON, _ROWS, _FIRST, _LAST = map(ours, ("source", "runs_on", "rows", "first", "last"))
_NUMBER, _PARSED = ours("number"), ours("parsed")

_NOTHING_OUT = "nothing of this tick was put out. "
_HINT = (
    f"{_NOTHING_OUT}Write one JSON value per line (by 'multiLine' per file), or take away what stands behind "
    "the first one"
)


@dataclass(frozen=True)
class Reread:
    """What ingest tells of sources by frames of their own (``reports``, as `reports_of`) in a tick in which
    the rows that the scan has of them do not count. ``names``: of the sources."""

    names: frozenset[str]
    reports: DataFrame


class Rereading:
    """Of one run of a job; see the module.

    Args:
        sources: of the plan, in its order.
        check: whether the files of a batch are what they were. Raises: EngineError.
    """

    def __init__(
        self,
        spark: SparkSession,
        sources: Sequence[Source],
        scanned: Scan,
        store: Store,
        check: Callable[[BatchFiles], None],
    ) -> None:
        self._spark = spark
        self._scanned = scanned
        self._store = store
        self._check = check
        of_files = {number: source for number, source in enumerate(sources) if source.traits.files}
        self._json = {
            n: (source, JsonTexts.of(source))
            for n, source in of_files.items()
            if format_of(source.options) == "json"
        }
        self._csv = {n: source for n, source in of_files.items() if must_be_utf8(source)}

    def of_batch(self, batch: BatchFiles | None) -> Reread | None:
        """What is read again of the files of a batch; None: nothing, as nearly always.

        Raises: EngineError when CSV is no UTF-8, when Spark's rows of a file are not those that its texts
        have, or when the files are no longer what they were.
        """
        if batch is None or not (self._json or self._csv):
            return None
        paths: dict[int, list[str]] = {}
        for file in batch.files:
            is_looked_at = file.source in self._json or file.source in self._csv
            if is_looked_at and file.batch >= 0 and (path := reader_path(file)) is not None:
                paths.setdefault(file.source, []).append(path)
        try:
            return self._of_paths(paths)
        except Exception:
            self._check(batch)  # what became of a file says more than what came of it
            raise

    def _of_paths(self, paths: Mapping[int, Sequence[str]]) -> Reread | None:
        texts = {n: self._json[n][1].read(self._spark, paths[n]) for n in paths if n in self._json}
        suspects = {n: frame.where(self._json[n][1].may_run_on) for n, frame in texts.items()}
        suspects |= {n: not_utf8(self._spark, self._csv[n], paths[n]) for n in paths if n in self._csv}
        with_some = _with_some(suspects)
        for number in with_some:
            if number in self._csv:
                raise self._no_utf8(self._csv[number], suspects[number])
        with leniently(self._spark):
            numbers = _with_some({n: texts[n].where(self._json[n][1].run_on) for n in with_some})
        if not numbers:
            return None
        frames = [self._frame(*self._json[number], paths[number], texts[number]) for number in numbers]
        names = frozenset(self._json[number][0].name for number in numbers)
        return Reread(names, reports_of(frames, self._store))

    def _no_utf8(self, source: Source, texts: DataFrame) -> EngineError:
        paths = [row[0] for row in texts.select("_metadata.file_path").limit(1).collect()]
        file = shown(local_of(paths[0]) or paths[0]) if paths else "a file"
        return no_utf8(f'file source "{source.name}"', file, _NOTHING_OUT)

    def _frame(
        self, source: Source, texts: JsonTexts, paths: Sequence[str], read: DataFrame
    ) -> tuple[DataFrame, SourceView]:
        view = next(view for _, view in self._scanned.sources if view.source == source.name)
        told = self._told(source, texts, read)
        frame = read_again(self._spark, source, paths, lambda rows: _mended(source, rows, told))
        return frame.selectExpr(*self._scanned.columns[source.name]), view

    def _told(self, source: Source, texts: JsonTexts, read: DataFrame) -> DataFrame:
        """`FILE`, `TEXT`, `_RUNS_ON`, and the numbers of its `_FIRST` and `_LAST` row in the file."""
        with leniently(self._spark):
            frame = read.select(
                F.col(TEXT),
                F.expr("_metadata.file_path").alias(FILE),
                F.expr("_metadata.file_block_start").alias(BLOCK),
                F.expr("monotonically_increasing_id()").alias(ROW),
                F.expr(texts.run_on).alias(_RUNS_ON),
                F.expr(texts.rows(declared_fields(source))).alias(_ROWS),
            )
        frame = frame.withColumn(_LAST, F.sum(_ROWS).over(_in_order()))
        return frame.withColumn(_FIRST, F.col(_LAST) - F.col(_ROWS) + 1)


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
