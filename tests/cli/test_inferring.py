"""A job that leaves its columns to its files says what came of it, and names what cannot be."""

from __future__ import annotations

import pytest

JOB = """
CREATE TABLE a (WATERMARK FOR t AS t - INTERVAL '10' SECONDS) WITH ('connector' = 'file', 'path' = 'a',
  'format' = 'csv');
CREATE TABLE b (t TIMESTAMP, WATERMARK FOR t) WITH ('connector' = 'file', 'path' = 'b', 'format' = 'json',
  'columns' = 'infer');
SELECT a.`at home`, b.o.x FROM a JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + INTERVAL '1' MINUTE;
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "1.csv").write_text("k,t,at home\n007,2024-01-01T10:00:00Z,true\n")
    (tmp_path / "b" / "1.json").write_text('{"k": "007", "t": "soon", "o": {"x": 1}}\n')
    (tmp_path / "job.sql").write_text(JOB)
    return tmp_path


def test_explain_prints_inferred_columns_that_can_be_copied(watersmeet, files):
    found = watersmeet("explain", "job.sql")
    assert found.status == 0, found.err
    assert found.err.splitlines() == [
        'note: the columns of "a" are inferred from 1 file and 1 record:',
        "  CREATE TABLE a (",
        "    k STRING,",
        "    t TIMESTAMP,",
        "    `at home` BOOLEAN,",
        "    WATERMARK FOR t AS t - INTERVAL '10' SECONDS",
        "  ) WITH (…)",
        "note: k is STRING: a number would not keep '007' as it is written",
        'note: the columns of "b" are inferred from 1 file and 1 record:',
        "  CREATE TABLE b (",
        "    k STRING,",
        "    t TIMESTAMP,",
        "    o STRUCT<x: BIGINT>,",
        "    WATERMARK FOR t",
        "  ) WITH (…)",
    ]
    declared = "\n".join(line for line in found.err.splitlines() if not line.startswith("note:"))
    for name, kind in (("a", "csv"), ("b", "json")):
        options = f"WITH ('connector' = 'file', 'path' = '{name}', 'format' = '{kind}');"
        declared = declared.replace("WITH (…)", options, 1)
    copied = declared + JOB[JOB.index("SELECT") :]
    (files / "copied.sql").write_text(copied)
    again = watersmeet("explain", "copied.sql")
    assert (again.status, again.out, again.err) == (0, found.out, "")


def test_the_plan_is_that_of_the_declared_columns(files):
    from watersmeet.parser.statements import parse_job
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.spark.job.column_inference import ColumnInference

    inferred = plan_job(parse_job(JOB, infer=ColumnInference()))
    declared = JOB.replace("(WATERMARK", "(k STRING, t TIMESTAMP, `at home` BOOLEAN, WATERMARK").replace(
        "(t TIMESTAMP,", "(k STRING, t TIMESTAMP, o STRUCT<x: BIGINT>,"
    )
    plain = plan_job(parse_job(declared.replace(",\n  'columns' = 'infer'", "")))
    assert inferred.queries[0].fingerprint == plain.queries[0].fingerprint
    assert inferred.sources == plain.sources


REFUSED = [
    ("'format' = 'csv'", "'format' = 'csv', 'columns' = 'x'", "bad-option", "option 'columns' is 'x'"),
    ("FOR t AS t -", "FOR k AS k -", "wrong-type", "(k TIMESTAMP, WATERMARK …)"),
    ("FOR t AS t -", "FOR u AS u -", "unknown-column", 'unknown column "u"'),
    ("'path' = 'a'", "'path' = 'nowhere'", "path-missing", "put a first file there"),
    ("'file', 'path' = 'a'", "'kafka', 'topic' = 'a'", "cannot-infer", "declare them"),
    ("'file', 'path' = 'b'", "'generator'", "cannot-infer", "declare them"),
    ("CREATE TABLE b (t TIMESTAMP, WATERMARK FOR t)", "CREATE SINK b", "bad-option", "remove 'columns'"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "code", "said"), REFUSED)
def test_refusals_name_the_place(watersmeet, files, old, new, code, said):
    assert old in JOB
    (files / "job.sql").write_text(JOB.replace(old, new))
    found = watersmeet("explain", "job.sql")
    assert found.status == 2
    assert f"SqlError[{code}]" in found.err
    assert "(job.sql, line " in found.err
    assert said in found.err
    assert found.err.count("Error[") == 1, found.err


def test_what_is_only_written_to_is_not_looked_at(watersmeet, files):
    sink = "CREATE TABLE out WITH ('connector' = 'file', 'path' = 'out');\nINSERT INTO out "
    (files / "job.sql").write_text(JOB.replace("SELECT a", sink + "SELECT a").replace("o.x", "o.x AS x"))
    found = watersmeet("explain", "job.sql")
    assert found.status == 0, found.err
    assert "out" not in found.err


def test_without_a_list_at_all_as_a_table(watersmeet, files):
    (files / "job.sql").write_text(
        JOB[: JOB.index("CREATE TABLE b")]
        + "CREATE TABLE prices WITH ('connector' = 'file', 'path' = 'b', 'format' = 'json');\n"
        + "SELECT a.k, p.o.x FROM a JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() AS p ON p.k = a.k"
    )
    found = watersmeet("explain", "job.sql")
    assert found.status == 0, found.err
    assert "t STRING" in found.err


def test_a_library_that_looks_at_nothing_says_so():
    import watersmeet as library

    with pytest.raises(library.SqlError) as caught:
        library.parse_job("CREATE TABLE a WITH ('connector' = 'file', 'path' = 'x'); SELECT * FROM a")
    assert caught.value.code == "cannot-infer"
