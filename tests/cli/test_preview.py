"""A preview: the rows that a run would make of the same rows, or a refusal that names what is in the way."""

from __future__ import annotations

import gzip
import json
import os
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

JOB = """
SET time_zone = 'America/New_York';
CREATE TABLE o (id BIGINT, t TIMESTAMP, x DOUBLE, s STRING, WATERMARK FOR t AS t - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'o', 'format' = 'csv');
CREATE TABLE d (WATERMARK FOR t) WITH ('connector' = 'file', 'path' = 'd', 'format' = 'json');
CREATE TABLE names WITH ('connector' = 'file', 'path' = 'names');
CREATE SINK out WITH ('connector' = 'file', 'path' = 'out');
INSERT INTO out SELECT o.id, o.t, d.t AS d, hour(o.t) AS h, o.x / 4 AS x, concat(o.s, '!') AS s
  FROM o LEFT JOIN d ON o.id = d.id AND d.t BETWEEN o.t AND o.t + INTERVAL '1' HOUR WHERE o.x > 0;
INSERT INTO out SELECT o.id, n.name FROM o JOIN names FOR SYSTEM_TIME AS OF PROCTIME() AS n ON n.id = o.id;
"""
ORDERS = """id,t,x,s
1,2024-07-01 10:00:00,1.0,a
2,2024-07-01T14:30:00Z,2.5,b
3,2024-07-01 11:00:00,-1,c
+4,2024-07-01 11:00:00,1,d
5,2024-07-01 11:00:00
6,2024-07-01 12:00:00,8,"f, ""g"" h"
7,2024-07-01 12:00:00,8,"h,i"
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("o", "d", "names"):
        (tmp_path / name).mkdir()
    (tmp_path / "o" / "1.csv").write_text(ORDERS)
    (tmp_path / "d" / "1.json").write_text('{"id": 1, "t": "2024-07-01 10:30:00"}\n')
    names = pa.table({"id": [1, 7], "name": ["one", "seven"], "nested": [[1], [2]]})
    parquet.write_table(names, tmp_path / "names" / "1.parquet")
    (tmp_path / "job.sql").write_text(JOB)
    return tmp_path


def lines_of(found):
    assert found.status == 0, found.err
    return [json.loads(line) for line in found.out.splitlines()]


def test_changes_go_by_what_is_computed_of_columns_that_no_query_names(watersmeet, files):
    """Also in the job's time zone."""
    (files / "job.sql").write_text(
        "SET time_zone = 'America/New_York'; SET output_mode = changelog;"
        "CREATE TABLE c (m STRUCT<id: INT, at: TIMESTAMP>, is STRING, v INT, id AS hour(m.at),"
        " op AS upper(is), PRIMARY KEY (id) NOT ENFORCED)"
        " WITH ('connector' = 'file', 'path' = 'c', 'format' = 'json', 'op.column' = 'op');"
        "CREATE TABLE d (at TIMESTAMP, v INT, n AS hour(at) - 5) WITH ('connector' = 'file', 'path' = 'e',"
        " 'format' = 'json', 'diff.column' = 'n');"
        "CREATE SINK out WITH ('connector' = 'file', 'path' = 'out');"
        "INSERT INTO out SELECT v, id FROM c; INSERT INTO out SELECT v, 0 AS id FROM d;"
    )
    for folder in ("c", "e"):
        (files / folder).mkdir()
    records = [("i", 10, 1), ("i", 11, 2), ("u", 10, 3), ("d", 11, 4)]
    lines = (json.dumps({"m": {"at": f"2024-07-01T{h}:00:00Z"}, "is": is_, "v": v}) for is_, h, v in records)
    (files / "c" / "1.json").write_text("\n".join(lines))
    (files / "e" / "1.json").write_text('{"at": "2024-07-01T10:00:00Z", "v": 5}\n')
    by_key, by_diff, _ = lines_of(watersmeet("preview", "job.sql", "--json"))
    assert by_key["rows"] == [[3, 6, 1, 1]]
    assert by_diff["rows"] == [[5, 0, 1, 1]]


def test_rows_are_those_of_the_job(watersmeet, files):
    joined, enriched, told = lines_of(watersmeet("preview", "job.sql", "--json"))
    assert joined["columns"] == ["id", "t", "d", "h", "x", "s"]
    assert sorted(joined["rows"]) == [
        [1, "2024-07-01T14:00:00Z", "2024-07-01T14:30:00Z", 10, 0.25, "a!"],
        [2, "2024-07-01T14:30:00Z", None, 10, 0.625, "b!"],
        [7, "2024-07-01T16:00:00Z", None, 12, 2.0, "h,i!"],
    ]
    assert sorted(enriched["rows"]) == [[1, "one"], [7, "seven"]]
    sources = told["preview"]["sources"]
    assert sources["o"] == {
        "rows": 4, "broken": 3, "broken_example": "+4,2024-07-01 11:00:00,1,d", "files": 1, "has_more": False,
        "unchecked_columns": [],
    }  # fmt: skip
    assert sources["names"]["rows"] == 2
    assert sorted(path.name for path in files.iterdir()) == ["d", "job.sql", "names", "o"]


def test_times_by_a_pattern_and_quotes_that_are_written_twice(watersmeet, files):
    """As files of other programs have them: what is read then is what was read of the plain file."""
    plain = watersmeet("preview", "job.sql", "--json")
    options = "'timestampFormat' = 'dd/MM/yyyy HH:mm:ss', 'escape' = '\"'"
    job = JOB.replace("'path' = 'o', 'format' = 'csv'", f"'path' = 'o', 'format' = 'csv', {options}")
    (files / "job.sql").write_text(job)
    (files / "o" / "1.csv").write_text(
        ' id ,"t",x,s\n1,01/07/2024 10:00:00,1.0,a\n2,01/07/2024 10:30:00,2.5,b\n3,01/07/2024 11:00:00,-1,c\n'
        '6,01/07/2024 12:00:00,8,"f, ""g"" h"\n7,01/07/2024 12:00:00,8,"h,i"\n8,2024-07-01 12:00:00,8,i\n'
    )
    found = watersmeet("preview", "job.sql", "--json")
    assert found.status == 0, found.err
    before, after = (json.loads(own.out.splitlines()[0]) for own in (plain, found))
    of_6 = [6, "2024-07-01T16:00:00Z", None, 12, 2.0, 'f, "g" h!']
    assert sorted(after["rows"]) == sorted([*before["rows"], of_6])
    assert json.loads(found.out.splitlines()[-1])["preview"]["sources"]["o"]["broken"] == 1


def test_preview_reports_how_many_rows_it_read(watersmeet, files):
    found = watersmeet("preview", "job.sql", "--rows", "2", "--limit", "1")
    assert found.status == 0, found.err
    assert "o: first 2 rows of 1 file; there are more" in found.out
    assert "… and 1 more row\n" in found.out
    assert "Not all rows were read: a match or a part of a window may be missing here." in found.out
    assert "out (2024-07-01, UTC)\n" in found.out
    assert "│ 14:" in found.out
    assert all(len(line) <= 80 for line in found.out.splitlines())
    assert "records left out" not in found.out
    whole = watersmeet("preview", "job.sql")
    assert "3 records left out" in whole.out
    assert ": +4,2024-07-01" in whole.out
    assert "(id is BIGINT, but the value is '+4': " in whole.out
    assert "o: all 4 rows of 1 file" in whole.out


OUTER = """
CREATE TABLE o (id BIGINT, t TIMESTAMP, WATERMARK FOR t AS t - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'left', 'format' = 'csv');
CREATE TABLE d (id BIGINT, t TIMESTAMP, u TIMESTAMP_NTZ, WATERMARK FOR t AS t - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'right', 'format' = 'csv');
CREATE SINK out WITH ('connector' = 'file', 'path' = 'out');
INSERT INTO out SELECT o.id, o.t, d.u FROM o {kind} JOIN d
  ON o.id = d.id AND d.t BETWEEN o.t AND o.t + INTERVAL '1' HOUR;
"""


@pytest.mark.parametrize(("kind", "unmatched"), [("LEFT", "d"), ("FULL", "do"), ("INNER", "")])
def test_rows_without_a_match_have_a_place_among_the_first_and_are_marked(
    watersmeet, tmp_path, monkeypatch, kind, unmatched
):
    """Also beside matches whose columns of the other side are all NULL."""
    monkeypatch.chdir(tmp_path)
    for folder, head in (("left", "id,t"), ("right", "id,t,u")):
        (tmp_path / folder).mkdir()
        rows = [f"{n},2024-07-01T10:00:{n:02}Z" + ",,"[: folder == "right"] for n in range(40)]
        rows = rows if folder == "left" else [*rows[:30], "99,2024-07-02T10:00:00.250Z,2024-07-02T10:00:00"]
        (tmp_path / folder / "1.csv").write_text("\n".join([head, *rows, ""]))
    (tmp_path / "job.sql").write_text(OUTER.format(kind=kind))
    line, _ = lines_of(watersmeet("preview", "job.sql", "--json"))
    assert line["columns"] == ["id", "t", "u"]
    assert (len(line["rows"]), len(line["unmatched"])) == (20, 20)
    marks = [name for own in line["unmatched"] for name in own]
    assert sum(map(bool, line["unmatched"])) == (5 if unmatched else 0)
    assert set(marks) <= set(unmatched)
    shown = watersmeet("preview", "job.sql").out
    assert ("no match in" in shown) is bool(unmatched)
    assert "__ws" not in shown
    all_rows, _ = lines_of(watersmeet("preview", "job.sql", "--json", "--limit", "99"))
    alone = {name: sum(own == [name] for own in all_rows["unmatched"]) for name in "od"}
    assert alone == {"INNER": {"o": 0, "d": 0}, "LEFT": {"o": 0, "d": 10}, "FULL": {"o": 1, "d": 10}}[kind]


REFUSED = [
    ("concat(o.s, '!')", "xpath_string(o.s, 'a')", "xpath_string"),
    ("concat(o.s, '!')", "current_timestamp()", "CURRENT_TIMESTAMP"),
    ("WHERE o.x > 0", "WHERE xpath_string(o.s, 'a') = 'b'", "xpath_string"),
    ("id BIGINT, t TIMESTAMP, x DOUBLE", "id BIGINT, t TIMESTAMP, x FLOAT", "read x as FLOAT"),
    ("'path' = 'o', 'format'", "'path' = 'o', 'quote' = '|', 'format'", "the option 'quote'"),
    ("'path' = 'o'", "'path' = 'nowhere'", "nowhere"),
    ("CREATE TABLE d (WATERMARK FOR t) WITH ('connector' = 'file', 'path' = 'd'",
     "CREATE TABLE d (id BIGINT, t TIMESTAMP, WATERMARK FOR t) WITH ('connector' = 'kafka', 'topic' = 'x', "
     "'bootstrap.servers' = 'x'", "preview supports file sources only, not kafka"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), REFUSED)
def test_what_cannot_be_known_is_refused_by_name(watersmeet, files, old, new, said):
    assert old in JOB
    (files / "job.sql").write_text(JOB.replace(old, new))
    found = watersmeet("preview", "job.sql")
    assert (found.status, found.out) == (2, "")
    assert said.lower() in found.err.lower()
    assert "Hint: " in found.err


def test_errors_of_expressions_stop_it(watersmeet, files):
    (files / "job.sql").write_text(JOB.replace("o.x / 4", "1 DIV (o.id - 1)"))
    found = watersmeet("preview", "job.sql")
    assert (found.status, found.out) == (2, "")
    assert "DIVIDE_BY_ZERO" in found.err


def test_windows_and_parquet_times(watersmeet, files):
    us = pa.array([datetime(2024, 1, 1, 0, minute) for minute in (0, 1, 11)], pa.timestamp("us", "UTC"))
    table = pa.table({"t": us, "v": pa.array([1, None, 3], pa.int32())})
    parquet.write_table(table, files / "names" / "1.parquet")
    (files / "job.sql").write_text(
        "CREATE TABLE w (WATERMARK FOR t) WITH ('connector' = 'file', 'path' = 'names');"
        "SELECT window_start, count(v) AS n, sum(v) AS s FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(t), "
        "INTERVAL '10' MINUTES)) GROUP BY window_start, window_end"
    )
    result, _ = lines_of(watersmeet("preview", "job.sql", "--json"))
    assert sorted(result["rows"]) == [["2024-01-01T00:00:00Z", 1, 1], ["2024-01-01T00:10:00Z", 1, 3]]


ENDS = """
CREATE TABLE a (n BIGINT, t TIMESTAMP, d DATE, WATERMARK FOR t AS t)
  WITH ('connector' = 'file', 'path' = 'a', 'format' = 'csv');
CREATE SINK out WITH ('connector' = 'file', 'path' = 'out');
INSERT INTO out SELECT a.n, a.t + INTERVAL '1' DAY AS next, add_months(a.d, 1) AS month FROM a;
"""


def test_results_of_any_year_and_rows_without_a_time(watersmeet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.csv").write_text(
        "n,t,d\n1,2024-07-01 10:00:00,9999-12-31\n2,,2024-07-01\n3,,2024-07-01\n"
    )
    (tmp_path / "job.sql").write_text(ENDS)
    line, _ = lines_of(watersmeet("preview", "job.sql", "--json"))
    assert line["rows"] == [[1, "2024-07-02T10:00:00Z", "+10000-01-31"]]
    assert line["dropped"] == {"a": {"null_time": 2}}
    assert "out: a: 2 rows without an event time are in no result" in watersmeet("preview", "job.sql").out


NESTED = """
CREATE TABLE a (k BIGINT, t TIMESTAMP, tags ARRAY<STRING>, m MAP<STRING, BIGINT>, odd {odd},
  s STRUCT<p: DECIMAL(5,2), q: STRUCT<t: TIMESTAMP>>, WATERMARK FOR t AS t)
  WITH ('connector' = 'file', 'path' = 'a', 'format' = '{format}');
CREATE TABLE n (k BIGINT, names ARRAY<STRING>) WITH ('connector' = 'file', 'path' = 'n', 'format' = 'json');
CREATE SINK out WITH ('connector' = 'file', 'path' = 'out');
INSERT INTO out SELECT a.k, a.tags, a.m, a.s, size(a.tags) AS n, a.s.q.t AS at, n.names, {what} AS x
  FROM a JOIN n FOR SYSTEM_TIME AS OF PROCTIME() ON n.k = a.k;
"""


@pytest.fixture(params=["json", "parquet"])
def nested(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "n").mkdir()
    at = datetime(2024, 7, 1, 10)
    rows = [
        {"k": 1, "t": at, "tags": ["x", None], "m": {"a": 1}, "s": {"p": 1.25, "q": {"t": at}}},
        {"k": 2, "t": at, "tags": None, "m": {}, "s": {"p": None, "q": None}},
    ]
    if request.param == "json":
        text = "".join(json.dumps({**row, "odd": {"1": 1}}, default=str) + "\n" for row in rows)
        (tmp_path / "a" / "1.json").write_text(text)
    else:
        us = pa.timestamp("us", "UTC")
        decimal = pa.decimal128(5, 2)
        struct = pa.struct([("p", decimal), ("q", pa.struct([("t", us)]))])
        for row in rows:
            row["odd"] = [np.float16(1)]
            row["s"]["p"] = row["s"]["p"] and Decimal(str(row["s"]["p"]))
            row["m"] = list(row["m"].items())
        kinds = [("k", pa.int64()), ("t", us), ("tags", pa.list_(pa.string())),
                 ("m", pa.map_(pa.string(), pa.int64())), ("s", struct),
                 ("odd", pa.list_(pa.float16()))]  # fmt: skip
        parquet.write_table(pa.Table.from_pylist(rows, pa.schema(kinds)), tmp_path / "a" / "1.parquet")
    (tmp_path / "n" / "1.json").write_text('{"k": 1, "names": ["one", "uno"]}\n{"k": 2}\n')
    odd = {"json": "ARRAY<BINARY>", "parquet": "ARRAY<FLOAT>"}[request.param]

    def write(what):
        (tmp_path / "job.sql").write_text(NESTED.format(format=request.param, what=what, odd=odd))

    return write


def test_columns_with_parts(watersmeet, nested):
    nested("a.tags[0]")
    result, told = lines_of(watersmeet("preview", "job.sql", "--json"))
    s = {"p": "1.25", "q": {"t": "2024-07-01T10:00:00Z"}}
    assert sorted(result["rows"]) == [
        [1, ["x", None], {"a": 1}, s, 2, "2024-07-01T10:00:00Z", ["one", "uno"], "x"],
        [2, None, {}, {"p": None, "q": None}, None, None, None, None],
    ]
    assert told["preview"]["sources"]["a"]["unchecked_columns"] == ["odd"]
    assert "not looked at: odd" in watersmeet("preview", "job.sql").out


def test_a_column_with_parts_that_only_spark_reads_is_named(watersmeet, nested):
    nested("a.odd")
    found = watersmeet("preview", "job.sql")
    assert (found.status, found.out) == (2, "")
    assert '"a": only Spark can read odd as ' in found.err
    assert "Hint: " in found.err


def test_the_first_record_left_out_may_be_any_bytes(watersmeet, files):
    (files / "o" / "1.csv").write_bytes(b"id,t,x,s\n1,2024-07-01 10:00:00,1,\xff\x1b[2J\n")
    *_, told = lines_of(watersmeet("preview", "job.sql", "--json"))
    assert told["preview"]["sources"]["o"]["broken_example"] == "1,2024-07-01 10:00:00,1,\ufffd\x1b[2J"


MEETING = """
CREATE TABLE a (k STRING, t TIMESTAMP, WATERMARK FOR t AS t)
  WITH ('connector' = 'file', 'path' = 'a', 'format' = 'json');
CREATE TABLE b (n BIGINT, t TIMESTAMP, m BIGINT, WATERMARK FOR t AS t)
  WITH ('connector' = 'file', 'path' = 'b', 'format' = 'json');
CREATE SINK out WITH ('connector' = 'file', 'path' = 'out');
INSERT INTO out
SELECT b.n, {what} AS x
  FROM a JOIN b ON {on} AND a.t BETWEEN b.t - INTERVAL 1 SECOND AND b.t + INTERVAL 1 SECOND;
"""


@pytest.mark.parametrize(
    ("on", "what", "said"),
    [
        ("a.k = b.n", "1", "the condition a.k = b.n failed: [CAST_INVALID_INPUT]"),
        ("`a`.k <=> `b`.n", "1", "the condition a.k IS NOT DISTINCT FROM b.n failed: [CAST_INVALID_INPUT]"),
        ("10 / b.m > 1", "1", "the condition 10 / b.m > 1 failed: [DIVIDE_BY_ZERO]"),
        ("a.k > b.n", "1", "the condition a.k > b.n failed: [CAST_INVALID_INPUT]"),
        ("b.n > 0", "CAST(a.k AS INT)", "the column x = CAST(a.k AS INT) failed: [CAST_INVALID_INPUT]"),
    ],
)
def test_failure_quotes_the_expression_as_written(watersmeet, tmp_path, monkeypatch, on, what, said):
    """For a key a text is cast to a number, and nobody has written that."""
    monkeypatch.chdir(tmp_path)
    for name, row in (("a", {"k": "abc"}), ("b", {"n": 1, "m": 0})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.json").write_text(json.dumps({**row, "t": "2024-07-01T10:00:00Z"}) + "\n")
    (tmp_path / "job.sql").write_text(MEETING.format(on=on, what=what))
    found = watersmeet("preview", "job.sql")
    assert (found.status, found.out) == (2, "")
    first, hint = found.err.splitlines()
    assert said in first
    assert "= 'abc'" in first or "m = 0" in first
    assert "try_cast" in hint
    assert 'INSERT "out": ' in first
    assert "(job.sql, line 8, column 1)" in first


def test_empty_files_with_declared_columns_have_no_rows(watersmeet, files):
    for path in (files / "o").iterdir():
        path.write_bytes(b"")
    found = watersmeet("preview", "job.sql")
    assert found.status == 0, found.err
    assert 'o: there are no files with data in "' in found.out


TWO = "CREATE TABLE a (t BIGINT, s STRING, WATERMARK FOR t) WITH ('connector' = 'file', 'path' = 'in', {}); "


def written(folder, columns, names):
    table = pa.Table.from_arrays([pa.array(each) for each in columns], names=names)
    parquet.write_table(table, folder / "1.parquet")


def corrupt_file(file):
    content = bytearray(file.read_bytes())
    content[40:400] = bytes(byte ^ 0x5A for byte in content[40:400])
    file.write_bytes(content)


def torn(content, *, damage):
    half = len(content) // 2
    return content[:half] + (b"\xff" * 50 + content[half + 50 :] if damage else b"")


def hostile(folder, name):
    """Writes files of which a run reads none as declared."""
    lines = "t,s\n" + "".join(f"{n},{n * 7919 % 1009}\n" for n in range(100_000))
    if name == "page":
        written(folder, [range(5000), [f"x{n}" for n in range(5000)]], ["t", "s"])
        corrupt_file(folder / "1.parquet")
    elif name == "twice":
        written(folder, [[1], [2], ["a"]], ["t", "t", "s"])
    elif name == "letters":
        written(folder, [[1], [2], ["a"]], ["t", "T", "s"])
    elif name == "missing":
        written(folder, [[1]], ["t"])
    elif name in ("gzip cut", "gzip damaged"):
        (folder / "1.csv.gz").write_bytes(torn(gzip.compress(lines.encode()), damage=name == "gzip damaged"))
    elif name == "order":
        (folder / "1.csv").write_text("t,s\n1,a\n")
        (folder / "2.csv").write_text("s,t\na,1\n")
    elif name == "beneath":
        (folder / "x").mkdir()
        (folder / "x" / "1.csv").write_text("t,s\n1,a\n")
    else:
        (folder / "a").symlink_to(folder)


@pytest.mark.parametrize(
    ("name", "options", "checked", "said"),
    [
        ("page", "'format' = 'parquet'", False, "1.parquet is damaged: Corrupt"),
        ("twice", "'format' = 'parquet'", True, "1.parquet has two columns named t"),
        ("letters", "'format' = 'parquet'", True, "1.parquet has two columns named t"),
        ("missing", "'format' = 'parquet'", True, "have no column s"),
        ("gzip cut", "'format' = 'csv'", False, "1.csv.gz is damaged"),
        ("gzip damaged", "'format' = 'csv'", False, "1.csv.gz is damaged"),
        ("order", "'format' = 'csv'", True, "its files have different columns, or the same in another order"),
        ("beneath", "'format' = 'csv'", True, "Spark skips"),
        ("circle", "'format' = 'csv'", True, "cannot be listed: Too many levels of symbolic links"),
    ],
)
@pytest.mark.parametrize("table", [False, True])
def test_unreadable_files_are_reported_in_one_line(
    watersmeet, tmp_path, monkeypatch, name, options, checked, said, table
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    hostile(tmp_path / "in", name)
    query = "SELECT x.t, x.s FROM a x JOIN a y ON x.t = y.t;"
    if table:
        (tmp_path / "b").mkdir()
        written(tmp_path / "b", [[1]], ["u"])
        query = (
            "CREATE TABLE b (u BIGINT, WATERMARK FOR u) WITH ('connector' = 'file', 'path' = 'b'); "
            "SELECT x.t, x.s FROM b JOIN a FOR SYSTEM_TIME AS OF PROCTIME() AS x ON x.t = b.u;"
        )
    declared_ = TWO.format(options).replace(", WATERMARK FOR t", "" if table else ", WATERMARK FOR t")
    (tmp_path / "job.sql").write_text(declared_ + query)
    found = watersmeet("preview", "job.sql", "--rows", "100000")
    assert (found.status, found.out) == (2, ""), found.err
    errors = [line for line in found.err.splitlines() if not line.startswith("note: ")]
    assert said in errors[0]
    assert errors[1].startswith("Hint: ")
    assert len(errors) == 2
    told = watersmeet("explain", "job.sql", "--check-sources")
    assert (told.status, said in told.err) == ((2, True) if checked else (0, False)), told.err


def test_the_columns_of_a_damaged_archive_are_not_inferred(watersmeet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = gzip.compress(b"t,s\n1," + os.urandom(100_000).hex().encode())
    (tmp_path / "1.csv.gz").write_bytes(torn(content, damage=True))
    job = "CREATE TABLE a (WATERMARK FOR t) WITH ('connector'='file', 'path'='1.csv.gz', 'format'='csv'); "
    (tmp_path / "job.sql").write_text(job + "SELECT * FROM a;")
    found = watersmeet("preview", "job.sql")
    assert (found.status, found.out) == (2, ""), found.err
    assert "its columns cannot be inferred" in found.err


def test_a_column_whose_name_is_the_beginning_of_another(watersmeet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    written(tmp_path / "in", [[1], [2], ["a"]], ["t", "t.x", "s"])
    (tmp_path / "job.sql").write_text(TWO.format("'format' = 'parquet'") + "SELECT t, s FROM a;")
    rows, _ = lines_of(watersmeet("preview", "job.sql", "--json"))
    assert rows["rows"] == [[1, "a"]]


def test_notes_on_files_are_those_of_the_check(watersmeet, files):
    (files / "o" / "_2.csv").write_text(ORDERS)
    found = watersmeet("preview", "job.sql", "--json")
    assert found.status == 0
    assert "skipped files whose names begin with _ or ." in found.err
