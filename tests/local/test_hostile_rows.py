"""Values and answers that are not what they seem: refused, or taken as what they are, never made others."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.local.joins import TYPES, left_join
from watersmeet import local
from watersmeet.errors import EngineError, PlanError, SeveralErrors, SpecError


def spec(columns: dict[str, str] = TYPES, **more: Any) -> local.JoinSpec:
    """With all columns of both sides; watermarks stay where they are."""
    times = {"left_times": ["t"], "right_times": ["t"], "outputs": None, "how": "inner"}
    return left_join(**{"left": columns, "right": columns, **times, **more})


@pytest.mark.parametrize("partitions", [0, -1, True, 1.0, "2", None])
def test_shares_of_a_tick_are_one_at_least(partitions: Any) -> None:
    with pytest.raises(SpecError, match="partitions must be"):
        local.job(spec(), partitions=partitions)
    job = local.job(spec())
    with pytest.raises(SpecError, match="whole number"):
        job.partitions = partitions


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("STRING", np.nan), ("STRING", pd.NA), ("STRING", pd.NaT), ("STRING", 5), ("STRING", {"a"}),
        ("STRING", object()), ("TIMESTAMP", 20220301), ("TIMESTAMP", 1646128800.0), ("TIMESTAMP", pd.NaT),
        ("TIMESTAMP", np.datetime64("NaT")), ("TIMESTAMP", "2022-03-01T10:00:00.000000999"),
        ("TIMESTAMP", "2022-03-01T10:00:00,0000001Z"),
        ("TIMESTAMP", pd.Timestamp("2022-03-01T10:00:00.000000001")),
        ("TIMESTAMP", pd.Timestamp("2022-03-01T10:00:00.000000001", tz="UTC")),
        ("TIMESTAMP", np.datetime64("2022-03-01T10:00:00.000000999")), ("DATE", 20220301), ("DATE", 1.0),
        ("DATE", pd.NaT), ("DOUBLE", 2**53 + 1), ("DOUBLE", True), ("DOUBLE", "1e3"),
        ("DOUBLE", np.True_), ("FLOAT", 1e300), ("FLOAT", -(10**40)), ("FLOAT", 2**24 + 1),
        ("ARRAY<STRING>", "abc"),
        ("ARRAY<STRING>", [1]), ("STRUCT<a: STRING>", {"a": np.nan}), ("BIGINT", np.nan), ("BIGINT", True),
    ],
)  # fmt: skip
def test_what_is_no_value_of_its_column_is_refused(kind: str, value: Any) -> None:
    job = local.job(spec({"t": "BIGINT", "k": "STRING", "v": kind}))
    with pytest.raises(EngineError, match='column "v"'):
        job.push("left", [{"t": 1, "k": "x", "v": value}])
    job.push("left", [{"t": 1, "k": "x", "v": None}])
    assert job.tick(end=True).result is not None


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("STRING", "nan", "nan"), ("STRING", np.str_("x"), "x"), ("DOUBLE", 3, 3.0),
        ("DOUBLE", np.float32(0.5), 0.5), ("FLOAT", 0.5, 0.5), ("FLOAT", 2**24, 2.0**24),
        ("FLOAT", np.inf, np.inf),
        ("TIMESTAMP", "2022-03-01T10:00:00.123456000", datetime(2022, 3, 1, 10, 0, 0, 123456, UTC)),
        ("TIMESTAMP", pd.Timestamp("2022-03-01T10:00:00.000001"), datetime(2022, 3, 1, 10, 0, 0, 1, UTC)),
        ("TIMESTAMP", np.datetime64("2022-03-01T10:00:00"), datetime(2022, 3, 1, 10, tzinfo=UTC)),
        ("TIMESTAMP", "2022-03-01", datetime(2022, 3, 1, tzinfo=UTC)),
        ("TIMESTAMP", datetime(2022, 3, 1).date(), datetime(2022, 3, 1, tzinfo=UTC)),
        ("DATE", pd.Timestamp("2022-03-01"), datetime(2022, 3, 1).date()),
        ("ARRAY<STRING>", ["a", None], ["a", None]),
    ],
)  # fmt: skip
def test_what_is_one_stays_what_it_is(kind: str, value: Any, wanted: Any) -> None:
    job = local.job(spec({"t": "BIGINT", "k": "STRING", "v": kind}, how="left"))
    job.push("left", [{"t": 1, "k": "x", "v": value}])
    assert job.tick(end=True).table.column("left_v").to_pylist() == [wanted]


def test_frames_and_their_records_are_one() -> None:
    frame = pd.DataFrame({"t": [1, 2], "k": [np.nan, "x"]})
    job = local.job(spec(how="full"))
    for side in ("left", "right"):
        job.push(side, frame)
    rows = job.tick(end=True).table.to_pylist()
    assert sorted(str(row["left_k"]) for row in rows) == ["None", "None", "x"]
    with pytest.raises(EngineError, match="nan is not text"):
        job.push("left", frame.to_dict("records"))


ZONE = "SET time_zone = 'America/New_York';"
ZONED = """
CREATE TABLE a (t TIMESTAMP, k STRING, v {kind}, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
SELECT x.t, y.v FROM a x JOIN a y ON x.k = y.k AND y.t = x.t"""


@pytest.mark.parametrize("kind", ["STRUCT<a: TIMESTAMP>", "ARRAY<TIMESTAMP>", "MAP<STRING, TIMESTAMP>"])
def test_times_within_values_say_their_zone_too(kind: str) -> None:
    moment = datetime(2022, 3, 1, 10)
    within = {"S": {"a": moment}, "A": [moment], "M": [("a", moment)]}[kind[0]]
    of = {"S": pa.struct({"a": pa.timestamp("us")}), "A": pa.list_(pa.timestamp("us"))}
    arrow = of.get(kind[0], pa.map_(pa.string(), pa.timestamp("us")))
    times = pa.array([datetime(2022, 3, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    table = pa.table({"t": times, "k": ["x"], "v": pa.array([within], arrow)})
    job = local.job(ZONE + ZONED.format(kind=kind))
    with pytest.raises((SpecError, SeveralErrors), match="no time zone"):
        job.push("a", table)


def test_instants_of_mappings_have_their_zone_wherever_the_job_computes() -> None:
    job = local.job(ZONE + ZONED.format(kind="INT"))
    with pytest.raises(EngineError, match="has no time zone"):
        job.push("a", {"t": datetime(2022, 3, 1), "k": "x", "v": 1})
    job.push("a", {"t": datetime(2022, 3, 1, tzinfo=UTC), "k": "x", "v": 1})
    assert job.tick().table.to_pylist() == [{"t": datetime(2022, 3, 1, tzinfo=UTC), "v": 1}]


def test_times_of_tables_have_their_zone_too() -> None:
    text = """
        CREATE TABLE a (t TIMESTAMP, k STRING, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
        CREATE TABLE names (k STRING, at TIMESTAMP) WITH ('connector' = 'memory');
        SELECT a.t, n.at FROM a JOIN names FOR SYSTEM_TIME AS OF PROCTIME() AS n ON n.k = a.k"""
    row = {"k": "x", "at": datetime(2022, 3, 1)}
    with pytest.raises(EngineError, match="has no time zone"):
        local.job(ZONE + text, tables={"names": row})
    local.job(ZONE + text, tables={"names": row | {"at": datetime(2022, 3, 1, tzinfo=UTC)}})
    local.job(text, tables={"names": row})


def test_bytes_that_are_no_text_are_refused() -> None:
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff"))
    with pytest.raises(EngineError, match=r"(?i)utf"):
        local.job(spec()).push("left", pa.table({"t": [1], "k": broken}))


def test_encoded_columns_are_decoded_or_rejected_by_name() -> None:
    values = pa.array(["x", "y"])
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), values)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), values[:1])
    views = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), values.cast(pa.string_view()))
    for keys in (coded, runs, views):
        job = local.job(spec(how="left"))
        job.push("left", pa.table({"t": [1, 2], "k": keys}))
        assert job.tick(end=True).table.column("left_k").to_pylist() == ["x", "x"]
    twice = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), coded)
    with pytest.raises(EngineError, match='column "k" of "left"'):
        local.job(spec()).push("left", pa.table({"t": [1, 2], "k": twice}))


def test_the_mode_of_a_join_as_data_counts() -> None:
    job = local.job(spec(how="full", options={"output_mode": "changelog"}))
    job.push("left", {"t": 1, "k": "x"})
    assert job.tick().table.num_rows == 1, "a pad goes out at once, and may be retracted"
    with pytest.raises(PlanError, match="retracted"):
        _ = spec(options={"output_mode": "changelog", "lateness": "join"}).plan


def test_columns_of_one_name_are_refused() -> None:
    text = """
        CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');
        SELECT x.t, y.t FROM a x JOIN a y ON x.t = y.t"""
    with pytest.raises(SpecError, match='named "t", but a table needs') as raised:
        local.job(text)
    assert raised.value.code == "duplicate-column"


def test_what_nobody_reads_is_refused() -> None:
    with pytest.raises(SpecError, match="passed twice"):
        local.run(spec(), inputs={"left": []}, left=[], right=[])
    job = local.job(spec())
    with pytest.raises(SpecError, match="no source"):
        job.tick({"lefts": [({"t": 1, "k": "x"}, 1)]})
    with pytest.raises(SpecError, match="no source"):
        job.tick(advances={"lefts": {"t": 1}})
    with pytest.raises(SpecError, match="no source"):
        job.push(["left"], [])  # type: ignore[arg-type]
    with pytest.raises(SpecError) as raised:
        job.advance("left", "u", 1)
    assert raised.value.code == "unknown-column"


def look_up_cities(fn: Any, **more: Any) -> list[Any]:
    rows = [[{"t": 1, "k": "a"}, {"t": 2, "k": "b"}, {"t": 3, "k": "c"}]]
    by = local.map_async(fn, answers={"city": "STRING"}, **more)
    outputs = local.run(spec(how="left"), left=rows, right=[], after={"joined": by})
    return [row["city"] for output in outputs for row in output.table.to_pylist()]


def test_an_answer_is_what_it_was_when_it_came() -> None:
    same: dict[str, str] = {}

    async def city(row: dict[str, Any]) -> dict[str, str]:
        await asyncio.sleep(0)
        same["city"] = row["left_k"]
        return same

    assert look_up_cities(city, max_in_flight=1) == ["a", "b", "c"]


def test_an_answer_that_comes_too_late_is_none() -> None:
    async def city(row: dict[str, Any]) -> dict[str, str]:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        return {"city": "late"}

    with pytest.raises(EngineError, match="not answered within"):
        look_up_cities(city, timeout=0.05)


def test_no_lookup_starts_after_a_failure() -> None:
    calls = []

    async def city(row: dict[str, Any]) -> dict[str, str]:
        calls.append(row["left_k"])
        if row["left_k"] == "a":
            await asyncio.sleep(0)
            raise ValueError("no")
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        return {"city": "x"}

    with pytest.raises(EngineError, match="no"):
        look_up_cities(city, max_in_flight=2)
    assert calls == ["a", "b"]


@pytest.mark.parametrize("constant", [pd.NA, np.array([1, 2])])
def test_invalid_condition_constant_is_refused(constant: Any) -> None:
    with pytest.raises((SpecError, SeveralErrors), match="not a value of a condition"):
        spec(condition=local.Equal(local.left("k"), constant))


def test_async_lookup_refuses_times_without_a_zone() -> None:
    async def answer_constant(row: dict[str, Any]) -> dict[str, int]:
        return {"v": 1}

    rows = pa.table({"t": pa.array([datetime(2022, 3, 1)], pa.timestamp("us")), "k": ["x"]})
    by = local.map_async(answer_constant, answers={"v": "INT"})
    with pytest.raises((SpecError, SeveralErrors), match="no time zone"):
        list(local.run(ZONE + ZONED.format(kind="INT"), a=[rows], before={"a": by}))


def test_a_loop_within_a_loop_is_refused() -> None:
    async def city(row: dict[str, Any]) -> dict[str, str]:
        return {"city": "x"}

    async def within() -> None:
        with pytest.raises(SpecError, match="an asyncio event loop is already running") as raised:
            look_up_cities(city)
        assert "async for" in str(raised.value.hint)

    asyncio.run(within())


def test_a_task_of_the_function_that_is_cancelled_is_a_failed_call() -> None:
    async def city(row: dict[str, Any]) -> dict[str, str]:
        task = asyncio.create_task(asyncio.sleep(5))
        task.cancel()
        await task
        return {"city": "x"}

    with pytest.raises(EngineError) as raised:
        look_up_cities(city)
    assert raised.value.code == "answer-failed"


def test_a_run_that_nobody_loops_over_is_closed(tmp_path: Any) -> None:
    with local.run(spec(), store=tmp_path, left=[], right=[]) as run:
        assert run.job.last is None
    with local.run(spec(), store=tmp_path, left=[], right=[]) as again:
        iter(again)
    assert [output.tick for output in local.run(spec(), store=tmp_path, left=[], right=[])] == [1]


@pytest.mark.parametrize(("then", "asked_again"), [("INT", []), ("BIGINT", ["a", "b", "c"])])
def test_lookup_is_repeated_only_when_answer_types_change(
    tmp_path: Any, then: str, asked_again: list[str]
) -> None:
    """Behind a tick whose output nobody got."""
    calls: list[str] = []

    async def number(row: dict[str, Any]) -> dict[str, int]:
        calls.append(row["left_k"])
        return {"number": len(calls)}

    def run(kind: str) -> Any:
        by = local.map_async(number, answers={"number": kind})
        rows = [[{"t": 1, "k": "a"}, {"t": 2, "k": "b"}, {"t": 3, "k": "c"}]]
        given = {"left": lambda taken: rows[taken:], "right": lambda _: []}
        return local.run(spec(how="left"), store=tmp_path, inputs=given, after={"joined": by})

    assert [output.tick for output in run("INT")] == [1, 2]
    assert calls == ["a", "b", "c"]
    calls.clear()
    (again,) = run(then)
    assert again.table.num_rows == 3
    assert again.table.column("number").num_chunks == 1
    assert calls == asked_again
