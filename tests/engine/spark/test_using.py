"""USING and NATURAL, judged by Spark over the same rows as tables: names of columns in order, and rows."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from watersmeet.parser.case_file import case_job
from watersmeet.runtime.local.replay import replay_case

STREAMS = {
    "l": {"t": "BIGINT", "k": "STRING", "v": "INT", "j": "INT"},
    "r": {"w": "INT", "T": "BIGINT", "k": "STRING", "j": "INT"},
    "z": {"x": "INT", "k": "STRING", "t": "BIGINT"},
}
QUERIES = [
    "SELECT * FROM l {kind} JOIN r USING (t)",
    "SELECT * FROM l {kind} JOIN r USING (k, t)",
    "SELECT *, l.k AS lk, r.k AS rk, k || '!' AS kk FROM l {kind} JOIN r USING (t, K)",
    "SELECT r.*, l.* FROM l {kind} JOIN r USING (t, k)",
    "SELECT k, t, v, w FROM l {kind} JOIN r USING (k, t) WHERE k <> 'a' OR v IS NULL",
    "SELECT * FROM r {kind} JOIN z USING (k, t)",
    "SELECT * FROM (SELECT * FROM l {kind} JOIN r USING (t, k, j)) s",
    "SELECT * FROM l NATURAL {kind} JOIN z",
    "SELECT * FROM l JOIN r USING (t, k) {left} JOIN z USING (k, t)",
    "SELECT *, r.t AS rt FROM l JOIN r USING (t) {left} JOIN z USING (t)",
    "SELECT *, z.k AS zk FROM l JOIN (r JOIN z USING (t)) USING (t)",
    "SELECT * FROM l {kind} JOIN r USING (k) WHERE r.t BETWEEN l.t AND l.t + 2 AND l.j <= r.j",
    "SELECT * FROM l {kind} JOIN r ON l.k = r.k WHERE r.t - l.t <= 1 AND r.t - l.t >= 0 AND l.v IN (1, 2)",
]
HIDING = [
    "SELECT * FROM l LEFT SEMI JOIN r USING (k, t)",
    "SELECT * FROM l LEFT ANTI JOIN r USING (j, t)",
    "SELECT * FROM l NATURAL JOIN z LEFT SEMI JOIN r USING (t, j)",
]
KINDS = {"": "", "LEFT": "LEFT", "RIGHT": "", "FULL": "LEFT"}
FORMED = [[q.format(kind=kind, left=left) for kind, left in KINDS.items()] for q in QUERIES]
CHOSEN = [*(forms[number % len(forms)] for number, forms in enumerate(FORMED)), *HIDING]
"""At quick effort: each form of a query with one kind of join."""
FURTHER = [
    query for query in dict.fromkeys(query for forms in FORMED for query in forms) if query not in CHOSEN
]


@pytest.fixture(scope="module")
def rows(seed):
    rng = random.Random(seed)
    meeting = {"k": "a", "t": rng.randrange(8), "j": 1}  # so that each query has a result
    found = []
    for name, columns in STREAMS.items():
        for number in range(14):
            values = {
                c: rng.choice([None, "a", "b", "c"]) if kind == "STRING" else rng.randrange(3)
                for c, kind in columns.items()
            }
            values |= {c: rng.randrange(8) for c in columns if c.lower() == "t"}
            if number == 0:
                values |= {c: meeting[c.lower()] for c in columns if c.lower() in meeting}
            found.append((name, values))
    rng.shuffle(found)
    return found


@pytest.fixture(scope="module")
def tables(spark, rows):
    for name, columns in STREAMS.items():
        schema = ", ".join(f"{c} {kind}" for c, kind in columns.items())
        given = [tuple(row.values()) for each, row in rows if each == name]
        spark.createDataFrame(given, schema).createOrReplaceTempView(name)
    yield
    for name in STREAMS:
        spark.catalog.dropTempView(name)


@pytest.mark.spark
@pytest.mark.parametrize(
    "query", [*CHOSEN, *(pytest.param(query, marks=pytest.mark.full) for query in FURTHER)]
)
def test_using_is_sparks(spark, tables, rows, query):
    case = {
        "case": "using",
        "streams": {
            name: {"columns": columns, "time": {next(c for c in columns if c.lower() == "t"): {"lag": 20}}}
            for name, columns in STREAMS.items()
        },
        "query": query,
        "steps": [{"rows": rows[:20]}, {"rows": rows[20:]}, {"end": True}],
    }
    outputs = replay_case(case)
    assert not [output["error"] for output in outputs if "error" in output], query
    frame = spark.sql(query)
    names = [output.name for output in case_job(case).inserts[0].query.outputs]
    assert names == frame.columns
    # Of columns with one name the in-process engine gives the last one.
    wanted = Counter(tuple(dict(zip(names, row, strict=True)).values()) for row in frame.collect())
    assert wanted, "no rows"
    assert Counter(tuple(row.values()) for output in outputs for row in output["rows"]) == wanted
