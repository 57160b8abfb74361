"""Files that Arrow reads otherwise than Spark, or not at all, are Spark's to read: what Spark gives of each
was looked at (the comments say), and is other than what Arrow gave, or an error of its own."""

from __future__ import annotations

import base64
import os
import struct
from decimal import Decimal
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyarrow.parquet import encryption

from watersmeet.runtime.files import file_split, parquet_files
from watersmeet.runtime.files.file_split import FileSplit, UnsupportedFile
from watersmeet.runtime.files.parquet_files import ParquetRows
from watersmeet.runtime.files.validation import check_file
from watersmeet.types.parser import sql_type

BARE = {"use_dictionary": False, "compression": "none", "write_statistics": False, "store_schema": False}
DAY = 2_459_640
"""2022-03-01 as INT96 has it."""


def read_table_or_reason(path, columns):
    """All rows as tasks read them; why they are not, else."""
    kinds = {name: sql_type(text) for name, text in columns.items()}
    try:
        return pa.Table.from_batches(list(ParquetRows().rows_of(FileSplit(str(path)), kinds)))
    except UnsupportedFile as why:
        return str(why)


def written(path, table, *swaps, **how):
    """A file in which bytes were put in the place of others."""
    parquet.write_table(table, path, **{**BARE, **how})
    data = path.read_bytes()
    for old, new in swaps:
        assert old in data
        data = data.replace(old, new)
    path.write_bytes(data)
    return path


def int96(path, day, nanoseconds, *, writer=b"parquet-mr version", version=True):
    """A file with one time, as if Spark had written it."""
    time = pa.array([(DAY - 2_440_588) * 86_400_000_000], pa.timestamp("us"))
    table = pa.table({"c": time}).replace_schema_metadata(
        {"org.apache.spark.version": "4"} if version else {}
    )
    ours = b"parquet-cpp-arrow version"
    return written(
        path,
        table,
        (struct.pack("<qi", 0, DAY), struct.pack("<qi", nanoseconds, day)),
        (ours, writer.ljust(len(ours))),
        use_deprecated_int96_timestamps=True,
        store_schema=True,
    )


def test_int96_timestamps_of_spark_are_read(tmp_path):
    table = read_table_or_reason(int96(tmp_path / "a.parquet", DAY, 1500), {"c": "TIMESTAMP"})
    assert table["c"].cast(pa.int64()).to_pylist() == [1_646_092_800_000_001]


@pytest.mark.parametrize(
    ("day", "nanoseconds", "more"),
    [
        (0, 0, {}),  # Spark: 4714 BC; Arrow: 1970
        (-22_440_000, 5, {}),  # Spark: some 66,000 years ago; Arrow: about 2580
        (2**31 - 1, 0, {}),
        (DAY - 50_000, 0, {}),  # 1885
        (DAY, -1000, {"writer": b"parquet-cpp-arrow version"}),  # Spark: the day before; Arrow: 2606
        (DAY, -1000, {"version": False}),
        (DAY, 0, {"version": False}),
    ],
)
def test_int96_that_arrow_takes_for_another_time_is_sparks(tmp_path, day, nanoseconds, more):
    assert isinstance(
        read_table_or_reason(int96(tmp_path / "a.parquet", day, nanoseconds, **more), {"c": "TIMESTAMP"}), str
    )


def test_decimals_of_lengths_that_spark_takes_otherwise_are_sparks(tmp_path):
    """In 11 bytes with 10 digits: Spark gives 0.57 for 123.45 of 9 bytes. In 16 it does as Arrow."""
    digits = ((b"\x15\x32", b"\x15\x14"),)  # 25 of them -> 10
    table = pa.table({"c": pa.array([Decimal("123.45")], pa.decimal128(25, 2))})
    assert isinstance(
        read_table_or_reason(written(tmp_path / "a.parquet", table, *digits), {"c": "DECIMAL(10,2)"}), str
    )
    wide = pa.table({"c": pa.array([Decimal("123.45")], pa.decimal128(38, 2))})
    path = written(tmp_path / "b.parquet", wide, (b"\x15\x4c", b"\x15\x14"))
    assert read_table_or_reason(path, {"c": "DECIMAL(10,2)"})["c"].to_pylist() == [Decimal("123.45")]
    # Spark fails at these.
    assert (
        parquet_files._decimal(SimpleNamespace(physical_type="BYTE_ARRAY", precision=9, scale=2, length=0))
        is None
    )


@pytest.mark.parametrize(
    ("what", "table", "swaps"),
    [
        ("no columns", pa.Table.from_struct_array(pa.nulls(5, pa.struct([]))), ()),  # Spark fails
        (
            "a name that is not UTF-8",  # Spark reads its other columns
            pa.table({"abcd": [1], "c": [5]}),
            ((b"abcd", b"a\xff\xfed"),),
        ),
        # Says that it has 23 rows: Spark fails.
        ("fewer rows", pa.table({"c": list(range(20))}), ((b"\x16\x28", b"\x16\x2e"),)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_files_are_sparks_to_name(tmp_path, what, table, swaps):
    assert isinstance(
        read_table_or_reason(written(tmp_path / "a.parquet", table, *swaps), {"c": "BIGINT"}), str
    )


class KeysInTheirFiles(encryption.KmsClient):
    """No secrets: the key of a column is told beside it."""

    def wrap_key(self, key_bytes, master_key_identifier):
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key, master_key_identifier):
        return base64.b64decode(wrapped_key)


def test_columns_that_are_encrypted_are_sparks_and_end_no_process(tmp_path):
    """Asked for what a file says of such a column, Arrow calls abort(); so it does where that is damaged."""
    table, path = pa.table({"open": [1, 2], "secret": [3, 4]}), tmp_path / "a.parquet"
    how = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["secret"]}, plaintext_footer=True, double_wrapping=False
    )
    keys = encryption.CryptoFactory(lambda _: KeysInTheirFiles())
    written_so = keys.file_encryption_properties(encryption.KmsConnectionConfig(), how)
    with parquet.ParquetWriter(path, table.schema, encryption_properties=written_so) as writer:
        writer.write_table(table)
    assert "decrypt" in read_table_or_reason(path, {"open": "BIGINT", "secret": "BIGINT"})
    assert read_table_or_reason(path, {"open": "BIGINT"}) == table.select(["open"])
    cut = [
        ParquetRows().rows_of(FileSplit(str(path), start, end), {"open": sql_type("BIGINT")})
        for start, end in ((0, 4), (4, None))
    ]
    assert [batch.num_rows for part in cut for batch in part] == [2]


def test_names_that_are_no_utf_8_make_it_no_parquet(tmp_path):
    path = written(tmp_path / "a.parquet", pa.table({"name": [1]}), (b"name", b"n\x81me"))
    assert isinstance(read_table_or_reason(path, {"name": "BIGINT"}), str)
    assert "not a complete Parquet file" in check_file(str(path), "parquet", {}).what


def test_a_page_with_another_checksum_is_sparks(tmp_path):
    """Of local files Spark compares checksums that Hadoop keeps beside them."""
    table, swap = pa.table({"c": [0x1122334455667788]}), (b"\x88\x77\x66", b"\x88\x77\x67")
    assert (
        read_table_or_reason(
            written(tmp_path / "a.parquet", table, write_page_checksum=True), {"c": "BIGINT"}
        )
        == table
    )
    path = written(tmp_path / "b.parquet", table, swap, write_page_checksum=True)
    assert "checksum" in read_table_or_reason(path, {"c": "BIGINT"})


def test_a_file_that_is_replaced_while_it_is_read_is_read_as_it_was(tmp_path, monkeypatch):
    path = written(tmp_path / "a.parquet", pa.table({"c": [1, 2]}))
    other = written(tmp_path / "b.parquet", pa.table({"c": [3, 4]}))
    describe = parquet.read_metadata

    def describe_and_replace(where):
        described = describe(where)
        os.replace(other, path)
        return described

    monkeypatch.setattr(parquet, "read_metadata", describe_and_replace)
    assert read_table_or_reason(path, {"c": "BIGINT"})["c"].to_pylist() == [1, 2]


def test_a_file_that_says_different_numbers_of_its_rows(tmp_path):
    """Arrow leaves out what a row group does not own up to; Spark fails."""
    rows, fewer = b"\xea\x0f", b"\xa2\x0e"  # 1,013 and 913, as footers have them
    data = written(tmp_path / "a.parquet", pa.table({"c": list(range(1013))})).read_bytes()
    footer = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    places = [place for place in range(footer, len(data) - 8) if data[place : place + 2] == rows]
    refused = 0
    for place in places:
        path = tmp_path / f"{place}.parquet"
        path.write_bytes(data[:place] + fewer + data[place + 2 :])
        if isinstance(found := read_table_or_reason(path, {"c": "BIGINT"}), str):
            refused += "different numbers" in found
        else:
            assert found.num_rows == 1013
    assert refused == 3  # of the file, the column and the row group; what is left is statistics


def test_row_group_is_read_in_bounded_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_files, "BYTES", 1 << 20)
    monkeypatch.setattr(file_split, "BYTES", 1 << 20)
    table = pa.table({"c": [os.urandom(1000) for _ in range(16_000)]})
    path = written(tmp_path / "a.parquet", table)
    del table
    before, rows, most = pa.total_allocated_bytes(), 0, 0
    for batch in ParquetRows().rows_of(FileSplit(str(path)), {"c": sql_type("BINARY")}):
        rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == 16_000
    assert most < path.stat().st_size / 2
