"""Check text files as texts before a tick reads their rows.

Spark's readers do not report JSON records with text after their value, fields in another case than declared
(`json_texts`), CSV that is not UTF-8, or line ends within quotes (`csv_texts`).

One job checks all of this in advance; usually it finds nothing. Such CSV stops the job. For such JSON, a
separate frame (`by_texts`) reads the source's rows, and ingest ignores those of the stream.

If decimals of a source lose digits, and the wider type with which they are read does not determine their
values (`rounded_decimals`), the source is read once more after the tick's rows, and the first reading does
not count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from watersmeet.errors import EngineError
from watersmeet.names import ours
from watersmeet.runtime.files.listing import reader_path
from watersmeet.runtime.messages.reports import IngestReport
from watersmeet.runtime.spark.sources.files.json_texts import (
    NOTHING_WRITTEN,
    JsonTexts,
    decode_leniently,
    read_repaired_rows,
)
from watersmeet.runtime.spark.sources.files.progress import BatchFiles
from watersmeet.runtime.spark.sources.files.text_files import CsvTexts
from watersmeet.runtime.spark.sources.frames import reread_as_batch
from watersmeet.runtime.spark.sources.scan import Scan
from watersmeet.runtime.spark.sources.views import SourceView
from watersmeet.runtime.spark.tick.ingest import INEXACT, REPORT, ingest_reports
from watersmeet.spec.model import Source
from watersmeet.spec.options.files import format_of
from watersmeet.state.store import Store

_SOURCE = ours("source")


@dataclass(frozen=True)
class TextReread:
    """Ingest results of sources that separate frames read again in a tick.

    The scan's rows of these sources do not count in the tick.

    Attributes:
        names: names of the sources.
        reports: results in the form of `ingest_reports`.
    """

    names: frozenset[str]
    reports: DataFrame


class Rereading:
    """Validation and rereading of text files in one run of a job; see the module.

    Args:
        sources: the sources of the plan, in its order.
        check: checks that the files of a batch are unchanged. Raises: EngineError.
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
        self._sources = {number: source for number, source in enumerate(sources) if source.traits.files}
        self._json = {
            n: (source, JsonTexts.of(source))
            for n, source in self._sources.items()
            if format_of(source.options) == "json"
        }
        self._csv = {
            n: (source, CsvTexts.of(source))
            for n, source in self._sources.items()
            if format_of(source.options) == "csv"
        }

    def of_batch(self, batch: BatchFiles | None) -> TextReread | None:
        """Return the reread files of a batch; None if there are none, as in most ticks.

        Raises:
            EngineError: Spark would misread CSV, its rows of a file differ from the file's texts, or the
                files have changed.
        """
        if batch is None or not (self._json or self._csv):
            return None
        try:
            return self._find_suspect_files(_list_paths(batch, self._json.keys() | self._csv.keys()))
        except Exception:
            self._check(batch)  # what became of a file says more than what came of it
            raise

    def add_reread_rows(self, told: list[Row], batch: BatchFiles | None) -> list[Row]:
        """Return the ingest results of a batch, after reading sources with uncertain decimals again.

        Those sources are read with the declared types.

        Args:
            told: the results of the stream's frames.

        Raises:
            EngineError: the files have changed.
        """
        names = {text for kind, text in told if kind == INEXACT}
        if not names:
            return told
        numbers = {number for number, source in self._sources.items() if source.name in names}
        if batch is None or len(numbers) < len(names):
            raise EngineError(
                f"the job must read decimals of {', '.join(sorted(names))} again, but they do not come"
                " from files",
                code="internal",
                hint="this is a bug in watersmeet: please report it with this message",
            )
        frames = []
        for number, paths in _list_paths(batch, numbers).items():
            source = self._sources[number]
            frames.append(self._scan_source(source, reread_as_batch(self._spark, source, paths)))
        reread = ingest_reports(frames, self._store).collect()
        self._check(batch)
        return [*self._without_rows(told, names), *reread]

    def _without_rows(self, told: Sequence[Row], names: Set[str]) -> Iterator[Row]:
        """Yield the rows that ingest reported, without those of some sources.

        Of reports about these sources, only the counts of rounded decimals and the traffic remain.
        """
        views = (view for _, view in self._scanned.sources if view.source in names)
        places = {(branch.arrangement, branch.branch) for view in views for branch in view.branches}
        for row in told:
            kind, text = row
            if kind == REPORT:
                report = IngestReport.model_validate_json(text)
                if (report.arrangement, report.branch) in places:
                    fields = {"arrangement", "branch", "rounded", "rounded_text", "traffic"}
                    row = Row(kind=kind, text=report.model_dump_json(include=fields))
            elif kind == INEXACT or json.loads(text)["source"] in names:
                continue
            yield row

    def _find_suspect_files(self, paths: Mapping[int, Sequence[str]]) -> TextReread | None:
        texts = {n: self._json[n][1].read(self._spark, paths[n]) for n in paths if n in self._json}
        suspects = {n: frame.where(self._json[n][1].may_differ) for n, frame in texts.items()}
        suspects |= {
            n: self._csv[n][1].list_misread_lines(self._spark, paths[n]) for n in paths if n in self._csv
        }
        with_some = _find_non_empty(suspects)
        for number in with_some:
            if number in self._csv:
                source, csv = self._csv[number]
                problem = csv.first_problem(f'file source "{source.name}"', suspects[number], NOTHING_WRITTEN)
                if problem is not None:
                    raise problem
        with decode_leniently(self._spark):
            numbers = _find_non_empty({n: texts[n].where(self._json[n][1].differs) for n in with_some})
        if not numbers:
            return None
        frames = [
            self._scan_source(source, read_repaired_rows(self._spark, source, own_texts, paths[number]))
            for number, (source, own_texts) in self._json.items()
            if number in numbers
        ]
        names = frozenset(self._json[number][0].name for number in numbers)
        return TextReread(names, ingest_reports(frames, self._store))

    def _scan_source(self, source: Source, frame: DataFrame) -> tuple[DataFrame, SourceView]:
        view = next(view for _, view in self._scanned.sources if view.source == source.name)
        return frame.selectExpr(*self._scanned.columns[source.name]), view


def _list_paths(batch: BatchFiles, numbers: Set[int]) -> dict[int, list[str]]:
    """Return the files of a batch that are of these sources, as Spark's readers are given them."""
    paths: dict[int, list[str]] = {}
    for file in batch.files:
        if file.source in numbers and file.batch >= 0 and (path := reader_path(file)) is not None:
            paths.setdefault(file.source, []).append(path)
    return paths


def _find_non_empty(frames: Mapping[int, DataFrame]) -> list[int]:
    """Return the numbers of the frames that have rows."""
    if not frames:
        return []
    told = (frame.select(F.lit(number).alias(_SOURCE)) for number, frame in frames.items())
    numbers = reduce(DataFrame.unionAll, told).toArrow().column(_SOURCE)
    return sorted(numbers.unique().to_pylist())
