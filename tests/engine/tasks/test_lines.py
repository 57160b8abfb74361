"""Lines of text files that parts begin: each of one part, whatever the cuts; and texts that are refused."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import csv

from watersmeet.runtime.files import file_split, text_files
from watersmeet.runtime.files.file_split import FileSplit, UnsupportedFile
from watersmeet.runtime.files.text_files import (
    CsvRows,
    JsonRows,
    count_lines,
    is_blank,
    measure_text_file,
    read_blocks,
)
from watersmeet.runtime.files.text_values import parse_texts
from watersmeet.spec.options.files import COMPRESSED
from watersmeet.types.arrow import in_arrow
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import decimal

INT, STRING = sql_type("INT"), sql_type("STRING")


def lines_of(path, edges, size=None):
    ends = [*edges[1:], size]
    parts = [FileSplit(str(path), start, end) for start, end in zip(edges, ends, strict=True)]
    return [
        [line for block in read_blocks(part) for line in block.splitlines(keepends=True)] for part in parts
    ]


def test_each_line_is_of_the_part_that_it_begins_in(tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    print(f"seed {seed}")
    for _ in range(300):
        monkeypatch.setattr(text_files, "BLOCK", rng.choice([1, 3, 16, 4 << 20]))
        end = rng.choice([b"\n", b"\r\n"])
        texts = [b"x" * rng.choice([0, 1, 5, 40]) + "ä".encode() for _ in range(rng.randint(0, 12))]
        whole = end.join(texts) + rng.choice([b"", end])
        mark = rng.choice([b"", b"\xef\xbb\xbf"])
        (tmp_path / "a").write_bytes(mark + whole)
        edges = [0, *sorted(rng.randint(3, len(whole) + 9) for _ in range(rng.randint(0, 4)))]
        by_part = lines_of(tmp_path / "a", edges)
        assert b"".join(line for of_part in by_part for line in of_part) == whole
        at = len(mark)
        for line in whole.splitlines(keepends=True):
            (own,) = [n for n, e in enumerate([*edges[1:], 10**9]) if edges[n] <= at < e]
            assert by_part[own].pop(0) == line
            at += len(line)
        assert measure_text_file(str(tmp_path / "a")) == (whole.count(b"\n") + 1, len(mark + whole))


@pytest.mark.parametrize(
    "content",
    [b"a\0b\n", b"a\rb\n", b"a\r", b"\r\r\n", b"\xff\n", b"\xed\xa0\x80\n", b"\xc3", b"\xf5\x80\x80\x80"],
)
def test_what_other_readers_take_for_something_else_is_refused(tmp_path, content):
    (tmp_path / "a").write_bytes(b"a\n" * 5 + content)
    with pytest.raises(UnsupportedFile):
        list(read_blocks(FileSplit(str(tmp_path / "a"))))


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_are_counted_but_empty_ones(seed, end):
    rng = random.Random(seed)
    print(f"seed {seed}")
    for _ in range(300):
        texts = [rng.choice([b"", b"", b"a", b"bc", b" "]) for _ in range(rng.randint(1, 8))]
        block = end.join(texts) + rng.choice([b"", end])
        if block:
            assert count_lines(block) == sum(map(bool, texts)), block
            assert is_blank(block) is not any(text.strip() for text in texts)


def test_rows_that_are_not_as_many_as_lines_are_refused(tmp_path, monkeypatch):
    """Whatever Arrow makes of a file: none is lost, or doubled, in silence."""
    kinds = {"n": INT, "s": STRING}
    (tmp_path / "a.csv").write_text("n,s\n1,a\n\n2,b\n")
    reader = CsvRows(tuple(kinds.items()), ",", True, "UTC")
    assert sum(batch.num_rows for batch in reader.rows_of(FileSplit(str(tmp_path / "a.csv")), kinds)) == 2
    read = csv.read_csv
    monkeypatch.setattr(csv, "read_csv", lambda *given, **more: read(*given, **more).slice(1))
    with pytest.raises(UnsupportedFile, match="different numbers"):
        list(reader.rows_of(FileSplit(str(tmp_path / "a.csv")), kinds))


def test_batches_of_many_rows_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(file_split, "ROWS", 100)
    kinds = {"n": INT, "s": STRING}
    (tmp_path / "a.csv").write_text("n,s\n" + "".join(f"{n},a\n" for n in range(250)))
    reader = CsvRows(tuple(kinds.items()), ",", True, "UTC")
    batches = list(reader.rows_of(FileSplit(str(tmp_path / "a.csv")), kinds))
    assert [batch.num_rows for batch in batches] == [100, 100, 50]
    assert [n for batch in batches for n in batch.column(0).to_pylist()] == list(range(250))


def test_compressed_files_and_endless_lines_are_refused(tmp_path, monkeypatch):
    for suffix in (*COMPRESSED, ".GZ"):
        (tmp_path / f"a{suffix}").write_bytes(b"a\n")
        with pytest.raises(UnsupportedFile, match="compressed"):
            list(read_blocks(FileSplit(str(tmp_path / f"a{suffix}"))))
    monkeypatch.setattr(text_files, "BYTES", 1000)
    monkeypatch.setattr(text_files, "BLOCK", 100)
    (tmp_path / "a").write_bytes(b"x" * 1000 + b"\n" + b"y" * 900)
    assert [len(block) for block in read_blocks(FileSplit(str(tmp_path / "a")))] == [1001, 900]
    (tmp_path / "a").write_bytes(b"x\n" + b"y" * 1200)
    for endless in (
        FileSplit(str(tmp_path / "a")),
        FileSplit(str(tmp_path / "a"), 0, 10),
        FileSplit(str(tmp_path / "a"), 5, 9),
    ):
        with pytest.raises(UnsupportedFile, match="longer"):
            list(read_blocks(endless))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_batches_are_bounded_and_a_block_may_end_anywhere(tmp_path, monkeypatch, end):
    monkeypatch.setattr(text_files, "BLOCK", 64)
    rows = [(number, f"text {number}") for number in range(2000)]
    kinds = {"n": INT, "s": STRING}
    (tmp_path / "a.csv").write_text(
        "n,s" + end + end.join(f"{n},{s}" for n, s in rows), encoding="utf-8", newline=""
    )
    (tmp_path / "a.json").write_text(
        end.join(f'{{"n":{n},"s":"{s}"}}' for n, s in rows) + end + end, encoding="utf-8", newline=""
    )
    for reader, name in (
        (CsvRows(tuple(kinds.items()), ",", True, "UTC"), "a.csv"),
        (JsonRows(tuple(kinds.items()), "UTC"), "a.json"),
    ):
        batches = list(reader.rows_of(FileSplit(str(tmp_path / name)), kinds))
        assert len(batches) == 1
        assert [tuple(row.values()) for row in batches[0].to_pylist()] == rows
        (only,) = reader.rows_of(FileSplit(str(tmp_path / name)), {"s": STRING})
        assert only.schema.names == ["s"]


@pytest.mark.parametrize("content", ["", "\n\n", "n,s", "\n\nn,s\n\n", "N,S\n", '"n","s"\n'])
def test_files_without_records_have_no_rows(tmp_path, content):
    (tmp_path / "a.csv").write_text(content)
    reader = CsvRows((("n", INT), ("s", STRING)), ",", True, "UTC")
    assert list(reader.rows_of(FileSplit(str(tmp_path / "a.csv")), {"n": INT})) == []


@pytest.mark.parametrize(
    "content", ["n\n", "s,n\n", "n,s,\n", "n, s\n", "n;s\n", '"n",""\n', "\u00a0\nn,s\n", "1,a\n"]
)
def test_another_header_is_refused(tmp_path, content):
    (tmp_path / "a.csv").write_text(content)
    reader = CsvRows((("n", INT), ("s", STRING)), ",", True, "UTC")
    with pytest.raises(UnsupportedFile):
        list(reader.rows_of(FileSplit(str(tmp_path / "a.csv")), {"n": INT}))


def test_values_that_nobody_asks_for_count_too(tmp_path):
    """A record with another value is broken to Spark."""
    (tmp_path / "a.csv").write_text("n,m,s,u\n1,x,a,\n")
    reader = CsvRows((("n", INT), ("m", INT), ("s", STRING), ("u", None)), ",", True, "UTC")
    with pytest.raises(UnsupportedFile, match="m: "):
        list(reader.rows_of(FileSplit(str(tmp_path / "a.csv")), {"n": INT}))
    (tmp_path / "a.json").write_text('{"n": 1, "m": "x"}\n')
    with pytest.raises(UnsupportedFile, match="number"):
        list(
            JsonRows((("n", INT), ("m", INT)), "UTC").rows_of(FileSplit(str(tmp_path / "a.json")), {"n": INT})
        )


@pytest.mark.parametrize(
    ("text", "digits"),
    [("1.239", None), ("-0.0000001", None), ("1.230000", "1.23"), ("1.2", "1.20"), ("7", "7.00"), ("", None)],
)
def test_decimals_that_would_lose_digits_are_for_spark_which_sees_it(text, digits):
    texts = pa.array(["1.25", text or None])
    if text and digits is None:
        with pytest.raises(UnsupportedFile, match="digits behind the point"):
            parse_texts(texts, decimal(10, 2), "UTC")
    else:
        numbers = parse_texts(texts, decimal(10, 2), "UTC").to_pylist()
        assert numbers == [Decimal("1.25"), digits and Decimal(digits)]


@pytest.mark.parametrize(
    ("type_", "shown"), [(decimal(18, 2), True), (decimal(38, 2), True), (decimal(4, 2), False)]
)
def test_decimals_of_which_spark_tells_nothing_are_rounded_here(type_, shown):
    """Those of 18 and of 38 digits, and of columns that nobody uses."""
    values = {"1.239": "1.24", "1.235": "1.24", "-1.235": "-1.24", "1.2349999999": "1.23", "-0.001": "0.00"}
    read = parse_texts(pa.array([*values, None]), type_, "UTC", shown=shown)
    assert read.type == in_arrow(type_)
    assert read.to_pylist() == [*map(Decimal, values.values()), None]
    with pytest.raises((UnsupportedFile, pa.ArrowInvalid)):
        parse_texts(pa.array([f"{'9' * type_.whole_digits}.995"]), type_, "UTC", shown=shown)


def test_an_unused_decimal_that_loses_digits_leaves_a_file_to_tasks(tmp_path):
    (tmp_path / "a.csv").write_text("n,d\n1,1.239\n")
    reader = CsvRows((("n", INT), ("d", decimal(10, 2))), ",", True, "UTC")
    (rows,) = reader.rows_of(FileSplit(str(tmp_path / "a.csv")), {"n": INT})
    assert rows.to_pylist() == [{"n": 1}]
