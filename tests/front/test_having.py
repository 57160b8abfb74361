"""HAVING takes what Spark makes a BOOLEAN of; calls that the parser stumbles over are refused in words."""

from __future__ import annotations

import pytest

from watersmeet import SqlError, parse_job
from watersmeet.testing import query

SOURCE = """CREATE TABLE a (t TIMESTAMP, s STRING, xs ARRAY<STRING>, n INT, WATERMARK FOR t AS t)
    WITH ('connector' = 'memory');"""
GROUPS = """SELECT s, count(*) AS c FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(t), INTERVAL '1' MINUTE))
    GROUP BY window_start, window_end, s HAVING """
ROWS = [{"t": f"2024-01-01T00:00:{n:02}", "s": "x" if n % 2 else "y", "n": n} for n in range(5)]


@pytest.mark.parametrize(
    ("having", "left"),
    [
        ("c", "xy"),
        ("count(*) - 2", "y"),
        ("c > 2", "y"),
        ("NOT (c > 2)", "x"),
        ("c > 2 OR s = 'x'", "xy"),
        ("'true'", "xy"),
        ("NULL", ""),
        ("FALSE", ""),
    ],
)
def test_what_is_no_comparison_is_cast(having, left):
    found = query(SOURCE + GROUPS + having, {"a": ROWS})
    assert "".join(sorted(row["s"] for row in found)) == left


def test_a_call_with_half_a_pair_is_refused():
    with pytest.raises(SqlError, match="too few arguments"):
        parse_job(SOURCE + "SELECT map(1, 2, 3) AS m FROM a")


def test_texts_and_arrays_of_texts_stand_side_by_side_in_concat_ws():
    parse_job(SOURCE + "SELECT concat_ws(',', s, xs) AS z FROM a")
