"""The streams and steps of random cases: ticks of disordered rows, and what may happen between them."""

from __future__ import annotations

from typing import Any

from tests.support.random_draft import (
    INT64_MAX,
    INT64_MIN,
    VALUES,
    Draft,
    whole_unit,
)


def declare_streams(
    draft: Draft, changes: bool, tables: bool
) -> tuple[dict[str, Any], dict[str, int | None]]:
    """The streams (or tables) of a case, and the lag of each stream."""
    rng = draft.rng
    declared: dict[str, Any] = {}
    lags: dict[str, int | None] = {}
    by_hand = draft.chance(0.35)
    for side, name in enumerate(draft.streams):
        if tables:
            declared[name] = {"columns": dict(draft.columns[side])}
            continue
        lag = None if by_hand or draft.chance(0.05) else rng.choice([0, 0, 1, 3, 8]) * whole_unit(draft)
        lags[name] = lag
        stream: dict[str, Any] = {
            "columns": dict(draft.columns[side]),
            "time": {t: {"lag": lag} for t in draft.event_times[side]},
        }
        if lag is not None and draft.chance(0.15):
            stream["idle_timeout"] = rng.choice([2, 5])
            if draft.chance(0.4) and not draft.times.has_mixed_kinds:
                stream["on_idle"] = "follow"
        if lag is not None and draft.chance(0.15):
            stream["partitions"] = ["p0", "p1"]
        if changes:
            stream["changes"] = True
        declared[name] = stream
    for branch, side in draft.branches.items():
        name = draft.streams[side]
        declared[branch] = {k: v for k, v in declared[name].items() if k != "on_idle"}
        lags[branch] = lags[name]
    return declared, lags


def draw_steps(
    draft: Draft, declared: dict[str, Any], lags: dict[str, int | None], changes: bool
) -> list[dict[str, Any]]:
    """Ticks of disordered rows of all streams, with what may happen between them."""
    rng = draft.rng
    now = 0
    steps: list[dict[str, Any]] = []
    promised: dict[str, Any] = {}
    alive: list[list[Any]] = []
    disorder = rng.choice([0, 2, 6, 15])
    many = draft.inputs > 2  # the more must meet, the more rows it takes
    pace = rng.choice([0, 1, 2, 4, 12] if many else [0, 1, 4, 12, 40])
    partitions = draft.chance(0.25)
    for _ in range(rng.randint(3, 9) if many else rng.randint(2, 8)):
        happens = rng.random()
        if happens < 0.07:
            steps.append({"restart": True})
            continue
        if happens < 0.11:
            steps.append({"rescale": rng.choice([1, 2, 3, 7, 10])})
            continue
        step: dict[str, Any] = {}
        if any("idle_timeout" in s for s in declared.values()) and draft.chance(0.5):
            step["clock"] = rng.choice([1, 3, 6])
        rows: list[list[Any]] = []
        if happens > 0.2:
            for _ in range(rng.choice([3, 6, 12, 14] if many else [1, 3, 6, 12])):
                stream = rng.choice(list(declared))
                n = now - rng.randint(0, disorder)
                if draft.chance(0.01) and "INT" not in draft.times.kinds:
                    n += rng.choice([-10_000, 500])  # a time of another age
                row = _row(draft, declared[stream], stream, n)
                if partitions and lags.get(stream) is not None and draft.chance(0.8):
                    row["_partition"] = rng.choice(["p0", "p1"])
                rows.append([stream, row])
                if draft.chance(0.15):
                    rows.append([stream, dict(row)])
        if changes:
            rows = _with_deletes(draft, rows, alive, lags)
        if rows or happens < 0.15:
            step["rows"] = rows
        if lags and draft.chance(0.04):
            step["idle"] = [rng.choice(list(lags))]
        marks = {
            f"{name}.{t}": _mark(draft, draft.input_of(name), now - rng.choice([0, 0, 3, 10]))
            for name, lag in lags.items()
            for t in declared[name]["time"]
            if lag is None and draft.chance(0.4)
        }
        for key, mark in marks.items():  # they never go back
            promised[key] = marks[key] = max(mark, promised.get(key, mark))
        if marks:
            step["advance"] = marks
        steps.append(step)
        now += rng.randint(0, pace)
    if draft.chance(0.45 if many else 0.3) and lags:
        steps.append({"end": True})
    return steps


def _mark(draft: Draft, side: int, n: int) -> Any:
    if draft.times.extreme:
        return draft.rng.choice([INT64_MIN, INT64_MIN + 5, 0, INT64_MAX - 12, INT64_MAX - 3, INT64_MAX])
    return draft.times.value(side, n)


def _row(draft: Draft, declared: dict[str, Any], stream: str, n: int) -> dict[str, Any]:
    rng, side = draft.rng, draft.input_of(stream)
    row: dict[str, Any] = {}
    for column, kind in declared["columns"].items():
        if column in draft.event_times[side]:
            if draft.times.extreme and draft.chance(0.7):
                low = rng.choice([INT64_MIN, INT64_MAX - 12])
                row[column] = low + rng.randint(0, 12)
            else:
                row[column] = draft.times.value(side, n + (rng.randint(-3, 3) if column == "u" else 0))
            if draft.chance(0.02):
                row[column] = None
        elif column == "v":
            row[column] = rng.choice([0, 1, 2, 3, 4, 5])
        else:
            row[column] = rng.choice(draft.pools.get(column) or VALUES[kind][: rng.choice([1, 4])])
        if column not in draft.event_times[side] and draft.chance(0.1):
            row[column] = None
    if draft.chance(0.03) and "k" in row:
        del row["k"]
    return row


def _with_deletes(
    draft: Draft, rows: list[list[Any]], alive: list[list[Any]], lags: dict[str, int | None]
) -> list[list[Any]]:
    """Some earlier rows deleted; some of this tick too, where no watermark hangs on them."""
    rng = draft.rng
    out = list(rows)
    for _ in range(min(rng.choice([0, 1, 3]), len(alive))):
        gone = alive.pop(rng.randrange(len(alive)))
        out.append([*gone, -1])
    alive.extend(list(r) for r in rows)
    if alive and rows and draft.chance(0.2) and lags.get(alive[-1][0]) is None:
        out.append([*alive.pop(), -1])
    if out and draft.chance(0.2):
        twice = rng.choice(out)
        if len(twice) == 2:
            out[out.index(twice)] = [*twice, 2]
            alive.append(list(twice))
    rng.shuffle(out)
    return out
