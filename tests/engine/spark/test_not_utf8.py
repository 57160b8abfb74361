"""CSV that is no UTF-8: the job stops with the file's name, and nothing goes out; when it is said what the
files are, all is read. No two keys become equal because bytes in them were lost."""

from __future__ import annotations

import os

import pytest

from tests.engine.spark.running import until_caught_up
from tests.fuzz.rows import bag, parquet_rows
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.spark.sources.files.json_texts import JsonTexts
from watersmeet.runtime.spark.sources.files.text_files import TEXT, read_texts

pytestmark = pytest.mark.spark

JOB = """
CREATE TABLE l (k STRING, v INT)
    WITH ('connector' = 'file', 'path' = '{path}/in', 'format' = '{wanted}'{options});
{more}
CREATE TABLE o WITH ('connector' = 'file', 'path' = '{path}/out', 'format' = 'parquet');
INSERT INTO o {select};
"""


def job(path, options="", more="", select="SELECT k, v FROM l", wanted="csv"):
    (path / "in").mkdir(exist_ok=True)
    return JOB.format(path=path, options=options, more=more, select=select, wanted=wanted)


def write_file(file, content, moment):
    file.write_bytes(content)
    os.utime(file, (1_700_000_000 + moment,) * 2)


def test_stream_stops_at_a_non_utf8_file_and_resumes_after_repair(spark, tmp_path):
    plain = job(tmp_path, ", 'maxFilesPerTrigger' = '1'")
    write_file(tmp_path / "in" / "1", "k,v\na,1\nmüller,2\n".encode(), 1)
    write_file(tmp_path / "in" / "2", "k,v\nmüller,3\nmöller,4\n".encode("latin-1"), 2)
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, plain, tmp_path / "state")
    assert caught.value.code == "file-not-utf8"
    assert str(tmp_path / "in" / "2") in str(caught.value)
    assert "'encoding' = 'ISO-8859-1'" in str(caught.value)
    assert bag(parquet_rows(tmp_path / "out")) == {(b"a", 1): 1, ("müller".encode(), 2): 1}
    write_file(tmp_path / "in" / "2", "k,v\nmüller,3\nmöller,4\n".encode(), 2)
    until_caught_up(spark, plain, tmp_path / "state")
    assert bag(parquet_rows(tmp_path / "out")) == {
        (b"a", 1): 1, ("müller".encode(), 2): 1, ("müller".encode(), 3): 1, ("möller".encode(), 4): 1,
    }  # fmt: skip


@pytest.mark.parametrize("options", [", 'multiLine' = 'true'", ", 'lineSep' = '\n'"])
def test_it_stops_however_records_are_cut(spark, tmp_path, options):
    """What is looked at are lines: a whole file may be more than a text can hold."""
    text = job(tmp_path, options)
    write_file(tmp_path / "in" / "1", b'k,v\n"a\nm\xfcller",3\n', 1)
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, text, tmp_path / "state")
    assert caught.value.code == "file-not-utf8"
    assert 'm\\xfcller",3' in str(caught.value)


@pytest.mark.parametrize(
    ("said", "key"), [("ISO-8859-1", "m\u00fcller"), ("UTF-8", "m\ufffdller"), ("utf-8", "m\ufffdller")]
)
def test_who_says_an_encoding_gets_it(spark, tmp_path, said, key):
    text = job(tmp_path, f", 'encoding' = '{said}'")
    write_file(tmp_path / "in" / "1", "k,v\nmüller,3\n".encode("latin-1"), 1)
    until_caught_up(spark, text, tmp_path / "state")
    assert bag(parquet_rows(tmp_path / "out")) == {(key.encode(), 3): 1}


def test_a_table_of_such_files_is_not_read(spark, tmp_path):
    table = f"""CREATE TABLE l2 (k STRING, w INT)
        WITH ('connector' = 'file', 'path' = '{tmp_path}/table', 'format' = 'csv');"""
    text = job(
        tmp_path,
        more=table,
        select="SELECT l.k, r.w FROM l LEFT JOIN l2 FOR SYSTEM_TIME AS OF PROCTIME() AS r ON l.k = r.k",
    ).replace("v INT)", "v INT, t BIGINT, WATERMARK FOR t AS t)")
    write_file(tmp_path / "in" / "1", "k,v,t\nmüller,3,1\n".encode(), 1)
    (tmp_path / "table").mkdir()
    write_file(tmp_path / "table" / "1", "k,w\nmüller,3\n".encode("latin-1"), 1)
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, text, tmp_path / "state")
    assert caught.value.code == "file-not-utf8"
    assert r"m\xfcller,3" in str(caught.value)
    write_file(tmp_path / "table" / "1", "k,w\nmüller,3\n".encode(), 2)
    until_caught_up(spark, text, tmp_path / "state")
    assert bag(parquet_rows(tmp_path / "out")) == {("müller".encode(), 3): 1}


@pytest.mark.parametrize("said", ["UTF-8", "US-ASCII"])
def test_json_of_whole_files_tells_bytes_that_are_none_of_its_encoding(spark, tmp_path, said):
    text = job(tmp_path, f", 'multiLine' = 'true', 'encoding' = '{said}'", wanted="json")
    write_file(tmp_path / "in" / "1", b'{"k":"m\xfcller","v":1}', 1)
    write_file(tmp_path / "in" / "2", b'{"k":"muller","v":2}', 1)
    run = until_caught_up(spark, text, tmp_path / "state")
    assert bag(parquet_rows(tmp_path / "out")) == {(b"muller", 2): 1}
    (counts,) = run.ticks[-1].queries["o"].account.values()
    assert counts["broken"] == 1


def test_file_deleted_before_inspection_is_reported_as_deleted(spark, tmp_path, monkeypatch):
    """Its rows are neither left out in silence, nor is the job told of Spark's paths."""
    own = JsonTexts.read

    def read(self, session, paths):
        (tmp_path / "in" / "2").unlink()
        return own(self, session, paths)

    monkeypatch.setattr(JsonTexts, "read", read)
    text = job(tmp_path, wanted="json")
    for number in (1, 2):
        write_file(tmp_path / "in" / f"{number}", b'{"k":"a","v":1}{"k":"b","v":2}', number)
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, text, tmp_path / "state")
    assert caught.value.code == "file-gone"


def test_names_are_no_patterns(spark, tmp_path):
    """In a stream Spark takes them for none either."""
    for name in ("a[1].json", "a1.json"):
        (tmp_path / name).write_text(name)
    read = read_texts(spark, {}, [f"file:{tmp_path}/a[1].json"])
    assert [row[TEXT] for row in read.collect()] == ["a[1].json"]
