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
    """``counts``: what became of rows, per alias of an input that is accounted for. ``rows_out``: of the node
    that settled last; ``compute_min_times_out``: per node the least time of its rows, per watermark key.
    ``missing``:
    deletes of rows that were not there, by alias. ``aside``: files of late rows of stages, and of shed rows,
    per alias; ``broken``: files of records of tables that are no rows, per source. ``shed_joined``: how many
    rows that joins made for others were shed, by the titles of those sides: they are no input's.
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
        """Rows on their way from join to join are no input's, and are not counted."""
        counted = self.counts.get(alias)
        if counted is not None:
            for what, rows in counts.items():
                counted[what] = counted.get(what, 0) + rows

    def set_aside(self, alias: str, files: Iterable[PadFile]) -> None:
        """Rows for a side output."""
        self.aside.setdefault(alias, []).extend(files)

    def add_shed_rows(self, node: NodePlan, shed: Mapping[str, Shed]) -> None:
        """What the sides of a node have shed, by their names."""
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
        """What the tasks of a node told. ``rows_out``: how many rows went to the sink, where these are not
        the ones that left the tasks."""
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
        """A node in whose place another one is run."""
        self.least_out.append({})

    def add_feed_reports(self, alias: str, reports: Iterable[FeedReport]) -> None:
        """What nodes beneath wrote for an input."""
        for report in reports:
            self.add(alias, report.counts)
            self.set_aside(alias, report.aside)

    def copy_producer_counts(self, alias: str, maker: RowAccounting, there: str) -> None:
        """An input for which another query accounts, under the alias ``there``."""
        self.counts[alias] = dict(maker.counts[there])
        self.missing += [(alias, row) for name, row in maker.missing if name == there]
