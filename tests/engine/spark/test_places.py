"""Numbers of tasks that executors keep, and where none are kept. That tasks go there is tested on executors
(`test_cases_on_cluster`)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from watersmeet.runtime.spark.tick.task_placement import TaskPlacement

pytestmark = pytest.mark.spark

NO_WAIT = {"spark.locality.wait": "0s"}


def list_persistent_rdds(spark):
    """What is kept in the session's application, by number."""
    numbers = spark.sparkContext._jsc.sc().getPersistentRDDs().keySet().mkString(",")
    return {int(number) for number in numbers.split(",") if number}


def on_a_cluster(spark, **conf):
    """The session as it would be on a cluster, with these settings."""
    theirs = spark._jvm.org.apache.spark.SparkConf(False)
    for name, value in conf.items():
        theirs.set(name, value)
    running = SimpleNamespace(isLocal=lambda: False, conf=lambda: theirs)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: running)))


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def test_local_mode_persists_no_rdd(spark):
    before = list_persistent_rdds(spark)
    numbers = TaskPlacement(spark).numbers(3)
    assert [row[0] for row in numbers.collect()] == [0, 1, 2]
    assert "Range (0, 3" in plan_of(numbers)
    assert list_persistent_rdds(spark) <= before


@pytest.mark.parametrize(
    ("conf", "are_kept"),
    [
        (NO_WAIT, True),
        ({**NO_WAIT, "spark.dynamicAllocation.enabled": "false"}, True),
        ({**NO_WAIT, "spark.dynamicAllocation.enabled": "true"}, False),
        ({"spark.locality.wait": "1s"}, False),
        ({}, False),  # Spark's own wait is 3 s
    ],
)
def test_cluster_persists_numbers_only_without_a_locality_wait(spark, conf, are_kept):
    assert TaskPlacement(on_a_cluster(spark, **conf)).are_kept is are_kept


def test_persisted_numbers_equal_the_plain_ones(spark):
    before, places = list_persistent_rdds(spark), TaskPlacement(spark)
    places.are_kept = True
    numbers = places.numbers(3)
    assert numbers.schema == places._plain(3).schema
    for _ in range(2):  # when they are made, and as they are kept
        assert [[row[0] for row in part] for part in numbers.rdd.glom().collect()] == [[0], [1], [2]]
    assert len(list_persistent_rdds(spark) - before) == 1
    assert places.numbers(3) is numbers
    assert [row[0] for row in places.numbers(1).collect()] == [0]


def test_one_partition_is_grouped_without_a_shuffle(spark):
    before, places = list_persistent_rdds(spark), TaskPlacement(spark)
    places.are_kept = True
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # as in a stream
    try:
        shuffled = {
            grouped: "Exchange" in plan_of(places.numbers(1, grouped=grouped).groupBy("id").count())
            for grouped in (True, False)
        }
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert shuffled == {True: False, False: True}
    assert len(list_persistent_rdds(spark) - before) == 1
