"""Heavy keys of what is kept: found while they grow, and named when a limit stops the job."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.support.ticks import QUERY, arriving, plan_of, stream
from watersmeet.errors import EngineError
from watersmeet.runtime.local import LocalJob
from watersmeet.state.runs.heavy_hitters import SHARE
from watersmeet.state.store import MemoryStore

INNER = "SELECT l.t AS lt FROM l JOIN r ON l.i = r.i AND r.t BETWEEN l.t - 100 AND l.t + 100"


def row(key: int, t: int) -> dict[str, int]:
    return {"i": key, "t": t}


@pytest.mark.parametrize("seed", range(8))
def test_a_key_with_many_of_the_rows_is_found_and_forgotten_as_they_go(seed):
    """Against the rows themselves: what is told of a key is less than the truth by a share of all rows, and
    by what was released of it, at most."""
    rng = np.random.default_rng(seed)
    job = LocalJob(plan_of(INNER), MemoryStore(), partitions=int(rng.integers(1, 4)))
    kept: list[tuple[int, int]] = []
    hot = int(rng.integers(0, 1000))
    for tick in range(12):
        keys = [
            hot if rng.random() < (0.5 if tick < 6 else 0.0) else int(rng.integers(0, 1000))
            for _ in range(200)
        ]
        rows = [(key, tick * 40 + int(rng.integers(0, 20))) for key in keys]
        output = job.tick(arriving(l=[row(key, t) for key, t in rows], r=[row(-1, tick * 40)]))
        state = output.result.queries[QUERY]
        kept = sorted([*kept, *rows], key=lambda told: told[1])[-state.state["l"] :]
        count = Counter(key for key, _ in kept)
        told = {int(one.key.removeprefix("i = ")): one for one in state.heavy.get("l", ())}
        for key, one in told.items():
            assert key == hot, f"seed {seed}"
            assert one.rows <= count[key] + 0.2 * len(kept)
            assert one.share == one.rows / len(kept)
        if count[hot] > (0.1 + SHARE) * len(kept):
            assert hot in told, f"seed {seed}, tick {tick}"
    assert "l" not in state.heavy, "it is forgotten when its rows have gone"


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"max_rows": 20}, "max_rows = 20; heaviest keys: of l i = 7 has about 20 rows (67%), of r i = 7"),
        ({"max_bytes": 20}, "heaviest keys: of l i = 7 has about 20 rows (67%)"),
        (
            {"max_output_rows_per_tick": 20},
            "max_output_rows_per_tick = 20; heaviest keys: of l i = 7 has about 20 rows",
        ),
    ],
)
def test_a_limit_names_the_heaviest_keys(limits, says):
    job = LocalJob(plan_of(INNER, **limits), MemoryStore(), partitions=2)
    left = [row(n, 1) for n in range(100, 110)] + [row(7, 1)] * 20
    with pytest.raises(EngineError) as raised:
        job.tick(arriving(l=left, r=[row(7, 1)] * 9))
    assert says in raised.value.message


def test_a_limit_says_nothing_of_keys_where_none_is_heavy():
    job = LocalJob(plan_of(INNER, max_rows=50), MemoryStore())
    with pytest.raises(EngineError) as raised:
        job.tick(arriving(l=[row(n, 1) for n in range(100)]))
    assert raised.value.message.endswith("max_rows = 50")


@pytest.mark.parametrize(
    ("columns", "on", "values", "told"),
    [
        ({"t": "BIGINT", "k": "STRING"}, "upper(r.k) = l.k", ["it's"], "= 'IT''S'"),
        ({"t": "BIGINT", "k": "STRING"}, "r.k = l.k", ["a\n\x1b[2J\u202eé"], "k = 'a\\n\\x1b[2J\\u202eé'"),
        ({"t": "TIMESTAMP", "k": "TIMESTAMP"}, "r.t = l.k", [None], "t = '2022-03-01 10:00:00.000000'"),
        ({"t": "BIGINT", "k": "BIGINT"}, "r.t = l.k", [None], "t = 1"),
        ({"t": "BIGINT", "k": "DATE", "n": "INT"}, "l.k = r.k AND l.n <=> r.n", ["2022-03-01", None],
         "k = '2022-03-01', n = NULL"),
    ],
)  # fmt: skip
def test_heavy_keys_are_reported_by_column_and_value(columns, on, values, told):
    streams = {name: stream(columns=columns) for name in "lr"}
    is_time = columns["t"] == "TIMESTAMP"
    band = "r.t BETWEEN l.t AND l.t + " + ("INTERVAL '1' SECOND" if is_time else "1")
    job = LocalJob(plan_of(f"SELECT l.t AS lt FROM l JOIN r ON {on} AND {band}", streams), MemoryStore())
    given = dict(zip(columns, ["2022-03-01T10:00:00" if is_time else 1, *values], strict=True))
    heavy = job.tick(arriving(r=[given] * 9)).result.queries[QUERY].heavy
    (one,) = heavy["r"]
    assert told in one.key
    assert (one.rows, one.share) == (9, 1.0)
