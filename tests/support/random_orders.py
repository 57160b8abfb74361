"""Random cases in which inner joins do not stand in an order that the planner keeps: two inputs that are
joined first have no condition of their own. At the top, in branches of a UNION ALL, beneath windows or joins.

No row is late, nothing is idle: then the rows of a step do not depend on the order; when windows close may.
"""

from __future__ import annotations

import random
from typing import Any

STREAMS = "abcd"


def random_order_case(number: int) -> dict[str, Any]:
    """The case of that number: the same in every run. ``windowed``: rows may come in another step."""
    rng = random.Random(f"orders-{number}")
    shape = rng.choice([_top, _union, _union, _draw_nested_join, _windows, _windows_joined])
    lag = rng.choice([0, 2, 5])
    query = shape(rng)
    return {
        "case": f"orders-{number}",
        "streams": {
            name: {
                "columns": {"t": "BIGINT", "k": "STRING", "v": "BIGINT"},
                "time": {"t": {"lag": lag}},
            }
            for name in STREAMS
        },
        "query": query,
        "options": {"watermark_rule": rng.choice(["tight", "tight", "limit"])},
        "windowed": "TUMBLE" in query,
        "steps": _steps(rng, lag),
    }


def _draw_unlinked_join(rng: random.Random) -> str:
    """Three inputs or four, each linked to one that does not stand beside it."""
    names = rng.sample(STREAMS, rng.choice([3, 3, 4]))
    if rng.random() < 0.3:
        names[-1] = names[0]  # of one stream twice
    aliases = [f"{name}{n}" for n, name in enumerate(names)]
    links = [(0, 2), (2, 1)] + ([(3, rng.choice([0, 1, 2]))] if len(names) == 4 else [])
    conditions = []
    for one, other in links:
        x, y = aliases[one], aliases[other]
        low, high = rng.choice([(0, 3), (2, 2), (-1, 4), (0, 0)])
        conditions.append(f"{y}.t BETWEEN {x}.t - {low} AND {x}.t + {high}".replace("- -", "+ "))
        if rng.random() < 0.8:
            conditions.append(f"{x}.k = {y}.k")
    if rng.random() < 0.4:
        conditions.append(f"{rng.choice(aliases)}.v > 1")
    if rng.random() < 0.3:
        conditions.append(f"coalesce({aliases[1]}.v, 0) + coalesce({aliases[2]}.v, 0) < 5")
    rng.shuffle(conditions)
    inputs = ", ".join(f"{name} {alias}" for name, alias in zip(names, aliases, strict=True))
    timed, keyed, valued = (rng.choice(aliases) for _ in range(3))
    columns = f"{timed}.t AS t, {keyed}.k AS k, {valued}.v AS v"
    return f"SELECT {columns} FROM {inputs} WHERE {' AND '.join(conditions)}"


def _top(rng: random.Random) -> str:
    return _draw_unlinked_join(rng)


def _union(rng: random.Random) -> str:
    branches = [
        _draw_unlinked_join(rng),
        rng.choice([_draw_unlinked_join(rng), f"SELECT t, k, v FROM {rng.choice(STREAMS)}"]),
    ]
    rng.shuffle(branches)
    united = " UNION ALL ".join(branches)
    if rng.random() < 0.5:
        return united
    kind = rng.choice(["JOIN", "LEFT JOIN"])
    return (
        f"SELECT u.t, u.v, d0.v AS dv FROM ({united}) u {kind} {rng.choice(STREAMS)} d0"
        " ON d0.t BETWEEN u.t - 2 AND u.t + 2 AND d0.k = u.k"
    )


def _draw_nested_join(rng: random.Random) -> str:
    return (
        f"SELECT x.t, x.v, y.v AS yv FROM {rng.choice(STREAMS)} y JOIN ({_draw_unlinked_join(rng)}) x"
        " ON x.k = y.k AND x.t BETWEEN y.t - 3 AND y.t + 1"
    )


def _windows(rng: random.Random) -> str:
    keyed = ", k" if rng.random() < 0.7 else ""
    return (
        f"SELECT window_end{keyed}, count(*) AS n, sum(v) AS s"
        f" FROM TABLE(TUMBLE(({_draw_unlinked_join(rng)}), DESCRIPTOR(t), {rng.choice([3, 10])}))"
        f" GROUP BY window_start, window_end{keyed}"
    )


def _windows_joined(rng: random.Random) -> str:
    return (
        f"SELECT w.window_end, w.n, y.v AS yv FROM ({_windows(rng)}) w JOIN {rng.choice(STREAMS)} y"
        " ON y.t BETWEEN w.window_end - 2 AND w.window_end + 2"
    )


def _steps(rng: random.Random, lag: int) -> list[dict[str, Any]]:
    """Rows no more out of order than the lag allows, restarts, other numbers of tasks, the end."""
    steps: list[dict[str, Any]] = []
    now = rng.choice([-20, 0, 5])
    pace = rng.choice([1, 3, 6])
    for _ in range(rng.randint(3, 8)):
        if rng.random() < 0.12:
            steps.append(rng.choice([{"restart": True}, {"rescale": rng.choice([1, 2, 5])}]))
            continue
        rows = [
            [
                rng.choice(STREAMS),
                {
                    "t": now + rng.randint(0, lag),
                    "k": rng.choice(["x", "y", None]),
                    "v": rng.choice([0, 1, 2, 3, None]),
                },
            ]
            for _ in range(rng.randint(0, 14))
        ]
        steps.append({"rows": rows})
        now += rng.randint(0, pace)
    return [*steps, {"end": True}]
