"""Statements around the queries: settings, options, names, types; and the case files."""

from __future__ import annotations

import pytest
import sqlglot

from tests.support.case_files import cases_by_name
from tests.support.columns import column
from watersmeet.errors import SeveralErrors, SpecError, SqlError
from watersmeet.parser.case_file import case_job
from watersmeet.parser.ddl.quantities import duration_us
from watersmeet.parser.query import scope
from watersmeet.parser.query.select import query_of
from watersmeet.parser.statements import parse_job
from watersmeet.parser.text.dialect import Watersmeet
from watersmeet.parser.text.source_position import Text
from watersmeet.parser.text.tokens import parse_tokens, statements_of
from watersmeet.parser.types import inference
from watersmeet.parser.types.inference import type_named, type_of
from watersmeet.plan.planner import plan_job
from watersmeet.spec.connectors import CONNECTORS
from watersmeet.spec.model import EventTime, OnIdle, Options, OutputMode, Source, WatermarkRule
from watersmeet.types.coercion import Argument
from watersmeet.types.parser import sql_type

MEMORY = "CREATE TABLE l (t BIGINT, k STRING, s STRUCT<f: INT>, WATERMARK FOR t AS t - 5) TYPE Memory;\n"


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10 seconds", 10_000_000),
        ("10s", 10_000_000),
        ("500 ms", 500_000),
        ("INTERVAL '1' HOUR", 3_600_000_000),
        ("INTERVAL 1 HOUR", 3_600_000_000),
        ("interval '10' SECONDS", 10_000_000),
        ("INTERVAL '1.5' SECOND", 1_500_000),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", 93_784_500_000),
        ("INTERVAL '-1 02:03:04' DAY TO SECOND", -93_784_000_000),
        ("INTERVAL '1 02' DAY TO HOUR", 93_600_000_000),
        ("INTERVAL '1 02:03' DAY TO MINUTE", 93_780_000_000),
        ("INTERVAL '1:02' HOUR TO MINUTE", 3_720_000_000),
        ("INTERVAL '1:02:03' HOUR TO SECOND", 3_723_000_000),
        ("INTERVAL '2:03.25' MINUTE TO SECOND", 123_250_000),
        ("INTERVAL '1 hour 30 minutes'", 5_400_000_000),
        ("INTERVAL 1 DAY 2 HOURS", 93_600_000_000),
        ("INTERVAL -5 SECONDS", -5_000_000),
        ("-INTERVAL '1' DAY", -86_400_000_000),
        ("INTERVAL 1 WEEK", 604_800_000_000),
        ("INTERVAL 10 MICROSECONDS", 10),
        ("INTERVAL '5' MILLISECONDS", 5_000),
    ],
)
def test_durations(text: str, us: int) -> None:
    assert duration_us(text) == us


@pytest.mark.parametrize(
    "text", ["INTERVAL '1' MONTH", "INTERVAL '1-2' YEAR TO MONTH", "1 month", "5", "", "soon"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        duration_us(text)
    assert caught.value.code in ("bad-duration", "syntax")


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("varchar", "STRING"),
        ("VARCHAR(10)", "STRING"),
        ("char(3)", "STRING"),
        ("text", "STRING"),
        ("integer", "INT"),
        ("long", "BIGINT"),
        ("real", "FLOAT"),
        ("double precision", "DOUBLE"),
        ("numeric(5,2)", "DECIMAL(5,2)"),
        ("decimal", "DECIMAL(10,0)"),
        ("timestamp(3)", "TIMESTAMP"),
        ("timestamp(3) with local time zone", "TIMESTAMP"),
        ("timestamp without time zone", "TIMESTAMP_NTZ"),
        ("timestamp_ntz", "TIMESTAMP_NTZ"),
        ("array<map<string,array<long>>>", "ARRAY<MAP<STRING, ARRAY<BIGINT>>>"),
        ("row(a int, b row(c varchar(3)))", "STRUCT<a: INT, b: STRUCT<c: STRING>>"),
        ("struct<a: int, `b c`: binary>", "STRUCT<a: INT, `b c`: BINARY>"),
    ],
)
def test_types(written: str, normal: str) -> None:
    assert str(type_named(written)) == normal
    assert str(type_named(normal)) == normal


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("i + 1", "INT"),
        ("i + b", "BIGINT"),
        ("i / 2", "DOUBLE"),
        ("i div 2", "BIGINT"),
        ("upper(s)", "STRING"),
        ("t + INTERVAL 1 HOUR", "TIMESTAMP"),
        ("d + INTERVAL 1 DAY", "DATE"),
        ("year(t)", "INT"),
        ("i = 1 AND s IS NULL", "BOOLEAN"),
        ("CAST(s AS NUMERIC(9,1))", "DECIMAL(9,1)"),
        ("i + 1.5", "DECIMAL(12,1)"),
        ("t - t", "INTERVAL DAY TO SECOND"),
        ("d + INTERVAL 1 HOUR", "TIMESTAMP"),
        ("timestamp_millis(b)", "TIMESTAMP"),
        ("date_trunc('hour', t)", "TIMESTAMP"),
        ("to_date(s, 'yyyy')", "DATE"),
        ("my_function(i)", "UNKNOWN"),
        ("coalesce(my_function(i), 1)", "UNKNOWN"),
        ("length(my_function(i))", "INT"),
    ],
)
def test_types_of_expressions(expression: str, kind: str) -> None:
    types = {"i": "INT", "b": "BIGINT", "s": "STRING", "t": "TIMESTAMP", "d": "DATE"}
    text = Text(expression)
    tree = parse_tokens(text, statements_of(text)[0])
    assert type_of(tree, lambda column: sql_type(types[column.name])) == sql_type(kind)


def test_settings() -> None:
    job = parse_job(
        MEMORY + "SET watermark_rule = 'limit'; SET 'allowed_lateness' = '3'; SET output_mode = changelog;"
        "SET max_rows = 100; SET spark.sql.shuffle.partitions=7; SET trigger = 2 seconds;"
        "SET checkpoint = 'a;b'; SELECT * FROM l",
        overrides={"watermark-rule": "tight", "master": "local[2]", "spark.x": "1"},
    )
    assert job.options == Options(
        watermark_rule=WatermarkRule.TIGHT, allowed_lateness=3, output_mode=OutputMode.CHANGELOG, max_rows=100
    )
    assert job.run == {"trigger": "2 seconds", "checkpoint": "a;b", "master": "local[2]"}
    assert job.settings == {"spark.sql.shuffle.partitions": "7", "spark.x": "1"}


def test_allowed_lateness_as_interval_is_microseconds() -> None:
    job = parse_job(
        "CREATE TABLE l (t TIMESTAMP, WATERMARK FOR t AS t) TYPE Memory;"
        "SET allowed_lateness = INTERVAL '5' SECONDS; SELECT * FROM l"
    )
    assert job.options.allowed_lateness == 5_000_000


def test_source_options() -> None:
    job = parse_job(
        "CREATE MAPPING k (t TIMESTAMP) TYPE Kafka OPTIONS ('Topic' = 'x', idle_timeout '10s',"
        " 'on-idle' = 'follow', 'partitions' = 'p0, p1', startingOffsets.x = 5, flag = true);"
        "CREATE MAPPING off (t TIMESTAMP) TYPE Kafka OPTIONS ('max_ahead' = 'off');"
        "SELECT 1 AS one FROM k, off"
    )
    kafka, off = (each.branches[0].source for each in job.inserts[0].query.inputs)
    assert kafka.options["Topic"] == "x"
    assert kafka.options["startingOffsets.x"] == "5"
    assert kafka.options["flag"] == "true"
    assert kafka.idle_timeout_us == 10_000_000
    assert kafka.on_idle is OnIdle.FOLLOW
    assert kafka.partitions == ("p0", "p1")
    assert kafka.max_ahead_us == CONNECTORS["kafka"].max_ahead_us == 86_400_000_000
    assert off.max_ahead_us is None


def test_rates_of_sources() -> None:
    job = parse_job(
        "CREATE MAPPING k (t INT) TYPE Kafka OPTIONS ('rows_per_second' = '5000');"
        "CREATE MAPPING f (t INT) TYPE File OPTIONS ('Rows-Per-Second' = 0.5);"
        "CREATE MAPPING none (t INT) TYPE File OPTIONS ('path' = 'in');"
        "CREATE MAPPING g (t INT) TYPE Generator OPTIONS ('rate' = '20');"
        "CREATE MAPPING h (t INT) TYPE Generator;"
        "SELECT 1 AS one FROM k, f, none, g, h"
    )
    sources = [each.branches[0].source for each in job.inserts[0].query.inputs]
    assert [source.rows_per_second for source in sources] == [5000, 0.5, None, 20, 1000]
    assert [dict(source.options) for source in sources[:2]] == [{}, {}], "it reaches no reader"


def test_two_inserts_into_one_sink_have_their_own_names() -> None:
    sink = "CREATE SINK delivered WITH ('connector' = 'file');"
    job = parse_job(MEMORY + sink + "INSERT INTO delivered SELECT t FROM l;" * 2 + "SELECT t FROM l")
    assert [insert.name for insert in job.inserts] == ["delivered", "delivered-2", "console"]
    assert [s.name for s in job.sinks] == ["l", "delivered"]


def test_explain_is_no_insert() -> None:
    job = parse_job(MEMORY + "EXPLAIN SELECT * FROM l; EXPLAIN INSERT INTO l SELECT t, k, s FROM l")
    assert (len(job.inserts), len(job.explains)) == (0, 2)


def test_names_of_expressions_are_sparks() -> None:
    job = parse_job(MEMORY + "SELECT l.t, l.t + 1, upper(l.k), l.s.f, S.F AS g, CAST(l.t AS INT) FROM l")
    outputs = job.inserts[0].query.outputs
    assert [output.name for output in outputs] == ["t", "(t + 1)", "upper(k)", "f", "g", "t"]
    assert [output.expr.sql("spark") for output in outputs][3:5] == ["l.s.f", "l.s.F"]


def test_strings_and_comments_are_left_alone() -> None:
    job = parse_job(MEMORY + "SELECT 'a;b -- c' AS x, 'it''s' AS y /* ; */ FROM l -- the end;\n;")
    assert [output.expr.name for output in job.inserts[0].query.outputs] == ["a;b -- c", "it's"]


def test_lambda_variables_are_no_columns() -> None:
    job = parse_job(MEMORY + "SELECT transform(array(1), e -> e + l.t) AS x FROM l")
    assert job.inserts[0].query.outputs[0].expr.sql("spark") == "TRANSFORM(ARRAY(1), e -> e + l.t)"


def test_dropped_ordering_column_is_no_event_time_and_leaves_a_plain_filter() -> None:
    job = parse_job(MEMORY + "SELECT x.k FROM (SELECT k FROM l WHERE k > 'a') x")
    only = job.inserts[0].query.inputs[0]
    assert only.event_times == ()
    assert only.branches[0].above is None
    assert only.branches[0].beneath is not None


def test_ordering_above_a_dropped_one_may_have_a_filter_between() -> None:
    job = parse_job(
        "CREATE TABLE a (t BIGINT, u BIGINT, WATERMARK FOR t AS t) TYPE Memory;"
        "SELECT * FROM TABLE(IMPOSE_ORDER(TABLE(SELECT u FROM a WHERE t > 1), DESCRIPTOR(u), 5)) x"
    )
    only = job.inserts[0].query.inputs[0]
    assert (only.event_times, only.branches[0].lags) == (("u",), (5,))


def test_n_way_and_parenthesised_joins_are_trees() -> None:
    source = Source("s", (column("t", "BIGINT"),), "memory", {}, (EventTime("t", None),))
    query = query_of(
        "SELECT a.t FROM s a LEFT JOIN (s b JOIN s c ON b.t = c.t) ON a.t = b.t"
        " FULL JOIN s d ON d.t = a.t, s e",
        {"s": source},
    )
    assert [each.alias for each in query.inputs] == ["a", "b", "c", "d", "e"]


def test_every_case_file_parses_or_is_refused_by_name() -> None:
    for case in cases_by_name().values():
        if case["case"] in ("refused-unknown-stream", "refused-unknown-column", "refused-table-as-of-right"):
            with pytest.raises(SqlError, match=case["expect"]["error"]):
                case_job(case)
        else:
            assert [insert.name for insert in case_job(case).inserts] == ["q"]


def test_case_may_output_one_name_twice() -> None:
    """As on the console; a sink that needs unique names rejects it."""
    stream = {"columns": {"t": "BIGINT", "k": "BIGINT"}, "time": {"t": {"lag": 0}}}
    case = {"case": "c", "streams": {"l": stream}, "query": "SELECT l.t, l.k AS t FROM l", "steps": []}
    (planned,) = plan_job(case_job(case)).queries
    assert [output.name for output in planned.outputs] == ["t", "t"]


def test_case_fields() -> None:
    job = case_job(
        {
            "case": "x",
            "streams": {
                "l": {
                    "columns": {"t": "TIMESTAMP"},
                    "time": {"t": {"lag": "10 seconds"}},
                    "partitions": ["p0"],
                    "idle_timeout": 2,
                    "on_idle": "follow",
                    "changes": True,
                }
            },
            "tables": {"c": {"columns": {"k": "varchar"}}},
            "options": {"allowed_lateness": "1 second", "max_rows": 3},
            "query": "SELECT l.t FROM l, c",
        }
    )
    stream, table = (each.branches[0].source for each in job.inserts[0].query.inputs)
    assert (stream.event_times, stream.partitions) == ((EventTime("t", 10_000_000),), ("p0",))
    assert (stream.idle_timeout_us, stream.on_idle, stream.changes) == (2_000_000, OnIdle.FOLLOW, True)
    assert (table.is_table, table.changes, table.columns) == (True, True, (column("k", "STRING"),))
    assert (job.options.allowed_lateness, job.options.max_rows) == (1_000_000, 3)


@pytest.mark.parametrize(
    "text",
    [
        "DATE_FORMAT(t, 'y/M/d')",
        "DATE_FORMAT(t, 'yyyy-MM-dd')",
        "TO_DATE(s, 'yyyy-MM-dd')",
        "TO_DATE(s)",
        "TO_TIMESTAMP(s, 'yyyy-MM-dd HH:mm:ss')",
        "TO_CHAR(t, 'yyyy')",
        "FROM_UNIXTIME(n, 'y')",
    ],
)
def test_patterns_of_times_go_to_spark_as_they_are_written(text):
    assert sqlglot.parse_one(text, dialect=Watersmeet).sql(dialect="spark") == text


@pytest.mark.parametrize("kind", ["DECIMAL(39,0)", "DECIMAL(0,0)", "DECIMAL(5,6)"])
def test_decimals_that_there_are_none_of(kind):
    with pytest.raises(SqlError, match="is not a type"):
        parse_job(f"CREATE TABLE a (m {kind}) WITH ('connector' = 'memory'); SELECT m FROM a")


NAMED = "CREATE TABLE a (v INT, s STRING) WITH ('connector' = 'memory'); SELECT "


def build_doubling_query(times: int) -> str:
    items = ["v + v AS c0", *(f"c{n} + c{n} AS c{n + 1}" for n in range(times))]
    return f"{NAMED}{', '.join(items)} FROM a"


def test_names_that_double_each_other_are_refused_before_they_fill_the_memory(monkeypatch):
    monkeypatch.setattr(scope, "MAX_EXPANDED_NODES", 100)
    assert len(parse_job(build_doubling_query(2)).inserts) == 1
    with pytest.raises(SeveralErrors) as caught:
        parse_job(build_doubling_query(12))
    first = caught.value.errors[0]
    assert first.code == "not-supported"
    assert "more than 100 parts" in first.message


def test_many_names_of_their_own_are_no_long_expression(monkeypatch):
    monkeypatch.setattr(scope, "MAX_EXPANDED_NODES", 100)
    fields = " + ".join(f"s{n}.f" for n in range(60))
    declared = ", ".join(f"s{n} STRUCT<f: INT>" for n in range(60))
    text = f"CREATE TABLE a ({declared}) WITH ('connector' = 'memory'); SELECT s0.f AS one, "
    assert parse_job(f"{text}greatest({fields.replace(' + ', ', ')}) AS most, one + 1 AS two FROM a").inserts


@pytest.mark.parametrize(
    ("one", "other", "whole"),
    [
        ("m * 2", "m + 1", "DECIMAL(12,2)"),
        ("v", "m * 2", "DECIMAL(12,2)"),
        ("v", "m * 0.001", "DECIMAL(15,5)"),
        ("array(v)", "array(m)", "ARRAY<DECIMAL(12,2)>"),
        ("NULL", "m / 3", "DECIMAL(14,6)"),
        ("CAST(m AS DECIMAL(38,0))", "m", None),
        ("upper(s)", "v", None),
        ("map('a', v)", "map('a', s)", None),
    ],
)
def test_branches_of_a_union_lose_no_digits(one, other, whole):
    job = (
        "CREATE TABLE a (v INT, s STRING, m DECIMAL(10,2)) WITH ('connector' = 'memory'); CREATE VIEW u AS"
        f" SELECT {one} AS x FROM a UNION ALL SELECT {other} FROM a; SELECT x FROM u"
    )
    if whole is None:
        with pytest.raises(SqlError, match="in one branch and"):
            parse_job(job)
    else:
        (own,) = parse_job(job).inserts[0].query.inputs[0].columns
        assert str(own.type) == whole


@pytest.mark.parametrize(("operator", "operand"), [("+", "v"), ("-", "1"), ("*", "v"), ("||", "s")])
def test_long_operator_chain_is_typed_in_linear_time(operator, operand, monkeypatch):
    typed = []
    monkeypatch.setattr(inference, "Argument", lambda *given: typed.append(given) or Argument(*given))
    row = f" {operator} ".join([operand] * 100)
    assert len(parse_job(f"{NAMED}v AS w, {row} AS x FROM a").inserts) == 1
    assert 100 < len(typed) < 300


def test_a_compiled_parser_is_named(monkeypatch):
    """Its classes cannot be extended: without a check a job's text ends in a TypeError of its own."""
    monkeypatch.setattr("sqlglot.parser.__file__", "sqlglot/parser.cpython-311-x86_64-linux-gnu.so")
    with pytest.raises(SpecError) as caught:
        parse_job(MEMORY)
    assert caught.value.code == "compiled-sqlglot"
