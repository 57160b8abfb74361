"""The sinks with Spark's own frames and writers."""

from __future__ import annotations

import json
import os
import random

import duckdb
import pandas
import pytest

from tests.support.columns import column
from tests.support.effort import at_effort
from watersmeet.errors import SpecError
from watersmeet.sinks.file_sink import FileSink
from watersmeet.sinks.kafka.records import TopicRecords
from watersmeet.sinks.memory import MemorySink
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.model import Sink

pytestmark = pytest.mark.spark

ORIGIN = {"rows": "of one tick"}
SERVERS = {"bootstrap.servers": "localhost:9092", "topic": "out"}


@pytest.fixture
def frame(spark):
    """100 rows in 3 partitions, the last of which is filtered empty."""
    return (
        spark.range(0, 150, 1, 3)
        .where("id < 100")
        .selectExpr(
            "id", "timestamp_micros(id * 1000001) AS t", "CASE WHEN id % 2 = 0 THEN 'x,\"y\"' END AS s"
        )
    )


def publish(sink, frame, tick=1, insert="out", attempt="a1"):
    sink.prepare(frame.schema)
    sink.write(frame, insert, tick, attempt)
    if isinstance(sink, FileSink) and sink.tells_rows:
        assert sink.staged_rows(insert, tick, attempt) == frame.count()
    sink.publish(insert, tick, attempt, ORIGIN)


@pytest.mark.parametrize(
    ("options", "reader"),
    [
        ({"format": "parquet"}, "read_parquet('{path}/*.parquet')"),
        ({"format": "json"}, "read_json('{path}/*.json')"),
        ({"format": "csv", "header": "true"}, "read_csv('{path}/*.csv', header = true)"),
        pytest.param(
            {"format": "csv", "header": "true", "compression": "gzip"},
            "read_csv('{path}/*.csv.gz')",
            marks=pytest.mark.full,
        ),
        pytest.param(
            {"format": "json", "compression": "gzip"},
            "read_json('{path}/*.json.gz')",
            marks=pytest.mark.full,
        ),
    ],
)
def test_every_format_is_whole_and_bare(frame, tmp_path, options, reader):
    sink = make_sink(Sink("out", "file", {"path": str(tmp_path / "o"), **options}))
    publish(sink, frame)
    publish(sink, frame, attempt="a2")
    publish(sink, frame.where("false"), tick=2)
    rows = duckdb.sql(
        f"SELECT count(*), sum(id), count(s) FROM {reader.format(path=tmp_path / 'o')}"
    ).fetchall()
    assert rows == [(100, 4950, 50)]
    assert {name[:18] for name in os.listdir(tmp_path / "o")} == {"_ticks", "out-000000000001-0"}
    reading = frame.sparkSession.read.format(options["format"]).options(**options)
    assert reading.load(f"{tmp_path}/o").count() == 100


def test_spark_reads_what_is_published_and_nothing_staged(spark, frame, tmp_path):
    sink = make_sink(Sink("out", "file", {"path": str(tmp_path / "o")}))
    publish(sink, frame)
    sink.write(frame, "out", 2, "a1")
    found = spark.read.parquet(f"{tmp_path}/o")
    assert found.count() == pandas.read_parquet(tmp_path / "o").shape[0] == 100
    assert found.columns == ["id", "t", "s"], "no partition column from the directories' names"


def test_lines_of_json_are_rows_whatever_is_in_them(spark, tmp_path):
    sink = make_sink(Sink("out", "file", {"path": str(tmp_path / "o"), "format": "json"}))
    assert sink.tells_rows
    texts = spark.createDataFrame([("a\nb",), ("\r\n",), ("\u2028",), (None,), ("",)] * 200, "s STRING")
    publish(sink, texts)  # compares
    for name in ("gzip", "bzip2", "deflate"):
        place = {"path": str(tmp_path / name), "format": "json", "compression": name}
        publish(make_sink(Sink("out", "file", place)), texts)
    others = {"path": str(tmp_path / "p"), "format": "json", "lineSep": "|"}
    assert not make_sink(Sink("out", "file", others)).tells_rows


HOSTILE = [*'",\\\n\r#ax \0\u2028', "", '\\"', '""', "\\,", "\\\\", "é", "NULL", "=1+1"]


def test_records_of_csv_are_rows_whatever_is_in_them(spark, tmp_path, seed):
    source = random.Random(seed)
    rows = [
        tuple(
            source.choice([None, "".join(source.choices(HOSTILE, k=source.randrange(1, 5)))])
            for _ in range(3)
        )
        for _ in range(at_effort(quick=500, full=2_000))
    ]
    texts = spark.createDataFrame(rows, "a STRING, b STRING, c STRING").repartition(2)
    options = [{}, {"header": "false"}, {"quoteAll": "true"}, {"sep": "||"}, {"nullValue": "-"}]
    options += [{"compression": each} for each in ("gzip", "bzip2", "deflate")]
    options = at_effort(quick=options[:1] + options[2:4], full=options)
    for number, more in enumerate(options):
        place = {"path": str(tmp_path / str(number)), "format": "csv", **more}
        sink = make_sink(Sink("out", "file", place))
        assert sink.tells_rows
        publish(sink, texts)  # compares
    untold = [{"quote": "'"}, {"escape": '"'}, {"lineSep": "|"}, {"sep": "\\\\"}, {"nullValue": '"'}]
    for more in (*untold, {"compression": "snappy"}):
        assert not make_sink(Sink("out", "file", {**place, **more})).tells_rows


def test_null_without_a_csv_line_is_not_counted_as_a_row(spark, tmp_path):
    """Spark writes nothing for it. Where that could not be told it is refused before anything is written."""
    one = spark.createDataFrame([("a",), (None,), ("",)], "s STRING").coalesce(1)
    place = {"path": str(tmp_path / "a"), "format": "csv"}
    sink = make_sink(Sink("out", "file", place))
    sink.prepare(one.schema)
    sink.write(one, "out", 1, "a1")
    assert sink.staged_rows("out", 1, "a1") == 2
    assert sink.leaves_out(1)
    assert not sink.leaves_out(2)
    publish(make_sink(Sink("out", "file", {**place, "path": str(tmp_path / "b"), "nullValue": "NULL"})), one)
    with pytest.raises(SpecError, match="no line for a row of one column") as error:
        make_sink(Sink("out", "file", {**place, "lineSep": "|"})).prepare(one.schema)
    assert error.value.code == "rows-left-out"


def test_parquet_has_timestamps_that_every_reader_knows(frame, tmp_path):
    publish(make_sink(Sink("out", "file", {"path": str(tmp_path)})), frame)
    kinds = duckdb.sql(f"DESCRIBE FROM read_parquet('{tmp_path}/*.parquet')").fetchall()
    assert {row[0]: row[1] for row in kinds}["t"] == "TIMESTAMP WITH TIME ZONE"


def test_odd_names_survive_hadoop_s_paths(frame, tmp_path):
    sink = make_sink(Sink("out", "file", {"path": str(tmp_path / "so called % 1")}))
    publish(sink, frame, insert="a/b =c%")
    assert sink.parts() == [("a/b =c%", 1)]


class Printer:
    def __init__(self, values=False):
        self.values = values
        self.shown = []

    def show(self, insert, tick, names, rows, more):
        self.shown.append((insert, tick, list(names), [tuple(row) for row in rows], more))


def test_console_shows_few_and_counts_all(frame):
    printer = Printer()
    sink = make_sink(Sink("console", "console", {"rows": "2"}), console=printer)
    twice = frame.selectExpr("id AS a", "named_struct('b', id) AS a")
    publish(sink, twice)
    publish(sink, twice.where("false"), tick=2)
    assert printer.shown == [("out", 1, ["a", "a"], [("0", "{0}"), ("1", "{1}")], 98)]


def test_console_gives_programs_values_of_every_type(spark):
    """What Spark's types become, with a name that needs quotes inside, NULLs and two columns of one name."""
    printer = Printer(values=True)
    columns = {
        "CAST(7 AS BIGINT)": 7,
        "CAST(0.1 AS DOUBLE)": 0.1,
        "CAST('NaN' AS FLOAT)": "NaN",
        "CAST('-Infinity' AS DOUBLE)": "-Infinity",
        "true": True,
        "CAST(12.50 AS DECIMAL(38,2))": "12.50",
        "DATE '0001-01-01'": "0001-01-01",
        "TIMESTAMP '2024-03-01 10:00:00.000001'": "2024-03-01T10:00:00.000001Z",
        "TIMESTAMP_NTZ '2024-03-01 10:00:00'": "2024-03-01T10:00:00",
        "INTERVAL '1' YEAR": "INTERVAL '1' YEAR",
        "INTERVAL '1 02:00:00' DAY TO SECOND": "INTERVAL '1 02:00:00' DAY TO SECOND",
        "array(named_struct('a b', 1, 'c', CAST(NULL AS STRING)))": [{"a b": 1, "c": None}],
        "map('k', 1.5BD)": {"k": "1.5"},
        "X'00FF'": "AP8=",
    }
    frame = spark.range(2).selectExpr(*(f"IF(id = 0, {text}, NULL) AS a" for text in columns))
    publish(make_sink(Sink("out", "console", {"rows": "2"}), console=printer), frame.repartition(1))
    ((_, _, names, rows, more),) = printer.shown
    assert names == ["a"] * len(columns)
    assert sorted(rows, key=str, reverse=True) == [(None,) * len(columns), tuple(columns.values())]
    assert more == 0


def test_console_evaluates_all_of_the_frame_once(spark):
    seen = spark.sparkContext.accumulator(0)

    def count(batches):
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    sink = make_sink(Sink("console", "console", {"rows": "1"}), console=Printer())
    publish(sink, spark.range(0, 1000, 1, 4).mapInArrow(count, "id BIGINT"))
    assert seen.value == 1000


def test_memory_has_the_rows(frame):
    MemorySink.clear("spark")
    publish(make_sink(Sink("spark", "memory", {})), frame.where("id < 2").select("id", "s"))
    assert MemorySink.rows("spark") == [{"id": 0, "s": 'x,"y"'}, {"id": 1, "s": None}]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("json", ['{"id":0,"t":"1970-01-01T00:00:00.000000Z","s":"x,\\"y\\""}']),
        ("csv", ['0,1970-01-01T00:00:00.000000Z,"x,\\"y\\""']),
    ],
)
def test_kafka_values(frame, kind, values):
    sink = TopicRecords(Sink("out", "kafka", {**SERVERS, "format": kind, "key": "id"}))
    columns = [(f.name, f.dataType.simpleString()) for f in frame.schema.fields]
    key, value = sink._expressions(columns)
    found = frame.where("id = 0").selectExpr(f"{key} AS key", f"{value} AS value").collect()
    assert [row.key for row in found] == ["0"]
    assert [row.value for row in found] == values


def test_kafka_json_keeps_nulls(frame):
    sink = TopicRecords(Sink("out", "kafka", SERVERS))
    _, value = sink._expressions([("id", "bigint")])
    (row,) = frame.where("id = 1").selectExpr(f"{value} AS value").collect()
    assert json.loads(row.value)["s"] is None


def test_schema_may_be_spark_s_or_ours(frame):
    sink = make_sink(Sink("out", "kafka", {**SERVERS, "key": "id"}))
    sink.prepare(frame.schema)
    sink.prepare([column("id", "BIGINT")])
