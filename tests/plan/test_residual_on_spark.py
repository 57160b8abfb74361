"""Residuals by DuckDB against the same conditions by Spark, on values chosen to tell them apart."""

import itertools

import duckdb
import pytest

from tests.plan.building import STAMPS, joined
from watersmeet.plan.conjuncts import text_of

VALUES = {
    "k": ["a_b", "a%b", "Ab", "", "7", " 7", "é", None],
    "n": [7, -7, 0, 2, None],
    "x": [2.7, -2.7, 0.0, -0.0, float("nan"), float("inf"), None],
    "d": ["2022-03-01", "2021-12-31", "1969-12-31", None],
    "ts": ["2022-03-01 23:59:59.999999", "1969-12-31 23:59:59.5", "2022-01-31 00:00:00", None],
    "m": ["1.50", "-0.01", "99999999.99", None],
}
TYPES = {"k": "STRING", "n": "INT", "x": "DOUBLE", "d": "DATE", "ts": "TIMESTAMP", "m": "DECIMAL(10,2)"}

CONDITIONS = [
    "l.n / r.n > 1",
    "l.n % r.n = r.n - 1",
    "l.n div r.n <> 3",
    "CAST(l.n / 2 + r.n / 2 AS INT) = 4",
    "CAST(l.m AS BIGINT) < r.n",
    "l.x < r.x",
    "l.x <> r.x",
    "NOT (l.x <=> r.x)",
    "l.k < r.k",
    "l.k LIKE concat(substring(r.k, 1, 1), '\\\\_b')",
    "l.k LIKE concat('%', r.k, '%')",
    "concat(l.k, r.k) = 'a_ba_b'",
    "concat_ws('-', l.k, r.k) = '7'",
    "upper(l.k) <> lower(r.k)",
    "length(l.k) + length(trim(r.k)) > 3",
    "coalesce(l.k, r.k, 'x') = 'x'",
    "greatest(l.n, r.n) = 7",
    "least(l.x, r.x) < 0",
    "abs(l.n - r.n) < 8",
    "l.d < r.ts",
    "l.ts > r.d",
    "datediff(l.d, r.d) * 1 > 59",
    "l.d + INTERVAL '1' MONTH >= r.d",
    "l.ts - INTERVAL '1' MONTH <> r.ts",
    "add_months(l.d, 1) > r.d",
    "year(l.d) = year(r.ts) + 1 OR l.n IS NULL",
    "dayofweek(l.d) + dayofweek(r.d) > 6",
    "hour(l.ts) + minute(r.ts) > 60",
    "last_day(l.d) <> r.d",
    "l.m * r.m > 1",
    "l.m + r.n = 8.5",
    "l.m <> r.m",
    "l.n IN (r.n, 2)",
    "l.n NOT IN (r.n, 2)",
    "l.n NOT BETWEEN r.n AND 3",
    "CASE WHEN l.n > r.n THEN true WHEN l.n = r.n THEN false END",
    "(l.n IS NULL OR r.n > 0)",
    "(l.k = r.n OR l.k = r.k)",
    "round(l.m * r.n, 1) > 3",
    "floor(l.x + r.n) = 4",
    "nullif(l.n, r.n) IS NULL",
    "instr(l.k, r.k) > 1",
    "if(l.n > r.n, l.k, r.k) = '7'",
    "l.k LIKE 'a\\\\%b' OR r.k = CAST(dayofweek(l.d) AS STRING)",
    "mod(l.n, r.n) = 1",
    "sign(l.n) = sign(r.n)",
    "ceil(l.x + r.n) = 5",
    "round(l.x * r.n) = 5",
    "nvl(l.n, r.n) = 2",
    "nvl2(l.n, r.n, 0) = 2",
    "isnull(l.n) OR isnotnull(r.n)",
    "replace(l.k, r.k, 'z') = 'z'",
    "reverse(l.k) = r.k",
    "repeat(l.k, r.n) = '77'",
    "ltrim(l.k) = rtrim(r.k)",
    "left(l.k, 1) = right(r.k, 1)",
    "substr(l.k, 2, 1) = substr(r.k, 2)",
    "initcap(l.k) = r.k",
    "locate(l.k, r.k) = 1",
    "position(l.k IN r.k) = 1",
    "startswith(l.k, r.k)",
    "endswith(l.k, r.k)",
    "contains(l.k, r.k)",
    "split_part(l.k, '_', 1) = left(r.k, 1)",
    "translate(l.k, 'ab', r.k) = '7'",
    "ascii(l.k) = ascii(r.k)",
    "day(l.d) = day(r.d)",
    "month(l.d) = month(r.ts)",
    "quarter(l.d) = quarter(r.d)",
    "weekofyear(l.d) = weekofyear(r.d)",
    "dayofyear(l.d) > dayofyear(r.d)",
    "second(l.ts) > minute(r.ts)",
    "date_trunc('MONTH', l.ts) = date_trunc('MONTH', r.ts)",
    "date_trunc('HOUR', l.ts) <> r.ts",
    "to_date(l.ts) <> r.d",
    "date_add(l.d, r.n) > r.d",
    "date_sub(l.d, r.n) > r.d",
    "unix_seconds(l.ts) > unix_millis(r.ts)",
    "unix_micros(l.ts) > unix_micros(r.ts)",
    "timestampdiff(HOUR, l.ts, r.ts) > 1",
    "l.ts - r.ts > INTERVAL '1' HOUR",
    "l.d - r.d > INTERVAL '1' DAY",
    "make_interval(0, 0, 0, 0, 1) + l.ts < r.ts",
    "l.n & r.n = 2",
    "l.n | r.n = 7",
    "l.n ^ r.n = 5",
    "try_cast(l.k AS INT) = r.n",
    "CAST(l.k AS INT) > r.n",
    "CAST(l.n AS STRING) = r.k",
    "CAST(l.m AS STRING) = CAST(r.m AS STRING)",
    "CAST(l.ts AS STRING) < CAST(r.ts AS STRING)",
    "CAST(l.d AS STRING) < CAST(r.d AS STRING)",
    "CAST(l.ts AS DATE) = r.d",
    "CAST(l.n AS BOOLEAN) = (r.n > 0)",
    "decode(l.n, 7, r.n, 0) = 2",
    "l.k ILIKE r.k",
    "l.k || r.k = 'a_b7'",
    "array(l.n, r.n)[0] = 7",
    "size(array(l.n, r.n)) = 2",
    "TIMESTAMP '2022-03-01 09:00:00' < l.ts OR l.d < r.d",
    "l.k RLIKE '^a.b$' OR r.k RLIKE '[0-9]'",
]


PLANS = [(c, joined(f"l.ts = r.ts AND NOT NOT ({c})", STAMPS, STAMPS)) for c in CONDITIONS]
BY_COLUMNS = [
    [(c, join) for c, join in PLANS if set(join.residual_columns) == columns]
    for columns in dict.fromkeys(frozenset(join.residual_columns) for _, join in PLANS)
]


@pytest.fixture(scope="module")
def lenient(spark):
    """Where ANSI mode would fail a job, ours goes on."""
    spark.conf.set("spark.sql.ansi.enabled", "false")
    yield spark
    spark.conf.unset("spark.sql.ansi.enabled")


def pairs(spark, names):
    """All pairs of values of the columns named."""
    kinds = [name.split(".")[1] for name in names]
    rows = list(itertools.product(*(VALUES[kind] for kind in kinds)))
    raw = ", ".join(
        f"`{name}` {TYPES[kind] if kind in ('k', 'n', 'x') else 'STRING'}"
        for name, kind in zip(names, kinds, strict=True)
    )
    return spark.createDataFrame(rows, raw).selectExpr(
        *(f"CAST(`{name}` AS {TYPES[kind]}) AS `{name}`" for name, kind in zip(names, kinds, strict=True))
    )


@pytest.mark.spark
@pytest.mark.parametrize("group", BY_COLUMNS, ids=lambda group: " ".join(group[0][1].residual_columns))
def test_duckdb_says_what_spark_says(group, lenient):
    names = group[0][1].residual_columns
    answers = [f"({text_of(join.residual)}) AS spark{n}" for n, (_, join) in enumerate(group)]
    table = pairs(lenient, names).selectExpr("*", *answers).toArrow()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", table)
        times = ", ".join(
            f'CAST("{name}" AS TIMESTAMP) AS "{name}"' for name in names if name.endswith(".ts")
        )
        rows = f"(SELECT * REPLACE ({times}) FROM given)" if times else "given"
        for n, (condition, join) in enumerate(group):
            different = connection.execute(
                f"SELECT * FROM (SELECT *, ({join.residual_duckdb}) AS ours FROM {rows}) "
                f"WHERE spark{n} IS DISTINCT FROM ours LIMIT 3"
            ).fetchall()
            assert different == [], (condition, join.residual_duckdb)
