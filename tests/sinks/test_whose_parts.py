"""Whose a directory of parts is, and of which ticks: jobs that race for it, restored copies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sinks.test_files import BAG, ORIGIN, ROWS, Frame, prepare_sink, run_tick, visible
from watersmeet.errors import EngineError
from watersmeet.sinks import directory
from watersmeet.sinks.part_mark import Resumed

KNOWN = {"delivered": (2, ORIGIN)}


def catch_engine_error(call):
    with pytest.raises(EngineError) as raised:
        call()
    assert raised.value.hint
    return raised.value


def resume_after_tick(path, committed, **more):
    """The sink as a run finds it that goes on after this tick."""
    sink = prepare_sink(path, owner="state-1")
    try:
        return sink.resume(["delivered"], Resumed(committed, **more))
    finally:
        sink.close()


def publish_ticks(path, last):
    sink = prepare_sink(path, owner="state-1")
    for tick in range(1, last + 1):
        sink.write(Frame([{"k": "a", "v": tick}]), "delivered", tick, "a1")
        assert sink.publish("delivered", tick, "a1", ORIGIN)
    sink.close()


def test_parts_of_ticks_that_the_state_has_not_come_to_are_refused(tmp_path):
    """As after restoring a copy of the checkpoint: its next tick 3 would be taken for the one there."""
    publish_ticks(tmp_path, 4)
    before = visible(tmp_path)
    error = catch_engine_error(lambda: resume_after_tick(tmp_path, 2, last_parts=KNOWN))
    assert error.code == "sink-ahead"
    assert "tick 3" in error.message
    assert "tick 4" in error.message
    assert "--replace-newer-files" in error.hint
    error = catch_engine_error(lambda: resume_after_tick(tmp_path, 2, last_parts=KNOWN, pending=True))
    assert '"delivered" tick 4' in error.message
    assert visible(tmp_path) == before
    resume_after_tick(tmp_path, 3, last_parts={"delivered": (3, ORIGIN)}, set_aside=True)
    resume_after_tick(tmp_path, 2, last_parts=KNOWN, pending=True)


def test_later_parts_are_moved_away_and_not_deleted_on_request(tmp_path):
    publish_ticks(tmp_path, 4)
    (said,) = resume_after_tick(tmp_path, 2, last_parts=KNOWN, set_aside=True)
    assert "parts of" in said
    assert visible(tmp_path) == Counter([("a", 1), ("a", 2)])
    moved = [path.name for path in tmp_path.glob("_set_aside/*/*")]
    assert sorted(moved) == [
        "delivered-000000000003",
        "delivered-000000000003-00000.parquet",
        "delivered-000000000004",
        "delivered-000000000004-00000.parquet",
    ]
    assert resume_after_tick(tmp_path, 2, last_parts=KNOWN, set_aside=True) == []


def test_a_part_of_the_pending_tick_is_set_aside_as_well(tmp_path):
    publish_ticks(tmp_path, 3)
    resume_after_tick(tmp_path, 2, last_parts=KNOWN, pending=True, set_aside=True)
    assert visible(tmp_path) == Counter([("a", 1), ("a", 2)])


@pytest.mark.parametrize(
    "known", [None, {}, {"delivered": (1, ORIGIN)}, {"delivered": (2, {**ORIGIN, "offsets": "c"})}]
)
def test_parts_of_another_history_are_refused(tmp_path, known):
    """Of the same state, restored twice: the ticks count the same, the rows are others."""
    publish_ticks(tmp_path, 2)
    assert (
        catch_engine_error(lambda: resume_after_tick(tmp_path, 3, last_parts=known)).code
        == "sink-of-another-history"
    )


def test_whoever_reads_the_parts_may_move_them_away(tmp_path):
    publish_ticks(tmp_path, 3)
    (tmp_path / "delivered-000000000003-00000.parquet").unlink()
    assert resume_after_tick(tmp_path, 3, last_parts={"delivered": (3, ORIGIN)}) == []
    shutil.rmtree(tmp_path / "_ticks" / "delivered-000000000003")
    assert resume_after_tick(tmp_path, 3, last_parts={"delivered": (3, ORIGIN)}) == []


@pytest.mark.parametrize("damage", ["other", "missing", "flipped"])
def test_part_of_another_tick_with_the_same_number_is_rejected(tmp_path, damage):
    """The part of a run before a restore must not stand for a larger backlog."""
    first = prepare_sink(tmp_path, owner="state-1")
    run_tick(first, "a1")
    first.close()
    mark = tmp_path / "_ticks" / "delivered-000000000007" / "_tick"
    origin = ORIGIN
    if damage == "other":
        origin = {**ORIGIN, "offsets": "c"}
    elif damage == "missing":
        mark.unlink()
    else:
        mark.write_text(mark.read_text().replace("b", "c", 1))
    sink = prepare_sink(tmp_path, owner="state-1")
    sink.write(Frame(*ROWS, ROWS[0]), "delivered", 7, "a2")
    for call in (
        lambda: sink.check("delivered", 7, origin),
        lambda: sink.publish("delivered", 7, "a2", origin),
    ):
        error = catch_engine_error(call)
        assert error.code == "sink-of-another-tick"
        assert damage != "other" or "other offsets." in error.message
    assert visible(tmp_path) == BAG


def test_empty_directory_may_change_its_owner_when_nobody_is_there(tmp_path):
    first = prepare_sink(tmp_path, owner="state-1")
    assert catch_engine_error(lambda: prepare_sink(tmp_path, owner="state-2")).code == "sink-in-use"
    first.close()
    run_tick(prepare_sink(tmp_path, owner="state-2"), "a1")
    assert visible(tmp_path) == BAG


def test_directory_claimed_by_another_job_is_not_written(tmp_path):
    sink = prepare_sink(tmp_path, owner="state-1")
    (tmp_path / "_owner").write_text("state-2\n")
    sink.write(Frame(*ROWS), "delivered", 7, "a1")
    assert catch_engine_error(lambda: sink.publish("delivered", 7, "a1", ORIGIN)).code == "sink-taken"
    assert not visible(tmp_path)


def test_two_sinks_of_one_job_may_share_a_directory(tmp_path):
    one, other = prepare_sink(tmp_path, owner="state-1"), prepare_sink(tmp_path, owner="state-1")
    one.close()
    assert catch_engine_error(lambda: prepare_sink(tmp_path, owner="state-2")).code == "sink-in-use"
    other.close()
    prepare_sink(tmp_path, owner="state-2").close()


@pytest.mark.parametrize("without", ["locks", "links"])
def test_a_file_system_that_lacks_something_still_keeps_two_jobs_apart(tmp_path, monkeypatch, without):
    def lacking(*_):
        raise OSError(95, "Operation not supported")

    module, name = (directory.fcntl, "flock") if without == "locks" else (directory.os, "link")
    monkeypatch.setattr(module, name, lacking)
    first = prepare_sink(tmp_path, owner="state-1")
    assert catch_engine_error(lambda: prepare_sink(tmp_path, owner="state-2")).code in (
        "sink-of-another-run",
        "sink-in-use",
    )
    run_tick(first, "a1")
    first.close()
    run_tick(prepare_sink(tmp_path, owner="state-1"), "a2")
    assert visible(tmp_path) == BAG
    assert sorted(os.listdir(tmp_path)) == [
        "_owner",
        "_ticks",
        "delivered-000000000007-00000.parquet",
        "delivered-000000000007-00001.parquet",
    ]


RACER = """
import os, sys
from watersmeet.sinks.registry import make_sink
from watersmeet.errors import EngineError
from watersmeet.spec.model import Column, Sink
from watersmeet.types.sql_type import STRING
owner, root = sys.argv[1:]
print("ready", flush=True)
while line := sys.stdin.readline():
    sink = make_sink(Sink("out", "file", {"path": os.path.join(root, line.strip())}))
    try:
        sink.prepare((Column("k", STRING),), owner)
        print("in", flush=True)
    except EngineError as error:
        print(error.code, flush=True)
    sys.stdin.readline()
    sink.close()
    print("closed", flush=True)
"""


class Racer:
    """A process that takes directories when it is told to."""

    def __init__(self, owner: str, root: Path) -> None:
        self.owner = owner
        self.process = subprocess.Popen(
            [sys.executable, "-c", RACER, owner, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.heard() == "ready"

    def tell(self, text: str) -> None:
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def heard(self) -> str:
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_of_two_jobs_that_start_together_one_is_let_in(tmp_path):
    """Real processes, told at the same moment to take the same empty directory."""
    racers = [Racer(owner, tmp_path) for owner in ("state-1", "state-2")]
    try:
        for trial in range(100):
            for racer in racers:
                racer.tell(f"out-{trial}")
            found = {racer.heard(): racer.owner for racer in racers}
            assert set(found) == {"in", "sink-in-use"}, (trial, found)
            assert (tmp_path / f"out-{trial}" / "_owner").read_text() == f"{found['in']}\n"
            for racer in racers:
                racer.tell("over")
            assert [racer.heard() for racer in racers] == ["closed", "closed"]
    finally:
        for racer in racers:
            racer.kill()


def test_a_directory_is_free_again_when_its_run_was_killed(tmp_path):
    racer = Racer("state-1", tmp_path)
    racer.tell("out")
    assert racer.heard() == "in"
    assert catch_engine_error(lambda: prepare_sink(tmp_path / "out", owner="state-2")).code == "sink-in-use"
    racer.kill()
    prepare_sink(tmp_path / "out", owner="state-2").close()
