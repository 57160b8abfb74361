"""Windows on Spark against Spark's own batch aggregation of the same rows: with functions that tasks compute,
and with functions that are left to Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.engine.spark.running import until_caught_up
from watersmeet.runtime.spark.replay import replay_case
from watersmeet.runtime.spark.task_messages import NODE
from watersmeet.runtime.spark.tick.sink_row_counts import RowCounter

pytestmark = pytest.mark.spark

AGGREGATES = {
    "parts": "count(*) AS n, sum(v) AS s, avg(v) AS m, string(avg(CAST(v AS DECIMAL(10,2)) / 7)) AS d,"
    " max_by(v, v) AS x, min_by(v, v) FILTER (WHERE v > 2) AS y, count_if(v > 3) AS c, bool_and(v > 0) AS b,"
    " bit_xor(v) AS z",
    "tasks": "count(*) AS n, sum(v) AS s, avg(v) AS m, count(DISTINCT k) AS d, max_by(v, v) AS x",
    "spark": "count(*) AS n, percentile_approx(v, 0.5) AS p, approx_count_distinct(k) AS d,"
    " sort_array(collect_list(v)) AS l, sum(v) FILTER (WHERE k = 'a') AS s",
}
WINDOWS = {
    "TUMBLE({}, INTERVAL '10' MINUTES)": "window(t, '10 minutes')",
    "HOP({}, INTERVAL '3' MINUTES, INTERVAL '9' MINUTES)": "window(t, '9 minutes', '3 minutes')",
    "HOP({}, INTERVAL '4' MINUTES, INTERVAL '10' MINUTES)": "window(t, '10 minutes', '4 minutes')",
    "SESSION({}, INTERVAL '2' MINUTES)": "session_window(t, '2 minutes')",
}
KINDS = dict(zip(WINDOWS, ("parts", "spark", "parts", "tasks"), strict=True))
"""By what results are computed: from partial aggregates, by Spark, from rows."""


def rows_of(seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [
        {
            "t": f"1970-01-01T{rng.randint(0, 1):02}:{rng.randint(0, 59):02}:{rng.choice((0, 0, 30)):02}",
            "k": rng.choice("abc"),
            "v": rng.choice((None, *range(9))),
        }
        for _ in range(120)
    ]


@pytest.mark.parametrize(
    "ours",
    [
        pytest.param(own, id=name, marks=[pytest.mark.full] if name == "hop of panes" else [])
        for own, name in zip(WINDOWS, ("tumble", "hop", "hop of panes", "session"), strict=True)
    ],
)
def test_windows_are_those_of_spark(spark: Any, seed: int, ours: str) -> None:
    """A late row none, so all rows count; what is left to Spark by turns with what tasks compute."""
    rows = rows_of(seed)
    kind = KINDS[ours]
    function = ours.format("TABLE s, DESCRIPTOR(t)")
    case = {
        "case": "windows",
        "streams": {
            "s": {
                "columns": {"t": "TIMESTAMP", "k": "STRING", "v": "BIGINT"},
                "time": {"t": {"lag": "2 HOURS"}},
            }
        },
        "query": f"SELECT window_start, window_end, k, {AGGREGATES[kind]} FROM TABLE({function})"
        " GROUP BY window_start, window_end, k",
        "steps": [
            {"rows": [["s", row] for row in rows[:70]]},
            {"rows": [["s", row] for row in rows[70:]] + [["s", {"t": "1970-01-01T02:30:00", "k": "z"}]]},
            {"rescale": 3},
            {"end": True},
        ],
    }
    lines = replay_case(case, partitions=2)
    assert lines[1]["rows"], "results go out when windows close, not at the end"
    found = [row for line in lines for row in line["rows"]]
    frame = spark.createDataFrame(rows, "t STRING, k STRING, v BIGINT").selectExpr(
        "timestamp(t) AS t", "k", "v"
    )
    frame.createOrReplaceTempView("rows_of_windows")
    theirs = spark.sql(
        f"SELECT w.start AS window_start, w.end AS window_end, k, {AGGREGATES[kind]}"
        f" FROM (SELECT *, {WINDOWS[ours]} AS w FROM rows_of_windows) GROUP BY w, k"
        if not ours.startswith("SESSION")
        else f"SELECT {WINDOWS[ours]}.start AS window_start, {WINDOWS[ours]}.end AS window_end, k,"
        f" {AGGREGATES[kind]} FROM rows_of_windows GROUP BY {WINDOWS[ours]}, k"
    )
    expected = [
        {
            **row.asDict(),
            "window_start": row.window_start.isoformat(),
            "window_end": row.window_end.isoformat(),
        }
        for row in theirs.collect()
    ]
    assert len(expected) > 10
    assert sorted(map(repr, (r for r in found if r["k"] != "z"))) == sorted(map(repr, expected))


CLICKS = """
CREATE MAPPING clicks (page STRING, at TIMESTAMP, ms DECIMAL(10,2)) TYPE File
  OPTIONS ('path' = '{path}/clicks', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE VIEW c AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE clicks, DESCRIPTOR(at), INTERVAL '0' SECONDS));
CREATE MAPPING plain TYPE File OPTIONS ('path' = '{path}/plain', 'format' = 'parquet');
CREATE MAPPING slow TYPE File OPTIONS ('path' = '{path}/slow', 'format' = 'parquet');
INSERT INTO plain SELECT window_start, window_end, page, sum(ms) AS ms, avg(ms) AS mean, max(at) AS last
  FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(at), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end, page;
INSERT INTO slow SELECT window_end, percentile_approx(ms, 1.0) AS slowest, count(*) AS n
  FROM TABLE(SESSION(TABLE c, DESCRIPTOR(at), INTERVAL '5' MINUTES)) GROUP BY window_start, window_end
  HAVING count(*) > 1;
CREATE MAPPING busy TYPE File OPTIONS ('path' = '{path}/busy', 'format' = 'json');
INSERT INTO busy SELECT window_start, page, count(*) AS n
  FROM TABLE(TUMBLE(TABLE c, DESCRIPTOR(at), INTERVAL '10' MINUTES)) GROUP BY window_start, page
  HAVING count(*) > 1;
"""


@pytest.mark.full
def test_a_whole_job_goes_on_where_it_was_stopped(spark: Any, tmp_path: Path) -> None:
    """Rows of windows reach the sink from the tasks as they are, and by Spark's groupBy; each once."""

    def write_clicks(name: str, *clicks: tuple[str, str, str]) -> None:
        (tmp_path / "clicks").mkdir(exist_ok=True)
        records = [{"page": page, "at": f"2022-03-01T{at}Z", "ms": ms} for page, at, ms in clicks]
        text = "\n".join(json.dumps(record) for record in records)
        (tmp_path / "clicks" / f"{name}.json").write_text(text)

    def read_sink_rows(sink: str) -> list[tuple[Any, ...]]:
        frame = spark.read.option("recursiveFileLookup", "true").parquet(str(tmp_path / sink))
        return sorted(tuple(str(value) for value in row) for row in frame.collect())

    text = CLICKS.format(path=tmp_path)
    write_clicks("1", ("a", "10:01:00", "1.50"), ("b", "10:02:00", "7"), ("a", "10:09:59", "1.01"))
    until_caught_up(spark, text, tmp_path / "checkpoint")
    write_clicks("2", ("a", "10:10:00", "3"), ("b", "10:31:00", "4"))
    until_caught_up(spark, text, tmp_path / "checkpoint")
    first = [
        ("2022-03-01 10:00:00", "2022-03-01 10:10:00", "a", "2.51", "1.255000", "2022-03-01 10:09:59"),
        ("2022-03-01 10:00:00", "2022-03-01 10:10:00", "b", "7.00", "7.000000", "2022-03-01 10:02:00"),
        ("2022-03-01 10:10:00", "2022-03-01 10:20:00", "a", "3.00", "3.000000", "2022-03-01 10:10:00"),
    ]
    assert read_sink_rows("plain") == first
    assert read_sink_rows("slow") == [
        ("2022-03-01 10:07:00", "7.00", "2"),
        ("2022-03-01 10:15:00", "3.00", "2"),
    ]
    assert len(list((tmp_path / "busy").glob("busy-*.json"))) == 1
    done = until_caught_up(spark, text, tmp_path / "checkpoint", finish=True).ticks[-1]
    last = ("2022-03-01 10:30:00", "2022-03-01 10:40:00", "b", "4.00", "4.000000", "2022-03-01 10:31:00")
    assert read_sink_rows("plain") == [*first, last]
    assert len(read_sink_rows("slow")) == 2
    totals = {name: query.total_rows_out for name, query in done.queries.items()}
    assert totals == {"plain": 4, "slow": 2, "busy": 1}, "rows that the sinks have, not those before HAVING"


@pytest.mark.parametrize(
    "way", [lambda c: c.over, lambda c: c.count_groups], ids=["rows of tasks", "groups of Spark"]
)
def test_rows_are_counted_once_however_often_a_sink_asks_for_them(spark: Any, way: Any) -> None:
    """Wholly, in part, and past Spark's SQL, as the Kafka connector does; and those of this tick alone."""
    counter = RowCounter(spark)
    numbers = spark.range(0, 100, 1, 4).where("id % 3 = 0")
    groups = numbers.groupBy((F.col("id") % 20).alias("k")).agg(F.count("*").alias("n")).where("n > 1")
    numbers = numbers.withColumnRenamed("id", "u.id")
    for frame, rows in ((numbers, 34), (groups, 14), (numbers.where("`u.id` < 0"), 0)):
        watched = way(counter)(frame)
        for told in ("one", "two"):
            spark.sparkContext.setLocalProperty(NODE, told)
            counter.begin()
            assert watched.count() == len(watched.collect()) == rows
            watched.take(1)
            watched.rdd.foreachPartition(drain_rows)
            assert (counter.rows(told), counter.rows("another")) == (rows, 0)


def drain_rows(rows: Iterator[Any]) -> None:
    for _ in rows:
        pass
