"""What DuckDB is asked in the place of Spark: expressions that mean the same there, with Spark's values
written down; all others are left to Spark."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from watersmeet.diff.dialect import NamedColumn, UnsupportedInDialect
from watersmeet.diff.duckdb_sql import DuckDb
from watersmeet.types.parser import sql_type

TYPES = {
    "n": "INT",
    "big": "BIGINT",
    "small": "SMALLINT",
    "s": "STRING",
    "flag": "BOOLEAN",
    "x": "DOUBLE",
    "t": "TIMESTAMP",
    "u": "TIMESTAMP",
    "d": "DATE",
    "e": "DATE",
    "none": "INT",
    "m": "DECIMAL(9,2)",
    "wide": "DECIMAL(38,0)",
}
ROW = (
    "SELECT 7::INTEGER n, 5000000000::BIGINT big, 3::SMALLINT small, 'ab' s, TRUE flag, 1.5::DOUBLE x,"
    " TIMESTAMP '2022-03-01 10:00:00' t, TIMESTAMP '2022-03-01 09:58:30' u, DATE '2022-03-01' d,"
    " DATE '2022-02-27' e, NULL::INTEGER none, 1.25::DECIMAL(9,2) m"
)
TEN = datetime(2022, 3, 1, 10)


def compile_to_duckdb(text: str, *, utc: bool = True) -> str:
    names = {("", name): NamedColumn(name, sql_type(kind)) for name, kind in TYPES.items()}
    return DuckDb({}, utc=utc).expression(sqlglot.parse_one(text, dialect="databricks"), names)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CASE WHEN n > 5 THEN s ELSE 'no' END", "ab"),
        ("CASE WHEN n < 5 THEN s END", None),
        ("CASE WHEN none > 5 THEN 1 WHEN flag THEN 2 ELSE 3 END", 2),
        ("if(flag AND NOT n = 7, 1, 2)", 2),
        ("coalesce(none, n)", 7),
        ("CAST(small AS BIGINT)", 3),
        ("CAST(NULL AS INT)", None),
        ("t - INTERVAL '90' SECONDS", datetime(2022, 3, 1, 9, 58, 30)),
        ("u + INTERVAL '90' SECONDS = t", True),
        ("d - INTERVAL '2' DAYS", date(2022, 2, 27)),
        ("e + INTERVAL '2' DAYS = d", True),
        ("t - u <= INTERVAL '90' SECONDS", True),
        ("t - u < INTERVAL '90' SECONDS", False),
        ("d - e = INTERVAL '2' DAYS", True),
        ("t BETWEEN u AND u + INTERVAL '1' MINUTE", False),
        ("TIMESTAMP '2022-03-01 10:00:00' = t", True),
        ("DATE '2022-03-01' = d", True),
        ("none IS NULL AND n IS NOT NULL", True),
        ("none = 1 OR flag", True),
        ("none <=> NULL", True),
        ("n IN (1, 7)", True),
        ("count(*)", 1),
        ("count(DISTINCT n)", 1),
        ("sum(big)", 5_000_000_000),
        ("max(t)", TEN),
        ("min(s)", "ab"),
        ("m = 1.250", True),
        ("m * n", Decimal("8.75")),
        ("m - 2.5 < -1.24", True),
        ("coalesce(none, m)", Decimal("1.25")),
        ("CASE WHEN flag THEN n ELSE m END", 7),
        ("m IN (1, 1.25)", True),
        ("CAST(n AS DECIMAL(12,2))", 7),
        ("sum(m)", Decimal("1.25")),
        ("max(m)", Decimal("1.25")),
    ],
)
def test_a_value_is_sparks(text, value):
    found = duckdb.sql(f"SELECT {compile_to_duckdb(text)} FROM ({ROW})").fetchall()
    assert found == [(value,)]


@pytest.mark.parametrize(
    "text",
    [
        "upper(s)",
        "x + 1",
        "CASE n WHEN 1 THEN 2 END",
        "CAST(big AS INT)",
        "CAST(s AS INT)",
        "try_cast(n AS BIGINT)",
        "TIMESTAMP '10000-01-01 00:00:00'",
        "INTERVAL '1' SECOND",
        "INTERVAL '1' MONTH",
        "t + INTERVAL '1' MONTH",
        "coalesce(n, s)",
        "n + s",
        "1.5e0BD",
        "m = x",
        "CAST(m AS DECIMAL(9,1))",
        "CAST(m AS INT)",
        "avg(m)",
        "m = CAST(n AS DECIMAL(38,0)) AND m = CAST(n AS DECIMAL(38,36))",
        "wide * m",
        "wide + m",
        "wide = m",
        "sum(x)",
        "avg(n)",
        "min(x)",
        "count(n) FILTER (WHERE flag)",
        "if(n, 1, 2)",
    ],
)
def test_what_may_mean_something_else_is_sparks(text):
    with pytest.raises(UnsupportedInDialect):
        compile_to_duckdb(text)


def test_times_of_other_zones_are_sparks():
    with pytest.raises(UnsupportedInDialect):
        compile_to_duckdb("TIMESTAMP '2022-03-01 10:00:00' = t", utc=False)
    for text in ("t - u < INTERVAL '1' HOUR", "t - INTERVAL '1' DAY", "u + (d - e) = t"):
        assert compile_to_duckdb(text)
        with pytest.raises(UnsupportedInDialect):
            compile_to_duckdb(text, utc=False)
    for text in (
        "DATE '2022-03-01' = d",
        "t - INTERVAL '23' HOURS < u",
        "d + INTERVAL '1' DAY",
        "d - e = d - e",
    ):
        assert compile_to_duckdb(text, utc=False)


DECIMALS = {"m": "DECIMAL(9,2)", "k": "DECIMAL(12,4)", "w": "DECIMAL(20,0)", "n": "INT", "big": "BIGINT"}
TIMES = {"t": "TIMESTAMP", "u": "TIMESTAMP", "d": "DATE"}
MEANT = [
    "m = k", "m < big", "k BETWEEN n AND m", "m <=> k", "w IN (n, m, k)", "m = 1.50", "n > 0.5", "-1.5 < m",
    "m + k", "m - n", "k * m", "w * n", "m * 0.1", "m + 1", "CASE WHEN m > k THEN m ELSE k END",
    "coalesce(m, n, w)",
    "CAST(n AS DECIMAL(12,1))", "CAST(m AS DECIMAL(15,4))", "t < u", "t + INTERVAL '90' MINUTES",
    "u - INTERVAL '23:59:59.999999' HOUR TO SECOND", "t BETWEEN u AND u + INTERVAL '3' HOURS",
    "d + INTERVAL '2' DAYS", "coalesce(t, u)",
]  # fmt: skip
GROUPED = ["sum(m)", "sum(k)", "min(w)", "max(m)", "sum(DISTINCT m)", "count(DISTINCT k)", "max(t)", "min(d)"]


@pytest.mark.spark
def test_spark_means_the_same_by_decimals_and_in_other_zones(spark: Any, seed: int) -> None:
    rng = random.Random(seed)
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC)  # a day before clocks there go forward

    def exact(places: int) -> Decimal:
        one = rng.randint(-30, 30) * 10**places // rng.choice([1, 2, 4]) + rng.choice([0, 0, 1])
        return Decimal(one).scaleb(-places)

    rows = [
        {
            "m": exact(2), "k": exact(4), "w": exact(0),
            "n": rng.randint(-30, 30), "big": rng.randint(-30, 30),
            "t": spring + timedelta(minutes=rng.randint(0, 1440)),
            "u": spring + timedelta(minutes=rng.randint(0, 1440)),
            "d": date(2026, 3, rng.randint(27, 31)),
        }
        for _ in range(150)
    ]  # fmt: skip
    rows = [{name: None if rng.random() < 0.1 else value for name, value in row.items()} for row in rows]
    kinds = DECIMALS | TIMES
    table = pa.table({name: pa.array([r[name] for r in rows], ARROW[kind]) for name, kind in kinds.items()})
    names = {("", name): NamedColumn(name, sql_type(kind)) for name, kind in kinds.items()}
    by = DuckDb({}, utc=False)

    def compile_expression(text: str) -> str:
        return by.expression(sqlglot.parse_one(text, dialect="databricks"), names)

    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    db.register("given", table.append_column("row", pa.array(range(len(rows)))))
    db.execute(
        "CREATE TABLE r AS SELECT * REPLACE (timezone('UTC', t) AS t, timezone('UTC', u) AS u) FROM given"
    )
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    spark.createDataFrame(table.append_column("row", pa.array(range(len(rows))))).createOrReplaceTempView("r")
    for texts, more in ((MEANT, " ORDER BY row"), (GROUPED, " GROUP BY row % 7 ORDER BY row % 7")):
        wanted = spark.sql(
            f"SELECT {', '.join(f'{text} AS c{n}' for n, text in enumerate(texts))} FROM r{more}"
        )
        found = db.sql(f"SELECT {', '.join(map(compile_expression, texts))} FROM r{more}").to_arrow_table()
        for text, theirs, ours in zip(texts, wanted.toArrow().columns, found.columns, strict=True):
            own = [_naive(value) for value in ours.to_pylist()]
            assert own == [_naive(value) for value in theirs.to_pylist()], text
    pairs = "SELECT count(*) FROM r a JOIN r b ON a.m = b.k AND a.t < b.u"
    on = "a.m = b.k AND a.t < b.u"
    both = {
        (alias, name): NamedColumn(f"{alias}.{name}", sql_type(kinds[name]))
        for alias in "ab"
        for name in kinds
    }
    own_on = by.expression(sqlglot.parse_one(on, dialect="databricks"), both)
    ((met,),) = db.execute(f"SELECT count(*) FROM r a JOIN r b ON {own_on}").fetchall()
    assert met == spark.sql(pairs).collect()[0][0] > 0


ARROW = {
    "DECIMAL(9,2)": pa.decimal128(9, 2), "DECIMAL(12,4)": pa.decimal128(12, 4),
    "DECIMAL(20,0)": pa.decimal128(20, 0),
    "INT": pa.int32(), "BIGINT": pa.int64(), "TIMESTAMP": pa.timestamp("us", "UTC"), "DATE": pa.date32(),
}  # fmt: skip


def _naive(value: Any) -> Any:
    return (
        value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value
    )
