"""What the nodes of a query have written in a tick for nodes above them, and for those of other queries."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.engine.messages.reports import FeedReport, NodeReport
from watersmeet.plan.model.sides import FeedPlan


class Fed:
    """Of the settled nodes of one query."""

    def __init__(self) -> None:
        self._by_node: dict[int, list[FeedReport]] = {}
        self._by_path: dict[int, list[list[FeedReport]]] = {}
        self._abroad: dict[int, list[list[FeedReport]]] = {}

    def take(self, number: int, reports: Sequence[NodeReport]) -> None:
        """What the tasks of node ``number`` told."""
        self._by_node[number] = [report.fed for report in reports if report.fed is not None]
        by_path = zip(*(report.fed_by_path for report in reports), strict=True)
        self._by_path[number] = [list(reports_of_path) for reports_of_path in by_path]
        abroad = zip(*(report.fed_abroad for report in reports), strict=True)
        self._abroad[number] = [list(reports_of_place) for reports_of_place in abroad]

    def by(self, number: int) -> Sequence[FeedReport]:
        """For the node above node ``number``."""
        return self._by_node[number]

    def to(self, feed: FeedPlan) -> Sequence[FeedReport]:
        """By a feed from one of the nodes."""
        if feed.query is not None:
            of_place = self._abroad[feed.node]
            return of_place[feed.place] if of_place else []
        return self._by_node[feed.node] if feed.path is None else self._by_path[feed.node][feed.path]
