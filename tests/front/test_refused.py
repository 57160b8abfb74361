"""What is refused, with which code, and where in the text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from watersmeet.errors import SeveralErrors, SqlError
from watersmeet.parser.statements import parse_job

DECLARED = (
    "CREATE TABLE l (t BIGINT, k STRING, v INT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');"
    "CREATE TABLE r (t BIGINT, v INT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');"
    "CREATE TABLE p (ts TIMESTAMP, s STRING) WITH ('connector' = 'memory');"
    "CREATE TABLE d (a BIGINT, s STRING) WITH ('connector' = 'jdbc', 'url' = 'jdbc:x', 'dbtable' = 'd');"
    "CREATE SINK f WITH ('connector' = 'file');"
    "SELECT l.t FROM l;\n"
)
BLOCKS = re.findall(
    r"-- fail=(\S+)(?: (\d+):(\d+))?\n(.*)", (Path(__file__).parent / "refused.sql").read_text()
)


@pytest.mark.parametrize(("code", "line", "column", "sql"), BLOCKS, ids=[block[3][:60] for block in BLOCKS])
def test_is_refused(code: str, line: str, column: str, sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_job(DECLARED + sql, source_name="job.sql")
    assert caught.value.code == code, str(caught.value)
    if line:
        place = caught.value.location
        assert place is not None
        assert (place.line, place.column, place.source) == (int(line) + 1, int(column), "job.sql")


@pytest.mark.parametrize("sink", ["f", "m"])
def test_all_duplicate_result_columns_are_reported_in_one_error(sink: str) -> None:
    declared = f"{DECLARED}CREATE SINK m WITH ('connector' = 'memory');"
    with pytest.raises(SqlError) as caught:
        parse_job(f"{declared} INSERT INTO {sink} SELECT l.t, r.T, l.v, r.v, l.k FROM l JOIN r ON l.t = r.t")
    said = 'two columns of the result are named "t" (l.t and r.t), two "v" (l.v and r.v), but "'
    assert (caught.value.code, caught.value.message.lower().startswith(said)) == ("duplicate-column", True)


def test_all_problems_at_once_and_each_once() -> None:
    with pytest.raises(SeveralErrors) as caught:
        parse_job(
            DECLARED + "CREATE VIEW v AS SELECT nosuch FROM l;\n"
            "SELECT * FROM v;\n"
            "SELECT l.x, l.y FROM l;\n"
            "SET plan = 'quick';"
        )
    assert [(e.code, e.location and e.location.line) for e in caught.value.errors] == [
        ("unknown-column", 2),
        ("unknown-column", 4),
        ("unknown-column", 4),
        ("bad-setting", 5),
    ]


def test_a_view_does_not_know_itself() -> None:
    with pytest.raises(SqlError, match='unknown table or view "v"'):
        parse_job(DECLARED + "CREATE VIEW v AS SELECT * FROM v; SELECT * FROM v;")


def test_ambiguous_column_names_both_origins() -> None:
    with pytest.raises(SqlError, match=r"l\.t or r\.t"):
        parse_job(DECLARED + "SELECT t FROM l, r")


def test_unknown_column_error_suggests_a_similar_name() -> None:
    with pytest.raises(SqlError) as caught:
        parse_job(DECLARED.replace("v INT", "amount INT") + "SELECT l.amout FROM l")
    assert caught.value.hint == 'did you mean "amount"?'


def test_nothing_to_run() -> None:
    with pytest.raises(SqlError) as caught:
        parse_job("-- only a comment\n;")
    assert caught.value.code == "nothing-to-run"


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("SELECT l.t FROM l\nSELECT r.t FROM r", "is a semicolon missing before SELECT?"),
        (
            "CREATE SINK s WITH ('connector' = 'memory')\ninsert INTO s SELECT l.t FROM l",
            "missing before INSERT",
        ),
        ("CREATE VIEW w AS SELECT l.t FROM l\n  CREATE VIEW u AS SELECT r.t FROM r", "missing before CREATE"),
        ("SELECT window(t, '1 minute') FROM l", "FROM TABLE(TUMBLE(TABLE name,"),
        ("SELECT hop_end(t, 1, 2) FROM l", "FROM TABLE(TUMBLE(TABLE name,"),
        ("CREATE TABLE x AS SELECT l.t FROM l", "INSERT INTO name SELECT"),
        ("CREATE MATERIALIZED VIEW x AS SELECT l.t FROM l", "INSERT INTO name SELECT"),
        ("SELECT l.t FROM l LIMIT 5", "'rows' = '20'"),
        ("SELECT l.t FROM l ORDER BY t", "min_by"),
        ("SELECT l.t FROM l WHERE v NOT IN (SELECT v FROM r)", "NOT EXISTS"),
    ],
)
def test_what_to_write_instead(sql, hint):
    with pytest.raises(SqlError) as caught:
        parse_job(DECLARED + sql)
    assert hint in (caught.value.hint or ""), str(caught.value)


def test_in_is_exists():
    """Names inside of the sub-query are its own input's first, those outside of it never."""
    before, after = DECLARED + "SELECT l.t FROM l WHERE ", "AND (r.t = l.t OR r.v = 3))"
    asked = parse_job(before + "v + 1 IN (SELECT v FROM r WHERE r.t = l.t OR v = 3)")
    same = parse_job(before + "EXISTS (SELECT 1 FROM r WHERE (l.v + 1) = r.v " + after)
    left, right = (job.inserts[-1].query.relation for job in (asked, same))
    assert left.kind is right.kind
    assert left.on.sql() == right.on.sql()


def test_duplicate_option_error_names_its_source() -> None:
    with pytest.raises(SqlError, match="\"q\": option 'SEP' is set twice, also as 'sep'"):
        parse_job("CREATE TABLE q (a INT) WITH ('connector' = 'file', 'sep' = ',', 'SEP' = ';');")


def test_options_that_only_look_alike_are_two() -> None:
    job = (
        "CREATE TABLE q (a INT) WITH ('connector' = 'kafka', 'kafka.a.b' = '1', 'kafka.a_b' = '2', "
        "'metadata.a' = 'key', 'max_ahead' = 'off');"
    )
    (insert,) = parse_job(job + "SELECT a FROM q;").inserts
    assert insert.query.inputs[0].branches[0].source.options == {
        "kafka.a.b": "1",
        "kafka.a_b": "2",
        "metadata.a": "key",
    }
