"""DataFrames of the user's own, joined: in their session, which stays as it was."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

import watersmeet as ws
from tests.support.phases import PHASES
from watersmeet.running import RunSettings, run_planned

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, tzinfo=UTC)
ORDERS = "order_id BIGINT, order_time TIMESTAMP, item_id BIGINT"
DELIVERIES = "order_id BIGINT, delivery_time TIMESTAMP, address STRUCT<`street name`: STRING>"


class Shop:
    """Two folders of JSON that grow, and the frames over them."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.spark = folder, spark
        self.orders: list[tuple[int, datetime, int]] = []
        self.deliveries: list[tuple[int, datetime]] = []
        for name in ("orders", "deliveries"):
            (folder / name).mkdir()

    def add(self, first: int, count: int) -> None:
        """Orders a minute apart; of three one is not delivered, and one before it was made."""
        orders = [(n, START + timedelta(minutes=n), 100 + n % 5) for n in range(first, first + count)]
        wait = {1: timedelta(minutes=3), 2: timedelta(minutes=-2)}
        deliveries = [(n, at + wait[n % 3]) for n, at, _ in orders if n % 3]
        self.orders += orders
        self.deliveries += deliveries
        self.put(
            "orders", [{"order_id": n, "order_time": at.isoformat(), "item_id": i} for n, at, i in orders]
        )
        told = [
            {"order_id": n, "delivery_time": at.isoformat(), "address": {"street name": f"s{n}"}}
            for n, at in deliveries
        ]
        self.put("deliveries", told)

    def put(self, name: str, rows: list[dict[str, Any]]) -> None:
        place = self.folder / name
        number = len(list(place.iterdir()))
        hidden = place / f".{number}"
        hidden.write_text("\n".join(json.dumps(row) for row in rows))
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))  # by which Spark has them in order
        hidden.rename(place / f"{hidden.name[1:]}.json")

    def frame(self, name: str, schema: str) -> Any:
        return (
            self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self.folder / name))
        )

    def relation(self) -> ws.Relation:
        orders = ws.stream(
            self.frame("orders", ORDERS).where("item_id <> 104"),
            time="order_time",
            lag="10 seconds",
            name="orders",
        )
        deliveries = ws.stream(
            self.frame("deliveries", DELIVERIES), time={"delivery_time": "1 minute"}, name="deliveries"
        )
        return (
            orders.alias("o")
            .join(
                deliveries.alias("d"),
                on="o.order_id = d.order_id",
                within=ws.between("d.delivery_time", "o.order_time", "0s", "1h"),
                how="left",
            )
            .select("o.order_id", "d.address.`street name` AS street")
        )

    def job(self, **settings: Any) -> ws.Job:
        return ws.job(
            self.relation().to_sink(ws.files(str(self.folder / "out"))),
            checkpoint=str(self.folder / "state"),
            settings=settings,
        )

    def expected(self) -> list[tuple[int, str | None]]:
        times = dict(self.deliveries)
        return sorted(
            (n, f"s{n}" if n in times and timedelta(0) <= times[n] - at <= timedelta(hours=1) else None)
            for n, at, item in self.orders
            if item != 104
        )

    def rows(self) -> list[tuple[int, str | None]]:
        sql = f"SELECT order_id, street FROM read_parquet('{self.folder}/out/*.parquet') ORDER BY order_id"
        return duckdb.sql(sql).fetchall()


class Numbers(DataSource):
    """Three numbers, and then no more."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "n INT"

    def simpleStreamReader(self, schema):
        return ThreeNumbers()


class ThreeNumbers(SimpleDataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def read(self, start):
        return iter([(n,) for n in range(start["at"], 3)]), {"at": 3}

    def readBetweenOffsets(self, start, end):
        return iter([(n,) for n in range(start["at"], end["at"])])


@pytest.fixture
def shop(tmp_path, spark):
    return Shop(tmp_path, spark)


def test_frames_are_joined_and_a_job_goes_on_where_it_was(shop, spark):
    shop.add(0, 30)
    shop.add(30, 30)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        job = shop.job(until_caught_up=True).start()
        assert job.await_termination(120)
        assert job.status == "finished"
        assert job.account is not None
        assert job.account.adds_up()
        assert job.progress is not None
        assert job.progress.tick == 2
        shop.add(60, 30)
        job = shop.job(finish=True).start()
        assert job.await_termination(120)
        assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
        assert spark.conf.get("spark.sql.caseSensitive") == "true"
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert shop.rows() == shop.expected()
    assert job.account.adds_up()
    by_input = {one.input: one.rows_in for one in job.account.inputs}
    assert by_input == {"o": len(shop.expected()), "d": len(shop.deliveries)}
    assert spark.range(3).count() == 3, "the session goes on"


@pytest.mark.full
@pytest.mark.parametrize("where", ["conclude", "commit"])
def test_a_tick_that_dies_is_repeated_with_nothing_doubled(shop, monkeypatch, where):
    """The second one: before its rows are out, and when they are."""
    shop.add(0, 30)
    shop.add(30, 30)
    plain, calls = getattr(PHASES[where], where), itertools.count()

    def dies(*arguments: Any, **named: Any) -> Any:
        if next(calls) == 1:
            raise ws.EngineError("killed", code="test")
        return plain(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(PHASES[where], where, dies)
        job = shop.job(finish=True).start()
        with pytest.raises(ws.EngineError, match="killed"):
            job.await_termination(120)
    assert job.status == "failed"
    assert job.exception() is not None
    again = shop.job(finish=True).start()
    assert again.await_termination(120)
    assert shop.rows() == shop.expected()


def test_it_runs_until_it_is_stopped_and_listeners_see_it(shop, spark):
    from pyspark.sql.streaming.listener import StreamingQueryListener

    seen: list[str] = []

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event):
            seen.append("started")

        def onQueryProgress(self, event):
            seen.append("progress")

        def onQueryIdle(self, event):
            pass

        def onQueryTerminated(self, event):
            seen.append("terminated")

    listener = Listener()
    spark.streams.addListener(listener)
    try:
        shop.add(0, 30)
        ticks: list[Any] = []
        job = shop.job(trigger="100 milliseconds").start(on_tick=ticks.append)
        wait(lambda: ticks)
        assert job.status == "running"
        assert not job.await_termination(0.1)
        shop.add(30, 30)
        wait(lambda: len(ticks) > 1)
        assert job.stop()
        assert job.status == "stopped"
        assert job.exception() is None
        wait(lambda: "terminated" in seen)
        assert {"started", "progress"} <= set(seen)
    finally:
        spark.streams.removeListener(listener)
    assert shop.rows()
    assert set(shop.rows()) <= set(shop.expected())


def wait(until: Any, most_s: float = 90) -> None:
    end = time.monotonic() + most_s
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_text_that_declares_all_leaves_the_session_as_it_was(shop, spark):
    shop.add(0, 10)
    text = f"""
        CREATE TABLE orders ({ORDERS}, WATERMARK FOR order_time AS order_time)
          WITH ('connector' = 'file', 'path' = '{shop.folder}/orders', 'format' = 'json');
        CREATE SINK out WITH ('connector' = 'file', 'path' = '{shop.folder}/out', 'format' = 'parquet');
        INSERT INTO out SELECT order_id, CAST(NULL AS STRING) AS street FROM orders"""
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        job = ws.sql(text, checkpoint=str(shop.folder / "state"), settings={"finish": True}).start()
        assert job.await_termination(120)
        assert spark.conf.get("spark.sql.caseSensitive") == "true"
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert [row[0] for row in shop.rows()] == list(range(10))


RATE = """
    CREATE TABLE numbers (value BIGINT, timestamp TIMESTAMP, WATERMARK FOR timestamp AS timestamp)
      TYPE Spark OPTIONS ('format' = 'rate-micro-batch', 'rowsPerBatch' = '5', 'startTimestamp' = '1000');
    CREATE SINK out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'parquet');
    INSERT INTO out SELECT value AS order_id, CAST(timestamp AS STRING) AS street FROM numbers"""


def test_any_source_of_sparks_is_read_by_a_text(tmp_path, spark):
    settings = {"checkpoint": str(tmp_path / "state"), "until_caught_up": True}
    for ticks in (1, 2):
        ws.run(RATE.replace("{folder}", str(tmp_path)), settings)
        sql = f"SELECT order_id, street FROM read_parquet('{tmp_path}/out/*.parquet') ORDER BY order_id"
        rows = duckdb.sql(sql).fetchall()
        assert [row[0] for row in rows] == list(range(5 * ticks))
        assert rows[0][1] == "1970-01-01 00:00:01"


@pytest.mark.parametrize(
    ("was", "made", "says"),
    [
        ("'format' = 'rate-micro-batch'", "'format' = 'nosuch'", "nosuch"),
        ("'format' = 'rate-micro-batch', ", "", "which names Spark's data source"),
        ("'format' = 'rate-micro-batch'", "'format' = 'kafka'", "TYPE Kafka"),
        ("value BIGINT", "value INT", '"value" is BIGINT'),
        ("value BIGINT", "valeu BIGINT", "the data source has no column valeu"),
        ("'rowsPerBatch' = '5'", "'rowsPerBatch' = 'many'", "many"),
    ],
)
def test_invalid_spark_source_is_reported(tmp_path, spark, was, made, says):
    text = RATE.replace("{folder}", str(tmp_path)).replace(was, made).replace("SELECT value", "SELECT 1")
    with pytest.raises(ws.WatersmeetError, match=re.escape(says)):
        ws.run(text, {"checkpoint": str(tmp_path / "state"), "until_caught_up": True})


def test_two_jobs_run_in_one_session(tmp_path, spark):
    shops = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shops.append(Shop(tmp_path / name, spark))
        shops[-1].add(0, 20 + len(name))
    jobs = [shop.job(finish=True).start() for shop in shops]
    assert all(job.await_termination(150) for job in jobs)
    for shop in shops:
        assert shop.rows() == shop.expected()


REFUSED = {
    "aggregates": lambda f, _: f.groupBy("order_id").count().selectExpr("*", "now() AS order_time"),
    "drops duplicates": lambda f, _: f.dropDuplicates(["order_id"]),
    "takes the first": lambda f, _: f.limit(3),
    "has 2 streaming": lambda f, _: f.union(f.where("order_id > 3")),
    "joins its stream with a table": lambda f, spark: f.join(
        spark.range(9).withColumnRenamed("id", "order_id"), "order_id"
    ),
    "samples rows": lambda f, _: f.sample(0.5, seed=3),
    "values that differ each time": lambda f, _: f.selectExpr("*", "rand() AS r"),
}


@pytest.mark.parametrize("says", REFUSED)
def test_frames_whose_rows_would_be_others_are_refused_before_a_query_starts(shop, spark, says):
    shop.add(0, 3)
    frame = REFUSED[says](shop.frame("orders", ORDERS), spark)
    relation = ws.stream(frame, time="order_time", name="orders").select("order_id")
    job = ws.job(relation.to_sink(ws.files(str(shop.folder / "out"))), checkpoint=str(shop.folder / "state"))
    with pytest.raises(ws.WatersmeetError, match=says):
        job.start().await_termination(60)
    assert not (shop.folder / "state" / "spark").exists()
    assert not spark.streams.active


def test_unreplayable_source_is_rejected_and_unknown_source_is_reported(shop, spark, tmp_path):
    def started(frame: Any) -> Any:
        relation = ws.stream(frame.selectExpr("now() AS t", "*"), time="t", name="numbers")
        sink = ws.files(str(shop.folder / "out"))
        settings = {"until_caught_up": True}
        return ws.job(relation.to_sink(sink), checkpoint=str(tmp_path / "state"), settings=settings).start()

    socket = spark.readStream.format("socket").option("host", "localhost").option("port", 9).load()
    with pytest.raises(ws.SpecError, match="reads a socket source"):
        started(socket).await_termination(60)
    for own, notes in ((False, 0), (True, 1)):
        frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
        if own:
            spark.dataSource.register(Numbers)
            frame = spark.readStream.format("numbers").load()
            shutil.rmtree(tmp_path / "state")
            shutil.rmtree(shop.folder / "out")
        job = started(frame)
        assert job.await_termination(120)
        assert len(job.notices) == notes, job.notices
        assert job.progress.rows_in == {"numbers": 3}


def test_frame_with_a_subquery_is_rejected(shop, spark):
    shop.add(0, 3)
    spark.range(3).createOrReplaceTempView("three")
    frame = shop.frame("orders", ORDERS).where("order_id IN (SELECT id FROM three)")
    relation = ws.stream(frame, time="order_time", name="orders").select("order_id")
    job = ws.job(relation.to_sink(ws.files(str(shop.folder / "out"))), checkpoint=str(shop.folder / "state"))
    with pytest.raises(ws.WatersmeetError, match="joins its stream with a table"):
        job.start().await_termination(60)


def test_a_frame_with_an_end_is_no_stream(spark):
    with pytest.raises(ws.SqlError, match="is a batch DataFrame"):
        ws.stream(spark.range(3), time="id", name="numbers")


def test_spark_checkpoint_of_a_frame_cannot_be_rebuilt(shop):
    shop.add(0, 10)
    assert shop.job(until_caught_up=True).start().await_termination(120)
    shutil.rmtree(shop.folder / "state" / "spark")
    job = shop.job(until_caught_up=True)
    with pytest.raises(ws.StateError) as lost:
        job.start().await_termination(60)
    assert lost.value.code == "spark-checkpoint-lost"
    state = str(shop.folder / "state")
    with pytest.raises(ws.StateError) as refused:
        run_planned(job.description, job.plan, RunSettings(state, frames=job.frames, rebuild=True))
    assert refused.value.code == "not-rebuilt"


def test_one_frame_is_no_two_streams(shop, spark):
    """Spark reads it once, and has its offsets once."""
    shop.add(0, 3)
    raw = shop.frame("orders", ORDERS)
    odd = ws.stream(raw.where("order_id % 2 = 1"), time="order_time", name="odd").select("order_id")
    even = ws.stream(raw.where("order_id % 2 = 0"), time="order_time", name="even").select("order_id")
    job = ws.job(
        odd.union_all(even).to_sink(ws.files(str(shop.folder / "out"))), checkpoint=str(shop.folder / "state")
    )
    with pytest.raises(ws.SpecError, match="read the same source DataFrame"):
        job.start().await_termination(60)
    again = shop.frame("orders", ORDERS)
    even = ws.stream(again.where("order_id % 2 = 0"), time="order_time", name="even").select("order_id")
    two = odd.union_all(even).select("order_id", "CAST(NULL AS STRING) AS street")
    job = ws.job(
        two.to_sink(ws.files(str(shop.folder / "out"))),
        checkpoint=str(shop.folder / "state"),
        settings={"finish": True},
    )
    assert job.start().await_termination(120)
    assert [row[0] for row in shop.rows()] == [0, 1, 2]


def test_a_job_without_its_frame_is_refused(shop):
    shop.add(0, 3)
    job = shop.job()
    with pytest.raises(ws.SeveralErrors, match="is a DataFrame of the Python program"):
        run_planned(job.description, job.plan, RunSettings(str(shop.folder / "state")))


def test_a_frame_of_spark_connect_is_refused(shop):
    class Remote:
        sparkSession = object()

    job = shop.job()
    frames = dict.fromkeys(job.frames, Remote())
    with pytest.raises(ws.SpecError, match="Spark Connect"):
        run_planned(job.description, job.plan, RunSettings("state", frames=frames))
