"""Windows over streams of changes on Spark, whose own batch aggregation of what is there is the judge."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.engine.spark.running import until_caught_up

pytestmark = pytest.mark.spark

TYPES = "id INT, k STRING, v INT, t TIMESTAMP"
SESSIONS = """
    SELECT window_start AS w, window_end AS e, upper(k) AS k, count(*) AS n, sum(v) AS s, max(v) AS m
    FROM TABLE(SESSION(TABLE s, DESCRIPTOR(t), INTERVAL '3' MINUTES))
    GROUP BY window_start, window_end, upper(k)"""
QUERIES = {
    "tumbled": """SELECT window_start AS w, upper(k) AS k, count(*) AS n, sum(v) AS s, min(v) AS m
    FROM TABLE(TUMBLE(TABLE s, DESCRIPTOR(t), INTERVAL '10' MINUTES))
    GROUP BY window_start, window_end, upper(k)""",
    "hopped": """SELECT window_start AS w, k, count(*) AS n, max(v) AS m
    FROM TABLE(HOP(TABLE s, DESCRIPTOR(t), INTERVAL '4' MINUTES, INTERVAL '10' MINUTES)) WHERE v <> 3
    GROUP BY window_start, window_end, k HAVING count(*) > 1""",
    "sessions": SESSIONS,
}
QUERIES |= {"closed": QUERIES["tumbled"] + " EMIT FINAL", "ended": SESSIONS + " EMIT FINAL"}
JOB = f"""
SET output_mode = changelog;
CREATE TABLE s ({TYPES}, d INT, WATERMARK FOR t AS t - INTERVAL '1' HOUR)
    WITH ('connector' = 'file', 'path' = '{{folder}}/s', 'format' = 'json', 'diff.column' = 'd');
""" + "".join(
    f"CREATE TABLE {name} WITH ('connector' = 'file', 'path' = '{{folder}}/{name}', 'format' = 'json');"
    f"INSERT INTO {name} {QUERIES[name]};"
    for name in QUERIES
)
TEN = timedelta(minutes=10)
COLUMNS = {name: ["w", "k", "n", "s", "m"] for name in ("tumbled", "closed")} | {
    "hopped": ["w", "k", "n", "m"],
    **{name: ["w", "e", "k", "n", "s", "m"] for name in ("sessions", "ended")},
}
FINAL = ("closed", "ended")


def drawn(draw: random.Random, number: int, hour: int) -> dict[str, Any]:
    return {
        "id": number,
        "k": draw.choice(["a", "b", None]),
        "v": draw.choice([None, 1, 2, 3]),
        "t": f"2024-01-01T{hour:02}:{draw.randint(0, 59):02}:00Z",
    }


def sums(folder: Path, name: str) -> Counter[tuple[Any, ...]]:
    total: Counter[tuple[Any, ...]] = Counter()
    for file in (folder / name).glob("**/*.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            assert ("_diff" in row) == (name not in FINAL)
            row |= {time: row[time][:16] for time in ("w", "e") if time in row}
            total[tuple(row.get(column) for column in COLUMNS[name])] += row.get("_diff", 1)
    assert not [row for row, diff in total.items() if diff < 0]
    return +total


def aggregate_with_spark(spark: Any, there: list[dict[str, Any]]) -> dict[str, Counter[tuple[Any, ...]]]:
    lines = spark.sparkContext.parallelize([json.dumps(row) for row in there], 1)
    rows = spark.read.schema(TYPES).json(lines)
    tumbled = rows.groupBy(F.window("t", "10 minutes").alias("of"), F.expr("upper(k)").alias("k"))
    hopped = rows.where("v <> 3").groupBy(F.window("t", "10 minutes", "4 minutes").alias("of"), "k")
    sessions = rows.groupBy(F.session_window("t", "3 minutes").alias("of"), F.expr("upper(k)").alias("k"))
    frames = {
        "tumbled": tumbled.agg(F.count("*").alias("n"), F.sum("v").alias("s"), F.min("v").alias("m")),
        "hopped": hopped.agg(F.count("*").alias("n"), F.max("v").alias("m")).where("n > 1"),
        "sessions": sessions.agg(F.count("*").alias("n"), F.sum("v").alias("s"), F.max("v").alias("m")),
    }
    minutes = "yyyy-MM-dd'T'HH:mm"
    for name, frame in frames.items():
        times = {"w": F.date_format("of.start", minutes), "e": F.date_format("of.end", minutes)}
        frames[name] = frame.withColumns(times).select(*COLUMNS[name])
    return {name: Counter(tuple(row) for row in frame.collect()) for name, frame in frames.items()}


@pytest.mark.full
def test_windows_are_those_of_what_is_there(spark: Any, tmp_path: Path, seed: int) -> None:
    """Every tick is an hour, so windows of the last but one are closed; a delete that is late changes
    nothing."""
    draw = random.Random(seed)
    there: list[dict[str, Any]] = []
    (tmp_path / "s").mkdir()
    for tick in range(3):
        changes = []
        for _ in range(30):
            # the first row stays, to be deleted too late
            open_rows = [row for row in there[1:] if int(row["t"][11:13]) >= tick - 1]
            if open_rows and draw.random() < 0.4:
                gone = draw.choice(open_rows)
                there.remove(gone)
                changes.append({**gone, "d": -1})
            else:
                there.append(drawn(draw, 100 * tick + len(changes), tick))
                changes.append({**there[-1], "d": 1})
        there.append({"id": tick, "k": "z", "v": 1, "t": f"2024-01-01T{tick:02}:59:59Z"})
        changes.append({**there[-1], "d": 1})
        if tick == 2:
            changes.append({**there[0], "d": -1})
        (tmp_path / "s" / f"{tick}.json").write_text("".join(json.dumps(row) + "\n" for row in changes))
        running = until_caught_up(spark, JOB.format(folder=tmp_path), tmp_path / "checkpoint")
        of_all = aggregate_with_spark(spark, there)
        mark = datetime(2024, 1, 1, tick, 59, 59) - timedelta(hours=1)
        of_all["closed"] = Counter(
            {row: 1 for row in of_all["tumbled"] if datetime.fromisoformat(row[0]) + TEN <= mark}
        )
        of_all["ended"] = Counter(
            {row: n for row, n in of_all["sessions"].items() if datetime.fromisoformat(row[1]) < mark}
        )
        for name in QUERIES:
            assert sums(tmp_path, name) == of_all[name], (tick, name, seed)
    assert running.ticks[-1].queries["tumbled"].account["s"]["late"] == 1
