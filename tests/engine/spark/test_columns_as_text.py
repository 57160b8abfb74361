"""Columns of Spark's, and their texts: the same values of the same types, whatever they are made of."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

import watersmeet as ws
from tests.support.effort import at_effort
from watersmeet.relations.expressions import NoText, is_column, text_of
from watersmeet.runtime.spark.sources.dataframes import inspect_frames

pytestmark = pytest.mark.spark

DRAWN = at_effort(quick=20, full=60)


def numbers(draw: random.Random, depth: int) -> Any:
    from pyspark.sql import functions as F

    if depth == 0:
        odd = [F.lit(draw.choice([0, 1, -3, 2**31 - 1, 2**40])), F.lit(draw.choice([0.1, -2.5, 1e30, 3.0]))]
        return draw.choice([F.col("n"), F.col("t.x"), F.col("`odd name`"), F.lit(Decimal("1.50")), *odd])
    one, two = numbers(draw, depth - 1), numbers(draw, depth - 1)
    return draw.choice(
        [
            lambda: one.cast("double") + two,
            lambda: one.cast("double") - (two - one.cast("double")),
            lambda: one.cast("double") * two.cast("double"),
            lambda: -one.cast("double"),
            lambda: F.abs(one.cast("double")),
            lambda: F.coalesce(one.cast("double"), two.cast("double")),
            lambda: F.when(truths(draw, depth - 1), one.cast("double")).otherwise(two.cast("double")),
            lambda: F.expr("n + 1"),
            lambda: F.length(F.concat(F.col("s"), F.lit("it's \\ a\n'text'"))),
        ]
    )()


def truths(draw: random.Random, depth: int) -> Any:
    from pyspark.sql import functions as F

    one, two = numbers(draw, max(depth - 1, 0)), numbers(draw, max(depth - 1, 0))
    plain = [
        lambda: one == two, lambda: one != two, lambda: one < two, lambda: one >= two,
        lambda: one.eqNullSafe(two), lambda: one.isNull(), lambda: one.isNotNull(),
        lambda: F.col("n").isin(1, 2, 3),
        lambda: one.between(two, one), lambda: F.col("s").like("a%"), lambda: F.col("s").rlike("^a\\w"),
        lambda: F.col("s").startswith("a"), lambda: F.col("s") == "it's",
        lambda: F.col("day") >= date(2024, 1, 2), lambda: F.col("at") > datetime(2024, 1, 1, 12),
        lambda: F.col("at") + F.expr("INTERVAL 1 HOUR") > F.col("at"),
    ]  # fmt: skip
    if depth == 0:
        return draw.choice(plain)()
    left, right = truths(draw, depth - 1), truths(draw, depth - 1)
    return draw.choice([*plain, lambda: left & right, lambda: left | right, lambda: ~left])()


def test_a_column_and_its_text_are_the_same(spark, seed):
    draw = random.Random(seed)
    frame = spark.range(6).selectExpr(
        "CAST(nullif(id, 4) AS INT) AS n",
        "named_struct('x', id * 2) AS t",
        "id - 2 AS `odd name`",
        "element_at(array('a', 'ab', 'it''s', NULL, '', 'b'), CAST(id + 1 AS INT)) AS s",
        "date_add(DATE '2024-01-01', CAST(id AS INT)) AS day",
        "timestamp_seconds(1704067200 + id * 9999) AS at",
    )
    columns = [make(draw, draw.randrange(4)) for _ in range(DRAWN) for make in (numbers, truths)]
    assert all(is_column(column) for column in columns)
    texts = [text_of(column) for column in columns]
    wanted = frame.select(*(column.alias(f"c{n}") for n, column in enumerate(columns)))
    found = frame.selectExpr(*(f"{text} AS c{n}" for n, text in enumerate(texts)))
    types = zip(texts, wanted.dtypes, found.dtypes, strict=True)
    assert [text for text, one, other in types if one != other] == []
    rows = list(zip(wanted.collect(), found.collect(), strict=True))
    odd = [texts[n] for n in range(len(texts)) if any(str(one[n]) != str(other[n]) for one, other in rows)]
    assert odd == []


def test_columns_without_a_text_ask_for_one(spark):
    from pyspark.sql import functions as F

    frame = spark.range(3)
    for column in (frame["id"], F.udf(lambda x: x)("id"), F.col("id").asc(), F.lit([1, 2]).getItem(0)):
        with pytest.raises(NoText):
            text_of(column)


def test_readers_that_skip_rows_are_reported(spark, tmp_path):
    """By frames of both kinds that Spark has, and by the options of a text."""
    files = spark.readStream.schema("t TIMESTAMP").option("mode", "DROPMALFORMED")
    files = files.option("ignoreMissingFiles", True).option("maxFilesPerTrigger", 1).json(str(tmp_path))
    rate = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 1)
        .option("failOnDataLoss", "false")
        .load()
    )
    frames = {
        "files": ws.stream(files, time="t", name="files").select("t"),
        "rate": ws.stream(rate.selectExpr("timestamp AS t"), time="t", name="rate").select("t"),
        "text": ws.declared(
            "CREATE TABLE text (t TIMESTAMP, WATERMARK FOR t AS t) TYPE Spark"
            " OPTIONS ('format' = 'nobody-knows', 'FailOnDataLoss' = 'FALSE')"
        )["text"].select("t"),
    }
    job = ws.job(*(relation.to_sink(ws.memory(name)) for name, relation in frames.items()))
    looked = inspect_frames(job.plan, job.frames)
    assert looked.problems == []
    told = {name: [note for note in looked.notes if note.startswith(f'"{name}"')] for name in frames}
    assert {name: len(notes) for name, notes in told.items()} == {"files": 2, "rate": 1, "text": 2}
    assert "broken records are dropped" in str(told["files"])
    assert "rows that are deleted before the job reads them" in str(told["rate"])
    assert "results after a crash" in str(told["text"])
