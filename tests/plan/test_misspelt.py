# ruff: noqa: E501
"""Whatever name is misspelt, the one that is meant is told."""

from __future__ import annotations

import dataclasses

import pytest

from watersmeet.errors import WatersmeetError
from watersmeet.parser.ddl.options import SourceFields
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.spec.connectors import OF_ALL_SOURCES
from watersmeet.spec.options import changes

DECLARED = (
    "CREATE TABLE orders (order_time BIGINT, amount INT, a STRUCT<price: INT>, WATERMARK FOR order_time AS order_time)"
    " WITH ('connector' = 'memory'); CREATE SINK out WITH ('connector' = 'memory');\n"
)


def build_select_from_table(options: str, columns: str = "t BIGINT, WATERMARK FOR t AS t") -> str:
    return f"CREATE TABLE x ({columns}) WITH ({options}); SELECT t FROM x"


def sink(options: str) -> str:
    return f"CREATE SINK s WITH ({options}); INSERT INTO s SELECT amount FROM orders"


@pytest.mark.parametrize(
    ("sql", "meant"),
    [
        ("SELECT amount FROM ordrs", '"orders"'),
        ("SELECT order.* FROM orders", '"orders"'),
        ("SELECT amuont FROM orders", '"amount"'),
        ("SELECT * EXCEPT (amuont) FROM orders", '"amount"'),
        ("SELECT 1 AS x FROM orders JOIN orders p USING (amuont)", '"amount"'),
        ("SELECT orders.a.prise FROM orders", '"price"'),
        ("SELECT uper('x') AS x FROM orders", '"upper"'),
        ("SELECT CAST(amount AS BIGNT) AS x FROM orders", '"BIGINT"'),
        ("INSERT INTO outt SELECT amount FROM orders", '"out"'),
        ("CREATE TABEL x (t BIGINT)", '"TABLE"'),
        ("SET watermark_rul = 'limit'", '"watermark_rule"'),
        ("SET time_zone = 'Europe/Berln'", '"Europe/Berlin"'),
        (build_select_from_table("'connector' = 'kafak'"), '"Kafka"'),
        (build_select_from_table("'connector' = 'file', 'path' = 'x', 'format' = 'parqet'"), '"parquet"'),
        (build_select_from_table("'connector' = 'file', 'path' = 'x', 'format' = 'csv', 'seperator' = ';'"), '"sep"'),
        (build_select_from_table("'connector' = 'file', 'path' = 'x', 'format' = 'csv', 'idle_timout' = '1 s'"), '"idle_timeout"'),
        (build_select_from_table("'connector' = 'kafka', 'topik' = 'x', 'bootstrap.servers' = 'x'"), '"topic"'),
        (build_select_from_table("'connector' = 'kafka', 'topic' = 'x', 'maxOffsetPerTriger' = '1'"), '"maxOffsetsPerTrigger"'),
        (build_select_from_table("'connector' = 'generator', 'rats' = '3'"), '"rate"'),
        (build_select_from_table("'connector' = 'generator', 'on_idel' = 'follow'"), '"on_idle"'),
        (sink("'connector' = 'console', 'rowz' = '3'"), '"rows"'),
        (sink("'connector' = 'file', 'path' = 'x', 'format' = 'csv', 'separator' = ';'"), '"sep"'),
        ("CREATE TABLE d (z BIGINT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:x', 'dbtabel' = 'd');"
         "SELECT amount FROM orders JOIN d FOR SYSTEM_TIME AS OF now() ON z = amount", '"dbtable"'),
    ],
)  # fmt: skip
def test_misspelled_name_suggests_the_intended_one(sql, meant):
    with pytest.raises(WatersmeetError) as caught:
        plan_job(parse_job(DECLARED + sql))
    hints = [each.hint or "" for each in getattr(caught.value, "errors", [caught.value])]
    assert any("did you mean" in hint and meant in hint for hint in hints), str(caught.value)


def test_the_options_of_all_sources_are_those_that_are_read():
    fields = {field.name.removesuffix("_us") for field in dataclasses.fields(SourceFields)}
    assert set(OF_ALL_SOURCES) == fields | set(changes.OPTIONS)
