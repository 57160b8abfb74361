"""A join as it went, drawn from its trace: event time to the right, ticks downwards, as they came.

A row is where its time is, in the tick in which it came, and the grey line beneath it says how long it was
kept. Matches are lines between two rows, a pad is a hollow mark in the tick in which it went out, a late row
is a cross. The stepped lines are watermarks: what comes left of its input's line is late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from docs.site.svg import COLOURS, GREY, INK, PALE, RED, Drawing
from watersmeet.runtime.local import replay_case
from watersmeet.trace.record import TickTrace, Trace
from watersmeet.trace.recorder import Tracer

LEFT, TOP, LANE, WIDTH, LEGEND = 92, 44, 58, 760, 26
SHAPES = ("circle", "square")
FATES = {"late": "late", "null_time": "no time"}


@dataclass(frozen=True)
class Picture:
    """What is played, and what is shown of it. ``says``: a line per tick. ``watermarks``: of which keys;
    ``promised``: the keys whose output watermark is drawn, dashed."""

    title: str
    case: Mapping[str, Any]
    says: Sequence[str]
    watermarks: Sequence[str]
    promised: Sequence[str] = ()


def clock(minutes: float) -> str:
    """Minutes since midnight as a time of the day."""
    return f"{int(minutes) // 60}:{int(minutes) % 60:02}"


def drawn(picture: Picture) -> str:
    """The picture of a run of the case, which is made here and now."""
    tracer = Tracer()
    replay_case(dict(picture.case), tracer=tracer)
    assert tracer.trace is not None
    return _Timeline(picture, tracer.trace).drawing.text()


class _Timeline:
    def __init__(self, picture: Picture, trace: Trace) -> None:
        self._picture = picture
        self._ticks = [entry for entry in trace.entries if isinstance(entry, TickTrace)]
        self._aliases = [side.name for side in trace.query.sides]
        times = [row.row["t"] for tick in self._ticks for row in tick.arrived]
        self._first = min(times) // 10 * 10 - 20
        self._last = max(times) // 10 * 10 + 20
        self._bottom = TOP + LANE * len(self._ticks)
        self.drawing = Drawing(WIDTH, self._bottom + 34 + LEGEND, picture.title)
        self._places: dict[tuple[str, int], tuple[int, int]] = {}
        self._grid()
        self._stays()
        for key in picture.watermarks:
            self._watermark(key, [self._value(tick, key) for tick in self._ticks], "")
        for key in picture.promised:
            values = [
                next((o.value for o in tick.joins[0].outputs if o.key == key), None) for tick in self._ticks
            ]
            self._watermark(key, values, "5 4")
        for number, tick in enumerate(self._ticks):
            self._rows(number, tick)
        for number, says in enumerate(picture.says):
            self.drawing.write(LEFT, TOP + LANE * number + 15, says, GREY, size=12)
        self._legend()

    def _x(self, time: float) -> int:
        share = (time - self._first) / (self._last - self._first)
        return LEFT + round(share * (WIDTH - LEFT - 20))

    def _y(self, number: int) -> int:
        return TOP + LANE * number + LANE // 2 + 2

    def _grid(self) -> None:
        draw = self.drawing
        draw.write(16, 24, self._picture.title, size=15)
        hours = range(-(-self._first // 30) * 30, self._last + 1, 30)
        for time in hours:
            draw.line(self._x(time), TOP, self._x(time), self._bottom, PALE, width=1)
            draw.write(self._x(time), self._bottom + 18, clock(time), GREY, anchor="middle", size=12)
        for number in range(len(self._ticks)):
            draw.line(16, TOP + LANE * number, WIDTH - 16, TOP + LANE * number, PALE, width=1)
            draw.write(16, self._y(number) + 4, f"tick {number + 1}", INK)

    def _stays(self) -> None:
        """How long each row is kept: from its tick to the one in which it leaves, or to the end."""
        for number, tick in enumerate(self._ticks):
            for row in tick.arrived:
                place = (self._x(row.row["t"]), self._y(number) + 4)
                self._places[row.alias, row.row["n"]] = place
                if row.fate == "kept":
                    until = self._leaves(row.alias, row.row["n"])
                    below = self._bottom if until is None else self._y(until) + 4
                    self.drawing.line(place[0], place[1], place[0], below, GREY, width=1)

    def _leaves(self, alias: str, number: int) -> int | None:
        for place, tick in enumerate(self._ticks):
            for released in tick.joins[0].released:
                if self._aliases[released.side.value == "right"] == alias and released.row["n"] == number:
                    return place
        return None

    def _value(self, tick: TickTrace, key: str) -> float:
        return next(each.value for each in tick.inputs if each.key == key)

    def _watermark(self, key: str, values: Sequence[float | None], dash: str) -> None:
        """A step in each tick; what is not there yet, or beyond the picture, is not drawn."""
        colour = COLOURS[self._aliases.index(key.split(".")[0])]
        points: list[tuple[int, int]] = []
        for number, value in enumerate(values):
            if value is not None and self._first <= value <= self._last:
                points += [
                    (self._x(value), TOP + LANE * (number + 1) - 4),
                    (self._x(value), TOP + LANE * (number + 2) - 4),
                ]
        points = [(x, min(y, self._bottom)) for x, y in points]
        if points:
            self.drawing.steps(points, colour, dash=dash)

    def _rows(self, number: int, tick: TickTrace) -> None:
        draw = self.drawing
        for pair in tick.joins[0].pairs if tick.joins else ():
            if pair.left is not None and pair.right is not None:
                (x1, y1), (x2, y2) = (
                    self._places[alias, row["n"]]
                    for alias, row in zip(self._aliases, (pair.left, pair.right), strict=True)
                )
                draw.line(x1, y1, x2, y2, INK)
            else:
                side = int(pair.left is None)
                row = pair.right if side else pair.left
                assert row is not None
                x, _ = self._places[self._aliases[side], row["n"]]
                draw.mark(x, self._y(number) + 4, SHAPES[side], COLOURS[side], hollow=True)
                draw.write(x + 12, self._y(number) + 8, "NULL", COLOURS[side], size=12)
        for row in tick.arrived:
            side = self._aliases.index(row.alias)
            x, y = self._places[row.alias, row.row["n"]]
            late = row.fate in FATES
            draw.mark(x, y, "cross" if late else SHAPES[side], RED if late else COLOURS[side])
            label = f"{row.alias}{row.row['n']}" + (f" {FATES[row.fate]}" if late else "")
            draw.write(x + 11, y + 16, label, RED if late else COLOURS[side], size=12)

    def _legend(self) -> None:
        draw, y, x = self.drawing, self._bottom + 42, LEFT
        for key in self._picture.watermarks:
            colour = COLOURS[self._aliases.index(key.split(".")[0])]
            draw.line(x, y, x + 24, y, colour)
            draw.write(x + 30, y + 4, f"watermark of {key}", colour, size=12)
            x += 180
        for key in self._picture.promised:
            colour = COLOURS[self._aliases.index(key.split(".")[0])]
            draw.line(x, y, x + 24, y, colour, dash="5 4")
            draw.write(x + 30, y + 4, f"promised of {key} in the result", colour, size=12)
            x += 250
