"""What may be pushed, in every form that Arrow, pandas and mappings have for it, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from watersmeet import EngineError, SeveralErrors, SpecError, WatersmeetError, local

JOB = """
CREATE TABLE a (id BIGINT, at TIMESTAMP, name STRING, price DECIMAL(6,2), day DATE, n INT, x DOUBLE,
    ok BOOLEAN, wall TIMESTAMP_NTZ,
    WATERMARK FOR at AS at - INTERVAL '5' SECONDS) WITH ('connector' = 'memory');
SELECT a.* FROM a JOIN a b ON a.id = b.id AND b.at = a.at"""

SCHEMA = {
    "id": pa.int64(),
    "at": pa.timestamp("us", "UTC"),
    "name": pa.string(),
    "price": pa.decimal128(6, 2),
    "day": pa.date32(),
    "n": pa.int32(),
    "x": pa.float64(),
    "ok": pa.bool_(),
    "wall": pa.timestamp("us"),
}
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def columns(**other: pa.Array) -> dict[str, Any]:
    """A row of NULLs but for its key and time."""
    given = {name: pa.nulls(1, kind) for name, kind in SCHEMA.items()}
    given |= {"id": pa.array([1]), "at": pa.array([NOON], SCHEMA["at"])}
    return given | other


def push_and_tick(data: Any, **more: Any) -> pa.Table:
    job = local.job(JOB)
    job.push("a", data, **more)
    return job.tick().table


def value(name: str, array: Any) -> Any:
    """What comes out of a column that is pushed so."""
    table = push_and_tick(pa.table(columns(**{name: array})))
    assert table.schema.field(name).type == SCHEMA[name]
    return table.column(name)[0].as_py()


@pytest.mark.parametrize(
    ("name", "array", "wanted"),
    [
        ("name", pa.array(["ä"], pa.large_string()), "ä"),
        ("name", pa.array(["ä"], pa.string_view()), "ä"),
        ("name", pa.array(["ä"]).dictionary_encode(), "ä"),
        ("name", pa.array(["ä"], pa.large_string()).dictionary_encode(), "ä"),
        ("name", pa.array([None], pa.string()).dictionary_encode(), None),
        ("name", pa.DictionaryArray.from_arrays([0], pa.array(["ä"], pa.string_view())), "ä"),
        ("name", pa.RunEndEncodedArray.from_arrays([1], pa.array(["ä"])), "ä"),
        ("name", pa.chunked_array([pa.array([], pa.string()), pa.array(["ä"])]), "ä"),
        ("name", pa.nulls(1), None),
        ("n", pa.array([7], pa.int8()), 7),
        ("n", pa.array([7], pa.uint64()), 7),
        ("n", pa.array([-7], pa.int64()), -7),
        ("price", pa.array([Decimal("1.5")], pa.decimal128(20, 1)), Decimal("1.50")),
        ("price", pa.array([Decimal("1.5")], pa.decimal256(40, 1)), Decimal("1.50")),
        ("day", pa.array([datetime(2024, 5, 1)], pa.date64()), datetime(2024, 5, 1).date()),
        ("x", pa.array([1.5], pa.float32()), 1.5),
        ("at", pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")), NOON),
        ("at", pa.array([NOON], pa.timestamp("s", "Europe/Berlin")), NOON),
        ("at", pa.array([NOON], pa.timestamp("ns", "+03:00")), NOON),
        ("at", pa.array([datetime(1, 1, 1)], pa.timestamp("us")), datetime(1, 1, 1, tzinfo=UTC)),
        ("wall", pa.array([datetime(2024, 5, 1)], pa.timestamp("ms")), datetime(2024, 5, 1)),
    ],
    ids=str,
)
def test_other_forms_of_the_same_value(name: str, array: Any, wanted: Any) -> None:
    assert value(name, array) == wanted


@pytest.mark.parametrize(
    ("name", "array", "kind", "told"),
    [
        ("n", pa.array([2**40]), EngineError, "is not a valid INT"),
        ("n", pa.array([1.0]), SpecError, 'dtype "Int64"'),
        ("n", pa.array(["1"]), SpecError, "declared INT, but the given values are STRING"),
        ("n", pa.array([True]), SpecError, "are BOOLEAN"),
        ("id", pa.array([2**64 - 1], pa.uint64()), EngineError, "is not a valid BIGINT"),
        ("name", pa.array([1]), SpecError, "declared STRING, but the given values are BIGINT"),
        ("name", pa.array([b"a"]), SpecError, "are BINARY"),
        ("name", pa.array([1]).dictionary_encode(), SpecError, "are BIGINT"),
        ("price", pa.array([Decimal("1.555")]), EngineError, "is not a valid DECIMAL"),
        ("price", pa.array([Decimal("123456.00")]), EngineError, "is not a valid DECIMAL"),
        ("price", pa.array([1.5]), SpecError, "are DOUBLE"),
        ("x", pa.array([1]), SpecError, "are BIGINT"),
        ("day", pa.array([NOON], pa.timestamp("us")), SpecError, "are TIMESTAMP"),
        ("at", pa.array([1], pa.timestamp("ns")), EngineError, "is not a valid TIMESTAMP"),
        ("at", pa.array([2**62], pa.timestamp("s")), EngineError, "is not a valid TIMESTAMP"),
        ("at", pa.array(["2024-05-01"]), SpecError, "are STRING"),
        ("wall", pa.array([NOON], pa.timestamp("us", "UTC")), SpecError, "declare it TIMESTAMP"),
        ("ok", pa.array([1]), SpecError, "are BIGINT"),
        ("name", pa.array([["a"]]), SpecError, "are ARRAY"),
    ],
    ids=str,
)
def test_another_kind_of_value_is_refused(name: str, array: Any, kind: type, told: str) -> None:
    job = local.job(JOB)
    with pytest.raises(kind, match=told):
        job.push("a", pa.table(columns(**{name: array})))
    job.push("a", pa.table(columns()))  # nothing of the other was taken
    assert job.tick().table.num_rows == 1


def test_push_reports_all_problems_of_a_table_at_once() -> None:
    given = columns(n=pa.array(["1"]), x=pa.array(["2"]))
    with pytest.raises(SeveralErrors) as told:
        local.job(JOB).push("a", pa.table(given))
    assert [error.code for error in told.value.errors] == ["wrong-type", "wrong-type"]
    given = columns()
    del given["ok"]
    table = pa.table([*given.values(), given["id"], given["id"]], names=[*given, "id", "nmae"])
    with pytest.raises(SeveralErrors) as told:
        local.job(JOB).push("a", table)
    assert [error.code for error in told.value.errors] == [
        "duplicate-column",
        "unknown-column",
        "missing-column",
    ]


@pytest.mark.parametrize("data", [None, 3, "rows", [1], [{"id": 1}, None], object()])
def test_what_is_no_rows(data: Any) -> None:
    with pytest.raises(WatersmeetError):
        local.job(JOB).push("a", data)


def test_rows_as_mappings() -> None:
    row = dict.fromkeys(SCHEMA) | {"id": 1, "at": "2024-05-01T12:00:00", "price": "1.50", "name": "n"}
    assert push_and_tick(row).to_pylist()[0]["at"] == NOON
    assert push_and_tick([row, row | {"id": 2}]).num_rows == 2
    with pytest.raises(SeveralErrors, match="nmae") as told:
        push_and_tick([row, {"nmae": 1} | {name: row[name] for name in row if name != "name"}])
    assert "did you mean" in str(told.value)
    with pytest.raises(EngineError, match="BIGINT"):
        push_and_tick(row | {"id": "one"})


def test_frames_of_pandas() -> None:
    row = {name: [None] for name in SCHEMA} | {"id": [1, 2], "at": [pd.Timestamp(NOON), pd.NaT]}
    frame = pd.DataFrame({name: held if len(held) == 2 else held * 2 for name, held in row.items()})
    job = local.job(JOB)
    job.push("a", frame)
    output = job.tick()
    assert output.table.column("id").to_pylist() == [1]  # the other one has no time
    assert output.result.queries["console"].counts["a"]["null_time"] == 1
    mixed = frame.assign(name=["a", 1])
    with pytest.raises(EngineError, match="cannot be converted to Arrow"):
        job.push("a", mixed)


def test_whatever_speaks_arrow() -> None:
    """As Polars' frames do."""

    class Frame:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.table(columns()).__arrow_c_stream__(requested_schema)

    assert push_and_tick(Frame()).num_rows == 1
    assert push_and_tick(pa.table(columns()).to_batches()[0]).num_rows == 1


def test_nothing_is_something_that_may_be_pushed() -> None:
    job = local.job(JOB)
    job.push("a", pa.table(columns()).slice(0, 0))
    job.push("a", [])
    output = job.tick()
    assert output.table.num_rows == 0
    assert output.table.schema.names == list(SCHEMA)


def test_late_rows_come_back_with_all_of_their_columns() -> None:
    job = local.job(JOB)
    job.push("a", pa.table(columns(at=pa.array([NOON + timedelta(hours=1)], SCHEMA["at"]))))
    job.tick()
    given = pa.table(columns(name=pa.array(["x"]).dictionary_encode()))
    job.push("a", given)
    output = job.tick()
    assert output.table.num_rows == 0
    assert output.late_tables["a"].to_pylist() == given.to_pylist()
    assert [name for name, _ in output.late] == ["a"]


def test_explicit_watermarks() -> None:
    spec = local.JoinSpec(
        left={"t": "TIMESTAMP", "k": "INT"},
        right={"t": "TIMESTAMP", "k": "INT"},
        left_times=["t"],
        right_times=["t"],
        condition=local.Equal(local.left("t"), local.right("t")),
        how="left",
    )
    job = local.job(spec)
    job.push("left", [{"t": NOON, "k": 1}])
    job.advance("right", "t", NOON)
    assert job.tick().table.num_rows == 0
    zone = timezone(timedelta(hours=2))
    job.advance("right", "t", (NOON + timedelta(microseconds=1)).astimezone(zone))
    job.advance("right", "t", NOON)  # the greatest counts
    output = job.tick()
    assert output.table.to_pylist() == [{"left_t": NOON, "left_k": 1, "right_t": None, "right_k": None}]
    us = round(NOON.timestamp() * 1_000_000)
    assert output.watermarks["joined"]["right.t"] == us + 1
    job.advance("right", "t", us)
    with pytest.raises(EngineError, match="cannot move back"):
        job.tick()
    job.clear()
    assert job.tick().table.num_rows == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("left", "k", 1), "no event time"),
        (("lefd", "t", 1), "no source"),
        (("left", "t", 1.5), "not a valid TIMESTAMP"),
        (("left", "t", True), "not a valid TIMESTAMP"),
        (("left", "t", "2024-05-01"), "not a valid TIMESTAMP"),
        (("left", "t", pd.NaT), "not a valid TIMESTAMP"),
        (("left", "t", 2**63), "out of the range of BIGINT"),
    ],
)
def test_watermarks_that_are_none(given: Any, told: str) -> None:
    spec = local.JoinSpec(
        left={"t": "TIMESTAMP", "k": "INT"},
        right={"t": "TIMESTAMP"},
        left_times=["t"],
        right_times=["t"],
        condition=local.Equal(local.left("t"), local.right("t")),
    )
    with pytest.raises(SpecError, match=told):
        local.job(spec).advance(*given)


def test_a_watermark_of_one_key_moves_no_other_input() -> None:
    """Both inputs of a self join read the same source."""
    job = local.job(
        "CREATE TABLE a (t BIGINT, WATERMARK FOR t AS t - 100) WITH ('connector' = 'memory');"
        "CREATE TABLE b (t BIGINT, WATERMARK FOR t AS t - 100) WITH ('connector' = 'memory');"
        "SELECT x.t, y.t AS u FROM (SELECT * FROM a UNION ALL SELECT * FROM b) x"
        " LEFT JOIN a y ON y.t BETWEEN x.t AND x.t + 3"
    )
    job.push("b", {"t": 1})
    job.advance_key("x.t", 5)
    output = job.tick()
    marks = output.result.queries["console"].input_watermarks
    assert marks["x.t"] == 5
    assert marks["y.t"] < 0
    job.advance("a", "t", 7)
    marks = job.tick().result.queries["console"].input_watermarks
    assert marks["y.t"] == 7
    assert marks["x.t"] == 5  # of b it is still 5
    with pytest.raises(SpecError, match="watermark key"):
        job.advance_key("z.t", 5)


def test_what_a_failing_tick_was_given_is_there_for_the_next() -> None:
    job = local.job("SET on_null_time = 'fail';" + JOB)
    job.push("a", pa.table(columns()))
    job.push("a", pa.table(columns(at=pa.nulls(1, SCHEMA["at"]))))
    for _ in range(2):
        with pytest.raises(EngineError, match="NULL"):
            job.tick()
    job.clear()
    job.push("a", pa.table(columns()))
    assert job.tick().table.num_rows == 1


def test_in_another_zone_times_say_theirs() -> None:
    job = local.job("SET time_zone = 'Europe/Berlin';" + JOB)
    with pytest.raises(SpecError, match="no time zone"):
        job.push("a", pa.table(columns(at=pa.array([NOON], pa.timestamp("us")))))
    job.push("a", pa.table(columns()))
    assert job.tick().table.column("at").to_pylist() == [NOON]


def test_rows_go_of_sources_with_changes_alone() -> None:
    with pytest.raises(SpecError, match="no changes"):
        local.job(JOB).push("a", pa.table(columns()), diff=-1)
    job = local.job("SET output_mode = 'changelog';" + JOB)
    job.push("a", pa.table(columns()))
    assert job.tick().table.column("_diff").to_pylist() == [1]
    job.push("a", pa.table(columns()), diff=-1)
    assert job.tick().table.column("_diff").to_pylist() == [-1]


def test_records_that_say_what_they_do() -> None:
    job = local.job(
        "CREATE TABLE a (id INT, v INT, op STRING, PRIMARY KEY (id) NOT ENFORCED)"
        " WITH ('connector' = 'memory', 'op.column' = 'op');"
        "SELECT count(*) AS n, sum(v) AS s FROM a"
    )
    job.push("a", [{"id": 1, "v": 3, "op": "I"}, {"id": 2, "v": 4, "op": "I"}])
    job.tick()
    given = {"id": pa.array([1]), "v": pa.nulls(1, pa.int32()), "op": pa.array(["D"]).dictionary_encode()}
    job.push("a", pa.table(given))
    rows = {(row["n"], row["s"], row["_diff"]) for row in job.tick().table.to_pylist()}
    assert rows == {(2, 7, -1), (1, 4, 1)}
    with pytest.raises(EngineError, match="'what'"):
        job.push("a", [{"id": 1, "v": 3, "op": "what"}])
