"""Equalities of STRUCTs and ARRAYs with parts of unlike types or names: joined, or refused, as by Spark."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from tests.engine.spark.running import until_caught_up
from tests.support.effort import at_effort
from watersmeet import LocalJob, MemoryStore, parse_job, plan_job
from watersmeet.errors import SqlError
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import SqlType

pytestmark = pytest.mark.spark

_ALL_PAIRS = [
    ("STRUCT<x: INT, y: STRING>", "STRUCT<x: BIGINT, y: STRING>"),
    ("STRUCT<x: INT, y: STRING>", "STRUCT<p: INT, q: STRING>"),
    ("STRUCT<x: INT, y: INT>", "STRUCT<y: INT, x: INT>"),
    ("STRUCT<x: INT>", "STRUCT<X: INT>"),
    ("STRUCT<x: INT>", "STRUCT<X: BIGINT>"),
    ("STRUCT<x: INT>", "STRUCT<p: BIGINT>"),
    ("STRUCT<x: INT, y: INT>", "STRUCT<y: BIGINT, x: BIGINT>"),
    ("STRUCT<x: INT, y: INT>", "STRUCT<x: INT>"),
    ("STRUCT<x: INT>", "STRUCT<x: DOUBLE>"),
    ("STRUCT<x: FLOAT>", "STRUCT<x: DOUBLE>"),
    ("STRUCT<x: SMALLINT>", "STRUCT<x: FLOAT>"),
    ("STRUCT<x: INT>", "STRUCT<x: DECIMAL(5,2)>"),
    ("STRUCT<x: TINYINT>", "STRUCT<x: DECIMAL(5,2)>"),
    ("STRUCT<x: DECIMAL(5,2)>", "STRUCT<x: DECIMAL(8,4)>"),
    ("STRUCT<x: DECIMAL(5,2)>", "STRUCT<p: DECIMAL(5,2)>"),
    ("STRUCT<x: DATE>", "STRUCT<x: TIMESTAMP>"),
    ("STRUCT<x: TIMESTAMP>", "STRUCT<x: TIMESTAMP_NTZ>"),
    ("STRUCT<x: STRING>", "STRUCT<x: INT>"),
    ("STRUCT<x: STRING>", "STRUCT<x: DATE>"),
    ("STRUCT<x: BOOLEAN>", "STRUCT<x: INT>"),
    ("STRUCT<x: BOOLEAN>", "STRUCT<p: BOOLEAN>"),
    ("STRUCT<x: STRUCT<y: INT>>", "STRUCT<x: STRUCT<z: INT>>"),
    ("STRUCT<x: STRUCT<y: INT>>", "STRUCT<x: STRUCT<y: BIGINT>>"),
    ("STRUCT<x: STRUCT<y: INT>, n: INT>", "STRUCT<x: STRUCT<z: INT>, n: BIGINT>"),
    ("STRUCT<x: ARRAY<INT>>", "STRUCT<x: ARRAY<BIGINT>>"),
    ("ARRAY<STRUCT<x: INT>>", "ARRAY<STRUCT<x: BIGINT>>"),
    ("ARRAY<STRUCT<x: INT>>", "ARRAY<STRUCT<p: INT>>"),
    ("ARRAY<STRUCT<x: INT>>", "ARRAY<STRUCT<p: BIGINT>>"),
    ("ARRAY<INT>", "ARRAY<BIGINT>"),
    ("ARRAY<DATE>", "ARRAY<TIMESTAMP>"),
    ("ARRAY<STRING>", "ARRAY<INT>"),
]
PAIRS = at_effort(quick=_ALL_PAIRS[2::4], full=_ALL_PAIRS)
PLAIN: dict[str, list[Any]] = {
    "STRING": ["a", ""], "BOOLEAN": [True, False], "DATE": ["2024-01-01", "2024-07-01"],
    "TIMESTAMP": ["2024-01-01T00:00:00Z", "2024-07-01T00:00:00Z"],
    "TIMESTAMP_NTZ": ["2024-01-01T00:00:00", "2024-07-01T00:00:00"],
}  # fmt: skip
OPERATORS = ("=", "<=>")
JOB = """CREATE TABLE a{n} (id INT, k {left}, t BIGINT, WATERMARK FOR t AS t) WITH ({of_a});
    CREATE TABLE b{n} (id INT, k {right}, t BIGINT, WATERMARK FOR t AS t) WITH ({of_b});
    """
QUERY = "SELECT a.id AS a, b.id AS b FROM a{n} a JOIN b{n} b ON a.k {op} b.k AND a.t = b.t"


def values_of(type_: SqlType) -> list[Any]:
    """Some values as JSON has them; the last is NULL."""
    if type_.element is not None:
        inner = values_of(type_.element)
        return [*([each] for each in inner), [], inner, None]
    if type_.fields:
        rows = product(*(values_of(field.type)[-3:] for field in type_.fields))
        return [*(dict(zip((f.name for f in type_.fields), row, strict=True)) for row in rows), None]
    if type_.name in PLAIN:
        return [*PLAIN[type_.name], None]
    return [1, 0, None]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Per pair and side the rows, all of one time."""
    folder = tmp_path_factory.mktemp("nested_keys")
    for number, pair in enumerate(PAIRS):
        for side, written in zip("ab", pair, strict=True):
            (folder / f"{side}{number}").mkdir()
            rows = [{"id": n, "k": k, "t": 1} for n, k in enumerate(values_of(sql_type(written)))]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{side}{number}" / "1.json").write_text(text)
    return folder


@pytest.fixture(scope="module")
def of_spark(spark: Any, files: Path) -> dict[tuple[int, str], set[tuple[int, int]] | None]:
    """What Spark joins, by the pair and the operator; None: it compares them not."""
    answers: dict[tuple[int, str], set[tuple[int, int]] | None] = {}
    for number, pair in enumerate(PAIRS):
        for side, written in zip("ab", pair, strict=True):
            frame = spark.read.schema(f"id INT, k {written}, t BIGINT").json(str(files / f"{side}{number}"))
            frame.createOrReplaceTempView(f"{side}{number}")
        for op in OPERATORS:
            try:
                rows = spark.sql(QUERY.format(n=number, op=op)).collect()
            except AnalysisException as error:
                answers[number, op] = None
                if "DATATYPE_MISMATCH" not in str(error):
                    raise
            else:
                answers[number, op] = {(row.a, row.b) for row in rows}
    return answers


def declare_pair(number: int, of_a: str, of_b: str) -> str:
    left, right = PAIRS[number]
    return JOB.format(n=number, left=left, right=right, of_a=of_a, of_b=of_b)


def test_what_is_joined_in_process_and_what_is_refused(of_spark: Any) -> None:
    wrong = {}
    for (number, op), expected in of_spark.items():
        memory = "'connector' = 'memory'"
        text = declare_pair(number, memory, memory) + QUERY.format(n=number, op=op)
        try:
            job = LocalJob(plan_job(parse_job(text)), MemoryStore())
        except SqlError as error:
            found = None if error.code == "wrong-types" else error
        else:
            rows = {
                f"{side}{number}": [
                    ({"id": n, "k": k, "t": 1}, 1) for n, k in enumerate(values_of(sql_type(own)))
                ]
                for side, own in zip("ab", PAIRS[number], strict=True)
            }
            found = {(row["a"], row["b"]) for row in job.tick(rows, clock_us=0).rows["console"]}
        if found != expected:
            wrong[(*PAIRS[number], op)] = (found, expected)
    assert wrong == {}
    joined = [pairs for pairs in of_spark.values() if pairs is not None]
    assert len(of_spark) / 4 < sum(map(bool, joined)) < len(of_spark)


def test_what_is_joined_on_spark(spark: Any, files: Path, of_spark: Any, tmp_path: Path) -> None:
    text, expected = "", {}
    for number in range(len(PAIRS)):
        own = [f"'connector' = 'file', 'format' = 'json', 'path' = '{files}/{side}{number}'" for side in "ab"]
        op = OPERATORS[number % 2]
        if of_spark[number, op] is None:
            continue
        sink = f"s{number}"
        expected[sink] = of_spark[number, op]
        text += declare_pair(number, *own)
        into = f"'connector' = 'file', 'path' = '{tmp_path}/{sink}', 'format' = 'json'"
        text += f"CREATE SINK {sink} WITH ({into});"
        text += f"INSERT INTO {sink} {QUERY.format(n=number, op=op)};\n"
    until_caught_up(spark, text, tmp_path / "state")
    found = {}
    for sink in expected:
        lines = [line for path in (tmp_path / sink).rglob("*.json") for line in path.read_text().splitlines()]
        found[sink] = {(row["a"], row["b"]) for row in map(json.loads, lines)}
    assert found == expected
