"""Which columns of Parquet files get a dictionary, and that every value comes back as it was written."""

import weakref
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet

from watersmeet.sinks import parquet as parquet_part
from watersmeet.sinks.lake.data_files import LakePart
from watersmeet.sinks.parquet import (
    MIN_SAMPLED_ROWS,
    ParquetPart,
    dictionaries_of,
    dictionary_columns,
    encodings_of_own,
)

ROWS = 3 * MIN_SAMPLED_ROWS
EPOCH_US = 1_650_000_000_000_000
FEW = ["few", "code", "day", "minute", "price", "rate", "half NULL", "no text"]
"""Columns of `rows` with few different values."""


def rows(seed=1, count=ROWS):
    rng = np.random.default_rng(seed)
    order = rng.permutation(count)
    us = pa.timestamp("us", tz="UTC")
    days = pa.array(rng.integers(19_000, 19_030, count).astype("int32"))
    return pa.table(
        {
            "id": order,
            "random": rng.integers(-(2**63), 2**63 - 1, count),
            "few": pa.array(rng.integers(-9, 9, count), pa.int32()),
            "time": pa.array(EPOCH_US + 1_000 * order, us),
            "minute": pa.array(EPOCH_US + 60_000_000 * rng.integers(0, 99, count), us),
            "day": days.cast(pa.date32()),
            "code": [f"c{n}" for n in rng.integers(0, 99, count)],
            "reference": [f"r{n:09d}" for n in order],
            "price": pa.array([Decimal(int(n)).scaleb(-2) for n in rng.integers(0, 99, count)]),
            "measured": rng.normal(size=count),
            "rate": rng.integers(0, 9, count) / 8,
            "flag": rng.random(count) < 0.5,
            "mostly NULL": pa.array(order, mask=rng.random(count) < 0.999),
            "half NULL": pa.array(order % 9, mask=rng.random(count) < 0.5),
            "many half NULL": pa.array(order, mask=rng.random(count) < 0.5),
            "no value": pa.nulls(count, us),
            "no text": pa.nulls(count, pa.string()),
        }
    )


def encodings(file):
    group = parquet.read_metadata(file).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema: set(column.encodings) for column in columns}


def find_dictionary_columns(file):
    return {name for name, of_column in encodings(file).items() if "RLE_DICTIONARY" in of_column}


def test_columns_of_few_values_get_one():
    assert set(dictionary_columns(rows())) == set(FEW)


@pytest.mark.parametrize(("different", "worth"), [(20, False), (5, True), (2, True)])
def test_texts_by_how_many_rows_have_each(different, worth):
    """So many texts in 40 rows. Rows of one text are together, or spread."""
    count = 50_000
    numbers = np.arange(count) * different // 40
    for given in (numbers, np.random.default_rng(3).permutation(numbers)):
        table = pa.table({"t": pc.cast(pa.array(given), pa.string())})
        assert bool(dictionary_columns(table)) is worth


def test_first_rows_without_values_do_not_make_one(tmp_path):
    """Those that an outer join puts out unmatched may come first: the numbers behind them get none."""
    table = rows(count=MIN_SAMPLED_ROWS)
    first = pa.table({f.name: pa.nulls(MIN_SAMPLED_ROWS, f.type) for f in table.schema}, schema=table.schema)
    ParquetPart(str(tmp_path)).write(0, table.schema, iter([*first.to_batches(), *table.to_batches()]))
    (file,) = tmp_path.iterdir()
    assert find_dictionary_columns(file) == {"code", "reference", "no text"}
    assert parquet.read_table(file).equals(pa.concat_tables([first, table]))


def test_few_rows_are_not_looked_at():
    table = rows(count=MIN_SAMPLED_ROWS - 1)
    assert dictionary_columns(table) == ["code", "reference", "no text"]
    assert dictionary_columns(pa.table({"a": []})) == []


def test_columns_within_others_keep_theirs():
    assert dictionaries_of(rows().append_column("l", pa.array([["a"]] * ROWS))) is True
    assert dictionaries_of(pa.table({"id": range(ROWS)})) is False
    assert dictionaries_of(pa.table({"day": [1] * ROWS})) == ["day"]


def test_files_of_tasks(tmp_path):
    """Small batches before the others do not decide, and readers have what was written."""
    table = rows()
    batches = [*table.slice(0, 700).to_batches(max_chunksize=7), *table.slice(700).to_batches()]
    ParquetPart(str(tmp_path)).write(3, table.schema, iter(batches))
    (file,) = tmp_path.iterdir()
    assert find_dictionary_columns(file) == set(FEW)
    assert {name for name, found in encodings(file).items() if found - {"PLAIN", "RLE"}} == set(FEW)
    assert parquet.read_table(file).equals(table)
    connected = duckdb.connect()
    connected.execute("SET TimeZone = 'UTC'")
    read = connected.sql(f"SELECT * FROM read_parquet('{file}')").to_arrow_table()
    assert read.cast(table.schema).equals(table)


def test_writer_buffers_few_wide_rows_for_sampling(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_part, "SAMPLE_BYTES", 10_000)
    alive: list[weakref.ref[pa.RecordBatch]] = []

    def wide_rows():
        for number in range(50):
            assert sum(batch() is not None for batch in alive) < 15
            batch = pa.record_batch({"t": [str(number) * 1_000]})
            alive.append(weakref.ref(batch))
            yield batch

    ParquetPart(str(tmp_path)).write(0, pa.schema([("t", pa.string())]), wide_rows())
    (file,) = tmp_path.iterdir()
    texts = parquet.read_table(file).column("t").to_pylist()
    assert texts == [str(number) * 1_000 for number in range(50)]


def test_no_batches_are_no_file_and_a_batch_of_no_rows_is_one(tmp_path):
    schema = rows().schema
    ParquetPart(str(tmp_path)).write(0, schema, iter(()))
    assert not list(tmp_path.iterdir())
    ParquetPart(str(tmp_path)).write(0, schema, iter([pa.RecordBatch.from_pylist([], schema=schema)]))
    assert [parquet.read_table(file).num_rows for file in tmp_path.iterdir()] == [0]


def test_files_of_tables(tmp_path):
    """With the statistics that readers pass over files by, of columns with a dictionary, too."""
    table = rows()
    written = LakePart(str(tmp_path), "ws").write(
        0, table.schema, iter(table.to_batches(max_chunksize=5_000))
    )
    assert find_dictionary_columns(written["path"]) == set(FEW)
    assert parquet.read_table(written["path"]).equals(table)
    assert written["rows"] == ROWS
    assert written["stats"]["nullCount"]["mostly NULL"] == table.column("mostly NULL").null_count
    group = parquet.read_metadata(written["path"]).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    unknown = {column.path_in_schema for column in columns if not column.statistics.has_min_max}
    assert unknown == {"no value", "no text"}


def test_files_that_nobody_else_reads_hold_differences(tmp_path):
    table, file = rows(), tmp_path / "own.parquet"
    with parquet.ParquetWriter(file, table.schema, **encodings_of_own(table, table.schema)) as writer:
        writer.write_table(table)
    found = encodings(file)
    differences = {name for name, of in found.items() if "DELTA_BINARY_PACKED" in of}
    assert differences == {"id", "random", "time", "mostly NULL", "many half NULL", "no value"}
    assert find_dictionary_columns(file) == set(FEW)
    assert parquet.read_table(file).equals(table)


@pytest.mark.spark
def test_spark_reads_the_same(spark, tmp_path):
    """What it reads of values without a dictionary."""
    table = rows()
    places = {"coded": tmp_path / "coded", "plain": tmp_path / "plain"}
    for place in places.values():
        place.mkdir()
    ParquetPart(str(places["coded"])).write(0, table.schema, iter(table.to_batches()))
    parquet.write_table(table, places["plain"] / "a.parquet", use_dictionary=False)

    def digest(name):
        frame = spark.read.parquet(str(places[name]))
        return frame.selectExpr("count(*)", "bit_xor(xxhash64(*))", "sum(id)").collect()

    assert digest("coded") == digest("plain")
