"""``watersmeet state ls, check, gc, copy, restore`` and ``stop``: without Spark."""

from __future__ import annotations

import json
import shutil
import threading
import time
from functools import partial
from pathlib import Path

import pytest

import watersmeet as package
from tests.support.small_disk import small_disk
from watersmeet.cli.state_commands.maintenance import _clean_up_on_failure, copy_state, free_place
from watersmeet.cli.state_commands.show import StateLocation
from watersmeet.errors import StateError
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, Intent
from watersmeet.state.manifest import load_newest, manifest_names

JOB = """
CREATE TABLE a (k INT, t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'file', 'path' = 'in/a');
CREATE TABLE b (k INT, t BIGINT, WATERMARK FOR t AS t - 5) WITH ('connector' = 'file', 'path' = 'in/b');
CREATE TABLE out WITH ('connector' = 'file', 'path' = 'out');
CREATE TABLE topic WITH ('connector' = 'kafka', 'bootstrap.servers' = 'x:1', 'topic' = 'y');
CREATE TABLE late WITH ('connector' = 'file', 'path' = 'late');
SET late_output = late;
INSERT INTO out SELECT a.k, a.t, b.t AS u FROM a LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 50;
INSERT INTO topic SELECT a.k FROM a;
"""


class Ran:
    """A job with a checkpoint directory, and what each of its ticks put out."""

    def __init__(self, root: Path, keep: int) -> None:
        self.keep, self.checkpoint = keep, Checkpoint(root / ".watersmeet" / "job")
        with self.checkpoint.lock():
            self.owner = self.checkpoint.owner()
        (root / "job.sql").write_text(JOB)
        (self.checkpoint.spark / "offsets").mkdir(parents=True)
        self.out: dict[int, object] = {}

    def opened(self, checkpoint: Checkpoint | None = None) -> LocalJob:
        store = (checkpoint or self.checkpoint).store
        plan = package.plan_job(package.parse_job(JOB))
        return LocalJob(
            plan,
            store,
            settings=TickSettings(keep_ticks=self.keep),
            drive=partial(TickDriver, owner=self.owner),
        )

    def run(self, until: int, checkpoint: Checkpoint | None = None) -> dict[int, object]:
        job = self.opened(checkpoint)
        out: dict[int, object] = {}
        for tick in range(job.driver.tick + 1, until + 1):
            rows = [({"k": n, "t": tick * 20 + n}, 1) for n in range(6)]
            output = job.tick({"a": rows, "b": rows[tick % 3 :]}, clock_us=tick)
            out[tick] = (output.rows, output.result.queries["out"].state)
        return out

    def files(self) -> list[Path]:
        return sorted(self.checkpoint.state.glob("runs/*"))


@pytest.fixture
def recorded_job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Ran(tmp_path, 5)
    made.out = made.run(9)
    return made


def names(root: Path) -> set[str]:
    return {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}


@pytest.mark.parametrize("named", ["job.sql", ".watersmeet/job"])
def test_ticks_are_listed(watersmeet, recorded_job, named):
    told = json.loads(watersmeet("state", "ls", named, "--json").out)
    assert [tick["tick"] for tick in told] == [5, 6, 7, 8, 9]
    manifest = load_newest(recorded_job.checkpoint.store)
    assert told[-1]["files"] == len({live.run.name for live in manifest.runs()}) > 0
    assert told[-1]["rows"] == sum(recorded_job.out[9][1].values()) > 0
    assert "Restorable ticks" in watersmeet("state", "ls", named).out


def test_all_is_well(watersmeet, recorded_job):
    found = watersmeet("state", "check", "job.sql")
    assert (found.status, found.err) == (0, "")
    assert "checked 5 ticks" in found.out
    assert "match their checksums" in found.out


@pytest.mark.parametrize("how", ["missing", "flipped", "manifest", "older manifest", "job"])
def test_damage_is_found_and_all_of_it(watersmeet, recorded_job, how):
    needed = sorted(load_newest(recorded_job.checkpoint.store).files())
    damaged = [recorded_job.checkpoint.state / name for name in needed if name.startswith("runs/")][:2]
    if how == "manifest":
        damaged = [recorded_job.checkpoint.state / manifest_names(recorded_job.checkpoint.store)[-1]]
    if how == "older manifest":
        damaged = [recorded_job.checkpoint.state / manifest_names(recorded_job.checkpoint.store)[0]]
    if how == "job":
        damaged = [recorded_job.checkpoint.root / "job"]
    for file in damaged:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.chmod(0o600)
        file.unlink() if how == "missing" else file.write_bytes(content)
    found = watersmeet("state", "check", "job.sql")
    assert (found.status, found.err) == (1, "")
    for file in damaged:
        assert file.name in found.out
    assert "as it was written" not in found.out


def test_orphans_go_and_nothing_else(watersmeet, recorded_job):
    before = names(recorded_job.checkpoint.root)
    for name in ("runs/orphan.arrow", "marks/orphan", "work/3-x"):
        recorded_job.checkpoint.store.write(name, b"x")
    found = watersmeet("state", "check", "job.sql")
    assert (found.status, "3 files that no restorable tick needs" in found.out) == (0, True)
    assert watersmeet("state", "gc", "job.sql").out == "removed 3 files\n"
    assert names(recorded_job.checkpoint.root) == before
    assert recorded_job.run(12) == run_untouched_copy(recorded_job, 12)


def run_untouched_copy(recorded_job, until):
    """What a job puts out after tick 9 that never had anything done to its state."""
    out = recorded_job.run(until, Checkpoint(recorded_job.checkpoint.root.parent / "untouched"))
    return {tick: rows for tick, rows in out.items() if tick > 9}


def test_what_an_interrupted_tick_left_is_not_garbage(watersmeet, recorded_job):
    recorded_job.checkpoint.store.write("work/10-x-00.json", b"x")
    refused = watersmeet("state", "gc", "job.sql")
    assert (refused.status, "tick 10 was interrupted" in refused.err) == (2, True)
    assert (recorded_job.checkpoint.state / "work" / "10-x-00.json").exists()


def test_nothing_is_changed_while_the_job_runs(watersmeet, recorded_job):
    before = names(recorded_job.checkpoint.root)
    with recorded_job.checkpoint.lock():
        for command in (["gc", "job.sql"], ["restore", "job.sql", "--tick", "7", "--yes"]):
            refused = watersmeet("state", *command)
            assert (refused.status, "another run of the job" in refused.err) == (2, True)
    assert names(recorded_job.checkpoint.root) == before


def test_a_copy_goes_on_as_the_original(watersmeet, recorded_job):
    found = watersmeet("state", "copy", "job.sql", "copies/one")
    assert (found.status, found.err) == (0, "")
    assert "copied tick 9" in found.out
    copied = Checkpoint("copies/one")
    assert copied.owner() == recorded_job.owner
    assert load_newest(copied.store) == load_newest(recorded_job.checkpoint.store)
    assert watersmeet("state", "check", "copies/one").status == 0
    assert recorded_job.run(12, copied) == recorded_job.run(12) == run_untouched_copy(recorded_job, 12)
    refused = watersmeet("state", "copy", "job.sql", "copies/one")
    assert (refused.status, "is not empty" in refused.err) == (2, True)


def test_a_copy_of_a_damaged_state_is_none(watersmeet, recorded_job):
    recorded_job.files()[-1].unlink()
    refused = watersmeet("state", "copy", "job.sql", "copy")
    assert (refused.status, "is missing" in refused.err) == (2, True)
    assert manifest_names(Checkpoint("copy").store) == []


def test_a_place_is_free_again_after_a_copy_that_came_to_nothing(watersmeet, recorded_job, tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        disk.fill(leave=8192)
        full = watersmeet("state", "copy", "job.sql", str(disk.path / "copy"))
        assert (full.status, "No space left" in full.err) == (2, True)
        disk.make_room()
        assert watersmeet("state", "copy", "job.sql", str(disk.path / "copy")).status == 0
        taken = watersmeet("state", "copy", "job.sql", str(disk.path / "copy"))
        assert (taken.status, "not-empty" in taken.err) == (2, True)
        assert watersmeet("state", "check", str(disk.path / "copy")).status == 0


@pytest.mark.parametrize("to", [".watersmeet/job/copy", ".watersmeet/job/state/../state/copy"])
def test_a_copy_is_not_made_within_what_is_copied(watersmeet, recorded_job, to):
    """A reset would take it away."""
    for command in (["state", "copy"], ["state", "export"], ["stop", "--savepoint", to]):
        command = [*command, "job.sql", *([] if "stop" in command else [to])]
        refused = watersmeet(*command)
        assert (refused.status, "not-outside" in refused.err) == (2, True)
    assert not Path(to).exists()


def test_of_two_copies_into_one_place_the_first_stays(recorded_job, tmp_path):
    """The second one had found the place empty, and then had to wait."""
    place, to = StateLocation.of(recorded_job.checkpoint.root, None, Path()), str(tmp_path / "copy")
    with free_place(place, to):
        list(copy_state(place, to))
    whole = names(tmp_path / "copy")
    with pytest.raises(StateError, match="is not empty"), _clean_up_on_failure(Checkpoint(to)):
        raise AssertionError
    assert names(tmp_path / "copy") == whole


def test_a_place_may_be_a_url_of_files(watersmeet, recorded_job, tmp_path):
    copied_to = watersmeet("state", "copy", "job.sql", f"file://{tmp_path}/a%20copy")
    assert (copied_to.status, copied_to.err) == (0, "")
    assert (
        load_newest(Checkpoint(tmp_path / "a copy").store).tick
        == load_newest(recorded_job.checkpoint.store).tick
    )


def test_a_running_job_can_be_copied(watersmeet, recorded_job):
    """It deletes files while they are copied; what comes out is one of its ticks, whole."""
    recorded_job.keep = 2
    goes_on = threading.Event()

    def run():
        tick = 9
        while not goes_on.is_set():
            tick += 1
            recorded_job.run(tick)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for number in range(10):
            found = watersmeet("state", "copy", ".watersmeet/job", f"copy{number}")
            assert found.status == 0, found.err
            assert watersmeet("state", "check", f"copy{number}").status == 0
            assert watersmeet("state", "check", ".watersmeet/job").status == 0
    finally:
        goes_on.set()
        thread.join()
    ticks = [load_newest(Checkpoint(f"copy{number}").store).tick for number in range(10)]
    assert ticks == sorted(ticks)
    assert ticks[-1] > ticks[0]


@pytest.mark.parametrize("tick", [5, 7, 8])
def test_going_back_makes_the_same_ticks_again(watersmeet, recorded_job, tick):
    recorded_job.checkpoint.intend(Intent(10, 1, False))
    found = watersmeet("state", "restore", "job.sql", "--tick", tick, "--yes")
    assert (found.status, found.err) == (0, "")
    assert 'sink "out" (file): run once with --replace-newer-files' in found.out
    assert 'sink "late" (file): run once with --replace-newer-files' in found.out
    assert 'sink "topic" (kafka): it has the rows of later ticks: restore it to the same moment' in found.out
    assert not recorded_job.checkpoint.spark.exists()
    assert recorded_job.checkpoint.intent() is None
    assert watersmeet("state", "check", "job.sql").status == 0
    assert recorded_job.run(9) == {number: out for number, out in recorded_job.out.items() if number > tick}


def test_restore_requires_confirmation_and_a_retained_tick(watersmeet, recorded_job):
    before = names(recorded_job.checkpoint.root)
    refused = watersmeet("state", "restore", "job.sql", "--tick", "7")
    assert (refused.status, "there is no terminal" in refused.err) == (2, True)
    for tick, why in (("3", "is not kept"), ("9", "is already that of tick 9"), ("10", "is not kept")):
        refused = watersmeet("state", "restore", "job.sql", "--tick", tick, "--yes")
        assert (refused.status, why in refused.err) == (2, True)
    assert names(recorded_job.checkpoint.root) == before


def test_one_does_not_go_back_to_what_is_damaged(watersmeet, recorded_job):
    gone = next(n for n in manifest_names(recorded_job.checkpoint.store) if n.endswith("7.json"))
    only = package.state.manifest.load(recorded_job.checkpoint.store, gone).files()
    newest = load_newest(recorded_job.checkpoint.store).files()
    (recorded_job.checkpoint.state / sorted(only - newest)[0]).unlink()
    refused = watersmeet("state", "restore", "job.sql", "--tick", "7", "--yes")
    assert (refused.status, "is missing" in refused.err) == (2, True)
    assert load_newest(recorded_job.checkpoint.store).tick == 9
    assert recorded_job.checkpoint.spark.exists()


def test_stop_asks_the_run_that_holds_the_directory(watersmeet, recorded_job):
    entered, done = threading.Event(), []

    def run():
        with recorded_job.checkpoint.lock():
            recorded_job.checkpoint.forget_stop()
            assert not recorded_job.checkpoint.is_stop_requested()
            entered.set()
            while not recorded_job.checkpoint.is_stop_requested():
                time.sleep(0.01)
            recorded_job.run(10)
            done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    entered.wait()
    found = watersmeet("stop", "job.sql", "--savepoint", "my saved")
    thread.join()
    assert (found.status, found.err, done) == (0, "", [True])
    stopped, copied, run, _ = found.out.splitlines()
    assert (stopped, copied[:14]) == ("Stopped.", "copied tick 10")
    command = f"watersmeet run job.sql --checkpoint '{Path('my saved').resolve()}' --rebuild-spark-checkpoint"
    assert run == f"To go on from the copy: {command}"
    assert not recorded_job.checkpoint.is_stop_requested()
    assert load_newest(Checkpoint("my saved").store).tick == 10


def test_the_copy_of_a_running_job_names_the_flag_for_newer_files(watersmeet, recorded_job):
    with recorded_job.checkpoint.lock():
        found = watersmeet("state", "copy", "job.sql", "copied")
    assert (found.status, "--rebuild-spark-checkpoint --replace-newer-files\n" in found.out) == (0, True)


@pytest.mark.parametrize("to", ["job.sql/saved", "/proc/saved"])
def test_a_run_is_not_stopped_for_a_savepoint_that_cannot_be_made(watersmeet, recorded_job, to):
    with recorded_job.checkpoint.lock():
        recorded_job.checkpoint.forget_stop()
        refused = watersmeet("stop", "job.sql", "--savepoint", to)
        assert (refused.status, refused.out) == (2, "")
        assert "checkpoint-not-writable" in refused.err
        assert "--checkpoint" not in refused.err
        assert not recorded_job.checkpoint.is_stop_requested()
    copied = watersmeet("state", "copy", "job.sql", to)
    assert (copied.status, "use a directory that you may write to" in copied.err) == (2, True)


def test_a_request_is_of_one_run_alone(recorded_job):
    """A supervisor starts the next run at once: it goes on."""
    other = Checkpoint(recorded_job.checkpoint.root)
    with recorded_job.checkpoint.lock():
        run = other.holder()
        assert run is not None
        other.ask_to_stop(run)
        recorded_job.checkpoint.forget_stop()  # as at the start of a run: asked in between is asked
        assert recorded_job.checkpoint.is_stop_requested()
    assert other.holder() is None
    with other.lock():
        assert not other.is_stop_requested()
        other.forget_stop()
        assert not (recorded_job.checkpoint.root / "stop").exists()


def test_looking_who_holds_a_directory_stops_no_run_that_begins(recorded_job):
    stop = threading.Event()

    def look():
        while not stop.is_set():
            recorded_job.checkpoint.holder()

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            with Checkpoint(recorded_job.checkpoint.root).lock():
                pass
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_stop_of_what_does_not_run(watersmeet, recorded_job):
    found = watersmeet("stop", "job.sql")
    assert (found.status, "nothing to stop" in found.out) == (0, True)
    with recorded_job.checkpoint.lock():
        refused = watersmeet("stop", "job.sql", "--timeout", "0.2")
    assert (refused.status, "did not stop" in refused.err) == (2, True)


def test_what_is_mounted_read_only_can_be_looked_at_and_copied(watersmeet, recorded_job, tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        shutil.copytree(".watersmeet/job", disk.path / "job")
        disk.allow_writing(False)
        at = str(disk.path / "job")
        for command in (
            ["ls", at],
            ["check", at],
            ["copy", at, "copied"],
            ["show", "job.sql", "--checkpoint", at],
        ):
            found = watersmeet("state", *command)
            assert (found.status, found.err) == (0, ""), command
        assert watersmeet("state", "check", "copied").status == 0
        assert "nothing to stop" in watersmeet("stop", at).out
        refused = watersmeet("state", "gc", at)
        assert (refused.status, "checkpoint-not-writable" in refused.err) == (2, True)


@pytest.mark.parametrize("command", ["show .watersmeet/job", "export .watersmeet/job to"])
def test_what_needs_the_text_of_the_job_says_so(watersmeet, recorded_job, command):
    refused = watersmeet("state", *command.split())
    assert (refused.status, "no-job" in refused.err, "name the job's file" in refused.err) == (2, True, True)


@pytest.mark.parametrize(
    "command", ["ls x.sql", "check nothing.sql", "gc x", "copy job.sql to", "restore job.sql --tick 1 --yes"]
)
def test_no_state_is_an_error(watersmeet, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    Path("job.sql").write_text(JOB)
    Path("x.sql").write_text(JOB)
    found = watersmeet("state", *command.split())
    assert found.status == 2
    assert "Traceback" not in found.err
    assert not Path("to/state/manifests").exists() or not list(Path("to/state/manifests").iterdir())
    assert not Path(".watersmeet").exists()
