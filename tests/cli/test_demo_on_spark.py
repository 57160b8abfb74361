"""Both demos from end to end, over fewer and larger files than a user gets: the same rows, in less time."""

from __future__ import annotations

import pytest

from watersmeet.cli.demo import Layout, run_demo


@pytest.mark.spark
@pytest.mark.parametrize(
    ("query", "rows"),
    [pytest.param("weather", "336,776", marks=pytest.mark.full), ("connections", "28,234")],
)
def test_demo_result_equals_the_batch_join_row_for_row(spark, tmp_path, capfd, query, rows):
    status = run_demo(query, tmp_path, False, Layout(files=4))
    told = capfd.readouterr()
    assert status == 0, told.out + told.err
    assert f"rows: {rows} from the streams, {rows} from the batch join" in told.out
    assert "EQUAL, row for row" in told.out
    assert "NO:" not in told.out, "the account adds up"
