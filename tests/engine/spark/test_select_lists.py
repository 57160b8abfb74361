"""Lists of SELECT as Spark reads them: the fields of a STRUCT as a star, and names that were given before."""

from __future__ import annotations

from collections import Counter

import pytest

from watersmeet.parser.case_file import case_job
from watersmeet.runtime.local.replay import replay_case

COLUMNS = {
    "l": {"t": "BIGINT", "k": "STRING", "v": "INT", "st": "STRUCT<a: INT, `b c`: STRING>"},
    "r": {"t": "BIGINT", "w": "INT"},
}
ROWS = [
    ("l", {"t": 1, "k": "x", "v": 5, "st": {"a": 3, "b c": "y"}}),
    ("l", {"t": 2, "k": None, "v": 7, "st": None}),
    ("l", {"t": 3, "k": "z", "v": None, "st": {"a": None, "b c": "q"}}),
    *(("r", {"t": t, "w": 10 * t}) for t in (1, 2, 3)),
]
BOTH = "FROM l JOIN r ON l.t = r.t"
QUERIES = [
    f"SELECT st.*, w {BOTH}",
    f"SELECT l.st.* EXCEPT (a), k {BOTH}",
    f"SELECT v + 1 AS a, a * 2 AS b, -b + a AS v, v AS z {BOTH}",
    f"SELECT st AS q, q.a + 1 AS z, l.st.A AS y {BOTH}".replace(
        "st AS q", "named_struct('a', w) AS q, 1 AS one"
    ),
    f"SELECT st.a AS A, a + w AS s, concat(k, 'a') AS k2, K2 || k AS k3 {BOTH}",
    f"SELECT concat() AS e, length(concat()) AS n, concat() || k AS k {BOTH}",
    "SELECT b, w FROM (SELECT v + 1 AS a, a + 1 AS b, t FROM l) s JOIN r ON s.t = r.t",
    "SELECT `b c`, a FROM (SELECT st.*, t FROM l) s JOIN r ON s.t = r.t AND a < w",
]


def case_of(query):
    return {
        "case": "lists",
        "streams": {name: {"columns": each, "time": {"t": {"lag": 9}}} for name, each in COLUMNS.items()},
        "query": query,
        "steps": [{"rows": ROWS}, {"end": True}],
    }


def test_a_parameter_of_a_lambda_is_no_name_given_before():
    query = f"SELECT v AS a, transform(array(1, 2), a -> a + 1)[1] AS b, a AS c {BOTH}"
    outputs = case_job(case_of(query)).inserts[0].query.outputs
    texts = [output.expr.sql("spark") for output in outputs]
    assert texts == ["l.v", "TRANSFORM(ARRAY(1, 2), a -> a + 1)[1]", "l.v"]


@pytest.fixture(scope="module")
def tables(spark):
    for name, columns in COLUMNS.items():
        given = [tuple(row[column] for column in columns) for each, row in ROWS if each == name]
        schema = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        spark.createDataFrame(given, schema).createOrReplaceTempView(name)
    yield
    for name in COLUMNS:
        spark.catalog.dropTempView(name)


@pytest.mark.spark
@pytest.mark.parametrize("query", QUERIES)
def test_lists_are_sparks(spark, tables, query):
    case = case_of(query)
    outputs = replay_case(case)
    assert not [output["error"] for output in outputs if "error" in output], outputs
    frame = spark.sql(query)
    assert [output.name for output in case_job(case).inserts[0].query.outputs] == frame.columns
    wanted = Counter(str([_plain(value) for value in row]) for row in frame.collect())
    assert wanted
    rows = [row for output in outputs for row in output["rows"]]
    assert Counter(str([_plain(value) for value in row.values()]) for row in rows) == wanted


def _plain(value):
    return value.asDict() if hasattr(value, "asDict") else value
