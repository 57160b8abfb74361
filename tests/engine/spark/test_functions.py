"""The table of Spark's functions says what Spark says: asked again for some of them, and never against it."""

from __future__ import annotations

import random
import re

import pytest
from sqlglot import parse_one
from sqlglot.errors import SqlglotError

from tests.engine.spark.running import until_caught_up
from tests.support.effort import at_effort
from watersmeet.errors import WatersmeetError
from watersmeet.parser.query.expressions.calls import check_calls
from watersmeet.parser.text.dialect import Watersmeet
from watersmeet.parser.text.source_position import Text
from watersmeet.runtime.spark.catalog import functions
from watersmeet.runtime.spark.catalog.functions import list_function_kinds
from watersmeet.runtime.spark.catalog.result_types import ResultTypes, build_arguments
from watersmeet.spec.functions import (
    FAMILIES,
    form_refuses,
    function_names,
    operator_refuses,
    signature_of,
    spark_version,
)
from watersmeet.types.sql_type import INT, TIMESTAMP, UNKNOWN

pytestmark = pytest.mark.spark


def test_the_table_is_that_of_the_spark_that_is_installed(spark, seed):
    """When this fails: scripts/spark-functions."""
    assert spark_version() == spark.version
    assert functions.list_function_names(spark) == list(function_names())
    some = random.Random(seed).sample(function_names(), 4)
    for name, found in functions.signatures(spark, some, typed=2).items():
        known = signature_of(name)
        assert known is not None
        assert (*known.counts, *(["+"] if known.more else [])) == tuple(found["counts"]), name
        assert {n: [set(each) for each in lists] for n, lists in known.refused.items() if n <= 2} == {
            int(n): [set(each) for each in lists] for n, lists in found.get("refused", {}).items()
        }, name
    assert operator_refuses("*", TIMESTAMP, INT)
    assert all(
        form_refuses(form, type_) == (family in families)
        for form, families in functions.probe_forms(spark).items()
        for family, type_ in FAMILIES.items()
    )


UNTOLD = {
    *("case", "cast", "collate"),  # with a grammar: `tests/front/test_types_on_spark.py`
    *("session_window", "window", "window_time"),  # in GROUP BY alone
    # of a type that is not switched on
    *("current_time", "make_time", "time", "time_diff", "time_trunc", "to_time", "try_to_time"),
    *(f"time_{way}_{unit}" for way in ("from", "to") for unit in ("micros", "millis", "seconds")),
    # not the same for the same rows
    *("java_method", "reflect", "try_reflect", "uniform"),
    # of what is not installed
    *(f"{way}_{form}" for way in ("from", "to", "schema_of") for form in ("avro", "protobuf")),
    # of sketches and places on the globe
    *("approx_top_k_accumulate", "approx_top_k_combine", "approx_top_k_estimate"),
    *("kll_sketch_get_quantile_bigint", "kll_sketch_get_quantile_float"),
    *("st_asbinary", "st_geomfromwkb", "st_setsrid", "st_srid"),
}
"""Functions of whose results no type is told."""


def test_types_of_all_results_are_those_of_spark(spark, seed):
    """When this fails: scripts/spark-functions."""
    types = ResultTypes(spark, seed)
    untold, wrong = set(), []
    for name in function_names():
        known = signature_of(name)
        assert known is not None
        if known.kind not in functions.COMPUTING:
            continue
        if known.result is None:
            untold.add(name)
            continue
        for call, type_ in types.of(name, known.counts, known.refused, at_effort(quick=4, full=300)):
            told = known.type_of(build_arguments(call))
            if told is not None and told.nullable != type_:
                wrong.append(f"{name}({', '.join(call)}) is {told}, and {type_} to Spark")
    assert not wrong, "\n".join(wrong)
    assert untold <= UNTOLD, untold - UNTOLD


def test_kinds_are_what_spark_says(spark, seed):
    """When this fails: scripts/spark-functions."""
    telling = [
        "abs",
        "sum",
        "try_sum",
        "rank",
        "explode",
        "range",
        "uuid",
        "uniform",
        "java_method",
        "case",
        "and",
    ]
    some = [*telling, *random.Random(seed).sample(function_names(), 6)]
    for name, found in list_function_kinds(spark, some).items():
        known = signature_of(name)
        assert known is not None
        assert (known.kind, known.deterministic) == (found["kind"], found.get("deterministic", True)), name


def test_no_example_of_spark_s_own_pages_is_refused(spark, seed):
    """Valid calls, of the descriptions of drawn functions; at full effort, of all of them."""
    examples = []
    names = random.Random(seed).sample(function_names(), at_effort(quick=80, full=len(function_names())))
    for name in names:
        text = "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect())
        examples += re.findall(r"> SELECT (.*?);\s*$", text, re.MULTILINE)
    checked, refused = 0, []
    for example in examples:
        try:
            tree = parse_one(f"SELECT {example}", read=Watersmeet)
        except (SqlglotError, ValueError):
            continue
        if tree.args.get("from_") is not None:
            continue
        text = Text(example)
        for item in tree.expressions:
            check_calls(item, lambda _: UNKNOWN, text)
        checked += 1
        # some patterns are written there for a parser that leaves a backslash as it is
        escaped = "\\" in example
        refused += [
            f"{example}: {problem.message}"
            for problem in text.problems
            if not (escaped and problem.code == "bad-pattern")
        ]
    assert checked > at_effort(quick=len(names), full=500)
    assert not refused, "\n".join(refused)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT a.t, map_from_entries(array(a.t)) AS c FROM l a JOIN l b ON a.t = b.t", "column c = "),
        ("SELECT a.t FROM l a WHERE map_from_entries(array(a.t)) IS NULL", "input a: "),
    ],
)  # fmt: skip
def test_what_only_spark_refuses_names_the_insert_and_the_expression(spark, tmp_path, query, named):
    (tmp_path / "in").mkdir()
    job = (
        "CREATE TABLE l (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'file', 'path' = '"
        f"{tmp_path}/in'); CREATE SINK out WITH ('connector' = 'memory'); INSERT INTO out {query}"
    )
    with pytest.raises(WatersmeetError) as refused:
        until_caught_up(spark, job, tmp_path / "checkpoint")
    assert refused.value.code == "not-resolved", str(refused.value)
    assert 'INSERT "out"' in refused.value.message
    assert named in refused.value.message
    assert refused.value.hint == "cast its arguments to the types it accepts: CAST(x AS type)"
