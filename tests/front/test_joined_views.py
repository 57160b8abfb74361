"""Names of views and sub-queries that join, and what becomes of their columns above an outer join."""

from __future__ import annotations

import pytest
import sqlglot

from watersmeet.errors import SqlError
from watersmeet.parser.statements import parse_job
from watersmeet.spec.model import Query
from watersmeet.spec.nulls import is_null_of_nulls

DECLARED = """
    CREATE TABLE o (id BIGINT, t BIGINT, a INT, s STRUCT<f: INT>, WATERMARK FOR t AS t - 5) TYPE Memory;
    CREATE TABLE d (id BIGINT, t BIGINT, b INT, WATERMARK FOR t AS t - 5) TYPE Memory;
    CREATE TABLE p (id BIGINT, b INT) TYPE Memory;
    CREATE VIEW od AS SELECT o.id, o.t AS ot, d.t AS dt, o.s, o.a + d.b AS total FROM o JOIN d ON d.id = o.id;
"""


def query(sql: str) -> Query:
    return parse_job(DECLARED + sql).inserts[0].query


def outputs(sql: str) -> list[str]:
    return [output.expr.sql("spark") for output in query(sql).outputs]


def refusal(sql: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        parse_job(DECLARED + sql)
    return caught.value


def test_inputs_take_the_alias_before_their_own() -> None:
    found = query("SELECT 1 FROM od x JOIN od ON x.ot = od.ot JOIN o ON o.t = x.ot")
    assert [i.alias for i in found.inputs] == ["x.o", "x.d", "od.o", "od.d", "o"]
    assert all(i.event_times == ("t",) for i in found.inputs)


def test_without_a_name_of_its_own_inputs_keep_theirs() -> None:
    found = query("SELECT x.id FROM (SELECT id FROM (SELECT o.id FROM o JOIN d ON o.t = d.t)) x")
    assert [i.alias for i in found.inputs] == ["x.o", "x.d"]


def test_substituted_view_columns_are_parenthesized_as_needed() -> None:
    assert outputs("SELECT od.total * 2, OD.TOTAL, -total, abs(total), od.s.f, od.total IS NULL FROM od") == [
        "(od.o.a + od.d.b) * 2",
        "od.o.a + od.d.b",
        "-(od.o.a + od.d.b)",
        "ABS((od.o.a + od.d.b))",
        "od.o.s.f",
        "(od.o.a + od.d.b) IS NULL",
    ]


def test_types_are_known_through_a_join() -> None:
    sink = "CREATE SINK typed (id BIGINT, total INT, t STRING) WITH ('connector' = 'memory');"
    found = query(sink + "INSERT INTO typed SELECT od.id, od.total, od.ot FROM od")
    assert [output.expr.sql("spark") for output in found.outputs] == [
        "od.o.id",
        "od.o.a + od.d.b",
        "CAST(od.o.t AS STRING)",
    ]


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ("d.b", "x.d.b"),
        ("d.b + 1", "x.d.b + 1"),
        ("upper(cast(d.b AS STRING))", "UPPER(CAST(x.d.b AS STRING))"),
        ("coalesce(d.b, o.a)", "COALESCE(x.d.b, x.o.a)"),
        ("1", "CASE WHEN NOT x.o.t IS NULL THEN 1 END"),
        ("coalesce(d.b, 0)", "CASE WHEN NOT x.o.t IS NULL THEN COALESCE(x.d.b, 0) END"),
        ("d.b IS NULL", "CASE WHEN NOT x.o.t IS NULL THEN x.d.b IS NULL END"),
        ("xxhash64(d.b)", "CASE WHEN NOT x.o.t IS NULL THEN XXHASH64(x.d.b) END"),
    ],
)
def test_a_computed_column_is_null_where_its_rows_are_padded(column: str, found: str) -> None:
    inner = f"SELECT o.t, {column} AS c FROM o LEFT JOIN d ON o.t = d.t"
    assert outputs(f"SELECT x.c FROM o LEFT JOIN ({inner}) x ON x.t = o.t") == [found]
    assert outputs(f"SELECT x.c FROM ({inner}) x RIGHT JOIN o ON x.t = o.t") == [found]
    twice = f"(({inner}) x FULL JOIN o ON x.t = o.t) FULL JOIN d ON d.t = o.t"
    assert outputs(f"SELECT x.c FROM {twice}") == [found]
    assert "CASE" not in outputs(f"SELECT x.c FROM ({inner}) x LEFT JOIN o ON x.t = o.t")[0]


def test_the_condition_of_the_join_itself_sees_rows_that_are_not_padded() -> None:
    inner = "SELECT o.t, coalesce(d.b, 0) AS c FROM o LEFT JOIN d ON o.t = d.t"
    relation = query(f"SELECT 1 FROM o LEFT JOIN ({inner}) x ON x.t = o.t AND x.c > 1").relation
    assert relation.on.sql("spark") == "x.o.t = o.t AND COALESCE(x.d.b, 0) > 1"


def test_a_padded_column_of_inputs_without_times_is_refused() -> None:
    inner = "SELECT p.id, coalesce(q.b, 0) AS c FROM p LEFT JOIN p q ON p.id = q.id"
    error = refusal(f"SELECT 1 FROM o LEFT JOIN ({inner}) x ON x.id = o.id")
    assert 'column "c" is computed inside "x"' in error.message
    assert error.hint == "select the plain columns in x, and compute c from them above the join"
    assert outputs(f"SELECT x.c FROM ({inner}) x LEFT JOIN o ON x.id = o.id") == ["COALESCE(x.q.b, 0)"]


def test_messages_about_names() -> None:
    assert refusal("SELECT od.totl FROM od").hint == 'did you mean "total" or "ot"?'
    assert (
        refusal("SELECT d.b FROM od").hint == 'd is inside "od", which has the columns id, ot, dt, s, total'
    )
    assert "od.id or o.id" in refusal("SELECT id FROM od JOIN o ON o.t = od.ot").message
    assert "keeps its watermark through a join" in str(
        refusal("SELECT 1 FROM TABLE(IMPOSE_ORDER(TABLE od, DESCRIPTOR(ot), 5)) x").hint
    )


@pytest.mark.parametrize(
    ("text", "is_null"),
    [
        ("a", True),
        ("NULL", True),
        ("1", False),
        ("a || 'x'", True),
        ("a AND b", True),
        ("a AND FALSE", False),
        ("coalesce(a, b)", True),
        ("coalesce(a, 1)", False),
        ("CASE WHEN a > 1 THEN 1 END", True),
        ("CASE WHEN a > 1 THEN 1 ELSE 2 END", False),
        ("CASE WHEN a IS NULL THEN 1 END", False),
        ("CASE WHEN a IS NOT NULL OR b > 1 THEN 1 ELSE b END", True),
        ("CASE a WHEN 1 THEN b END", False),
        ("a IS NULL", False),
        ("a <=> b", False),
        ("round(a, 2)", True),
        ("date_trunc('HOUR', a)", True),
        ("concat_ws(',', a)", False),
        ("a + INTERVAL '1' HOUR", True),
        ("my_function(a)", False),
    ],
)
def test_what_is_certainly_null(text: str, is_null: bool) -> None:
    assert is_null_of_nulls(sqlglot.parse_one(text, read="spark")) is is_null
