"""What the benchmark over Kafka sends is what the files hold."""

from __future__ import annotations

import json
from datetime import datetime

from benchmarks.kafka import texts
from benchmarks.workloads import WORKLOADS, minute


def test_records_hold_the_rows_of_a_file():
    table = minute(WORKLOADS["1k"], "l", 3).slice(0, 50)
    rows = [json.loads(text) for text in texts(table)]
    assert [{**row, "t": datetime.fromisoformat(row["t"])} for row in rows] == table.to_pylist()
