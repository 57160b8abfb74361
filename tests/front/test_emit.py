"""EMIT CHANGES and EMIT FINAL: where they stand, what is a name, and which mode a query has."""

from __future__ import annotations

import pytest

import watersmeet
from watersmeet.errors import WatersmeetError
from watersmeet.spec.model import OutputMode

STREAMS = """CREATE TABLE l (t BIGINT, k STRING, emit BOOLEAN, WATERMARK FOR t AS t - 5)
    WITH ('connector' = 'memory');
CREATE TABLE r (t BIGINT, k STRING, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE emit (t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
CREATE TABLE c (k STRING, op STRING) WITH ('connector' = 'memory', 'op.column' = 'op');
CREATE TABLE d (k STRING, op STRING) WITH ('connector' = 'memory', 'op.column' = 'op');
CREATE SINK out WITH ('connector' = 'memory');
"""
JOIN = "SELECT l.k FROM l LEFT JOIN r ON l.k = r.k AND l.t = r.t"
TABLES = "SELECT c.k FROM c LEFT JOIN d ON c.k = d.k"
CHANGES, FINAL = OutputMode.CHANGELOG, OutputMode.APPEND


def modes(text: str) -> list[OutputMode | None]:
    plan = watersmeet.plan_job(watersmeet.parse_job(STREAMS + text))
    return [query.options.output_mode for query in plan.queries]


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (f"{JOIN} EMIT CHANGES", CHANGES),
        (f"{JOIN} emit /* a comment */ final;", FINAL),
        (f"INSERT INTO out {JOIN} EMIT CHANGES", CHANGES),
        (f"INSERT INTO out (a) {JOIN} WHERE l.k = 'x' EMIT CHANGES;", CHANGES),
        (f"WITH w AS (SELECT * FROM r) {JOIN.replace('JOIN r', 'JOIN w AS r')} EMIT CHANGES", CHANGES),
        ("SELECT a.t FROM emit a JOIN l ON a.t = l.t WHERE l.emit EMIT CHANGES", CHANGES),
        ("SELECT emit.t FROM l JOIN emit ON emit.t = l.t AND emit EMIT CHANGES", CHANGES),
        ("SELECT changes.t FROM l JOIN emit changes ON changes.t = l.t", FINAL),
        ("SELECT l.emit changes FROM l JOIN emit final ON final.t = l.t", FINAL),
        ("SELECT a.t AS emit FROM l emit JOIN r a ON emit.t = a.t", FINAL),
        ("SELECT a.t FROM l a JOIN r emit ON emit.t = a.t", FINAL),
        (JOIN, FINAL),
        (TABLES, CHANGES),
        (f"SET output_mode = changelog; {JOIN}", CHANGES),
        (f"SET output_mode = changelog; {JOIN} EMIT FINAL", FINAL),
        (f"{TABLES} EMIT CHANGES; SET output_mode = append", CHANGES),
    ],
)
def test_mode(text, mode):
    assert modes(text) == [mode]


def test_each_query_has_its_own():
    text = (
        f"INSERT INTO out {JOIN} EMIT FINAL; INSERT INTO out {JOIN} EMIT CHANGES; INSERT INTO out {TABLES};"
    )
    assert modes(text + JOIN) == [FINAL, CHANGES, CHANGES, FINAL]


@pytest.mark.parametrize(("words", "mode"), [("", None), ("EMIT CHANGES", CHANGES), ("EMIT FINAL", FINAL)])
def test_explained_queries_have_one_too(words, mode):
    job = watersmeet.parse_job(f"{STREAMS}EXPLAIN {JOIN} {words}")
    assert job.explains[0].mode is mode


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{JOIN} EMIT CHANGE", "syntax: EMIT CHANGE .*EMIT CHANGES .results are updated. or EMIT FINAL"),
        (f"{JOIN} EMIT ON WINDOW CLOSE", "EMIT ON WINDOW CLOSE is not supported.*EMIT FINAL"),
        (f"{JOIN} EMIT CHANGES EMIT FINAL", "unexpected text after EMIT CHANGES"),
        (f"SELECT x.k FROM ({JOIN} EMIT CHANGES) x", "unexpected text after EMIT CHANGES"),
        (f"CREATE VIEW v AS {JOIN} EMIT CHANGES; SELECT k FROM v", "EMIT in a view is not supported"),
        (f"EMIT CHANGES {JOIN}", "EMIT is not supported"),
        (
            f"{TABLES} EMIT FINAL",
            r'rows of "c" .a table., "d" .a table. can be retracted',
        ),
        (f"SET output_mode = append; {TABLES}", r"can be retracted"),
    ],
)
def test_what_is_refused(text, words):
    with pytest.raises(WatersmeetError, match=f"(?s){words}"):
        modes(text)


def test_one_job_with_a_query_of_each_kind_and_restarts():
    """What is final comes when it is, with no more columns; changes come at once. Of one source, one tick."""
    text = f"""{STREAMS}
        CREATE SINK eager WITH ('connector' = 'memory');
        INSERT INTO out SELECT l.k, r.t FROM l LEFT JOIN r ON l.k = r.k AND l.t = r.t EMIT FINAL;
        INSERT INTO eager SELECT l.k, r.t FROM l LEFT JOIN r ON l.k = r.k AND l.t = r.t EMIT CHANGES;"""
    store = watersmeet.MemoryStore()

    def tick(partitions, **rows):
        job = watersmeet.LocalJob(
            watersmeet.plan_job(watersmeet.parse_job(text)), store, partitions=partitions
        )
        output = job.tick({name: [(row, 1) for row in given] for name, given in rows.items()})
        return [
            sorted((tuple(row.values()) for row in output.rows[name]), key=str) for name in ("out", "eager")
        ]

    rows = [{"t": 1, "k": "a"}, {"t": 1, "k": "b"}]
    assert tick(1, l=rows) == [[], [("a", None, 1, 1), ("b", None, 1, 1)]]
    assert tick(3, r=rows[:1]) == [[("a", 1)], [("a", 1, 1, 2), ("a", None, -1, 2)]]
    assert tick(2, l=[{"t": 99, "k": "c"}], r=[{"t": 99, "k": "z"}]) == [
        [("b", None)],
        [("c", None, 1, 3)],
    ]
    swapped = text.replace("EMIT FINAL", "EMIT CHANGES")
    with pytest.raises(WatersmeetError, match='differs from the stored state: in "out"'):
        watersmeet.LocalJob(watersmeet.plan_job(watersmeet.parse_job(swapped)), store)
