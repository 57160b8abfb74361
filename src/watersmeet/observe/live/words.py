"""Numbers, times and names in few characters, and the little drawings beside them.

Widths are cells of a terminal: a Chinese character has two, a combining accent none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from watersmeet.errors import printable
from watersmeet.event_time import DAY_US
from watersmeet.plan.explain.durations import duration, rounded_up


@dataclass(frozen=True)
class Glyphs:
    """The characters that drawings are made of. ``levels``: of a sparkline, from nothing to the most;
    ``full``, ``empty``: of a bar; ``more``: stands for what is cut away; ``dot``: between words."""

    levels: str
    full: str
    empty: str
    more: str
    dot: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "█", "░", "…", "·")
ASCII = Glyphs("_.:-=+*#", "#", ".", "~", "-")
"""For terminals that know no others."""


def glyphs_for(encoding: str) -> Glyphs:
    """
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


def short(value: float) -> str:
    """A number in at most five characters, up to a quadrillion.

    >>> [short(value) for value in (0, 0.04, 3.44, 99.96, 950, 999.7, 12_345, 99_960, 1_000_000, 2.5e9)]
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
    """A count, whole where it fits.

    >>> count_in(12_345_678), count_in(123_456_789_012)
    ('12,345,678', '123G')
    """
    whole = f"{value:,}"
    return whole if len(whole) <= cells else short(value)


def rough(us: int) -> str:
    """A length of time, rounded up: in whole milliseconds, from one second on in seconds, and long ones in
    days.

    >>> [rough(us) for us in (12_340_000, 1_500, -3_000_000, 0, 3_661_000_000, 5_000 * DAY_US + 1)]
    ['13 s', '2 ms', '-3 s', '0 s', '1 h 2 min', '5,001 d']
    """
    if us < 0:
        return f"-{rough(-us)}"
    if us < 1_000_000:
        return duration(-(-us // 1_000) * 1_000)
    if us >= _LONG_US:
        return f"{-(-us // DAY_US):,} d"
    return rounded_up(-(-us // 1_000_000) * 1_000_000)


def so_far(seconds: float) -> str:
    """Time that has gone by, in the two greatest units that it has.

    >>> so_far(59.9), so_far(4_321), so_far(200_000)
    ('59 s', '1 h 12 min', '2 d 7 h')
    """
    whole = int(seconds)
    unit = 1 if whole < 3_600 else 60 if whole < 86_400 else 3_600
    return duration(whole // unit * unit * 1_000_000)


def one_line(text: str, glyphs: Glyphs, encoding: str = "utf-8") -> str:
    """A name as it can be shown: without line ends, and what steers or cannot be written as Python writes it.

    >>> one_line("a\\nb\\tc\\x1b[31m", UNICODE), one_line("é→x", ASCII, "latin-1")
    ('a\\\\nb\\\\tc\\\\x1b[31m', 'é\\\\u2192x')
    """
    told = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    return told if glyphs is UNICODE else told.encode(encoding, "backslashreplace").decode(encoding)


def cut(text: str, cells: int, glyphs: Glyphs) -> str:
    """So much of the beginning as fits.

    >>> cut("deliveries", 6, UNICODE), cut("deliveries", 10, UNICODE), cut("日本語", 4, UNICODE)
    ('deliv…', 'deliveries', '日…')
    """
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, max(cells - 1, 0)).rstrip() + glyphs.more if cells > 0 else ""


def cut_name(text: str, cells: int, glyphs: Glyphs) -> str:
    """The same of a name with parts: its end tells it from others as well as its beginning.

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
    """The last values as columns from nothing to the most of them; as wide as is asked for.

    >>> sparkline([0, 1, 2, 4], 6, UNICODE), sparkline([0, 0], 2, UNICODE)
    ('  ▁▃▅█', '▁▁')
    """
    last = values[-cells:] if cells else ()
    most = max(last, default=0) or 1
    top = len(glyphs.levels) - 1
    drawn = "".join(glyphs.levels[min(top, max(0, round(top * value / most)))] for value in last)
    return drawn.rjust(cells)


def bar(share: float, cells: int, glyphs: Glyphs) -> str:
    """Full up to a share; never full before it is, nor empty when there is something.

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
    """
    >>> percent(0.999), percent(1), percent(0.0004), percent(1.239), percent(26.78), percent(1e12)
    ('99 %', '100 %', '<1 %', '123 %', '26x', '1.0Tx')
    """
    if 0 < share < 0.01:
        return "<1 %"
    if share < 10:
        return f"{math.floor(share * 100 + 1e-9)} %"
    return f"{short(math.floor(share))}x"
