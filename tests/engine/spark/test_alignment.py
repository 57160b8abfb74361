"""max_drift on Spark: a source that is ahead is held while Spark's query goes on."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from datetime import datetime, timedelta

import pytest

from tests.engine.spark.running import Running
from tests.engine.spark.running import until_caught_up as caught_up
from tests.support.effort import at_effort
from watersmeet.sinks.memory import MemorySink

pytestmark = pytest.mark.spark

HOURS = at_effort(quick=24, full=30)
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
MAX_SKEW = f"SET max_drift = INTERVAL '{SKEW}' HOURS;"


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


def compute_expected_rows(left: range, right: range) -> Counter[tuple[int, int | None]]:
    return Counter((k, k if k in right else None) for k in left)


def read() -> Counter[tuple[int, int | None]]:
    return Counter((row["lk"], row["rk"]) for row in MemorySink.rows("out"))


def get_max_retained_rows(running: Running, alias: str = "l") -> int:
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
    assert 0 in [tick.rows_in["l"] for tick in again.ticks[:2]], "held after a restart, too"
    assert read() == compute_expected_rows(range(4 * 24, 4 * (24 + HOURS)), range(4 * (24 + HOURS)))
    bounded = max(get_max_retained_rows(first), get_max_retained_rows(again))
    assert bounded <= 4 * (SKEW + 2 * 6 + 2 + 2) < 4 * HOURS, "at most two ticks ahead, see the page"


@pytest.mark.full
def test_without_max_drift_the_state_holds_the_whole_lead(spark, tmp_path):
    """The same rows as above: what max_drift saves."""
    write(tmp_path, "r", 0, 24 + HOURS, 2)
    write(tmp_path, "l", 24, HOURS, 6)
    text = JOB.format(l=files(tmp_path, "l"), r=files(tmp_path, "r"), settings="")
    free = caught_up(spark, text, tmp_path / "state", finish=True)
    assert read() == compute_expected_rows(range(4 * 24, 4 * (24 + HOURS)), range(4 * (24 + HOURS)))
    assert get_max_retained_rows(free) == 4 * HOURS


def topic(broker, name: str, more: str = "") -> str:
    servers = broker.bootstrap_servers
    return f"Kafka OPTIONS ('bootstrap.servers' = '{servers}', 'topic' = '{name}', 'max_ahead' = 'off'{more})"


def send(broker, name: str, *quarters: int) -> None:
    times = {quarter: str(DAY + timedelta(minutes=15 * quarter)) for quarter in quarters}
    broker.produce(name, [(0, None, json.dumps({"k": n, "t": time})) for n, time in times.items()])


@pytest.mark.full
@pytest.mark.kafka
@pytest.mark.parametrize("goes_idle", [False, True])
def test_topics_and_one_that_falls_silent(spark, tmp_path, kafka_broker, goes_idle):
    """Rows of l are there all the time; r comes to a standstill, and goes on, or is idle in the end. All the
    while it is one query of Spark."""
    left, right, rows = f"aligned-l-{goes_idle}", f"aligned-r-{goes_idle}", at_effort(quick=32, full=96)
    for name in (left, right):
        kafka_broker.create_topic(name)
    send(kafka_broker, left, *range(96, 96 + rows))
    send(kafka_broker, right, *range(40))
    idle = ", 'idle_timeout' = '2 seconds'"
    text = JOB.format(
        l=topic(kafka_broker, left, ", 'maxOffsetsPerTrigger' = '8'" + idle),
        r=topic(kafka_broker, right, ", 'maxOffsetsPerTrigger' = '20'" + (idle if goes_idle else "")),
        settings=MAX_SKEW,
    )
    with Running(spark, text, tmp_path / "state", trigger="300 milliseconds") as run:
        run.wait_for(lambda: run.total("in", "out", "r") == 40)
        (active,) = spark.streams.active
        query = str(active.runId)
        assert run.total("in", "out", "l") == 8
        assert run.ticks[-1].held["l"].behind == "r"
        if goes_idle:
            run.wait_for(lambda: run.total("in", "out", "l") == rows)
            assert any("r" in tick.queries["out"].idle for tick in run.ticks)
        else:
            time.sleep(3)
            assert run.total("in", "out", "l") == 8, "held, for r is silent and has no timeout"
            assert run.ticks[-1].queries["out"].idle == (), "nor is what is held idle"
            send(kafka_broker, right, *range(40, 96 + rows))
            run.wait_for(lambda: run.total("in", "out", "l") == rows)
            assert get_max_retained_rows(run) <= 4 * (SKEW + 1) + 8 + 20
        assert [str(one.runId) for one in spark.streams.active] == [query]


MADE_UP = "Generator OPTIONS ('rate' = '0.001', 'rows' = '{rows}', 'start' = '2024-01-01 {start}')"


def test_made_up_rows_and_a_job_that_ends_with_its_input(spark, tmp_path):
    """A row of each comes 1,000 s after the one before, and r begins two hours later: it waits until l is
    an hour behind, and at last for nobody, for l has no more."""
    text = JOB.format(
        l=MADE_UP.format(rows=5, start="00:00:00"),
        r=MADE_UP.format(rows=5, start="02:00:00"),
        settings="SET max_drift = INTERVAL '1' HOUR;",
    )
    run = caught_up(spark, text, tmp_path / "state", finish=True)
    given = [(tick.rows_in.get("l", 0), tick.rows_in.get("r", 0)) for tick in run.ticks]
    assert [sum(rows) for rows in zip(*given, strict=True)] == [5, 5]
    assert (1, 0) in given[:5], (
        "each pass begins a query anew, which may plan before it is told (see the page)"
    )
    assert (0, 1) in given, "l has no more"
