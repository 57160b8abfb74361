"""What is refused, with which code, and where in the text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from watersmeet.errors import SeveralErrors, SqlError
from watersmeet.front.sql import parse_job

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


def test_near_names_are_told() -> None:
    with pytest.raises(SqlError) as caught:
        parse_job(DECLARED.replace("v INT", "amount INT") + "SELECT l.amout FROM l")
    assert caught.value.hint == 'did you mean "amount"?'


def test_nothing_to_run() -> None:
    with pytest.raises(SqlError) as caught:
        parse_job("-- only a comment\n;")
    assert caught.value.code == "nothing-to-run"
