"""Aggregates of groups by the kernel and by Spark's own groupBy, on values chosen to tell them apart.

Sums and means of floats are compared up to rounding: the order of rows is not the same.
"""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from watersmeet.kernel.aggregate import AggregateColumn, aggregate_groups, aggregate_sql

NAN, INF = float("nan"), float("inf")


def decimals(*values):
    return [None if value is None else Decimal(value) for value in values]


COLUMNS = {
    "i": (pa.int32(), [7, -7, 0, 2, None, 2, 2147483647, 5]),
    "n": (pa.int64(), [1, 2**62, -(2**62), None, 3, 3, -1, 0]),
    "b": (pa.int8(), [127, 127, -128, 1, None, 1, 0, 6]),
    "x": (pa.float64(), [2.5, NAN, 0.0, -0.0, None, -2.5, 1e100, 4.0]),
    "f": (pa.float32(), [1.5, 2.5, -0.0, 0.0, None, 2.5, -INF, 8.0]),
    "m": (pa.decimal128(10, 2), decimals("1.5", "0.01", "0.01", "-9.9", None, "1.5", "99999999.99", "-0.05")),
    "w": (pa.decimal128(18, 4), decimals("0.0001", "0.0002", "-0.0001", "0.0002", None, "12345678901234.5678",
          "-1", "0.0001")),
    "k": (pa.string(), ["a", "B", "é", "", None, "b", "a", "z"]),
    "c": (pa.bool_(), [True, False, None, True, None, True, True, None]),
    "d": (pa.date32(), [date(2022, 3, 1), date(1969, 12, 31), None, date(2022, 3, 1)] * 2),
    "t": (pa.timestamp("us"), [datetime(2022, 3, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 5), None,
          datetime(2022, 3, 1, 2)] * 2),
}  # fmt: skip
GROUPS = [*"aaaaaaaa", *"bbcc", None, *"cde", *"fggg", None, None, *"gh", *"ijklmno", "p"]
"""Of the values, four times over."""
CALLS: list[tuple[str, list[str], bool]] = [
    ("count", [], False),
    *(("count", [c], distinct) for c in COLUMNS for distinct in (False, True)),
    ("count", ["i", "k"], False),
    ("count", ["x", "k"], True),
    *((f, [c], False) for f in ("sum", "avg") for c in ("i", "b", "x", "f", "m", "w")),
    *((f, [c], True) for f in ("sum", "avg") for c in ("i", "m", "x")),
    *((f, [c], False) for f in ("min", "max") for c in COLUMNS),
    *((f, [a, b], False) for f in ("min_by", "max_by") for a, b in ("kn", "xm", "ik", "ti")),
    *((f, [c], False) for f in ("stddev_samp", "stddev_pop") for c in ("i", "b", "x", "f")),
    *((f, [c], False) for f in ("var_samp", "var_pop") for c in ("i", "b", "x", "f")),
    *((f, ["c"], False) for f in ("bool_and", "bool_or", "count_if")),
    *((f, [c], False) for f in ("bit_and", "bit_or", "bit_xor") for c in ("i", "n", "b")),
]  # fmt: skip


def same(ours, theirs):
    if isinstance(ours, float) and isinstance(theirs, float):
        return (
            ours == theirs or (ours != ours and theirs != theirs) or math.isclose(ours, theirs, rel_tol=1e-12)
        )
    return ours == theirs


@pytest.fixture
def interpreted_spark(spark):
    """Spark without generated code: that of so many aggregates takes long to compile."""
    names = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in names.items():
        spark.conf.set(name, value)
    yield spark
    for name in names:
        spark.conf.unset(name)


@pytest.mark.spark
@pytest.mark.parametrize(
    "calls", [[c for c in CALLS if not c[2]], [c for c in CALLS if c[2]]], ids=["all", "distinct"]
)
def test_aggregates_are_sparks(interpreted_spark, calls):
    table = pa.table(
        [pa.array(GROUPS), *(pa.array(values * 4, kind) for kind, values in COLUMNS.values())],
        names=["g", *COLUMNS],
    )
    ours = []
    for number, (function, columns, distinct) in enumerate(calls):
        found = aggregate_sql(
            function, columns, [table.schema.field(c).type for c in columns], distinct, None
        )
        assert found is not None, (function, columns)
        ours.append(AggregateColumn(f"a{number}", *found))
    by_us = {row["g"]: row for row in aggregate_groups(table, ["g"], ours).to_pylist()}
    texts = [
        f"{function}({'DISTINCT ' if distinct else ''}{', '.join(columns) or '*'}) AS a{number}"
        for number, (function, columns, distinct) in enumerate(calls)
    ]
    frame = interpreted_spark.createDataFrame(table)
    frame.createOrReplaceTempView("aggregated_rows")
    found = interpreted_spark.sql(f"SELECT g, {', '.join(texts)} FROM aggregated_rows GROUP BY g").toArrow()
    by_spark = {row["g"]: row for row in found.to_pylist()}
    assert by_us.keys() == by_spark.keys()
    kinds = dict(zip(found.schema.names, found.schema.types, strict=True))
    for number, (function, columns, distinct) in enumerate(calls):
        assert ours[number].type == without_zone(kinds[f"a{number}"]), (function, columns)
        for group in by_us:
            a, b = by_us[group][f"a{number}"], by_spark[group][f"a{number}"]
            b = b.replace(tzinfo=None) if isinstance(b, datetime) else b
            if function in ("min_by", "max_by") and ties(table, group, columns):
                continue  # of several values Spark takes any
            assert same(a, b), (function, columns, distinct, group, a, b)


def without_zone(kind):
    return pa.timestamp("us") if pa.types.is_timestamp(kind) else kind


def ties(table, group, columns):
    pairs = zip(table.column(columns[1]).to_pylist(), GROUPS, strict=True)
    by = [value for value, own in pairs if own == group and value is not None]
    return bool(by) and (by.count(min(by)) > 1 or by.count(max(by)) > 1)
