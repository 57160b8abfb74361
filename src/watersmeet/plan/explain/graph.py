"""A job's plan as a graph, and as a Mermaid flowchart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import singledispatch

from watersmeet.plan.conditions.conjuncts import text_of
from watersmeet.plan.explain.groups import (
    as_written,
    ranking_order,
    ranking_partitions,
    ranking_rows,
    window_name,
)
from watersmeet.plan.explain.joins import key_lines
from watersmeet.plan.explain.tables import place_of
from watersmeet.plan.explain.wording import (
    distance,
    format_shift,
    is_timed,
    kind_name,
    number_of,
    plain,
    sink_name,
)
from watersmeet.plan.model.job import JobPlan, QueryPlan
from watersmeet.plan.model.nodes import (
    ArrangePlan,
    DeltaPlan,
    GroupedPlan,
    GroupPlan,
    LookupPlan,
    MatchPlan,
    NodePlan,
    RankPlan,
    SnapshotPlan,
    UpsertPlan,
    WindowedPlan,
)
from watersmeet.plan.model.sides import SidePlan
from watersmeet.plan.order.forecast import key_in_time
from watersmeet.spec.model import Branch

# A job's plan as a graph, for drawings: sources, inputs, joins, filters, sinks, and what goes from one to
# the next.

STORED, INPUT, JOIN, GROUPS, FILTER = "stored", "input", "join", "groups", "filter"
"""Kinds of nodes: ``stored`` are sources, sinks, tables, and what is kept by a key."""


@dataclass(frozen=True)
class GraphNode:
    """A node of the plan's graph.

    Attributes:
        lines: text for people; the first line is the title.
        of: kind and names of a source or input under which its rows are counted, as in `Edge`; empty for
            other nodes.
    """

    id: str
    kind: str
    lines: tuple[str, ...]
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    """An edge of the plan's graph.

    Attributes:
        of: kind and names of the rows that the edge carries: (``source``, name) for rows of a source;
            (``input``, query, alias or ``#n``) for rows of an input or of a join; (``query``, name) for rows
            of a query; empty for the contents of a table that is looked up.
    """

    start: str
    end: str
    of: tuple[str, ...] = ()


@dataclass(frozen=True)
class QueryGraph:
    """The part of the graph that belongs to one query.

    Attributes:
        within: nodes and edges of the query; each edge follows the nodes that it connects.
        outside: edges from sources.
        sink: node of the sink, and the edge to it; None if the rows are retained for other queries.
    """

    id: str
    name: str
    within: tuple[GraphNode | Edge, ...]
    outside: tuple[Edge, ...]
    sink: tuple[GraphNode, Edge] | None


@dataclass(frozen=True)
class Graph:
    """A source that several queries read is there once."""

    sources: tuple[GraphNode, ...]
    queries: tuple[QueryGraph, ...]

    @property
    def nodes(self) -> tuple[GraphNode, ...]:
        """All nodes: sources first, then by query."""
        nodes = list(self.sources)
        for query in self.queries:
            nodes += [part for part in query.within if isinstance(part, GraphNode)]
            nodes += [] if query.sink is None else [query.sink[0]]
        return tuple(nodes)

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All edges; in each query, those from sources come first."""
        edges: list[Edge] = []
        for query in self.queries:
            edges += query.outside
            edges += [part for part in query.within if isinstance(part, Edge)]
            edges += [] if query.sink is None else [query.sink[1]]
        return tuple(edges)


def graph_of(plan: JobPlan) -> Graph:
    """Build the graph of a plan."""
    read = {source.name: source for source in plan.sources}
    read |= {node.source.name: node.source for _, node in plan.compared}  # as a whole, again and again
    ids = {name: f"s{number}" for number, name in enumerate(read)}
    sources = []
    for source in read.values():
        rate = () if source.rows_per_second is None else (f"{number_of(source.rows_per_second)} rows/s",)
        of = ("source", source.name)
        sources.append(
            GraphNode(ids[source.name], STORED, (f"{source.name} ({source.connector})", *rate), of)
        )
    queries = (_query(f"q{place}", query.alone, ids) for place, query in enumerate(plan.queries))
    return Graph(tuple(sources), tuple(queries))


def _query(name: str, query: QueryPlan, sources: dict[str, str]) -> QueryGraph:
    inputs = {side.name: f"{name}i{number}" for number, side in enumerate(query.sides)}
    within: list[GraphNode | Edge] = [
        GraphNode(
            inputs[side.name], INPUT, tuple(filter(None, _input(side))), ("input", query.name, side.name)
        )
        for side in query.sides
    ]
    drawn: dict[int, str] = {}
    for node in query.nodes:
        own, shape = f"{name}j{node.number}", _shape(node, query)
        if shape is None:
            first = node.sides[0]
            drawn[node.number] = inputs[first.name] if first.feed is None else drawn[first.feed.node]
            if first.feed is not None:
                continue
        else:
            drawn[node.number] = own
            kind, texts = shape
            within.append(GraphNode(own, kind, tuple(filter(None, texts))))
        for side in node.sides:
            for feed in side.feeds:
                taken = own if side.feed is not None else inputs[side.name]
                within.append(Edge(drawn[feed.node], taken, ("input", query.name, side.name)))
            if side.feed is None and side.copy_of is None and drawn[node.number] == own:
                within.append(Edge(inputs[side.name], own, ("input", query.name, side.name)))
        table = _table(node)
        if table is not None:
            within += [GraphNode(f"{own}t", STORED, table), Edge(f"{own}t", own)]
    last, rows = drawn[query.root.number], ("query", query.name)
    if query.where is not None:
        where = plain(text_of(as_written(query, query.where)))
        within += [GraphNode(f"{name}f", FILTER, ("filter", where)), Edge(last, f"{name}f", rows)]
        last = f"{name}f"
    outside = [
        Edge(sources[source], inputs[side.name], ("source", source))
        for side in query.sides
        for source in dict.fromkeys(branch.source.name for _, branch in side.sources)
    ]
    sink = None
    if not query.is_index:
        out = GraphNode(f"{name}k", STORED, (sink_name(query.sink),))
        sink = out, Edge(last, out.id, rows)
    return QueryGraph(name, query.name, tuple(within), tuple(outside), sink)


_Shape = tuple[str, tuple[str, ...]]


@singledispatch
def _shape(node: NodePlan, query: QueryPlan) -> _Shape | None:
    """Return the kind and the lines of a node.

    Returns:
        None if the node only drops rows, so there is nothing to draw.
    """
    return None


@_shape.register
def _(node: MatchPlan, query: QueryPlan) -> _Shape:
    return JOIN, tuple(_join(node))


@_shape.register
def _(node: UpsertPlan, query: QueryPlan) -> _Shape:
    return STORED, ("one row per key", ", ".join(node.primary_key.columns))


@_shape.register
def _(node: SnapshotPlan, query: QueryPlan) -> _Shape:
    key = node.primary_key
    return STORED, ("what is there",) if key is None else ("what is there, by", ", ".join(key.columns))


@_shape.register
def _(node: WindowedPlan, query: QueryPlan) -> _Shape:
    return GROUPS, tuple(_windows(node, is_root=node is query.root))


@_shape.register
def _(node: GroupPlan, query: QueryPlan) -> _Shape:
    by = f"by {', '.join(map(plain, node.key_texts))}" if node.key_texts else "all rows"
    return GROUPS, (by, *_group_lines(node, is_root=node is query.root))


@_shape.register
def _(node: RankPlan, query: QueryPlan) -> _Shape:
    partitions = ", ".join(ranking_partitions(node))
    which = f"{ranking_rows(node)} {f'per {partitions}' if partitions else 'of all'}"
    return GROUPS, (which, *ranking_order(node))


@_shape.register
def _(node: ArrangePlan, query: QueryPlan) -> _Shape:
    """Return the shape of a delta join, which includes its steps; the steps are not drawn."""
    lookups = [lookup for step in query.every(DeltaPlan) for lookup in step.lookups]
    if not lookups:
        return STORED, ("kept by", *(arranged.key for arranged in node.arranged))
    keys = dict.fromkeys(line for lookup in lookups for line in key_lines(lookup.join))
    return JOIN, ("delta join", *keys)


@singledispatch
def _table(node: NodePlan) -> tuple[str, ...] | None:
    """Return the table that a node looks rows up in, or None if it looks up none."""
    return None


@_table.register
def _(node: LookupPlan) -> tuple[str, ...]:
    return f"table {node.table.name}", f"{node.source.name} ({place_of(node.source)})", "as of the tick"


def _input(side: SidePlan) -> Iterator[str]:
    i = side.input
    yield f"input {side.name}"
    for place, column in enumerate(i.event_times):
        lags = [branch.lags[place] for _, branch in side.sources]
        finite = [lag for lag in lags if lag is not None]
        all_known = len(finite) == len(lags)
        parts = [dict(feed.event_times)[column] for _, feed in side.stages]
        if lags:
            parts.append(
                f"lag {distance(max(finite), is_timed(i, column))}" if all_known else "explicit advances"
            )
        yield f"{column}: {', '.join(parts)}"
    filters = [branch.beneath for branch in i.branches if isinstance(branch, Branch) and branch.beneath]
    filters += [branch.above for branch in i.branches if branch.above]
    for text in dict.fromkeys(plain(text_of(f)) for f in filters):
        yield f"where {text}"


def _join(join: MatchPlan) -> Iterator[str]:
    yield kind_name(join.kind)
    yield from key_lines(join)
    for bound in join.bounds:
        yield f"{bound.evicted} >= {format_shift(bound.by, -bound.c, key_in_time(join, bound.evicted))}"
    if join.horizon is not None:
        reach = distance(join.horizon.reach, key_in_time(join, join.horizon.keys[0]))
        yield f"late and released by the join, reach {reach}"
    if join.asof is not None:
        yield f"the {'latest' if join.asof.latest else 'earliest'} of {join.right.title}"
    for _, text in join.filters:
        yield f"where {plain(text)}"
    for _, text in join.one_sided:
        yield plain(text)
    texts = [text for band in join.values.exact for text in band.texts]
    texts += [band.text for band in join.values.real if band.comparison is not None]
    yield from dict.fromkeys((*texts, *join.recheck_texts))
    if join.residual is not None:
        yield plain(text_of(join.residual))


def _windows(node: WindowedPlan, *, is_root: bool) -> Iterator[str]:
    """Yield the lines of windows; HAVING of the root is part of the query's filter."""
    yield f"{window_name(node)} over {node.time_key}"
    yield f"by {', '.join(['window', *map(plain, node.key_texts)])}"
    yield from _group_lines(node, is_root=is_root)


def _group_lines(node: GroupedPlan, *, is_root: bool) -> Iterator[str]:
    for call in node.calls:
        yield plain(call.text)
    for _, text in node.filters:
        yield f"where {plain(text)}"
    if node.having is not None and not is_root:
        yield f"having {plain(node.having)}"


# A job's plan as the text of a Mermaid flowchart: sources, inputs, joins, filters, sinks.

_SAFE = re.compile(r"[^\w .,:()\[\]/*+=?!'|-]")
_SHAPES = {STORED: "[({})]", INPUT: "[{}]", JOIN: "{{{{{}}}}}", GROUPS: "[[{}]]", FILTER: "[/{}/]"}


def mermaid(plan: JobPlan) -> str:
    """Render the plan as a Mermaid flowchart that ends with a newline.

    A source that several queries read appears once.
    """
    graph = graph_of(plan)
    lines = ["flowchart LR", *(f"  {_node(source)}" for source in graph.sources)]
    for query in graph.queries:
        lines.append(f"  subgraph {query.id}[{_label([f'query {query.name}'])}]")
        lines += [
            f"    {_node(part) if isinstance(part, GraphNode) else _edge(part)}" for part in query.within
        ]
        lines.append("  end")
        lines += [f"  {_edge(edge)}" for edge in query.outside]
        if query.sink is not None:
            sink, edge = query.sink
            lines.append(f"  {edge.start} --> {_node(sink)}")
    return "\n".join(lines) + "\n"


def _node(node: GraphNode) -> str:
    return node.id + _SHAPES[node.kind].format(_label(node.lines))


def _edge(edge: Edge) -> str:
    return f"{edge.start} {'-->' if edge.of else '-.->'} {edge.end}"


def _label(texts: Iterable[str]) -> str:
    """Build a quoted label of several lines.

    Characters that may be special to Mermaid appear as numeric codes.
    """
    return '"' + "<br/>".join(_SAFE.sub(_escape_character, text) for text in texts if text) + '"'


def _escape_character(match: re.Match[str]) -> str:
    return f"#{ord(match.group())};"
