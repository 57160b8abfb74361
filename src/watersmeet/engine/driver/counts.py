"""Counts and least times of a tick, put together over tasks and ticks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from watersmeet.engine.messages.reports import BrokenFile, FileReport, IngestReport, NodeReport, lower
from watersmeet.engine.messages.shapes import NodeShape
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import SnapshotPlan, UpsertPlan
from watersmeet.watermark.lateness import LateBy, summed


@dataclass(frozen=True)
class Broken:
    """Records of a source that did not parse in a tick.

    Attributes:
        text: the first characters of one.
        is_all: whether no record that is to be a row parsed; heartbeats and their like are to be none.
        files: those of which no such record parsed, by their names.
        is_cut: there may be more of them.
    """

    rows: int
    text: str
    is_all: bool
    files: tuple[BrokenFile, ...] = ()
    is_cut: bool = False


@dataclass(frozen=True)
class Rounded:
    """Rows of a source in a tick with decimals that were rounded: how many, and a column with its value.
    ``of_files``: the source reads files."""

    rows: int
    text: str
    of_files: bool = True


@dataclass(frozen=True)
class FarAhead:
    """Rows of a source in a tick whose time is too far ahead of the clock: how many, and the last time of an
    event-time column of theirs, in µs since 1970."""

    rows: int
    column: str
    time_us: int


def late_total(
    before: Mapping[str, Mapping[str, LateBy]],
    late: Sequence[tuple[str, Mapping[str, LateBy]]],
    query: QueryPlan,
) -> dict[str, dict[str, LateBy]]:
    """How late the rows were that were late since the job's start, per alias and column; ``late``: in this
    tick, by alias."""
    totals = {
        side.name: summed(
            [before.get(side.name, {}), *(late_by for alias, late_by in late if alias == side.name)]
        )
        for side in query.alone.sides
    }
    return {alias: late_by for alias, late_by in totals.items() if late_by}


def added(
    before: Mapping[str, Mapping[str, int]], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """The counts of a tick on top of those before, per alias."""
    total = {alias: dict(rows) for alias, rows in before.items()}
    for alias, rows in counts.items():
        total[alias] = counted([total.get(alias, {}), rows])
    return total


def counted(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The numbers of all parts, added up by what they count."""
    sums: dict[str, int] = {}
    for what, number in (item for part in parts for item in part.items()):
        sums[what] = sums.get(what, 0) + number
    return sums


@dataclass(frozen=True)
class RowsRead:
    """What a tick read, per source.

    Attributes:
        rows: of all sources, how many. Rows count once however many branches take them, broken records and
            rows that are no part of a branch's stream, too.
        broken, far_ahead, rounded: of the sources that had such rows.
    """

    rows: dict[str, int]
    broken: dict[str, Broken]
    far_ahead: dict[str, FarAhead]
    rounded: dict[str, Rounded]


def rows_read(plan: JobPlan, reports: Sequence[IngestReport]) -> RowsRead:
    """Sum up what tasks tell. Every branch of a source counts all of its rows, so one of them says how many
    there were."""
    sources = {place: source for source, place in branches_of(plan).items()}
    read = RowsRead(dict.fromkeys(sources.values(), 0), {}, {}, {})
    broken, skipped, texts = Counter[str](), Counter[str](), dict[str, str]()
    files = {source.name for source in plan.sources if source.traits.files}
    of_files: dict[str, list[FileReport]] = {}
    for report in reports:
        source = sources.get((report.arrangement, report.branch))
        if source is None:
            continue
        read.rows[source] += report.counts.get("in", 0) + report.counts.get("beneath", 0)
        skipped[source] += report.counts.get("skipped", 0)
        if report.files is not None:
            of_files.setdefault(source, []).append(report.files)
        if rows := report.counts.get("broken", 0):
            broken[source] += rows
            texts.setdefault(source, report.broken_text)
        if report.rounded:
            others_rounded = read.rounded.get(source, Rounded(0, report.rounded_text, source in files))
            read.rounded[source] = replace(others_rounded, rows=others_rounded.rows + report.rounded)
        if rows := report.counts.get("ahead", 0):
            column, time_us = max(report.furthest.items(), key=lambda last: last[1])
            others = read.far_ahead.get(source, FarAhead(0, column, time_us))
            last = others if others.time_us > time_us else FarAhead(0, column, time_us)
            read.far_ahead[source] = FarAhead(others.rows + rows, last.column, last.time_us)
    for source, rows in broken.items():
        is_all = rows + skipped[source] == read.rows[source]
        read.broken[source] = Broken(rows, texts[source], is_all, *_broken_files(of_files.get(source, [])))
    return read


def _broken_files(reports: Sequence[FileReport]) -> tuple[tuple[BrokenFile, ...], bool]:
    """Return the files of which no task has read a record that parses, and whether there may be others."""
    if any(report.parsed is None for report in reports):
        return (), True  # of a file that several tasks read it is not known
    parsed = {number for report in reports for number in report.parsed or ()}
    files: dict[int, BrokenFile] = {}
    for report in reports:
        for number, file in report.broken.items():
            if number not in parsed:
                rows = files[number].rows if number in files else 0
                files[number] = file.model_copy(update={"rows": rows + file.rows})
    by_name = sorted(files.values(), key=lambda file: file.name)
    return tuple(by_name), any(report.is_cut for report in reports)


def branches_of(plan: JobPlan) -> dict[str, tuple[str, int]]:
    """Return per source one of the branches that read it: ``query/alias``, and its number there."""
    branches: dict[str, tuple[str, int]] = {}
    for query in plan.queries:
        for side in query.sides:
            for number, branch in side.ingested:
                branches.setdefault(branch.source.name, (f"{query.name}/{side.name}", number))
    return branches


def tellers_of_broken(plan: JobPlan, shapes: Mapping[str, Sequence[NodeShape]]) -> frozenset[str]:
    """Return of each table one arrangement: that whose tasks write records down that are no rows."""
    tellers: dict[str, str] = {}
    for query in plan.queries:
        for node in (*query.every(SnapshotPlan), *query.every(UpsertPlan)):
            ((_, branch),) = node.sides[0].sources
            side = shapes[query.name][node.number].sides[0]
            tellers.setdefault(branch.source.name, side.arrangement)
    return frozenset(tellers.values())


def ingest_counts(query: QueryPlan, reports: Sequence[IngestReport]) -> dict[str, dict[str, int]]:
    """What became of the rows that a tick brought, but for those that are kept, per alias."""
    counts: dict[str, dict[str, int]] = {side.name: {} for side in query.alone.accounted}
    for report in reports:
        name, _, alias = report.arrangement.rpartition("/")
        if name == query.name:
            for what, rows in report.counts.items():
                if what != "kept":
                    counts[alias][what] = counts[alias].get(what, 0) + rows
    return counts


def least_out(reports: Iterable[NodeReport]) -> dict[str, int]:
    """Per watermark key the least time of the rows that left a node."""
    least: dict[str, int] = {}
    for key, time in (item for report in reports for item in report.least_out.items()):
        lower(least, key, time)
    return least


def unknown(reports_of_nodes: Iterable[Iterable[NodeReport]]) -> int:
    """Rows of padded sides, joined ones too, that left in a tick and may have had a partner."""
    sides = (side for reports in reports_of_nodes for report in reports for side in report.sides)
    return sum(side.counts.get("unknown", 0) for side in sides)
