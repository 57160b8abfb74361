"""Texts that are taken as texts are so to Spark: none of its plans holds a time of its clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.front.test_functions_as_written import NO_TIMES_OF_THE_CLOCK, TIMES_OF_THE_CLOCK

pytestmark = pytest.mark.spark

SEEN = ("t > ", "t IS", "t IN", "d - ", "COALESCE", "CASE", "IF", "nvl", "array(t", "to_date", "'today' +")


def test_spark_plans_contain_clock_times_only_for_refused_texts(spark):
    """Of those that are refused, where Spark puts the time as it is into its plan."""
    spark.createDataFrame([], "a INT, s STRING, t TIMESTAMP, d DATE").createOrReplaceTempView("clock_texts")
    now = datetime.now(UTC)
    days = [f"{now + timedelta(days=number):%Y-%m-%d}" for number in (-2, -1, 0, 1, 2)]

    def times(texts):
        frame = spark.sql(f"SELECT {', '.join(texts)} FROM clock_texts")
        plan = frame._jdf.queryExecution().optimizedPlan().toString()
        return sum(plan.count(day) for day in days), plan

    try:
        found, plan = times([f"({text}) AS x{number}" for number, text in enumerate(NO_TIMES_OF_THE_CLOCK)])
        assert not found, plan
        seen = [text for text in TIMES_OF_THE_CLOCK if text.startswith(SEEN)]
        found, plan = times([f"({text}) AS x{number}" for number, text in enumerate(seen)])
        assert found >= len(seen) > 14, plan
    finally:
        spark.catalog.dropTempView("clock_texts")
