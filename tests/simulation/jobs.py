"""The jobs of simulations, what they read, and what they have to put out: by nested loops over all rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tests.support.ticks import job_of, stream
from watersmeet.plan.model.job import JobPlan
from watersmeet.plan.planner import plan_job

Row = dict[str, Any]
Rows = Sequence[Row]
Result = Counter[tuple[Any, ...]]

LAG = 4
KEYS = "abc"


@dataclass(frozen=True)
class Query:
    """``batch``: its result over all rows, by nested loops."""

    sql: str
    columns: tuple[str, ...]
    batch: Callable[[Rows, Rows], Result]
    changes: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


def _meet(left: Row, right: Row) -> bool:
    is_near = left["t"] - 5 <= right["t"] <= left["t"] + 5
    return left["k"] is not None and left["k"] == right["k"] and is_near


def _join_rows(left: Rows, right: Rows, kind: str) -> Result:
    pairs = [(a, b) for a in left for b in right if _meet(a, b)]
    result: Result = Counter((a["i"], b["i"]) for a, b in pairs)
    if kind in ("left", "full"):
        met = {a["i"] for a, _ in pairs}
        result.update((a["i"], None) for a in left if a["i"] not in met)
    if kind == "full":
        met = {b["i"] for _, b in pairs}
        result.update((None, b["i"]) for b in right if b["i"] not in met)
    return result


def _chain_joins(left: Rows, right: Rows) -> Result:
    """l LEFT JOIN r, and that FULL JOIN r again, by the left row."""
    beneath = [(a, b) for a in left for b in right if _meet(a, b)]
    met = {a["i"] for a, _ in beneath}
    first = [*beneath, *((a, None) for a in left if a["i"] not in met)]
    result, matched = Counter[tuple[Any, ...]](), set()
    for a, b in first:
        partners = [
            c for c in right if a["k"] is not None and c["k"] == a["k"] and a["t"] <= c["t"] <= a["t"] + 7
        ]
        matched |= {c["i"] for c in partners}
        of_b = None if b is None else b["i"]
        result.update((a["i"], of_b, c["i"]) for c in partners)
        if not partners:
            result[a["i"], of_b, None] += 1
    result.update((None, None, c["i"]) for c in right if c["i"] not in matched)
    return result


_JOIN = "SELECT l.i AS a, r.i AS b FROM l {} JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5"

QUERIES: dict[str, Query] = {
    "inner": Query(_JOIN.format(""), ("a", "b"), lambda a, b: _join_rows(a, b, "inner")),
    "left": Query(_JOIN.format("LEFT"), ("a", "b"), lambda a, b: _join_rows(a, b, "left")),
    "full": Query(_JOIN.format("FULL"), ("a", "b"), lambda a, b: _join_rows(a, b, "full")),
    "chain": Query(
        "SELECT l.i AS a, r.i AS b, s.i AS c FROM l "
        "LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5 "
        "FULL JOIN r s ON s.k = l.k AND s.t BETWEEN l.t AND l.t + 7",
        ("a", "b", "c"),
        _chain_joins,
    ),
    "changes": Query(_JOIN.format("LEFT"), ("a", "b"), lambda a, b: _join_rows(a, b, "left"), changes=True),
}


SHEDDING: dict[str, dict[str, Any]] = {
    "shed_oldest": {"max_rows": 3, "at_limit": "shed_oldest"},
    "shed_heaviest": {"max_job_rows": 3, "at_limit": "shed_heaviest"},
    "shed_of_keys": {"max_rows_per_key": 1, "at_limit": "shed_heaviest"},
    "shed_by_bytes": {"max_bytes": 4_000, "at_limit": "shed_oldest"},
}
"""Queries that let rows go at a limit, with their options; what they put out then is no batch join."""

NARROW = 2

MORE: dict[str, Query] = {
    **{
        name: Query(
            _JOIN.format("LEFT"),
            ("a", "b"),
            lambda a, b: _join_rows(a, b, "left"),
            options=options,
        )
        for name, options in SHEDDING.items()
    },
    "narrow": Query(
        f"SELECT l.i AS a, r.i AS b FROM l JOIN r ON l.k = r.k"
        f" AND r.t BETWEEN l.t - {NARROW} AND l.t + {NARROW}",
        ("a", "b"),
        lambda a, b: Counter(
            (x["i"], y["i"]) for x in a for y in b if _meet(x, y) and abs(x["t"] - y["t"]) <= NARROW
        ),
    ),
}
"""Queries that have tests of their own."""

ALIKE = ("inner", "left", "full")
"""Queries whose rows have the same columns."""

INSERTS = ("q", "p")
"""Names of the inserts of a job, as many as it has."""


def query_of(name: str) -> Query:
    return QUERIES.get(name) or MORE[name]


@cache
def plan_for(names: tuple[str, ...]) -> JobPlan:
    """Of a job with an insert for each of these queries, named as `INSERTS`."""
    jobs = []
    for name in names:
        query = query_of(name)
        options = {"output_mode": "changelog"} if query.changes else dict(query.options)
        jobs.append(job_of(query.sql, {"l": stream(LAG), "r": stream(LAG)}, **options))
    inserts = [replace(job.inserts[0], name=name) for name, job in zip(INSERTS, jobs, strict=False)]
    return plan_job(replace(jobs[0], inserts=tuple(inserts)))


class Log:
    """What a source has to read, from place to place: (row, diff), always the same ones. ``late``: some of
    them may come too late, deletes of old rows too."""

    def __init__(self, draw: random.Random, side: str, changes: bool, *, late: bool = True) -> None:
        rows: list[tuple[Row, int]] = []
        first = {"l": 1_000, "r": 2_000}[side]
        for number in range(draw.randrange(2, 9)):
            back = draw.randrange(3) if draw.random() < 0.8 or not late else draw.randrange(3, 15)
            key = None if draw.random() < 0.05 else draw.choice(KEYS)
            row = {"t": 20 + 3 * number - back, "k": key, "v": number, "i": first + number}
            rows.append((row, 1))
            if changes and draw.random() < 0.25:
                there = [r for r, diff in rows if diff > 0]
                gone = draw.choice(there) if late else there[-1]
                if (gone, -1) not in rows:
                    rows.append((gone, -1))
        self.rows = rows


def on_time(log: Log, cuts: Sequence[tuple[int, int]]) -> tuple[list[tuple[Row, int]], int]:
    """The rows that were not late when the log was read in these parts, one a tick, and how many were."""
    kept: list[tuple[Row, int]] = []
    late, greatest, watermark = 0, None, None
    for begin, end in cuts:
        for row, diff in log.rows[begin:end]:
            if watermark is not None and row["t"] < watermark:
                late += 1
            else:
                kept.append((row, diff))
            greatest = row["t"] if greatest is None else max(greatest, row["t"])
        if greatest is not None:
            watermark = greatest - LAG
    return kept, late


def compute_expected_rows(
    name: str, logs: Mapping[str, Log], cuts: Mapping[str, Sequence[tuple[int, int]]]
) -> Result:
    """What has come out when all is read and the input has ended."""
    sides = []
    for side in "lr":
        there = Counter[int]()
        rows: dict[int, Row] = {}
        for row, diff in on_time(logs[side], cuts[side])[0]:
            there[row["i"]] += diff
            rows[row["i"]] = row
        sides.append([rows[i] for i, count in there.items() if count > 0])
    return query_of(name).batch(*sides)
