"""A job killed anywhere and opened again goes on as if nothing had happened.

The host (here the test, otherwise Spark's checkpoint) offers the tick's rows again when the tick was not
committed, and passes them over when it was.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from tests.support.phases import PHASES, replace_phase
from tests.support.ticks import (
    QUERY,
    Rows,
    arriving,
    bag,
    check_account,
    plan_of,
    stored_names,
    stream,
)
from watersmeet.errors import StateError
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator import ledger, merge_policy
from watersmeet.runtime.local import LocalJob
from watersmeet.state.commits import commit
from watersmeet.state.store import LocalStore, MemoryStore, Store

ON = "l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5"
FULL = f"SELECT l.i AS a, r.i AS b FROM l FULL JOIN r ON {ON} AND l.v > 0"


class Killed(Exception):
    pass


def row(number: int, time: int, key: str | None = "a", v: int = 1) -> dict[str, Any]:
    return {"t": time, "k": key, "v": v, "i": number}


def ticks() -> list[Rows]:
    """Matches over several ticks, pads by release and at once, late rows, an empty tick."""
    return [
        arriving(l=[row(1, 10), row(2, 10, "b"), row(3, 10, v=0)], r=[row(1, 12)]),
        arriving(l=[row(4, 14)], r=[row(2, 13), row(3, 11, None)]),
        arriving(),
        arriving(l=[row(5, 30), row(6, 2)], r=[row(4, 9), row(5, 29)]),
        arriving(l=[row(7, 31, "b")], r=[row(6, 60)]),
        arriving(l=[row(8, 61)], r=[row(7, 61, "c")]),
    ]


@pytest.fixture(autouse=True)
def merge_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_policy, "FAN_IN", 2)


@pytest.fixture(scope="module")
def plan() -> JobPlan:
    return plan_of(FULL, {"l": stream(3), "r": stream(3)})


def what_comes_out(output: Any) -> tuple[Any, ...]:
    result = output.result.queries[QUERY]
    late = sorted((name, late_row["i"]) for name, late_row in output.late)
    return bag(output), late, result.risen_watermarks, result.state, result.account, result.total_rows_out


@pytest.fixture(scope="module")
def uninterrupted_output(plan: JobPlan) -> list[tuple[Any, ...]]:
    job = LocalJob(plan, MemoryStore(), partitions=2)
    found = [what_comes_out(job.tick(rows)) for rows in ticks()]
    return [*found, what_comes_out(job.tick({}, end=True))]


def test_the_run_that_is_interrupted_has_everything(uninterrupted_output: list[tuple[Any, ...]]) -> None:
    total: Counter[Any] = sum((found[0] for found in uninterrupted_output), Counter())
    assert {(1, 1), (1, 2), (4, 1), (4, 2), (5, 5), (8, 6)} <= total.keys()
    assert {(2, None), (3, None), (None, 3)} <= total.keys()
    assert set(total.values()) == {1}
    assert any(late for _, late, *_ in uninterrupted_output)


def steps() -> list[tuple[Rows, bool]]:
    return [*((rows, False) for rows in ticks()), ({}, True)]


@pytest.mark.parametrize(
    ("phase", "kind"), [*((phase, "memory") for phase in PHASES), ("conclude", "directory")]
)
def test_killed_before_a_phase_of_every_tick(
    plan: JobPlan, uninterrupted_output: list[tuple[Any, ...]], phase: str, kind: str, tmp_path: Path
) -> None:
    store: Store = MemoryStore() if kind == "memory" else LocalStore(tmp_path)
    for number, (rows, end) in enumerate(steps()):
        job = LocalJob(plan, store, partitions=2)

        def kill_before_phase(*_: Any, **__: Any) -> None:
            raise Killed

        with replace_phase(phase, kill_before_phase), pytest.raises(Killed):
            job.tick(rows, end=end)
        again = LocalJob(plan, store, partitions=2 + number % 2)
        assert again.driver.tick == number
        output = again.tick(rows, end=end)
        assert what_comes_out(output) == uninterrupted_output[number]
        check_account(output)
        only_what_is_needed(again)


def only_what_is_needed(job: LocalJob) -> None:
    """After a commit the store holds two manifests and what they name: files of dead attempts are gone."""
    names = stored_names(job)
    manifests = {name for name in names if name.startswith("manifests/")}
    assert len(manifests) <= 2
    assert {name for name in names - manifests if name.startswith("work/")} == set()
    newest = job.driver.manifest
    assert newest is not None
    assert newest.files() <= names
    fresh = LocalJob(job.plan, job.store)
    assert fresh.driver.manifest == newest


class FailingStore(MemoryStore):
    """Dies in the ``after``-th change that is asked of it, before or after doing it."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 10**9
        self.done_first = False

    def _change(self, change: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise Killed
        result = change()
        if self.left == 0 and self.done_first:
            self.left = -1
            raise Killed
        return result

    def write(self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True) -> None:
        self._change(lambda: super(FailingStore, self).write(name, data))

    def create(self, name: str, data: bytes) -> bool:
        if name in self.contents:
            return False
        self._change(lambda: MemoryStore.write(self, name, data))
        return True

    def delete(self, name: str) -> None:
        self._change(lambda: super(FailingStore, self).delete(name))


@pytest.mark.parametrize("done_first", [False, True])
def test_killed_at_every_single_change_of_the_store(
    plan: JobPlan, uninterrupted_output: list[tuple[Any, ...]], done_first: bool
) -> None:
    """Kill at every write, create and delete of every tick; at quick effort at every third."""
    store, stride = FailingStore(), at_effort(quick=3, full=1)
    deaths = 0
    for number, (rows, end) in enumerate(steps()):
        survived, change = False, 1 + number % stride
        while not survived:
            before = dict(store.contents)
            job = LocalJob(plan, store, partitions=2)
            store.left, store.done_first = change, done_first
            try:
                job.tick(rows, end=end)
                survived = True
            except Killed:
                deaths += 1
            store.left, store.done_first = 10**9, False
            again = LocalJob(plan, store, partitions=3)
            if again.driver.tick == number:  # not committed: the host offers the rows again
                assert not survived
                assert what_comes_out(again.tick(rows, end=end)) == uninterrupted_output[number]
                only_what_is_needed(again)
            else:
                assert again.driver.tick == number + 1
                assert again.state[QUERY] == uninterrupted_output[number][3]
            if not survived:
                store.contents = before
                change += stride
    assert deaths * stride > 50


def test_killed_between_the_manifest_and_the_deletion(
    plan: JobPlan, uninterrupted_output: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    LocalJob(plan, store).tick(ticks()[0])

    def kill_before_deletion(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ledger.TickRetention, "commit", kill_before_deletion)
        with pytest.raises(Killed):
            LocalJob(plan, store).tick(ticks()[1])
    again = LocalJob(plan, store)
    assert again.driver.tick == 2
    assert what_comes_out(again.tick(ticks()[2])) == uninterrupted_output[2]
    only_what_is_needed(again)


def test_orphans_are_collected_by_the_next_commit(plan: JobPlan) -> None:
    store = MemoryStore()
    job = LocalJob(plan, store)
    for folder in ("runs", "marks", "aside", "work"):
        store.write(f"{folder}/orphan", b"x")
    job.tick(ticks()[0])
    assert not [name for name in stored_names(job) if "orphan" in name]


def test_what_the_host_wants_remembered_comes_back(plan: JobPlan) -> None:
    store = MemoryStore()
    running = LocalJob(plan, store).driver.begin(7).advance([])
    _, report = running.node_task(QUERY, 0).collect(0, 1)
    running.settle(QUERY, 0, [report])
    running.conclude({}).commit({"offsets": "text", "batch": 3})
    manifest = LocalJob(plan, store).driver.manifest
    assert manifest is not None
    assert manifest.host == {"offsets": "text", "batch": 3}
    assert manifest.clock_us == 7


def catch_state_error(plan: JobPlan, store: Store) -> StateError:
    with pytest.raises(StateError) as raised:
        LocalJob(plan, store).tick({})
    assert raised.value.hint
    return raised.value


@pytest.fixture
def store_after_two_ticks(plan: JobPlan, tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path)
    job = LocalJob(plan, store)
    for rows in ticks()[:2]:
        job.tick(rows)
    return store


def test_more_lateness_after_a_restart_does_not_bring_back_what_was_released() -> None:
    """Row 1 of l was padded: a row that would match it stays late, and it is not padded again."""
    query = f"SELECT l.i AS a, r.i AS b FROM l FULL JOIN r ON {ON}"
    store = MemoryStore()
    job = LocalJob(plan_of(query), store)
    job.tick(arriving(l=[row(1, 10), row(2, 100)]))
    assert bag(job.tick(arriving(r=[row(1, 60)]))) == {(1, None): 1, (None, 1): 1}
    job = LocalJob(plan_of(query, allowed_lateness=55), store)
    output = job.tick(arriving(r=[row(2, 10), row(3, 60)]))
    assert [late["i"] for _, late in output.late] == [2]
    assert job.state[QUERY] == {"l": 1, "r": 0}
    assert bag(output) == {(None, 3): 1}
    last = job.tick({}, end=True)
    assert bag(last) == {(2, None): 1}
    check_account(last)


@pytest.mark.parametrize(
    "other",
    [
        FULL.replace("+ 5", "+ 6"),
        FULL.replace("FULL", "LEFT"),
        FULL.replace("l.k = r.k AND ", ""),
        FULL.replace("l.v > 0", "l.v > 1"),
    ],
)
def test_a_changed_query_is_refused(store_after_two_ticks: LocalStore, other: str) -> None:
    error = catch_state_error(plan_of(other, {"l": stream(3), "r": stream(3)}), store_after_two_ticks)
    assert error.code == "changed-query"


def test_changed_sources_are_refused(plan: JobPlan, store_after_two_ticks: LocalStore) -> None:
    manifest = LocalJob(plan, store_after_two_ticks).driver.manifest
    assert manifest is not None
    changes = {"sources": list(reversed(manifest.sources)), "tick": 3, "follows": manifest.writer}
    swapped = manifest.model_copy(update=changes)
    commit(store_after_two_ticks, swapped)
    error = catch_state_error(plan, store_after_two_ticks)
    assert error.code == "changed-sources"
    assert "l, r" in error.message
    assert "r, l" in error.message


def test_another_name_of_the_query_is_refused(plan: JobPlan, store_after_two_ticks: LocalStore) -> None:
    renamed = replace(plan, queries=(replace(plan.queries[0], name="p"),))
    assert catch_state_error(renamed, store_after_two_ticks).code == "changed-query"


@pytest.mark.parametrize(
    ("folder", "damage"),
    [
        *(
            (folder, damage)
            for folder in ("runs", "marks")
            for damage in ("missing", "truncated", "flipped", "emptied")
        ),
        *(("manifests", damage) for damage in ("truncated", "flipped", "emptied")),
    ],
)
def test_damage_is_found_when_the_job_is_opened(
    plan: JobPlan, store_after_two_ticks: LocalStore, folder: str, damage: str
) -> None:
    needed = LocalJob(plan, store_after_two_ticks).driver.manifest
    assert needed is not None
    names = (
        sorted(name for name in needed.files() if name.startswith(folder))
        or store_after_two_ticks.names(folder)[-1:]
    )
    path = Path(store_after_two_ticks.root) / names[0]
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(data[:-1])
    elif damage == "emptied":
        path.write_bytes(b"")
    else:
        path.write_bytes(bytes([data[0] ^ 0xFF]) + data[1:])
    assert catch_state_error(plan, store_after_two_ticks).code in ("state-damaged", "state-missing")


def test_a_finished_job_stays_finished(plan: JobPlan) -> None:
    store = MemoryStore()
    LocalJob(plan, store).tick({}, end=True)
    assert catch_state_error(plan, store).code == "job-finished"


UNION = f"""SELECT u.a, u.b, x.i AS c FROM (
    SELECT l.i AS a, r.i AS b, l.t AS t FROM l LEFT JOIN r ON {ON} AND l.v > 0
    UNION ALL SELECT x.i, 0, x.t FROM x WHERE x.v = 1) u
  LEFT JOIN x ON x.t BETWEEN u.t - 3 AND u.t + 3"""


@pytest.mark.parametrize(
    ("phase", "call"),
    [
        ("node_task", 2),
        ("settle", 2),
        pytest.param("settle", 1, marks=pytest.mark.full),
        pytest.param("commit", 1, marks=pytest.mark.full),
    ],
)
def test_killed_between_the_nodes_of_a_union_of_joins(phase: str, call: int) -> None:
    """What the first join put out is there again, once, and so is what was late for the union."""
    plan = plan_of(UNION, dict.fromkeys("lrx", stream(3)))
    given = [
        ({**rows, "x": [(row(20 + n, time), 1)]}, idle)
        for n, (rows, time, idle) in enumerate(
            zip(ticks(), (11, 13, 40, 30, 41, 62), ([], [], ["l", "r"], [], [], []), strict=True)
        )
    ]
    whole, store = LocalJob(plan, MemoryStore(), partitions=2), MemoryStore()
    came_late = 0
    for number, (rows, idle) in enumerate(given):
        asked = {"idle": {name: [] for name in idle}, "end": number == len(given) - 1}
        wanted = whole.tick(rows, **asked)
        came_late += sum(name == "u" for name, _ in wanted.late)
        job, calls = LocalJob(plan, store, partitions=2), Counter[str]()
        real = getattr(PHASES[phase], phase)

        def kill_at_call(*args: Any, real: Any = real, calls: Counter[str] = calls, **more: Any) -> Any:
            calls[phase] += 1
            if calls[phase] == call:
                raise Killed
            return real(*args, **more)

        with replace_phase(phase, kill_at_call), pytest.raises(Killed):
            job.tick(rows, **asked)
        again = LocalJob(plan, store, partitions=2 + number % 2)
        output = again.tick(rows, **asked)
        for found in (output, wanted):
            found.late.sort(key=str)
        assert bag(output) == bag(wanted)
        assert output.late == wanted.late
        assert output.result.queries[QUERY].account == wanted.result.queries[QUERY].account
        check_account(output)
        only_what_is_needed(again)
    assert came_late
