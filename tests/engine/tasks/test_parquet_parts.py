"""Files that tasks read: every row group is one task's, and what a batch holds is bounded."""

from __future__ import annotations

import random

import pyarrow as pa
from pyarrow import parquet

from watersmeet.runtime.files.file_split import (
    BYTES,
    MAX_SPLIT_BYTES,
    MIN_SPLIT_BYTES,
    OPEN_BYTES,
    FileSplit,
    assign_splits,
)
from watersmeet.runtime.files.parquet_files import ParquetRows
from watersmeet.types.parser import sql_type

TEXT, WHOLE = sql_type("STRING"), sql_type("BIGINT")


def test_every_byte_of_every_file_is_one_tasks(seed):
    rng = random.Random(seed)
    print(f"seed {seed}")
    for _ in range(200):
        sizes = [
            rng.choice([0, 1, 9, 1 << 20, 300 << 20, rng.randrange(1 << 24)])
            for _ in range(rng.randint(1, 9))
        ]
        cores = rng.choice([1, 2, 7])
        shares = assign_splits([(n % 2, str(n), size) for n, size in enumerate(sizes)], cores)
        assert all(shares)
        parts = [(source, part) for share in shares for source, part in share]
        for number, size in enumerate(sizes):
            own = [part for source, part in parts if part.path == str(number)]
            assert all(source == number % 2 for source, part in parts if part.path == str(number))
            for offset in (-5, 0, 4, size // 2, size - 1, size, size + 99, rng.randrange(size + 1)):
                assert sum(part.has(offset) for part in own) == 1
        filled = [
            sum((part.end or sizes[int(part.path)]) - part.start for _, part in share) for share in shares
        ]
        assert max(filled) <= 2 * max(MIN_SPLIT_BYTES, MAX_SPLIT_BYTES) + OPEN_BYTES
        if sum(sizes) < MIN_SPLIT_BYTES // 2:
            assert len(shares) == 1


def test_tasks_have_about_as_much_each():
    shares = assign_splits([(0, str(n), 5 << 20) for n in range(6)], 2)
    assert [len(share) for share in shares] == [3, 3]


def test_parts_of_a_file_have_its_rows(tmp_path):
    path = str(tmp_path / "a.parquet")
    parquet.write_table(pa.table({"a": range(1000)}), path, row_group_size=70)
    size = (tmp_path / "a.parquet").stat().st_size
    edges = [0, size // 7, size // 2, size - 1]
    parts = [FileSplit(path, start, end) for start, end in zip(edges, [*edges[1:], None], strict=True)]
    found = [
        batch.column(0).to_pylist() for part in parts for batch in ParquetRows().rows_of(part, {"a": WHOLE})
    ]
    assert [value for values in found for value in values] == list(range(1000))
    assert len(found) > 2, "row groups are of different parts"


def test_many_row_groups_are_few_batches(tmp_path):
    parquet.write_table(pa.table({"a": range(5000)}), tmp_path / "a.parquet", row_group_size=10)
    assert len(list(ParquetRows().rows_of(FileSplit(str(tmp_path / "a.parquet")), {"a": WHOLE}))) == 1


def test_no_columns_are_rows_too(tmp_path):
    parquet.write_table(pa.table({"a": range(50)}), tmp_path / "a.parquet", row_group_size=20)
    batches = list(ParquetRows().rows_of(FileSplit(str(tmp_path / "a.parquet")), {"b": WHOLE}))
    assert sum(batch.num_rows for batch in batches) == 50
    assert batches[0].column(0).null_count == batches[0].num_rows


def test_a_small_file_of_texts_that_come_to_gigabytes_is_read_in_pieces(tmp_path):
    """Kept once in the file, each text stands in thousands of rows."""
    wide = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 4000, pa.int32()), ["a" * 300_000, "b" * 300_000])
    parquet.write_table(pa.table({"a": wide}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    rows = 0
    for batch in ParquetRows().rows_of(FileSplit(str(tmp_path / "a.parquet")), {"a": TEXT}):
        assert batch.nbytes <= BYTES + 300_008
        assert batch.column(0)[0].as_py()[0] == "ab"[rows % 2]
        rows += batch.num_rows
    assert rows == 8000


def test_texts_of_all_columns_count_and_their_longest_ones(tmp_path):
    """Neither column alone comes to more than a piece, nor do their shortest texts."""
    rows, length = 4000, BYTES * 2 // 3 // 4000
    texts = pa.DictionaryArray.from_arrays(pa.array([0, *[1] * (rows - 1)], pa.int32()), ["b", "a" * length])
    parquet.write_table(pa.table({"a": texts, "b": texts}), tmp_path / "a.parquet")
    batches = list(ParquetRows().rows_of(FileSplit(str(tmp_path / "a.parquet")), {"a": TEXT, "b": TEXT}))
    assert sum(batch.num_rows for batch in batches) == rows
    assert len(batches) > 1
    assert max(batch.nbytes for batch in batches) <= BYTES + 2 * length + 16 * rows


def test_wide_rows_are_read_in_pieces(tmp_path):
    table = pa.table({"a": [chr(97 + n % 26) * 1_000_000 for n in range(200)]})
    parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=False)
    batches = list(ParquetRows().rows_of(FileSplit(str(tmp_path / "a.parquet")), {"a": TEXT}))
    assert max(batch.nbytes for batch in batches) <= BYTES + 2_000_000
    assert pa.Table.from_batches(batches).equals(table)
