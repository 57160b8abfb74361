"""A run as lines for a terminal of a given size: what matters most first, where there is no room for all.

Nothing here has a clock or a terminal: the same snapshot, times and size give the same lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len

from watersmeet.event_time import NEVER, shown_time
from watersmeet.observe.live.formatting import (
    Glyphs,
    Line,
    Piece,
    TableColumn,
    bar,
    count_in,
    cut_name,
    fit_line,
    format_elapsed,
    format_rough,
    format_short,
    lay_out_table,
    one_line,
    percent,
    sparkline,
)
from watersmeet.observe.live.totals import (
    FAILED,
    RUNNING,
    SIDE_OUTPUT_PLACES,
    STARTING,
    MarkRow,
    Snapshot,
)
from watersmeet.observe.row_accounting import LABELS
from watersmeet.observe.watermark_holders import ahead_words
from watersmeet.plan.explain.wording import size_of

BAD, WARN, GOOD, FAINT, STRONG, LOOK = "bold red", "yellow", "green", "dim", "bold", "cyan"
FAR_ABOVE = 1.5
"""So much more than forecast is bad: as in the alert rules."""
SLOW_S = 1.0
"""A tick in hand is told of once it has taken so long."""


@dataclass(frozen=True)
class RunMoment:
    """State of a run that does not come from tick reports.

    Attributes:
        state: state of the run.
        since_s: seconds since the run started.
        in_hand: number of the tick in progress, and for how many seconds it has been; None: no tick.
        clock_us: the clock, from which delays are computed.
        page: address at which a browser shows more.
    """

    title: str
    state: str
    since_s: float
    clock_us: int
    bounded: bool = False
    in_hand: tuple[int, float] | None = None
    page: str | None = None


@dataclass(frozen=True)
class ViewSettings:
    """``cells``, ``lines``: of the terminal; ``encoding``: its."""

    cells: int
    lines: int
    glyphs: Glyphs
    encoding: str = "utf-8"

    def name(self, text: str) -> str:
        return one_line(text, self.glyphs, self.encoding)

    @property
    def count(self) -> int:
        """Cells of a count of rows that are kept."""
        return 9 if self.cells >= 60 else 5

    @property
    def spark(self) -> int:
        """Cells of a sparkline."""
        return 20 if self.cells >= 110 else 10


@dataclass(frozen=True)
class _Section:
    """A table; ``worst``: the places of its rows, that which has to be seen most first."""

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Piece]]
    worst: Sequence[int]

    def lines(self, most: int, look: ViewSettings) -> list[Line]:
        """Build at most `most` lines of the section, including titles.

        When not all rows fit, the first title says how many of them are shown.
        """
        if most < 2 or not self.rows:
            return []
        columns, rows = list(self.columns), self.rows
        if len(rows) > most - 1:
            shown = sorted(self.worst[: most - 1])
            rows = [rows[n] for n in shown]
            title = f"{columns[0].title} {len(shown)}/{len(self.rows)}"
            columns[0] = TableColumn(title, name=True)
        return lay_out_table(columns, rows, look.cells, look.glyphs)

    @property
    def height(self) -> int:
        return len(self.rows) + 1 if self.rows else 0


def frame(shot: Snapshot, now: RunMoment, look: ViewSettings) -> list[Line]:
    """Build the view in at most `look.lines` lines of at most `look.cells` cells."""
    head = [fit_line(line, look.cells, look.glyphs) for line in _head(shot, now, look)][: look.lines]
    sections = [_queries(shot, look), _marks(shot, now, look), _inputs(shot, look)]
    foot = [fit_line(line, look.cells, look.glyphs) for line in _foot(shot, look)]
    if shot.report is None:  # of a run that could not begin nothing is shown: why, is told
        return head if now.state in (STARTING, RUNNING) else []
    room = look.lines - len(head)
    heights = [section.height for section in sections]
    parts = [*(height for height in heights if height), len(foot)]
    if sum(parts) + len(parts) <= room:
        lines = head
        for told in [*(section.lines(section.height, look) for section in sections), foot]:
            lines += [(), *told] if told else []
        return lines
    given = _share_lines(heights, room, len(foot))
    lines = head
    for section, most in zip(sections, given[:-1], strict=True):
        lines += section.lines(most, look)
    return [*lines, *foot[: given[-1]]]


class FrameRenderer:
    """Gives frames, each made once: what is shown changes with ticks, and from second to second."""

    def __init__(self) -> None:
        self._shot: Snapshot | None = None
        self._of: tuple[object, ...] = ()
        self._lines: list[Line] = []

    def lines(self, shot: Snapshot, now: RunMoment, look: ViewSettings) -> list[Line]:
        """Return the lines of the view; reuse lines less than a second old if nothing else changed."""
        number, seconds = now.in_hand or (None, 0.0)
        of = (look, now.state, now.page, int(now.since_s), number, int(seconds))
        if shot is not self._shot or of != self._of:
            self._shot, self._of, self._lines = shot, of, frame(shot, now, look)
        return self._lines


def _share_lines(heights: Sequence[int], room: int, foot: int) -> list[int]:
    """Divide the lines of a room that is too small for all among the sections and the foot.

    Each section first gets its titles and one row, the first sections first; then the foot gets one
    line; then the sections get one row each in turns. The foot gets the remaining lines.
    """
    given = [0] * len(heights)
    for n, height in enumerate(heights):
        if height and room >= 2:
            given[n], room = 2, room - 2
    first = min(foot, 1, room)
    room -= first
    while room > 0 and any(0 < mine < height for mine, height in zip(given, heights, strict=True)):
        for n, height in enumerate(heights):
            if 0 < given[n] < height and room > 0:
                given[n] += 1
                room -= 1
    return [*given, first + min(room, foot - first)]


def _head(shot: Snapshot, now: RunMoment, look: ViewSettings) -> Iterator[Line]:
    state = (now.state, {FAILED: BAD, RUNNING: GOOD, STARTING: LOOK}.get(now.state, STRONG))
    since = f" {'for' if now.state in (STARTING, RUNNING) else 'after'} {format_elapsed(now.since_s)}"
    tick = None if shot.report is None else shot.report.tick
    told: list[Piece] = [] if tick is None else [("  tick ", ""), (f"{tick:,}", STRONG)]
    if now.in_hand is not None and (tick is None or now.in_hand[1] >= SLOW_S):
        number, seconds = now.in_hand
        told = [("  tick ", ""), (f"{number:,}", STRONG), (f" since {format_elapsed(seconds)}", LOOK)]
    behind = sum(cell_len(text) for text, _ in (state, *told)) + 2
    title = cut_name(look.name(now.title), max(8, look.cells - behind), look.glyphs)
    line: list[Piece] = [(title, STRONG), ("  ", ""), state]
    if cell_len(title) + behind + len(since) <= look.cells:
        line.append((since, ""))
    line += told
    used = sum(cell_len(text) for text, _ in line)
    if now.page is None:
        yield tuple(line)
    elif used + 2 + cell_len(now.page) <= look.cells:
        yield (*line, (" " * (look.cells - used - cell_len(now.page)), ""), (now.page, LOOK))
    else:
        yield tuple(line)
        yield ((now.page, LOOK),)
    if shot.report is not None:
        yield _progress(shot, now, look)
        if held := ahead_words(shot.report.paused_sources, _is_in_time(shot)):
            yield ((look.name(held), LOOK),)


def _progress(shot: Snapshot, now: RunMoment, look: ViewSettings) -> Line:
    """Build the line of rows read and rows not yet read, with a bar for a bounded input."""
    assert shot.report is not None
    behind = shot.report.behind
    read: Line = (("read ", FAINT), (f"{count_in(shot.rows_in)} rows", ""))
    unread: Line = ((f"  backlog {behind}", ""),) if behind else ()
    if not now.bounded:
        return (*read, (f"  {format_short(shot.in_rate)} rows/s", ""), *unread)
    is_over = now.state not in (STARTING, RUNNING, FAILED)
    done = 1.0 if is_over and not behind else shot.left.done
    if done is None:
        return (*read, *unread)
    words = f" {percent(done):>5}"
    seconds = shot.left.seconds(shot.in_rate)
    if behind and seconds is not None and now.state == RUNNING:
        words += f"  about {format_rough(int(seconds + 1) * 1_000_000)} left"
    cells = max(8, min(24, look.cells - cell_len(words)))
    return ((bar(done, cells, look.glyphs), GOOD), (words, ""), *unread, ("  ", ""), *read)


def _queries(shot: Snapshot, look: ViewSettings) -> _Section:
    columns = [
        TableColumn("query", name=True),
        TableColumn("in/s", right=True),
        TableColumn("", drop=2),
        TableColumn("out/s", right=True),
        TableColumn("", drop=3),
        TableColumn("rows out", drop=4, right=True),
        TableColumn("state", drop=1, right=True),
    ]
    rows = [
        (
            (look.name(row.name), STRONG),
            (format_short(row.in_rate), ""),
            (sparkline(row.ins, look.spark, look.glyphs), LOOK),
            (format_short(row.out_rate), ""),
            (sparkline(row.outs, look.spark, look.glyphs), LOOK),
            (count_in(row.rows_out), ""),
            (size_of(row.state_bytes), ""),
        )
        for row in shot.queries
    ]
    return _Section(columns, rows, _worst_first([row.in_rate for row in shot.queries]))


def _marks(shot: Snapshot, now: RunMoment, look: ViewSettings) -> _Section:
    columns = [
        TableColumn("watermark", name=True),
        TableColumn("at", drop=2),
        TableColumn("ago", right=True),
        TableColumn("", drop=1, rest=True),
    ]
    rows = []
    for row in shot.marks:
        behind = row.delay_us(now.clock_us)
        rows.append(
            (
                (look.name(row.name), ""),
                (look.name(_format_watermark(row)), ""),
                ("" if behind is None else format_rough(behind), WARN if row.stands else ""),
                (look.name(row.stands or ""), WARN),
            )
        )
    return _Section(columns, rows, _worst_first([_urgency(row, now) for row in shot.marks]))


def _inputs(shot: Snapshot, look: ViewSettings) -> _Section:
    """Build the section of inputs.

    A backlog (`is_behind`) means that event times outrun the clock, which a forecast does not account
    for.
    """
    is_behind = shot.report is not None and bool(shot.report.behind)
    aside = [place for place in SIDE_OUTPUT_PLACES if any(row.aside.get(place) for row in shot.inputs)]
    columns = [
        TableColumn("input", name=True),
        TableColumn("rows in", drop=3, right=True),
        TableColumn("late", right=True),
        TableColumn("broken", right=True),
        *(TableColumn(LABELS.get(place, place), drop=4, right=True) for place in aside),
        TableColumn("retained", right=True),
        TableColumn("forecast", drop=2, right=True),
        TableColumn("", drop=5),
        TableColumn("", drop=1, right=True),
        TableColumn("in files", drop=3, right=True),
        TableColumn("forecast", drop=6, right=True),
    ]
    rows = []
    for row in shot.inputs:
        share = row.share
        style = "" if share is None or share <= 1 or is_behind else BAD if share >= FAR_ABOVE else WARN
        rows.append(
            (
                (look.name(row.name), ""),
                (count_in(row.rows_in), ""),
                _count_cell(row.late, look),
                _count_cell(row.broken, look),
                *(_count_cell(row.aside.get(place, 0), look) for place in aside),
                (count_in(row.retained, look.count), STRONG),
                ("" if row.most is None else count_in(round(row.most.rows), look.count), ""),
                ("" if share is None else bar(share, 8, look.glyphs), style or GOOD),
                ("" if share is None else percent(share), style),
                ("" if row.file_bytes is None else size_of(row.file_bytes), ""),
                ("" if row.most is None else size_of(row.most.file_bytes), ""),
            )
        )
    return _Section(columns, rows, _worst_first([(row.share or 0.0, row.retained) for row in shot.inputs]))


def _foot(shot: Snapshot, look: ViewSettings) -> list[Line]:
    """Build the lines that show how long ticks take and which phases take the time."""
    report = shot.report
    if report is None:
        return []
    busy = f"{100 * report.seconds / report.lasted:.0f} % busy" if report.elapsed_seconds else ""
    words = [word for word in (busy, report.most_tasks) if word]
    line: list[Piece] = [
        ("tick  ", FAINT),
        (f"{report.seconds:.2f} s", STRONG),
        (f"  {sparkline(shot.seconds, look.spark, look.glyphs)}", LOOK),
    ]
    line += [(f"  {', '.join(words)}", "")] if words else []
    lines: list[Line] = [tuple(line)]
    if shot.parts:
        lines.append(_parts(shot.parts, look))
    if report.store is not None:
        lines.append(((report.store.words(), ""),))
    return lines


def _parts(parts: Mapping[str, float], look: ViewSettings) -> Line:
    """Build the line of a tick's phases by share, the longest first; omit those that do not fit."""
    total = sum(parts.values()) or 1.0
    line: list[Piece] = [("parts ", FAINT)]
    used = cell_len("parts ")
    for part, seconds in sorted(parts.items(), key=lambda of: -of[1]):
        if not seconds:
            continue
        gap = "  " if len(line) > 1 else ""
        name, share = look.name(part), percent(seconds / total)
        cells = cell_len(gap + name + share) + 1
        if used + cells > look.cells:
            break
        used += cells
        line += [(f"{gap}{name} ", ""), (share, STRONG)]
    return tuple(line)


def _count_cell(count: int, look: ViewSettings) -> Piece:
    return count_in(count, look.count), (WARN if count else FAINT)


def _urgency(row: MarkRow, now: RunMoment) -> tuple[bool, float]:
    behind = row.delay_us(now.clock_us)
    return row.stands is not None, float("-inf") if behind is None else behind


def _worst_first(keys: Sequence[Any]) -> list[int]:
    """Return the positions of the rows with these keys, the greatest key first."""
    return sorted(range(len(keys)), key=lambda n: keys[n], reverse=True)


def _format_watermark(row: MarkRow) -> str:
    """Format a watermark; omit fractions of a second from times."""
    shown = "none yet" if row.mark == NEVER else shown_time(row.mark, row.integer)
    return shown.partition(".")[0] if shown.count(":") == 2 else shown


def _is_in_time(shot: Snapshot) -> bool:
    return not any(row.integer for row in shot.marks)


def width_of(line: Line) -> int:
    """Return the width of a line in cells."""
    return sum(cell_len(text) for text, _ in line)
