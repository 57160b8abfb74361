"""How Spark is set is what PySpark says of it, and Java's memory as Spark reads it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from watersmeet.runtime.files.long_lines import SHARE
from watersmeet.runtime.spark import configuration
from watersmeet.runtime.spark.configuration import context_settings, list_setting_names

pytestmark = pytest.mark.spark


def test_all_spark_settings_are_listed(spark):
    own = spark.newSession()
    own.conf.set("spark.sql.parquet.made.up", "two\nlines")
    asked, told = dict(spark.sparkContext.getConf().getAll()), dict(context_settings(spark.sparkContext))
    warehouse = [settings.pop("spark.sql.warehouse.dir") for settings in (asked, told)]
    assert warehouse[0].endswith(warehouse[1])
    assert told == asked
    assert "spark.sql.parquet.made.up" not in list_setting_names(spark)
    assert sorted(list_setting_names(own)) == sorted(own.conf.getAll)


@pytest.mark.parametrize(("memory", "mib"), [("2048", 2048), ("2048m", 2048), ("2g", 2048), (None, 1024)])
def test_lines_of_executors_are_by_their_memory(
    spark: Any, monkeypatch: pytest.MonkeyPatch, memory: str | None, mib: int
) -> None:
    """A bare number is MiB, as Spark reads it."""
    given = {} if memory is None else {"spark.executor.memory": memory}
    monkeypatch.setattr(configuration, "context_settings", lambda context: given)
    java = SimpleNamespace(sc=lambda: SimpleNamespace(isLocal=lambda: False))
    cluster: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=java, _jvm=spark.sparkContext._jvm))
    assert configuration.max_line_bytes(cluster) == (mib << 20) // SHARE
