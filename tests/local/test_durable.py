"""A job over a store is killed between push and tick, and behind a tick whose output nobody got."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.local.joins import left_join
from watersmeet import MemoryStore, SpecError, StateError, local
from watersmeet.state.store import LocalStore

SPEC = left_join()


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"t": [t for t, _ in pairs], "k": [k for _, k in pairs]})


def test_what_was_pushed_and_not_ticked_is_pushed_again(tmp_path: Path) -> None:
    job = local.job(SPEC, store=tmp_path)
    job.push("left", rows((1, "a"), (2, "b")))
    job.tick(position={"read": 2})
    job.push("right", rows((3, "a")))
    job.close()  # killed before the tick
    again = local.job(SPEC, store=str(tmp_path))
    assert again.position == {"read": 2}
    assert again.tick().table.num_rows == 0
    again.push("right", rows((3, "a")))
    assert again.tick().table.to_pylist() == [{"k": "a", "u": 3}]


def test_restart_returns_the_last_undelivered_output(tmp_path: Path) -> None:
    job = local.job(SPEC, store=tmp_path)
    assert job.last is None
    job.push("left", rows((1, "a"), (2, "b")))
    job.push("right", rows((3, "a")))
    lost = job.tick(position=[1, 2])
    again = local.job(SPEC, store=tmp_path)
    last = again.last
    assert last is not None
    assert (last.tick, last.position, last.finished) == (1, [1, 2], False)
    assert last.table.equals(lost.table)
    assert last.watermarks == lost.watermarks
    again.push("left", rows((100, "c")))
    again.push("right", rows((100, "d")))
    assert again.tick().table.to_pylist() == [{"k": "b", "u": None}]
    again.push("left", rows((1, "late")))
    late = again.tick()
    third = local.job(SPEC, store=tmp_path).last
    assert third is not None
    assert third.late_tables["left"].equals(late.late_tables["left"])
    assert third.table.num_rows == 0
    assert third.table.schema == lost.table.schema
    job_end = local.job(SPEC, store=tmp_path).tick(end=True)
    finished = local.job(SPEC, store=tmp_path).last
    assert finished is not None
    assert finished.finished
    assert (
        finished.watermarks
        == job_end.watermarks
        == {"joined": {"left.t": float("inf"), "right.t": float("inf")}}
    )
    with pytest.raises(StateError, match="finished"):
        local.job(SPEC, store=tmp_path).tick()


def test_outputs_are_deleted_when_no_retained_tick_names_them(tmp_path: Path) -> None:
    job = local.job(SPEC, store=tmp_path)
    for number in range(5):
        job.push("left", rows((number, "a")))
        job.push("right", rows((number, "a")))
        job.tick()
    assert len(LocalStore(tmp_path).names("outputs")) == 2


def test_damaged_or_missing_output_is_refused(tmp_path: Path) -> None:
    job = local.job(SPEC, store=tmp_path)
    job.push("left", rows((1, "a")))
    job.push("right", rows((1, "a")))
    job.tick()
    (file,) = (tmp_path / "outputs").iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(StateError, match="damaged"):
        local.job(SPEC, store=tmp_path)
    file.unlink()
    with pytest.raises(StateError, match="missing"):
        local.job(SPEC, store=tmp_path)


def test_killed_at_every_write_of_a_tick() -> None:
    """The tick is there with its output, or it is not there, and can be done again with the same rows."""

    class Killed(BaseException):
        pass

    class Dying(MemoryStore):
        left = 10**9

        def _write(self) -> None:
            self.left -= 1
            if self.left < 0:
                raise Killed

        def write(self, *given: Any, **more: Any) -> None:
            self._write()
            super().write(*given, **more)

        def create(self, *given: Any) -> bool:
            self._write()
            return super().create(*given)

    wanted = [{"k": "a", "u": 3}]
    for writes in range(40):
        store = Dying()
        job = local.job(SPEC, store=store)
        job.push("left", rows((1, "a")))
        job.tick()
        job.push("right", rows((3, "a")))
        store.left = writes
        try:
            job.tick()
            done = True
        except Killed:
            done = False
        store.left = 10**9
        again = local.job(SPEC, store=store)
        last = again.last
        assert last is not None
        if last.tick == 1:
            again.push("right", rows((3, "a")))
            assert again.tick().table.to_pylist() == wanted
        else:
            assert last.table.to_pylist() == wanted
        if done:
            assert writes > 3
            return
    raise AssertionError("the tick never ended")


def test_of_tables_that_are_not_in_the_store(tmp_path: Path) -> None:
    text = (
        "CREATE TABLE a (t BIGINT, k INT, WATERMARK FOR t AS t) WITH ('connector' = 'memory');"
        "CREATE TABLE names (k INT, name STRING) WITH ('connector' = 'memory');"
        "SELECT a.t, n.name FROM a LEFT JOIN names FOR SYSTEM_TIME AS OF PROCTIME() n ON a.k = n.k"
    )
    job = local.job(text, store=tmp_path, tables={"names": [{"k": 1, "name": "one"}]})
    job.push("a", {"t": 1, "k": 1})
    job.push("names", pa.table({"k": [2], "name": ["two"]}))
    assert job.tick().table.to_pylist() == [{"t": 1, "name": "one"}]
    job.push("a", {"t": 2, "k": 2})
    assert job.tick().table.to_pylist() == [{"t": 2, "name": "two"}]
    with pytest.raises(SpecError, match="the store does not have"):
        local.job(text, store=tmp_path)


def test_failure_after_the_commit_does_not_repeat_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    job = local.job(SPEC, store=MemoryStore())
    job.push("left", rows((1, "a")))
    job.push("right", rows((1, "a")))
    with monkeypatch.context() as patched:
        patched.setattr(job.driver.ledger, "collect_garbage", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job.tick()
    assert job.last is not None
    assert job.last.table.num_rows == 1
    assert job.tick().table.num_rows == 0


def test_the_url_of_a_directory_is_one(tmp_path):
    job = local.job(SPEC, store=f"file://{tmp_path}/a%20state")
    job.tick()
    assert [path.name for path in tmp_path.iterdir()] == ["a state"]
    assert local.job(SPEC, store=tmp_path / "a state").last is not None
