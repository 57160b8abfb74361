"""Conditions that Spark computes over candidate pairs, which a task emits in its first pass.

A task runs twice. In the first pass it emits each batch of candidate pairs as a request, and treats the
condition as FALSE. In the second pass it produces the same batches and reads the answers. A digest of the
content identifies a batch, not its position, so a task that produces batches in another order, or a batch
without an answer, never receives the answer to another request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.errors import EngineError
from watersmeet.event_time import Mask
from watersmeet.kernel.batches import one_array
from watersmeet.names import ours

ASK, HOLDS = ours("ask"), ours("holds")


@dataclass(frozen=True)
class DeferredCondition:
    """Condition that tasks do not compute.

    Attributes:
        text: the condition as the user wrote it.
    """

    text: str

    def holds(self, pairs: pa.Table) -> Mask:
        raise EngineError(
            f"a task has no results of Spark for {self.text}", code="internal", hint="please report this"
        )


@dataclass
class ConditionRequests:
    """In the first pass: ``ask`` takes (digest, pairs) of what is not ``answered``."""

    ask: Callable[[int, pa.Table], None]
    answered: ConditionAnswers
    _asked: set[int] = field(default_factory=set)

    def holds(self, pairs: pa.Table) -> Mask:
        if pairs.num_rows == 0:
            return np.zeros(0, dtype=np.bool_)
        digest = digest_of(pairs)
        answer = self.answered.of(digest, pairs.num_rows)
        if answer is not None:
            return answer
        if digest not in self._asked:
            self._asked.add(digest)
            self.ask(digest, pairs)
        return np.zeros(pairs.num_rows, dtype=np.bool_)


@dataclass
class ConditionAnswers:
    """In the second pass: bits per digest, with how many of them count."""

    text: str
    truths: dict[int, tuple[int, bytes]] = field(default_factory=dict)

    def of(self, digest: int, rows: int) -> Mask | None:
        stored = self.truths.get(digest)
        if stored is None or stored[0] != rows:
            return None
        bits = np.unpackbits(np.frombuffer(stored[1], dtype=np.uint8), count=rows)
        answer: Mask = bits.astype(np.bool_)
        return answer

    def holds(self, pairs: pa.Table) -> Mask:
        """Return a mask of the pairs for which the condition is TRUE.

        Raises:
            EngineError: the pairs were not among those that Spark evaluated.
        """
        if pairs.num_rows == 0:
            return np.zeros(0, dtype=np.bool_)
        answer = self.of(digest_of(pairs), pairs.num_rows)
        if answer is None:
            raise EngineError(
                f"the candidate rows of {self.text} differ from those that Spark evaluated",
                code="internal",
                hint="run again, which repeats the tick, and please report this bug",
            )
        return answer

    def add(self, digests: Collection[int], rows: Collection[int], bits: Collection[bytes]) -> None:
        for digest, count, truth in zip(digests, rows, bits, strict=True):
            self.truths[digest] = (count, truth)


def digest_of(pairs: pa.Table) -> int:
    """Compute an int64 digest of all values, in order; bytes under a NULL do not count."""
    hasher = hashlib.blake2b(str(pairs.num_rows).encode(), digest_size=8)
    for column in pairs.columns:
        array = one_array(column)
        hasher.update(str(array.type).encode())
        if array.null_count:
            hasher.update(np.packbits(array.is_valid().to_numpy(zero_copy_only=False)).tobytes())
        if _is_plain(array.type):
            _update(hasher, array)
        else:  # nested ones: values as they lie in a batch of their own
            taken = array.take(pa.array(np.arange(len(array))))
            hasher.update(pa.RecordBatch.from_arrays([taken], names=[""]).serialize())
    return int.from_bytes(hasher.digest(), "big", signed=True)


def _is_plain(kind: pa.DataType) -> bool:
    return pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _update(hasher: hashlib.blake2b, array: pa.Array) -> None:
    kind = array.type
    if _is_text(kind):
        lengths = pc.fill_null(pc.binary_length(array), 0)
        hasher.update(lengths.to_numpy(zero_copy_only=False).tobytes())
        whole = pc.fill_null(array, b"" if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else "")
        joined = one_array(whole)
        width = 8 if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else 4
        data = joined.buffers()[2]
        if data is not None:
            offsets = np.frombuffer(joined.buffers()[1], dtype=f"i{width}")
            first, last = offsets[joined.offset], offsets[joined.offset + len(joined)]
            hasher.update(memoryview(data)[first:last])
        return
    if pa.types.is_boolean(kind):
        hasher.update(np.packbits(pc.fill_null(array, False).to_numpy(zero_copy_only=False)).tobytes())
        return
    width = kind.bit_width // 8
    values = np.frombuffer(array.buffers()[1], dtype=np.uint8)
    values = values[array.offset * width : (array.offset + len(array)) * width]
    if array.null_count:
        rows = values.reshape(-1, width).copy()
        rows[array.is_null().to_numpy(zero_copy_only=False)] = 0
        values = rows
    hasher.update(values.tobytes())


def is_deferred(residual: object) -> bool:
    """Return True if Spark, not the tasks, computes a condition's residual predicate."""
    return isinstance(residual, ConditionAnswers | DeferredCondition | ConditionRequests)
