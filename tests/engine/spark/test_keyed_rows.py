"""Changes of a tick as one row per key (`KeyedRows`), against sums by hand."""

from __future__ import annotations

import random

import pytest
from pyspark.errors import PySparkException

from watersmeet.names import DELETED, SHOWN_DIFF, SHOWN_TICK
from watersmeet.runtime.spark.tick.consolidation import compact_by_key
from watersmeet.sinks.base import KeyedRows

pytestmark = pytest.mark.spark

SCHEMA = (
    "`a b` STRING, k BIGINT, deep STRUCT<x: INT, y: MAP<STRING, INT>>,"
    f" {SHOWN_DIFF} BIGINT, {SHOWN_TICK} BIGINT"
)
KEYED = KeyedRows(("k", "a b"))


def rows_by_key(spark, rows, schema=SCHEMA, changes=True, counted=None):
    made = compact_by_key(spark.createDataFrame(rows, schema), KEYED, "q", changes=changes, rows=counted)
    assert made.columns == ["a b", "k", "deep", DELETED]
    return made.collect()


def test_rows_are_those_that_are_left_of_each_key(spark):
    seed = 20261123
    draw = random.Random(seed)
    rows, wanted = [], {}
    for number in range(200):
        kind = draw.choice(["came", "went", "changed"])
        key = (draw.choice(["", "ö", 'q"']), number)
        old, new = (
            (draw.choice([None, draw.randrange(5)]), {"m": draw.randrange(3), "n": None}) for _ in range(2)
        )
        if kind != "came":
            rows.append((*key, old, -1, 7))
        if kind != "went":
            rows.append((*key, new, 1, 7))
        wanted[key] = (old if kind == "went" else new, kind == "went")
    draw.shuffle(rows)
    left = {(row[0], row[1]): (tuple(row[2]), row[3]) for row in rows_by_key(spark, rows)}
    assert left == wanted, f"seed {seed}"


def test_rows_that_only_come_take_places(spark):
    schema = "`a b` STRING, k BIGINT, deep INT"
    assert [tuple(row) for row in rows_by_key(spark, [("x", 1, None)], schema, False)] == [
        ("x", 1, None, False)
    ]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("x", 1, None, 1, 7), ("x", 1, (1, {}), 1, 7)], "2 rows at once"),
        ([("x", 1, None, 2, 7)], "2 rows at once"),
        ([("x", None, None, 1, 7)], "NULL in the PRIMARY KEY"),
    ],
)
def test_more_than_one_row_of_a_key_is_no_tick(spark, rows, said):
    with pytest.raises(PySparkException, match=said):
        rows_by_key(spark, rows)


def test_rows_of_a_key_that_were_counted(spark):
    schema = f"{SCHEMA}, n BIGINT"
    with pytest.raises(PySparkException, match="has 3 rows at once"):
        rows_by_key(spark, [("x", 1, None, 1, 7, 3)], schema, counted="n")
