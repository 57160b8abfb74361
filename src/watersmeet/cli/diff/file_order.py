"""In which order the files of a source counted: those of an earlier tick first, and those of one tick by
their times of change and their names (`order_in_tick`).

A tick may have read several places of Spark's log of the source, as after a crash; which, the history says.
Where that is not known, and where a file was listed with another time of change than it had when it was read,
more than one order is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from watersmeet.engine.spark.sources.files.again import order_in_tick
from watersmeet.state.file_lists import FileRead
from watersmeet.why.ticks import TickHistory

_MS_NS = 1_000_000

Orders = list[list[int]]
"""Per possible order the rank of each file; files that are in no order in it have the same."""


def orders_of(
    files: Sequence[FileRead], source: str, part: str, history: Callable[[], TickHistory]
) -> Orders:
    """All that are possible.

    Args:
        part: by which the history tells how far files were read.
        history: asked for where it makes a difference.
    """
    alone = {file.batch: file.batch for file in files}
    orders = _ranked(files, [alone, dict.fromkeys(alone, 0)])
    if len(orders) == 1:
        return orders
    told = history()
    if not len(told):
        return orders
    steps = sorted(alone)
    apart, together = [0], [0]
    for one, other in pairwise(steps):
        first, second = (told.slot_of(source, part, step) for step in (one, other))
        ended = first is not None and told.is_after_slot_before(source, part, other, first[0] + 1)
        is_one = first is not None and first == second and first[1]
        apart.append(apart[-1] + (not is_one))
        together.append(together[-1] + ended)
    return _ranked(files, [dict(zip(steps, own, strict=True)) for own in (apart, together)])


def _ranked(files: Sequence[FileRead], ticks: Iterable[dict[int, int]]) -> Orders:
    """By each of these ways to say which tick read which place, and by each time that files may have had."""
    orders: Orders = []
    times = [[file.time_ms for file in files], [file.changed_ns // _MS_NS for file in files]]
    for of_step in ticks:
        for changed in times:
            keys = [
                (of_step[file.batch], order_in_tick(file, time_ms))
                for file, time_ms in zip(files, changed, strict=True)
            ]
            ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
            order = [ranks[key] for key in keys]
            if order not in orders:
                orders.append(order)
    return orders
