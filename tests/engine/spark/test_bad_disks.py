"""Disks that are full, or read-only, beneath each place that a job writes to: told, and nothing is lost."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.engine.spark.running import Running
from tests.support.ordered_files import write_rows_file
from tests.support.small_disk import small_disk
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.spark.errors import readable_error

pytestmark = pytest.mark.spark

JOB = """
CREATE MAPPING l (k BIGINT, t BIGINT, x STRING, WATERMARK FOR t AS t - 10)
  TYPE File OPTIONS ('path' = '{root}/in', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE MAPPING out TYPE File OPTIONS ('path' = '{root}/out', 'format' = '{format}');
CREATE MAPPING late TYPE File OPTIONS ('path' = '{root}/late', 'format' = 'json');
SET late_output = late;
INSERT INTO out SELECT a.k, a.t, a.x, b.k AS bk FROM l a JOIN l b
  ON a.k = b.k AND a.t BETWEEN b.t - 5 AND b.t + 5;
"""
ROWS = 300
LATE = 60


class Job:
    """Three files, a tick each; the second and the third have late rows."""

    def __init__(self, spark, root, format: str = "parquet") -> None:
        self.spark, self.root, self.format = spark, root, format
        self.text = JOB.format(root=root, format=format)
        randomly = random.Random(4)
        (root / "in").mkdir()
        for number in range(3):
            rows = [{"k": k, "t": number * 100 + k % 20} for k in range(ROWS)]
            rows += [{"k": k, "t": 0} for k in range(LATE if number else 0)]
            wide = ({**row, "x": randomly.randbytes(200).hex()} for row in rows)
            write_rows_file(root / "in" / f"{number}.json", number, wide)

    def run(self, **settings) -> Running:
        run = Running(self.spark, self.text, self.root / "state", until_caught_up=True, **settings)
        try:
            run.to_the_end()
        except Exception as error:
            raise readable_error(error) from None  # as whoever starts jobs does
        return run

    def refused(self, **settings) -> WatersmeetError:
        with pytest.raises(WatersmeetError) as caught:
            self.run(**settings)
        assert "Exception" not in str(caught.value)
        assert "Errno" not in str(caught.value)
        assert caught.value.hint
        return caught.value

    def check(self) -> None:
        """It goes on, and all rows are there, once."""
        self.run(finish=True)
        wide = self.spark.read.option("recursiveFileLookup", "true")
        out = Counter(
            (row.k, row.t) for row in wide.format(self.format).load(str(self.root / "out")).collect()
        )
        assert out == Counter((k, number * 100 + k % 20) for number in range(3) for k in range(ROWS))
        assert wide.json(str(self.root / "late")).count() == 2 * 2 * LATE


@pytest.mark.parametrize(
    ("place", "leave", "code"),
    [
        ("state", 0, "checkpoint-not-writable"),
        pytest.param("state", 4096, "state-not-written", marks=pytest.mark.full),
        ("state/state", 60_000, "state-not-written"),
        ("state/spark", 0, "disk-full"),
        pytest.param("out", 0, "sink-not-writable", marks=pytest.mark.full),
        ("out", 40_000, "disk-full"),
        pytest.param("late", 8192, "disk-full", marks=pytest.mark.full),
    ],
)
def test_a_full_disk(spark, tmp_path, place, leave, code):
    job = Job(spark, tmp_path)
    with small_disk(tmp_path / place) as disk:
        disk.fill(leave)
        error = job.refused()
        assert error.code == code, error
        if place != "state/spark":  # Spark does not say of its own files where they are
            assert str(tmp_path / place) in error.message
        disk.make_room()
        job.check()


@pytest.mark.full
def test_a_disk_that_is_full_under_json(spark, tmp_path):
    job = Job(spark, tmp_path, "json")
    with small_disk(tmp_path / "out") as disk:
        disk.fill(40_000)
        assert job.refused().code == "disk-full"
        disk.make_room()
        job.check()


@pytest.mark.parametrize(
    ("place", "code"),
    [
        pytest.param("state/state", "state-not-written", marks=pytest.mark.full),
        ("state/spark", "disk-not-writable"),
    ],
)
def test_a_file_system_that_becomes_read_only(spark, tmp_path, place, code):
    job = Job(spark, tmp_path)
    with small_disk(tmp_path / place) as disk:
        error = job.refused(on_tick=lambda *_: disk.allow_writing(False))
        assert error.code == code, error
        assert str(tmp_path / place) in error.message
        disk.allow_writing(True)
        job.check()


@pytest.mark.parametrize(
    ("place", "code"),
    [
        pytest.param("state", "checkpoint-not-writable", marks=pytest.mark.full),
        ("out", "sink-not-writable"),
        pytest.param("late", "sink-not-writable", marks=pytest.mark.full),
    ],
)
def test_a_place_that_is_read_only_from_the_start(spark, tmp_path, place, code):
    job = Job(spark, tmp_path)
    with small_disk(tmp_path / place) as disk:
        disk.allow_writing(False)
        error = job.refused()
        assert error.code == code, error
        assert str(tmp_path / place) in error.message
        assert "ead-only file system" in error.message
        disk.allow_writing(True)
        job.check()
