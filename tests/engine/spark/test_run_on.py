"""Records of JSON files that run on behind their value: they are told, whatever they look like, and no
others; they are broken, and no rows are theirs.

Judge of values is Spark's JSON reader; oracle of what stands behind one is Python's parser.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.engine.spark.running import until_caught_up
from tests.fuzz.rows import bag, difference, json_rows, native_rows, parquet_rows
from tests.support.effort import at_effort
from tests.support.json_records import drawn, runs_on
from watersmeet.errors import WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.sources import frames, kafka
from watersmeet.runtime.spark.sources.columns import BROKEN
from watersmeet.runtime.spark.sources.files.json_texts import JsonTexts, decode_leniently
from watersmeet.spec.records.text_records import JsonNames
from watersmeet.types.parser import sql_type

pytestmark = pytest.mark.spark

FIELDS = {"id": "INT", "m": "STRUCT<a: INT>", "b": "ARRAY<INT>", "s": "STRING", "f": "DOUBLE"}
BEHIND = [
    "}", "]", ",", "x", '{"id": 6}', ' {"id": 7}', ',{"id": 8}', ',"s": 2', '], "row": [{"id": 9}', ",0]",
    ",0,0]", '],[{"__ws_end":0}]]', '],[{"__ws_end":1}]]', "]]", '}{"id":1}', ' "', "null", "1", "//",
    "/* */", "\t", " ", "\x00", "\u00fc", "[]", "{}", '"}', ":", "'",
    ",0" * 16 + "]", ",0" * 17 + "]{}", ",[]" * 16 + ']}',
]  # fmt: skip
ODD = [
    b"", b" ", b"\t  ", b"{}", b"[]", b"null", b"1", b'"x"', b"[1]", b"[null]", b"[[]]",
    b'[{"id":1},{"id":2}]',
    b'[{"id":1},{"id":"x"}]', b'[null,{"id":3}]', b'[{"id":1}] x', b'[{"id":1},{"id":2}],[]', b'[{"id":1}',
    b'[{"id":1},{"id":2}]{"id":3}', b'[] {"id":3}', b"[]]", b"[],0]", b' [{"id":1}]', b'[{"id":1},2]',
    b"[[{}]]", b'\xff{"id":1}', b'{"id":1,"s":"\xff"}', b'{"id":1,"s":"\xff"}{"id":2}', b'{"id":1} \xff',
    b'{"id":1}\xc3', b'{"id":1,"s":"\xed\xa0\x80"}', b'{"id":1,"s":"\xed\xa0\x80"}x',
    b'{"id":1,"s":"\xc0\x80"}', b'{"id":1,"x":"\xf5\x80"}', b'\xef\xbb\xbf{"id":7}', b"\xef\xbb\xbf",
    b'\xef\xbb\xbf{"id":7}{}', b'{"id":1,"f":NaN}', b'{"id":1,"f":NaN}{}', b'{"id":1,"f":NaN,"s":"\\ud800"}',
    b"{'id':1}", b"{'id':1}{'id':2}", b"{'id':1,'s':'}'}", b"{'s':'\"}'}{'id':1}", b'{"id":1,"s":"\\ud800"}',
    b'{"id":1,"f":1e400}', b'{"id":1,"s":1e400}', b'{"id":01}', b"{id:1}", b'{"id":1,}', b'{"id":1,"id":2}',
    b'{"a":' * 1000 + b"1" + b"}" * 1000, b'{"a":' * 1000 + b"1" + b"}" * 1000 + b"{}",
    b'{"a":' * 1001 + b"1" + b"}" * 1001, b'{"id":1,"x":' + b"[" * 999 + b"]" * 999 + b"}",
    b'{"id":1,"x":' + b"[" * 998 + b"]" * 998 + b"}]", b'{"id":' + b"9" * 1001 + b"}",
    b'{"id":1,"x":' + b"9" * 1001 + b"}", b'{"id":1,"s":"\t"}', b'{"id":1,"s":"\x01"}', b'{"__ws_end":0}',
    b'{"__ws_end":"x","f":NaN}', b'{"id":1} {"id":2} {"id":3}', b'{"id":1}\\n',
    *('{"id":1,"s":"\u00e4"}'.encode(encoding) for encoding in ("utf-16-le", "utf-16-be", "utf-16")),
    *('{"id":1}{"id":2}'.encode(encoding) for encoding in ("utf-16-le", "utf-16-be", "utf-16")),
    *(text.encode(encoding) for encoding in ("utf-32-le", "utf-32-be", "utf-32")
      for text in ('{"id":1}', '[{"id":1},{"id":2}]', '{"id":1}{"id":2}')),
    # Quotes that are none: a byte of a character, within other quotes, of an escape.
    *('{"a\u0122":1}{"b\u0122":1}'.encode(encoding) for encoding in ("utf-16-le", "utf-16-be", "utf-16")),
    b"{'s':'\"'}{'s':'\"'}", b"""{'s':'"','s':'"'}""", rb'{"s":"\\"}{"s":"\""}', rb'{"s":"\"}{\""}',
    b"{'s':'/*'}{}", b'{"id":1}, {"id":2}', b'{"id":1},"s":{}', b'{"id":1}}{', b'{"b":[1]}{"b":[2]}',
    b'{"b":[1}]', b'{"b":[{]}]}',
    *(b'{"x":' * depth + b'{"y":[{"z":"}{"}]}' + b"}" * depth for depth in range(4, 9)),
    *(b'{"x":' * depth + b'{"y":[{"z":"}{"}]}' + b"}" * depth + b"{}" for depth in range(4, 9)),
]  # fmt: skip


def values(rng: random.Random) -> list[bytes]:
    """JSON objects of all forms, and what may stand behind them."""
    found = []
    for number in range(at_effort(quick=100, full=250)):
        row = drawn(rng, number, (
            ("m", [None, {"a": 1}, {}, {"a": 2, "z": {"y": [{}]}}]),
            ("b", [None, [], [1, 2]]),
            ("s", [None, "}", '{"id": 9}{', "]\n}", '"', "\\", "\u00fc", 1.5, {"q": [1]}]),
            ("f", [1.0, None]),
        ))  # fmt: skip
        shape = rng.choice([row, row, row, [row], [row, {"id": 0}]])
        text = json.dumps(shape, ensure_ascii=rng.random() < 0.5, separators=rng.choice([None, (",", ":")]))
        text = (
            rng.choice(["", "", " "]) + text + "".join(rng.choices(BEHIND, k=rng.choice([0, 0, 1, 1, 2, 3])))
        )
        found.append((text if rng.random() < 0.9 else text[: rng.randrange(len(text))]).encode())
    return found


@pytest.fixture
def record_verdicts(spark, tmp_path):
    """Of records, each in a file of its own: how many rows Spark's JSON reader makes and whether it calls it
    broken, and what we say: whether it runs on, and how many rows it has."""

    def judge(
        records: list[bytes], options: dict[str, str]
    ) -> list[tuple[int, bool, bool | None, int | None]]:
        folder = tmp_path / "in"
        folder.mkdir()
        before = [] if "multiLine" in options else [b"{}"]  # a mark at the start of a file is passed over
        for number, record in enumerate(records):
            (folder / f"{number:05}").write_bytes(b"\n".join([*before, record]))
        schema = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
        reader = spark.read.schema(f"{schema}, corrupt STRING").options(**options)
        frame = reader.option("columnNameOfCorruptRecord", "corrupt").json(str(folder))
        by_spark: dict[str, list[bool]] = {}
        for row in frame.select("*", F.col("_metadata.file_name").alias("name")).collect():
            by_spark.setdefault(row["name"], []).append(row["corrupt"] is not None)
        fields = ", ".join(f"{name}: {kind}" for name, kind in FIELDS.items())
        names = JsonNames.of((name, sql_type(kind)) for name, kind in FIELDS.items())
        texts = JsonTexts({name.lower(): value for name, value in options.items()}, fields, names)
        with decode_leniently(spark):
            asked = texts.read(spark, str(folder)).selectExpr(
                "_metadata.file_name", texts.has_trailing_tokens, texts.count_of_rows
            )
        by_us: dict[str, list[tuple[bool, int]]] = {}
        for name, run_on, rows in asked.collect():
            by_us.setdefault(name, []).append((run_on, rows))
        told = []
        for number in range(len(records)):
            corrupt, texts_told = (
                found.get(f"{number:05}", [])[len(before) :] for found in (by_spark, by_us)
            )
            assert len(texts_told) < 2
            told.append((len(corrupt), any(corrupt), *(texts_told[0] if texts_told else (False, 0))))
        return told

    return judge


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"multiLine": "true"},
        pytest.param({"encoding": "UTF-8"}, marks=pytest.mark.full),
        {"allowComments": "true"},
        pytest.param({"allowSingleQuotes": "false"}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_trailing_tokens_are_detected_exactly(record_verdicts, seed, options):
    records = [*values(random.Random(seed)), *ODD]
    wrong, good, bad = [], 0, 0
    for record, (rows, broken, run_on, rows_told) in zip(
        records, record_verdicts(records, options), strict=True
    ):
        if rows != rows_told:
            wrong.append((record[:80], "rows", rows, rows_told))
        want = runs_on(record)
        if broken or want is None or ("allowComments" in options and (b"//" in record or b"/*" in record)):
            continue
        good, bad = good + (not want), bad + want
        if want is not run_on:
            wrong.append((record[:80], "runs on", want, run_on))
    assert not wrong, wrong
    assert min(good, bad) > at_effort(quick=20, full=50)


def job(path: Path, columns: str, select: str, options: str = "", settings: str = "") -> str:
    folder = path / "in"
    folder.mkdir(exist_ok=True)
    return f"""SET broken_output = bad; {settings}
        CREATE TABLE bad WITH ('connector' = 'file', 'path' = '{path}/bad', 'format' = 'json');
        CREATE TABLE l ({columns})
            WITH ('on_broken' = 'count', 'connector' = 'file',
              'path' = '{folder}', 'format' = 'json'{options});
        CREATE TABLE o WITH ('connector' = 'file', 'path' = '{path}/out', 'format' = 'parquet');
        INSERT INTO o {select};"""


def read_output(path: Path) -> tuple[Counter[tuple[Any, ...]], Counter[str]]:
    """Rows, and records that were set aside as broken."""
    rows = bag(parquet_rows(path / "out"))
    names = ("stream", "input", "reason", "record", "watermark_key", "watermark", "late_by")
    broken = json_rows(path / "bad", dict.fromkeys(names, "STRING"))
    return rows, Counter(as_shown(row[3].encode()) for row in broken)


def as_shown(record: bytes) -> str:
    """A record in a side output: in the place of bytes that are no text are marks, however many."""
    return re.sub("\ufffd+", "\ufffd", record.decode("utf-8", "replace"))


def account(run: Any) -> dict[str, int]:
    (counts,) = run.ticks[-1].queries["o"].account.values()
    return counts


PLAIN = "id INT, m STRUCT<a: INT>, b ARRAY<INT>, s STRING, f DOUBLE"


@pytest.mark.full
def test_rows_of_a_job_are_those_of_records_that_do_not_run_on(spark, seed, tmp_path):
    """In three ticks, the second without such a record, a file of several blocks in the last one. Judge is
    Spark's reader over records that do not run on."""
    rng = random.Random(seed)
    text = job(tmp_path, PLAIN, "SELECT id, m.a AS a, b, s, f FROM l", ", 'maxFilesPerTrigger' = '2'")
    clean, broken = tmp_path / "clean", Counter()
    clean.mkdir()
    for number in range(6):
        records = [r for r in [*values(rng), *ODD] if b"\r" not in r and b"\0" not in r]
        rng.shuffle(records)
        if number == 4:  # blocks are not smaller than 4 MB
            records += [json.dumps({"id": 7, "s": "x" * 5_000}).encode()] * 2_000
            records.insert(len(records) - 3, b'{"id":8}{"id":9}')
        run_on = [record for record in records if runs_on(record)]
        if number in (2, 3):
            records = [record for record in records if record not in run_on]
            run_on = []
        broken.update(map(as_shown, run_on))
        name = f"{number:02}"
        (clean / name).write_bytes(b"\n".join(record for record in records if record not in run_on))
        (tmp_path / "in" / name).write_bytes(b"\n".join(records))
        os.utime(tmp_path / "in" / name, (1_700_000_000 + number,) * 2)
    frame = spark.read.schema(f"{PLAIN}, c STRING").option("columnNameOfCorruptRecord", "c").json(str(clean))
    judge = frame.selectExpr("id", "m.a", "b", "s", "f", "c").toArrow()
    want = bag(row[:-1] for row in native_rows(judge) if row[-1] is None)
    broken.update(as_shown(row[-1]) for row in native_rows(judge) if row[-1] is not None)
    run = until_caught_up(spark, text, tmp_path / "state")
    rows, texts = read_output(tmp_path)
    assert not difference(rows, want)
    assert not difference(texts, broken)
    assert len(run.ticks) == 3
    assert account(run)["broken"] == broken.total()
    assert account(run)["in"] == broken.total() + want.total()


TWO = '{"id":1,"s":"a"}{"id":2,"s":"b"}'
ONE = '{"id":3,"s":"c"}'


UTF_16 = f"[{TWO.replace('}{', '},{')}]\n{ONE}".encode("utf-16")
LATIN = f'{TWO};;{{"id":3,"s":"c","x":"\u00e9"}}'.encode("latin-1")
COMMENTED = f"// c\n{ONE} /* }} */ // x\n /* [ */ {TWO} // x\n".encode()
ZIPPED = gzip.compress(f"{ONE}\r\n{TWO}\r\n\r\n".encode(), mtime=0)
OPTIONS = [
    ("'multiLine' = 'true'", "a", UTF_16),
    ("", "a.gz", ZIPPED),
]
MORE_OPTIONS = [
    ("'multiLine' = 'true'", "a", TWO.replace(",", ",\n").encode()),
    ("'lineSep' = ';;'", "a", f"{TWO};;{ONE};;".encode()),
    ("'encoding' = 'UTF-16LE', 'lineSep' = ';;'", "a", f"{TWO};;{ONE}".encode("utf-16-le")),
    ("'encoding' = 'ISO-8859-1', 'lineSep' = ';;'", "a", LATIN),
    ("'allowComments' = 'true'", "a", COMMENTED),
    ("'allowUnquotedFieldNames' = 'true'", "a", b"{id:3,'s':'c'}\n{id:1}{id:2}"),
]


@pytest.mark.parametrize(
    ("options", "name", "content"),
    [*OPTIONS, *(pytest.param(*each, marks=pytest.mark.full) for each in MORE_OPTIONS)],
    ids=str,
)
def test_options_and_encodings(spark, tmp_path, options, name, content):
    text = job(tmp_path, "id INT, s STRING", "SELECT id, s FROM l", options and f", {options}")
    (tmp_path / "in" / name).write_bytes(content)
    run = until_caught_up(spark, text, tmp_path / "state")
    rows, _ = read_output(tmp_path)
    assert account(run)["broken"] == 1
    assert rows == ({(3, b"c"): 1} if "multiLine" not in options else {})


def test_rows_of_a_table_with_a_key_come_in_the_order_of_files_and_lines(spark, tmp_path):
    """Also from directories of partitions; a record that runs on changes nothing, and none behind it does."""
    text = job(
        tmp_path,
        "id INT PRIMARY KEY NOT ENFORCED, v INT, part STRING",
        "SELECT id, v, part FROM l",
        settings="SET output_mode = changelog;",
    )
    for number, (part, lines) in enumerate(
        [
            ("b", ['{"id":1,"v":1}', '{"id":2,"v":2}', '{"id":1,"v":3}{"id":2,"v":4}', '{"id":1,"v":5}']),
            (
                "a",
                [
                    '{"id":3,"v":6}',
                    '{"id":2,"v":7}',
                    "",
                    '[{"id":2,"v":8},{"id":3,"v":9}] [',
                    '{"id":3,"v":10}',
                ],
            ),
        ]
    ):
        folder = tmp_path / "in" / f"part={part}"
        folder.mkdir()
        (folder / "f").write_text("\n".join(lines))
        os.utime(folder / "f", (1_700_000_000 + number,) * 2)
    run = until_caught_up(spark, text, tmp_path / "state")
    assert account(run)["broken"] == 2
    rows, broken = read_output(tmp_path)
    assert {row[:3] for row in rows} == {(1, 5, b"b"), (2, 7, b"a"), (3, 10, b"a")}
    assert set(broken) == {'{"id":1,"v":3}{"id":2,"v":4}', '[{"id":2,"v":8},{"id":3,"v":9}] ['}


def test_the_files_of_a_tick_alone_are_read_again_and_those_of_one_source(spark, tmp_path):
    """Two sources: the rows of the one whose records do not run on come from the stream, each once."""
    for name, lines in (("x", [TWO, ONE]), ("y", [ONE, ONE])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text("\n".join(lines))
    sources = "".join(
        f"""CREATE TABLE {n} (id INT, s STRING)
            WITH ('connector' = 'file', 'path' = '{tmp_path / n}', 'format' = 'json');"""
        for n in "xy"
    )
    text = f"""{sources}
        CREATE TABLE o WITH ('connector' = 'file', 'path' = '{tmp_path}/out', 'format' = 'parquet');
        INSERT INTO o SELECT 'x' AS n, id FROM x UNION ALL SELECT 'y' AS n, id FROM y;"""
    until_caught_up(spark, text, tmp_path / "state")
    assert bag(parquet_rows(tmp_path / "out")) == {(b"x", 3): 1, (b"y", 3): 2}
    (tmp_path / "x" / "g").write_text(ONE)
    until_caught_up(spark, text, tmp_path / "state")
    assert bag(parquet_rows(tmp_path / "out")) == {(b"x", 3): 2, (b"y", 3): 2}


@pytest.mark.parametrize("wanted", ["json", "csv"])
def test_records_are_read_though_no_column_of_them_is_needed(spark, tmp_path, wanted):
    """Of a source all of whose branches are constants; broken ones are counted."""
    lines = {"json": '{"id":1}\n{"id":2}\nxx\n{"id":3}', "csv": "id\n1\n2\n3\nx"}[wanted]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "f").write_text(lines)
    text = f"""CREATE TABLE l (id INT)
            WITH ('connector' = 'file', 'path' = '{tmp_path}/in', 'format' = '{wanted}');
        CREATE TABLE o WITH ('connector' = 'file', 'path' = '{tmp_path}/out', 'format' = 'parquet');
        INSERT INTO o SELECT 'a' AS one FROM l UNION ALL SELECT 'b' FROM l;"""
    run = until_caught_up(spark, text, tmp_path / "state")
    assert bag(parquet_rows(tmp_path / "out")) == {(b"a",): 3, (b"b",): 3}
    assert account(run)["broken"] == 2, "one in each of the two branches"


def test_a_file_that_ends_too_early_is_named(spark, tmp_path):
    text = job(tmp_path, "id INT", "SELECT id FROM l")
    whole = gzip.compress(b'{"id":1}\n' * 200 + b'{"id":2}{"id":3}\n', mtime=0)
    (tmp_path / "in" / "a.gz").write_bytes(whole[:-12])
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, text, tmp_path / "state")
    assert caught.value.code == "file-unreadable"
    assert f"{tmp_path}/in/a.gz cannot be read: Unexpected end" in str(caught.value)
    assert "nothing of this tick was written" in str(caught.value)


@pytest.mark.parametrize("options", ["", ", 'multiLine' = 'true'"])
def test_a_table_whose_record_runs_on_is_not_read(spark, tmp_path, options):
    text = job(
        tmp_path,
        "id INT, t BIGINT, WATERMARK FOR t AS t",
        "SELECT l.id, r.s FROM l LEFT JOIN r FOR SYSTEM_TIME AS OF PROCTIME() AS r ON l.id = r.id",
    )
    (tmp_path / "in" / "f").write_text('{"id":1,"t":1}')
    (tmp_path / "r" / "part=1").mkdir(parents=True)
    (tmp_path / "r" / "part=1" / "f").write_text(TWO)
    table = f"""CREATE TABLE r (id INT, s STRING) WITH
        ('connector' = 'file', 'path' = '{tmp_path}/r', 'format' = 'json'{options}); """
    text = text.replace("INSERT INTO", table + "INSERT INTO")
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, text, tmp_path / "state")
    assert caught.value.code == "table-unreadable"
    assert TWO in str(caught.value)
    (tmp_path / "r" / "part=1" / "f").write_text('{"id":1,"s":"a"}')
    until_caught_up(spark, text, tmp_path / "state")
    assert bag(parquet_rows(tmp_path / "out")) == {(1, b"a"): 1}


BECOMES = [
    (b'"d":1e400', (math.inf, "=")),
    (b'"d":-1e400', (-math.inf, "=")),
    (b'"d":1e-400', (0.0, "=")),
    (b'"d":"Infinity"', (math.inf, "=")),
    (b'"d":12345678901234567890.5', (12345678901234567890.5, "=")),
    (b'"p":1.005', (Decimal("1.01"), "=")),
    (b'"p":-1.005', (Decimal("-1.01"), "=")),
    (b'"p":1e2', (Decimal("100.00"), "=")),
    (b'"p":12345678.5', ("broken", "=")),
    (b'"i":1.0', ("broken", "=")),
    (b'"i":1e2', ("broken", "=")),
    (b'"i":2147483648', ("broken", "=")),
    (b'"s":5.50', ("5.50", "5.5")),
    (b'"s":1e400', ("1e400", '"Infinity"')),
    (b'"s":0.12345678901234567890', ("0.12345678901234567890", "0.12345678901234568")),
    (b'"s":12345678901234567890', ("12345678901234567890", "=")),
    (b'"s":{"a": 1.50}', ('{"a": 1.50}', '{"a":1.5}')),
    (b'"s":"\\ud800x"', ("?x", "=")),
    (b'"s":"\xed\xa0\x80\xed\xa0\x80"', ("broken", "=")),
    (b'"s":"\xf5\x80\x80\x80"', ("??", "broken")),
    (b'"s":"\xc0\x80"', ("\0", "broken")),
    (b'"s":"\xff"', ("broken", "=")),
]


def test_what_numbers_and_texts_become_is_what_the_page_says(spark, tmp_path):
    """In files and in records of Kafka; see docs/internals/tick.md."""
    values = [b"{" + written + b"}" for written, _ in BECOMES]
    (tmp_path / "f").write_bytes(b"\n".join(values))
    columns = "d DOUBLE, p DECIMAL(9,2), i INT, s STRING"
    by_source = {}
    options_of = {"file": f"'path' = '{tmp_path}'", "kafka": "'topic' = 't', 'bootstrap.servers' = 'x'"}
    for name, options in options_of.items():
        table = f"CREATE TABLE c ({columns}) WITH ('connector' = '{name}', 'format' = 'json', {options});"
        job = f"{table} SELECT * FROM c"
        (by_source[name],) = plan_job(parse_job(job)).sources
    read = {
        "file": frames.read_records(spark.read, by_source["file"], "json", str(tmp_path)),
        "kafka": kafka._parse_by_format(
            spark.createDataFrame([(None, value) for value in values], "key BINARY, value BINARY"),
            by_source["kafka"],
            F.lit("0"),
        ),
    }
    became = {
        name: [
            "broken" if row[BROKEN] is not None else next((v for v in row[:4] if v is not None), None)
            for row in frame.select("d", "p", "i", "s", BROKEN).coalesce(1).collect()
        ]
        for name, frame in read.items()
    }
    expected = [(file, file if record == "=" else record) for _, (file, record) in BECOMES]
    assert list(zip(became["file"], became["kafka"], strict=True)) == expected


def test_an_array_breaks_as_a_whole(spark, tmp_path):
    """All that Spark tells; see docs/internals/tick.md."""
    bad = {
        '[{"a":1,"b":"x"},{"a":"no","b":"y"},{"b":"z"}]': [(1, "x"), (None, "y"), (None, "z")],
        '[{"a":4},5,{"a":6}]': [(None, None)],
        '[{"a":7},{"a":,"b":"y"},{"a":8}]': [(None, None)],
    }
    (tmp_path / "f").write_text("\n".join([*bad, '[{"a":9},{"b":"w"}]']))
    schema = f"a INT, b STRING, {BROKEN} STRING"
    read = spark.read.schema(schema).option("columnNameOfCorruptRecord", BROKEN).json(str(tmp_path))
    expected = [(*row, text) for text, rows in bad.items() for row in rows] + [
        (9, None, None),
        (None, "w", None),
    ]
    assert list(map(tuple, read.collect())) == expected
