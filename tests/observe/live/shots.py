"""Snapshots of runs that are not there: what frames are drawn of in tests."""

from __future__ import annotations

from watersmeet.event_time import ENDED, NEVER
from watersmeet.observe.live.formatting import ASCII, UNICODE
from watersmeet.observe.live.frame import RunMoment, ViewSettings
from watersmeet.observe.live.totals import (
    ENDED_WELL,
    FAILED,
    RUNNING,
    STARTING,
    InputRow,
    MarkRow,
    QueryRow,
    RemainingInput,
    Snapshot,
)
from watersmeet.observe.progress import Backlog, TickReport
from watersmeet.observe.retained_rows import RetentionForecast
from watersmeet.observe.watermark_holders import PausedSource, StoreUse

NOON_US = 1_795_000_000_000_000
HELD = "held back by deliveries/2 (no row since 2026-11-18 11:02:00 UTC)"
PARTS = {
    "begin": 0.004,
    "ingest": 0.21,
    "advance": 0.001,
    "join and write": 0.18,
    "publish": 0.02,
    "commit": 0.03,
}


def _report(tick: int, **more: object) -> TickReport:
    told: dict = {"elapsed_seconds": 1.0, "tasks": {"delivered": 4}} | more
    return TickReport(tick, 0.52, (), {"orders": 1_000}, {"delivered": 900}, **told)


def _wave(high: float, count: int = 40) -> tuple[float, ...]:
    return tuple(high * (n * n % 17) / 17 for n in range(count))


ONE = Snapshot(
    _report(1_234, backlog={"orders": Backlog(120_300, "rows")}),
    (QueryRow("delivered", 12_345.6, 940.2, _wave(14_000), _wave(1_000), 12_345_678, 1_200_000_000),),
    (
        MarkRow("o.order_time", NOON_US - 12_300_000, False, None),
        MarkRow("d.delivery_time", NOON_US - 3_780_000_000, False, HELD),
    ),
    (
        InputRow(
            "o", 22_345_678, 12, 0, {}, 3_661_000, 146_700_000, RetentionForecast(3_660_000, 126_700_000)
        ),
        InputRow(
            "d", 9_345_678, 0, 7, {"null_time": 3}, 98_100, 4_520_000, RetentionForecast(610_000, 21_000_000)
        ),
    ),
    tuple(0.4 + n % 5 / 10 for n in range(40)),
    PARTS,
    13_345.6,
    940.2,
    31_691_356,
    12_345_678,
)

_QUERIES = ("delivered", "windows", "a_query_with_a_rather_long_name", "climbed")
MANY = Snapshot(
    _report(
        77,
        paused_sources={"orders": PausedSource("deliveries", 82_800_000_000)},
        store=StoreUse(3_000_000, 5, 700, 7),
    ),
    tuple(
        QueryRow(query, 10.0**n, 0.3, _wave(3, 5), _wave(0), 5 * n, 10**n) for n, query in enumerate(_QUERIES)
    ),
    tuple(
        MarkRow(f"{query}.{alias}.t", mark, query == "climbed", None)
        for query in _QUERIES
        for alias, mark in (("o", 7 if query == "climbed" else NOON_US - 1_500), ("d", NEVER))
    ),
    tuple(
        InputRow(
            f"{query}.{alias}",
            50 * n,
            n,
            0,
            {"shed": n} if n else {},
            40 * n,
            None,
            RetentionForecast(100, 2_000),
        )
        for n, query in enumerate(_QUERIES)
        for alias in ("o", "d")
    ),
    (0.52,),
    PARTS,
    11.0,
    0.3,
    400,
    30,
)

STRANGE = Snapshot(
    _report(1),
    (QueryRow("日本語のとても長いクエリの名前", 1, 0, (1,), (0,), 0, 17),),
    (MarkRow("日本語のとても長いクエリの名前.o.\x1b[31mred\nline", ENDED, False, None),),
    (InputRow("\u202eo\u0301\t" + "x" * 100, 1, 0, 0, {}, 1, 17, None),),
    (0.5,),
)

EMPTY = Snapshot()
_LEFT = RemainingInput(300_000, 150_000.0)
BOUNDED = Snapshot(
    _report(30, backlog={"flights": Backlog(12, "files")}), ONE.queries, ONE.marks, ONE.inputs, ONE.seconds,
    PARTS, 10_000.0, 900.0, 300_000, 290_000, _LEFT,
)  # fmt: skip
DONE = Snapshot(_report(31), ONE.queries, (), ONE.inputs, ONE.seconds, {}, 10_000.0, 900.0, 450_000, 290_000)


def now(state: str = RUNNING, **more: object) -> RunMoment:
    told: dict = {"since_s": 4_321.0, "clock_us": NOON_US} | more
    return RunMoment("job.sql", state, **told)


def look(cells: int, lines: int, encoding: str = "utf-8") -> ViewSettings:
    return ViewSettings(cells - 1, lines - 1, UNICODE if encoding == "utf-8" else ASCII, encoding)


PAGE = "http://127.0.0.1:8765/"
FRAMES = {
    "one-80x24": (ONE, now(page=PAGE), look(80, 24)),
    "one-120x40": (ONE, now(page=PAGE), look(120, 40)),
    "one-40x10": (ONE, now(page=PAGE), look(40, 10)),
    "one-ascii-80x24": (ONE, now(), look(80, 24, "latin-1")),
    "many-80x24": (MANY, now(), look(80, 24)),
    "many-80x12": (MANY, now(in_hand=(78, 65.3)), look(80, 12)),
    "many-200x60": (MANY, now(page=PAGE), look(200, 60)),
    "strange-80x24": (STRANGE, now(), look(80, 24)),
    "strange-ascii-40x24": (STRANGE, now(), look(40, 24, "ascii")),
    "starting-80x24": (EMPTY, now(STARTING, since_s=7.2), look(80, 24)),
    "bounded-80x24": (BOUNDED, now(bounded=True), look(80, 24)),
    "done-80x24": (DONE, now(ENDED_WELL, bounded=True), look(80, 24)),
    "failed-60x24": (BOUNDED, now(FAILED, bounded=True), look(60, 24)),
}
"""By name: what is drawn, and how large."""
