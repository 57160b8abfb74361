"""Which settings of a run the rows of its ticks depend on: no session is started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from pyspark import SparkContext

import watersmeet
from watersmeet.runtime.spark.job.run_identity import list_settings
from watersmeet.spec.secrets import HIDDEN

PINS = [("spark.hadoop.acme.pin", "4711"), ("spark.hadoop.acme.mode", "fast")]
CUT = ("spark.sql.files.maxPartitionBytes", "8m")


class Context:
    def __init__(self, cores: int) -> None:
        self.defaultParallelism = cores

    def getConf(self) -> SimpleNamespace:
        return SimpleNamespace(getAll=lambda: [CUT, *PINS])


def settings(join: str, cores: int, *secrets: str) -> dict[str, str]:
    source = "WITH ('connector' = 'file', 'path' = 'in/{}', 'format' = 'json')"
    text = f"""
        CREATE TABLE l (k STRING, t BIGINT, WATERMARK FOR t AS t) {source.format("l")};
        CREATE TABLE r (k STRING, t BIGINT, WATERMARK FOR t AS t) {source.format("r")};
        SELECT l.k, r.t FROM l {join}"""
    context = cast(SparkContext, Context(cores))
    return list_settings(watersmeet.plan_job(watersmeet.parse_job(text)), {}, context, secrets)


def test_split_size_counts_only_for_joins_that_break_ties():
    asof = "ASOF JOIN r MATCH_CONDITION (l.t >= r.t) ON l.k = r.k"
    assert settings(asof, 2) != settings(asof, 3)
    assert settings(asof, 2)[CUT[0]] == "8m"
    plain = "JOIN r ON l.k = r.k AND l.t = r.t"
    assert settings(plain, 2) == settings(plain, 3)
    assert CUT[0] not in settings(plain, 2)


def test_setting_read_from_a_file_is_hidden():
    """Whatever the setting is called; a digest of all of them is kept with each tick."""
    found = settings("JOIN r ON l.k = r.k AND l.t = r.t", 2, "spark.hadoop.acme.pin")
    assert found["spark.hadoop.acme.pin"] == HIDDEN
    assert found["spark.hadoop.acme.mode"] == "fast"
