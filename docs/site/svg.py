"""Plain SVG, the same for the same calls: numbers as integers, elements in the order of the calls."""

from __future__ import annotations

from html import escape

INK, GREY, PALE, PAPER, RED = "#1f2933", "#7b8794", "#d9e0e7", "#ffffff", "#c0392b"
COLOURS = ("#1f6fb2", "#d9730d", "#2e8540", "#7a4fb5")
"""Told apart also without colour: every input has a shape of its own besides."""


class Drawing:
    """Elements on white paper, in pixels; ``text()`` is the file."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._head = (width, height, title)
        self._elements: list[str] = []

    def line(
        self, x1: int, y1: int, x2: int, y2: int, colour: str, *, width: int = 2, dash: str = ""
    ) -> None:
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._add(f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{colour}" stroke-width="{width}"{dashed}/>')

    def steps(self, points: list[tuple[int, int]], colour: str, *, dash: str = "") -> None:
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        path = "L".join(f"{x} {y}" for x, y in points)
        self._add(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>')

    def arrow(self, x1: int, y1: int, x2: int, y2: int, colour: str) -> None:
        self._add(
            f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{colour}" stroke-width="2" marker-end="url(#tip)"/>'
        )

    def box(self, x: int, y: int, width: int, height: int, colour: str, *, fill: str = PAPER) -> None:
        self._add(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" '
            f'stroke="{colour}" stroke-width="2"/>'
        )

    def mark(self, x: int, y: int, shape: str, colour: str, *, hollow: bool = False) -> None:
        fill = PAPER if hollow else colour
        if shape == "circle":
            self._add(f'<circle cx="{x}" cy="{y}" r="7" fill="{fill}" stroke="{colour}" stroke-width="2"/>')
        elif shape == "cross":
            self.line(x - 6, y - 6, x + 6, y + 6, colour, width=3)
            self.line(x - 6, y + 6, x + 6, y - 6, colour, width=3)
        else:
            self._add(
                f'<rect x="{x - 6}" y="{y - 6}" width="12" height="12" fill="{fill}" '
                f'stroke="{colour}" stroke-width="2"/>'
            )

    def write(
        self, x: int, y: int, text: str, colour: str = INK, *, anchor: str = "start", size: int = 13
    ) -> None:
        halo = f'stroke="{PAPER}" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
        place = f'x="{x}" y="{y}" fill="{colour}" font-size="{size}" text-anchor="{anchor}"'
        self._add(f"<text {place} {halo}>{escape(text)}</text>")

    def text(self) -> str:
        width, height, title = self._head
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                f'height="{height}" font-family="sans-serif" role="img">',
                f"<title>{escape(title)}</title>",
                '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
                f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker>',
                f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>',
                *self._elements,
                "</svg>",
                "",
            ]
        )

    def _add(self, element: str) -> None:
        self._elements.append(element)
