"""Sub-queries in FROM that have no name, and WITH before INSERT."""

from __future__ import annotations

import pytest

from watersmeet.errors import SqlError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job

TABLES = """
CREATE TABLE a (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE b (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE SINK o (t BIGINT, u BIGINT) WITH ('connector' = 'memory');
"""


def job(text):
    return parse_job(TABLES + text)


@pytest.mark.parametrize(
    ("query", "aliases"),
    [
        ("SELECT t FROM (SELECT t FROM a)", ["subquery"]),
        ("SELECT t FROM (SELECT t FROM a UNION ALL SELECT t FROM b)", ["subquery"]),
        ("SELECT t FROM (SELECT t FROM a) JOIN (SELECT t AS u FROM b) ON t = u", ["subquery", "subquery_2"]),
        ("SELECT u FROM a AS Subquery JOIN (SELECT t AS u FROM b) ON t = u", ["Subquery", "subquery_2"]),
        ("SELECT t FROM (SELECT a.t FROM a JOIN b ON a.t = b.t)", ["subquery.a", "subquery.b"]),
        (
            "SELECT t FROM (SELECT a.t FROM a JOIN b ON a.t = b.t) JOIN (SELECT t AS u FROM b) ON t = u",
            ["subquery.a", "subquery.b", "subquery_2"],
        ),
    ],
)
def test_a_subquery_without_a_name_gets_one(query, aliases):
    (insert,) = job(query).inserts
    assert [i.alias for i in insert.query.inputs] == aliases
    plan_job(job(query))


WITH = "WITH x AS (SELECT t FROM a), y (u) AS (SELECT t FROM b)"
SELECT = "SELECT x.t, y.u FROM x JOIN y ON x.t = y.u"


@pytest.mark.parametrize(
    "text",
    [
        f"{WITH} INSERT INTO o {SELECT}",
        f"{WITH} INSERT INTO o ({SELECT})",
        f"{WITH} INSERT INTO TABLE o (u, t) SELECT y.u, x.t FROM x JOIN y ON x.t = y.u",
        f"WITH x AS (SELECT t FROM a) INSERT INTO o {WITH.replace('x AS (SELECT t FROM a), ', '')} {SELECT}",
    ],
)
def test_with_before_insert_equals_with_after_insert(text):
    (insert,), (other,) = job(text).inserts, job(f"INSERT INTO o {WITH} {SELECT}").inserts
    assert insert.name == other.name == "o"
    query = insert.query
    assert (query.relation, query.outputs) == (other.query.relation, other.query.outputs)
    assert query.sql.startswith("WITH x AS (SELECT t FROM a)")
    assert "INSERT" not in query.sql


def test_with_before_insert_is_explained_and_says_what_it_emits():
    assert job(f"EXPLAIN {WITH} INSERT INTO o {SELECT}").explains
    (insert,) = job(f"{WITH} INSERT INTO o {SELECT} EMIT FINAL").inserts
    assert insert.query.mode is not None


@pytest.mark.parametrize(
    ("text", "column"),
    [
        (f"{WITH} INSERT OVERWRITE o {SELECT}", len(WITH) + 9),
        (f"{WITH} INSERT INTO o SELECT x.w FROM x", len(WITH) + 25),
    ],
)
def test_error_after_leading_with_reports_its_position(text, column):
    with pytest.raises(SqlError) as wrong:
        job(text)
    assert f"line 5, column {column})" in str(wrong.value)


NESTED = "CREATE TABLE n (k INT, meta STRUCT<ts: TIMESTAMP, op: STRING, id: INT>{}) "
NESTED += "WITH ('connector' = 'memory'{});"
ORDERED = "CREATE VIEW ordered AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE(SELECT *, meta.ts AS ts FROM {0}), "
ORDERED += "DESCRIPTOR(ts), INTERVAL '10' SECONDS))"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            NESTED.format(", WATERMARK FOR meta.ts AS meta.ts - INTERVAL '5' SECOND", ""),
            "WATERMARK FOR meta.ts",
            "ts AS meta.ts, WATERMARK FOR ts AS ts - INTERVAL '10' SECONDS",
        ),
        (
            NESTED.format("", "")
            + "SELECT * FROM TABLE(IMPOSE_ORDER(TABLE n, DESCRIPTOR(meta.ts), INTERVAL '5' SECOND));",
            "DESCRIPTOR(meta.ts)",
            ORDERED.format("name"),
        ),
        (NESTED.format(", PRIMARY KEY (k, meta.id) NOT ENFORCED", ""), "meta.id is a field", "id AS meta.id"),
        (NESTED.format("", ", 'op.column' = 'meta.op'"), '"meta.op"', "op AS meta.op"),
        (
            NESTED.format(", op STRING, PRIMARY KEY (k)", ", 'op.column' = 'op', 'sequence.by' = 'meta.ts'"),
            '"meta.ts"',
            "ts AS meta.ts",
        ),
    ],
)
def test_what_has_to_be_a_column_is_no_field(text, message, hint):
    with pytest.raises(SqlError) as wrong:
        parse_job(text)
    assert message in wrong.value.message
    assert hint in str(wrong.value.hint)


def test_what_the_hint_says_for_a_field_is_an_event_time():
    (insert,) = parse_job(f"{NESTED.format('', '')} {ORDERED.format('n')}; SELECT ts FROM ordered").inserts
    assert insert.query.inputs[0].event_times == ("ts",)
