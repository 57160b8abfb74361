"""What is left of a condition: tasks compute what is on their list, Spark the rest."""

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.plan.building import STAMPS, plan_two_way_join
from watersmeet.errors import EngineError, PlanError
from watersmeet.expressions.evaluate import values
from watersmeet.expressions.trees import tree_of

ROW = pa.table(
    {
        "l.k": pa.array(["a_b"]), "r.k": pa.array(["7"]),
        "l.n": pa.array([7], pa.int32()), "r.n": pa.array([2], pa.int32()),
        "l.x": pa.array([2.7]), "r.x": pa.array([float("nan")]),
        "l.d": pa.array([date(2022, 3, 1)]), "r.d": pa.array([date(2022, 3, 2)]),
        "l.ts": pa.array([datetime(2022, 3, 1, 10)], pa.timestamp("us")),
        "r.ts": pa.array([datetime(2022, 3, 1, 11, 30)], pa.timestamp("us")),
        "l.m": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
        "r.m": pa.array([None], pa.decimal128(10, 2)),
    }
)  # fmt: skip


def residual(condition):
    return plan_two_way_join(f"l.ts = r.ts AND {condition}", STAMPS, STAMPS)


def value(condition):
    join = residual(condition)
    assert join.residual_exact is not None, join.residual_why
    return values(tree_of(join.residual_exact), ROW, condition)[0].as_py()


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ("l.n / (r.n - 2) > 1", "DIVIDE_BY_ZERO"),
        ("l.n % (r.n - 2) > 1", "REMAINDER_BY_ZERO"),
        ("l.n * 2147483647 > r.n", "ARITHMETIC_OVERFLOW"),
        ("CAST(l.n * 100 AS TINYINT) > r.n", "CAST_OVERFLOW"),
    ],
)
def test_where_spark_raises_the_job_stops_with_the_values(condition, name):
    with pytest.raises(EngineError, match=rf"\[{name}\].*l\.n = 7, r\.n = 2") as caught:
        value(condition)
    assert caught.value.code == "condition-failed"


def test_a_guard_keeps_the_rest_from_failing():
    assert value("(r.n = 2 OR l.n / (r.n - 2) > 1)") is True
    assert value("(r.n <> 2 AND l.n / (r.n - 2) > 1) IS TRUE") is False
    assert value("CASE WHEN r.n = 2 THEN false ELSE l.n / (r.n - 2) > 1 END") is False
    assert value("coalesce(r.n, l.n div (r.n - 2)) = 2") is True


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("l.n / r.n > 3.4e0", True),
        ("l.n % r.n = 1", True),
        ("l.n div r.n = 3", True),
        ("CAST(l.x + r.n * 0 AS INT) = 2", True),
        ("l.m <> r.m", None),
        ("NOT (l.m <=> r.m)", True),
        ("coalesce(r.m, l.m) = 1.5", True),
        ("greatest(l.n, r.n) = 7", True),
        ("if(l.n > r.n, l.k, r.k) = 'a_b'", True),
        ("datediff(r.d, l.d) * 1 <> 2", True),
        ("hour(l.ts) + hour(r.ts) = 21", True),
        ("(l.x < r.x OR l.n < r.n)", True),
        ("(l.n IN (r.n, 7))", True),
        ("CASE WHEN l.n > r.n THEN true ELSE false END", True),
        ("(l.ts >= TIMESTAMP '2022-03-01 09:00:00' OR r.n = 1)", True),
    ],
)
def test_value_of_a_residual(condition, expected):
    assert value(condition) is expected


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ("sentences(concat(l.k, r.k)) IS NULL", "sentences"),
        ("my_udf(l.k, r.k)", "my_udf"),
        ("xpath_int(l.k, r.k) = 1", "xpath_int"),
    ],
)
def test_what_tasks_do_not_compute_spark_does(condition, name):
    join = residual(condition)
    assert join.residual_exact is None
    assert name.lower() in join.residual_why[0].lower()


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ("rand() < l.x + r.x", "RAND"),
        ("l.ts < current_timestamp() - (r.ts - l.ts)", "CURRENT_TIMESTAMP"),
        ("l.n IN (SELECT 1)", "subquery"),
    ],
)
def test_what_has_another_value_each_time_is_refused(condition, name):
    with pytest.raises(PlanError, match=name):
        residual(f"(l.n = r.n OR {condition})")


BY_SPARK = [
    "l.k RLIKE concat('^', left(r.k, 1))",
    "regexp_replace(l.k, '[ab]', r.k) = '7_7'",
    "date_format(l.ts, 'yyyy-MM-dd VV') < date_format(r.ts, 'yyyy-MM-dd VV')",
    "CAST(l.x AS STRING) = CAST(r.x AS STRING)",
    "bround(l.x, 1) > r.n",
    "cbrt(l.x) > r.x",
    "sin(l.n) > cos(r.n)",
]


@pytest.mark.parametrize("condition", BY_SPARK)
def test_functions_that_differ_outside_of_spark_are_left_to_it(condition):
    join = residual(f"({condition}) IS TRUE")
    assert join.residual_exact is None
    assert join.residual_why
