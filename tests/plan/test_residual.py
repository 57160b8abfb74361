"""Residuals mean in DuckDB what they mean in Spark SQL."""

import duckdb
import pytest

from tests.plan.building import STAMPS, joined
from watersmeet.errors import PlanError

ROW = {
    "l.k": "'a_b'", "r.k": "'7'", "l.n": "7", "r.n": "2", "l.x": "2.7::DOUBLE", "r.x": "'NaN'::DOUBLE",
    "l.d": "DATE '2022-03-01'", "r.d": "DATE '2022-03-02'", "l.ts": "TIMESTAMP '2022-03-01 10:00:00'",
    "r.ts": "TIMESTAMP '2022-03-01 11:30:00'", "l.m": "1.50::DECIMAL(10,2)", "r.m": "NULL::DECIMAL(10,2)",
}  # fmt: skip


def residual(condition):
    return joined(f"l.ts = r.ts AND {condition}", STAMPS, STAMPS)


def value(condition):
    join = residual(condition)
    names = join.residual_columns
    row = ", ".join(f'{ROW[name]} AS "{name}"' for name in names)
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT ({join.residual_duckdb}) FROM (SELECT {row})").fetchone()[0]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("l.n / r.n = 3.5", True),
        ("l.n % r.n = 1", True),
        ("l.n div r.n = 3", True),
        ("CAST(l.x + r.n * 0 AS INT) = 2", True),
        ("l.m <> r.m", None),
        ("NOT (l.m <=> r.m)", True),
        ("l.k LIKE concat('a\\\\_', substring(r.k, 2), 'b')", True),
        ("l.k LIKE concat('%', r.k, '%')", False),
        ("(l.k = r.k OR l.n = r.k)", True),
        ("l.n + 0 <> r.k", False),
        ("concat(l.k, CAST(r.m AS STRING)) = 'a_b'", None),
        ("coalesce(r.m, l.m) = 1.5", True),
        ("greatest(l.n, r.n) = 7", True),
        ("if(l.n > r.n, l.k, r.k) = 'a_b'", True),
        ("l.ts + make_interval(0, 0, 0, 0, 1) < r.ts", True),
        ("datediff(r.d, l.d) * 1 <> 2", True),
        ("hour(l.ts) + hour(r.ts) = 21", True),
        ("(l.x < r.x OR l.n < r.n)", True),
        ("(l.n IN (r.n, 7))", True),
        ("CASE WHEN l.n > r.n THEN true ELSE false END", True),
        ("r.ts - INTERVAL '1' MONTH < l.ts", True),
        ("(l.ts >= TIMESTAMP '2022-03-01 09:00:00' OR r.n = 1)", True),
    ],
)
def test_value_of_a_residual(condition, expected):
    assert value(condition) is expected


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ("soundex(concat(l.k, r.k)) = 'x'", "SOUNDEX"),
        ("my_udf(l.k, r.k)", "my_udf"),
        ("xxhash64(l.k, r.k) = 1", "xxhash64"),
    ],
)
def test_what_tasks_do_not_compute_spark_does(condition, name):
    join = residual(condition)
    assert join.residual_duckdb is None
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
    "pmod(l.n, r.n) = 1",
    "power(l.n, r.n) > 10",
    "sqrt(abs(l.n) + abs(r.n)) > 3",
    "isnan(l.x) OR r.x > 0",
    "lpad(l.k, 3, r.k) = '007'",
    "rpad(l.k, 3, r.k) = 'Ab7'",
    "substring(l.k, -1) = substring(r.k, 0, 1)",
    "l.k RLIKE concat('^', left(r.k, 1))",
    "regexp_replace(l.k, '[ab]', r.k) = '7_7'",
    "regexp_extract(concat(l.k, r.k), '([a-z])', 1) = 'a'",
    "levenshtein(l.k, r.k) = 1",
    "md5(concat(l.k, r.k)) = 'x'",
    "sha2(concat(l.k, r.k), 256) > 'a'",
    "weekday(l.d) > weekday(r.d)",
    "trunc(l.d, 'MM') = trunc(r.d, 'MM')",
    "months_between(l.d, r.d) > 1",
    "date_format(l.ts, 'yyyy-MM-dd HH:mm:ss') < date_format(r.ts, 'yyyy-MM-dd HH:mm:ss')",
    "timestamp_seconds(l.n) > r.ts",
    "make_date(2022, abs(l.n), abs(r.n)) > DATE '2022-01-01'",
    "exp(l.n) > ln(abs(r.n))",
    "log10(l.x) > r.n",
    "CAST(l.x AS STRING) = CAST(r.x AS STRING)",
    "bround(l.x, 1) > r.n",
    "char_length(l.k) = octet_length(r.k)",
    "typeof(l.k) = r.k",
    "width_bucket(l.x, 0, 10, 5) = r.n",
    "array_contains(array(l.n, 1), r.n)",
    "hex(l.n) = r.k",
    "crc32(concat(l.k, r.k)) > 1",
    "positive(l.n) = negative(r.n)",
    "cbrt(l.x) > r.x",
    "sin(l.n) > cos(r.n)",
    "split(l.k, '_')[0] = r.k",
    "factorial(l.n + r.n) > 1",
]


@pytest.mark.parametrize("condition", BY_SPARK)
def test_functions_that_differ_outside_of_spark_are_left_to_it(condition):
    join = residual(f"NOT NOT ({condition})")
    assert join.residual_duckdb is None
    assert join.residual_why
