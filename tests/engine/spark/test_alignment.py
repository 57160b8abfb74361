"""max_skew on Spark: a source that is ahead is held while Spark's query goes on, in its first batch, too."""

from __future__ import annotations

import os
from collections import Counter
from datetime import datetime, timedelta

import pytest

from tests.engine.spark.running import Running
from tests.engine.spark.running import until_caught_up as caught_up
from watersmeet.sinks.memory import MemorySink

pytestmark = pytest.mark.spark

HOURS = 30
SKEW = 4
DAY = datetime(2024, 1, 1)

JOB = """
CREATE MAPPING l (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t)
  TYPE {l};
CREATE MAPPING r (k BIGINT, t TIMESTAMP, WATERMARK FOR t AS t)
  TYPE {r};
CREATE MAPPING out TYPE Memory;
{settings}
INSERT INTO out SELECT l.k AS lk, r.k AS rk FROM l LEFT JOIN r
  ON l.k = r.k AND r.t BETWEEN l.t - INTERVAL '1' HOUR AND l.t + INTERVAL '1' HOUR;
"""
MAX_SKEW = f"SET max_skew = INTERVAL '{SKEW}' HOURS;"


def files(folder, name: str, more: str = "") -> str:
    return f"File OPTIONS ('path' = '{folder / name}', 'format' = 'csv', 'maxFilesPerTrigger' = '1'{more})"


def write(folder, name: str, first: int, hours: int, per_file: int) -> None:
    """Files of ``per_file`` hours each, with four rows an hour, in their order."""
    (folder / name).mkdir(exist_ok=True)
    for start in range(first, first + hours, per_file):
        quarters = range(4 * start, 4 * min(start + per_file, first + hours))
        lines = ["k,t", *(f"{quarter},{DAY + timedelta(minutes=15 * quarter)}" for quarter in quarters)]
        path = folder / name / f"{start:04}.csv"
        path.write_text("\n".join(lines) + "\n")
        os.utime(path, (1_700_000_000 + start, 1_700_000_000 + start))


def expected(left: range, right: range) -> Counter[tuple[int, int | None]]:
    return Counter((k, k if k in right else None) for k in left)


def read() -> Counter[tuple[int, int | None]]:
    return Counter((row["lk"], row["rk"]) for row in MemorySink.rows("out"))


def most_kept(running: Running, alias: str = "l") -> int:
    return max(tick.queries["out"].state[alias] for tick in running.ticks)


@pytest.fixture(autouse=True)
def memory():
    MemorySink.clear()
    yield
    MemorySink.clear()


def test_a_day_ahead_with_a_restart_in_the_middle(spark, tmp_path):
    """l begins a day after r, and is read six hours at a time, r two."""
    write(tmp_path, "r", 0, 24 + HOURS, 2)
    write(tmp_path, "l", 24, HOURS, 6)
    text = JOB.format(l=files(tmp_path, "l"), r=files(tmp_path, "r"), settings=MAX_SKEW)
    with Running(spark, text, tmp_path / "state", trigger="0 seconds") as first:
        first.wait_for(lambda: len(first.ticks) >= 4)
    assert first.ticks[0].rows_in == {"l": 24, "r": 8}
    assert [tick.rows_in["l"] for tick in first.ticks[1:4]] == [0, 0, 0]
    ahead = first.ticks[0].held["l"]
    assert (ahead.behind, ahead.by) == ("r", (29 * 60 + 45 - 105) * 60 * 1_000_000)

    again = caught_up(spark, text, tmp_path / "state", finish=True)
    assert again.ticks[0].rows_in["l"] == 0, "held in the first batch after a restart"
    assert read() == expected(range(4 * 24, 4 * (24 + HOURS)), range(4 * (24 + HOURS)))
    bounded = max(most_kept(first), most_kept(again))

    MemorySink.clear()
    free = caught_up(spark, text.replace(MAX_SKEW, ""), tmp_path / "other", finish=True)
    assert read() == expected(range(4 * 24, 4 * (24 + HOURS)), range(4 * (24 + HOURS)))
    assert most_kept(free) == 4 * HOURS
    assert bounded <= 4 * (SKEW + 6 + 2 + 2) < most_kept(free)
