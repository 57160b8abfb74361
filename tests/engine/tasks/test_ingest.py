"""Ingest: what becomes of each row, and what the tick learns from it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import EngineError
from watersmeet.event_time import DAY_US, NEVER
from watersmeet.kernel.slots import hash_columns
from watersmeet.measure import Measured
from watersmeet.names import FLAG, PARTITION
from watersmeet.runtime.messages.shapes import SideShape
from watersmeet.runtime.messages.work import TickStart
from watersmeet.runtime.tasks.ingest import AHEAD, LATE, NULL_TIME, ON_TIME, IngestWriter
from watersmeet.spec.flags import FLAG_BENEATH, FLAG_CANDIDATE, FLAG_FILTERED, FLAG_UNMATCHABLE
from watersmeet.state.runs.layout import RunLayout
from watersmeet.state.runs.reader import OpenRun
from watersmeet.state.store import MemoryStore


class Ingest:
    def __init__(
        self,
        *,
        times=("t",),
        padded=False,
        late_below=None,
        max_ahead=None,
        flush_rows=1000,
        keys=(),
        time_type=pa.int64(),  # noqa: B008
        null_fails=False,
        not_null=(),
    ) -> None:
        self.layout = RunLayout((Measured("t"),), times, times)
        self.time_type = time_type
        schema = pa.schema([*((name, time_type) for name in times), ("i", pa.int64())])
        side = SideShape(
            "q", "l", self.layout, schema, keys, (), padded, ("i",), changes=False, not_null=not_null
        )
        late = dict.fromkeys(times, NEVER) | (late_below or {})
        start = TickStart(
            tick=1, attempt="x", clock_us=100, sides={"q/l": side}, late_below={"q/l": late},
            max_ahead={"q/l": (max_ahead,)}, flush_rows=flush_rows, flush_bytes=1 << 30,
            sources={"q/l": ("s",)}, null_fails=null_fails,
        )  # fmt: skip
        self.store = MemoryStore()
        self.writer = IngestWriter(start, "q/l", 0, self.store)

    def add(self, **columns):
        rows = len(next(iter(columns.values())))
        columns.setdefault("i", list(range(rows)))
        types = {FLAG: pa.int8(), PARTITION: pa.string()} | dict.fromkeys(
            self.layout.event_times, self.time_type
        )
        arrays = {name: pa.array(values, types.get(name, pa.int64())) for name, values in columns.items()}
        return self.writer.add(pa.RecordBatch.from_pydict(arrays)).tolist()

    def finish(self):
        return self.writer.finish()

    def kept(self, report):
        return [
            OpenRun.open(self.store, run, self.layout).sorted_rows.batch.to_pydict()["i"]
            for run in report.runs
        ]


def test_late_is_below_the_watermark_and_equal_is_on_time():
    ingest = Ingest(late_below={"t": 10})
    assert ingest.add(t=[9, 10, 11]) == [LATE, ON_TIME, ON_TIME]
    report = ingest.finish()
    assert report.counts == {"in": 3, "late": 1, "kept": 2}
    assert ingest.kept(report) == [[1, 2]]


def test_a_row_is_late_by_any_of_its_times():
    ingest = Ingest(times=("t", "u"), late_below={"t": 10, "u": 20})
    assert ingest.add(t=[9, 10, 10, 9], u=[20, 19, 20, 19]) == [LATE, LATE, ON_TIME, LATE]


def test_late_rows_move_the_watermark_too():
    ingest = Ingest(late_below={"t": 10})
    ingest.add(t=[3, 9])
    assert ingest.finish().greatest == {"": {"t": 9}}


def test_a_null_time_is_dropped_and_counted():
    ingest = Ingest(times=("t", "u"))
    assert ingest.add(t=[1, None, 3], u=[None, 5, 6]) == [NULL_TIME, NULL_TIME, ON_TIME]
    report = ingest.finish()
    assert report.counts == {"in": 3, "null_time": 2, "kept": 1}
    assert report.greatest == {"": {"t": 3, "u": 6}}


def test_late_by_one_time_and_null_in_the_other_is_late():
    ingest = Ingest(times=("t", "u"), late_below={"t": 10})
    assert ingest.add(t=[9], u=[None]) == [LATE]


def test_a_time_too_far_ahead_is_set_aside_and_moves_nothing():
    ingest = Ingest(max_ahead=50, time_type=pa.timestamp("us"))
    assert ingest.add(t=[150, 151, 7]) == [ON_TIME, AHEAD, ON_TIME]
    report = ingest.finish()
    assert report.counts == {"in": 3, "ahead": 1, "kept": 2}
    assert report.greatest == {"": {"t": 150}}


def test_no_time_of_a_row_that_is_ahead_counts():
    ingest = Ingest(times=("t", "u"), max_ahead=50, late_below={"u": 10}, time_type=pa.timestamp("us"))
    assert ingest.add(t=[1000, 20], u=[5, 12]) == [AHEAD, ON_TIME]
    assert ingest.finish().greatest == {"": {"t": 20, "u": 12}}


FLAGS = [FLAG_CANDIDATE, FLAG_FILTERED, FLAG_UNMATCHABLE, FLAG_BENEATH]


@pytest.mark.parametrize("padded", [False, True])
def test_each_flag_has_its_place(padded):
    ingest = Ingest(padded=padded)
    ingest.add(t=[1, 2, 3, 99], **{FLAG: FLAGS})
    report = ingest.finish()
    place = "padded" if padded else "unmatchable"
    assert report.counts == {"beneath": 1, "in": 3, "filtered": 1, place: 1, "kept": 1}
    assert ingest.kept(report) == [[0]]
    assert [file.rows for file in report.pads] == ([1] if padded else [])


def test_filtered_rows_advance_watermark_unless_filtered_before_ordering():
    ingest = Ingest(late_below={"t": 10})
    flags = [FLAG_FILTERED, FLAG_FILTERED, FLAG_UNMATCHABLE, FLAG_BENEATH, FLAG_BENEATH]
    assert ingest.add(t=[5, 20, 6, 5, 99], **{FLAG: flags}) == [LATE, ON_TIME, LATE, ON_TIME, ON_TIME]
    report = ingest.finish()
    assert report.greatest == {"": {"t": 20}}
    assert report.counts == {"beneath": 2, "in": 3, "late": 2, "filtered": 1}


def test_times_are_seen_per_partition():
    ingest = Ingest()
    ingest.add(t=[1, 5, 3, 9], **{PARTITION: ["p", "q", "p", None]})
    ingest.add(t=[2, 4], **{PARTITION: ["p", "p"]})
    assert ingest.finish().greatest == {"p": {"t": 4}, "q": {"t": 5}, "": {"t": 9}}


def test_a_partition_is_known_even_if_its_times_are_null():
    ingest = Ingest()
    ingest.add(t=[None, 4], **{PARTITION: ["p", "q"]})
    assert ingest.finish().greatest == {"p": {}, "q": {"t": 4}}


def test_runs_are_flushed_without_duplicate_rows():
    ingest = Ingest(flush_rows=3)
    for first in (0, 2, 4, 6):
        ingest.add(t=[first, first + 1], i=[first, first + 1])
    report = ingest.finish()
    assert ingest.kept(report) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert report.counts["kept"] == 8


def test_runs_are_in_order_of_the_hash():
    ingest = Ingest(keys=("i",))
    keys = list(range(50))
    ingest.add(t=[7] * 50, i=keys)
    hashes = hash_columns([pa.array(keys)], 50)
    assert ingest.kept(ingest.finish()) == [np.argsort(hashes).tolist()]


def test_no_rows_no_files():
    ingest = Ingest(padded=True)
    assert ingest.add(t=[]) == []
    report = ingest.finish()
    assert (report.runs, report.pads, report.counts, report.greatest) == ([], [], {}, {})
    assert ingest.store.names("runs") == []


def test_row_counters_add_up_to_input_rows(seed):
    rng = np.random.default_rng(seed)
    ingest = Ingest(
        times=("t", "u"), late_below={"t": 20}, max_ahead=-20, padded=True, time_type=pa.timestamp("us")
    )
    for _ in range(10):
        flags = rng.choice(FLAGS, 50).tolist()
        times = [[None if rng.random() < 0.1 else int(t) for t in rng.integers(0, 100, 50)] for _ in range(2)]
        ingest.add(t=times[0], u=times[1], **{FLAG: flags})
    counts = ingest.finish().counts
    assert counts["in"] + counts["beneath"] == 500
    assert counts["in"] == sum(rows for what, rows in counts.items() if what not in ("in", "beneath"))
    assert len(counts) == 8, "every fate is met"


def test_numbers_are_never_ahead_of_the_clock():
    ingest = Ingest(max_ahead=5)
    assert ingest.add(t=[10**18]) == [ON_TIME]


def test_how_late_rows_are_and_what_they_missed():
    ingest = Ingest(times=("t", "u"), late_below={"t": 10, "u": 20})
    ingest.add(t=[9, 10, 10, 9], u=[20, 8, 20, 19])
    columns = ingest.writer.missed_columns(np.array([True, True, False, True]))
    assert [column.to_pylist() for column in columns] == [
        ["l.t", "l.u", "l.t"],
        ["10", "20", "10"],
        [1, 12, 1],
    ]
    assert ingest.add(t=[12], u=[30]) == [ON_TIME]
    columns = ingest.writer.missed_columns(np.array([True]))
    assert [column.to_pylist() for column in columns] == [[None], [None], [None]]
    late = ingest.finish().late
    assert {column: (each.counts, each.most) for column, each in late.items()} == {
        "t": ({"<10": 2}, 1),
        "u": ({"<100": 1}, 12),
    }


def test_missed_watermarks_of_times_are_written_as_times():
    ingest = Ingest(late_below={"t": 3_600_000_000}, time_type=pa.timestamp("us", tz="UTC"))
    ingest.add(t=[0])
    key, watermark, late_by = ingest.writer.missed_columns(np.array([True]))
    assert (key[0].as_py(), watermark[0].as_py()) == ("l.t", "1970-01-01 01:00:00")
    assert late_by[0].as_py() == 3_600_000_000
    assert ingest.finish().late["t"].counts == {"<6h": 1}


def test_null_time_fails_the_tick_when_on_null_time_is_fail():
    ingest = Ingest(late_below={"t": 10}, null_fails=True)
    assert ingest.add(t=[9, 11]) == [LATE, ON_TIME]
    with pytest.raises(EngineError) as raised:
        ingest.add(t=[11, None], i=[3, 4], **{PARTITION: ["7", "7"]})
    assert raised.value.code == "null-time"
    assert raised.value.message == (
        "source \"s\" (partition 7): a row has no valid t (NULL), and on_null_time is 'fail'"
        '; the row: {"t": null, "i": 4}'
    )


def test_dates_that_are_out_of_reach_have_no_time_and_meet_none():
    """2³¹ − 1 stands for infinity in some systems: it would move the watermark, and meet other such dates."""
    days = pa.array([3, 2**31 - 1, -(2**31)], pa.int32()).view(pa.date32())
    ingest = Ingest(time_type=pa.date32())
    assert ingest.add(t=days) == [ON_TIME, NULL_TIME, NULL_TIME]
    report = ingest.finish()
    assert report.counts == {"in": 3, "null_time": 2, "kept": 1}
    assert report.greatest == {"": {"t": 3 * DAY_US}}
    with pytest.raises(EngineError) as raised:
        Ingest(time_type=pa.date32(), null_fails=True).add(t=days)
    assert raised.value.message == (
        "source \"s\": a row has no valid t (out of range), and on_null_time is 'fail'"
        '; the row: {"t": "+5881580-07-11", "i": 1}'
    )


def test_error_shows_a_time_beyond_the_range_of_python():
    """A time of the year 10,000."""
    ingest = Ingest(times=("t", "u"), time_type=pa.timestamp("us"), null_fails=True)
    with pytest.raises(EngineError) as raised:
        ingest.add(t=pa.array([253402300800000000], pa.timestamp("us")), u=[None])
    assert raised.value.message.endswith('the row: {"t": "+10000-01-01T00:00:00", "u": null, "i": 0}')


def test_rows_filtered_before_ordering_may_have_null_time():
    ingest = Ingest(null_fails=True)
    assert ingest.add(t=[None], **{FLAG: [FLAG_BENEATH]}) == [ON_TIME]


@pytest.mark.parametrize("padded", [False, True])
def test_a_null_where_none_may_be_makes_a_candidate_unmatchable_and_changes_no_other(padded):
    ingest = Ingest(padded=padded, not_null=("i",))
    flags = [*FLAGS, *FLAGS]
    ingest.add(t=[1] * 8, i=[None] * 4 + [4, 5, 6, 7], **{FLAG: flags})
    ingest.add(t=[2, 3], i=[8, None])
    report = ingest.finish()
    unmatchable = {"padded" if padded else "unmatchable": 4}
    assert report.counts == {"beneath": 2, "in": 8, "filtered": 2, "kept": 2, **unmatchable}
    assert sorted(i for rows in ingest.kept(report) for i in rows) == [4, 8]
