"""Random joins by the rule ``lateness = join`` as case files: ``late_case(seed)`` is the same for a seed.

Drawn for the edges of that rule: distances on both sides, on one side, below zero and of no width; rows about
the horizon and the least watermark, a unit beside them and upon them; sides that run ahead of each other;
partitions that fall silent; explicit advances; unions, and a stream joined with itself.

Keywords fix a draw: ``kind``, ``timed`` (TIMESTAMP, not integers), ``reopens`` (allowed_lateness), ``shape``.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

KINDS = ("INNER", "LEFT", "RIGHT", "FULL")
EPOCH = datetime(2024, 2, 29)


class _Drawn:
    """What the parts of a case have in common. ``lower``, ``upper``: of right time - left time."""

    def __init__(self, seed: int, profile: dict[str, Any]) -> None:
        self.rng = rng = random.Random(f"late-{seed}")
        self.timed = profile.get("timed", rng.random() < 0.3)
        self.kind = profile.get("kind") or rng.choice(KINDS)
        self.shape = profile.get("shape") or rng.choice(["plain"] * 6 + ["union", "self"])
        self.lower = rng.choice([-9, -4, -2, -1, 0, 0, 1, 3])
        self.upper = self.lower + rng.choice([0, 0, 1, 2, 3, 5, 9])
        reopens = profile.get("reopens", rng.random() < 0.5)
        self.allowed = rng.choice([1, 2, 5, 11]) if reopens else 0

    @property
    def reach(self) -> int:
        return max(abs(self.lower), abs(self.upper))

    def chance(self, of: float) -> bool:
        return self.rng.random() < of

    def time(self, value: int) -> Any:
        return (EPOCH + timedelta(seconds=value)).isoformat() if self.timed else value

    def apart(self, column: str, by: int) -> str:
        """``column + by``."""
        if not by:
            return column
        distance = f"INTERVAL '{abs(by)}' SECONDS" if self.timed else str(abs(by))
        return f"{column} {'+' if by > 0 else '-'} {distance}"


def late_case(seed: int, **profile: Any) -> dict[str, Any]:
    """A case in the format of semantics.md, section 6; without ``expect``. Rows of each stream are numbered
    (``i``), and the result says of which two rows each of its rows is made (``li``, ``ri``). ``drawn``: what
    tests may want to know of it."""
    drawn = _Drawn(seed, profile)
    streams = _streams(drawn)
    on = _conditions(drawn)
    options: dict[str, Any] = {"lateness": "join"}
    if drawn.allowed:
        options["allowed_lateness"] = f"{drawn.allowed} SECONDS" if drawn.timed else drawn.allowed
    return {
        "case": f"late-{seed}",
        "streams": streams,
        "query": _query(drawn, on),
        "options": options,
        "steps": _steps(drawn, streams),
        "drawn": {
            "lower": drawn.lower,
            "upper": drawn.upper,
            "back": drawn.reach + drawn.allowed,
            "on": on,
        },
    }


def _streams(drawn: _Drawn) -> dict[str, Any]:
    names = {"self": ["l"], "union": ["l", "r", "r2"]}.get(drawn.shape, ["l", "r"])
    streams: dict[str, Any] = {}
    told = drawn.chance(0.25)
    for name in names:
        lag = drawn.rng.choice([0, 0, 1, 4])
        kind = "TIMESTAMP" if drawn.timed else drawn.rng.choice(["BIGINT", "BIGINT", "INT"])
        stream: dict[str, Any] = {
            "columns": {"t": kind, "k": "STRING", "v": "BIGINT", "i": "BIGINT"},
            "time": {"t": {"lag": None if told else f"{lag} SECONDS" if drawn.timed else lag}},
        }
        if not told and drawn.chance(0.4):
            stream["partitions"] = ["p0", "p1"][: drawn.rng.choice([1, 2, 2])]
        if not told and drawn.chance(0.4):
            stream["idle_timeout"] = drawn.rng.choice([4, 10])
            if drawn.chance(0.3):
                stream["on_idle"] = "follow"
        streams[name] = stream
    if drawn.shape == "union" and not drawn.timed:  # its columns have one type
        streams["r2"]["columns"]["t"] = streams["r"]["columns"]["t"]
    return streams


def _conditions(drawn: _Drawn) -> list[str]:
    a, b = "l", "r"
    low, high = drawn.lower, drawn.upper
    time = drawn.rng.choice(
        [
            f"{b}.t BETWEEN {drawn.apart(f'{a}.t', low)} AND {drawn.apart(f'{a}.t', high)}",
            f"{a}.t BETWEEN {drawn.apart(f'{b}.t', -high)} AND {drawn.apart(f'{b}.t', -low)}",
            f"{b}.t >= {drawn.apart(f'{a}.t', low)} AND {drawn.apart(f'{b}.t', -high)} <= {a}.t",
        ]
    )
    on = [time]
    if low == high and drawn.chance(0.5):
        on = [f"{b}.t = {drawn.apart(f'{a}.t', low)}"]
    if drawn.chance(0.7):
        on.append(f"{a}.k = {b}.k")
    if drawn.chance(0.15):
        on.append(f"{a}.v <> {b}.v")
    if drawn.chance(0.1):
        on.append(f"{drawn.rng.choice([a, b])}.v > 0")
    drawn.rng.shuffle(on)
    return on


def _query(drawn: _Drawn, on: list[str]) -> str:
    right = "r"
    if drawn.shape == "self":
        right = "l r"
    elif drawn.shape == "union":
        right = "(SELECT t, k, v, i FROM r UNION ALL SELECT t, k, v, i FROM r2) r"
    return (
        f"SELECT l.i AS li, r.i AS ri, l.t AS lt, r.t AS rt FROM l {drawn.kind} JOIN {right}"
        f" ON {' AND '.join(on)}"
    )


def _steps(drawn: _Drawn, streams: dict[str, Any]) -> list[dict[str, Any]]:
    rng = drawn.rng
    front = dict.fromkeys(streams, 0)
    told = {name for name, stream in streams.items() if stream["time"]["t"]["lag"] is None}
    marks = dict.fromkeys(told, -1_000)
    numbers = dict.fromkeys(streams, 0)
    steps: list[dict[str, Any]] = []
    for _ in range(rng.randint(4, 14)):
        if drawn.chance(0.08):
            steps.append(rng.choice([{"restart": True}, {"rescale": rng.choice([1, 2, 3, 7])}]))
            continue
        step: dict[str, Any] = {}
        if drawn.chance(0.25):
            step["clock"] = rng.choice([1, 3, 6, 12])
        rows = []
        for name in streams:
            front[name] += rng.choice([0, 0, 1, 2, 5, 14])
            if drawn.chance(0.25):  # nobody is ahead for ever
                front[name] = max(front.values())
            for _ in range(rng.choice([0, 1, 1, 2, 4])):
                numbers[name] += 1
                rows.append([name, _row(drawn, streams[name], _time(drawn, front), numbers[name])])
        rng.shuffle(rows)
        if rows:
            step["rows"] = rows
        partitions = [f"{n}/{p}" for n, stream in streams.items() for p in stream.get("partitions", ())]
        if partitions and drawn.chance(0.15):
            step["idle"] = [rng.choice([*partitions, *streams])]
        advances = {}
        for name in sorted(told):
            if drawn.chance(0.6):
                marks[name] = max(marks[name], front[name] - rng.choice([0, 1, 3]))
                advances[f"{name}.t"] = drawn.time(marks[name])
        if advances:
            step["advance"] = advances
        steps.append(step)
    if drawn.chance(0.4):
        steps.append({"end": True})
    return steps


def _time(drawn: _Drawn, front: dict[str, int]) -> int:
    """About where something changes: the fronts, and what lies behind them by reach and allowed lateness."""
    mark = drawn.rng.choice([min(front.values()), *front.values()])
    whole = drawn.reach + drawn.allowed
    back = drawn.rng.choice([0, 0, drawn.reach, whole, whole + 4, drawn.allowed, drawn.upper])
    return mark - back + drawn.rng.choice([-2, -1, -1, 0, 0, 0, 1, 2])


def _row(drawn: _Drawn, stream: dict[str, Any], time: int, number: int) -> dict[str, Any]:
    rng = drawn.rng
    row: dict[str, Any] = {
        "t": None if drawn.chance(0.02) else drawn.time(time),
        "k": rng.choice(["a", "a", "a", "b", None]),
        "v": rng.choice([0, 1, 2]),
        "i": number,
    }
    if "partitions" in stream:
        row["_partition"] = rng.choice(stream["partitions"])
    return row
