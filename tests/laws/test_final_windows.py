"""Windows over changing streams in append mode: one row per window and group, when the window closes.

That row equals the sum of the changes so far and, at the end, DuckDB's result. Each tick is killed before its
commit and repeated with another number of tasks; runs are merged often.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import watersmeet
from tests.support.effort import at_effort
from tests.support.phases import replace_phase
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

Row = dict[str, Any]
Bag = Counter[tuple[Any, ...]]

LAG = 12
TICKS = at_effort(quick=9, full=15)
CALLS = "count(*) AS n, sum(v) AS s, min(v) AS least, max(v) AS most, count(DISTINCT v) AS different"
GROUPED = "GROUP BY window_start, window_end, k"
WINDOWS = {
    "TUMBLE": ("TUMBLE", "10", 10, 10),
    "HOP": ("HOP", "4, 10", 10, 4),
    "SESSION": ("SESSION", "1", 1, 0),
}
HAVING = ("", " HAVING count(*) > 1")
STREAM = f"""CREATE TABLE s (t BIGINT, k STRING, v INT, d INT, WATERMARK FOR t AS t - {LAG})
    WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE final WITH ('connector' = 'memory');
CREATE TABLE changes WITH ('connector' = 'memory');
"""


def plan(kind: str, having: str) -> Any:
    function, sizes, *_ = WINDOWS[kind]
    table = f"TABLE({function}(TABLE s, DESCRIPTOR(t), {sizes}))"
    select = f"SELECT window_start, window_end, k, {CALLS} FROM {table} {GROUPED}{having}"
    text = f"{STREAM} INSERT INTO final {select} EMIT FINAL; INSERT INTO changes {select} EMIT CHANGES"
    return watersmeet.plan_job(watersmeet.parse_job(text))


class Drawn:
    """Ticks of changes, some of them late; ``there``: what all that were on time come to."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.there, self.greatest = draw, list[Row](), -(10**6)
        self.sizes = [size for _ in range(TICKS // 3) for size in draw.sample((0, 12, 25), 3)]

    def tick(self, number: int) -> list[tuple[Row, int]]:
        mark, changes = self.greatest - LAG, list[tuple[Row, int]]()
        for _ in range(self.sizes[number]):
            can_go = [row for row in self.there if row["t"] >= mark]
            if can_go and self.draw.random() < 0.25:
                row, diff = self.draw.choice(can_go), -1
                self.there.remove(row)
            else:
                time = 7 * number + self.draw.randint(-20, 6)
                row, diff = (
                    {"t": time, "k": self.draw.choice("ab"), "v": self.draw.choice((None, 1, 2, 3))},
                    1,
                )
                if row["k"] == "b" and self.draw.random() < 0.3:
                    row["k"] = None
                if time >= mark:
                    self.there.append(row)
            changes.append((row, diff))
        self.greatest = max([self.greatest, *(row["t"] for row, _ in changes)])
        return changes


def by_duckdb(rows: list[Row], kind: str, having: str) -> Bag:
    """Each row in all windows that begin at multiples of the slide; sessions begin with rows of which none of
    their key is within the gap before."""
    _, _, size, slide = WINDOWS[kind]
    schema = pa.schema([("t", pa.int64()), ("k", pa.string()), ("v", pa.int32())])
    connection = duckdb.connect()
    connection.register("s", pa.Table.from_pylist(rows, schema=schema))
    if kind == "SESSION":
        first = "lag(t) OVER (PARTITION BY k ORDER BY t)"
        begins = f"SELECT *, CASE WHEN t - {first} <= {size} THEN 0 ELSE 1 END AS begins FROM s"
        order = "PARTITION BY k ORDER BY t RANGE UNBOUNDED PRECEDING"
        numbered = f"SELECT *, sum(begins) OVER ({order}) AS number FROM ({begins})"
        text = f"""SELECT min(t), max(t) + {size}, k, {CALLS} FROM ({numbered}) GROUP BY k, number {having}"""
        return Bag(connection.sql(text).fetchall())
    windows = f"(SELECT unnest(range(-1000 * {slide}, 1000 * {slide}, {slide})) AS window_start)"
    text = f"""SELECT window_start, window_start + {size} AS window_end, k, {CALLS} FROM s JOIN {windows} w
        ON s.t >= window_start AND s.t < window_start + {size} GROUP BY window_start, k {having}"""
    return Bag(connection.sql(text).fetchall())


class Killed(Exception):
    pass


def raise_killed(*_: Any, **__: Any) -> None:
    raise Killed


def values(row: Row) -> tuple[Any, ...]:
    return tuple(value for name, value in row.items() if not name.startswith("_"))


@pytest.mark.parametrize(
    ("kind", "having"),
    [
        pytest.param("TUMBLE", HAVING[0], marks=pytest.mark.full),
        pytest.param("TUMBLE", HAVING[1], marks=pytest.mark.full),
        pytest.param("HOP", HAVING[0], marks=pytest.mark.full),
        ("HOP", HAVING[1]),
        ("SESSION", HAVING[0]),
        pytest.param("SESSION", HAVING[1], marks=pytest.mark.full),
    ],
)
def test_final_rows(seed: int, kind: str, having: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)
    job_plan, store, draw = plan(kind, having), MemoryStore(), random.Random(f"{seed} {kind}{having}")
    drawn, final, changes, late = Drawn(draw), Bag(), Bag(), 0
    for number in range(TICKS):
        is_end = number == TICKS - 1
        given = {"s": [({**row, "d": diff}, 1) for row, diff in drawn.tick(number)]}
        broken = LocalJob(job_plan, store, partitions=draw.choice((1, 2, 5)))
        with (
            replace_phase(draw.choice(("settle", "conclude", "commit")), raise_killed),
            pytest.raises(Killed),
        ):
            broken.tick(given, end=is_end)
        output = LocalJob(job_plan, store, partitions=draw.choice((1, 2, 5))).tick(given, end=is_end)
        for row in output.rows["changes"]:
            changes[values(row)] += row["_diff"]
        assert all("_diff" not in row for row in output.rows["final"])
        closed = Bag(map(values, output.rows["final"]))
        assert not any(row in final for row in closed), f"seed {seed}, tick {number}: out twice"
        final += closed
        late += len(output.late)
        mark = float("inf") if is_end else drawn.greatest - LAG
        if kind == "SESSION":  # closed when the watermark is beyond its end
            mark -= 1
        so_far = Bag({row: count for row, count in changes.items() if count and row[1] <= mark})
        assert final == so_far, f"seed {seed}, tick {number}"
    assert final == by_duckdb(drawn.there, kind, having), f"seed {seed}"
    assert late
    assert len(final) > (0 if kind == "SESSION" and having else TICKS * 9 // 15)
