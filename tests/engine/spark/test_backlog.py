"""What was not read yet: Spark's reports of Kafka, less what the present batch reads."""

from __future__ import annotations

import json

from watersmeet.runtime.spark.sources.backlog import count_backlog_rows
from watersmeet.spec.model import Source

SOURCES = [Source("f", (), "file"), Source("k", (), "kafka"), Source("l", (), "kafka")]
OFFSETS = ['{"logOffset":3}', '{"x":{"0":5,"1":7}}', "-"]


def report(*newest):
    return json.dumps({"sources": [{"latestOffset": each} for each in newest]})


def test_backlog_counts_unread_rows():
    newest = {"x": {"0": 9, "1": 6, "2": 100}}
    told = report({"logOffset": 4}, newest, {"y": {"0": 3}})
    assert count_backlog_rows(told, SOURCES, OFFSETS) == {
        "k": 4
    }  # nothing is known of the third partition's begin
    assert count_backlog_rows(report(None, json.dumps(newest), None), SOURCES, OFFSETS) == {"k": 4}


def test_what_is_not_known_is_left_out():
    assert count_backlog_rows(None, SOURCES, OFFSETS) == {}
    assert count_backlog_rows(report(None, None, None), SOURCES, OFFSETS) == {}
    assert count_backlog_rows(report({"x": {"0": 9}}), SOURCES, OFFSETS) == {}
    assert count_backlog_rows("{}", SOURCES, OFFSETS) == {}
