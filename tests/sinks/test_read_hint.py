"""The command that a run names for reading a sink's output."""

from __future__ import annotations

import pytest

from watersmeet.sinks.read_hints import read_hint
from watersmeet.spec.model import Sink

KAFKA = {"topic": "delivered", "kafka.bootstrap.servers": "h:9092"}


@pytest.mark.parametrize(
    ("connector", "options", "hint"),
    [
        ("file", {"path": "out/delivered"}, 'spark.read.parquet("out/delivered")'),
        ("file", {"path": "out", "format": "JSON"}, 'spark.read.json("out")'),
        ("file", {"PATH": "my out", "format": "csv"}, 'spark.read.csv("my out", header=True)'),
        (
            "file",
            {"path": "o", "format": "csv", "header": "false", "sep": ";"},
            'spark.read.csv("o", sep=";")',
        ),
        ("file", {"path": "a[1]"}, 'spark.read.parquet("a\\\\[1\\\\]")'),
        ("file", {"path": "s3://b/out"}, 'spark.read.parquet("s3a://b/out")'),
        ("file", {"path": "o", "format": "json", "compression": "gzip"}, 'spark.read.json("o")'),
        ("delta", {"path": "tables/d"}, 'spark.read.format("delta").load("tables/d")'),
        ("iceberg", {"table": "shop.d"}, "SELECT * FROM shop.d"),
        ("postgres", {"url": "postgresql://db/x", "table": "shop.Orders"}, 'SELECT * FROM shop."Orders"'),
        ("kafka", KAFKA, "topic delivered at h:9092 (isolation.level=read_committed)"),
        ("kafka", KAFKA | {"delivery": "at-least-once"}, "topic delivered at h:9092"),
        ("console", {}, None),
        ("memory", {}, None),
    ],
)
def test_each_sink_names_what_reads_it(connector, options, hint):
    assert read_hint(Sink("out", connector, options)) == hint
