"""Which task reads which files of a tick, and which parts of large ones."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from watersmeet.engine.tasks.files.part import Part

LEAST_BYTES = 1 << 20
"""Of files that are worth one more task."""

MOST_BYTES = 128 << 20
"""Of a part; as Spark has it (``spark.sql.files.maxPartitionBytes``)."""

OPEN_BYTES = 64 << 10
"""What opening a file costs, as bytes that are read."""

Dealt = list[list[tuple[int, Part]]]
"""Per task its parts, each with the number of its source, in the order of the files."""


def dealt(files: Sequence[tuple[int, str, int]], cores: int) -> Dealt:
    """Files, each with the number of its source and its size, shared out evenly.

    >>> [[part.path for _, part in task] for task in dealt([(0, "a", 3 << 20), (0, "b", 9), (1, "c", 9)], 2)]
    [['a'], ['b', 'c']]
    """
    total = sum(size + OPEN_BYTES for _, _, size in files)
    wanted = min(MOST_BYTES, max(LEAST_BYTES, -(-total // max(cores, 1))))
    pieces: list[tuple[int, int, int, Part]] = []  # size, place, source, part
    for source, path, size in files:
        count = max(1, size // wanted) if size > wanted else 1
        edges = [size * number // count for number in range(count)]
        ends: list[int | None] = [*edges[1:], None]
        for start, end in zip(edges, ends, strict=True):
            own = (size if end is None else end) - start + OPEN_BYTES
            pieces.append((own, len(pieces), source, Part(path, start, end)))
    tasks = max(1, min(len(pieces), -(-total // wanted)))
    heap = [(0, number) for number in range(tasks)]
    shares: list[list[tuple[int, int, Part]]] = [[] for _ in range(tasks)]
    for own, place, source, part in sorted(pieces, key=lambda piece: (-piece[0], piece[1])):
        filled, number = heapq.heappop(heap)
        shares[number].append((place, source, part))
        heapq.heappush(heap, (filled + own, number))
    by_place = [sorted(share, key=lambda piece: piece[0]) for share in shares if share]
    in_order = sorted(by_place, key=lambda share: share[0][0])
    return [[(source, part) for _, source, part in share] for share in in_order]
