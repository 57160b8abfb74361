"""Columns that a declaration computes: those of a view in the place where they are declared."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from watersmeet import declared
from watersmeet.errors import SqlError
from watersmeet.front.sql import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.spec.model import Column, Source
from watersmeet.types.parser import sql_type

MEMORY = "WITH ('connector' = 'memory'{})"
STRUCT = "meta STRUCT<ts: TIMESTAMP, op: STRING, id: INT>"
SINK = "CREATE SINK out WITH ('connector' = 'memory');"


def table(columns: str, options: str = "", name: str = "n") -> str:
    return f"CREATE TABLE {name} ({columns}) {MEMORY.format(options)};"


def refusal(text: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        parse_job(text)
    return caught.value


def test_a_computed_event_time_is_the_plan_and_the_state_of_a_view() -> None:
    join = (
        "INSERT INTO out SELECT a.k, b.ts FROM {0} a LEFT JOIN {0} b"
        " ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR;"
    )
    view = (
        "CREATE VIEW ordered AS SELECT * FROM TABLE(IMPOSE_ORDER(TABLE(SELECT k, meta.ts AS ts, meta FROM n),"
        " DESCRIPTOR(ts), INTERVAL '5' SECONDS));"
    )
    own = table(f"k INT, ts AS meta.ts, {STRUCT}, WATERMARK FOR ts AS ts - INTERVAL '5' SECONDS")
    computed = plan_job(parse_job(SINK + own + join.format("n")))
    seen = plan_job(parse_job(SINK + table(f"k INT, {STRUCT}") + view + join.format("ordered")))
    assert computed.queries[0].fingerprint == seen.queries[0].fingerprint


def test_a_star_has_them_where_they_are_declared_and_the_sink_has_none() -> None:
    columns = f"op STRING, twice AS k * 2, k INT, again AS Twice + k, {STRUCT}, at AS meta.ts"
    job = parse_job(table(columns, ", 'op.column' = 'op'") + "SELECT * FROM n EMIT CHANGES;")
    outputs = job.inserts[0].query.outputs
    assert [output.name for output in outputs] == ["twice", "k", "again", "meta", "at"]
    (branch,) = job.inserts[0].query.inputs[0].branches
    assert [expr.sql("spark") for expr in branch.columns] == [
        "k * 2", "k", "(k * 2) + k", "meta", "meta.ts",
    ]  # fmt: skip
    (sink,) = (sink for sink in job.sinks if sink.name == "n")
    assert [column.name for column in sink.columns or ()] == ["op", "k", "meta"]


def test_a_comment_is_passed_over() -> None:
    plans = [
        plan_job(parse_job(table(f"k INT, x AS k + 1{said}") + "SELECT * FROM n;"))
        for said in ("", " COMMENT 'one more'")
    ]
    assert plans[0].queries[0].fingerprint == plans[1].queries[0].fingerprint


def test_they_follow_columns_that_are_inferred() -> None:
    asked: list[Sequence[str]] = []

    def infer(source: Source, clauses: Sequence[str]) -> Sequence[Column]:
        asked.append(clauses)
        return [*source.columns, Column("meta", sql_type("STRUCT<ts: TIMESTAMP>"))]

    text = "CREATE TABLE n ({}WATERMARK FOR ts) WITH ('connector' = 'file', 'path' = 'in'); SELECT * FROM n;"
    (insert,) = parse_job(text.format("ts AS meta.ts, "), infer=infer).inserts
    assert [output.name for output in insert.query.outputs] == ["meta", "ts"]
    assert asked == [["ts AS meta.ts", "WATERMARK FOR ts"]]
    with pytest.raises(SqlError, match='column "meta" is computed, and the records have one of that name'):
        parse_job(text.format("meta AS 1, ts AS meta, "), infer=infer)


def test_python_reads_them_of_declarations() -> None:
    relation = declared(table(f"{STRUCT}, ts AS meta.ts, WATERMARK FOR ts"))["n"]
    assert [(column.name, str(column.type)) for column in relation.columns][1:] == [("ts", "TIMESTAMP")]
    assert "event time n.ts TIMESTAMP" in relation.explain()


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (table("k INT, k AS 1"), "duplicate-column", "declared twice"),
        (table("k INT, x AS"), "syntax", 'what "x" is computed of'),
        (table("k INT, x AS nope"), "unknown-column", '"nope"'),
        (table("k INT, x AS *"), "not-supported", '"x" AS more than one'),
        (table("k INT, x AS k AS y"), "not-supported", '"x" AS more than one'),
        (table("k INT, x INT AS k"), "not-supported", 'AS after column "x"'),
        (table("k INT, x AS y, y AS k"), "unknown-column", '"y"'),
        (table("k INT, x AS rand()"), "nondeterministic", "rand()"),
        (table("k INT, x AS now()"), "not-supported", "now()"),
        (table("k INT, x AS count(k)"), "not-supported", "count()"),
        (table("k INT, x AS proctime()"), "not-supported", "PROCTIME()"),
        (table("k INT, x AS CAST(k AS STRING), WATERMARK FOR x"), "wrong-type", '"x" is STRING'),
        (table("op STRING, k INT, x AS op", ", 'op.column' = 'op'"), "unknown-column", '"op"'),
        (table(f"{STRUCT}, id AS meta.id, PRIMARY KEY (ID)"), "not-supported", 'PRIMARY KEY names "ID"'),
        (table(f"k INT, {STRUCT}, op AS meta.op", ", 'op.column' = 'op'"), "not-supported", "'op.column'"),
        (table(f"k INT, {STRUCT}, n AS meta.id", ", diff_column = 'n'"), "not-supported", "'diff_column'"),
        (
            table(f"k INT, {STRUCT}, s AS meta.ts, PRIMARY KEY (k)", ", 'sequence.by' = 's'"),
            "not-supported",
            "'sequence.by'",
        ),
        ("CREATE SINK s (a INT, b AS a) WITH ('connector' = 'console');", "bad-option", "is a sink"),
    ],
)
def test_what_cannot_be_computed_is_refused(text: str, code: str, message: str) -> None:
    error = refusal(
        f"{text} SELECT * FROM n;" if "SINK" not in text else f"{table('k INT')} {text} SELECT * FROM n;"
    )
    assert error.code == code
    assert message in error.message
