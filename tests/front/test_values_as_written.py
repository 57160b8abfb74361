"""What sqlglot reads otherwise than Spark: columns with the names of constructors, types without a zone."""

from __future__ import annotations

import pytest

from watersmeet.errors import SqlError
from watersmeet.parser.statements import parse_job
from watersmeet.testing import query

COLUMNS = "array ARRAY<INT>, list ARRAY<INT>, map MAP<STRING, INT>, s STRUCT<array: ARRAY<INT>>, x STRING"
ROW = {
    "t": 1,
    "array": [10, 20],
    "list": [30],
    "map": {"k": 5},
    "s": {"array": [40]},
    "x": "2024-05-01T10:00:00",
}


def value(written: str, zone: str = "America/New_York"):
    job = f"""SET time_zone = '{zone}';
        CREATE TABLE a (t BIGINT, {COLUMNS}, WATERMARK FOR t AS t - 5) WITH ('connector' = 'memory');
        SELECT {written} AS value FROM a"""
    return query(job, {"a": [ROW]})[0]["value"]


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("array[1]", 20),
        ("a.array[1]", 20),
        ("`array`[1]", 20),
        ("list[0]", 30),
        ("map['k']", 5),
        ("s.array[0]", 40),
        ("array(7, array[0])[1]", 10),
        ("array(array(1, 2))[0][1]", 2),
        ("ARRAY[0] + 1", 11),
    ],
)
def test_index_into_column_named_like_a_constructor_is_evaluated(written, wanted):
    assert value(written) == wanted


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("CAST(x AS TIMESTAMP WITHOUT TIME ZONE)", "2024-05-01T10:00:00"),
        ("x::timestamp without time zone", "2024-05-01T10:00:00"),
        ("try_cast(x AS TIMESTAMP_NTZ)", "2024-05-01T10:00:00"),
        ("typeof(CAST(x AS TIMESTAMP WITHOUT TIME ZONE))", "timestamp_ntz"),
        ("CAST(x AS TIMESTAMP WITH LOCAL TIME ZONE)", "2024-05-01T14:00:00+00:00"),
        ("CAST(x AS TIMESTAMP)", "2024-05-01T14:00:00+00:00"),
    ],
)
def test_casts_to_times_with_and_without_a_zone(written, wanted):
    assert value(written) == wanted


@pytest.mark.parametrize(
    "written", ["as + 1", "(as)", "x, as", "concat(all, 'x')", "concat('x', all)", "concat(distinct, 'x')"]
)
def test_words_that_were_passed_over_are_refused(written):
    """They were read as if they were not there: ``as + 1`` as 1."""
    with pytest.raises(SqlError, match="expected a value"):
        value(written)


def test_columns_that_are_called_like_words_of_sql_are_read_in_quotes():
    table = "CREATE TABLE t (`as` INT, `all` STRING, s TIMESTAMP, WATERMARK FOR s AS s) TYPE Memory"
    parse_job(
        f"{table}; SELECT `as` + 1 AS a, concat(`all`, 'x') AS b, v.s FROM (SELECT *, s AS u FROM t) AS v"
    )
