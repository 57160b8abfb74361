"""Columns of files that nobody declared: which types, what is said, and what is refused by name."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.columns import column
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.files.inference import infer
from watersmeet.runtime.files.parquet_types import compare_columns
from watersmeet.spec.model import Source

CASES = [
    (["1", "-5", "9223372036854775807"], "BIGINT", None),
    (["1", ""], "BIGINT", None),
    (["1", "9223372036854775808"], "DECIMAL(38,0)", "beyond BIGINT"),
    (["1" * 39], "STRING", "too large"),
    (["007", "8"], "STRING", "007"),
    (["+5"], "STRING", "would not keep"),
    (["-0"], "STRING", "would not keep"),
    ([" 5"], "STRING", "would not keep"),
    (["1_000"], "STRING", "would not keep"),
    (["٣"], "STRING", None),
    (["1", "1.5", "1e3", "NaN", "-Inf"], "DOUBLE", None),
    (["NaN"], "STRING", None),
    (["0.12345678901234567890"], "STRING", "more digits"),
    (["1e999"], "STRING", "more digits"),
    (["true", "FALSE"], "BOOLEAN", None),
    (["true", "1"], "STRING", "true and false"),
    (["2024-01-01", "2024-02-29"], "DATE", None),
    (["2023-02-29"], "STRING", None),
    (["0000-01-01"], "STRING", None),
    (["2024-01-01", "2024-01-01 10:00:00"], "STRING", "dates"),
    (["2024-01-01 10:00:00", "2024-01-01T10:00:00.123456"], "TIMESTAMP", "SET time_zone"),
    (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00.5+05:30"], "TIMESTAMP", None),
    (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00"], "STRING", "without a zone"),
    (["2024-01-01T10:00:00.123456789Z"], "STRING", "microseconds"),
    (["2024-01-01T25:00:00"], "STRING", "not a valid time"),
    (["2024-01-01T10:00:00+19:00"], "STRING", "not a valid time"),
    (["", ""], "STRING", "no values"),
    (["x", "1"], "STRING", "whole numbers"),
    (["x", "y"], "STRING", None),
]


def source(path, kind="csv", columns=(), **options):
    return Source("a", tuple(columns), "file", {"path": str(path), "format": kind, **options})


def infer_types(path, kind="csv", columns=(), **options):
    found = infer(source(path, kind, columns, **options))
    return {each.name: str(each.type) for each in found.columns}, found


def get_inference_error(path, kind="csv", columns=(), **options):
    with pytest.raises(WatersmeetError) as caught:
        infer(source(path, kind, columns, **options))
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(("values", "kind", "said"), CASES)
def test_texts_of_csv(tmp_path, values, kind, said):
    (tmp_path / "1.csv").write_text("v,k\n" + "".join(f"{value},x\n" for value in values))
    types, found = infer_types(tmp_path)
    assert types == {"v": kind, "k": "STRING"}
    assert (said in found.notes[0]) if said else not found.notes, found.notes


def test_options_of_csv(tmp_path):
    (tmp_path / "1.csv").write_text("# a comment\nk;v;t\n'a;b';NA;01/02/2024\nb; 5;x\n")
    options = {"sep": ";", "comment": "#", "quote": "'", "nullValue": "NA", "ignoreLeadingWhiteSpace": "true"}
    assert infer_types(tmp_path, **options)[0] == {"k": "STRING", "v": "BIGINT", "t": "STRING"}
    (tmp_path / "1.csv").write_text("t,d\n2024-01-01 10:00:00,2024-01-01\n")
    types, found = infer_types(tmp_path, timestampFormat="dd.MM.yyyy", dateFormat="dd.MM.yyyy")
    assert types == {"t": "STRING", "d": "STRING"}
    assert "timestampFormat" in found.notes[0]
    (tmp_path / "1.csv").write_bytes("größe\n1\n".encode("latin-1"))
    assert infer_types(tmp_path, encoding="iso-8859-1")[0] == {"größe": "BIGINT"}
    assert "cannot be read" in get_inference_error(tmp_path).message


def test_all_sampled_files_count(tmp_path):
    (tmp_path / "1.csv").write_text("v\n1\n")
    with gzip.open(tmp_path / "2.csv.gz", "wt") as file:
        file.write("V\nx\n")
    types, found = infer_types(tmp_path)
    assert (types, found.files, found.records) == ({"v": "STRING"}, 2, 2)
    (tmp_path / "3.csv").write_text("v,w\n1,2\n")
    assert "3.csv has v, w" in get_inference_error(tmp_path).message


def test_names_of_csv(tmp_path):
    (tmp_path / "1.csv").write_text(",a b,__ws_x,v\n0,1,2,3\n")
    types, found = infer_types(tmp_path)
    assert types == {"a b": "BIGINT", "v": "BIGINT"}
    assert found.notes == (
        "a column without a name (name it in the files' headers to read it) is left out",
        "the column __ws_x, whose name is reserved for the engine, is left out",
    )
    (tmp_path / "1.csv").write_text("v,V\n1,2\n")
    assert "two columns named" in get_inference_error(tmp_path).message


def test_declared_columns_stand(tmp_path):
    (tmp_path / "1.csv").write_text("k,t,v\na,5,007\n")
    types, found = infer_types(tmp_path, columns=[column("T", "TIMESTAMP"), column("v", "INT")])
    assert types == {"k": "STRING", "T": "TIMESTAMP", "v": "INT"}
    assert found.notes == ()
    assert "no column w" in get_inference_error(tmp_path, columns=[column("w", "INT")]).message


def test_columns_of_directories(tmp_path):
    for day, hour in (("2024-01-01", "07"), ("2024-01-02", "__HIVE_DEFAULT_PARTITION__")):
        folder = tmp_path / f"day={day}" / f"hour={hour}" / "n%3Am=1"
        folder.mkdir(parents=True)
        (folder / "1.json").write_text('{"v": 1}\n')
    types, found = infer_types(tmp_path, "json")
    assert types == {"v": "BIGINT", "day": "DATE", "hour": "STRING", "n:m": "BIGINT"}
    assert "hour is STRING" in found.notes[0]
    (folder / "2.json").write_text('{"day": 1}\n')
    assert "in the names of their directories" in get_inference_error(tmp_path, "json").message


def test_json(tmp_path):
    rows = [
        {"i": 1, "big": 2**63, "r": 1, "s": "1", "b": True, "n": None, "t": "2024-01-01T10:00:00Z"},
        {"r": 1.5, "mixed": 1, "o": {"x": 1, "y y": ["a"]}, "l": [], "e": {}, "d": "2024-01-01"},
        {"mixed": {"x": 1}, "o": {"x": 2.5}, "l": [None], "i": None, "t": "2024-01-01T10:00:00+01:00"},
    ]
    text = "\n".join(map(json.dumps, rows)) + '\n{"half": \n[1]\n' + "[" * 100_000 + "\n"
    (tmp_path / "1.json").write_text(text)
    types, found = infer_types(tmp_path, "json")
    assert types == {
        "i": "BIGINT", "big": "DECIMAL(38,0)", "r": "DOUBLE", "s": "STRING", "b": "BOOLEAN", "n": "STRING",
        "t": "TIMESTAMP", "mixed": "STRING", "o": "STRUCT<x: DOUBLE, `y y`: ARRAY<STRING>>",
        "l": "ARRAY<STRING>", "d": "DATE",
    }  # fmt: skip
    assert "the column e is left out: its objects are empty" in found.notes
    assert "3 records of the sample cannot be read" in found.notes
    assert infer_types(tmp_path, "json", primitivesAsString="true")[0]["r"] == "STRING"
    (tmp_path / "1.json").write_text('[{"a": 1},\n {"A": 2}]')
    assert "two columns named A" in get_inference_error(tmp_path, "json", multiLine="true").message


def test_json_as_spark_reads_it(tmp_path):
    """Texts in single quotes, and lines that are arrays of rows."""
    (tmp_path / "1.json").write_text(
        """{'k': 1, "s": "it's", 'q': 'say "x"'}\n[{"k": 2}, {"r": 1.5}]\n[]\n"""
    )
    types, found = infer_types(tmp_path, "json")
    assert types == {"k": "BIGINT", "s": "STRING", "q": "STRING", "r": "DOUBLE"}
    assert found.notes == ()
    (tmp_path / "2.json").write_text('[{"k": 1}, 7]\n')  # no row at all to Spark
    assert "1 record of the sample cannot be read" in infer_types(tmp_path, "json")[1].notes
    (tmp_path / "2.json").unlink()
    (tmp_path / "1.json").write_text("{k: 1}\n")
    assert "multiLine" not in get_inference_error(tmp_path, "json", allowUnquotedFieldNames="true").hint


def test_parquet(tmp_path):
    us = pa.timestamp("us")
    columns = {
        "i8": pa.array([1], pa.int8()), "u16": pa.array([1], pa.uint16()), "u64": pa.array([1], pa.uint64()),
        "dec": pa.array([Decimal("1.5")], pa.decimal128(10, 2)), "t": pa.array([datetime(2024, 1, 1)], us),
        "z": pa.array([datetime(2024, 1, 1)], pa.timestamp("ms", "UTC")),
        "ns": pa.array([datetime(2024, 1, 1)], pa.timestamp("ns")), "time": pa.array([1], pa.time64("us")),
        "s": pa.array(["x"]).dictionary_encode(), "l": pa.array([[{"a b": 1}]]),
        "m": pa.array([[("k", 1.5)]], pa.map_(pa.string(), pa.float64())),
    }  # fmt: skip
    parquet.write_table(pa.table(columns), tmp_path / "1.parquet")
    types, found = infer_types(tmp_path, "parquet")
    assert types == {
        "i8": "TINYINT", "u16": "INT", "u64": "DECIMAL(20,0)", "dec": "DECIMAL(10,2)", "t": "TIMESTAMP_NTZ",
        "z": "TIMESTAMP", "ns": "BIGINT", "s": "STRING", "l": "ARRAY<STRUCT<`a b`: BIGINT>>",
        "m": "MAP<STRING, DOUBLE>",
    }  # fmt: skip
    assert [note.split(":")[0] for note in found.notes] == [
        "ns is inferred as BIGINT, in nanoseconds since 1970",
        "the column time is left out",
    ]
    parquet.write_table(pa.table({"i8": [1]}), tmp_path / "2.parquet")
    assert "2.parquet has i8 BIGINT" in get_inference_error(tmp_path, "parquet").message
    (tmp_path / "2.parquet").write_bytes(b"PAR1 half")
    assert "2.parquet cannot be read" in get_inference_error(tmp_path, "parquet").message


def test_nothing_to_infer_from(tmp_path):
    assert get_inference_error(tmp_path / "in").code == "path-missing"
    assert "no file with content" in get_inference_error(tmp_path).message
    (tmp_path / "1.csv").write_text("")
    assert "no file with content" in get_inference_error(tmp_path).message
    (tmp_path / "1.csv").write_text("k,v\n")
    assert "no records" in get_inference_error(tmp_path).message
    assert "no header" in get_inference_error(tmp_path, header="false").message
    assert "pathGlobFilter" in get_inference_error(tmp_path, pathGlobFilter="*.csv").message
    assert "not a local path" in get_inference_error("s3a://bucket/x").message
    (tmp_path / "1.csv").rename(tmp_path / "1.csv.zst")
    assert "only Spark can read" in get_inference_error(tmp_path).message


@pytest.mark.parametrize(
    ("content", "kind", "said", "hint"),
    [
        ("k;v;w\n1;2;3\n", "csv", "has one column", "set 'sep' = ';'"),
        ("k\tv\n1\t2\n", "csv", "has one column", "set 'sep' = '\\t'"),
        (",v,\n1,2,3\n", "csv", "2 columns without a name, at positions 1, 3", "name them"),
        (",v, \n1,2,3\n", "csv", "2 columns without a name, at positions 1, 3", "name them"),
        ("k,v\n1," + "x" * (17 << 20) + "\n", "csv", "is longer than 16 MB", "declare its columns"),
        ('{"k": "' + "x" * (17 << 20) + '"}\n', "json", "is longer than 16 MB", "declare its columns"),
        ('[{"k": 1},\n{"k": 2}]\n', "json", "none of 2 lines is a JSON object", "'multiLine' = 'true'"),
        ("k,v\n1,2\n".encode("utf-16"), "csv", "it is UTF-16, not UTF-8 text", "iconv"),
        (bytes(range(256)) * 9, "json", "it is not text", "'format'"),
        (b"k,v\n1,caf\xe9\n", "csv", "it is not UTF-8 text (at byte 9)", "'encoding'"),
    ],
)  # fmt: skip
def test_what_cannot_be_inferred_says_what_to_do(tmp_path, content, kind, said, hint):
    (tmp_path / f"1.{kind}").write_bytes(content if isinstance(content, bytes) else content.encode())
    error = get_inference_error(tmp_path, kind)
    assert said in error.message
    assert hint in error.hint


def test_long_values_are_values(tmp_path):
    (tmp_path / "1.csv").write_text(f"k,v\n1,{'x' * 200_000}\n")
    assert infer_types(tmp_path)[0] == {"k": "BIGINT", "v": "STRING"}


def test_numbers_of_too_many_digits(tmp_path):
    (tmp_path / "1.json").write_text(f'{{"n": {"9" * 45}, "a": [{"9" * 45}]}}\n')
    types, found = infer_types(tmp_path, "json")
    assert types == {"n": "DOUBLE", "a": "ARRAY<DOUBLE>"}
    assert "n is DOUBLE: some of its numbers have more digits than a DOUBLE holds" in found.notes
    (tmp_path / "1.json").unlink()
    long = pa.array([Decimal(1)], pa.decimal256(50, 2))
    table = pa.table({"k": [1], "n": long, "a": pa.ListArray.from_arrays([0, 1], long)})
    parquet.write_table(table, tmp_path / "1.parquet")
    types, found = infer_types(tmp_path, "parquet")
    assert types == {"k": "BIGINT"}
    assert [note.split(":")[0] for note in found.notes] == [
        "the column n is left out",
        "the column a is left out",
    ]
    with pytest.raises(WatersmeetError) as caught:
        compare_columns(
            '"a"', source(tmp_path, columns=(column("n", "DECIMAL(38,2)"),)), f"{tmp_path}/1.parquet"
        )
    assert "with more digits than DECIMAL allows (38)" in caught.value.message
