"""Rows as people are told of them: whatever they hold, none makes the telling fail."""

from __future__ import annotations

import json

import pyarrow as pa

from watersmeet.event_time import DAY_US
from watersmeet.runtime.tasks.results import rows_as_json


def test_values_outside_python_or_json_are_formatted():
    columns = {
        "t": pa.array([253_402_300_800_000_000, -(2**63)], pa.timestamp("us", "UTC")),
        "s": pa.array([b"\xff\xfe", b"a"]).view(pa.string()),
        "x": pa.array([float("nan"), float("-inf")]),
        "b": pa.array([b"\x00", None]),
    }
    rows = pa.record_batch({"t": columns["t"].view(pa.int64()), **{n: columns[n] for n in "sxb"}})
    schema = pa.schema([(name, column.type) for name, column in columns.items()])
    told = [json.loads(text, parse_constant=None) for text in rows_as_json(schema, rows)]
    assert told == [
        {"t": "+10000-01-01T00:00:00Z", "s": "\ufffd\ufffd", "x": "NaN", "b": "AA=="},
        {"t": "-290308-12-21T19:59:05.224192Z", "s": "a", "x": "-Infinity", "b": None},
    ]


def test_stored_date_is_formatted_as_a_date():
    rows = pa.record_batch({"d": pa.array([2_932_897 * DAY_US])})
    assert rows_as_json(pa.schema([("d", pa.date32())]), rows) == ['{"d": "+10000-01-01"}']
