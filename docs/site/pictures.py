"""The pictures of docs/users/concepts.md, drawn from runs of the engine here: `python -m docs.site.pictures`.

A test draws them anew and compares: a picture shows what the engine does now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.site.state_pictures import delta, shared
from docs.site.timeline import Picture, drawn

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
JOIN = "SELECT o.n, o.t, d.n AS d, d.t AS u FROM o {how} JOIN d ON d.k = o.k AND d.t BETWEEN o.t AND o.t + 60"


def at(time: str) -> int:
    """A time of the day in minutes since midnight."""
    hours, minutes = time.split(":")
    return int(hours) * 60 + int(minutes)


def case(how: str, *ticks: str, late: tuple[int, int] = (10, 10)) -> dict[str, Any]:
    """Orders o and deliveries d, within 60 minutes. A tick: ``o1 10:00 d2=1 10:40`` is order 1, and
    delivery 2 of order 1; ``late``: how late either may come, in minutes."""
    columns = {"n": "BIGINT", "k": "BIGINT", "t": "BIGINT"}
    return {
        "case": "picture",
        "streams": {
            name: {"columns": columns, "time": {"t": {"lag": lag}}}
            for name, lag in zip("od", late, strict=True)
        },
        "query": JOIN.format(how=how),
        "steps": [{"rows": _rows(tick.split())} for tick in ticks],
    }


def _rows(words: Sequence[str]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for name, time in zip(words[::2], words[1::2], strict=True):
        number, _, key = name[1:].partition("=")
        rows.append([name[0], {"n": int(number), "k": int(key or number), "t": at(time)}])
    return rows


def join() -> str:
    """The picture of the README: a match, a pad, a late row."""
    return drawn(
        Picture(
            "Orders LEFT JOIN deliveries within the hour, each up to 10 minutes late",
            case(
                "LEFT", "o1 10:00", "o2 11:00 d1 10:40", "o3 11:35 d3 11:50", "d9 12:15", "d2 11:40 o4 12:05"
            ),
            (
                "order 1 comes, and is kept",
                "its delivery comes: a match, at once; order 2 is kept",
                "order 3 with its delivery",
                "what comes now is of 12:05 or later: no delivery can be within the hour of order 2",
                "delivery 2 comes too late, and is counted",
            ),
            ("o.t", "d.t"),
        )
    )


def watermarks() -> str:
    """Out of order, and late."""
    return drawn(
        Picture(
            "The watermark of orders: the newest time seen, less 10 minutes",
            case("LEFT", "o1 10:00", "o2 10:30", "o3 10:22", "o4 11:00", "o5 10:40 o6 10:55"),
            (
                "nothing is late in the first tick",
                "10:30 is the newest: the watermark goes to 10:20 when the tick ends",
                "10:22 is out of order, and on time",
                "the watermark goes to 10:50",
                "10:40 is below it: late; 10:55 is not",
            ),
            ("o.t",),
        )
    )


def late() -> str:
    """What a late row would have met has gone its way before."""
    return drawn(
        Picture(
            "A delivery that comes late meets nothing, and its order was padded",
            case("LEFT", "o1 10:00 d8 10:05", "d9 11:20", "d1=1 10:50"),
            (
                "order 1 waits for a delivery of 11:00 at most",
                "deliveries are at 11:10: order 1 is put out with NULLs",
                "delivery 1 is of 10:50, below the watermark: late, and told as such",
            ),
            ("d.t",),
        )
    )


def pads() -> str:
    """FULL: both sides are padded, each when its own time has come."""
    return drawn(
        Picture(
            "FULL JOIN: each row that met nothing goes out once, when nothing can meet it any more",
            case("FULL", "o1 10:00 o2 10:20", "d2=2 10:40 d7 10:50", "o3 11:10", "d9 11:40"),
            (
                "two orders are kept",
                "order 2 meets delivery 2; delivery 7 has no order",
                "orders are at 11:00: no order of 10:50 comes any more",
                "deliveries are at 11:30: orders 1 and 2 leave, and order 1 met nothing",
            ),
            ("o.t", "d.t"),
        )
    )


def postponing() -> str:
    """What the result promises of a time is held back by rows that are kept and may yet go out."""
    return drawn(
        Picture(
            "What the result promises of o.t waits for the orders that are kept",
            case("LEFT", "o1 10:00 d8 9:55", "o2 10:40 d1=1 10:25", "o3 11:20", "d9 11:25", "d3=3 12:05"),
            (
                "",
                "orders are at 10:30; order 1 may meet a further delivery: 10:00 is all that is promised",
                "orders are at 11:10, and order 1 is still kept",
                "order 1 leaves: the promise goes on to order 2, of 10:40",
                "order 2 leaves, padded; the promise goes on to the watermark of orders",
            ),
            ("o.t", "d.t"),
            ("o.t",),
        )
    )


PICTURES: Mapping[str, Callable[[], str]] = {
    "join": join,
    "watermarks": watermarks,
    "late": late,
    "pads": pads,
    "postponing": postponing,
    "delta": delta,
    "shared": shared,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw())


if __name__ == "__main__":
    main()
