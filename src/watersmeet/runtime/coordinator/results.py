"""Results of a tick and of each query, and the row counts that make them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from watersmeet.event_time import Watermark
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import NodePlan, SnapshotPlan, UpsertPlan
from watersmeet.plan.order.forecast import MeasuredSide
from watersmeet.runtime.coordinator.load_shedding import Shed
from watersmeet.runtime.coordinator.node_cost import KeyShare, measured_sides
from watersmeet.runtime.coordinator.shared_inputs import RegressiveAdvance
from watersmeet.runtime.messages.reports import (
    BrokenFile,
    FeedReport,
    FileReport,
    IngestReport,
    NodeReport,
    PadFile,
    SplitKey,
    lower_min,
)
from watersmeet.runtime.messages.shapes import NodeShape
from watersmeet.state.manifest import Manifest
from watersmeet.state.store import Traffic
from watersmeet.watermark.holders import SourceDrift, WatermarkHolder
from watersmeet.watermark.lateness import LateBy, sum_by_column
from watersmeet.watermark.tracker import PartitionState

# Counts and least times of a tick, put together over tasks and ticks.


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
class RoundedDecimals:
    """Rows of a source in a tick with rounded decimals.

    Attributes:
        rows: the number of rows.
        text: a column with its value.
        of_files: True if the source reads files.
    """

    rows: int
    text: str
    of_files: bool = True


@dataclass(frozen=True)
class FutureRows:
    """Rows of a source in a tick whose time is too far ahead of the clock.

    Attributes:
        rows: the number of rows.
        column: an event-time column.
        time_us: the latest time of the column in these rows, in µs since 1970.
    """

    rows: int
    column: str
    time_us: int


def sum_lateness(
    before: Mapping[str, Mapping[str, LateBy]],
    late: Sequence[tuple[str, Mapping[str, LateBy]]],
    query: QueryPlan,
) -> dict[str, dict[str, LateBy]]:
    """Sum up how late the late rows since the job's start were, per alias and column.

    Args:
        before: the sums before this tick.
        late: the lateness in this tick, by alias.
    """
    totals = {
        side.name: sum_by_column(
            [before.get(side.name, {}), *(late_by for alias, late_by in late if alias == side.name)]
        )
        for side in query.alone.sides
    }
    return {alias: late_by for alias, late_by in totals.items() if late_by}


def add_counts(
    before: Mapping[str, Mapping[str, int]], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """Add the counts of a tick to the counts before it, per alias."""
    total = {alias: dict(rows) for alias, rows in before.items()}
    for alias, rows in counts.items():
        total[alias] = sum_counts([total.get(alias, {}), rows])
    return total


def sum_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sum the numbers of all parts, per name of the count."""
    sums: dict[str, int] = {}
    for what, number in (item for part in parts for item in part.items()):
        sums[what] = sums.get(what, 0) + number
    return sums


@dataclass(frozen=True)
class RowsRead:
    """Rows that a tick read, per source.

    Attributes:
        rows: the number of rows, for all sources. A row counts once, however many branches read it;
            broken records and rows that belong to no branch's stream count, too.
        broken, far_ahead, rounded: for the sources that had such rows.
    """

    rows: dict[str, int]
    broken: dict[str, Broken]
    far_ahead: dict[str, FutureRows]
    rounded: dict[str, RoundedDecimals]


def rows_read(plan: JobPlan, reports: Sequence[IngestReport]) -> RowsRead:
    """Sum up the rows read per source from the reports of ingest tasks.

    Every branch of a source counts all of its rows, so the report of one branch has the source's count.
    """
    sources = {place: source for source, place in find_branches(plan).items()}
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
            others_rounded = read.rounded.get(
                source, RoundedDecimals(0, report.rounded_text, source in files)
            )
            read.rounded[source] = replace(others_rounded, rows=others_rounded.rows + report.rounded)
        if rows := report.counts.get("ahead", 0):
            column, time_us = max(report.furthest.items(), key=lambda last: last[1])
            others = read.far_ahead.get(source, FutureRows(0, column, time_us))
            last = others if others.time_us > time_us else FutureRows(0, column, time_us)
            read.far_ahead[source] = FutureRows(others.rows + rows, last.column, last.time_us)
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


def find_branches(plan: JobPlan) -> dict[str, tuple[str, int]]:
    """Return per source one of the branches that read it: ``query/alias``, and its number there."""
    branches: dict[str, tuple[str, int]] = {}
    for query in plan.queries:
        for side in query.sides:
            for number, branch in side.ingested:
                branches.setdefault(branch.source.name, (f"{query.name}/{side.name}", number))
    return branches


def find_broken_reporters(plan: JobPlan, shapes: Mapping[str, Sequence[NodeShape]]) -> frozenset[str]:
    """Choose one arrangement per table whose tasks record the records that do not parse."""
    tellers: dict[str, str] = {}
    for query in plan.queries:
        for node in (*query.every(SnapshotPlan), *query.every(UpsertPlan)):
            ((_, branch),) = node.sides[0].sources
            side = shapes[query.name][node.number].sides[0]
            tellers.setdefault(branch.source.name, side.arrangement)
    return frozenset(tellers.values())


def ingest_counts(query: QueryPlan, reports: Sequence[IngestReport]) -> dict[str, dict[str, int]]:
    """Count the outcomes of the rows that a tick brought, except retained rows, per alias."""
    counts: dict[str, dict[str, int]] = {side.name: {} for side in query.alone.accounted}
    for report in reports:
        name, _, alias = report.arrangement.rpartition("/")
        if name == query.name:
            for what, rows in report.counts.items():
                if what != "kept":
                    counts[alias][what] = counts[alias].get(what, 0) + rows
    return counts


def compute_min_times_out(reports: Iterable[NodeReport]) -> dict[str, int]:
    """Compute the least time of the rows that a node emitted, per watermark key."""
    least: dict[str, int] = {}
    for key, time in (item for report in reports for item in report.least_out.items()):
        lower_min(least, key, time)
    return least


def count_unknown_padded(reports_of_nodes: Iterable[Iterable[NodeReport]]) -> int:
    """Count emitted rows of padded sides, joined ones too, that may have had a match."""
    sides = (side for reports in reports_of_nodes for report in reports for side in report.sides)
    return sum(side.counts.get("unknown", 0) for side in sides)


# What is known of a tick, and of each query, when it is over.

INGEST, DRIVER = "ingest", "driver"


@dataclass(frozen=True)
class QueryResult:
    """Result of one query in one tick.

    Attributes:
        risen_watermarks: the output watermarks that rose.
        output_watermarks, input_watermarks: all watermarks, per key.
        late_below: the late thresholds per key; rows of the tick below them were late.
        state: retained rows per alias.
        counts: outcomes of rows in this tick, per alias (see `runtime.tasks.ingest`, and matched,
            padded, released_unmatched, retained).
        account: outcomes of rows since the start of the job, per alias.
        late: how late the late rows since the start were, per alias and column.
        holding: per alias, the silent partitions that hold back its watermark.
        idle: the aliases with only idle partitions.
        advances_back: explicit advances below their watermarks (see `Options.lenient`).
        missing_deletes: some of the rows to delete that did not exist, as (alias, JSON of the columns
            that the query retains).
        shed_joined: the number of shed rows that joins produced for other nodes, since the start, by
            the inputs joined in them.
        newly_shed_joined: the number of such rows shed in this tick.
        heavy: the heaviest keys of the retained rows, per side that has any.
        split: the keys that all tasks shared in this tick, per side that reports any.
        rows_out: rows written to the sink in this tick.
        total_rows_out: rows written to the sink since the start.
    """

    risen_watermarks: Mapping[str, Watermark]
    output_watermarks: Mapping[str, Watermark]
    input_watermarks: Mapping[str, Watermark]
    state: Mapping[str, int]
    counts: Mapping[str, Mapping[str, int]]
    account: Mapping[str, Mapping[str, int]]
    rows_out: int
    total_rows_out: int
    matches: int
    state_bytes: int
    late_below: Mapping[str, Watermark] = field(default_factory=dict)
    missing_deletes: tuple[tuple[str, str], ...] = ()
    shed_joined: Mapping[str, int] = field(default_factory=dict)
    newly_shed_joined: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, Mapping[str, LateBy]] = field(default_factory=dict)
    holding: Mapping[str, tuple[WatermarkHolder, ...]] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    advances_back: tuple[RegressiveAdvance, ...] = ()
    heavy: Mapping[str, tuple[KeyShare, ...]] = field(default_factory=dict)
    split: Mapping[str, tuple[SplitKey, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class TickResult:
    """Result of a tick.

    Attributes:
        rows_in: rows read in this tick, per source.
        broken: those of them that did not parse, for sources that had any; see `RowsRead`.
        far_ahead: those with a time too far ahead, for sources that had any.
        rounded: those with rounded decimals, for sources that had any.
        held: the sources that the next tick does not read.
        tasks: per query, the maximum number of tasks of its nodes; 0 if the driver ran all of them.
            Empty without Spark tasks.
        traffic: store traffic of each task, per step (`INGEST`, ``query/number`` of a node, `DRIVER`);
            work in the background of a tick counts for the next tick. Empty if nothing counts it.
        read: the read progress, per source and part of it (``files``, or a partition of a topic): for
            files the number of Spark's listings, for a partition the offset after the last record.
        began: the start position of parts that this tick read for the first time, or resumed elsewhere
            than where reading had ended. Like ``read``, it is empty if unknown.
        seconds: how long the phases of the tick took, on Spark.
    """

    tick: int
    clock_us: int
    queries: Mapping[str, QueryResult]
    finished: bool
    rows_in: Mapping[str, int]
    broken: Mapping[str, Broken] = field(default_factory=dict)
    far_ahead: Mapping[str, FutureRows] = field(default_factory=dict)
    rounded: Mapping[str, RoundedDecimals] = field(default_factory=dict)
    held: Mapping[str, SourceDrift] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)
    traffic: Mapping[str, tuple[Traffic, ...]] = field(default_factory=dict)
    state: Manifest | None = field(default=None, repr=False, compare=False)
    read: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    began: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    def measured(self) -> dict[str, dict[str, MeasuredSide]]:
        """Measure the retained rows and arrival rates of each side, per query.

        The method reads the state on each call.
        """
        if self.state is None:
            return {}
        return {name: measured_sides(self.state, query) for name, query in self.state.queries.items()}

    def partitions(self) -> dict[str, dict[str, list[Mapping[str, PartitionState]]]]:
        """Return the known partitions by name, per query, input that it reads itself, and branch."""
        queries = {} if self.state is None else self.state.queries
        return {
            name: {
                alias: [branch.partitions for branch in read.branches] for alias, read in query.inputs.items()
            }
            for name, query in queries.items()
        }


def count_shed_rows(counts: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Select the numbers of shed rows from counts or an account, per alias that has any."""
    return {alias: of["shed"] for alias, of in counts.items() if of.get("shed")}


@dataclass
class RowAccounting:
    """Row accounting of one query in a tick.

    Args:
        counts: outcomes of rows, per alias of an input that the query accounts for.
        rows_out: rows emitted by the node that settled last.
        least_out: per node, the least time of its rows, per watermark key.
        missing: deletes of rows that did not exist, by alias.
        aside: side output files of late rows of stages and of shed rows, per alias.
        broken: files of records of tables that do not parse as rows, per source.
        shed_joined: the number of shed rows that joins produced for other nodes, by the titles of those
            sides; they belong to no input.
    """

    counts: dict[str, dict[str, int]]
    rows_out: int = 0
    matches: int = 0
    least_out: list[dict[str, int]] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    aside: dict[str, list[PadFile]] = field(default_factory=dict)
    broken: dict[str, list[PadFile]] = field(default_factory=dict)
    shed_joined: dict[str, int] = field(default_factory=dict)

    def add(self, alias: str, counts: Mapping[str, int]) -> None:
        """Add counts to an alias.

        Rows between two joins belong to no input and are not counted.
        """
        counted = self.counts.get(alias)
        if counted is not None:
            for what, rows in counts.items():
                counted[what] = counted.get(what, 0) + rows

    def set_aside(self, alias: str, files: Iterable[PadFile]) -> None:
        """Add side output files of an alias."""
        self.aside.setdefault(alias, []).extend(files)

    def add_shed_rows(self, node: NodePlan, shed: Mapping[str, Shed]) -> None:
        """Add the rows that the sides of a node have shed, by the names of the sides."""
        for side in node.sides:
            if side.name not in shed:
                continue
            rows = shed[side.name].rows
            self.set_aside(side.name, shed[side.name].files)
            if side.name in self.counts:
                self.add(side.name, {"shed": rows})
            else:
                self.shed_joined[side.title] = self.shed_joined.get(side.title, 0) + rows

    def take(self, node: NodePlan, reports: Sequence[NodeReport], rows_out: int | None) -> None:
        """Add the reports of a node's tasks.

        Args:
            rows_out: the number of rows written to the sink, if it differs from the rows that the tasks
                emitted.
        """
        for place, side in enumerate(node.sides):
            for report in (of_node.sides[place] for of_node in reports):
                self.add(side.name, report.counts)
                for _, branch in side.sources if report.broken else ():
                    self.broken.setdefault(branch.source.name, []).extend(report.broken)
        self.rows_out = sum(report.rows_out for report in reports) if rows_out is None else rows_out
        self.matches += sum(report.matches for report in reports)
        self.least_out.append(compute_min_times_out(reports))
        self.missing += [
            (side.name, row)
            for report in reports
            for side, told in zip(node.sides, report.sides, strict=False)
            for row in told.missing
            if side.copy_of is None
        ]

    def add_reused_node(self) -> None:
        """Add an empty entry for a node that is not run because another node replaces it."""
        self.least_out.append({})

    def add_feed_reports(self, alias: str, reports: Iterable[FeedReport]) -> None:
        """Add what input nodes wrote for an input: counts and side output files."""
        for report in reports:
            self.add(alias, report.counts)
            self.set_aside(alias, report.aside)

    def copy_producer_counts(self, alias: str, maker: RowAccounting, there: str) -> None:
        """Copy the counts and missing deletes of an input that another query accounts for.

        Args:
            there: the alias of the input in that query.
        """
        self.counts[alias] = dict(maker.counts[there])
        self.missing += [(alias, row) for name, row in maker.missing if name == there]
