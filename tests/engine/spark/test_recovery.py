"""Spark's checkpoint lost, torn or swapped: mended, made anew from the state, or refused with what to do."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.engine.spark.running import Running
from tests.support.ordered_files import write_rows_file
from watersmeet.errors import EngineError, StateError
from watersmeet.runtime.spark.sources.files.progress import FileProgress
from watersmeet.sinks.memory import MemorySink

pytestmark = pytest.mark.spark

JOB = """
CREATE MAPPING l (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 0)
  TYPE File OPTIONS ('path' = '{path}/l', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE MAPPING r (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 0)
  TYPE File OPTIONS ('path' = '{path}/ä r', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE MAPPING out TYPE Memory;
INSERT INTO out SELECT l.k, r.t FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t AND l.t + 5;
"""


class Files:
    """Two sources of files of one row each, and the job over them."""

    def __init__(self, spark, path: Path) -> None:
        self.spark, self.path, self.checkpoint = spark, path, path / "checkpoint"
        self.put_so_far = 0
        for name in ("l", "ä r"):
            (path / name).mkdir()

    def put(self, count: int) -> None:
        for number in range(self.put_so_far, self.put_so_far + count):
            for name in ("l", "ä r"):
                write_rows_file(
                    self.path / name / f"file {number:03}.json", number, [{"k": number, "t": number}]
                )
        self.put_so_far += count

    def run(self, **settings) -> Running:
        running = Running(
            self.spark, JOB.format(path=self.path), self.checkpoint, until_caught_up=True, **settings
        )
        running.to_the_end()
        return running

    def rows(self) -> Counter[int]:
        return Counter(row["k"] for row in MemorySink.rows("out"))

    def all_rows(self) -> Counter[int]:
        return Counter(range(self.put_so_far))

    def logs(self) -> dict[str, list[str]]:
        folder = self.checkpoint / "spark"
        return {
            str(file.relative_to(folder)): sorted(file.read_text().splitlines())
            for file in (*folder.glob("sources/*/*"), *folder.glob("offsets/*"), folder / "metadata")
        }


@pytest.fixture
def files(spark, tmp_path):
    MemorySink.clear()
    yield Files(spark, tmp_path)
    MemorySink.clear()


def test_the_checkpoint_is_rebuilt_as_spark_has_it(files):
    """Also over compactions of Spark's log, its and ours; nothing is read twice, nothing is left out."""
    files.put(13)
    files.run()
    before = files.logs()
    shutil.rmtree(files.checkpoint / "spark")
    with pytest.raises(StateError) as refused:
        files.run()
    assert refused.value.code == "spark-checkpoint-lost"
    assert "--rebuild-spark-checkpoint" in refused.value.hint
    notes: list[str] = []
    result = files.run(rebuild=True, on_notice=notes.append)
    assert result.ticks == []
    assert any("rebuilt" in note for note in notes)
    after = files.logs()
    assert {name for name in after if name.startswith("sources")} == {
        f"sources/{source}/{name}" for source in (0, 1) for name in ("9.compact", "10", "11", "12")
    }
    assert after.pop("offsets/11")
    assert {name: before[name] for name in after} == after
    assert files.rows() == files.all_rows()
    files.put(8)  # another compaction
    files.run()
    assert files.rows() == files.all_rows()
    result = files.run(rebuild=True)
    assert list(files.checkpoint.glob("spark.old-*")), "the old one is kept"
    assert result.ticks == []
    files.put(1)
    files.run()
    assert files.rows() == files.all_rows()
    manifest = max((files.checkpoint / "state/manifests").iterdir()).read_text()
    assert "file%20" not in manifest, "the manifest itself holds no lists"


def torn_offsets(spark: Path) -> None:
    (spark / "offsets/2").write_text("v1\n{")


def no_log(spark: Path) -> None:
    (spark / "sources/1/1").unlink()


def empty_log(spark: Path) -> None:
    (spark / "sources/0/2").write_bytes(b"")


def older_log(spark: Path) -> None:
    shutil.copy(spark / "sources/0/1", spark / "sources/0/2")


def older_offsets(spark: Path) -> None:
    shutil.copy(spark / "offsets/1", spark / "offsets/2")


def another_file(spark: Path) -> None:
    path = spark / "sources/0/0"
    path.write_text(path.read_text().replace("000.json", "00x.json"))


def cut_metadata(spark: Path) -> None:
    (spark / "metadata").write_bytes(b"")


@pytest.mark.parametrize(
    "damage",
    [
        torn_offsets,
        no_log,
        *(
            pytest.param(damage, marks=pytest.mark.full)
            for damage in (empty_log, older_log, older_offsets, another_file)
        ),
        cut_metadata,
    ],
    ids=lambda f: f.__name__,
)
def test_damage_is_refused_and_rebuilt(files, damage):
    files.put(3)
    files.run()
    damage(files.checkpoint / "spark")
    files.put(1)
    with pytest.raises(StateError) as refused:
        files.run()
    assert refused.value.code in ("spark-checkpoint-damaged", "spark-checkpoint-lost")
    assert "--rebuild-spark-checkpoint" in refused.value.hint
    files.run(rebuild=True)
    assert files.rows() == files.all_rows()


def test_torn_commits_and_what_was_only_planned_are_mended(files):
    files.put(3)
    files.run()
    spark = files.checkpoint / "spark"
    (spark / "commits/2").write_bytes(b"")
    notes: list[str] = []
    files.run(on_notice=notes.append)
    assert "commits of batches [2]" in notes[0]
    assert files.rows() == files.all_rows()
    (spark / "offsets/3").write_bytes(b"")
    (spark / "sources/0/3").write_bytes(b"v1")
    files.put(1)
    files.run(on_notice=notes.append)
    assert files.rows() == files.all_rows()
    assert any("was planned" in note for note in notes)


@pytest.mark.parametrize("committed", [0, 1])
def test_planned_batch_with_damaged_settings_is_planned_again(files, committed):
    """Spark would end with `None.get`, or go on with another setting."""
    spark = files.checkpoint / "spark"
    files.put(1)
    files.run()
    text = (spark / "offsets/0").read_text()
    if not committed:  # as if the first batch had only been planned
        MemorySink.clear()
        for folder in (files.checkpoint / "state", spark / "commits"):
            shutil.rmtree(folder)
    planned = spark / "offsets" / str(committed)
    planned.write_text(text.replace("shuffle.partitions", "shuffle.partithons"))
    files.put(1)
    notes: list[str] = []
    files.run(on_notice=notes.append)
    assert any("planned" in note for note in notes)
    assert files.rows() == files.all_rows()


def test_what_was_planned_before_the_first_tick_is_mended(files):
    files.put(1)
    spark = files.checkpoint / "spark"
    (spark / "offsets").mkdir(parents=True)
    (spark / "metadata").write_text('{"id":"c5bb6d01-cf0c-44e9-a1d1-5b3e7c7f0f02"}')
    (spark / "offsets/0").write_bytes(b"")
    files.run()
    assert files.rows() == files.all_rows()


def test_a_checkpoint_without_a_state_cannot_be_rebuilt(files):
    files.put(1)
    with pytest.raises(StateError, match="no state"):
        files.run(rebuild=True)
    files.run()
    shutil.rmtree(files.checkpoint / "state")
    with pytest.raises(StateError) as refused:
        files.run(rebuild=True)
    assert refused.value.code == "state-lost"


def test_a_damaged_list_of_files_is_refused(files):
    files.put(1)
    files.run()
    (name,) = (files.checkpoint / "state/files").iterdir()
    name.write_bytes(name.read_bytes().replace(b"000.json", b"001.json"))
    with pytest.raises(StateError) as refused:
        files.run()
    assert refused.value.code == "state-damaged"


ONE = """
CREATE MAPPING s (k BIGINT, _p STRING, t BIGINT, WATERMARK FOR t AS t - 1000)
  TYPE File OPTIONS ('path' = '{path}/in', 'format' = 'json', 'on_changed_file' = '{mode}');
CREATE MAPPING out TYPE Memory;
INSERT INTO out SELECT k, _p FROM s;
"""


def test_old_files_are_read_and_changed_files_are_reported(spark, tmp_path):
    """6 rows of 6, though one file is a month older; then one grows, and one has a name that is a pattern."""
    MemorySink.clear()
    folder, now, day = tmp_path / "in", 1.7e9, 86_400

    def write_keys(name: str, *keys: int, changed: float = now) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"k": key, "t": key}) + "\n" for key in keys))
        os.utime(path, (changed, changed))
        return path

    def run(mode: str = "fail"):
        text = ONE.format(path=tmp_path, mode=mode)
        return Running(spark, text, tmp_path / "checkpoint", until_caught_up=True).to_the_end()

    def expect_error(code: str, path: Path) -> None:
        with pytest.raises(EngineError) as error:
            run()
        assert (error.value.code, str(path) in error.value.message) == (code, True)

    def keys() -> list[int]:
        return sorted(row["k"] for row in MemorySink.rows("out"))

    plain = write_keys("new.json", 1, 2)
    write_keys("_p=1/old.json", 3, 4, changed=now - 30 * day)
    for name in ("_hidden.json", "copied.json._COPYING_", "_hidden/x.json"):
        write_keys(name, 9)
    in_partition = write_keys("_p=1/5.json", 5, changed=now - 400 * day)
    write_keys("_p=b c/6.json", 6)
    expect_error("file-unread", plain)  # Spark would read the partitions alone
    expect_error("file-unread", plain)
    plain.rename(folder / "_p=b c" / "new.json")
    run()
    assert keys() == [1, 2, 3, 4, 5, 6]
    assert {row["_p"] for row in MemorySink.rows("out")} == {"1", "b c"}

    write_keys("_p=1/5.json", 5, 7, changed=now + 5)
    expect_error("file-changed", in_partition)
    changed = run("warn").changed
    assert (changed["s"].files, changed["s"].names) == (1, [str(in_partition)])
    assert keys() == [1, 2, 3, 4, 5, 6]
    write_keys("_p=3/later.json", 8)
    assert run("warn").changed["s"].files == 1
    assert run().changed["s"].files == 1, "as it is now it is known"
    assert keys() == [1, 2, 3, 4, 5, 6, 8]

    too_old = write_keys("_p=3/older than that.json", 10, changed=-day)
    expect_error("file-unread", too_old)
    os.utime(too_old, (now, now))
    run()
    assert keys() == [1, 2, 3, 4, 5, 6, 8, 10]
    MemorySink.clear()


def test_a_file_that_vanished_is_counted_by_later_runs_too(spark, tmp_path, monkeypatch):
    """Also where nothing was ever read; until it is."""
    MemorySink.clear()
    path, start = tmp_path / "in" / "1.json", FileProgress.start
    path.parent.mkdir()

    def run(**settings):
        text = ONE.format(path=tmp_path, mode="warn")
        running = Running(spark, text, tmp_path / "checkpoint", until_caught_up=True, **settings)
        return running.to_the_end().changed

    def start_then_delete(self, *given):
        start(self, *given)
        path.unlink()

    path.write_text('{"k": 1, "t": 1}\n')
    with monkeypatch.context() as patched:
        patched.setattr(FileProgress, "start", start_then_delete)
        assert run()["s"].names == [str(path)]
    assert run()["s"].files == 1
    path.write_text('{"k": 1, "t": 1}\n')
    assert run()["s"].files == 0
    assert [row["k"] for row in MemorySink.rows("out")] == [1]
    path = path.with_name("2.json")
    path.write_text('{"k": 2, "t": 2}\n')
    with monkeypatch.context() as patched:
        patched.setattr(FileProgress, "start", start_then_delete)
        assert run(finish=True)["s"].files == 1
    assert run(finish=True)["s"].names == [str(path)]
    MemorySink.clear()


def test_a_file_whose_name_is_a_pattern_and_that_spark_has_listed(files, monkeypatch):
    """Nothing of its tick goes out; under another name it is read as if nothing had been."""
    files.put(2)
    odd = files.path / "l" / "file[00]2.json"
    start = FileProgress.start

    def comes_later(self, *given):
        start(self, *given)
        odd.write_text('{"k": 2, "t": 2}\n')
        (files.path / "ä r" / "2.json").write_text('{"k": 2, "t": 2}\n')

    files.put_so_far = 3
    monkeypatch.setattr(FileProgress, "start", comes_later)
    with pytest.raises(EngineError) as refused:
        files.run()
    assert (refused.value.code, str(odd) in refused.value.message) == ("file-name", True)
    monkeypatch.undo()
    with pytest.raises(EngineError, match=r"file\[00\]2"):
        files.run()
    odd.rename(odd.with_name("renamed.json"))
    notes: list[str] = []
    files.run(on_notice=notes.append)
    assert any("reads as a pattern" in note for note in notes)
    assert files.rows() == files.all_rows()
