"""Documents that describe a job and its plan to observers of a run.

They contain the drawing of the plan, its limits, and the places of its late rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from watersmeet.history.points import subject_of
from watersmeet.plan.explain.graph import graph_of
from watersmeet.plan.explain.wording import node_name
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.order.forecast import forecasts_of
from watersmeet.plan.query_inputs import limited_sources, sides_of
from watersmeet.spec.model import Job
from watersmeet.spec.options.files import format_of, local_path, path_of
from watersmeet.state.stored_record import FrozenRecord


class DrawnNode(FrozenRecord):
    """See `plan.explain.graph.GraphNode`; ``of``: as which subject it counts."""

    id: str
    kind: str
    lines: tuple[str, ...]
    of: str = ""


class DrawnEdge(FrozenRecord):
    """See `plan.explain.graph.Edge`; ``of``: the subject whose figures go along it."""

    start: str
    end: str
    of: str = ""


class Drawing(FrozenRecord):
    """The plan as a graph."""

    nodes: tuple[DrawnNode, ...] = ()
    edges: tuple[DrawnEdge, ...] = ()

    @classmethod
    def of_plan(cls, plan: JobPlan) -> Drawing:
        graph = graph_of(plan)
        return cls(
            nodes=tuple(
                DrawnNode(id=node.id, kind=node.kind, lines=node.lines, of=_subject(node.of))
                for node in graph.nodes
            ),
            edges=tuple(
                DrawnEdge(start=edge.start, end=edge.end, of=_subject(edge.of)) for edge in graph.edges
            ),
        )


class SideFiles(FrozenRecord):
    """The folder of this machine that a side output is written to, and the ``format`` of the files."""

    path: str
    format: str

    @classmethod
    def of_job(cls, job: Job, setting: str) -> SideFiles | None:
        """Return the files of the setting ``late_output`` or ``broken_output``.

        Returns:
            None if the rows have no output, or an output that is not local JSON or Parquet files.
        """
        for sink in job.sinks:
            if sink.name == job.run.get(setting) and sink.traits.files:
                path, form = local_path(path_of(sink.options)), format_of(sink.options)
                if path and form in ("json", "parquet"):
                    return cls(path=str(Path(path).absolute()), format=form)
        return None


class PlannedLimit(FrozenRecord):
    """A configured limit.

    Attributes:
        owner: description of what the limit applies to.
        most: maximum number of rows, or (``in_bytes``) maximum size of files.
        of: the subjects (``side/…``) that the limit covers; subjects with the same rows count once.
    """

    name: str
    owner: str
    most: int
    in_bytes: bool
    of: tuple[str, ...]


def limits_of(plan: JobPlan) -> tuple[PlannedLimit, ...]:
    """Return the configured limits of joins, of sources and of the job."""
    limits: list[PlannedLimit] = []
    for query in plan.queries:
        alone = query.alone
        for node, _ in forecasts_of(alone):
            owner = query.name if len(alone.nodes) == 1 else f"{query.name}: {node_name(alone, node)}"
            pair = (query.options.max_rows, query.options.max_bytes)
            limits += _limits(owner, ("max_rows", "max_bytes"), pair, [(query, side) for side in node.sides])
    every = _distinct_sides(plan)
    for source in limited_sources(node for query in plan.queries for node in query.nodes):
        names = {
            (query.name, name)
            for query in plan.queries
            for node in query.nodes
            for name in sides_of(node, source.name)
        }
        own = [(query, side) for query, side in every if (query.name, side.name) in names]
        limits += _limits(source.name, ("max_rows", "max_bytes"), (source.max_rows, source.max_bytes), own)
    options = plan.queries[0].options
    pair = (options.max_job_rows, options.max_job_bytes)
    return (*limits, *_limits("the job", ("max_job_rows", "max_job_bytes"), pair, every))


_Sides = Sequence[tuple[QueryPlan, SidePlan]]


def _limits(
    owner: str, names: tuple[str, str], pair: tuple[int | None, int | None], sides: _Sides
) -> Iterator[PlannedLimit]:
    """Yield the row limit and the byte limit that are set.

    In the limit of bytes, rows that are retained in several arrangements count for each.
    """
    for name, most, in_bytes in zip(names, pair, (False, True), strict=True):
        if most is not None:
            own = [(query, side) for query, side in sides if in_bytes or side.copy_of is None]
            subjects = tuple(subject_of("side", query.name, side.name) for query, side in own)
            yield PlannedLimit(name=name, owner=owner, most=most, in_bytes=in_bytes, of=subjects)


def _distinct_sides(plan: JobPlan) -> list[tuple[QueryPlan, SidePlan]]:
    """Return the sides of all queries that retain rows; of sides that share files, the first."""
    sides: dict[str, tuple[QueryPlan, SidePlan]] = {}
    for query in plan.queries:
        own = {side.name: side for node in query.nodes for side in node.sides}
        for _, forecasts in forecasts_of(query.alone):
            for side in (own.get(forecast.side.name) for forecast in forecasts):
                if side is not None:
                    sides.setdefault((side.sharers or (f"{query.name}/{side.name}",))[0], (query, side))
    return list(sides.values())


def _subject(of: Iterable[str]) -> str:
    kind, *names = (*of, "")
    return subject_of(kind, *names[:-1]) if kind else ""
