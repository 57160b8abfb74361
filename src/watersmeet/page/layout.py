"""Positions of the nodes and edges of a plan's drawing.

Layers run from left to right. Each query is a tree of the nodes that feed it, above the next query.
Positions and sizes are pixels. Each edge ends at a place of its own, with room above it for its label.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

from watersmeet.history.plan_document import Drawing, DrawnEdge, DrawnNode

LINE, PAD, GAP = 16, 8, 28
LAYER_GAP = 210
"""Between two layers: edges, and what is written at their ends."""
PORT = 56
"""Between the ends of two edges at a node: three lines."""
MAX_NODE_LINES, MOST_CHARACTERS = 7, 38
_WIDTH = 7.4


@dataclass(frozen=True)
class PlacedNode:
    """A node. ``lines``: as far as they are shown."""

    node: DrawnNode
    lines: tuple[str, ...]
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class PlacedDrawing:
    """``edges``: each with where it begins and ends."""

    width: int
    height: int
    nodes: tuple[PlacedNode, ...]
    edges: tuple[tuple[DrawnEdge, tuple[int, int], tuple[int, int]], ...]


def lay_out_drawing(drawing: Drawing) -> PlacedDrawing:
    """Place all nodes and edges of a drawing."""
    if not drawing.nodes:
        return PlacedDrawing(0, 0, (), ())
    nodes = {node.id: node for node in drawing.nodes}
    edges = [edge for edge in drawing.edges if edge.start in nodes and edge.end in nodes]
    before, behind = defaultdict[str, list[DrawnEdge]](list), defaultdict[str, list[DrawnEdge]](list)
    for edge in edges:
        before[edge.end].append(edge)
        behind[edge.start].append(edge)
    layers = _layers(list(nodes), before, behind)
    lines = {node.id: _fit_lines(node.lines) for node in drawing.nodes}
    heights = {own: max(2 * PAD + LINE * len(lines[own]), PORT * len(before[own])) for own in nodes}
    centres = _heights_of_centres(list(nodes), layers, before, behind, heights)
    widths = defaultdict[int, int](int)
    for own, layer in layers.items():
        wide = round(2 * PAD + _WIDTH * max(columns_of(line) for line in lines[own]))
        widths[layer] = max(widths[layer], wide, 90)
    lefts = {layer: GAP + sum(widths[n] + LAYER_GAP for n in range(layer)) for layer in widths}
    placed = {
        own: PlacedNode(
            node,
            lines[own],
            lefts[layers[own]],
            round(centres[own] - heights[own] / 2),
            widths[layers[own]],
            round(heights[own]),
        )
        for own, node in nodes.items()
    }
    ends = _ends(placed, before, behind)
    last = max(widths)
    return PlacedDrawing(
        lefts[last] + widths[last] + GAP,
        max(one.y + one.height for one in placed.values()) + GAP,
        tuple(placed.values()),
        tuple((edge, *ends[id(edge)]) for edge in edges),
    )


def _fit_lines(lines: Sequence[str]) -> tuple[str, ...]:
    cut = [_fitting(line) for line in lines]
    return (*cut,) if len(cut) <= MAX_NODE_LINES else (*cut[: MAX_NODE_LINES - 1], "…")


def columns_of(text: str) -> int:
    """Count the characters of a text; wide ones (Chinese, Japanese, Korean) count twice."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _fitting(line: str) -> str:
    if columns_of(line) <= MOST_CHARACTERS:
        return line
    while columns_of(line) >= MOST_CHARACTERS:
        line = line[:-1]
    return f"{line}…"


_Edges = Mapping[str, Sequence[DrawnEdge]]


def _layers(nodes: Sequence[str], before: _Edges, behind: _Edges) -> dict[str, int]:
    """Assign each node to a layer after all layers of the nodes that feed it.

    A node without inputs whose consumers are in later layers stands directly before the first of these.
    """
    layers: dict[str, int] = {}

    def layer_of(own: str) -> int:
        if own not in layers:
            layers[own] = max((layer_of(edge.start) + 1 for edge in before[own]), default=0)
        return layers[own]

    for own in nodes:
        layer_of(own)
    for own in nodes:
        if not before[own] and behind[own]:
            layers[own] = min(layers[edge.end] for edge in behind[own]) - 1
    return layers


def _heights_of_centres(
    nodes: Sequence[str],
    layers: Mapping[str, int],
    before: _Edges,
    behind: _Edges,
    heights: Mapping[str, float],
) -> dict[str, float]:
    """Compute the vertical centres of all nodes.

    A source that several queries read stands at the mean of its consumers.
    """
    shared = {own for own in nodes if layers[own] == 0 and not before[own]}
    centres: dict[str, float] = {}
    bottom = float(GAP)

    def place(own: str) -> None:
        nonlocal bottom
        if own in centres:
            return
        feeding = [edge.start for edge in before[own] if edge.start not in shared]
        top = bottom
        centres[own] = 0.0
        for start in feeding:
            place(start)
        if feeding:
            middle = sum(centres[start] for start in feeding) / len(feeding)
            centres[own] = max(middle, top + heights[own] / 2)
        else:
            centres[own] = bottom + heights[own] / 2
        bottom = max(bottom, centres[own] + heights[own] / 2 + GAP)

    for own in nodes:
        if not behind[own]:
            place(own)
    for own in shared:
        taking = [centres[edge.end] for edge in behind[own] if edge.end in centres]
        centres[own] = sum(taking) / len(taking) if taking else bottom
    _separate_nodes(centres, layers, heights)
    return centres


def _separate_nodes(
    centres: dict[str, float], layers: Mapping[str, int], heights: Mapping[str, float]
) -> None:
    """Move nodes down so that no two nodes of a layer overlap."""
    of_layer = defaultdict[int, list[str]](list)
    for own in centres:
        of_layer[layers[own]].append(own)
    for layer in of_layer.values():
        bottom = float(GAP)
        for own in sorted(layer, key=lambda one: centres[one] - heights[one] / 2):
            centres[own] = max(centres[own], bottom + heights[own] / 2)
            bottom = centres[own] + heights[own] / 2 + GAP


def _ends(
    placed: Mapping[str, PlacedNode], before: _Edges, behind: _Edges
) -> dict[int, tuple[tuple[int, int], tuple[int, int]]]:
    """Return where each edge begins and ends, by its identity.

    Edges at a node are in the vertical order of the nodes at their other ends.
    """
    begins: dict[int, tuple[int, int]] = {}
    ends: dict[int, tuple[int, int]] = {}
    for own, box in placed.items():
        leaving = sorted(behind[own], key=lambda edge: placed[edge.end].y)
        for n, edge in enumerate(leaving):
            begins[id(edge)] = box.x + box.width, box.y + _port(box.height, n, len(leaving))
        coming = sorted(before[own], key=lambda edge: placed[edge.start].y)
        for n, edge in enumerate(coming):
            ends[id(edge)] = box.x, box.y + _port(box.height, n, len(coming))
    return {edge: (begin, ends[edge]) for edge, begin in begins.items()}


def _port(height: int, n: int, of: int) -> int:
    return round(height * (2 * n + 1) / (2 * of))
