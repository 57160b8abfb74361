"""Decimals with more digits behind the point than their columns are rounded once, as by Spark, counted and
told."""

from __future__ import annotations

import json
import random
from decimal import ROUND_HALF_UP, Decimal, localcontext

import pytest
from pyspark.sql import functions as F

from tests.engine.spark.running import until_caught_up
from tests.support.effort import at_effort
from watersmeet import parse_job, plan_job
from watersmeet.runtime.files.supported_types import wider_decimal
from watersmeet.runtime.spark.rounded_decimals import rounded_sql
from watersmeet.runtime.spark.sources import frames, kafka
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.tick.reading import text_validation as rereading
from watersmeet.sinks.memory import MemorySink
from watersmeet.types.parser import sql_type

pytestmark = pytest.mark.spark

TYPES = ("DECIMAL(10,2)", "DECIMAL(20,2)", "DECIMAL(18,2)", "DECIMAL(4,2)", "DECIMAL(5,0)", "DECIMAL(17,2)")
TYPES = at_effort(quick=TYPES[:3], full=(*TYPES, "DECIMAL(30,29)", "DECIMAL(37,0)", "DECIMAL(38,0)"))
VALUES = at_effort(quick=60, full=2_000)
TWICE = "1.4949999999999999"
"""It is 1.49 with two digits, and 1.50 where it is rounded to ten of them before."""
ODD = (TWICE, f"-{TWICE}", "1.239", "1.23", "1.2300", "99.999", "0.005", "-0.005", "1e-3", "1.239e2", "12e-1")
SPELLED = ("1,2.39", " 1.239 ", "", "x", "1,239")


def drawn(rng: random.Random) -> str:
    whole = rng.choice(["0", "1", "99", "100", "99999999", "9" * 16, "9" * 38])
    fraction = rng.choice(["", ".5", ".25", ".230000", ".239", ".995", ".999999", ".1234567", ".0000001"])
    noise = rng.choice(["", "", "49999999999999", "0000000000001", "9" * 30])
    return rng.choice(["", "-"]) + whole + fraction + (noise if fraction else "")


@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize("locale", ["", "de-DE"])
def test_each_value_is_what_sparks_parser_makes_of_it_and_what_it_lost_is_seen(spark, form, locale, seed):
    """Of topics: against Spark's parser told the declared type."""
    rng = random.Random(seed)
    numbers = [*ODD, *(drawn(rng) for _ in range(VALUES if not locale else 10))]
    for declared in TYPES if not locale else TYPES[:1]:
        option = f", '{form}.locale' = '{locale}'" if locale else ""
        text = f"""CREATE TABLE c (p {declared}, s STRING) WITH ('connector' = 'kafka', 'topic' = 't',
            'format' = '{form}', 'bootstrap.servers' = 'x:1'{option}); SELECT * FROM c"""
        (source,) = plan_job(parse_job(text)).sources
        quoted = [json.dumps(value) for value in [*SPELLED, TWICE]]
        values = [*numbers, *quoted]
        records = [f'{{"p": {value}, "s": "a"}}' if form == "json" else f"{value},a" for value in values]
        frame = spark.createDataFrame([(None, r.encode()) for r in records], "key BINARY, value BINARY")
        rounded = rounded_sql(source, ["`p`"]) or "NULL"
        told = kafka.parse_records(frame.withColumn("partition", F.lit(0)), source)
        told = told.selectExpr("p", f"{rounded} AS r", f"{BROKEN} AS b")
        reader = f"from_{form}(CAST(value AS STRING), 'p {declared}, s STRING, c STRING', "
        also = f", 'locale', '{locale}'" if locale else ""
        options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', 'c'{also}))"
        spark_reads = frame.selectExpr(f"{reader}{options} AS v").selectExpr("v.p", "v.c")
        for value, own, ours in zip(values, spark_reads.collect(), told.collect(), strict=True):
            assert ours["b"] == own["c"], (declared, value)
            if ours["b"] is None:
                assert ours["p"] == own["p"], (declared, value)
                if value in numbers and not locale:
                    assert (ours["r"] is not None) == is_lossy(value, declared), (declared, value)


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_record_that_loses_digits_is_as_broken_as_another(spark, form):
    text = f"""CREATE TABLE c (p DECIMAL(4,2), n INT) WITH ('connector' = 'kafka', 'topic' = 't',
        'format' = '{form}', 'bootstrap.servers' = 'x:1'); SELECT * FROM c"""
    (source,) = plan_job(parse_job(text)).sources
    records = [
        f'{{"P": {p}, "n": {n}}}' if form == "json" else f"{p},{n}"
        for p, n in (("1.239", "1"), ("1.239", '"x"'), ("1.23", '"x"'), ("99.999", "1"))
    ]
    frame = spark.createDataFrame([(None, r.encode()) for r in records], "key BINARY, value BINARY")
    rows = kafka.parse_records(frame.withColumn("partition", F.lit(0)), source).collect()
    assert (rows[0][BROKEN], rows[0]["p"]) == (None, Decimal("1.24"))
    assert [row[BROKEN] for row in rows[1:]] == records[1:]


def test_an_upsert_that_loses_digits_is_seen(spark):
    text = """CREATE TABLE c (id INT, p DECIMAL(4,2), q DECIMAL(4,2), PRIMARY KEY (id) NOT ENFORCED) WITH (
        'connector' = 'kafka', 'topic' = 't', 'format' = 'upsert-json', 'bootstrap.servers' = 'x:1');
        SELECT * FROM c"""
    (source,) = plan_job(parse_job(text)).sources
    values = ["1.23", "1.239", TWICE, "99.999", "null"]
    records = [(b'{"id": 1}', f'{{"p": {value}, "q": 1.5}}'.encode()) for value in values]
    frame = spark.createDataFrame([*records, (b'{"id": 1}', None)], "key BINARY, value BINARY")
    rows = kafka.parse_records(frame.withColumn("partition", F.lit(0)), source)
    rows = rows.selectExpr("p", f"{rounded_sql(source, ['`p`', '`q`'])} AS r", f"{BROKEN} AS b").collect()
    assert [bool(row["b"]) for row in rows] == [False, False, False, True, False, False]
    expected = [Decimal("1.23"), Decimal("1.24"), Decimal("1.49"), None, None]
    assert [rows[n]["p"] for n in (0, 1, 2, 4, 5)] == expected
    assert [row["r"] for row in rows if not row["b"]] == [None, "=p 1.239", f"=p {TWICE}", None, None]


@pytest.mark.parametrize("declared", ["DECIMAL(9,2)", "DECIMAL(18,2)", "DECIMAL(37,2)"])
@pytest.mark.parametrize("form", ["raw", "json"])
def test_a_key_that_loses_digits_is_broken_and_no_other_rows(spark, declared, form):
    text = f"""CREATE TABLE c (k {declared}, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('topic' = 't',
        'connector' = 'kafka', 'format' = 'upsert-json', 'key.format' = '{form}', 'bootstrap.servers' = 'x');
        SELECT * FROM c"""
    (source,) = plan_job(parse_job(text)).sources
    keys = ["1.001", "1.000", "-1", "1e-3", "0.01"]
    told = [key if form == "raw" else f'{{"k": {key}}}' for key in keys]
    records = [(key.encode(), value) for key in told for value in (b'{"v": 1}', None)]
    frame = spark.createDataFrame(records, "key BINARY, value BINARY")
    rows = kafka.parse_records(frame.withColumn("partition", F.lit(0)), source).select("k", BROKEN).collect()
    assert [bool(row[BROKEN]) for row in rows] == [True, True, *[False] * 4, True, True, False, False]
    assert [str(row["k"]) for row in rows if not row[BROKEN]] == ["1.00"] * 2 + ["-1.00"] * 2 + ["0.01"] * 2
    assert rows[1][BROKEN] == told[0]


WITHIN = {
    "STRUCT<a: INT, d: {}>": '{{"a": 1, "d": {}}}',
    "ARRAY<{}>": "[null, 1, {}]",
    "MAP<STRING, ARRAY<STRUCT<d: {}, t: TINYINT>>>": '{{"k": [{{"d": 1, "t": 3}}, {{"d": {}}}]}}',
}


@pytest.mark.parametrize("declared", ["DECIMAL(4,2)", "DECIMAL(20,2)"])
def test_values_within_others_are_rounded_as_by_spark_and_seen(spark, tmp_path, declared):
    """Of topics and of files. What does not fit, in one type alone, has all of a file read again."""
    numbers = ["1.23", "1.239", TWICE, f"-{TWICE}", "1.495", "99.999", "null", "1e-9"]
    numbers.append("1.494" + "9" * 30)  # half-way when it is rounded to the wider type
    types = ", ".join(f"c{n} {type_.format(declared)}" for n, type_ in enumerate(WITHIN))
    lines = [
        "{" + ", ".join(f'"c{n}": {text.format(value)}' for n, text in enumerate(WITHIN.values())) + "}"
        for value in numbers
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("\n".join(lines) + "\n")
    reader = spark.read.schema(f"{types}, x STRING").option("columnNameOfCorruptRecord", "x")
    expected = [row.asDict() for row in reader.json(f"{tmp_path}/in").collect()]
    lossy = [n for n, value in enumerate(numbers) if expected[n]["x"] is None and is_lossy(value, declared)]
    assert len(lossy) == (7 if declared == "DECIMAL(20,2)" else 6)

    options = "'connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'x:1'"
    text = f"CREATE TABLE c ({types}) WITH ({options});"
    (source,) = plan_job(parse_job(f"{text} SELECT * FROM c")).sources
    raw = spark.createDataFrame([(None, line.encode()) for line in lines], "key BINARY, value BINARY")
    told = kafka.parse_records(raw.withColumn("partition", F.lit(0)), source)
    rounded = rounded_sql(source, ["`c1`"])
    told = told.selectExpr("c0", "c1", "c2", f"{BROKEN} AS x", f"{rounded} AS r").collect()
    assert [n for n, row in enumerate(told) if row["x"] is None and row["r"]] == lossy
    assert told[1]["r"].startswith("=c1 [null,1.0000")
    assert "1.239" in told[1]["r"]
    for own, row in zip(expected, told, strict=True):
        assert bool(own["x"]) == bool(row["x"])
        if own["x"] is None:
            assert [own[f"c{n}"] for n in range(3)] == [row[f"c{n}"] for n in range(3)]

    MemorySink.clear()
    options = f"'connector' = 'file', 'format' = 'json', 'path' = '{tmp_path}/in'"
    job = f"""CREATE TABLE c ({types}) WITH ({options});
        CREATE TABLE out WITH ('connector' = 'memory');
        INSERT INTO out SELECT to_json(struct(c0, c1, c2)) AS t FROM c;"""
    (last,) = until_caught_up(spark, job, tmp_path / "state").ticks
    assert last.rounded["c"].rows == len(lossy)
    frame = reader.json(f"{tmp_path}/in").cache().where("x IS NULL")
    written = [row[0] for row in frame.selectExpr("to_json(struct(c0, c1, c2))").collect()]
    assert sorted(row["t"] for row in MemorySink.rows("out")) == sorted(written)


def is_lossy(value: str, declared: str) -> bool:
    if value == "null":
        return False
    type_, wider = sql_type(declared), wider_decimal(sql_type(declared))
    with localcontext() as context:
        context.prec = 100
        seen, own = (
            Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
            for scale in (type_.scale if wider is None else wider.scale, type_.scale)
        )
        return seen != own


JOB = """
SET broken_output = bad;
CREATE TABLE bad WITH ('connector' = 'memory');
CREATE TABLE a (id INT, at TIMESTAMP, price DECIMAL(10,2), fee DECIMAL(6,1), spare DECIMAL(4,1),
    WATERMARK FOR at AS at)
  WITH ('connector' = 'file', 'path' = '{path}/in', 'format' = '{form}'{unit});
CREATE TABLE b (id INT, at TIMESTAMP, fee DECIMAL(6,1), WATERMARK FOR at AS at)
  WITH ('connector' = 'file', 'path' = '{path}/b', 'format' = '{form}');
CREATE TABLE out WITH ('connector' = 'memory');
INSERT INTO out SELECT id, price, fee FROM a;
CREATE TABLE other WITH ('connector' = 'memory');
INSERT INTO other SELECT a.id, b.fee FROM b JOIN a ON a.id = b.id AND a.at = b.at;
"""
SURE = ["1.239", "1.5", "1.2300", "2"]
HALF_WAY, TOO_LARGE = [*SURE, TWICE, "1.495", "-0.005"], [*SURE, "99999999.999"]


@pytest.mark.parametrize(
    ("prices", "unit", "form"),
    [
        (SURE, False, "json"),
        (HALF_WAY, False, "json"),
        (HALF_WAY, False, "csv"),
        (TOO_LARGE, False, "json"),
        (TOO_LARGE, False, "csv"),
        (SURE, True, "json"),
        *(
            pytest.param(*form, marks=pytest.mark.full)
            for form in [
                (SURE, False, "csv"),
                (SURE, True, "csv"),
                (HALF_WAY, True, "json"),
                (HALF_WAY, True, "csv"),
            ]
        ),
    ],
)
def test_a_job_counts_rounded_rows_and_tells_of_the_first(spark, tmp_path, monkeypatch, form, prices, unit):
    """Of columns that nobody asks for it says nothing, and rows with zeros at their end lose nothing. Where
    the wider type does not tell what a value is, the source's files are read again, once. Where all columns
    are parsed, one that nobody asks for breaks its record by a value that is too large, in any tick."""
    at = "2026-03-01T10:00:00Z"
    head = [] if form == "json" else ["id,at,price,fee,spare"]
    spares = ["1.55", "999.96", *["1.55"] * (len(prices) - 2)]
    lines = [
        f'{{"id": {n}, "at": "{at}", "price": {price}, "fee": 1.26, "spare": {spare}}}'
        if form == "json"
        else f"{n},{at},{price},1.26,{spare}"
        for n, (price, spare) in enumerate(zip(prices, spares, strict=True))
    ]
    other = f'{{"id": 0, "at": "{at}", "fee": 1.24}}' if form == "json" else f"id,at,fee\n0,{at},1.24"
    for name, own in (("in", [*head, *lines]), ("b", [other])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("\n".join(own) + "\n")
    MemorySink.clear()
    notes: list[str] = []
    again: list[str] = []

    def counting(session, source, *args):
        again.append(source.name)
        return frames.reread_as_batch(session, source, *args)

    monkeypatch.setattr(rereading, "reread_as_batch", counting)
    said_unit = ", 'timestamp.unit' = 'ms'" if unit else ""
    text = JOB.format(path=tmp_path, form=form, unit=said_unit)
    (last,) = until_caught_up(spark, text, tmp_path / "state", on_notice=notes.append).ticks
    columns = "id INT, at TIMESTAMP, price DECIMAL(10,2), fee DECIMAL(6,1), spare DECIMAL(4,1)"
    reader = spark.read.schema(columns).format(form).options(header=True)
    expected = {row["id"]: (row["price"], row["fee"]) for row in reader.load(f"{tmp_path}/in").collect()}
    rows_out = {row["id"]: (row["price"], row["fee"]) for row in MemorySink.rows("out")}
    too_large = {n for n, price in enumerate(prices) if price.startswith("9")}
    too_large |= {1} if unit else set()
    assert rows_out == {n: values for n, values in expected.items() if n not in too_large}
    assert [(row["id"], row["fee"]) for row in MemorySink.rows("other")] == [(0, Decimal("1.2"))]
    assert again == ([] if prices is SURE and not too_large else ["a"])
    assert last.rows_in["a"] == len(prices)
    assert last.rounded["a"].rows == len(rows_out)
    assert last.rounded["b"].rows == 1
    assert [row["record"] for row in MemorySink.rows("bad")] == [lines[n] for n in too_large]
    (said,) = [note for note in notes if "rounded" in note and '"a"' in note]
    assert said.startswith(f'"a": decimals of {len(rows_out)} rows of tick 1 have more digits after')
    assert "for example price 1.239." in said
