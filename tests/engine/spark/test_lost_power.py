"""The power goes: of the checkpoint and the sink only what was put on disk is left, and the job goes on."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections import Counter
from pathlib import Path

import pytest

from tests.engine.spark.running import Running
from tests.support.ordered_files import write_rows_file
from watersmeet.runtime.spark.tick.tick import SparkTicks
from watersmeet.sinks.file_sink import FileSink

pytestmark = pytest.mark.spark

JOB = """
CREATE MAPPING l (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 0)
  TYPE File OPTIONS ('path' = '{path}/l', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE MAPPING r (k BIGINT, t BIGINT, WATERMARK FOR t AS t - 0)
  TYPE File OPTIONS ('path' = '{path}/r', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE MAPPING out TYPE File OPTIONS ('path' = '{out}', 'format' = 'json');
INSERT INTO out SELECT l.k, r.t FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t AND l.t + 5;
"""


class Disk:
    """What this process has put on disk: contents of files and names in folders as they were synced.

    What tasks write (files of state, parts that are staged) other processes sync: such files are taken as
    they are. All of Spark's own, manifests and the small files of the checkpoint have to be synced here.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = str(root)
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, int]] = {}
        self._open: list[int] = []  # so that no number of a file is used again
        real = os.fsync

        def fsync(handle: int) -> None:
            real(handle)
            self._record(handle)

        monkeypatch.setattr(os, "fsync", fsync)

    def _record(self, handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if not path.startswith(self.root):
            return
        found = os.fstat(handle)
        self._open.append(os.dup(handle))
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(path) as entries:
                self._folders[found.st_ino] = {entry.name: entry.inode() for entry in entries}
        else:
            self._files[found.st_ino] = Path(path).read_bytes()

    def after_power_loss(self, folder: Path, to: Path, *, others: tuple[str, ...] = ()) -> None:
        """Make what is left of ``folder``; ``others``: folders in it whose files other processes sync."""
        to.mkdir()
        self._restore(folder, to, {str(folder / name) for name in others})

    def _restore(self, folder: Path, to: Path, others: set[str]) -> None:
        known = self._folders.get(os.stat(folder).st_ino, {})
        theirs = str(folder) in others
        with os.scandir(folder) as entries:
            for entry in entries:
                if not theirs and known.get(entry.name) != entry.inode():
                    continue
                if entry.is_dir():
                    (to / entry.name).mkdir()
                    self._restore(
                        Path(entry.path), to / entry.name, others | ({entry.path} if theirs else set())
                    )
                elif theirs:
                    shutil.copyfile(entry.path, to / entry.name)
                else:  # its name is on disk; what is in it, as far as it was synced
                    (to / entry.name).write_bytes(self._files.get(entry.inode(), b""))

    def close(self) -> None:
        for handle in self._open:
            os.close(handle)


def rows_in(out: Path) -> Counter[int]:
    return Counter(
        json.loads(line)["k"]
        for file in out.glob("*.json")
        if not file.parent.name.startswith("_")
        for line in file.read_text().splitlines()
    )


TASKS = ("state/runs", "state/work", "state/marks", "state/aside")


@pytest.fixture
def lost(spark, tmp_path, monkeypatch):
    """A job of four ticks, and what was left of it at each of its steps: (step, checkpoint, sink)."""
    for number in range(4):
        for name in ("l", "r"):
            path = tmp_path / name / f"{number}.json"
            path.parent.mkdir(exist_ok=True)
            write_rows_file(path, number, [{"k": number, "t": number}])
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    disk, left = Disk(tmp_path, monkeypatch), []

    def snapshot(step: str) -> None:
        to = tmp_path / "left" / step
        to.mkdir(parents=True)
        disk.after_power_loss(checkpoint, to / "checkpoint", others=TASKS)
        shutil.copytree(out, to / "out")
        left.append((step, to))

    publish, run = FileSink.publish, SparkTicks.run

    def publish_and_snapshot(self, insert, tick, *rest):
        found = publish(self, insert, tick, *rest)
        snapshot(f"published {tick}")
        return found

    def run_and_snapshot(self, driver, *args):
        result = run(self, driver, *args)
        snapshot(f"committed {driver.tick}")
        return result

    with monkeypatch.context() as patched:
        patched.setattr(FileSink, "publish", publish_and_snapshot)
        patched.setattr(SparkTicks, "run", run_and_snapshot)
        Running(spark, JOB.format(path=tmp_path, out=out), checkpoint, until_caught_up=True).to_the_end()
    disk.close()
    monkeypatch.undo()
    assert rows_in(out) == Counter(range(4))
    return left


def test_no_row_is_lost_or_doubled_whenever_the_power_goes(spark, tmp_path, lost):
    expected = Counter(range(4))
    tried = dict(lost)
    assert {"published 1", "committed 1", "published 3", "committed 4"} <= tried.keys()
    for step in ("published 1", "committed 1", "published 3", "committed 4"):
        found = tried[step] / "checkpoint"
        assert list(found.glob("state/manifests/*")) or step == "published 1"
        assert (found / "spark/offsets" / str(int(step[-1]) - 1)).stat().st_size, "of this batch"
        shutil.rmtree(tmp_path / "checkpoint")
        shutil.rmtree(tmp_path / "out")
        shutil.copytree(found, tmp_path / "checkpoint")
        shutil.copytree(tried[step] / "out", tmp_path / "out")
        text, notes = JOB.format(path=tmp_path, out=tmp_path / "out"), []
        run = Running(spark, text, tmp_path / "checkpoint", until_caught_up=True, on_notice=notes.append)
        run.to_the_end()
        assert rows_in(tmp_path / "out") == expected, (step, notes)


def test_simulated_disk_loses_unsynced_data(tmp_path, monkeypatch):
    """That the disk of these tests forgets."""
    disk = Disk(tmp_path, monkeypatch)
    folder = tmp_path / "x"
    folder.mkdir()
    for name in ("whole", "named", "nameless"):
        (folder / name).write_text(name)
    for name in ("whole", "nameless"):
        with open(folder / name) as file:
            os.fsync(file.fileno())
    (folder / "nameless").rename(folder / "renamed")
    handle = os.open(folder, os.O_RDONLY)
    (folder / "renamed").rename(folder / "nameless")
    (folder / "nameless").rename(tmp_path / "elsewhere")
    os.fsync(handle)
    os.close(handle)
    (tmp_path / "elsewhere").rename(folder / "nameless")
    (folder / "whole").write_text("more")
    disk.after_power_loss(folder, tmp_path / "left")
    disk.close()
    assert {path.name: path.read_text() for path in (tmp_path / "left").iterdir()} == {
        "whole": "whole",
        "named": "",
    }
