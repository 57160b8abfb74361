"""Histories that were written under older names are read under those of now, and go on."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from watersmeet.history import segments
from watersmeet.history.past import read
from watersmeet.history.points import SCHEMA, Figures, Points
from watersmeet.history.segments import Segment
from watersmeet.state.store import MemoryStore

OLD = Figures(
    {("source/rows", "rows"): 7, ("job", "seconds"): 3},
    {
        ("source/rows", "unread"): 2,
        ("source/rows", "read 0"): 9,
        ("query/held", "rows_out"): 5,
        ("query/held", "bytes"): 40,
        ("side/held/l", "rows"): 6,
        ("side/held/l", "bytes"): 50,
        ("input/held/l", "deleted"): 4,
        ("input/held/l", "retained"): 6,
    },
    [
        ("input/held/l", "held", "by a/0"),
        ("input/held/l", "hot", "k = 1"),
        ("input/held/l", "deleted", "{k: 2}"),
    ],
    {("side/held/l", "key", "k = 1"): 3},
)


def as_before(store: MemoryStore, segment: Segment) -> None:
    """Written as versions did that had the older names, whose segments say nothing of names."""
    points, sink = Points(), pa.BufferOutputStream()
    points.add(1, 1_000, OLD)
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_table(points.table())
    content = sink.getvalue().to_pybytes()
    checksum = hashlib.blake2b(segment.name.encode() + b"\0" + content, digest_size=16).digest()
    store.write(segment.name, content + checksum)


def figures_in(past) -> dict[str, set[str]]:
    return {
        of: set(past.figures(of))
        for kind in ("source", "query", "side", "input")
        for of in past.subjects(kind)
    }


NOW = {
    "source/rows": {"rows_in", "backlog", "read 0"},
    "query/held": {"total_rows_out", "state_bytes"},
    "side/held/l": {"retained", "file_bytes", "heavy_keys"},
    "input/held/l": {"deleted", "retained", "standstill", "heavy_keys", "missing_deletes"},
}


def test_older_names_are_those_of_now():
    store, segment = MemoryStore(), Segment(0, 1, 1, 1, "0" * 8)
    as_before(store, segment)
    past = read(store)
    assert past.problems == []
    assert figures_in(past) == NOW
    assert past.series("input/held/l", "deleted").values() == [4]
    assert past.keys("heavy_keys") == {"side/held/l": {"k = 1": 3}}
    told = [(figure, text) for _, _, _, figure, text in past.told()]
    assert told == [("standstill", "by a/0"), ("heavy_keys", "k = 1"), ("missing_deletes", "{k: 2}")]


def test_what_is_written_again_is_renamed_once():
    """`rows` of a source is now `rows_in`; a figure that has an older name by chance stays as it is."""
    store, segment = MemoryStore(), Segment(0, 1, 1, 1, "0" * 8)
    as_before(store, segment)
    table = segments.read(store, segment)
    segments.write(store, Segment(0, 1, 1, 2, "0" * 8), table)
    assert figures_in(read(store)) == NOW
    points = Points()
    points.add(2, 2_000, Figures({("source/s", "rows"): 1}))
    segments.write(store, Segment(0, 2, 2, 1, "0" * 8), points.table())
    assert "rows" in read(store).figures("source/s")
