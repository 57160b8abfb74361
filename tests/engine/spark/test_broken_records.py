"""Why a record is broken is said by column and value, with the option that would read it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tests.support.columns import column
from watersmeet.runtime.files.first_rows import read_first_rows
from watersmeet.runtime.spark.broken_records import describe_left_out, record_check
from watersmeet.runtime.spark.sources.columns import SAMPLE_CHARACTERS
from watersmeet.runtime.spark.sources.tables import _broken_record_error
from watersmeet.runtime.spark.sources.views import SourceView
from watersmeet.runtime.spark.tick.ingest import SourceTask
from watersmeet.spec.model import Source

COLUMNS = {
    "id": "BIGINT", "small": "SMALLINT", "at": "TIMESTAMP", "day": "DATE", "price": "DECIMAL(8,2)",
    "ok": "BOOLEAN", "x": "DOUBLE", "s": "STRING", "l": "ARRAY<INT>",
    "tiny": "TINYINT", "w": "STRUCT<a: TINYINT>", "v": "STRUCT<a: SMALLINT, t: VARCHAR(3)>",
}  # fmt: skip
STRING = "declare it STRING, and cast it in a view"


def explain_record(record, form, names=(*COLUMNS,), connector="file", **options):
    columns = tuple(column(name, COLUMNS[name]) for name in names)
    check = record_check(Source("o", columns, connector, {"path": "/nowhere", "format": form, **options}))
    return None if check is None else check.explain(record)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ('{"id": "x", "s": 5}', f"id is BIGINT, but the value is 'x': {STRING}"),
        ('{"id": 5.5}', "id is BIGINT, but the value is 5.5: declare it DOUBLE"),
        ('{"small": 70000}', "small is SMALLINT, but the value is 70000: declare it INT"),
        (
            '{"ID": 9223372036854775808}',
            "id is BIGINT, but the value is 9223372036854775808: declare it DECIMAL(38,0)",
        ),
        (
            '{"price": 999999.999}',
            "price is DECIMAL(8,2), but the value is 999999.999: declare it with more digits",
        ),
        ('{"price": "5.129", "x": "NaN", "ok": 1}', f"ok is BOOLEAN, but the value is 1: {STRING}"),
        ('{"x": "5.5"}', f"x is DOUBLE, but the value is '5.5': {STRING}"),
        (
            '{"day": "31.12.2026"}',
            "day is DATE, but the value is '31.12.2026': 'dateFormat' = 'dd.MM.yyyy' reads it",
        ),
        ('{"at": "2026/03/01 10:00:00.123"}', "'timestampFormat' = 'yyyy/MM/dd HH:mm:ss.SSS' reads it"),
        ('{"at": "20260301101500"}', "'timestampFormat' = 'yyyyMMddHHmmss' reads it"),
        ('{"at": "1646128800000"}', "'timestamp.unit' = 'ms' reads it"),
        (
            '{"at": "soon", "day": "2026-03-01 10:00"}',
            "at is TIMESTAMP, but the value is 'soon': set 'timestampFormat' to",
        ),
        ('{"l": [1, "x"]}', f'l is ARRAY<INT>, but the value is [1, "x"]: {STRING}'),
        ('{"id": 1, "ok": 2, "x": "y", "l": 3}', f"ok is BOOLEAN, but the value is 2: {STRING}; x is DOUBLE"),
        ('{"Id": 1, "ID": 2}', "Id and ID differ only in case"),
        ('{"id": 1} {"id": 2}', "more text follows its JSON object"),
        ("[{", "'multiLine' = 'true' reads it"),
        ("{not json", "it is not a JSON object"),
        ('{"id": 1, "s": "fine"}', ""),
        ('{"s": "a", "id": "\\u001b[2J"}', "id is BIGINT, but the value is '\\x1b[2J'"),
        (f'{{"id": "{"9" * 10_000}"}}', "is '999"),
        ("[" * 100_000, ""),
    ],
)
def test_of_json(record, said):
    told = explain_record(record, "json")
    assert said in told
    assert bool(told) == bool(said)
    assert len(told) < 250


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("1;2026-03-01 10:00:00;5.00", "it has 1 value, but 3 columns are declared: 'sep' = ';' reads it"),
        ("1\t2026-03-01 10:00:00\t5", "'sep' = '\\t' reads it"),
        ("1,2026-03-01 10:00:00", "it has 2 values, but 3 columns are declared"),
        ("id,at,price", "id is BIGINT, but the value is 'id': 'header' = 'true' reads it"),
        ("NA,2026-03-01 10:00:00,5", "'nullValue' = 'NA' reads it"),
        (" 1,2026-03-01 10:00:00,5", "'ignoreLeadingWhiteSpace' = 'true' and 'ignoreTrailingWhiteSpace'"),
        (
            "1,1646128800,5",
            "at is TIMESTAMP, but the value is '1646128800': 'timestamp.unit' = 's' reads it",
        ),
        ('1,"12/31/2026 10:00",5', "'timestampFormat' = 'MM/dd/yyyy HH:mm' reads it"),
        ('1,,"5,00"', f"price is DECIMAL(8,2), but the value is '5,00': {STRING}"),
        (
            '{"id":"1","at":"x"}',
            "at is TIMESTAMP, but the value is 'x'",
        ),  # as shown of a source with a unit of times
        ('{"id":1,"at":"x"}', "at is TIMESTAMP, but the value is 'x'"),
        (
            '{"id":1,"at":"2026-03-01T10:00:00.000Z","price":9999999.5}',
            "price is DECIMAL(8,2), but the value is",
        ),
        ("1,2026-03-01 10:00:00,5", ""),
    ],
)
def test_of_csv(record, said):
    told = explain_record(record, "csv", ("id", "at", "price"), header="false")
    assert said in told
    assert bool(told) == bool(said)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ('{"tiny": 200}', "tiny is TINYINT, but the value is 200: declare it SMALLINT"),
        ('{"tiny": -32769}', "declare it INT"),
        ('{"w": {"a": 1000}}', "an integer inside it does not fit its TINYINT or SMALLINT; declare that INT"),
        ('{"v": {"a": 1, "t": "abcd"}}', "its VARCHAR(n); declare that STRING; or an integer inside"),
    ],
)
def test_of_parquet_no_type_is_proposed_that_its_files_cannot_be_read_as(record, said):
    told = explain_record(record, "parquet")
    assert said in told
    assert "in a view" not in told


def test_options_of_topics_have_their_prefix_and_metadata_is_no_value():
    topic = {"connector": "kafka", "names": ("s", "at"), "metadata.s": "key"}
    assert "'json.timestampFormat' = 'dd/MM/yyyy' or" in explain_record(
        '{"at": "01/03/2026"}', "json", **topic
    )
    assert "'csv.timestampFormat' = 'dd/MM/yyyy'" in explain_record("13/03/2026", "csv", **topic)
    assert "'timestamp.unit' = 'us'" in explain_record('{"at": "1646128800000000"}', "upsert-json", **topic)
    assert "'schema.header' = 'confluent'" in explain_record("\0\0\0\0\x01{}", "json", **topic)
    assert explain_record("x", "avro", **topic) is None


def test_explanation_respects_source_options():
    german = {"timestampFormat": "dd.MM.yyyy HH:mm"}
    assert explain_record('{"at": "01.03.2026 10:00"}', "json", **german) == ""
    assert "is '2026-03-01': " in explain_record('{"at": "2026-03-01"}', "json", **german)
    assert explain_record('{"at": "1646128800000"}', "json", **{"timestamp.unit": "ms"}) == ""


LONG = "a" * (SAMPLE_CHARACTERS + 1_000)


@pytest.mark.parametrize(
    ("form", "record"), [("json", json.dumps({"id": "x", "s": LONG})), ("csv", f"x,{LONG},5.00")]
)
def test_truncated_record_gets_no_explanation(form, record, tmp_path):
    columns = tuple(column(name, COLUMNS[name]) for name in ("id", "s", "price"))
    header = {"header": "false"} if form == "csv" else {}
    source = Source("o", columns, "file", {"path": str(tmp_path), "format": form, **header})
    (tmp_path / "a").write_text(f"{record}\n")
    said = f"id is BIGINT, but the value is 'x': {STRING}"
    assert f"({said})" in describe_left_out(source, read_first_rows(source, 9))
    for keeps, text, why in ((True, record, f" ({said})"), (False, record[: SAMPLE_CHARACTERS + 1], "")):
        view = SourceView("o", (), parses=True, keeps_broken=keeps, check=record_check(source))
        assert SourceTask(view, None, None)._explain_broken_record(pa.scalar(text)) == f"{record[:200]}{why}"


def test_table_error_explains_a_broken_record_while_its_file_exists(tmp_path):
    columns = (column("id", "BIGINT"), column("s", "STRING"))
    source = Source("t", columns, "file", {"path": str(tmp_path / "a"), "format": "csv"})
    (tmp_path / "a").write_text("s,id\nx,y\n")
    assert f"x,y (id is BIGINT, but the value is 'y': {STRING})" in str(_broken_record_error(source, "x,y"))
    (tmp_path / "a").unlink()
    assert "a record does not parse as declared: x,y" in str(_broken_record_error(source, "x,y"))


def test_a_sample_names_files_of_which_all_records_are_left_out(tmp_path):
    source = Source("o", (column("id", "BIGINT"),), "file", {"path": str(tmp_path), "format": "json"})
    for n, text in enumerate(['{"id": 1}', '{"id": "x"}\n{"id": "y"}', '{"id": 2}\n{"id": "x"}']):
        (tmp_path / f"{n}").write_text(text)
    among = f", including all sampled records of {tmp_path / '1'} (2 records)"
    assert describe_left_out(source, read_first_rows(source, 9)).endswith(among)
    (tmp_path / "3").write_text('{"id": "x"}')
    among = f", including all sampled records of 2 files, first {tmp_path / '1'} (2 records),"
    assert describe_left_out(source, read_first_rows(source, 9)).endswith(among)
    for name in "02":
        (tmp_path / name).unlink()
    assert "among them" not in describe_left_out(source, read_first_rows(source, 9))
