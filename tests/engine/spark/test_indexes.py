"""Indexes on Spark: tables are kept for a query that comes to the job later, which begins with all of their
rows and keeps none; then the indexes go."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.engine.spark.running import until_caught_up
from tests.engine.spark.test_taken_rows import (
    FIRST,
    SECOND,
    TEXT,
    compute_expected_results,
    sums_of,
    write_next_file,
)
from watersmeet.errors import StateError
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint
from watersmeet.state.manifest import load_newest

pytestmark = pytest.mark.spark

DECLARED, _, INSERTS = TEXT.partition("INSERT INTO names")
NAMES, *_ = f"INSERT INTO names{INSERTS}".split("INSERT INTO sums")
INDEXES = (
    "CREATE INDEX customers_by ON customers (id);\n",
    "CREATE INDEX orders_by ON orders (number), (customer);\n",
    "CREATE INDEX lines_by ON lines (number);\n",
)
THIRD = {"customers": [{"id": 4, "segment": "z", "op": "I"}], "orders": [], "lines": []}


def test_a_query_comes_and_an_index_goes(spark, tmp_path):
    declared, checkpoint = DECLARED.format(tmp_path), tmp_path / "checkpoint"

    def count_retained_rows() -> Counter[str]:
        manifest = load_newest(Checkpoint(checkpoint).store)
        assert manifest is not None
        return Counter(
            {
                name: sum(a.retained for node in query.nodes for a in node.arrangements.values())
                for name, query in manifest.queries.items()
            }
        )

    for name, rows in FIRST.items():
        write_next_file(tmp_path, name, rows)
    until_caught_up(spark, declared + "".join(INDEXES), checkpoint)
    of_indexes = count_retained_rows()
    assert of_indexes["index orders_by"] == 12
    until_caught_up(spark, declared + "".join(INDEXES) + NAMES, checkpoint, change_queries=True)
    assert sums_of(spark, tmp_path, "names") == compute_expected_results(FIRST)["names"]
    assert count_retained_rows() == of_indexes + Counter({"names": 0})
    for name, rows in SECOND.items():
        write_next_file(tmp_path, name, rows)
    until_caught_up(spark, declared + INDEXES[0] + INDEXES[2] + NAMES, checkpoint, change_queries=True)
    assert sums_of(spark, tmp_path, "names") == compute_expected_results(FIRST, SECOND)["names"]
    assert count_retained_rows()["names"] == 12
    write_next_file(tmp_path, "customers", THIRD["customers"])
    until_caught_up(spark, declared + NAMES, checkpoint, change_queries=True)
    assert sums_of(spark, tmp_path, "names") == compute_expected_results(FIRST, SECOND, THIRD)["names"]


TIMES = """SET output_mode = changelog;
SET time_zone = 'America/New_York';
CREATE TABLE seen (id INT, at TIMESTAMP, day DATE, note STRING, d INT)
  WITH ('connector' = 'file', 'path' = '{0}/seen', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE names (id BIGINT, name STRING, d INT)
  WITH ('connector' = 'file', 'path' = '{0}/names', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE came WITH ('connector' = 'file', 'path' = '{0}/came', 'format' = 'json');
CREATE TABLE whole WITH ('connector' = 'file', 'path' = '{0}/whole', 'format' = 'json');
CREATE TABLE asked WITH ('connector' = 'file', 'path' = '{0}/asked', 'format' = 'json');
CREATE INDEX seen_by ON seen (id);
CREATE INDEX names_by ON names (id);
"""
ASKED = """SELECT n.name, s.id, date_format(s.at, 'yyyy-MM-dd HH:mm') AS at, s.day FROM seen s
  LEFT JOIN names n ON n.id = s.id + 1 AND n.name <> 'b'
  WHERE hour(s.at) >= 20 AND s.day > DATE '2023-12-30' AND s.at < TIMESTAMP '2024-01-01 22:30:00'"""


def test_backfilled_query_equals_a_query_that_reads_the_rows(spark, tmp_path):
    """Beside the same query, which read the rows itself: in another time zone, with types that are cast."""
    text, checkpoint = TIMES.format(tmp_path), tmp_path / "checkpoint"
    seen = [
        {"id": n % 4, "at": f"2024-01-0{1 + n % 2}T0{n % 6}:10:00Z", "day": f"2024-01-0{1 + n % 3}", "d": 1}
        for n in range(24)
    ]
    write_next_file(tmp_path, "seen", [*seen, {"id": None, "at": None, "day": None, "d": 1}])
    write_next_file(tmp_path, "names", [{"id": n, "name": "abcd"[n % 4], "d": 1} for n in range(6)])
    until_caught_up(spark, text, checkpoint)
    until_caught_up(spark, f"{text}INSERT INTO came {ASKED};", checkpoint, change_queries=True)
    until_caught_up(spark, f"{text}INSERT INTO whole {ASKED};", tmp_path / "other")
    came = sums_of(spark, tmp_path, "came")
    assert came == sums_of(spark, tmp_path, "whole")
    assert len(came) > 3
    by_spark = (
        f"{text}INSERT INTO came {ASKED};INSERT INTO asked SELECT id FROM seen WHERE to_char(id, '9') = '1';"
    )
    with pytest.raises(StateError, match=r"(?i)which alone computes .*to_char"):
        until_caught_up(spark, by_spark, checkpoint, change_queries=True)
