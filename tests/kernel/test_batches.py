"""Rows that are regrouped are all there, whatever their columns grow to; their bytes are known before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import EngineError
from watersmeet.kernel import batches
from watersmeet.kernel.batches import (
    batch_of,
    bound,
    cut_points,
    narrowed_batch,
    numbers,
    one_array,
    one_batch,
    same_rows,
    size,
    sizes,
    take_rows,
    take_values,
    widen_offsets,
)
from watersmeet.kernel.gather import (
    ChunkedRows,
    join_batches,
    pieces_of,
    row_sizes,
    rows_bound,
    take_column,
)

TEXT = pa.string()
WORDS = (
    *(pa.int8(), pa.int32(), pa.int64(), pa.uint32(), pa.float32(), pa.float64(), pa.date32()),
    *(pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.time64("us"), pa.duration("s"), pa.bool_()),
)
TYPES = {
    "text": (TEXT, lambda n: "x" * n),
    "bytes": (pa.binary(), lambda n: b"y" * n),
    "list": (pa.list_(pa.int64()), lambda n: list(range(n))),
    "texts": (pa.list_(TEXT), lambda n: ["ab"] * n),
    "map": (pa.map_(TEXT, TEXT), lambda n: [(f"k{i}", "v") for i in range(n)]),
    "struct": (pa.struct([("a", TEXT), ("b", pa.list_(TEXT))]), lambda n: {"a": "z" * n, "b": ["q"] * n}),
    "pair": (pa.list_(TEXT, 2), lambda n: ["p" * n, "q"]),
    "number": (pa.int64(), lambda n: n),
    "flag": (pa.bool_(), lambda n: n % 2 == 0),
    "decimal": (pa.decimal128(10, 2), lambda n: n),
    "nothing": (pa.null(), lambda n: None),
}


def batch(*lengths, nulls=True):
    arrays = {
        name: pa.array([None if nulls and n == 3 else make(n) for n in lengths], kind)
        for name, (kind, make) in TYPES.items()
    }
    return pa.RecordBatch.from_pydict(arrays)


@pytest.fixture
def small(monkeypatch):
    """As if a column held no more than 40 bytes behind 32-bit offsets."""
    monkeypatch.setattr(batches, "MAX_COLUMN_BYTES", 40)


def test_no_chunk_is_dropped_where_a_column_outgrows_its_offsets(small):
    parts = [batch(1, 5, 3), batch(7), batch(2, 3, 9, 4)]
    found = one_batch(parts)
    assert found.num_rows == 8
    assert found.schema.field("text").type == pa.large_string()
    assert found.schema.field("number").type == pa.int64()
    assert found.to_pylist() == [row for part in parts for row in part.to_pylist()]
    assert narrowed_batch(found, parts[0].schema).schema == parts[0].schema


@pytest.mark.parametrize("name", TYPES)
def test_chunks_of_any_type_become_one_array(small, name):
    parts = [batch(1, 5, 3).column(name), batch(7, 2, 8).column(name), batch(3).column(name).slice(1)]
    found = one_array(pa.chunked_array(parts))
    assert found.to_pylist() == [value for part in parts for value in part.to_pylist()]
    assert found.type == widen_offsets(parts[0].type)


def test_an_array_without_chunks_is_empty():
    assert one_array(pa.chunked_array([], TEXT)).to_pylist() == []
    assert batch_of(pa.table({"a": pa.chunked_array([], TEXT)})).num_rows == 0


def test_chosen_rows_may_be_many_times_the_rows(small):
    rows = np.array([0, 2, 2, 2, 1, 0, 3, 3])
    given = batch(9, 3, 12, 1)
    found = take_rows(given, rows)
    assert found.to_pylist() == [given.to_pylist()[row] for row in rows]
    assert found.schema.field("text").type == pa.large_string()


def test_a_difference_of_rows_stops_the_tick():
    same_rows("nothing", 3, 3)
    with pytest.raises(EngineError, match=r"merging: the step read 9 rows but produced 7") as error:
        same_rows("merging", 9, 7)
    assert error.value.code == "internal-rows"


@pytest.mark.parametrize("name", [name for name in TYPES if name != "nothing"])
@pytest.mark.parametrize("start", [0, 1, 3])
def test_sizes_are_those_of_the_values(name, start):
    lengths = (4, 0, 5, 20, 7)
    column = batch(*lengths, nulls=False).column(name).slice(start)
    found = sizes([column], np.arange(len(column)))
    assert found.sum() == size([column])
    # of a copy without the rest the buffers say it, but for a border and bits
    copied = column.take(pa.array(np.arange(len(column))))
    held = sum(buffer.size for buffer in copied.buffers() if buffer is not None)
    assert abs(held - found.sum()) <= 300
    order = np.array([len(column) - 1, 0, 0])
    assert sizes([column], order).tolist() == found[order].tolist()
    if name in ("text", "bytes"):
        assert found.tolist() == [length + 4 for length in lengths[start:]]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize("times", [1, 40], ids=["few rows of many", "rows many times"])
def test_the_bound_is_never_below_the_sizes(name, start, times):
    column = batch(*(4, 0, 5, 20, 7, 3) * 4).column(name).slice(start)
    for row in range(len(column)):
        rows = np.full(times, row)
        held = int(sizes([column], rows).sum())
        assert held <= bound([column], rows) <= times * int(sizes([column], np.arange(len(column))).max())
    widest = np.full(times, int(sizes([column], np.arange(len(column))).argmax()))
    assert bound([column, column], widest) == 2 * int(sizes([column], widest).sum())
    assert bound([column.slice(0, 0)], widest[:0]) == 0
    parts = pieces_of([batch(1, 5, 3), batch(2, 9)])
    rows = np.array([4, 0, 4, 4] * times)
    assert rows_bound(parts, [name], rows) >= int(row_sizes(parts, [name], rows).sum())


def test_the_bound_of_a_text_near_2_gib_does_not_wrap():
    offsets = pa.py_buffer(np.array([0, 2**31 - 1], dtype=np.int32))
    values = pa.py_buffer(np.empty(2**31 - 1, dtype=np.uint8))  # no byte of it is touched
    column = pa.Array.from_buffers(TEXT, 1, [None, offsets, values])
    assert bound([column], np.zeros(3, dtype=np.int64)) == 3 * (2**31 + 3)
    assert sizes([column], np.zeros(3, dtype=np.int64)).tolist() == [2**31 + 3] * 3


@pytest.mark.parametrize(
    ("of_rows", "most", "want"),
    [
        ([5, 5, 20, 1, 1], 10, [0, 2, 3, 5]),
        ([1, 1], 10, [0, 2]),
        ([], 10, [0, 0]),
        ([100], 10, [0, 1]),
        ([11, 11], 10, [0, 1, 2]),
    ],
)
def test_cuts(of_rows, most, want):
    assert cut_points(np.array(of_rows, dtype=np.int64), most) == want


def test_pieces_read_as_one_batch(small):
    parts = [batch(1, 5, 3), batch(7), batch(), batch(2, 3, 9, 4)]
    whole = one_batch(parts)
    found = join_batches(parts, 50)
    assert isinstance(found, ChunkedRows)
    order = np.random.default_rng(5).permutation(8)
    for given, want in ((found, whole), (found.reordered(order), take_rows(whole, order))):
        rows = np.array([7, 0, 0, 3, 5])
        for name in TYPES:
            assert take_column(given, name, rows).to_pylist() == take_column(want, name, rows).to_pylist()
            assert given.column(name).to_pylist() == want.column(name).to_pylist()
        assert given.whole().to_pylist() == want.to_pylist()
        assert given.slice(2, 3).whole().to_pylist() == want.slice(2, 3).to_pylist()
    exact = row_sizes(pieces_of(parts), list(TYPES), np.arange(8))
    assert exact.tolist() == [s for part in parts for s in sizes(part.columns, np.arange(part.num_rows))]
    assert isinstance(join_batches(parts, 10**6), pa.RecordBatch)


@pytest.mark.parametrize("kind", WORDS, ids=str)
@pytest.mark.parametrize("values", [[], [3], [0, 1, 0, 1, 1, 0], [1, None, 0, None]])
def test_chosen_rows_are_those_that_arrow_takes(kind, values):
    column = pa.array(values, pa.int64()).cast(pa.int32()).cast(kind) if kind.bit_width == 32 else None
    column = pa.array(values, pa.int64()).cast(kind, safe=False) if column is None else column
    for part in (column, column[1:], column[1:3]):
        for rows in ([], [0] * (2 * len(part) and 2), list(range(len(part)))[::-1]):
            chosen = np.array(rows, dtype=np.int64)
            expected = part.take(pa.array(chosen))
            own = take_values(part, chosen)
            assert own.equals(expected)
            assert own.type == kind
            own.validate(full=True)


def test_whole_numbers_are_the_same_in_arrow():
    for values in (
        np.arange(9)[::2],
        np.arange(4, dtype=np.uint32),
        np.zeros(0, dtype=np.int64),
        np.arange(3.0),
    ):
        assert numbers(values).equals(pa.array(values))
