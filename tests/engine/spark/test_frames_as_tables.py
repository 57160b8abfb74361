"""Tables that a function makes DataFrames of: met as they are in a row's tick, and compared."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

import watersmeet as ws
from watersmeet.sinks.memory import MemorySink

pytestmark = pytest.mark.spark


def test_frame_function_is_called_again_for_each_refresh(spark, tmp_path):
    made: list[Any] = []
    sales = tmp_path / "sales"
    sales.mkdir()
    MemorySink.clear("met")
    MemorySink.clear("changed")

    def hold(items: dict[int, str]) -> None:
        frame = spark.createDataFrame([*items.items()], "id INT, name STRING")
        frame.write.mode("overwrite").parquet(str(tmp_path / "items"))

    def sell(number: int, item: int) -> None:
        row = {"n": number, "item": item, "at": f"2024-01-01T00:0{number}:00Z"}
        (sales / f"{number}.json").write_text(json.dumps(row))

    def make() -> Any:
        made.append(spark.read.parquet(str(tmp_path / "items")))
        return made[-1]

    def run() -> None:
        stream = spark.readStream.schema("n INT, item INT, at TIMESTAMP").json(str(sales))
        sold = ws.stream(stream, time="at", name="sales").alias("s")
        items = ws.table(make, name="items", refresh="1 millisecond").alias("i")
        met = sold.join(items.as_of(), on="s.item = i.id", how="left").select("s.n", "i.name")
        changed = ws.table(make, name="prices", key="id", refresh="1 millisecond").select("id", "name")
        job = ws.job(
            met.to_sink(ws.memory("met")),
            changed.to_sink(ws.memory("changed"), emit="changes"),
            checkpoint=str(tmp_path / "state"),
            settings={"until_caught_up": True},
        )
        assert job.start().await_termination(900)

    hold({1: "a", 2: "b"})
    sell(1, 1)
    run()
    assert MemorySink.rows("met") == [{"n": 1, "name": "a"}]
    hold({1: "a2", 3: "c"})
    sell(2, 1)
    sell(3, 2)
    run()
    assert sorted((row["n"], row["name"]) for row in MemorySink.rows("met")) == [
        (1, "a"),
        (2, "a2"),
        (3, None),
    ]
    net = Counter[tuple[int, str]]()
    for row in MemorySink.rows("changed"):
        net[row["id"], row["name"]] += row["_diff"]
    assert {row: n for row, n in net.items() if n} == {(1, "a2"): 1, (3, "c"): 1}


def test_a_function_that_makes_something_else_is_refused(spark, tmp_path):
    (tmp_path / "sales").mkdir()
    makes = [spark.range(3)]
    table = ws.table(lambda: makes[0], name="numbers", changes=True).select("id")
    job = ws.job(
        table.to_sink(ws.memory("numbers"), emit="changes"),
        checkpoint=str(tmp_path / "state"),
        settings={"until_caught_up": True},
    )
    for made, says in ((spark.range(3).selectExpr("id AS n"), "no column id"), (None, "returned NoneType")):
        makes[0] = made
        with pytest.raises(ws.EngineError, match=says):
            job.start().await_termination(900)
