"""Rows under each other in columns, in as many cells as there are.

Where these are too few the columns go that matter least, then names are cut. A line is pieces of text with
a style each; styles are rich's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from watersmeet.observe.live.words import Glyphs, cut, cut_name

Piece = tuple[str, str]
"""A text, and its style; "": none."""
Line = tuple[Piece, ...]

GAP = 2
NAME_SHARE = 4
"""A name is cut to this part of a line before columns go."""
LEAST_REST = 12
HEADER = "dim"


@dataclass(frozen=True)
class Column:
    """``drop``: those with the greatest go first where there is no room; 0: it stays. ``right``: to which its
    texts are pushed; ``name``: they are cut in the middle, where there is no room; ``rest``: the last one,
    which takes what is left."""

    title: str
    drop: int = 0
    right: bool = False
    name: bool = False
    rest: bool = False


def laid_out(
    columns: Sequence[Column], rows: Sequence[Sequence[Piece]], cells: int, glyphs: Glyphs
) -> list[Line]:
    """A line of titles, and one per row; none is wider than ``cells``. Columns in which nothing stands are
    left out."""
    kept = [n for n in range(len(columns)) if any(row[n][0] for row in rows)]
    widths = {
        n: max(cell_len(text) for text in (columns[n].title, *(row[n][0] for row in rows))) for n in kept
    }
    least = dict(widths)
    for n in kept:
        if columns[n].name:
            least[n] = min(widths[n], max(cells // NAME_SHARE, cell_len(columns[n].title)))
        elif columns[n].rest:
            least[n] = min(widths[n], LEAST_REST)
    while sum(least[n] + GAP for n in kept) - GAP > cells:
        going = max(kept, key=lambda n: columns[n].drop)
        if not columns[going].drop:
            break
        kept.remove(going)
    for n in sorted(kept, key=lambda n: not columns[n].rest):
        excess = sum(widths[n] + GAP for n in kept) - GAP - cells
        widths[n] = max(least[n], widths[n] - max(excess, 0))
    lines = [_line([(columns[n].title, HEADER) for n in kept], kept, columns, widths, cells, glyphs)]
    return lines + [_line([row[n] for n in kept], kept, columns, widths, cells, glyphs) for row in rows]


def _line(
    pieces: Sequence[Piece],
    kept: Sequence[int],
    columns: Sequence[Column],
    widths: dict[int, int],
    cells: int,
    glyphs: Glyphs,
) -> Line:
    line: list[Piece] = []
    for place, (n, (text, style)) in enumerate(zip(kept, pieces, strict=True)):
        shown = (cut_name if columns[n].name else cut)(text, widths[n], glyphs)
        gap = " " * GAP if place else ""
        pad = " " * (widths[n] - cell_len(shown))
        if columns[n].right:
            line += [(gap + pad, ""), (shown, style)]
        else:
            last = place == len(kept) - 1
            line += [(gap, ""), (shown, style), ("" if last else pad, "")]
    return fitted(line, cells, glyphs)


def fitted(line: Sequence[Piece], cells: int, glyphs: Glyphs) -> Line:
    """The pieces that fit, the last one cut."""
    fitting: list[Piece] = []
    left = cells
    for text, style in line:
        if not text:
            continue
        wide = cell_len(text)
        if wide > left:
            fitting.append((cut(text, left, glyphs), style))
            break
        fitting.append((text, style))
        left -= wide
    return tuple(fitting)


def text_of(line: Line) -> str:
    """Without styles, and without what is blank at its end."""
    return "".join(text for text, _ in line).rstrip()
