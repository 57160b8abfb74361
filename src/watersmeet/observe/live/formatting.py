"""Format numbers, times and columns for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from watersmeet.errors import printable
from watersmeet.event_time import DAY_US
from watersmeet.plan.explain.wording import duration, rounded_up

# Numbers, times and names in few characters, and the little drawings beside them.
#
# Widths are cells of a terminal: a Chinese character has two, a combining accent none.


@dataclass(frozen=True)
class Glyphs:
    """The characters of drawings.

    Attributes:
        levels: Levels of a sparkline, from zero to the maximum.
        full, empty: Cells of a bar.
        more: Replaces text that is cut off.
        dot: Separates words.
    """

    levels: str
    full: str
    empty: str
    more: str
    dot: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "█", "░", "…", "·")
ASCII = Glyphs("_.:-=+*#", "#", ".", "~", "-")
"""For terminals that know no others."""


def glyphs_for(encoding: str) -> Glyphs:
    """Return the glyphs that an encoding can write: Unicode or ASCII.

    >>> glyphs_for("utf-8").more, glyphs_for("latin-1").more, glyphs_for("?").more
    ('…', '~', '~')
    """
    try:
        "".join(vars(UNICODE).values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


_LONG_US = 10 * DAY_US
_THOUSANDS = ("", "k", "M", "G", "T")


def format_short(value: float) -> str:
    """Format a number in at most five characters, up to a quadrillion.

    >>> [format_short(x) for x in (0, 0.04, 3.44, 99.96, 950, 999.7, 12_345, 99_960, 1_000_000, 2.5e9)]
    ['0', '0.04', '3.4', '100', '950', '1.0k', '12.3k', '100k', '1.0M', '2.5G']
    """
    if value < 99.95:
        if 0 < value < 0.1:
            return f"{value:.2f}" if value >= 0.005 else "<0.01"
        return f"{value:.1f}".removesuffix(".0")
    step = 0
    while value >= 999.5 and step < len(_THOUSANDS) - 1:
        value, step = value / 1_000, step + 1
    return f"{value:.1f}{_THOUSANDS[step]}" if step and value < 99.95 else f"{value:.0f}{_THOUSANDS[step]}"


def count_in(value: int, cells: int = 11) -> str:
    """Format a count in full where it fits into `cells`, else in short form.

    >>> count_in(12_345_678), count_in(123_456_789_012)
    ('12,345,678', '123G')
    """
    whole = f"{value:,}"
    return whole if len(whole) <= cells else format_short(value)


def format_rough(us: int) -> str:
    """Format a duration in µs, rounded up.

    The unit is whole milliseconds below one second, then seconds; long durations are in days.

    >>> [format_rough(us) for us in (12_340_000, 1_500, -3_000_000, 0, 3_661_000_000, 5_000 * DAY_US + 1)]
    ['13 s', '2 ms', '-3 s', '0 s', '1 h 2 min', '5,001 d']
    """
    if us < 0:
        return f"-{format_rough(-us)}"
    if us < 1_000_000:
        return duration(-(-us // 1_000) * 1_000)
    if us >= _LONG_US:
        return f"{-(-us // DAY_US):,} d"
    return rounded_up(-(-us // 1_000_000) * 1_000_000)


def format_elapsed(seconds: float) -> str:
    """Time that has gone by, in the two greatest units that it has.

    >>> format_elapsed(59.9), format_elapsed(4_321), format_elapsed(200_000)
    ('59 s', '1 h 12 min', '2 d 7 h')
    """
    whole = int(seconds)
    unit = 1 if whole < 3_600 else 60 if whole < 86_400 else 3_600
    return duration(whole // unit * unit * 1_000_000)


def one_line(text: str, glyphs: Glyphs, encoding: str = "utf-8") -> str:
    """Escape a name for one line of output.

    Line ends, control characters and characters that the encoding cannot write appear as Python
    escapes.

    >>> one_line("a\\nb\\tc\\x1b[31m", UNICODE), one_line("é→x", ASCII, "latin-1")
    ('a\\\\nb\\\\tc\\\\x1b[31m', 'é\\\\u2192x')
    """
    told = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    return told if glyphs is UNICODE else told.encode(encoding, "backslashreplace").decode(encoding)


def cut(text: str, cells: int, glyphs: Glyphs) -> str:
    """Truncate a text to `cells` and retain its beginning.

    >>> cut("deliveries", 6, UNICODE), cut("deliveries", 10, UNICODE), cut("日本語", 4, UNICODE)
    ('deliv…', 'deliveries', '日…')
    """
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, max(cells - 1, 0)).rstrip() + glyphs.more if cells > 0 else ""


def cut_name(text: str, cells: int, glyphs: Glyphs) -> str:
    """Truncate a name that has parts to `cells` and retain its beginning and its end.

    The end distinguishes such a name from others as well as the beginning.

    >>> cut_name("a_long_query.o.order_time", 16, UNICODE)
    'a_long_q…er_time'
    """
    if cell_len(text) <= cells:
        return text
    if cells < 8:
        return cut(text, cells, glyphs)
    tail = (cells - 1) // 2
    end = text
    while cell_len(end) > tail:
        end = end[1:]
    return set_cell_size(text, cells - 1 - cell_len(end)).rstrip() + glyphs.more + end


def sparkline(values: Sequence[float], cells: int, glyphs: Glyphs) -> str:
    """Draw the last values as columns between zero and their maximum, `cells` wide.

    >>> sparkline([0, 1, 2, 4], 6, UNICODE), sparkline([0, 0], 2, UNICODE)
    ('  ▁▃▅█', '▁▁')
    """
    last = values[-cells:] if cells else ()
    most = max(last, default=0) or 1
    top = len(glyphs.levels) - 1
    drawn = "".join(glyphs.levels[min(top, max(0, round(top * value / most)))] for value in last)
    return drawn.rjust(cells)


def bar(share: float, cells: int, glyphs: Glyphs) -> str:
    """Draw a bar that is filled up to a share.

    It is full only when the share is, and it is empty only when the share is zero.

    >>> bar(0.5, 4, UNICODE), bar(0.999, 4, UNICODE), bar(0.001, 4, UNICODE), bar(7, 4, UNICODE)
    ('██░░', '███░', '█░░░', '████')
    """
    full = min(cells, max(0, round(share * cells)))
    if share < 1:
        full = min(full, cells - 1)
    if share > 0:
        full = max(full, min(1, cells))
    return glyphs.full * full + glyphs.empty * (cells - full)


def percent(share: float) -> str:
    """Format a share as a percentage, rounded down, or as a multiple from 10 on.

    >>> percent(0.999), percent(1), percent(0.0004), percent(1.239), percent(26.78), percent(1e12)
    ('99 %', '100 %', '<1 %', '123 %', '26x', '1.0Tx')
    """
    if 0 < share < 0.01:
        return "<1 %"
    if share < 10:
        return f"{math.floor(share * 100 + 1e-9)} %"
    return f"{format_short(math.floor(share))}x"


# Rows under each other in columns, in as many cells as there are.
#
# Where these are too few the columns go that matter least, then names are cut. A line is pieces of text
# with a style each; styles are rich's.

Piece = tuple[str, str]
"""A text, and its style; "": none."""
Line = tuple[Piece, ...]

GAP = 2
NAME_SHARE = 4
"""A name is cut to this part of a line before columns go."""
MIN_REST = 12
HEADER = "dim"


@dataclass(frozen=True)
class TableColumn:
    """A column of a table that fits into a given width.

    Attributes:
        drop: Columns with the greatest number are removed first if the table is too wide; 0: never removed.
        right: Align texts to the right.
        name: Shorten texts in the middle if the table is too wide.
        rest: The last column, which takes the remaining width.
    """

    title: str
    drop: int = 0
    right: bool = False
    name: bool = False
    rest: bool = False


def lay_out_table(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[Piece]], cells: int, glyphs: Glyphs
) -> list[Line]:
    """Build a line of titles and one line per row, none wider than `cells`.

    Columns without any text are left out.
    """
    kept = [n for n in range(len(columns)) if any(row[n][0] for row in rows)]
    widths = {
        n: max(cell_len(text) for text in (columns[n].title, *(row[n][0] for row in rows))) for n in kept
    }
    least = dict(widths)
    for n in kept:
        if columns[n].name:
            least[n] = min(widths[n], max(cells // NAME_SHARE, cell_len(columns[n].title)))
        elif columns[n].rest:
            least[n] = min(widths[n], MIN_REST)
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
    columns: Sequence[TableColumn],
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
    return fit_line(line, cells, glyphs)


def fit_line(line: Sequence[Piece], cells: int, glyphs: Glyphs) -> Line:
    """Return the pieces of a line that fit into `cells`, the last one truncated."""
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
    """Return the text of a line without styles and without trailing blanks."""
    return "".join(text for text, _ in line).rstrip()
