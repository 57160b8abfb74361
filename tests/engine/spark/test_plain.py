"""Which rows go into a sink as they left the tasks, and their sums without Spark."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import (
    ArrayType,
    CharType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
from watersmeet.errors import EngineError
from watersmeet.expressions import base
from watersmeet.names import DIFF, SHOWN_DIFF, SHOWN_TICK, TICK
from watersmeet.runtime.spark.tick import arrow_output as plain_module
from watersmeet.runtime.spark.tick.arrow_output import ArrowOutput, plan_arrow_output
from watersmeet.runtime.tasks.side import ManyMatches

JOB = """SET output_mode = changelog;
CREATE TABLE a (k BIGINT, n STRING, x DOUBLE, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
CREATE TABLE b (k BIGINT, v DECIMAL(12,2), d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
"""
JOINED = "FROM a JOIN b ON a.k = b.k"


def plain(query: str, tables: str = JOB) -> ArrowOutput | None:
    job = LocalJob(plan_job(parse_job(tables + query)), MemoryStore())
    (planned,) = job.plan.queries
    return plan_arrow_output(planned, job.driver.shapes[planned.name][planned.root.number])


@pytest.mark.parametrize(
    ("query", "summed"),
    [
        (f"SELECT a.n, b.v {JOINED}", True),
        (f"SELECT a.n, b.v + 1 AS w {JOINED}", True),
        (f"SELECT upper(a.n) AS u, b.v * (1 - b.v) AS w {JOINED}", True),
        (f"SELECT a.n, a.n AS again, b.v {JOINED}", True),
        (f"SELECT a.n, a.x + 1 AS w {JOINED}", None),
        (f"SELECT a.n, timestamp_micros(a.k) AS w {JOINED}", None),  # Spark writes it by its zone
        (f"SELECT a.n, sum(b.v) + 1 AS s {JOINED} GROUP BY a.n", True),
        (f"SELECT a.n, a.x {JOINED}", None),  # 0.0 and -0.0 are one value
        (f"SELECT a.n, sum(b.v) AS s {JOINED} GROUP BY a.n", False),
        (f"SELECT sum(b.v) AS s, a.n {JOINED} GROUP BY a.n", False),
        (f"SELECT sum(b.v) AS s {JOINED} GROUP BY a.n", True),
        (f"SELECT a.n, a.k, sum(b.v) AS s, count(*) AS c {JOINED} GROUP BY a.n, a.k", False),
        (f"SELECT a.n, sum(b.v) AS s {JOINED} GROUP BY a.n, a.k", True),
        (f"SELECT a.n, max(a.x) AS s {JOINED} GROUP BY a.n", None),
        (f"SELECT count(*) AS c {JOINED}", False),
        (f"SELECT DISTINCT a.n {JOINED}", False),
    ],
)
def test_which_rows_leave_as_they_are(query: str, summed: bool | None):
    found = plain(query)
    assert (None if found is None else found.summed) == summed
    if found is not None:
        assert found.schema.names[-2:] == [SHOWN_DIFF, SHOWN_TICK]


def test_sums_are_those_of_a_counter():
    rng = random.Random(3)
    kinds = {
        "n": (pa.string(), [None, "", "a", "A", "é", "a "]),
        "v": (pa.decimal128(38, 4), [None, Decimal("0.0000"), Decimal("-1.5000"), Decimal(10**20)]),
        "t": (pa.timestamp("us", tz="UTC"), [None, datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)]),
        "d": (pa.date32(), [None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
        "b": (pa.bool_(), [None, True, False]),
        "y": (pa.binary(), [None, b"", b"\0"]),
        "i": (pa.int64(), [None, -(2**63), 2**63 - 1]),
    }
    outputs = tuple((name, f"{name} out") for name in kinds)
    fields = [pa.field(name, kinds[column][0]) for column, name in outputs]
    changes = [pa.field(SHOWN_DIFF, pa.int64()), pa.field(SHOWN_TICK, pa.int64())]
    columns = (*outputs, (DIFF, SHOWN_DIFF), (TICK, SHOWN_TICK))
    rows = ArrowOutput(columns, summed=True, schema=pa.schema([*fields, *changes]))
    wanted: Counter[tuple[Any, ...]] = Counter()
    batches = []
    for _ in range(3):
        drawn = [
            (*(rng.choice(values) for _, values in kinds.values()), rng.choice([-1, 1])) for _ in range(400)
        ]
        for *row, diff in drawn:
            wanted[tuple(row)] += diff
        arrays = [
            pa.array([row[place] for row in drawn], kind) for place, (kind, _) in enumerate(kinds.values())
        ]
        diffs = pa.array([row[-1] for row in drawn], pa.int64())
        batches.append(pa.RecordBatch.from_arrays([*arrays, diffs], names=[*kinds, DIFF]))
    made = pa.Table.from_batches(rows.rows(batches, 7), rows.schema)
    found = [tuple(row.values()) for row in made.to_pylist()]
    assert {row[:-2]: row[-2] for row in found} == {row: total for row, total in wanted.items() if total}
    assert len({row[:-2] for row in found}) == len(found)
    assert {row[-1] for row in found} == {7}
    assert 0 in wanted.values()
    assert sum(batch.num_rows for batch in rows.rows([], 7)) == 0


def test_a_column_may_be_called_as_arrow_calls_sums():
    fields = [(f"{SHOWN_DIFF}_sum", pa.int64()), (f"{SHOWN_TICK}_max", pa.int64())]
    schema = pa.schema([*fields, (SHOWN_DIFF, pa.int64()), (SHOWN_TICK, pa.int64())])
    outputs = (("a", fields[0][0]), ("b", fields[1][0]), (DIFF, SHOWN_DIFF), (TICK, SHOWN_TICK))
    batch = pa.record_batch({"a": [5, 5, 6], "b": [8, 8, 9], DIFF: [1, 1, 1]})
    (made,) = ArrowOutput(outputs, summed=True, schema=schema).rows([batch], 7)
    assert sorted(zip(*(column.to_pylist() for column in made.columns), strict=True)) == [
        (5, 8, 2, 7),
        (6, 9, 1, 7),
    ]


APPEND = (
    JOB.replace("changelog", "append").replace(", 'diff.column' = 'd'", "").replace("d INT", "t TIMESTAMP")
)
APPEND = APPEND.replace("TIMESTAMP)", "TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '1' SECOND)")


def test_what_is_computed_far_wider_comes_in_pieces(monkeypatch):
    monkeypatch.setattr(plain_module, "PIECE_BYTES", 1 << 20)
    rows = plain(f"SELECT a.k, repeat(a.n, 1000) AS r {JOINED} AND a.t = b.t", APPEND)
    assert rows is not None
    names = {"a.k": pa.array(range(5_000)), "a.n": pa.array([str(n % 10) for n in range(5_000)])}
    pieces = list(rows.rows([pa.record_batch(names)] * 2, 0))
    assert max(piece.nbytes for piece in pieces) < 2 << 20
    assert len(pieces) < 30
    table = pa.Table.from_batches(pieces)
    assert table.column("k").to_pylist() == [*range(5_000)] * 2
    assert table.column("r")[17].as_py() == "7" * 1_000


def test_wide_rows_after_narrow_ones_form_smaller_chunks(monkeypatch):
    monkeypatch.setattr(base, "MOST_TEXT", 1 << 20)
    rows = plain(f"SELECT repeat(a.n, CAST(a.k AS INT)) AS r {JOINED} AND a.t = b.t", APPEND)
    assert rows is not None
    lengths = [1] * 300 + [10_000] * 500
    batch = pa.record_batch({"a.k": pa.array(lengths), "a.n": pa.array(["x"] * len(lengths))})
    found = [len(text) for piece in rows.rows([batch], 0) for text in piece.column(0).to_pylist()]
    assert found == lengths
    monkeypatch.setattr(base, "MOST_TEXT", 9_999)
    with pytest.raises(EngineError, match="10,000 bytes"):
        list(rows.rows([batch], 0))


def test_what_is_summed_is_computed_in_pieces_and_left_to_spark_where_it_becomes_much(monkeypatch):
    rows = plain(f"SELECT repeat(a.n, 1000) AS r, a.n, a.n AS again {JOINED}")
    assert rows is not None
    names = [str(n % 10) for n in range(4_000)]
    batch = pa.record_batch({"a.n": pa.array(names), DIFF: pa.array([1, 2] * 2_000, pa.int64())})
    monkeypatch.setattr(base, "MOST_TEXT", 1 << 20)  # as one piece the texts would be too long
    made = pa.Table.from_batches(rows.rows([batch] * 2, 3), rows.schema)
    assert sorted(made.to_pylist(), key=lambda row: row["n"]) == [
        {"r": f"{n}" * 1_000, "n": f"{n}", "again": f"{n}", SHOWN_DIFF: 800 * (1 + n % 2), SHOWN_TICK: 3}
        for n in range(10)
    ]
    monkeypatch.setattr(plain_module, "SUMMED_BYTES", 1 << 20)
    with pytest.raises(ManyMatches):
        list(rows.rows([batch], 3))


def test_a_long_value_is_cut_in_the_error():
    rows = plain(f"SELECT CAST(a.n AS INT) AS i {JOINED} AND a.t = b.t", APPEND)
    assert rows is not None
    with pytest.raises(EngineError, match=r"for a\.n = '99999") as failed:
        list(rows.rows([pa.record_batch({"a.n": ["9" * 100_000]})], 0))
    assert len(str(failed.value)) < 1_000


@pytest.mark.parametrize(
    "column", ["replace(a.n, 'x', repeat('y', 20))", "array_join(array_repeat(a.n, 3), ',')"]
)
def test_where_one_array_does_not_hold_the_texts_they_come_in_more(monkeypatch, column):
    """Arrow's limits are too large for a test: an array holds one value here."""
    rows = plain(f"SELECT {column} AS t {JOINED} AND a.t = b.t", APPEND)
    assert rows is not None
    batch = pa.record_batch({"a.n": [*"xabc"]})
    wanted = pa.Table.from_batches(rows.rows([batch], 0)).column("t").to_pylist()
    array, join = pa.array, pc.binary_join

    def cut(values: Any, kind: Any = None, **more: Any) -> Any:
        made = array(values, kind, **more)
        many = kind == pa.string() and len(made) > 1
        return pa.chunked_array([made.slice(0, 1), made.slice(1)]) if many else made

    def narrow(lists: Any, separator: Any) -> Any:
        if len(lists) > 1:
            raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")
        return join(lists, separator)

    monkeypatch.setattr(pa, "array", cut)
    monkeypatch.setattr(pc, "binary_join", narrow)
    found = [text for piece in rows.rows([batch], 0) for text in piece.column(0).to_pylist()]
    assert found == wanted


def test_what_a_function_is_handed_has_the_types_of_spark_or_goes_by_it():
    own = pa.schema(
        [
            ("t", pa.timestamp("us", "UTC")),
            ("n", pa.timestamp("us")),
            ("a", pa.list_(pa.int32())),
            ("m", pa.map_(pa.string(), pa.int64())),
        ]
    )
    schema = StructType().add("t", TimestampType(), nullable=False).add("n", TimestampNTZType())
    schema = schema.add("a", ArrayType(IntegerType())).add("m", MapType(StringType(), LongType()))
    found = ArrowOutput((), False, own).find_python_schema(schema, "Asia/Tokyo")
    assert found is not None
    assert found.field("t") == pa.field("t", pa.timestamp("us", "Asia/Tokyo"), nullable=False)
    assert found.field("n").type == pa.timestamp("us")
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    rows = pa.record_batch([[at], [at.replace(tzinfo=None)], [[1, None]], [[("k", 1)]]], schema=own)
    assert rows.cast(found).to_pylist() == [
        {"t": at, "n": at.replace(tzinfo=None), "a": [1, None], "m": [("k", 1)]}
    ]
    plain = ArrowOutput((), False, pa.schema([("t", pa.list_(pa.int32()))]))
    assert plain.find_python_schema(StructType().add("t", IntegerType()), "UTC") is None
    assert plain.find_python_schema(StructType().add("t", CharType(3)), "UTC") is None, "nothing of Arrow's"
