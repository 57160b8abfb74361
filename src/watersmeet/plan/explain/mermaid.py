"""A job's plan as the text of a Mermaid flowchart: sources, inputs, joins, filters, sinks."""

from __future__ import annotations

import re
from collections.abc import Iterable

from watersmeet.plan.explain.graph import FILTER, GROUPS, INPUT, JOIN, STORED, Edge, Node, graph_of
from watersmeet.plan.model.job import JobPlan

_SAFE = re.compile(r"[^\w .,:()\[\]/*+=?!'|-]")
_SHAPES = {STORED: "[({})]", INPUT: "[{}]", JOIN: "{{{{{}}}}}", GROUPS: "[[{}]]", FILTER: "[/{}/]"}


def mermaid(plan: JobPlan) -> str:
    """The flowchart; a source that several queries read is drawn once. Ends with a newline."""
    graph = graph_of(plan)
    lines = ["flowchart LR", *(f"  {_node(source)}" for source in graph.sources)]
    for query in graph.queries:
        lines.append(f"  subgraph {query.id}[{_label([f'query {query.name}'])}]")
        lines += [f"    {_node(part) if isinstance(part, Node) else _edge(part)}" for part in query.within]
        lines.append("  end")
        lines += [f"  {_edge(edge)}" for edge in query.outside]
        if query.sink is not None:
            sink, edge = query.sink
            lines.append(f"  {edge.start} --> {_node(sink)}")
    return "\n".join(lines) + "\n"


def _node(node: Node) -> str:
    return node.id + _SHAPES[node.kind].format(_label(node.lines))


def _edge(edge: Edge) -> str:
    return f"{edge.start} {'-->' if edge.of else '-.->'} {edge.end}"


def _label(texts: Iterable[str]) -> str:
    """A quoted label of several lines. Whatever may mean something to Mermaid is written as its number."""
    return '"' + "<br/>".join(_SAFE.sub(_numbered, text) for text in texts if text) + '"'


def _numbered(match: re.Match[str]) -> str:
    return f"#{ord(match.group())};"
