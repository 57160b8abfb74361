"""What all windows share within a tick: limits, rows by their time, results as rows of the node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from watersmeet.conditions import ExactBand, Key
from watersmeet.engine.messages.shapes import AggregateShape
from watersmeet.engine.messages.summed import WindowGroupShape
from watersmeet.engine.tasks.memory import run_bytes
from watersmeet.engine.tasks.share import Share
from watersmeet.engine.tasks.slice import RunSlice, SideSlice
from watersmeet.event_time import (
    ENDED,
    NEVER,
    Side,
    TimeColumn,
    TimeComparison,
    TimeConstant,
    Times,
    TimeSum,
    Watermark,
)
from watersmeet.kernel.batches import cuts, one_array
from watersmeet.kernel.match.pairs import Condition
from watersmeet.kernel.match.probe import Rows
from watersmeet.kernel.pieces import Columns, row_sizes
from watersmeet.kernel.slots import BUCKET_MASK, Slots
from watersmeet.kernel.times import to_native
from watersmeet.kernel.windows import Numbers, sessions
from watersmeet.measure import Measured
from watersmeet.names import ours
from watersmeet.spec.model import WINDOW_END, WINDOW_START

NUMBER = ours("window")
"""Column of rows to be grouped: the number of their window, or pane."""


def limits(shape: AggregateShape | WindowGroupShape, own: SideSlice) -> tuple[Watermark, Watermark]:
    """Of the last tick and of this one: rows below are released, or (sessions) have been looked at."""
    before, now = (limits.get(shape.time, NEVER) for limits in (own.work.old_limits, own.work.new_limits))
    return before, now


def last_end(shape: AggregateShape | WindowGroupShape, limit: Watermark) -> Watermark:
    """The end of the last window that begins below a limit, which is where one begins."""
    return limit if isinstance(limit, float) else limit - shape.slide + shape.size


def passed(piece: RunSlice, column: str, since: Watermark, now: Watermark) -> Rows:
    """Rows of the slice with a time in [since, now), in order of it."""
    rows = piece.run.between(column, since, now)
    return rows[(rows >= piece.start) & (rows < piece.stop)] - piece.start


def look_ahead(
    shape: AggregateShape, share: Share, batch: Columns, rows: Rows, since: Watermark, until: Watermark
) -> None:
    """Say with how many windows that end in (``since``, ``until``] rows are put together, at most, and how
    many bytes that is. Raises: ManyMatches."""
    if not share.is_bounded or not len(rows):
        return
    of_a_row = -(-shape.size // shape.slide)
    if since > NEVER and until < ENDED:
        of_a_row = min(of_a_row, (int(until) - int(since)) // shape.slide)
    share.sees(len(rows) * of_a_row)
    share.holds(int(row_sizes(batch, batch.schema.names, rows).sum()) * of_a_row)


Chosen = tuple[Columns, Slots, Rows]
"""Rows of a batch, and the slots of all its rows."""


def of_piece(piece: RunSlice, rows: Rows) -> Chosen:
    return piece.rows.batch, piece.rows.slots, rows


def in_parts(choices: Sequence[Chosen], memory: int) -> Iterator[list[Chosen]]:
    """Rows that are to be grouped: all of them, or, where they are many bytes, those of one range of hashes
    after the other, so that rows of one group stay together. Cost: these rows, for each part."""
    rows = [chosen for *_, chosen in choices]
    of_rows = [row_sizes(batch, batch.schema.names, chosen) for batch, _, chosen in choices]
    if sum(int(sizes.sum()) for sizes in of_rows) <= run_bytes(memory):
        if choices:
            yield list(choices)
        return
    hashes = [slots[chosen] & BUCKET_MASK for _, slots, chosen in choices]
    distinct, place = np.unique(np.concatenate(hashes), return_inverse=True)
    held = np.bincount(place, weights=np.concatenate(of_rows)).astype(np.int64)
    for low, high in pairwise(cuts(held, run_bytes(memory))):
        own = [(given >= distinct[low]) & (given <= distinct[high - 1]) for given in hashes]
        yield [
            (batch, slots, chosen[mine])
            for (batch, slots, _), chosen, mine in zip(choices, rows, own, strict=True)
            if mine.any()
        ]


# sessions


def without_follower(times: Times, keys: Numbers, gap: int) -> Rows:
    """The rows that no other one of them with the same key follows within the gap."""
    order = np.lexsort((times, keys))
    same = np.zeros(len(order), dtype=np.bool_)
    same[1:] = keys[order][1:] == keys[order][:-1]
    numbers = sessions(times[order], same, gap)
    ends = np.ones(len(order), dtype=np.bool_)
    ends[:-1] = numbers[1:] != numbers[:-1]
    return order[ends]


def last_of_keys(times: Times, keys: Numbers) -> Rows:
    """The row of the greatest time of each key."""
    order = np.lexsort((times, keys))
    greatest = np.ones(len(order), dtype=np.bool_)
    greatest[:-1] = keys[order][1:] != keys[order][:-1]
    return order[greatest]


def later(by: Sequence[str], column: str, lower: int | None, upper: int) -> Condition:
    """Rows (right) of the same keys as another one (left), this much later."""
    time = Measured(column)
    left, right = TimeColumn(Side.LEFT, column), TimeColumn(Side.RIGHT, column)
    comparisons = [TimeComparison(TimeSum(right, left, -1), "<=", TimeConstant(upper))]
    if lower is not None:
        comparisons.append(TimeComparison(TimeSum(right, left, -1), ">=", TimeConstant(lower)))
    return Condition(
        keys=tuple(Key(key, key, null_safe=True) for key in by),
        bands=(ExactBand(time, time, lower, upper),),
        comparisons=tuple(comparisons),
        rechecks=(),
        slack=max(upper, 1),
        residual=None,
        residual_columns=(),
    )


def result_rows(
    shape: AggregateShape, groups: pa.Table, starts: Times, ends: Times, held: Mapping[str, str]
) -> pa.RecordBatch:
    """``held``: columns of ``groups`` that have another name there. Wide columns may have 64-bit offsets."""
    kind = shape.row_schema.field(WINDOW_START).type
    windows = {WINDOW_START: starts, WINDOW_END: ends}
    arrays = []
    for field in shape.row_schema:
        if field.name in windows:
            arrays.append(to_native(pa.array(windows[field.name]), kind))
        else:
            arrays.append(one_array(groups.column(held.get(field.name, field.name))))
    return pa.RecordBatch.from_arrays(arrays, names=shape.row_schema.names)
