"""Groups and their aggregates: NULLs, NaN, zeros, types, order."""

import random
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import EngineError
from watersmeet.kernel.aggregate import (
    AggregateColumn,
    aggregate_groups,
    aggregate_sql,
    group_numbers,
    numbers_by_sql,
    plain_ranks,
)

NAN = float("nan")


def column(name, rows, function, *arguments, distinct=False, where=None):
    types = [rows.schema.field(argument).type for argument in arguments]
    found = aggregate_sql(function, arguments, types, distinct, where)
    assert found is not None, function
    return AggregateColumn(name, *found)


def one(rows, function, *arguments, **more):
    (row,) = aggregate_groups(rows, [], [column("a", rows, function, *arguments, **more)]).to_pylist()
    return row["a"]


def test_keys_are_equal_as_spark_sees_them():
    rows = pa.table({"k": [0.0, NAN, -0.0, None, NAN, None, 1.0], "v": range(7)})
    found = aggregate_groups(rows, ["k"], [column("n", rows, "count")])
    assert str(found.to_pydict()) == "{'k': [0.0, nan, None, 1.0], 'n': [2, 2, 2, 1]}"


def test_numbers_of_groups():
    rows = pa.record_batch(
        {"a": [0.0, NAN, -0.0, None, NAN, None, 0.0], "b": ["x", "y", "x", None, "y", None, "y"]}
    )
    numbers = group_numbers(rows, ["a", "b"]).tolist()
    assert [numbers.index(number) for number in numbers] == [0, 1, 0, 3, 1, 3, 6]
    assert group_numbers(rows, []).tolist() == [0] * 7


DRAWN = {
    pa.string(): ["", "a", "a\0", "Z", "ä", "\U0001f600", "\uffff"],
    pa.large_string(): ["", "b", "ab"],
    pa.binary(): [b"", b"\xff", b"\x00a", b"a"],
    pa.decimal128(38, 10): [Decimal("-1.5"), Decimal(0), Decimal("1E+27"), Decimal("1E-10")],
    pa.int8(): [-128, 0, 127],
    pa.int64(): [-(2**63), -1, 0, 1, 2**63 - 1],
    pa.float32(): [0.0, -0.0, NAN, 0.1, float("inf"), -float("inf")],
    pa.float64(): [0.0, -0.0, NAN, -NAN, 5e-324, float("inf"), -1e308],
    pa.bool_(): [True, False],
    pa.date32(): [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    pa.timestamp("us"): [datetime(1969, 12, 31, 23), datetime(1970, 1, 1), datetime(2024, 2, 29)],
    pa.timestamp("us", "UTC"): [datetime(1900, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)],
}


def test_numbers_are_those_of_the_sql_engine(seed):
    """So that the order in which equal ones are told apart does not hang on how many rows there are."""
    draw = random.Random(seed)
    for count in [*range(1, 40), 3000]:
        kinds = draw.choices(list(DRAWN), k=draw.randint(1, 6))
        columns = [pa.array(draw.choices([*DRAWN[kind], None], k=count), kind) for kind in kinds]
        rows = pa.record_batch(columns, names=[f"c{n}" for n in range(len(kinds))])
        first = draw.randrange(count)
        rows = rows.slice(first, draw.randint(1, count - first))
        plain = plain_ranks(rows.columns)
        by_sql = numbers_by_sql(rows, rows.schema.names)
        assert plain is not None
        assert plain.tolist() == (by_sql - 1).tolist(), kinds


def test_numbers_of_more_columns_than_one_number_holds():
    wide = pa.record_batch({f"c{n}": np.random.default_rng(n).permutation(5000) for n in range(7)})
    both = pa.concat_batches([wide, wide])
    plain = plain_ranks(both.columns)
    assert plain.tolist() == (numbers_by_sql(both, both.schema.names) - 1).tolist()
    assert plain.max() == 4999


def test_large_inputs_are_grouped_by_the_sql_engine():
    rows = pa.record_batch({"k": [2, 1, None, 2] * 20_000})
    assert np.unique(group_numbers(rows, ["k"])).tolist() == [1, 2, 3]
    assert group_numbers(rows.slice(0, 4), ["k"]).tolist() == [1, 0, 2, 1]


def test_no_rows_no_groups():
    rows = pa.table({"k": pa.array([], pa.string())})
    assert aggregate_groups(rows, [], [column("n", rows, "count")]).num_rows == 0
    assert aggregate_groups(rows, ["k"], []).num_rows == 0


def test_counts():
    rows = pa.table({"a": [1, None, 1, 2], "b": [1, 1, 1, None], "c": [True, None, False, True]})
    assert one(rows, "count") == 4
    assert one(rows, "count", "a") == 3
    assert one(rows, "count", "a", "b") == 2
    assert one(rows, "count", "a", distinct=True) == 2
    assert one(rows, "count", "a", "b", distinct=True) == 1
    assert one(rows, "count_if", "c") == 2
    assert one(rows, "count", "a", where="c") == 2


def test_value_at_the_least_and_greatest():
    rows = pa.table({"v": [1, 7, None, 3], "t": [5, None, 9, 5]})
    assert one(rows, "max_by", "v", "t") is None
    assert one(rows, "min_by", "v", "t") == 1
    ties = pa.table({"v": [3, 1, 2], "t": [5, 5, 5]})
    assert (one(ties, "min_by", "v", "t"), one(ties, "max_by", "v", "t")) == (1, 3)


def test_sums_have_sparks_types_and_limits():
    rows = pa.table(
        {"i": pa.array([1, 2], pa.int32()), "m": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2))}
    )
    found = aggregate_groups(rows, [], [column("i", rows, "sum", "i"), column("m", rows, "sum", "m")])
    assert found.schema.types == [pa.int64(), pa.decimal128(20, 2)]
    assert found.to_pylist() == [{"i": 3, "m": Decimal("1.50")}]
    great = pa.table({"i": [2**63 - 1, 1]})
    with pytest.raises(EngineError, match="an aggregate failed"):
        one(great, "sum", "i")


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        (["1.00", "2.00"], "1.500000"),
        (["0.01", "0.01", "0.00"], "0.006667"),
        (["-0.01", "-0.01", "0.00"], "-0.006667"),
        (["99999999.99"] * 3, "99999999.990000"),
        ([None], None),
    ],
)
def test_means_of_decimals_are_exact(values, mean):
    rows = pa.table({"m": pa.array([v and Decimal(v) for v in values], pa.decimal128(10, 2))})
    found = aggregate_groups(rows, [], [column("a", rows, "avg", "m")])
    assert found.schema.types == [pa.decimal128(14, 6)]
    assert found.to_pylist() == [{"a": mean and Decimal(mean)}]


def test_what_is_not_the_same_is_left_to_spark():
    assert aggregate_sql("percentile_approx", ["a"], [pa.int64()], False, None) is None
    assert aggregate_sql("avg", ["a"], [pa.decimal128(30, 2)], False, None) is None
    assert aggregate_sql("max", ["a"], [pa.list_(pa.int64())], False, None) is None
    assert aggregate_sql("stddev_samp", ["a"], [pa.float64()], True, None) is None


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None, 1], pa.timestamp("us", "UTC")),
        pa.array([1, None, 1], pa.timestamp("us")),
        pa.array([1, None, 1], pa.date32()),
        pa.array([True, None, True]),
        pa.array([b"x", None, b"x"]),
        pa.array(["x", None, "x"]),
        pa.array([Decimal("1.5"), None, Decimal("1.5")], pa.decimal128(38, 10)),
        pa.array([1.5, None, 1.5], pa.float32()),
        pa.array([[1], None, [1]]),
        pa.array([{"a": 1}, None, {"a": 1}]),
    ],
    ids=lambda values: str(values.type),
)
def test_keys_and_values_keep_their_types(values):
    rows = pa.table({"k": values, "v": values})
    calls = [column("n", rows, "count", "v")]
    if aggregate_sql("max", ["v"], [values.type], False, None) is not None:
        calls += [column("m", rows, "max", "v"), column("b", rows, "min_by", "v", "v")]
    found = aggregate_groups(rows, ["k"], calls)
    assert found.column("n").to_pylist() == [2, 0]
    for name in set(found.column_names) - {"n"}:
        assert found.schema.field(name).type == values.type
        assert found.column(name).to_pylist() == [values[0].as_py(), None]
    numbers = group_numbers(pa.record_batch({"k": values}), ["k"]).tolist()
    assert [numbers.index(number) for number in numbers] == [0, 1, 0]
