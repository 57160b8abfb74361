"""Sinks that Spark's own writers write, as a text declares them: what is taken, what is refused by name."""

from __future__ import annotations

import pytest

from watersmeet.errors import WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.spec.options.spark import format_of, own_options, table_of

JOB = """
CREATE TABLE orders (id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at)
    WITH ('connector' = 'file', 'path' = 'in', 'format' = 'json');
CREATE SINK out {columns} WITH ('connector' = 'spark'{options});
INSERT INTO out SELECT id, at FROM orders"""


def job(options: str, columns: str = ""):
    parsed = parse_job(JOB.format(options=f", {options}" if options else "", columns=columns))
    plan_job(parsed)
    return parsed.inserts[0].sink


def test_a_format_has_options_of_its_own():
    sink = job("'format' = 'cassandra', 'table' = 't', 'keyspace' = 'k'")
    assert (format_of(sink.options), table_of(sink.options)) == ("cassandra", "")
    assert own_options(sink.options) == {"table": "t", "keyspace": "k"}


def test_a_table_is_that_of_a_catalog():
    sink = job("'table' = 'lake.shop.orders', 'fanout-enabled' = 'true'")
    assert (format_of(sink.options), table_of(sink.options)) == ("", "lake.shop.orders")
    assert own_options(sink.options) == {"fanout-enabled": "true"}


@pytest.mark.parametrize(
    ("options", "columns", "says"),
    [
        ("", "", "is missing, which names Spark's data source"),
        ("'format' = 'Kafka', 'topic' = 'x'", "", "needs TYPE Kafka, which writes exactly once"),
        ("'format' = 'console'", "", "needs TYPE Console, which writes it directly"),
        ("'table' = 't', 'Mode' = 'overwrite'", "", "option 'Mode' cannot be set"),
        (
            "'table' = 't'",
            "(id BIGINT, at TIMESTAMP, PRIMARY KEY (id) NOT ENFORCED)",
            "do not replace each other",
        ),
    ],
)
def test_what_it_cannot_be_is_refused(options, columns, says):
    with pytest.raises(WatersmeetError, match=says):
        job(options, columns)
