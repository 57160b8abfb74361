"""For tests: every key of which a tick has rows counts as hot, however few they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.kernel.slots import TIME_BITS, Slots
from watersmeet.runtime.messages.shapes import JoinShape
from watersmeet.runtime.messages.work import NodeWork
from watersmeet.runtime.operators import broadcast, join, repartition
from watersmeet.runtime.tasks.side import Nothing
from watersmeet.state.marks import MarkWriter
from watersmeet.state.runs import writer
from watersmeet.state.runs.heavy_hitters import HeavyKey, format_key


@dataclass
class Splits:
    """The keys that tasks found hot, of all nodes and ticks."""

    keys: list[repartition.HotKey] = field(default_factory=list)


def split_every_key(monkeypatch: pytest.MonkeyPatch) -> Splits:
    """From now on runs that are written tell all their keys, and each is split."""
    splits = Splits()

    def all_keys(slots: Slots, batch: pa.RecordBatch, key: Sequence[str]) -> tuple[HeavyKey, ...]:
        if not key:
            return ()
        buckets, first, rows = np.unique(slots >> np.int64(TIME_BITS), return_index=True, return_counts=True)
        return tuple(
            HeavyKey(bucket=bucket, rows=count, key=format_key(batch, key, place))
            for bucket, place, count in zip(buckets.tolist(), first.tolist(), rows.tolist(), strict=True)
        )

    def record_hot_keys(shape: JoinShape, work: NodeWork, partitions: int) -> tuple[repartition.HotKey, ...]:
        found = repartition.hot_keys(shape, work, partitions)
        splits.keys += found
        return found

    monkeypatch.setattr(writer, "heavy_keys_in", all_keys)
    monkeypatch.setattr(repartition, "MIN_SPLIT_SHARE", 0.0)
    monkeypatch.setattr(repartition, "MIN_SPLIT_WORK", 0.0)
    monkeypatch.setattr(join, "hot_keys", record_hot_keys)
    return splits


def settle_without_asking(
    shape: Any, share: Any, side: Any, own: Any, whole: broadcast.WholeSide, marks: MarkWriter
) -> None:
    """Plant a bug in `broadcast.settle_broadcast_marks`: owners of rows do not ask which matches other tasks
    found."""
    broadcast.settle_broadcast_marks(shape, share, side, own, replace(whole, near=Nothing()), marks)
