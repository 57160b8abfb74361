# ruff: noqa: E501
"""Types of expressions are those that Spark gives them: of all operators between drawn types, and of what is
written with a grammar of its own. Functions: `tests/engine/spark/test_functions.py`."""

from __future__ import annotations

import random
from itertools import product

import pytest
import sqlglot

from tests.support.effort import at_effort
from watersmeet.parser.statements import parse_job
from watersmeet.parser.text.dialect import Watersmeet
from watersmeet.parser.types.inference import type_of
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.catalog.result_types import Analyser
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import UNKNOWN

pytestmark = pytest.mark.spark

TYPES = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(5,0)", "DECIMAL(38,18)",
    "DECIMAL(38,0)", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "INTERVAL DAY", "INTERVAL DAY TO SECOND",
    "INTERVAL HOUR TO MINUTE", "INTERVAL YEAR TO MONTH", "INTERVAL MONTH", "ARRAY<INT>", "ARRAY<DECIMAL(10,2)>",
    "MAP<STRING, INT>", "STRUCT<a: INT>",
]  # fmt: skip
CONSTANTS = ["NULL", "1", "-1", "100", "2.5", "3L", "1e0", "'x'", "TRUE", "INTERVAL '1' HOUR", "INTERVAL 2 DAYS", "INTERVAL '1' YEAR", "DATE '2024-01-01'"]  # fmt: skip
OPERATORS = [
    "+", "-", "*", "/", "%", "DIV", "&", "|", "^", "<<", ">>", "||", "=", "<", "<=>", "AND",
    "CASE WHEN TRUE THEN {} ELSE {} END", "IF(TRUE, {}, {})", "coalesce({}, {})", "array({}, {})", "greatest({}, {})",
    "nullif({}, {})", "map({}, {})", "CASE WHEN TRUE THEN {} WHEN FALSE THEN {} END", "{} IN ({})",
]  # fmt: skip
WRITTEN = [
    "NULL & NULL", "NULL | i", "iv DIV INTERVAL '1' HOUR", "NULL DIV iv", "NULL DIV NULL", "INTERVAL '1' YEAR DIV NULL",
    "-dc", "-1.50", "+i", "~tiny", "-iv", "i + 1.5", "dc + 1", "dc * 100", "dc / 3", "1 / dc", "0.2 * dc", "(dc + 1) * 2",
    "dc - 1L", "dc % 7", "s + 1", "s * 1.5", "s / s", "f + dc", "f * i", "tiny + small", "t - t", "d - d", "d - t", "t - s",
    "d + 1", "1 + d", "d + INTERVAL '1' DAY", "d + INTERVAL 1 HOUR", "d + INTERVAL '1' MONTH", "t + INTERVAL '1-2' YEAR TO MONTH",
    "INTERVAL '1' HOUR * 2", "3 * INTERVAL '1' DAY", "INTERVAL '1' HOUR / 2.5", "INTERVAL '1' DAY + INTERVAL '1' SECOND", "s + INTERVAL '1' DAY",
    "INTERVAL '1' HOUR + t", "INTERVAL '1' WEEK", "INTERVAL 5 MILLISECONDS", "INTERVAL '1 02:03' DAY TO MINUTE",
    "t BETWEEN t AND t", "s LIKE 'a%'", "s RLIKE 'a'", "i IS NULL", "NOT TRUE", "i IS DISTINCT FROM 1", "s ILIKE 'a'",
    "CAST(i AS DECIMAL(12,3))", "i::STRING", "TRY_CAST(s AS DATE)", "DATE '2024-01-01'", "TIMESTAMP '2024-01-01 00:00:00'", "CAST(NULL AS ARRAY<INT>)",
    "a[0]", "m['x']", "st.a", "st.n.x", "ast.a", "ast[0].a", "element_at(m, 'x')", "element_at(a, 1)", "m.x",
    "(i, s)", "struct(i, s AS b, i + 1)", "named_struct('x', i, 'y', dc)", "named_struct('x', i).x", "array(1, 2L)", "array()", "map('a', 1.5)", "map()",
    "transform(a, x -> x + 1.5)", "transform(a, (x, n) -> x * n)", "transform(ast, x -> x.a)", "filter(a, x -> x > 1)", "exists(a, x -> x > 1)",
    "aggregate(a, 0L, (x, y) -> x + y)", "aggregate(a, 0L, (x, y) -> x + y, x -> x || 'y')", "zip_with(a, ast, (x, y) -> y.b)",
    "map_filter(m, (k, v) -> v > 1)", "transform_keys(m, (k, v) -> v)", "transform_values(m, (k, v) -> k)", "array_sort(a, (x, y) -> x - y)",
    "map_zip_with(m, m, (k, v, w) -> v + w * 1.5)", "transform(transform(a, x -> x * 1.0), y -> y + 1)", "transform(array(a, a), x -> transform(x, y -> y + x[0]))",
    "extract(SECOND FROM t)", "extract(YEAR FROM d)", "extract(HOUR FROM iv)", "date_part('second', t)", "date_part('minute', iv)",
    "timestampadd(HOUR, 1, t)", "dateadd(DAY, 1, d)", "timestampdiff(DAY, t, t)", "datediff(t, d)", "datediff(DAY, d, d)", "date_add(d, 1)", "dateadd(d, 1)", "add_months(d, 1)",
    "trim(s)", "trim(BOTH 'x' FROM s)", "substring(s FROM 1 FOR 2)", "overlay(s PLACING 'x' FROM 1)", "position('x' IN s)", "s || i", "concat(s, i)", "concat(a, a)", "bin || bin",
    "date_trunc('hour', t)", "trunc(d, 'MM')", "to_date(s, 'yyyy')", "to_timestamp(s, 'yyyy')", "to_timestamp(s)", "timestamp_millis(b)", "make_timestamp(1, 2, 3, 4, 5, 6)",
    "from_utc_timestamp(t, 'UTC')", "to_utc_timestamp(s, 'UTC')", "make_date(1, 2, 3)", "unix_timestamp(s)", "from_unixtime(b)", "window_time(window(t, '1 hour'))", "date_format(t, 'y')",
    "ceil(dc)", "floor(f)", "ceil(dc, 1)", "round(dc, 1)", "round(dc)", "round(f, 2)", "bround(i, -1)", "sqrt(i)", "pow(i, 2)", "log(2, i)", "log(i)", "abs(dc)", "sign(i)", "mod(i, 2)", "pmod(dc, 3)", "i div 2", "hash(i)",
    "coalesce(dc, 0)", "nvl(t, d)", "nvl2(i, dc, 1)", "ifnull(s, 'x')", "nullif(dc, 0)", "zeroifnull(dc)", "greatest(d, t)", "decode(i, 1, 'a', 2, 'b')", "decode(bin, 'utf-8')", "if(TRUE, 1, 2.5)",
    "from_json(s, 'a INT, b ARRAY<STRUCT<c: DATE>>')", "from_json(s, 'ARRAY<INT>')", "from_json(s, 'a INT').a", "to_json(st)", "get_json_object(s, '$.a')", "parse_json(s)", "variant_get(parse_json(s), '$.a', 'INT')", "from_csv(s, 'a INT')", "split(s, ',')[0]",
    "str_to_map(s)", "sequence(1, 3)", "sequence(d, d, INTERVAL '1' DAY)", "arrays_zip(a, ast)", "map_entries(m)", "map_from_entries(array((1, 'x')))", "map_from_arrays(a, a)", "flatten(array(a, a))", "array_repeat(s, 2)", "slice(a, 1, 2)", "array_append(a, 1)", "array_union(a, array(1L))", "map_concat(m, m)", "sort_array(a)", "reverse(a)", "reverse(s)", "array_max(a)", "get(a, 0)", "try_element_at(m, 'x')", "cardinality(m)",
    "to_number(s, '999.99')", "md5(s)", "unhex(s)", "uuid() IS NULL", "typeof(i)", "try_add(i, 1)", "try_divide(dc, 3)", "try_multiply(dc, dc)", "space(3)", "char_length(s)", "boolean(s)", "int(s)", "decimal(s)", "string(i)", "timestamp(s)", "s COLLATE UTF8_LCASE",
    # of groups
    "sum(i)", "sum(dc)", "sum(CASE WHEN i > 1 THEN 1 ELSE 0 END)", "sum(CASE WHEN i > 1 THEN dc END)", "sum(DISTINCT i)", "sum(f) FILTER (WHERE i > 1)", "avg(dc)", "0.2 * avg(dc)", "avg(i) + 1", "sum(dc) / count(*)", "avg(i * 1.5)", "count(*)", "count(DISTINCT i)",
    "max(struct(i, s))", "min(t)", "max_by(s, t)", "min_by(dc, t, 3)", "any_value(dc) IGNORE NULLS", "collect_list(dc)", "collect_set(st)", "array_agg(i)", "listagg(s, ',')", "string_agg(s, ',')", "stddev(i)", "corr(i, f)", "bool_and(i > 1)", "bit_or(tiny)", "count_if(i > 1)", "mode(s)", "median(i)", "approx_count_distinct(s)", "approx_percentile(dc, 0.5)", "approx_percentile(i, array(0.5))",
    "percentile(i, 0.5)", "percentile(i, array(0.5, 0.9))", "percentile_cont(0.5) WITHIN GROUP (ORDER BY i)", "percentile_cont(0.5) WITHIN GROUP (ORDER BY iv)", "percentile_disc(0.5) WITHIN GROUP (ORDER BY dc)", "mode() WITHIN GROUP (ORDER BY s)", "listagg(s, ',') WITHIN GROUP (ORDER BY s)", "sum(iv)", "avg(iv)", "try_sum(dc)", "regr_avgx(dc, i)", "skewness(i)", "histogram_numeric(i, 3)", "hll_sketch_agg(i)",
]  # fmt: skip
COLUMNS = {
    "i": "INT", "b": "BIGINT", "tiny": "TINYINT", "small": "SMALLINT", "f": "FLOAT", "dc": "DECIMAL(10,2)", "s": "STRING", "bin": "BINARY", "t": "TIMESTAMP", "d": "DATE",
    "iv": "INTERVAL DAY TO SECOND", "a": "ARRAY<INT>", "m": "MAP<STRING, INT>", "st": "STRUCT<a: INT, n: STRUCT<x: DATE>>", "ast": "ARRAY<STRUCT<a: STRING, b: DOUBLE>>",
    **{f"c{place}": type_ for place, type_ in enumerate(TYPES)},
}  # fmt: skip
ONLY_SPARK = {"window_time(window(t, '1 hour'))"}
"""Types that are not told: what makes windows of rows stands in FROM here."""


def column_type(node):
    """As far as it is a column; the rest of its name are fields."""
    return sql_type(COLUMNS[node.name]) if len(node.parts) == 1 else UNKNOWN


def with_fields(tree):
    """As names are resolved: fields of STRUCTs behind their column."""

    def one(node):
        if not isinstance(node, sqlglot.exp.Column) or len(node.parts) == 1:
            return node
        first, *fields = node.parts
        whole = sqlglot.exp.column(first.copy())
        for field in fields:
            whole = sqlglot.exp.Dot(this=whole, expression=field.copy())
        return whole

    return tree.transform(one)


def is_nullable(text: str):
    (tree,) = sqlglot.parse_one(f"SELECT {text}", dialect=Watersmeet).expressions
    return type_of(with_fields(tree), column_type).nullable


def drawn(seed: int) -> list[str]:
    operands = [*(f"c{place}" for place in range(len(TYPES))), *CONSTANTS]
    texts = [
        f"({operator.format(left, right)})" if "{" in operator else f"({left} {operator} {right})"
        for operator, left, right in product(OPERATORS, operands, operands)
    ]
    return random.Random(seed).sample(texts, at_effort(quick=400, full=len(texts)))


def test_types_are_those_of_spark(spark, seed):
    columns = [f"CAST(NULL AS {type_}) AS {name}" for name, type_ in COLUMNS.items()]
    spark.range(0).selectExpr(*columns).createOrReplaceTempView("watersmeet_types_of_expressions")
    analyser = Analyser(spark, "watersmeet_types_of_expressions")
    texts = [*WRITTEN, *drawn(seed)]
    answers = analyser.all(texts, singly=len(texts))
    wrong, silent = [], []
    for text, answer in zip(texts, answers, strict=True):
        if answer.type is None:
            continue
        try:
            own = is_nullable(text)
        except sqlglot.errors.ParseError:  # what is refused as it is read
            continue
        if own == UNKNOWN and text not in ONLY_SPARK:
            silent.append(f"{text}: {answer.type}")
        elif own not in (answer.type.nullable, UNKNOWN):
            wrong.append(f"{text}: {own}, to Spark {answer.type}")
    mistakes = [*wrong, *silent]
    assert not mistakes, "\n".join(mistakes)


UNIONS = {
    "p * 2": "hypot(p, 1)",
    "positive(i)": "positive(b)",
    "CAST(p AS DECIMAL(10,2))": "CAST(p AS DECIMAL(14,2))",
    "NULL": "p * 2",
}
ABOVE = ["v", "CAST(v AS STRING)", "v / 3", "v + 1", "CASE WHEN v > 0 THEN v ELSE 0 END", "typeof(v)"]


@pytest.mark.parametrize(("one", "other"), UNIONS.items())
def test_what_is_computed_of_a_union_is_computed_of_its_type(spark, one, other):
    outputs = ", ".join(f"{expression} AS c{place}" for place, expression in enumerate(ABOVE))
    view = f"SELECT {one} AS v FROM a UNION ALL SELECT {other} FROM a"
    plan = plan_job(
        parse_job(
            "CREATE TABLE a (i INT, b BIGINT, p DECIMAL(10,2)) WITH ('connector' = 'memory');"
            f" CREATE VIEW u AS {view}; CREATE VIEW w AS SELECT {outputs} FROM u; SELECT * FROM w"
        )
    )
    (side,) = plan.queries[0].sides
    branches = [
        ", ".join(f"{expr.sql('spark')} AS {name}" for name, expr in branch.columns)
        for _, branch in side.sources
    ]
    spark.sql("SELECT 2147483647 AS i, 4L AS b, 2.00BD AS p").selectExpr(
        "i", "b", "CAST(p AS DECIMAL(10,2)) AS p"
    ).createOrReplaceTempView("watersmeet_union")
    planned = spark.sql(" UNION ALL ".join(f"SELECT {columns} FROM watersmeet_union" for columns in branches))
    batch = spark.sql(f"SELECT {outputs} FROM ({view.replace('FROM a', 'FROM watersmeet_union')})")
    assert planned.schema == batch.schema
    assert planned.collect() == batch.collect()


def test_a_users_function_of_a_name_of_sparks_is_not_called(spark):
    session = spark.newSession()  # with the settings of jobs
    session.udf.register("upper", lambda text: 7, "INT")
    assert session.sql("SELECT upper('a')").schema[0].dataType.simpleString() == "string"
