"""First pass of a task whose condition Spark evaluates: collect candidate pairs, write nothing.

`find_unanswered_candidates` runs the same code as the tick's task, over a store that forgets what it is
given. The answers come back as files, one per task and round; see `kernel.match.deferred_conditions`.
"""

from __future__ import annotations

import queue
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.event_time import Mask
from watersmeet.kernel.batches import batches_of
from watersmeet.kernel.match.deferred_conditions import ASK, HOLDS, ConditionAnswers, ConditionRequests
from watersmeet.runtime.messages.shapes import NodeShape
from watersmeet.runtime.tasks.side import TaskPartition
from watersmeet.state.store import Store

AnswerFile = tuple[str, int]
"""Name in the store, checksum."""

_MAX_QUEUED_BATCHES = 4
"""Batches of candidates that may wait to be taken."""


def question_schema(shape: NodeShape) -> pa.Schema:
    """Return the schema of the batches of `find_unanswered_candidates`.

    It has the columns that the condition mentions, and the number of the row's question.
    """
    return pa.schema([*(pa.field(c.name, c.type) for c in shape.asked), pa.field(ASK, pa.int64())])


def apply_answers(shape: NodeShape, store: Store, files: Sequence[AnswerFile]) -> NodeShape:
    """Return the shape with its condition answered; itself if tasks evaluate all of it."""
    condition = shape.elsewhere
    return shape if condition is None else shape.answered(_read(condition.text, store, files))


def find_unanswered_candidates(
    shape: NodeShape, share: TaskPartition, files: Sequence[AnswerFile]
) -> Iterator[pa.RecordBatch]:
    """Yield candidates of the partition without answers in ``files``, as the task finds them."""
    condition = shape.elsewhere
    assert condition is not None
    schema = question_schema(shape)
    batches: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(_MAX_QUEUED_BATCHES)
    over = threading.Event()

    def enqueue_item(item: pa.RecordBatch | BaseException | None) -> None:
        while not over.is_set():
            try:
                batches.put(item, timeout=0.2)
            except queue.Full:
                continue
            return
        raise _ConsumerStoppedError

    def ask(digest: int, pairs: pa.Table) -> None:
        ids = pa.array(np.full(pairs.num_rows, digest), pa.int64())
        columns = {name: pairs.column(name) for name in schema.names[:-1]} | {ASK: ids}
        for batch in batches_of(pa.table(columns)):
            enqueue_item(batch.cast(schema))

    asking = ConditionRequests(ask, _read(condition.text, share.store, files))
    own = shape.answered(asking)

    def work() -> None:
        try:
            for _ in own.strategy(own, replace(share, store=_ReadOnlyStore(share.store))):
                pass
            enqueue_item(None)
        except _ConsumerStoppedError:
            return
        except BaseException as error:
            enqueue_item(error)

    thread = threading.Thread(target=work, name="asking", daemon=True)
    thread.start()
    try:
        while (item := batches.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        over.set()
        thread.join()


class _ConsumerStoppedError(Exception):
    """Signal that no consumer reads candidates."""


@dataclass(frozen=True)
class _ReadOnlyStore:
    """A store that can be read."""

    store: Store

    def write(
        self, name: str, data: pa.Buffer | bytes, *, lasting: bool = True, sections: Sequence[str] = ()
    ) -> None:
        return

    def create(self, name: str, data: bytes) -> bool:
        return True

    def delete(self, name: str) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class AnswerWriter:
    """Takes (question, does it hold) in order, rows of a question one after the other."""

    def __init__(self) -> None:
        self._asks: list[int] = []
        self._parts: list[list[Mask]] = []

    def add(self, rows: pa.RecordBatch) -> None:
        asks = rows.column(ASK).to_numpy(zero_copy_only=False)
        holds = rows.column(HOLDS).to_numpy(zero_copy_only=False).astype(np.bool_)
        cuts = [0, *(np.flatnonzero(asks[1:] != asks[:-1]) + 1).tolist(), len(asks)]
        for first, end in pairwise(cuts):
            if first == end:
                continue
            if not self._asks or self._asks[-1] != asks[first]:
                self._asks.append(int(asks[first]))
                self._parts.append([])
            self._parts[-1].append(holds[first:end])

    def write(self, store: Store, name: str) -> tuple[AnswerFile, int]:
        """Write the answers.

        Returns:
            The file, and the number of questions that it answers.
        """
        whole = [np.concatenate(parts) for parts in self._parts]
        table = pa.table(
            {
                "ask": pa.array(self._asks, pa.int64()),
                "rows": pa.array([len(bits) for bits in whole], pa.int64()),
                "bits": pa.array([np.packbits(bits).tobytes() for bits in whole], pa.large_binary()),
            }
        )
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as stream:
            stream.write_table(table)
        data = out.getvalue()
        store.write(name, data)
        return (name, zlib.crc32(data)), len(whole)


def _read(text: str, store: Store, files: Sequence[AnswerFile]) -> ConditionAnswers:
    answers = ConditionAnswers(text)
    for name, checksum in files:
        data = store.read(name)
        if zlib.crc32(data) != checksum:
            raise StateError(
                f"{name} is damaged", code="damaged-file", hint="run again, which repeats the tick"
            )
        table = pa.ipc.open_stream(data).read_all()
        answers.add(*(table.column(column).to_pylist() for column in ("ask", "rows", "bits")))
    return answers
