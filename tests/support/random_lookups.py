"""Random cases of joins with tables as of the tick: alone, in chains, before and after joins of streams."""

from __future__ import annotations

import random
from typing import Any

from watersmeet.testing.cases import Case

_KINDS = ("JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
_ON = (
    "c.k = l.k", "c.k <=> l.k", "c.k = l.k AND c.v >= l.v", "c.k = l.k AND l.v > 1",
    "c.k = l.k AND c.s <> 'x'", "c.v = l.v + 1", "c.v > l.v", "c.k = l.k AND (c.v = 3 OR l.v = 2)",
    "coalesce(c.s, 'x') = l.k", "l.v = 2", "c.k = l.k AND c.v = l.v",
)  # fmt: skip
_WHERE = (
    "c.v > 2",
    "c.s IS NULL",
    "l.v + c.v > 4",
    "l.k = 'x'",
    "coalesce(c.v, 0) < 3",
    "c.k = 'x' OR l.v = 1",
)


def random_lookup_case(number: int) -> Case:
    """The case of that number."""
    rng = random.Random(f"lookups {number}")
    query, streams = _query(rng)
    columns = {"t": "BIGINT", "k": "STRING", "v": "BIGINT"}
    declared = {name: {"columns": columns, "time": {"t": {"lag": rng.choice([0, 2, 6])}}} for name in streams}
    options: dict[str, Any] = {"watermark_rule": rng.choice(["tight", "tight", "limit"])}
    if rng.random() < 0.2:
        options["allowed_lateness"] = rng.choice([1, 4])
    return {
        "case": f"random-lookup-{number}",
        "streams": declared,
        "tables": {name: {"columns": {"k": "STRING", "v": "BIGINT", "s": "STRING"}} for name in ("a", "b")},
        "query": query,
        "options": options,
        "steps": _steps(rng, streams),
    }


def _union(rng: random.Random) -> str:
    """Rows that met a table, beside others that did not, meeting a second one."""
    inner, outer = (rng.choice(["JOIN", "LEFT JOIN"]) for _ in "io")
    on = rng.choice(["c.k = l.k", "c.v = l.v", "c.k = l.k AND c.v > l.v"])
    met = f"SELECT l.t, l.k, c.v FROM l {inner} a FOR SYSTEM_TIME AS OF PROCTIME() AS c ON {on}"
    branches = [met, "SELECT t, k, v FROM r"]
    rng.shuffle(branches)
    on = rng.choice(["d.k = l.k", "d.v = l.v", "d.k = l.k AND l.v > 0"])
    return (
        f"SELECT l.t AS lt, l.v AS lv, d.s AS ds FROM ({' UNION ALL '.join(branches)}) l"
        f" {outer} b FOR SYSTEM_TIME AS OF PROCTIME() AS d ON {on}"
    )


def _query(rng: random.Random) -> tuple[str, list[str]]:
    """A query over streams l and r and tables a and b, and the streams that it reads."""
    if rng.random() < 0.15:
        return _union(rng), ["l", "r"]
    kind, on = rng.choice(_KINDS), rng.choice(_ON)
    time = rng.choice(["PROCTIME()", "now()", "CURRENT_TIMESTAMP"])
    table = f"{kind} a FOR SYSTEM_TIME AS OF {time} AS c ON {on}"
    seen = kind in ("JOIN", "LEFT JOIN")
    names = ["l", "c"] if seen else ["l"]
    streams = ["l"]
    text = f"l {table}"
    if rng.random() < 0.6:
        streams.append("r")
        outer = rng.choice(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        keys = ["r.k = l.k", "r.v = l.v", "r.k IS NOT NULL"]
        band = f"r.t BETWEEN l.t - {rng.choice([0, 2])} AND l.t + {rng.choice([0, 3, 8])}"
        if rng.random() < 0.5:  # the table first
            keys += ["r.k = c.s", "r.v = c.v"] if seen else []
            text = f"l {table} {outer} r ON {rng.choice(keys)} AND {band}"
        else:
            text = f"l {outer} r ON {rng.choice(keys)} AND {band} {table}"
        names.insert(1, "r")
    if rng.random() < 0.3:
        on = rng.choice([f"d.{column} = {rng.choice(names)}.{column}" for column in ("k", "v")])
        text += f" {rng.choice(['JOIN', 'LEFT JOIN'])} b FOR SYSTEM_TIME AS OF now() AS d ON {on}"
        names.append("d")
    columns = [
        f"{n}.{c} AS {n}{c}" for n in names for c in (("t", "k", "v") if n in "lr" else ("k", "v", "s"))
    ]
    chosen = [each for each in columns if rng.random() < 0.7] or columns[:1]
    possible = [each for each in _WHERE if seen or "c." not in each]
    where = f" WHERE {rng.choice(possible)}" if rng.random() < 0.35 else ""
    return f"SELECT {', '.join(chosen)} FROM {text}{where}", streams


def _steps(rng: random.Random, streams: list[str]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    held: list[tuple[str, dict[str, Any]]] = []
    now = 0
    for _ in range(rng.randint(3, 7)):
        happens = rng.random()
        if happens < 0.12:
            steps.append({"restart": True} if happens < 0.07 else {"rescale": rng.choice([1, 2, 3, 7])})
            continue
        rows: list[list[Any]] = [
            [rng.choice(streams), {"t": now + rng.randint(-6, 3), **_values(rng)}]
            for _ in range(rng.choice([0, 1, 3, 8]))
        ]
        for _ in range(rng.choice([0, 0, 1, 3])):
            change = (rng.choice("ab"), {**_values(rng), "s": rng.choice([None, "x", "y", "X"])})
            held.append(change)
            rows.append([*change])
        gone = min(len(held), rng.choice([0, 0, 1, 2]))
        rows += [[*held.pop(rng.randrange(len(held))), -1] for _ in range(gone)]
        rng.shuffle(rows)
        steps.append({"rows": rows})
        now += rng.randint(0, 5)
    if rng.random() < 0.3:
        steps.append({"end": True})
    return steps


def _values(rng: random.Random) -> dict[str, Any]:
    return {"k": rng.choice([None, "x", "y", "X", "Y"]), "v": rng.choice([None, 0, 1, 2, 3])}
