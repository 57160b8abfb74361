"""Which Kafka partitions hold the watermark: unread rows, pauses, partitions that come later.

A real broker, and where time matters a clock that the test moves.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tests.engine.spark.running import Running, until_caught_up
from tests.kafka.away import away
from watersmeet.errors import EngineError
from watersmeet.runtime.coordinator.tick_phases import ConcludedTick
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.runtime.spark.job import stream
from watersmeet.sinks.memory import MemorySink

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

S = 1_000_000
PAUSE_S = 0.2
"""Between heartbeats. By themselves they come every few seconds."""
JOB = """
CREATE MAPPING l (k STRING, t BIGINT, WATERMARK FOR t AS t - 5)
  TYPE Kafka OPTIONS ('bootstrap.servers' = '{servers}', 'topic' = '{name}-l'{more});
CREATE MAPPING r (k STRING, t BIGINT, WATERMARK FOR t AS t - 0)
  TYPE Kafka OPTIONS ('bootstrap.servers' = '{servers}', 'topic' = '{name}-r');
CREATE MAPPING out TYPE Memory;
INSERT INTO out SELECT l.k, l.t, r.k AS rk, r.t AS rt FROM l RIGHT JOIN r
  ON l.k = r.k AND l.t BETWEEN r.t - 10 AND r.t;
"""


class Clock:
    """The clock of runs, in µs; moved by the test alone. ``before_batch``: called once, between
    Spark's planning of the next batch and its tick."""

    def __init__(self) -> None:
        self.us = 1_700_000_000 * S
        self.read_us = 0  # the last time that the engine read
        self.before_batch = None

    def move(self, seconds: float) -> None:
        self.us += round(seconds * S)

    def __call__(self) -> int:
        self.read_us = self.us
        return self.us

    def let_heartbeats_look(self, run: Running) -> None:
        """Wait until a heartbeat has looked at the sources at the present time."""
        self.read_us = 0
        run.wait_for(lambda: self.read_us == self.us)
        time.sleep(2 * PAUSE_S)


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    offsets = Checkpoint.offsets

    def read_offsets_with_test_clock(self, batch):
        if found.before_batch is not None:
            found.before_batch, hook = None, found.before_batch
            hook()
        return replace(offsets(self, batch), clock_us=found.us)

    monkeypatch.setattr(Checkpoint, "offsets", read_offsets_with_test_clock)
    monkeypatch.setattr(stream, "heartbeat_pause", lambda timeouts_us: PAUSE_S)
    return found


@pytest.fixture
def topics(kafka_broker, request):
    MemorySink.clear()
    name = request.node.name.replace("_", "-")[:60]
    kafka_broker.create_topic(f"{name}-l", partitions=2)
    kafka_broker.create_topic(f"{name}-r")
    yield Topics(kafka_broker, name)
    MemorySink.clear()


class Topics:
    def __init__(self, broker, name):
        self.broker, self.name = broker, name

    def text(self, more: str = "") -> str:
        return JOB.format(servers=self.broker.bootstrap_servers, name=self.name, more=more)

    def left(self, *rows: tuple[int, int]) -> None:
        """Rows as (partition, time)."""
        self.broker.produce(f"{self.name}-l", [(p, None, f'{{"k": "a", "t": {t}}}') for p, t in rows])

    def right(self, *times: int) -> None:
        self.broker.produce(f"{self.name}-r", [(0, None, f'{{"k": "b", "t": {t}}}') for t in times])


def await_watermark_after_rows(run: Running, rows: int) -> int:
    """The watermark of l as of the tick that brought its n-th row."""
    run.wait_for(lambda: run.total("in", "out", "l") >= rows)
    return run.ticks[-1].queries["out"].input_watermarks["l.t"]


def test_unread_rows_in_a_tick_with_rows(spark, topics, tmp_path, clock):
    """Rows reach a silent partition while a tick with other rows runs, in which it would have gone idle."""
    topics.left((0, 100), (1, 20))
    with Running(
        spark, topics.text(", 'idle_timeout' = '5 seconds'"), tmp_path / "state", clock=clock
    ) as run:
        assert await_watermark_after_rows(run, 2) == 15
        for _ in range(2):
            clock.move(2.4)
            clock.let_heartbeats_look(run)

        def between() -> None:
            clock.move(0.2)
            topics.left((1, 21))

        clock.before_batch = between
        topics.left((0, 110))
        assert await_watermark_after_rows(run, 3) == 15, "5 s of silence, but a row is there"
        assert await_watermark_after_rows(run, 4) == 16
        assert run.total("late", "out", "l") == 0


def test_a_silent_partition_goes_idle_in_a_tick_with_rows(spark, topics, tmp_path, clock):
    """The same without the row: the broker is asked, has nothing, and the partition is idle."""
    topics.left((0, 100), (1, 20))
    with Running(
        spark, topics.text(", 'idle_timeout' = '5 seconds'"), tmp_path / "state", clock=clock
    ) as run:
        assert await_watermark_after_rows(run, 2) == 15
        for _ in range(2):
            clock.move(2.4)
            clock.let_heartbeats_look(run)
        clock.before_batch = lambda: clock.move(0.2)
        topics.left((0, 110))
        assert await_watermark_after_rows(run, 3) == 105


def test_an_hour_in_which_nobody_looked(spark, topics, tmp_path, clock):
    """A tick of an hour, a machine that slept: nothing is idle after it."""
    topics.left((0, 100), (1, 20))
    with Running(spark, topics.text(", 'idle_timeout' = '1 minute'"), tmp_path / "state", clock=clock) as run:
        assert await_watermark_after_rows(run, 2) == 15
        clock.before_batch = lambda: clock.move(3600)
        topics.left((0, 110))
        assert await_watermark_after_rows(run, 3) == 15
        clock.move(31)
        run.wait_for(lambda: run.ticks[-1].queries["out"].input_watermarks["l.t"] == 105)
    with Running(spark, topics.text(", 'idle_timeout' = '1 minute'"), tmp_path / "state", clock=clock) as run:
        clock.move(3600)
        topics.left((1, 106), (0, 120))
        assert await_watermark_after_rows(run, 5) == 105
    with Running(spark, topics.text(", 'idle_timeout' = '1 minute'"), tmp_path / "state", clock=clock) as run:
        clock.move(3600)
        topics.left((0, 130))
        assert await_watermark_after_rows(run, 6) == 105, "the job was down for an hour"


def test_partitions_that_are_added_while_the_job_runs(spark, topics, tmp_path):
    topics.left((0, 100), (1, 80))
    topics.right(200)
    with Running(spark, topics.text(), tmp_path / "state", trigger="200 milliseconds") as run:
        assert await_watermark_after_rows(run, 2) == 75
        ticks = len(run.ticks)
        topics.broker.add_partitions(f"{topics.name}-l", 3)
        run.wait_for(lambda: len(run.ticks) > ticks)  # Spark makes a batch of the news
        topics.left((0, 150), (1, 150))
        assert await_watermark_after_rows(run, 4) == 75, "the new partition has shown nothing yet"
        topics.left((2, 76))
        assert await_watermark_after_rows(run, 5) == 75
        assert run.total("late", "out", "l") == 0
        topics.left((2, 120))
        assert await_watermark_after_rows(run, 6) == 115
    with Running(spark, topics.text(), tmp_path / "state", trigger="200 milliseconds") as run:
        topics.left((2, 140))
        assert await_watermark_after_rows(run, 7) == 135


def test_an_added_partition_that_stays_silent_goes_idle(spark, topics, tmp_path):
    topics.left((0, 100), (1, 80))
    text = topics.text(", 'idle_timeout' = '3 seconds'")
    with Running(spark, text, tmp_path / "state", trigger="200 milliseconds") as run:
        assert await_watermark_after_rows(run, 2) == 75
        ticks = len(run.ticks)
        topics.broker.add_partitions(f"{topics.name}-l", 3)
        run.wait_for(lambda: len(run.ticks) > ticks)
        topics.left((0, 150), (1, 150))
        assert await_watermark_after_rows(run, 4) == 75
        run.wait_for(lambda: run.ticks[-1].queries["out"].input_watermarks["l.t"] == 145)


def test_watermark_holders_are_reported_at_start_and_each_tick(spark, topics, tmp_path):
    topics.left((0, 100))
    topics.right(100)
    waiting = []

    def list_watermark_holders(run: Running) -> list[tuple[str, str, bool]]:
        found = run.ticks[-1].queries["out"].holding["l"]
        return [(each.source, each.partition, each.since_us is None) for each in found]

    def started(holdings, _) -> None:
        waiting.append(holdings)

    with Running(spark, topics.text(), tmp_path / "state", on_start=started) as run:
        assert await_watermark_after_rows(run, 1) < -(2**62)
        assert list_watermark_holders(run) == [("l", "1", True)]
        topics.left((1, 50))
        assert await_watermark_after_rows(run, 2) == 45
        assert list_watermark_holders(run) == []
    ((left, right),) = (found["out"].values() for found in waiting)
    assert [(each.source, each.partition) for each in left] == [("l", "1")]
    assert right == ()
    with Running(spark, topics.text(), tmp_path / "state", on_start=started) as run:
        topics.left((0, 110))
        await_watermark_after_rows(run, 3)
    assert waiting[1] == {"out": {"l": (), "r": ()}}


@pytest.mark.parametrize(
    ("tick_in_hand", "how"),
    [
        (True, "hung"),
        pytest.param(True, "stopped", marks=pytest.mark.full),
        pytest.param(False, "stopped", marks=pytest.mark.full),
    ],
)
def test_job_stops_within_seconds_while_the_broker_is_away(
    spark, kafka_broker, tmp_path, clock, tick_in_hand, how
):
    """Between ticks Spark waits for offsets, within one for rows; both would take minutes."""
    MemorySink.clear()
    name, is_away = f"away-{tick_in_hand}-{how}", []
    kafka_broker.create_topic(f"{name}-l", partitions=2)
    kafka_broker.create_topic(f"{name}-r")
    topics = Topics(kafka_broker, name)
    topics.left((0, 100), (1, 100))
    with ExitStack() as outage:

        def go_away() -> None:
            outage.enter_context(away(kafka_broker, how))
            is_away.append(True)

        with Running(spark, topics.text(), tmp_path / "state", clock=clock) as run:
            await_watermark_after_rows(run, 2)
            if tick_in_hand:
                clock.before_batch = go_away
                topics.left((0, 110))
                run.wait_for(lambda: bool(is_away))
                time.sleep(2)
            else:
                go_away()
                time.sleep(5)
            started = time.monotonic()
        assert time.monotonic() - started < 20
        assert len(run.ticks) == 1
    topics.left((1, 120))
    again = until_caught_up(spark, topics.text(), tmp_path / "state", clock=clock)
    assert again.total("in", "out", "l") == (4 if tick_in_hand else 3)
    MemorySink.clear()


def test_replayed_idle_tick_pads_the_same_row_once(spark, topics, tmp_path, clock, monkeypatch):
    """Repeated with the clock of another run, it lets the same partition go idle: its pad comes once."""
    text = topics.text(", 'idle_timeout' = '5 seconds'")
    topics.left((0, 100), (1, 20))
    topics.right(50)
    pad = {"k": None, "t": None, "rk": "b", "rt": 50}
    commit = ConcludedTick.commit

    def dies(self, *told):
        if self.manifest.queries["out"].inputs["l"].watermarks["t"] == 95:
            raise EngineError("killed", code="test")
        commit(self, *told)

    def until_it_is_idle() -> None:
        with Running(spark, text, tmp_path / "state", clock=clock) as run:
            assert await_watermark_after_rows(run, 2) == 15
            clock.move(2.5)
            clock.let_heartbeats_look(run)
            clock.move(2.5)
            run.wait_for(lambda: False, timeout_s=30)

    with monkeypatch.context() as patched:
        patched.setattr(ConcludedTick, "commit", dies)
        with pytest.raises(EngineError, match="killed"):
            until_it_is_idle()
    assert MemorySink.rows("out") == [pad]
    clock.move(3600)
    with Running(spark, text, tmp_path / "state", clock=clock) as run:
        run.wait_for(lambda: bool(run.ticks))
        assert run.ticks[0].queries["out"].input_watermarks["l.t"] == 95
        topics.left((0, 200), (1, 200))
        assert await_watermark_after_rows(run, 4) == 195
    assert MemorySink.rows("out") == [pad]
