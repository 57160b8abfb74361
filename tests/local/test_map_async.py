"""A service that is asked about rows: who is asked how often, in what order, and what failures leave."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.local.joins import left_join
from watersmeet import EngineError, SeveralErrors, SpecError, StateError, local

COLUMNS = {"t": "BIGINT", "k": "STRING", "city": "STRING"}
SPEC = left_join(
    left=COLUMNS,
    outputs={"k": local.left("k"), "city": local.left("city"), "u": local.right("t")},
    names=("a", "b"),
)
A = [pa.table({"t": [1, 2, 3], "k": ["x", "y", "x"]}), pa.table({"t": [30, 30], "k": ["z", "z"]})]
B = [pa.table({"t": [3], "k": ["x"]})]


class Service:
    """Answers after a time that depends on the row. ``broken``: keys of which it fails."""

    def __init__(self, *, broken: tuple[str, ...] = (), slow: tuple[str, ...] = ()) -> None:
        self.broken, self.slow = broken, slow
        self.asked: list[str] = []
        self.now = self.most = 0

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(row["k"])
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0.01 if row["k"] in self.slow else 0)
            if row["k"] in self.broken:
                raise OSError("down")
            return {"city": row["k"].upper()}
        finally:
            self.now -= 1


def run(service: Any, **more: Any) -> local.Run:
    given = {name: more.pop(name) for name in ("max_in_flight", "timeout", "ordered") if name in more}
    asked = local.map_async(service, answers={"city": "STRING"}, **given)
    inputs = {"a": lambda taken: A[taken:], "b": lambda taken: B[taken:]}
    return local.run(SPEC, before={"a": asked}, inputs=inputs, **more)


def rows(outputs: list[local.Output]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for output in outputs for row in output.table.to_pylist())


WANTED = [("x", "X", 3), ("x", "X", 3), ("y", "Y", None), ("z", "Z", None), ("z", "Z", None)]


def sort_rows_as_text(found: list[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    return sorted(tuple(map(str, row)) for row in found)


@pytest.mark.parametrize("ordered", [True, False])
def test_rows_are_answered_before_a_join(ordered: bool) -> None:
    service = Service(slow=("x",))
    found = [
        tuple(row.values()) for output in run(service, ordered=ordered) for row in output.table.to_pylist()
    ]
    assert sort_rows_as_text(found) == sort_rows_as_text(WANTED)
    assert sorted(service.asked) == ["x", "x", "y", "z", "z"]
    assert service.most > 1


def test_no_more_than_so_many_at_a_time() -> None:
    service = Service(slow=("x", "y", "z"))
    list(run(service, max_in_flight=2))
    assert service.most == 2


@pytest.mark.parametrize(("ordered", "wanted"), [(True, "abc"), (False, "bca")])
def test_the_order_of_rows(ordered: bool, wanted: str) -> None:
    times = {"a": 0.2, "b": 0.0, "c": 0.1}

    async def slow(row: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(times[row["k"]])
        return {"n": 1}

    asked = local.map_async(slow, answers={"n": "INT"}, ordered=ordered)
    given = {"t": [1, 1, 1], "k": ["a", "b", "c"], "city": [None] * 3}
    outputs = local.run(SPEC, a=[pa.table(given)], b=[], after={"joined": asked})
    tables = [output.table for output in outputs]
    assert "".join(tables[-1].column("k").to_pylist()) == wanted
    assert [table.schema.field("n").type for table in tables] == [pa.int32()] * len(tables)


def test_watermarks_pass_with_the_answers_alone() -> None:
    """The output of a tick, watermarks and all, comes when its answers are there."""
    done: list[str] = []

    async def slow(row: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        done.append(row["k"])
        return {"city": "c"}

    for output in run(slow, ordered=False):
        ingested = output.result.rows_in["a"] if isinstance(output.result.rows_in.get("a"), int) else 0
        assert len(done) >= ingested


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_tick_that_is_done_again_asks_for_what_never_came(place: str, tmp_path: Path) -> None:
    def of(service: Service) -> local.Run:
        asked = local.map_async(service, answers={"city": "STRING"}, max_in_flight=1)
        other = SPEC if place == "before" else AFTER
        given = A if place == "before" else A_AFTER
        inputs = {"a": lambda taken: given[taken:], "b": lambda taken: B[taken:]}
        stage: dict[str, Any] = {place: {"a" if place == "before" else "joined": asked}}
        return local.run(other, store=tmp_path, inputs=inputs, **stage)

    first = Service(broken=("z",))
    got: list[local.Output] = []
    with pytest.raises(EngineError, match="down"):
        got.extend(of(first))
    assert sorted(first.asked) == ["x", "x", "y", "z"]
    second = Service()
    outputs = {output.tick: output for output in (*got, *of(second))}
    assert sorted(second.asked) == ["z", "z"]
    assert sort_rows_as_text(rows(list(outputs.values()))) == sort_rows_as_text(rows_wanted(place))
    third = Service()
    assert [output.finished for output in of(third)] == [True]
    assert third.asked == []


AFTER = local.JoinSpec(
    left={"t": "BIGINT", "k": "STRING"},
    right={"t": "BIGINT", "k": "STRING"},
    left_times={"t": 5},
    right_times={"t": 5},
    condition=SPEC.condition,
    how="left",
    outputs={"k": local.left("k"), "u": local.right("t")},
    names=("a", "b"),
)
A_AFTER = A


def rows_wanted(place: str) -> list[tuple[Any, ...]]:
    return WANTED if place == "before" else [(k, u, city) for k, city, u in WANTED]


def test_a_call_that_takes_too_long() -> None:
    async def never(row: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(3600)
        return {}

    with pytest.raises(EngineError, match=r"within 0\.05 s") as raised:
        list(run(never, timeout=0.05))
    assert raised.value.code == "answer-timeout"


@pytest.mark.parametrize("answer", [None, {}, {"city": "x", "more": 1}, {"city": b"x"}, 3])
def test_answers_that_are_none(answer: Any) -> None:
    async def wrong(row: dict[str, Any]) -> Any:
        return answer

    with pytest.raises(EngineError) as raised:
        list(run(wrong))
    assert raised.value.code == "bad-value"


def test_cancelling_leaves_no_pending_call() -> None:
    async def cancel_hanging_call() -> None:
        service = Service()

        async def hangs(row: dict[str, Any]) -> dict[str, Any]:
            service.now += 1
            try:
                await asyncio.sleep(3600)
            finally:
                service.now -= 1
            return {}

        async def consume() -> None:
            async for _ in run(hangs):
                raise AssertionError("nothing was answered")

        task = asyncio.create_task(consume())
        while not service.now:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert service.now == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(cancel_hanging_call())


def test_damaged_stored_answers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        list(run(Service(broken=("y",)), store=tmp_path, max_in_flight=1))
    (file,) = (tmp_path / "answers").iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(StateError, match="damaged"):
        list(run(Service(), store=tmp_path))


def test_what_is_wrong_with_it() -> None:
    with pytest.raises(SeveralErrors) as raised:
        local.map_async(3, answers={"__ws_x": "INT", "n": "WHAT"}, max_in_flight=0, timeout=-1)  # type: ignore[arg-type]
    assert len(raised.value.errors) == 5
    asked = local.map_async(Service(), answers={"city": "INT"})
    with pytest.raises(SpecError, match="does not declare"):
        local.run(SPEC, a=A, b=B, before={"a": asked})
    with pytest.raises(SpecError, match='no source "c"'):
        local.run(SPEC, a=A, b=B, before={"c": asked})
    with pytest.raises(SpecError, match="already"):
        local.run(SPEC, a=A, b=B, after={"joined": asked})
    with pytest.raises(SpecError, match='no query "joint"'):
        local.run(SPEC, a=A, b=B, after={"joint": asked})
