"""Records of one key in several partitions: those of one tick count in an order that nobody wrote down.

Records of a partition count by their offsets. Which partition a tick had read before another is Spark's
matter: the fate of a key that has records in several of them is not told where it goes by that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from watersmeet.engine.local.evaluate import value_of
from watersmeet.kernel.aggregate import group_numbers
from watersmeet.kernel.batches import batch_of, one_table
from watersmeet.spec.model import Source
from watersmeet.why.recorded import Recorded
from watersmeet.why.reread import UNREAD, Missing, Portion


def unordered(source: Source, portions: Sequence[Portion], history: Recorded, zone: str) -> list[Missing]:
    """Per tick of which it is so, a place of a record of a primary key that it is so of."""
    key = source.primary_key
    read = [own for own in portions if own.position != UNREAD and own.rows.num_rows]
    if key is None or len({own.part for own in read}) < 2:
        return []
    slots: list[int] = []
    for own in read:
        read_by = history.slot_of(source.name, own.part, own.position)
        slots.append(len(history) if read_by is None else read_by[0])
    counts = [own.rows.num_rows for own in read]
    names = sorted({own.part for own in read})
    portion = np.repeat(np.arange(len(read)), counts)
    slot = np.repeat(np.array(slots, dtype=np.int64), counts)
    part = np.repeat(np.array([names.index(own.part) for own in read], dtype=np.int64), counts)
    rows = one_table([own.rows for own in read])
    columns = pa.table({name: value_of(source, name, rows, zone) for name in key.columns})
    group = group_numbers(batch_of(columns), key.columns)
    order = np.lexsort((part, group, slot))
    slot, group, part, portion = slot[order], group[order], part[order], portion[order]
    is_other = (slot[1:] == slot[:-1]) & (group[1:] == group[:-1]) & (part[1:] != part[:-1])
    at = np.flatnonzero(is_other & (slot[1:] < len(history)))
    _, first = np.unique(slot[at], return_index=True)
    return [
        Missing(
            f"tick {history.ticks[int(slot[own])]} read records of one key of several partitions: which of"
            " them counted last is not known",
            read[int(portion[own])].part,
            read[int(portion[own])].position,
            why="unordered",
        )
        for own in at[first].tolist()
    ]
