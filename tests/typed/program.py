"""A program as users write it, which type checkers read and nobody runs: every public name, and what it is.

`scripts/types` gives it to mypy and to pyright, both strict; `mistakes.py` beside it is what they find.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from pyspark.sql import DataFrame, SparkSession, functions

import watersmeet as ws
from watersmeet import local, pipelines
from watersmeet.testing import MemoryJob, Tick, load_cases, query, replay_case


def relations() -> ws.Relation:
    spark = SparkSession.builder.getOrCreate()
    orders_df = spark.readStream.format("rate").load()
    orders = ws.stream(orders_df, time="order_time", lag="10 seconds", name="orders")
    deliveries = ws.stream(
        {"order_id": "BIGINT", "delivery_time": "TIMESTAMP", "address": "STRING"},
        time={"delivery_time": timedelta(minutes=1)},
        idle_timeout="30 seconds",
        name="deliveries",
    )
    changing = ws.stream(
        orders_df,
        name="customers",
        op="what",
        inserts=["put", 1],
        deletes="gone",
        key=["id"],
        sequence="version",
        tombstones=timedelta(days=2),
    )
    assert_type(changing.group_by("segment").agg("count(*) AS customers"), ws.Relation)
    within = assert_type(ws.between("d.delivery_time", "o.order_time", "0s", timedelta(hours=1)), ws.Between)
    joined = (
        orders.alias("o")
        .join(deliveries.alias("d"), on="o.order_id = d.order_id", within=within, how="left")
        .where("o.item_id > 100")
        .select("o.order_id", "o.order_time", "d.address")
    )
    return assert_type(joined, ws.Relation)


def windows(joined: ws.Relation) -> list[ws.Relation]:
    each = [
        assert_type(ws.tumble("order_time", "10 minutes"), ws.Window),
        ws.hop("order_time", timedelta(hours=1), timedelta(minutes=1)),
        ws.session("order_time", "5 minutes"),
    ]
    grouped = [assert_type(joined.group_by(window, "address"), ws.Grouped) for window in each]
    return [groups.agg("count(*) AS orders", having="count(*) > 1") for groups in grouped]


def sinks(joined: ws.Relation) -> list[ws.Output]:
    items = ws.declared("CREATE TABLE items (id BIGINT) WITH ('connector' = 'file', 'path' = 'items')")
    found = joined.join(assert_type(items, dict[str, ws.Relation])["items"].as_of(), on="order_id = id")
    targets = [
        ws.files("out/delivered"),
        ws.kafka("delivered", "broker:9092", key="order_id"),
        ws.delta("lake/delivered", primary_key="order_id"),
        ws.iceberg("shop.delivered", options={"catalog.type": "sql"}),
        ws.postgres("postgresql://writer@db:5432/shop", "public.delivered"),
        ws.console(rows=5),
        ws.memory("delivered"),
        ws.sink("function", "calls", function="deliveries:put"),
    ]
    return [assert_type(found.to_sink(target, emit="final"), ws.Output) for target in targets]


def tables(orders: ws.Relation) -> list[ws.Relation]:
    spark = SparkSession.builder.getOrCreate()
    items = assert_type(ws.table(lambda: spark.read.parquet("items"), name="items"), ws.Relation)
    prices = ws.table({"id": "BIGINT", "price": "DOUBLE"}, name="prices", key="id", refresh="5 minutes")
    named = orders.join(items.as_of(), on=functions.col("item_id") == functions.col("id"))
    return [named.where(functions.col("item_id") > 100), prices]


def wrote(rows: DataFrame, tick: int) -> None:
    rows.write.mode("overwrite").parquet(f"out/{tick}")


def print_batch_size(rows: DataFrame, tick: int, *, job: str, insert: str) -> None:
    print(job, insert, tick, rows.count())


def by_spark(joined: ws.Relation) -> list[ws.Output]:
    outputs = [
        joined.to_sink(format="delta", options={"path": "lake/delivered"}, name="delivered"),
        joined.to_table("catalog.db.delivered", emit="final"),
        joined.foreach_batch(wrote, primary_key=["order_id"]),
        joined.foreach_batch(print_batch_size),
    ]
    return [assert_type(output, ws.Output) for output in outputs]


def results(started: ws.StartedJob) -> list[dict[str, Any]]:
    result = started.result("delivered")
    assert_type(len(result), int)
    return assert_type(result.rows(), list[dict[str, Any]])


def start(joined: ws.Relation) -> None:
    job = ws.job(*sinks(joined), checkpoint=Path("state"), settings={"max_rows": 1_000_000})
    assert_type(job, ws.Job)
    assert_type(job.explain(), str)
    started = assert_type(job.start(on_tick=lambda tick: print(tick.tick, tick.rows_out)), ws.StartedJob)
    assert_type(started.status, str)
    if (progress := started.progress) is not None:
        assert_type(progress.seconds, float)
    if not started.await_termination(timeout=60):
        started.stop()
    assert_type(started.exception(), BaseException | None)
    assert_type(ws.sql("SELECT count(*) AS n FROM o", o=joined, checkpoint="state/n"), ws.Job)


def of_text(text: str) -> None:
    plan = ws.plan_job(ws.parse_job(text))
    assert_type(ws.explain(plan), str)
    ended = ws.run(text, {"checkpoint": "state", "until_caught_up": True}, on_notice=print)
    assert_type(ended.ticks, int)
    store = assert_type(ws.MemoryStore(), ws.MemoryStore)
    job = ws.LocalJob(plan, store)
    job.push("orders", {"order_id": 1, "order_time": "2022-03-01T10:00:00"})
    assert_type(job.tick().tick, int)
    assert_type(ws.__version__, str)


def put(part: ws.Part, rows: Any) -> None:
    if part.tick < assert_type(part.number, int):
        part.skip()


def errors(text: str) -> list[str]:
    try:
        of_text(text)
    except ws.SeveralErrors as error:
        return [each.message for each in error.errors]
    except (ws.SqlError, ws.SpecError, ws.PlanError, ws.StateError, ws.EngineError) as error:
        place = assert_type(error.location, ws.Location | None)
        return [error.code, error.hint or "", "" if place is None else str(place.line)]
    except ws.WatersmeetError as error:
        return [str(error)]
    return []


def as_data() -> ws.JoinSpec:
    return local.JoinSpec(
        left={"id": "BIGINT", "at": "TIMESTAMP"},
        right={"id": "BIGINT", "at": "TIMESTAMP", "kind": "STRING"},
        left_times={"at": "10 seconds"},
        right_times=["at"],
        how="left",
        condition=local.AllOf(
            local.Equal(local.left("id"), local.right("id")),
            local.Between(local.right("at"), local.left("at"), local.left("at") + timedelta(hours=1)),
            local.AnyOf(
                local.Comparison(local.right("kind"), "=", "a"),
                local.Comparison(local.right("kind"), "=", "b"),
            ),
        ),
    )


async def look_up_city(row: dict[str, Any]) -> Mapping[str, Any]:
    await asyncio.sleep(0)
    return {"city": row["id"]}


async def in_this_process() -> None:
    city = assert_type(local.map_async(look_up_city, answers={"city": "STRING"}), local.AsyncMap)
    job = assert_type(local.job(as_data(), store="state"), ws.LocalJob)
    job.advance("left", "at", datetime(2022, 3, 1, tzinfo=UTC))
    batches = [
        [{"id": 1, "at": "2022-03-01T10:00:00"}],
        local.Advance("at", datetime(2022, 3, 2, tzinfo=UTC)),
    ]
    async with local.run(as_data(), left=batches, right=[], after={"joined": city}) as run:
        assert_type(run, local.Run)
        async for output in run:
            assert_type(output, local.Output)
            assert_type(output.tick, int)


impressions, clicks = (
    pipelines.Source(name=name, connection={"connector": "kafka", "topic": name}, columns={"ad": "BIGINT"})
    for name in ("impressions", "clicks")
)
database = pipelines.Target(connection={"connector": "postgres", "table": "clicked"}, primary_key="ad")


@ws.pipeline(sources=[impressions, clicks], target=database)
def clicked(impressions: pipelines.Source, clicks: pipelines.Source) -> list[pipelines.Transform]:
    join = pipelines.Join(
        left_source=impressions,
        right_source="clicks",
        left_keys="ad",
        right_keys=["ad"],
        min_delta="0 seconds",
        max_delta="5 minutes",
        how="left",
        lateness="join",
        allowed_lateness="1 minute",
        output_left_columns=["ad"],
    )
    names = pipelines.Lookup(source="ads", keys={"ad": "id"}, columns="name")
    window = pipelines.Window(size="1 minute", group_by="left_ad", aggregates={"n": "count(*)"})
    return [pipelines.Transform(join=join, lookups={"names": names}), pipelines.Transform(window=window)]


def of_data(join: pipelines.Join) -> None:
    assert_type(clicked, pipelines.Pipeline)
    assert_type(pipelines.Pipeline.from_toml(clicked.to_toml()).warnings(), list[str])
    assert_type(clicked.job(), ws.Job)
    assert_type(clicked.start(), ws.StartedJob)
    assert_type(pipelines.json_schema(), dict[str, Any])
    ended = ws.run_streaming_pipeline(
        name="clicked",
        sources=[impressions, clicks],
        join=join,
        target=database,
        state_store=pipelines.StateStore(kind="object", url="s3://bucket/states"),
        settings={"until_caught_up": True},
    )
    assert_type(ended.ticks, int)


def trials(text: str, joined: ws.Relation) -> None:
    trial = MemoryJob(
        ws.job(joined.to_sink(ws.memory("joined"))).plan, clock=datetime(2022, 3, 1, tzinfo=UTC)
    )
    tick = assert_type(trial.tick({"orders": [{"order_id": 1}]}), Tick)
    assert tick.rows == query(text, {"orders": [{"order_id": 1}]})
    for case in load_cases(Path("cases.json")):
        assert_type(replay_case(case), list[dict[str, Any]])
