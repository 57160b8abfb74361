"""Pairs of one side's rows with those of several pieces of the other, and the order in which they leave.

Rows that look up (needles) lie in the order of their slots, and each piece of the other side gives its pairs
in that order. They are put together over the pieces before they are gathered: `MAX_HELD_MATCHES` pairs or so
at once.

Where it is known in which order the needles came, they leave in that order, each with its partners together,
older pieces first. Then pairs of so many needles are held at once that they had about `CHUNK` candidates;
those of a single needle with more leave as they are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from watersmeet.event_time import Side
from watersmeet.kernel.batches import cut_points
from watersmeet.kernel.gather import ChosenRows, HasColumns
from watersmeet.kernel.match.pairs import Search
from watersmeet.kernel.match.probe import CHUNK, Rows
from watersmeet.kernel.slots import order_of
from watersmeet.kernel.sorted_rows import SortedRows
from watersmeet.runtime.messages.shapes import NodeShape
from watersmeet.runtime.tasks.results import emit_rows

MAX_HELD_MATCHES = 200_000


@dataclass(frozen=True)
class ProbedPiece:
    """Slice to search.

    ``search`` finds the candidates (None: there are none); ``hit`` receives the rows that have a match.
    """

    search: Callable[[], Search | None]
    hit: Callable[[Rows], None]


_Matches = tuple[Rows, Rows, HasColumns]
"""Needles and as many rows of a piece."""


def emit_matches(
    shape: NodeShape,
    side: Side,
    needles: SortedRows,
    arrival: Rows | None,
    pieces: Sequence[ProbedPiece],
    hit: Callable[[Rows], None],
) -> Iterator[pa.RecordBatch]:
    """Emit the joined rows of the needles, which are rows of ``side``, with all their matches.

    Args:
        arrival: position of each needle in arrival order, each number once; None: emit in slot order.
        hit: receives the needles that have a match.
    """
    if arrival is None:
        matches, held = list[_Matches](), 0
        for piece in pieces:
            search = piece.search()
            if search is None:
                continue
            for needle, row in search.pairs():
                hit(needle)
                piece.hit(row)
                matches.append((needle, row, search.rows.columns))
                held += len(needle)
                if held >= MAX_HELD_MATCHES:
                    yield from _emit_joined_rows(shape, side, needles, None, matches)
                    matches, held = [], 0
        if matches:
            yield from _emit_joined_rows(shape, side, needles, None, matches)
        return
    asked = [(search, piece) for piece in pieces if (search := piece.search()) is not None]
    for chosen in _list_needle_blocks([search for search, _ in asked], arrival):
        alone = chosen is not None and len(chosen) == 1
        matches = []
        for search, piece in asked:
            for needle, row in search.pairs(chosen):
                hit(needle)
                piece.hit(row)
                matches.append((needle, row, search.rows.columns))
                if alone:
                    yield from _emit_joined_rows(shape, side, needles, None, matches)
                    matches = []
        if matches:
            yield from _emit_joined_rows(shape, side, needles, arrival, matches)


def _list_needle_blocks(searches: Sequence[Search], arrival: Rows) -> Iterator[Rows | None]:
    """Yield the needles whose pairs are built together.

    The only item is None if all needles fit; otherwise each item is a block of needles, ascending.
    """
    if not searches:
        return
    if sum(search.candidates for search in searches) <= CHUNK:
        yield None
        return
    counts = np.zeros(len(arrival), dtype=np.int64)
    for search in searches:
        search.add_counts(counts)
    order = order_of(arrival)
    for low, high in pairwise(cut_points(counts[order], CHUNK)):
        yield np.sort(order[low:high])


def _emit_joined_rows(
    shape: NodeShape, side: Side, needles: SortedRows, arrival: Rows | None, matches: Sequence[_Matches]
) -> Iterator[pa.RecordBatch]:
    own = [needle for needle, _, _ in matches]
    order = None if arrival is None else _order_by_arrival(own, arrival)
    chosen = own[0] if len(own) == 1 else np.concatenate(own)
    if order is not None:
        chosen = chosen[order]
    others = ChosenRows([(rows, batch) for _, rows, batch in matches], order)
    places = np.arange(len(chosen))
    if side is Side.LEFT:
        yield from emit_rows(shape, needles.columns, chosen, others, places)
    else:
        yield from emit_rows(shape, others, places, needles.columns, chosen)


def _order_by_arrival(parts: Sequence[Rows], arrival: Rows) -> Rows:
    """Return the permutation that puts pairs in the arrival order of their needles.

    Each part is ascending. Pairs of one needle stay in the order of the parts. Cost: linear, plus a
    sort of the needles if some of the tick's rows are missing.
    """
    needles = len(arrival)
    came = np.zeros(needles, dtype=np.int64)
    if int(arrival.max(initial=-1)) == needles - 1:  # each number once: it is a permutation
        came[arrival] = np.arange(needles)
    else:
        came = order_of(arrival)
    counts = [np.bincount(part, minlength=needles) for part in parts]
    total = counts[0].copy()
    for of_part in counts[1:]:
        total += of_part
    in_turn = total[came]
    start = np.zeros(needles, dtype=np.int64)
    start[came] = np.cumsum(in_turn) - in_turn
    order = np.zeros(sum(len(part) for part in parts), dtype=np.int64)
    done = 0
    for part, count in zip(parts, counts, strict=True):
        first = np.cumsum(count) - count
        order[(start - first)[part] + np.arange(len(part))] = np.arange(done, done + len(part))
        start += count
        done += len(part)
    return order
