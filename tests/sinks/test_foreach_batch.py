"""A function of this process as a sink: a tick that comes again has the same rows and the same number."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrameWriter, DataFrameWriterV2

from tests.sinks.function_frames import COLUMNS, identity_of
from tests.sinks.postgres_frames import ArrowFrame
from watersmeet.errors import EngineError, SpecError
from watersmeet.sinks.base import CallsInTasks, NeedsSession, StagesInState
from watersmeet.sinks.function import ForeachBatchSink
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.connectors import FOREACH_BATCH
from watersmeet.spec.model import Sink
from watersmeet.state.store import LocalStore

ROWS = [(f"k{n}", None if n % 4 == 0 else f"v{n}") for n in range(10)]


class Session:
    """What such a sink asks of Spark: numbers, each in a partition of its own, and a function over them."""

    def range(self, start: int, end: int, step: int, partitions: int) -> Numbers:
        assert (start, step, partitions) == (0, 1, end)
        return Numbers(end)


class Numbers:
    def __init__(self, count: int) -> None:
        self._count = count

    def mapInArrow(self, task: Any, schema: Any) -> list[list[dict[str, Any]]]:
        assert schema == COLUMNS
        numbers = [pa.record_batch({"id": pa.array([number], pa.int64())}) for number in range(self._count)]
        return [[row for batch in task(iter([one])) for row in batch.to_pylist()] for one in numbers]


class Given:
    """What the function was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Any]] = []
        self.fails = False

    def put(self, rows: Any, tick: int) -> None:
        self.calls.append((tick, rows))
        if self.fails:
            raise SystemExit("not now")


def sink_of(function: Any, folder: Any) -> ForeachBatchSink:
    sink = make_sink(Sink("out", FOREACH_BATCH), functions={"out": function})
    assert isinstance(sink, ForeachBatchSink)
    for protocol in (CallsInTasks, NeedsSession, StagesInState):
        assert isinstance(sink, protocol)
    sink.use(Session())
    sink.stage_in(LocalStore(folder))
    sink.prepare(COLUMNS, "the job")
    return sink


def publish_tick(sink: ForeachBatchSink, tick: int, rows: list[Any], partitions: int) -> bool:
    attempt = uuid.uuid4().hex
    columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(2)]
    table = pa.table(columns, names=["k", "v"])
    sink.write(ArrowFrame(table, ["STRING", "STRING"], partitions), "q", tick, attempt)
    return sink.publish("q", tick, attempt, identity_of(tick))


def test_a_repeated_tick_has_the_same_rows_in_the_same_partitions(tmp_path):
    given = Given()
    assert publish_tick(sink_of(given.put, tmp_path), 3, ROWS, 3)
    ((tick, parts),) = given.calls
    assert (tick, len(parts)) == (3, 3)
    assert [(row["k"], row["v"]) for part in parts for row in part] == ROWS
    assert publish_tick(sink_of(given.put, tmp_path), 3, ROWS[::-1], 1)
    assert given.calls[1] == given.calls[0]


def test_function_receives_the_tick_details_it_declares(tmp_path):
    """By names alone: a third parameter of another name is the function's own."""
    told: list[Any] = []

    def both(rows: Any, tick: int, *, insert: str, job: str) -> None:
        told.append((tick, insert, job))

    def one(rows: Any, tick: int, job: str = "none") -> None:
        told.append((tick, job))

    def own(rows: Any, tick: int, retries: int = 3) -> None:
        told.append((tick, retries))

    class Object:
        def __call__(self, rows: Any, tick: int, insert: str) -> None:
            told.append((tick, insert))

    def by_place(job: Any, insert: int) -> None:
        told.append((insert, len(job)))

    for tick, function in enumerate((both, one, own, Object(), by_place), 1):
        assert publish_tick(sink_of(function, tmp_path), tick, ROWS, 1)
    assert told == [(1, "q", "the job"), (2, "the job"), (3, 3), (4, "q"), (5, 1)]


def test_a_tick_without_rows_is_none_for_it(tmp_path):
    given = Given()
    assert not publish_tick(sink_of(given.put, tmp_path), 1, [], 1)
    assert given.calls == []


def test_what_it_raises_fails_the_tick_which_comes_again(tmp_path):
    given = Given()
    given.fails = True
    with pytest.raises(EngineError, match="SystemExit: not now") as failed:
        publish_tick(sink_of(given.put, tmp_path), 1, ROWS, 2)
    assert failed.value.code == "function-failed"
    given.fails = False
    assert publish_tick(sink_of(given.put, tmp_path), 1, ROWS, 3)
    assert given.calls[0] == given.calls[1]


class Later:
    """Functions that have done nothing when they return, as nobody can see before."""

    async def put(self, rows: Any, tick: int) -> None:
        raise AssertionError("nobody waits for it")

    def waited_for(self, rows: Any, tick: int) -> Any:
        return self.put(rows, tick)

    def read(self, rows: Any, tick: int) -> Any:
        return (row for row in rows)


@pytest.mark.parametrize("name", ["waited_for", "read"])
def test_what_it_leaves_to_others_fails_the_tick(name, tmp_path):
    with pytest.raises(EngineError, match="which watersmeet does not await or read") as failed:
        publish_tick(sink_of(getattr(Later(), name), tmp_path), 1, ROWS, 2)
    assert failed.value.code == "function-failed"


@pytest.mark.parametrize("kind", [DataFrameWriter, DataFrameWriterV2])
def test_unexecuted_writer_fails_the_tick(kind, tmp_path):
    """Of ``lambda rows, tick: rows.write.mode("append")`` nothing is written."""
    writer = kind.__new__(kind)
    with pytest.raises(EngineError, match=f"returned a {kind.__name__}; call its"):
        publish_tick(sink_of(lambda rows, tick: writer, tmp_path), 1, ROWS, 2)


def test_another_tick_of_the_number_is_refused(tmp_path):
    given = Given()
    sink = sink_of(given.put, tmp_path)
    publish_tick(sink, 1, ROWS, 2)
    with pytest.raises(EngineError, match="sink-of-another-tick"):
        sink.check("q", 1, {"rows": "of another"})


def test_a_process_without_the_function_is_refused():
    with pytest.raises(SpecError, match="no-function"):
        make_sink(Sink("out", FOREACH_BATCH))
