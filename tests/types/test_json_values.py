"""Values as JSON has them: typed, exact, and nothing that JSON has not."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from watersmeet.types.json_values import has_native_value, rows_of

AT = datetime(2024, 3, 1, 10, 0, 0, 5)


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (pa.int64(), -(2**63), -(2**63)),
        (pa.float64(), 0.1, 0.1),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float32(), float("-inf"), "-Infinity"),
        (pa.float64(), float("inf"), "Infinity"),
        (pa.bool_(), False, False),
        (pa.string(), "1", "1"),
        (pa.decimal128(38, 10), Decimal("1E-10"), "0.0000000001"),
        (pa.date32(), date(1, 1, 1), "0001-01-01"),
        (pa.timestamp("us", "America/New_York"), AT.replace(tzinfo=UTC), "2024-03-01T10:00:00.000005Z"),
        (pa.timestamp("us"), AT, "2024-03-01T10:00:00.000005"),
        (pa.binary(), b"\x00\xff", "AP8="),
        (pa.list_(pa.float64()), [1.0, None, float("nan")], [1.0, None, "NaN"]),
        (pa.struct([("a", pa.decimal128(3, 1)), ("b", pa.int8())]), {"a": Decimal("1.5"), "b": None},
         {"a": "1.5", "b": None}),
        (pa.map_(pa.string(), pa.int32()), [("k", 1)], {"k": 1}),
        (pa.map_(pa.string(), pa.int32()), [], {}),
        (pa.map_(pa.int32(), pa.date32()), [(1, date(2024, 1, 1))], [[1, "2024-01-01"]]),
    ],
)  # fmt: skip
def test_each_type_has_one_form(kind, value, wanted):
    found = rows_of(pa.table([pa.array([value, None], kind)], names=["a"]))
    assert found == [[wanted], [None]]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_columns_may_share_a_name():
    assert rows_of(pa.table([pa.array([1]), pa.array(["x"])], names=["a", "a"])) == [[1, "x"]]


def test_what_arrow_has_not_is_text():
    kinds = ("interval year to month", "map<string,variant>", "map<int,string>", "time(6)")
    assert [kind for kind in kinds if not has_native_value(kind)] == list(kinds[:2])


def test_values_that_python_has_not():
    """Times beyond its years, texts that are no UTF-8: one such value must not stop a job."""
    ends = pa.array([2**63 - 1, -(2**63), -62_135_596_800_000_000], pa.int64())
    bytes_ = pa.array([b"\xffa"], pa.binary())
    texts = pa.StringArray.from_buffers(1, bytes_.buffers()[1], bytes_.buffers()[2])
    for column, wanted in (
        (
            ends.cast(pa.timestamp("us", "America/New_York")),
            ["+294247-01-10T04:00:54.775807Z", "-290308-12-21T19:59:05.224192Z", "0001-01-01T00:00:00Z"],
        ),
        (
            pa.array([2**31 - 1, -(2**31), -719_163], pa.int32()).cast(pa.date32()),
            ["+5881580-07-11", "-5877641-06-23", "0000-12-31"],
        ),
        (texts, ["\ufffda"]),
    ):
        assert [row[0] for row in rows_of(pa.table({"x": column}))] == wanted
