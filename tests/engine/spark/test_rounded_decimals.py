"""Decimals with more digits behind the point than their columns are rounded as by Spark, counted and told."""

from __future__ import annotations

import json
import random
from decimal import Decimal

import pytest
from pyspark.sql import functions as F

from tests.engine.spark.running import until_caught_up
from tests.support.effort import at_effort
from watersmeet import parse_job, plan_job
from watersmeet.engine.spark.rounded_decimals import rounded_sql
from watersmeet.engine.spark.sources import kafka
from watersmeet.engine.spark.sources.views import BROKEN
from watersmeet.sinks.memory import MemorySink

pytestmark = pytest.mark.spark

TYPES = ("DECIMAL(4,2)", "DECIMAL(10,2)", "DECIMAL(18,2)", "DECIMAL(5,0)", "DECIMAL(20,10)", "DECIMAL(38,0)")
VALUES = at_effort(quick=60, full=2_000)


def drawn(rng: random.Random) -> str:
    whole = rng.choice(["0", "1", "99", "100", "99999999", "9" * 16, "9" * 38])
    fraction = rng.choice(["", ".5", ".25", ".230000", ".239", ".995", ".999999", ".1234567", ".0000001"])
    return rng.choice(["", "-"]) + whole + fraction


@pytest.mark.parametrize("form", ["json", "csv"])
def test_each_value_is_what_sparks_parser_makes_of_it_and_what_it_lost_is_seen(spark, form, seed):
    """Of topics: against Spark's parser told the declared type."""
    rng = random.Random(seed)
    values = ["1.239", "1.23", "1.230", "99.999", "0.005", "-0.005", *(drawn(rng) for _ in range(VALUES))]
    for declared in TYPES:
        text = f"""CREATE TABLE c (p {declared}, s STRING) WITH ('connector' = 'kafka', 'topic' = 't',
            'format' = '{form}', 'bootstrap.servers' = 'x:1'); SELECT * FROM c"""
        (source,) = plan_job(parse_job(text)).sources
        records = [f'{{"p": {value}, "s": "a"}}' if form == "json" else f"{value},a" for value in values]
        frame = spark.createDataFrame([(None, r.encode()) for r in records], "key BINARY, value BINARY")
        rounded, too_large = rounded_sql(source, ["`p`"]) or ("NULL", "NULL")
        told = kafka.parsed(frame.withColumn("partition", F.lit(0)), source).selectExpr(
            "p", f"{rounded} AS r", f"coalesce({BROKEN}, {too_large}) AS b"
        )
        reader = f"from_{form}(CAST(value AS STRING), 'p {declared}, s STRING, c STRING', "
        options = "map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', 'c'))"
        spark_reads = frame.selectExpr(f"{reader}{options} AS v").selectExpr("v.p", "v.c")
        for value, own, ours in zip(values, spark_reads.collect(), told.collect(), strict=True):
            assert (ours["b"] is not None) == (own["c"] is not None), (declared, value)
            if ours["b"] is None:
                assert ours["p"] == own["p"], (declared, value)
                seen = declared != "DECIMAL(38,0)"  # there is no type with more digits
                lost = seen and own["p"] != Decimal(value)
                assert (ours["r"] is not None) == lost, (declared, value)
                assert not lost or Decimal(ours["r"].removeprefix("p ")) == Decimal(value)


JOB = """
CREATE TABLE a (id INT, at TIMESTAMP, price DECIMAL(10,2), spare DECIMAL(4,1), WATERMARK FOR at AS at)
  WITH ('connector' = 'file', 'path' = '{path}/in', 'format' = '{form}');
CREATE TABLE out WITH ('connector' = 'memory');
INSERT INTO out SELECT id, price FROM a;
"""


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_job_counts_rounded_rows_and_tells_of_the_first(spark, tmp_path, form):
    """Of columns that nobody asks for it says nothing, and rows with zeros at their end lose nothing."""
    rows = [
        {"id": 1, "at": "2026-03-01T10:00:00Z", "price": 1.239, "spare": 1.55},
        {"id": 2, "at": "2026-03-01T10:00:00Z", "price": 1.5, "spare": 1.55},
        {"id": 3, "at": "2026-03-01T10:00:00Z", "price": 99999999.999, "spare": 1.5},
    ]
    lines = [json.dumps(row) if form == "json" else ",".join(map(str, row.values())) for row in rows]
    (tmp_path / "in").mkdir()
    head = [] if form == "json" else ["id,at,price,spare"]
    (tmp_path / "in" / "a").write_text("\n".join([*head, *lines]) + "\n")
    MemorySink.clear()
    notes: list[str] = []
    text = JOB.format(path=tmp_path, form=form)
    (last,) = until_caught_up(spark, text, tmp_path / "state", on_notice=notes.append).ticks
    rows_out = sorted((row["id"], row["price"]) for row in MemorySink.rows("out"))
    assert rows_out == [(1, Decimal("1.24")), (2, Decimal("1.50"))]
    (said,) = [note for note in notes if "rounded" in note]
    assert said == (
        '"a": 1 of 3 rows of tick 1 have more digits behind the point than their DECIMAL, and were rounded,'
        " such as price 1.239"
    )
    assert last.rounded["a"].rows == 1
    assert last.broken["a"].rows == 1
