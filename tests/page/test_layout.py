"""Drawings of all plans of the golden files: nothing overlaps, everything goes to the right."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import watersmeet
from tests.support.package_paths import find_paths
from watersmeet.errors import WatersmeetError
from watersmeet.history.plan_document import Drawing, DrawnEdge, DrawnNode
from watersmeet.page.layout import MAX_NODE_LINES, MOST_CHARACTERS, PORT, lay_out_drawing

GOLDEN = Path(__file__).parents[1] / "golden"


def drawings():
    for file in find_paths(GOLDEN, "*.sql"):
        text = file.read_text()
        if not text.startswith("-- fail="):
            try:
                yield file.stem, Drawing.of_plan(watersmeet.plan_job(watersmeet.parse_job(text)))
            except WatersmeetError:
                continue  # of files that need their options


def test_nothing_overlaps_and_everything_goes_to_the_right():
    seen = 0
    for name, drawing in drawings():
        drawn = lay_out_drawing(drawing)
        seen += 1
        boxes = {placed.node.id: placed for placed in drawn.nodes}
        assert set(boxes) == {node.id for node in drawing.nodes}, name
        assert len(drawn.edges) == len(drawing.edges), name
        every = list(boxes.values())
        for n, one in enumerate(every):
            assert 0 <= one.x <= one.x + one.width <= drawn.width, name
            assert 0 <= one.y <= one.y + one.height <= drawn.height, name
            for other in every[:n]:
                apart = one.x + one.width <= other.x or other.x + other.width <= one.x
                assert apart or one.y + one.height <= other.y or other.y + other.height <= one.y, name
        ends: dict[str, list[int]] = {}
        for edge, begin, end in drawn.edges:
            start, target = boxes[edge.start], boxes[edge.end]
            assert begin[0] == start.x + start.width < end[0] == target.x, name
            assert start.y <= begin[1] <= start.y + start.height, name
            assert target.y <= end[1] <= target.y + target.height, name
            ends.setdefault(edge.end, []).append(end[1])
        for places in ends.values():
            places.sort()
            assert all(b - a >= PORT - 1 for a, b in pairwise(places)), name
    assert seen > 20


def test_long_texts_are_cut_and_an_empty_plan_is_nothing():
    node = DrawnNode(id="a", kind="join", lines=("x" * 99,) * 20)
    (placed,) = lay_out_drawing(Drawing(nodes=(node,))).nodes
    assert len(placed.lines) == MAX_NODE_LINES
    assert placed.lines[-1] == "…"
    assert {len(line) for line in placed.lines[:-1]} == {MOST_CHARACTERS}
    most = MOST_CHARACTERS // 2
    wide = DrawnNode(id="a", kind="join", lines=("注" * most, "注" * (most + 1), "x" + "注" * most))
    (placed,) = lay_out_drawing(Drawing(nodes=(wide,))).nodes
    assert placed.lines == ("注" * most, "注" * (most - 1) + "…", "x" + "注" * (most - 1) + "…")
    assert lay_out_drawing(Drawing()).nodes == ()


def test_an_edge_to_what_is_not_there_is_not_drawn():
    nodes = (DrawnNode(id="a", kind="join", lines=("a",)),)
    assert lay_out_drawing(Drawing(nodes=nodes, edges=(DrawnEdge(start="a", end="x"),))).edges == ()
