"""Histories that were written under older names are read under those of now, and go on."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

from watersmeet.history import segments
from watersmeet.history.points import SCHEMA, Figures, Points
from watersmeet.history.reader import read
from watersmeet.history.segments import HistorySegment
from watersmeet.state.store import MemoryStore

FIRST = Figures(
    {("source/rows", "rows"): 7, ("job", "seconds"): 3, ("part/ingest", "seconds"): 2},
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
SECOND = Figures(
    {("source/rows", "rows_in"): 7, ("job", "seconds"): 3, ("part/ingest", "seconds"): 2},
    {
        ("source/rows", "backlog"): 2,
        ("source/rows", "read 0"): 9,
        ("query/held", "total_rows_out"): 5,
        ("query/held", "state_bytes"): 40,
        ("side/held/l", "retained"): 6,
        ("side/held/l", "file_bytes"): 50,
        ("input/held/l", "deleted"): 4,
        ("input/held/l", "retained"): 6,
    },
    [
        ("input/held/l", "standstill", "by a/0"),
        ("input/held/l", "heavy_keys", "k = 1"),
        ("input/held/l", "missing_deletes", "{k: 2}"),
    ],
    {("side/held/l", "heavy_keys", "k = 1"): 3},
)
BEFORE = {"first": (FIRST, None), "second": (SECOND, {"watersmeet.names": "2"})}
ONLY_SECOND = {
    ("job", "elapsed"): "elapsed_us",
    ("job", "clock"): "clock_us",
    ("source/s", "began 0"): "start offset 0",
    ("source/s", "untold parts"): "partition count",
    ("partition/q/l/s/0", "heard"): "last_row_us",
    ("input/q/l", "heard"): "heard",
    ("input/q/l", "read 0"): "read 0",
}


def as_before(
    store: MemoryStore, segment: HistorySegment, figures: Figures, names: dict[str, str] | None
) -> None:
    """Write a segment as earlier versions did; the first ones said nothing of names."""
    points, sink = Points(), pa.BufferOutputStream()
    points.add(1, 1_000, figures)
    columns = {"subject": "of", "min": "least", "max": "most"}
    table = points.table().rename_columns([columns.get(name, name) for name in SCHEMA.names])
    table = table.replace_schema_metadata(names)
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    content = sink.getvalue().to_pybytes()
    checksum = hashlib.blake2b(segment.name.encode() + b"\0" + content, digest_size=16).digest()
    store.write(segment.name, content + checksum)


def figures_in(past) -> dict[str, set[str]]:
    return {
        of: set(past.figures(of))
        for kind in ("job", "phase", "source", "query", "side", "input")
        for of in past.subjects(kind)
    }


NOW = {
    "job": {"duration_us"},
    "phase/ingest": {"duration_us"},
    "source/rows": {"rows_in", "backlog", "offset 0"},
    "query/held": {"total_rows_out", "state_bytes"},
    "side/held/l": {"retained", "file_bytes", "hot_keys"},
    "input/held/l": {"deleted", "retained", "standstill", "hot_keys", "missing_delete_examples"},
}


@pytest.mark.parametrize("before", BEFORE)
def test_older_names_are_those_of_now(before):
    store, segment = MemoryStore(), HistorySegment(0, 1, 1, 1, "0" * 8)
    as_before(store, segment, *BEFORE[before])
    past = read(store)
    assert past.problems == []
    assert past.points.schema == SCHEMA
    assert figures_in(past) == NOW
    assert past.series("input/held/l", "deleted").values("max") == [4]
    assert past.series("source/rows", "offset 0").values("min") == [9]
    assert past.keys("hot_keys") == {"side/held/l": {"k = 1": 3}}
    told = [(figure, text) for _, _, _, figure, text in past.told()]
    assert told == [("standstill", "by a/0"), ("hot_keys", "k = 1"), ("missing_delete_examples", "{k: 2}")]


def test_a_name_of_before_is_renamed_for_the_kind_that_had_it():
    store, segment = MemoryStore(), HistorySegment(0, 1, 1, 1, "0" * 8)
    as_before(store, segment, Figures(levels=dict.fromkeys(ONLY_SECOND, 1)), {"watersmeet.names": "2"})
    past = read(store)
    for (subject, _), now in ONLY_SECOND.items():
        assert now in past.figures(subject)


def test_what_is_written_again_is_renamed_once():
    """`rows` of a source is now `rows_in`; a figure that has an older name by chance stays as it is."""
    store, segment = MemoryStore(), HistorySegment(0, 1, 1, 1, "0" * 8)
    as_before(store, segment, *BEFORE["first"])
    table = segments.read_segment(store, segment)
    segments.write(store, HistorySegment(0, 1, 1, 2, "0" * 8), table)
    assert figures_in(read(store)) == NOW
    points = Points()
    points.add(2, 2_000, Figures({("source/s", "rows"): 1}))
    segments.write(store, HistorySegment(0, 2, 2, 1, "0" * 8), points.table())
    assert "rows" in read(store).figures("source/s")
