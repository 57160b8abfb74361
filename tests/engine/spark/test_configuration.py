"""How Spark is set is what PySpark says of it."""

from __future__ import annotations

import pytest

from watersmeet.engine.spark.configuration import context_settings, names_in

pytestmark = pytest.mark.spark


def test_all_settings_are_told(spark):
    own = spark.newSession()
    own.conf.set("spark.sql.parquet.made.up", "two\nlines")
    asked, told = dict(spark.sparkContext.getConf().getAll()), dict(context_settings(spark.sparkContext))
    warehouse = [settings.pop("spark.sql.warehouse.dir") for settings in (asked, told)]
    assert warehouse[0].endswith(warehouse[1])
    assert told == asked
    assert "spark.sql.parquet.made.up" not in names_in(spark)
    assert sorted(names_in(own)) == sorted(own.conf.getAll)
