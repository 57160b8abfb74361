"""Account for the rows of a query in a tick."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from watersmeet.plan.model.nodes import NodePlan
from watersmeet.runtime.coordinator.load_shedding import Shed
from watersmeet.runtime.coordinator.results import compute_min_times_out
from watersmeet.runtime.messages.reports import FeedReport, NodeReport, PadFile


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
