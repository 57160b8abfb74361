"""The page's two programs, a join by Spark itself and the same here: few lines differ, no rows do. And its
table of what moves from Spark: each row is run."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

import watersmeet as ws
from watersmeet.runtime.spark.job.external_session import find_frames_session
from watersmeet.spec.job_options import OutputMode

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[3] / "docs" / "users" / "coming-from" / "spark.md"
START = datetime(2024, 1, 1, tzinfo=UTC)


def programs() -> list[str]:
    section = PAGE.read_text().split("\n## The same join, in Python\n")[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)


def test_few_lines_differ():
    plain, ours = (program.splitlines() for program in programs())
    told = [line for line in difflib.ndiff(plain, ours) if line[0] in "+-"]
    assert len([line for line in told if line[0] == "+"]) == 6
    assert len([line for line in told if line[0] == "-"]) <= 5


def test_both_give_the_same_rows(spark, tmp_path):
    orders, deliveries, expected = [], [], []
    for n in range(60):
        at = START + timedelta(minutes=n)
        waited = timedelta(minutes=(0, 59, 60, 61, -1)[n % 5])
        orders.append({"order_id": n, "order_time": at.isoformat()})
        deliveries.append({"order_id": n, "delivery_time": (at + waited).isoformat()})
        if timedelta(0) <= waited <= timedelta(hours=1):
            expected.append((n, (at + waited).replace(tzinfo=None)))
    deliveries.sort(key=lambda row: row["delivery_time"])
    found: list[Any] = []
    for number, program in enumerate(programs()):
        folder = tmp_path / str(number)
        for name, rows in (("orders", orders), ("deliveries", deliveries)):
            place = folder / "in" / name
            place.mkdir(parents=True)
            (place / "0.json").write_text("\n".join(json.dumps(row) for row in rows))
        for name in ("in/", "out", "state"):
            program = program.replace(f'"{name}', f'"{folder}/{name}')
        exec(compile(program, str(PAGE), "exec"), {"spark": spark})
        sql = f"SELECT order_id, delivery_time FROM read_parquet('{folder}/out/**/*.parquet') ORDER BY 1"
        rows = duckdb.sql(f"SELECT order_id, CAST(delivery_time AS TIMESTAMP) FROM ({sql})").fetchall()
        found.append(sorted(rows))
    assert found == [expected, expected]


def moves() -> dict[str, tuple[str, str]]:
    """Return the rows of the page's table: what it is in Spark -> how it moves, what is written here."""
    section = PAGE.read_text().split("\n## What moves unchanged, ")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {spark: (how, here) for spark, how, here in rows[1:]}


@dataclass
class Trial:
    """What a row's check has: a session, a folder with rows, and the row's own text."""

    spark: Any
    folder: Path
    finished_job: SimpleNamespace
    here: str

    def frame(self, name: str = "readings") -> Any:
        return self.spark.readStream.schema("id BIGINT, t TIMESTAMP").json(str(self.folder / name))

    def stream(self, frame: Any = None, name: str = "readings") -> ws.Relation:
        given = self.frame(name) if frame is None else frame
        return ws.stream(given, time="t", lag="10 seconds", name=name)

    def job(self, *outputs: ws.Output, checkpoint: str = "unused", **settings: Any) -> ws.Job:
        given = outputs or (self.stream().to_sink(ws.memory("rows")),)
        return ws.job(*given, checkpoint=str(self.folder / checkpoint), settings=settings)

    def is_refused(self, run: Callable[[], Any]) -> None:
        """Check that ``run`` raises an error with a code that the row names."""
        with pytest.raises(ws.WatersmeetError) as refused:
            run()
        first = getattr(refused.value, "errors", [refused.value])[0]
        assert f"`{first.code}`" in self.here

    def frame_is_refused(self, frame: Any) -> None:
        output = self.stream(frame).to_sink(ws.memory("rows"))
        self.is_refused(lambda: self.job(output).start().await_termination(60))


CHECKS: dict[str, Callable[[Trial], None]] = {}


def row(text: str) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    def add(check: Callable[[Trial], None]) -> Callable[[Trial], None]:
        CHECKS[text] = check
        return check

    return add


@pytest.fixture(scope="module")
def finished_job(spark, tmp_path_factory) -> Iterator[tuple[Path, SimpleNamespace]]:
    """Run one job: UDFs and a watermark in a frame, joins, a window, a function, Spark's writers."""
    from pyspark.sql.functions import pandas_udf, udf
    from pyspark.sql.streaming.listener import StreamingQueryListener

    folder = tmp_path_factory.mktemp("moves")
    for name in ("readings", "alarms"):
        (folder / name).mkdir()
        rows = [{"id": n, "t": f"2024-01-01T00:{n:02}:00Z", "undeclared": n} for n in (1, 2, 3)]
        rows = [row for row in rows if name == "readings" or row["id"] != 2]
        (folder / name / "0.json").write_text("\n".join(map(json.dumps, rows)))
    seen: list[str] = []

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            seen.append("started")

        def onQueryProgress(self, event: Any) -> None:
            seen.append("progress")

        def onQueryIdle(self, event: Any) -> None: ...

        def onQueryTerminated(self, event: Any) -> None: ...

    trial = Trial(spark, folder, SimpleNamespace(), "")
    as_text = udf(lambda number: f"<{number}>", "string")
    doubled = pandas_udf(lambda numbers: numbers * 2, "bigint")  # type: ignore[call-overload]
    own = trial.frame().withWatermark("t", "1 second")
    readings = trial.stream(own.withColumn("text", as_text("id")).withColumn("double", doubled("id")))
    alarms = trial.stream(name="alarms")
    joined = (
        readings.alias("r")
        .join(alarms.alias("a"), on="r.id = a.id", within=ws.between("a.t", "r.t", "0s", "1m"), how="left")
        .select("r.id", "r.text", "r.double", "a.id AS alarm")
    )
    items = ws.table(lambda: spark.createDataFrame([(1, "one")], "id BIGINT, item STRING"), name="items")
    enriched = alarms.alias("b").join(items.alias("i").as_of(), on="b.id = i.id").select("b.id", "i.item")
    batches: list[Any] = []
    spark.sql("CREATE TABLE IF NOT EXISTS moved_rows (id BIGINT) USING parquet")
    outputs = [
        joined.to_sink(ws.memory("joined")),
        enriched.to_sink(ws.memory("enriched")),
        readings.group_by(ws.tumble("t", "1 hour"), "id").select("id").to_sink(ws.memory("once")),
        readings.select("id").foreach_batch(
            lambda rows, tick: batches.extend((tick, row.id) for row in rows.collect()), name="put"
        ),
        readings.select("id").to_table("moved_rows"),
        readings.select("id").to_sink(format="orc", options={"path": str(folder / "orc")}),
        readings.group_by(ws.session("t", "1 hour")).agg("count(*) AS n").to_sink(ws.memory("session")),
    ]
    spark.streams.addListener(Listener())
    ticks: list[Any] = []
    job = ws.job(*outputs, checkpoint=str(folder / "state"), settings={"finish": True})
    started = job.start(on_tick=ticks.append)
    ended = started.await_termination(120)
    yield folder, SimpleNamespace(started=started, ended=ended, ticks=ticks, batches=batches, seen=seen)
    spark.sql("DROP TABLE moved_rows")


def test_each_row_of_the_table_has_a_check_and_each_check_a_row():
    assert set(moves()) == set(CHECKS)
    assert {how for how, _ in moves().values()} == {"same", "changes", "no"}


@pytest.mark.parametrize("text", moves())
def test_rows_move_as_the_table_says(spark, finished_job, text):
    folder, job = finished_job
    CHECKS[text](Trial(spark, folder, job, moves()[text][1]))


@row("`join` of two streams")
def _joins(trial: Trial) -> None:
    rows = {(row["id"], row["alarm"]) for row in trial.finished_job.started.result("joined").rows()}
    assert rows == {(1, 1), (2, None), (3, 3)}
    left, right = trial.stream().alias("l"), trial.stream(name="alarms").alias("r")
    unbounded = left.join(right, on="l.id = r.id").select("l.id")
    trial.is_refused(lambda: trial.job(unbounded.to_sink(ws.memory("rows"))).plan)


@row("`withWatermark`")
def _watermark(trial: Trial) -> None:
    output = trial.stream(trial.frame().withWatermark("t", "1 day")).to_sink(ws.memory("rows"))
    assert "lag 10 s" in trial.job(output).explain()


@row("`dropDuplicates`, `dropDuplicatesWithinWatermark`")
def _duplicates(trial: Trial) -> None:
    trial.frame_is_refused(trial.frame().dropDuplicates(["id"]))
    timed = trial.frame().withWatermark("t", "1 second")
    trial.frame_is_refused(timed.dropDuplicatesWithinWatermark(["id"]))
    assert sorted(row["id"] for row in trial.finished_job.started.result("once").rows()) == [1, 2, 3]


@row("join with a static DataFrame")
def _static(trial: Trial) -> None:
    assert trial.finished_job.started.result("enriched").rows() == [{"id": 1, "item": "one"}]


@row("`window`, `session_window`")
def _windows(trial: Trial) -> None:
    assert [row["n"] for row in trial.finished_job.started.result("session").rows()] == [3]
    calls = {"tumble": ws.tumble("t", "1 hour"), "hop": ws.hop("t", "1 hour", "2 hours")}
    for name, window in calls.items():
        assert f"`ws.{name}`" in trial.here
        counted = trial.stream().group_by(window).agg("count(*) AS n")
        assert trial.job(counted.to_sink(ws.memory("rows"))).plan


@row("`foreachBatch`")
def _foreach_batch(trial: Trial) -> None:
    assert sorted(trial.finished_job.batches) == [(1, 1), (1, 2), (1, 3)]


@row("`toTable`")
def _tables(trial: Trial) -> None:
    assert sorted(row.id for row in trial.spark.table("moved_rows").collect()) == [1, 2, 3]
    missing = trial.stream().to_table("no_such_table")
    trial.is_refused(lambda: trial.job(missing).start().await_termination(60))


@row("`writeStream.format`")
def _formats(trial: Trial) -> None:
    assert trial.spark.read.orc(str(trial.folder / "orc")).count() == 3
    assert all(hasattr(ws, name) for name in re.findall(r"`ws\.(\w+)`", trial.here))


@row("`trigger(processingTime=…)`")
@row("`trigger(availableNow=True)`")
def _trigger(trial: Trial) -> None:
    assert trial.job(**json.loads(re.findall("{.*}", trial.here)[0].replace("True", "true"))).plan


@row("`trigger(continuous=…)`, `trigger(realTime=…)`")
def _continuous(trial: Trial) -> None:
    trial.is_refused(lambda: trial.job(trigger="continuous").start())


@row('`outputMode("append")`')
def _append(trial: Trial) -> None:
    assert trial.job().plan.queries[0].options.output_mode is OutputMode.APPEND


@row('`outputMode("update")`, `outputMode("complete")`')
def _changes(trial: Trial) -> None:
    counted = ws.stream({"id": "BIGINT", "d": "INT"}, name="changing", diff="d").group_by("id")
    output = counted.agg("count(*) AS n").to_sink(ws.memory("rows"), emit="changes")
    assert trial.job(output).plan.queries[0].options.output_mode is OutputMode.CHANGELOG


@row("Python and pandas UDFs")
def _functions(trial: Trial) -> None:
    from pyspark.sql.functions import udf

    rows = trial.finished_job.started.result("joined").rows()
    assert all((row["text"], row["double"]) == (f"<{row['id']}>", 2 * row["id"]) for row in rows)
    trial.is_refused(lambda: trial.stream().select(udf(lambda number: str(number))("id")))


@row("`checkpointLocation`")
def _checkpoint(trial: Trial) -> None:
    folder = trial.folder / "of_spark"
    writer = trial.frame().writeStream.format("noop").option("checkpointLocation", str(folder))
    writer.trigger(availableNow=True).start().awaitTermination()
    names = set(folder.iterdir())
    trial.is_refused(lambda: trial.job(checkpoint="of_spark").start().await_termination(60))
    assert set(folder.iterdir()) == names, "nothing is made"


@row("several queries")
def _several(trial: Trial) -> None:
    assert len(trial.finished_job.ticks[0].rows_out) == 7


@row("`transformWithState`, `flatMapGroupsWithState`, `applyInPandasWithState`")
def _states(trial: Trial) -> None:
    def count(key: Any, frames: Any, state: Any) -> Any:
        yield from frames

    groups = trial.frame().groupBy("id")
    told = (count, "id BIGINT, t TIMESTAMP", "n INT", "append", "NoTimeout")
    trial.frame_is_refused(groups.applyInPandasWithState(*told))


@row("`StreamingQueryListener`")
def _listener(trial: Trial) -> None:
    assert {"started", "progress"} <= set(trial.finished_job.seen)


@row("`status`, `lastProgress`")
def _progress(trial: Trial) -> None:
    started = trial.finished_job.started
    assert started.status == "finished"
    assert started.progress == trial.finished_job.ticks[-1]
    assert started.account.adds_up()


@row("`awaitTermination`, `stop`, `exception`")
def _ends(trial: Trial) -> None:
    assert trial.finished_job.ended
    assert trial.finished_job.started.exception() is None
    assert trial.finished_job.started.stop()


@row("Spark Connect")
def _connect(trial: Trial) -> None:
    remote = SimpleNamespace(sparkSession=object())
    trial.is_refused(lambda: find_frames_session({"readings": remote}))


@row("`spark.sql` over streams")
def _sql(trial: Trial) -> None:
    for name in ("readings", "alarms"):
        trial.frame(name).createOrReplaceTempView(f"moved_{name}")
    join = "moved_readings JOIN moved_alarms USING (id, t)"
    trial.frame_is_refused(trial.spark.sql(f"SELECT id, t FROM {join}"))
    projected = trial.spark.sql("SELECT id + 1 AS id, t FROM moved_readings WHERE id > 1")
    own = {"o": trial.stream(projected, "o"), "d": trial.stream(name="alarms")}
    text = """CREATE SINK sql WITH ('connector' = 'memory');
        INSERT INTO sql SELECT o.id FROM o JOIN d USING (id, t)"""
    job = ws.sql(text, **own, checkpoint=str(trial.folder / "sql"), settings={"finish": True}).start()
    assert job.await_termination(60)
    assert job.result("sql").rows() == []
    assert job.account.inputs[0].rows_in == 2


@row("schema evolution")
def _schema(trial: Trial) -> None:
    assert "undeclared" in (trial.folder / "readings" / "0.json").read_text()
    rows = trial.finished_job.started.result("joined").rows()
    assert {name for row in rows for name in row} == {"id", "text", "double", "alarm"}


@row("`rate` source")
def _rate(trial: Trial) -> None:
    frame = trial.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    output = ws.stream(frame, time="timestamp", name="rate").to_sink(ws.memory("rate"))
    job = trial.job(output, checkpoint="rate", until_caught_up=True).start()
    assert job.await_termination(60)
    assert len(job.result("rate").rows()) == 3


@row("Kafka options")
def _kafka(trial: Trial) -> None:
    text = """
        CREATE TABLE k (id BIGINT, t TIMESTAMP, WATERMARK FOR t) WITH ('connector' = 'kafka', 'topic' = 'k',
          'kafka.bootstrap.servers' = 'h:1', 'startingOffsets' = 'latest', 'maxOffsetsPerTrigger' = '9',
          'kafka.security.protocol' = 'SSL', 'failOnDataLoss' = 'true');
        SELECT id FROM k"""
    assert ws.plan_job(ws.parse_job(text))
    with pytest.raises(ws.WatersmeetError, match="topic"):
        ws.run(text.replace("'topic'", "'subscribe'"), {"checkpoint": "unused"})
    trial.is_refused(lambda: ws.run(text.replace("'true'", "'false'"), {"checkpoint": "unused"}))
