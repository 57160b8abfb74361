"""Aggregates from partial ones are those of all rows: for random rows, cut and combined at random."""

import datetime as dt
import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from watersmeet.errors import EngineError
from watersmeet.kernel.aggregate import (
    ROWS,
    AggregateCall,
    AggregateColumn,
    aggregate_groups,
    aggregate_sql,
    partials_of,
)
from watersmeet.plan.nodes.aggregate import _FROM_ROWS, SAME_IN_BOTH

INF, NAN = float("inf"), float("nan")
UTC = dt.UTC
VALUES = {
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.int64(): [-(2**45), -3, 0, 1, 2, 2**45],
    pa.float32(): [-1.5, -0.0, 0.0, 0.25, 3.0],
    pa.float64(): [-1.5, -0.0, 0.0, 0.25, 2.0**40],
    pa.decimal128(10, 2): [Decimal(text) for text in ("-0.01", "0.00", "0.01", "99999999.99")],
    pa.decimal128(38, 4): [Decimal(text) for text in ("-1.0001", "0.0000", "2.5000")],
    pa.bool_(): [True, False],
    pa.string(): ["", "a", "ä", "b"],
    pa.binary(): [b"", b"a", b"\xff"],
    pa.date32(): [dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    pa.timestamp("us"): [dt.datetime(1970, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)],
    pa.timestamp("us", "UTC"): [dt.datetime(1970, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 1, tzinfo=UTC)],
}
"""Sums of these are exact, in whatever order."""
FUNCTIONS = sorted(SAME_IN_BOTH - _FROM_ROWS - {"min_by", "max_by", "count_if"})


def asked(schema):
    """Every call that there can be over the columns v0, v1, …, with and without FILTER."""
    calls = []
    for column in [name for name in schema.names if name.startswith("v")]:
        calls += [(function, (column,), False) for function in FUNCTIONS]
        calls += [(f, (column, random.choice(schema.names[2:])), False) for f in ("min_by", "max_by")]
        calls += [("min", (column,), True), ("any_value", (column,), True)]
    calls += [("count", (), False), ("count", ("v0", "v1"), False), ("count_if", ("only",), False)]
    found = []
    for number, (function, columns, distinct) in enumerate(calls):
        types = tuple(schema.field(column).type for column in columns)
        chosen = "only" if number % 3 == 0 and function != "count_if" else None
        if aggregate_sql(function, columns, types, distinct, chosen) is not None:
            found.append(AggregateCall(f"a{number}", function, columns, types, distinct, chosen))
    return found


def whole(calls):
    return [
        AggregateColumn(c.name, *aggregate_sql(c.function, c.columns, c.types, c.distinct, c.filter))
        for c in calls
    ]


def from_parts(rows, keys, partials, most):
    """The rows in random parts, combined in random groups until one is left."""
    cuts = sorted(random.choices(range(rows.num_rows + 1), k=random.randint(0, most)))
    parts = [
        aggregate_groups(rows.slice(low, high - low), keys, partials.make)
        for low, high in zip([0, *cuts], [*cuts, rows.num_rows], strict=True)
    ]
    while len(parts) > 1:
        random.shuffle(parts)
        number = random.randint(2, len(parts))
        parts = [aggregate_groups(pa.concat_tables(parts[:number]), keys, partials.combine), *parts[number:]]
    return parts[0], aggregate_groups(parts[0], keys, partials.finish)


def shown(table, keys):
    """Rows in an order of their own; zeros, and NaNs, are equal."""
    rows = [{n: v + 0.0 if isinstance(v, float) else v for n, v in row.items()} for row in table.to_pylist()]
    return sorted((repr(row) for row in rows), key=str)


def random_rows(count):
    columns = {"k": random.choices([0.0, -0.0, NAN, None, 1.0], k=count)}
    columns["only"] = pa.array(random.choices([True, False, None], k=count), pa.bool_())
    for number, (kind, values) in enumerate(VALUES.items()):
        nulls = [None] * random.choice((0, 1, 1, 20))
        columns[f"v{number}"] = pa.array(random.choices([*values, *nulls], k=count), kind)
    return pa.table(columns)


def test_combined_parts_give_the_aggregates_of_all_rows(seed):
    random.seed(seed)
    for _ in range(at_effort(quick=3, full=6)):
        rows = random_rows(random.randint(1, 60))
        calls = asked(rows.schema)
        partials = partials_of(calls)
        keys = random.choice((["k"], ["k", "v7"], []))
        kept, found = from_parts(rows, keys, partials, 8)
        expected = aggregate_groups(rows, keys, whole(calls))
        assert found.schema == expected.schema
        assert shown(found, keys) == shown(expected, keys)
        assert sum(kept.column(ROWS).to_pylist()) == rows.num_rows
        assert kept.num_rows == expected.num_rows


def test_every_function_that_tasks_compute_is_combined_or_needs_rows():
    """What EXPLAIN says beforehand, and what tasks do."""
    kinds = {"count_if": pa.bool_(), "bool_and": pa.bool_(), "bool_or": pa.bool_()}
    for function in SAME_IN_BOTH:
        columns = ("v", "v") if function.endswith("_by") else ("v",)
        call = AggregateCall("a", function, columns, (kinds.get(function, pa.int64()),) * len(columns))
        assert aggregate_sql(function, columns, call.types, False, None) is not None
        assert (partials_of([call]) is None) == (function in _FROM_ROWS), function


@pytest.mark.parametrize("function", ["count", "sum", "avg"])
def test_different_values_alone_need_rows(function):
    assert partials_of([AggregateCall("a", function, ("v",), (pa.int64(),), distinct=True)]) is None


def test_what_is_left_to_spark_needs_rows():
    assert partials_of([AggregateCall("a", "avg", ("v",), (pa.decimal128(30, 2),))]) is None
    assert partials_of([AggregateCall("a", "max", ("v",), (pa.list_(pa.int64()),))]) is None


def test_floating_sums_and_means_are_equal_but_for_their_last_digits(seed):
    random.seed(seed)
    rows = pa.table({"v": [random.uniform(-1, 1) * 10 ** random.randint(-5, 5) for _ in range(500)]})
    calls = [AggregateCall(name, name, ("v",), (pa.float64(),)) for name in ("sum", "avg")]
    _, found = from_parts(rows, [], partials_of(calls), 30)
    for name in ("sum", "avg"):
        size = sum(map(abs, rows.column("v").to_pylist()))
        assert math.isclose(
            found.column(name)[0].as_py(), aggregate_groups(rows, [], whole(calls)).column(name)[0].as_py(),
            abs_tol=size * 1e-13, rel_tol=0,
        )  # fmt: skip


@pytest.mark.parametrize("values", [[INF, 1.0], [INF, -INF], [NAN, 1.0, None], [None]])
def test_what_is_no_number(values):
    rows = pa.table({"v": pa.array(values, pa.float64())})
    calls = [AggregateCall(name, name, ("v",), (pa.float64(),)) for name in ("sum", "avg", "min", "max")]
    _, found = from_parts(rows, [], partials_of(calls), 3)
    assert repr(found.to_pylist()) == repr(aggregate_groups(rows, [], whole(calls)).to_pylist())


@pytest.mark.parametrize(
    ("kind", "great"), [(pa.int64(), 2**63 - 1), (pa.decimal128(28, 2), Decimal("9" * 26 + ".99"))]
)
def test_only_a_whole_sum_can_be_too_great(kind, great):
    """Partial ones are wide enough."""
    calls = [AggregateCall("s", "sum", ("v",), (kind,))]
    partials = partials_of(calls)

    def of(*parts):
        made = [aggregate_groups(pa.table({"v": pa.array(part, kind)}), [], partials.make) for part in parts]
        kept = aggregate_groups(pa.concat_tables(made), [], partials.combine)
        return aggregate_groups(kept, [], partials.finish).column("s")[0].as_py()

    assert of([great, great], [-great], [-great]) == 0
    assert of([great] * 5, [-great] * 4) == great
    if kind == pa.int64():
        with pytest.raises(EngineError, match="an aggregate failed"):
            of([great], [1])


def test_equal_parts_are_kept_once():
    calls = [
        AggregateCall("a", "avg", ("v",), (pa.int64(),)),
        AggregateCall("n", "count", ("v",), (pa.int64(),)),
        AggregateCall("rows", "count", (), ()),
        AggregateCall("m", "max_by", ("v", "t"), (pa.int64(), pa.int64())),
        AggregateCall("t", "max_by", ("w", "t"), (pa.int64(), pa.int64())),
    ]
    assert len(partials_of(calls).make) == len([ROWS, "sum", "count", "t of max", "v of max", "w of max"])
