"""Texts that are longer than their VARCHAR(n) break their record, of each format and reader."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.spark.running import until_caught_up
from watersmeet import parse_job, plan_job
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.files.first_rows import read_first_rows
from watersmeet.sinks.memory import MemorySink
from watersmeet.types.parser import sql_type
from watersmeet.types.sql_type import STRING

JOB = """SET file_reader = '{reader}';
SET broken_output = aside;
CREATE TABLE aside WITH ('connector' = 'memory');
CREATE TABLE a (id INT, at TIMESTAMP, s VARCHAR(3), spare CHAR(1), WATERMARK FOR at AS at)
  WITH ('connector' = 'file', 'path' = '{path}/in', 'format' = '{form}');
CREATE TABLE out WITH ('connector' = 'memory');
INSERT INTO out SELECT id, s FROM a;
"""
ROWS = [
    {"id": 1, "at": "2026-03-01T10:00:00Z", "s": "äöü", "spare": "xx"},
    {"id": 2, "at": "2026-03-01T10:00:00Z", "s": "abcd", "spare": "x"},
    {"id": 3, "at": "2026-03-01T10:00:00Z", "s": None, "spare": "x"},
    {"id": 4, "at": "2026-03-01T10:00:00Z", "s": "abc ", "spare": "x"},
]


@pytest.mark.spark
@pytest.mark.parametrize("reader", ["auto", "spark"])
@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_text_that_is_too_long_breaks_its_record(spark, tmp_path, form, reader):
    """A length is one of characters; of columns that nobody asks for none is compared."""
    (tmp_path / "in").mkdir()
    if form == "parquet":
        table = pa.Table.from_pylist(ROWS)
        times = pa.array([0] * len(ROWS), pa.timestamp("us", "UTC"))
        ids = table["id"].cast(pa.int32())
        table = table.set_column(0, "id", ids).set_column(1, "at", times)
        parquet.write_table(table, tmp_path / "in" / "a")
    else:
        records = [
            json.dumps(r) if form == "json" else ",".join(str(v or "") for v in r.values()) for r in ROWS
        ]
        lines = [*([] if form == "json" else ["id,at,s,spare"]), *records]
        (tmp_path / "in" / "a").write_text("\n".join(lines) + "\n")
    MemorySink.clear()
    notes: list[str] = []
    text = JOB.format(path=tmp_path, form=form, reader=reader)
    (tick,) = until_caught_up(spark, text, tmp_path / "state", on_notice=notes.append).ticks
    assert sorted(row["id"] for row in MemorySink.rows("out")) == [1, 3]
    assert tick.broken["a"].rows == 2
    kept = [json.loads(row["record"]) for row in MemorySink.rows("aside")]
    assert sorted(record["id"] for record in kept) == [2, 4], "what a query uses of it, to be read again"
    assert {record["s"] for record in kept} == {"abcd", "abc "}
    (said,) = [note for note in notes if "did not parse" in note]
    assert """"s":"abcd"} (s is VARCHAR(3), but the value is 'abcd': declare it STRING)""" in said
    if form != "parquet":
        (source,) = plan_job(parse_job(text)).sources
        assert len(read_first_rows(source, 9).rows) == 1, "spare is looked at, too"


NESTED = "STRUCT<`a b`: VARCHAR(3), l: ARRAY<STRUCT<x: CHAR(2)>>, m: MAP<VARCHAR(1), VARCHAR(2)>>"
VALUES = [
    ({"a b": "abc", "l": [{"x": "xx"}, None], "m": {"k": "vv"}}, True),
    ({"a b": None, "l": None, "m": {}}, True),
    (None, True),
    ({"a b": "abcd", "l": [], "m": {}}, False),
    ({"a b": None, "l": [{"x": None}, {"x": "xxx"}], "m": None}, False),
    ({"a b": "", "l": [], "m": {"kk": "v"}}, False),
    ({"a b": "", "l": [], "m": {"k": "vvv"}}, False),
]


@pytest.mark.spark
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_texts_within_a_value_are_looked_at(spark, tmp_path, form):
    (tmp_path / "in").mkdir()
    if form == "parquet":
        kinds = [("a b", pa.string()), ("l", pa.list_(pa.struct([("x", pa.string())])))]
        kind = pa.struct([*kinds, ("m", pa.map_(pa.string(), pa.string()))])
        given = [value and {**value, "m": value["m"] and list(value["m"].items())} for value, _ in VALUES]
        ids, times = pa.array(range(len(VALUES))), pa.array([0] * len(VALUES), pa.timestamp("us", "UTC"))
        table = pa.table([ids, times, pa.array(given, kind)], ["id", "at", "s"])
        parquet.write_table(table, tmp_path / "in/a")
    else:
        rows = [{"id": n, "at": "2026-03-01T10:00:00Z", "s": value} for n, (value, _) in enumerate(VALUES)]
        (tmp_path / "in/a").write_text("\n".join(map(json.dumps, rows)))
    MemorySink.clear()
    text = f"""CREATE TABLE a (id BIGINT, at TIMESTAMP, s {NESTED}, WATERMARK FOR at AS at)
          WITH ('connector' = 'file', 'path' = '{tmp_path}/in', 'format' = '{form}');
        CREATE TABLE out WITH ('connector' = 'memory');
        INSERT INTO out SELECT id, s FROM a;"""
    (tick,) = until_caught_up(spark, text, tmp_path / "state").ticks
    fitting = [n for n, (_, fits) in enumerate(VALUES) if fits]
    assert sorted(row["id"] for row in MemorySink.rows("out")) == fitting
    assert tick.broken["a"].rows == sum(not fits for _, fits in VALUES)


@pytest.mark.spark
@pytest.mark.parametrize("is_compared", [False, True])
def test_a_table_with_a_text_that_is_too_long_is_not_read(spark, tmp_path, is_compared):
    """So it is with other records that do not parse; of columns that nobody asks for none is compared."""
    for name, lines in {"a": ['{"id":1,"at":"2026-03-01T10:00:00Z"}'], "t": []}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text("\n".join(lines))
    table = f"'connector' = 'file', 'path' = '{tmp_path}/t', 'format' = 'json'"
    select = "a.id, t.s FROM a JOIN t FOR SYSTEM_TIME AS OF PROCTIME() AS t ON a.id = t.id"
    if is_compared:
        table, select = f"{table}, 'changes' = 'snapshot'", "id, s FROM t"
    text = f"""CREATE TABLE a (id INT, at TIMESTAMP, WATERMARK FOR at AS at)
          WITH ('connector' = 'file', 'path' = '{tmp_path}/a', 'format' = 'json');
        CREATE TABLE t (id INT, s VARCHAR(3), spare VARCHAR(1)) WITH ({table});
        CREATE TABLE out WITH ('connector' = 'memory');
        INSERT INTO out SELECT {select};"""
    MemorySink.clear()
    (tmp_path / "t/f").write_text('{"id":1,"s":"abcd","spare":"xx"}')
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, text, tmp_path / "state")
    assert caught.value.code == "table-unreadable"
    assert "(s is VARCHAR(3), but the value is 'abcd': declare it STRING)" in str(caught.value)
    (tmp_path / "t/f").write_text('{"id":1,"s":"abc","spare":"xx"}')
    until_caught_up(spark, text, tmp_path / "state")
    assert [row["s"] for row in MemorySink.rows("out")] == ["abc"]


def test_types_of_all_lengths_are_one_type():
    assert sql_type("VARCHAR(3)") == sql_type("char(5)") == STRING
    assert str(sql_type("VARCHAR(3)")) == "STRING"
    assert (sql_type("VARCHAR(3)").length, sql_type("STRING").length) == (3, 0)
