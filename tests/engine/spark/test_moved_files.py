"""A job that is moved with its files goes on behind what it has read: no row twice, none lost."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.engine.spark.running import Running, killed_at_commit
from tests.support.ordered_files import write_rows_file
from watersmeet.errors import EngineError, WatersmeetError

pytestmark = pytest.mark.spark

JOB = """
CREATE TABLE l (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 0)
  WITH ('connector' = 'file', 'path' = '{at}in/l', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE TABLE r (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 0)
  WITH ('connector' = 'file', 'path' = '{at}in/r', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE SINK o WITH ('connector' = 'file', 'path' = 'out', 'format' = 'json');
INSERT INTO o SELECT l.k, r.t FROM l LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t AND l.t + 5;
"""


class Place:
    """A directory with a job, its files and its state."""

    def __init__(self, spark, root: Path, at: str) -> None:
        self.spark, self.root, self.at, self.rows = spark, root, at, 0

    def put(self, rows: int) -> None:
        for number in range(self.rows, self.rows + rows):
            for name in "lr":
                folder = self.root / "in" / name
                folder.mkdir(parents=True, exist_ok=True)
                write_rows_file(folder / f"file {number}.json", number, [{"k": number, "t": number}])
        self.rows += rows

    def run(self, *moved: str, **settings) -> Running:
        os.chdir(self.root)
        text = JOB.format(at=self.at.format(root=self.root))
        running = Running(
            self.spark, text, self.root / "state", until_caught_up=True, accept_moved=moved, **settings
        )
        running.to_the_end()
        return running

    def move(self, root: Path, copy) -> None:
        copy(self.root, root)
        shutil.rmtree(self.root)
        self.root = root

    def results(self) -> Counter[int]:
        lines = [line for path in (self.root / "out").glob("*.json") for line in path.read_text().split()]
        return Counter(json.loads(line)["k"] for line in lines)


def with_times(root: Path, to: Path) -> None:
    shutil.copytree(root, to)


def without_times(root: Path, to: Path) -> None:
    shutil.copytree(root, to, copy_function=shutil.copy)


@pytest.fixture
def place(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    return Place(spark, tmp_path / "a", "")


@pytest.mark.parametrize(("at", "copy"), [("", without_times), ("{root}/", with_times)])
def test_a_job_goes_on_with_its_files_at_another_path(place, tmp_path, at, copy):
    """Also one that was killed before its first tick there; and it needs the flags only once."""
    place.at = at
    place.put(3)
    place.run()
    place.move(tmp_path / "ä b%20+~#", copy)
    place.put(2)
    with pytest.raises(WatersmeetError, match=r"changed-query|source-moved") as caught:
        place.run()
    assert "--accept-moved l --accept-moved r" in str(caught.value)
    with killed_at_commit(pytest.MonkeyPatch(), 0), pytest.raises(EngineError, match="killed"):
        place.run("l", "r")
    notes: list[str] = []
    place.run("l", "r", on_notice=notes.append)
    assert sum("3 files that the job read in" in note for note in notes) == 2
    assert place.results() == Counter(range(5))
    place.put(1)
    place.run()
    assert place.results() == Counter(range(6))


@pytest.mark.parametrize("at", ["", "{root}/"])
def test_an_interrupted_tick_is_repeated_at_another_path(place, tmp_path, monkeypatch, at):
    """Its rows are in the sink, which knows them again. With another text it is refused before any change."""
    place.at = at
    place.put(2)
    place.run()
    place.put(2)
    with killed_at_commit(monkeypatch, 1), pytest.raises(EngineError, match="killed"):
        place.run()
    place.move(tmp_path / "b", with_times)
    if at:
        with pytest.raises(WatersmeetError, match=r"interrupted-tick.*'path': ") as caught:
            place.run("l", "r")
        assert f"{tmp_path}/a/in/l before" in str(caught.value)
        assert not list((place.root / "state").glob("spark.old*"))
        (tmp_path / "a").symlink_to(place.root)
        place.at = f"{tmp_path}/a/"
        place.run()
        place.at = at
    else:
        with killed_at_commit(monkeypatch, 0), pytest.raises(EngineError, match="killed"):
            place.run("l", "r")
    place.run("l", "r")
    place.put(1)
    place.run()
    assert place.results() == Counter(range(5))
