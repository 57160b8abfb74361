"""Rows that a sink stages in tasks, without Spark; tasks run more than once, as Spark's do."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pytest

from watersmeet.errors import EngineError
from watersmeet.sinks import registry
from watersmeet.sinks.staging import staged_by_tasks

STAGED: dict[str, list[int]] = {}


@dataclass(frozen=True)
class CountedPart:
    """Stages under a name of each attempt, and refuses negative numbers."""

    place: str
    password: str = "hunter2"
    SECRETS: ClassVar = ("password",)

    def write(self, partition, schema, rows):
        name = f"{self.place}-{len(STAGED)}"
        STAGED[name] = [number for batch in rows for number in batch.column(0).to_pylist()]
        if min(STAGED[name]) < 0:
            raise EngineError("a negative number", code="negative", hint="none")
        return {"name": name, "rows": len(STAGED[name])}


class FrameOfTwoAttempts:
    """A frame whose tasks all run twice; of each the second attempt's rows arrive."""

    def __init__(self, *partitions):
        self._partitions = partitions

    def mapInArrow(self, task, schema):
        self._task, self._name = pickle.loads(pickle.dumps(task)), schema.split()[0]
        assert "hunter2" not in repr(task)
        return self

    def collect(self):
        rows = []
        for numbers in self._partitions:
            batches = [pa.record_batch({"n": pa.array(part, pa.int64())}) for part in numbers]
            list(self._task(iter(batches)))
            second = list(self._task(iter(batches)))
            rows += [(text,) for batch in second for text in batch.column(self._name).to_pylist()]
        return rows


@pytest.fixture(autouse=True)
def nothing_staged():
    STAGED.clear()


def test_one_attempt_of_each_task_counts():
    frame = FrameOfTwoAttempts([[1, 2], [], [3]], [[]], [], [[4]])
    parts = staged_by_tasks(frame, CountedPart("here"))
    assert parts == [{"name": "here-1", "rows": 3}, {"name": "here-3", "rows": 1}]
    assert [STAGED[part["name"]] for part in parts] == [[1, 2, 3], [4]]


def test_errors_arrive_as_they_were():
    with pytest.raises(EngineError, match="a negative number") as caught:
        staged_by_tasks(FrameOfTwoAttempts([[1]], [[-1]]), CountedPart("here"))
    assert (caught.value.code, caught.value.hint) == ("negative", "none")


def test_secrets_stay_out_of_the_serialized_part(monkeypatch):
    monkeypatch.setitem(registry.PARTS, "counted", f"{__name__}:CountedPart")
    part = CountedPart("here", "other")
    plain = registry.plain_part(part)
    assert plain == {"place": "here", "kind": "counted"}
    assert registry.part_from(plain, {"password": "other", "of another": "x"}) == part
