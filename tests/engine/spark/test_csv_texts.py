"""CSV with a line's end within quotes, or in an encoding whose lines Spark does not find, is never cut."""

from __future__ import annotations

import csv
import io
import random

import pytest

from tests.engine.spark.running import until_caught_up
from tests.fuzz.rows import bag, parquet_rows
from tests.support.effort import at_effort
from watersmeet.errors import WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.spark.sources.files.text_files import TEXT, CsvTexts
from watersmeet.spec.options.values import Use, value_problems

pytestmark = pytest.mark.spark

JOB = """
CREATE TABLE l (k INT, v STRING)
    WITH ('connector' = 'file', 'path' = '{path}/in', 'format' = 'csv'{options});
CREATE TABLE o WITH ('connector' = 'file', 'path' = '{path}/out', 'format' = 'parquet');
INSERT INTO o SELECT k, v FROM l;
"""


def run(spark, path, content, options=""):
    (path / "in").mkdir(exist_ok=True)
    (path / "in" / "a.csv").write_bytes(content)
    until_caught_up(spark, JOB.format(path=path, options=options), path / "state")
    return bag(parquet_rows(path / "out"))


def texts_of(path, options):
    (source,) = plan_job(parse_job(JOB.format(path=path, options=options))).sources
    return CsvTexts.of(source)


def test_quoted_newline_is_rejected_until_multiline_is_set(spark, tmp_path):
    content = b'k,v\n1,"a\n2,b"\n3,c\n'
    with pytest.raises(WatersmeetError) as caught:
        run(spark, tmp_path, content)
    assert caught.value.code == "value-runs-on"
    assert f'{tmp_path}/in/a.csv has a line that ends inside a quoted value: 1,"a' in str(caught.value)
    assert "'multiLine' = 'true'" in str(caught.value)
    rows = run(spark, tmp_path, content, ", 'multiLine' = 'true'")
    assert rows == {(1, b"a\n2,b"): 1, (3, b"c"): 1}


def test_empty_quote_option_reads_quotes_as_characters(spark, tmp_path):
    assert run(spark, tmp_path, b'k,v\n1,"a\n2,5"\n', ", 'quote' = ''") == {(1, b'"a'): 1, (2, b'5"'): 1}


def test_a_table_with_such_a_line_is_not_read(spark, tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.csv").write_text('k,w\n1,"a\n2,b"\n')
    text = JOB.format(path=tmp_path, options="").replace(
        "SELECT k, v FROM l",
        "SELECT l.k, t.w FROM l JOIN t FOR SYSTEM_TIME AS OF PROCTIME() AS t ON l.k = t.k",
    )
    table = f"""CREATE TABLE t (k INT, w STRING)
        WITH ('connector' = 'file', 'path' = '{tmp_path}/t', 'format' = 'csv');"""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("k,v\n1,x\n")
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, text.replace("INSERT INTO", f"{table} INSERT INTO"), tmp_path / "state")
    assert "has a line that ends inside a quoted value" in str(caught.value)


LINES = [
    ('1,"a', True),
    ('"1,a', True),
    ('1,"', True),
    ('1,"a""', True),
    ('1,"a\\"', True),
    ('"x","a,b', True),
    ('1,"a"', False),
    ('1,"a\\\\"', False),
    ('1,"a"x', False),
    ('1,"a"b"', False),
    ('1,a"b', False),
    ('1, "a', False),
    ('1,""', False),
    ('1,"say ""a"""', False),
    ("1,5' 3\"", False),
    ("", False),
]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ("", LINES),
        (", 'sep' = '||', 'quote' = '~'", [(t.replace(",", "||").replace('"', "~"), e) for t, e in LINES]),
        (", 'escape' = '\"'", [(t, e) for t, e in LINES if "\\" not in t]),
        (", 'comment' = '#', 'ignoreLeadingWhiteSpace' = 'true'", [('#1,"a', False), ('1,  "a', True)]),
    ],
)
def test_lines_that_end_inside_quotes_are_listed(spark, tmp_path, options, lines):
    texts = texts_of(tmp_path, options)
    for number, (line, _) in enumerate(lines):
        (tmp_path / f"{number:02}").write_text(line + "\n")
    paths = [f"file:{tmp_path}/{number:02}" for number in range(len(lines))]
    told = {row[TEXT] for row in texts.list_misread_lines(spark, paths).select(TEXT).collect()}
    assert told == {line for line, is_open in lines if is_open}


def test_what_python_writes_on_one_line_is_read_and_what_it_writes_on_several_is_not(spark, tmp_path, seed):
    """Random values in RFC 4180, which Python's writer writes."""
    rng = random.Random(seed)
    texts = texts_of(tmp_path, ", 'escape' = '\"'")
    several = set()
    for number in range(at_effort(quick=200, full=2000)):
        record = ["".join(rng.choices('ab", \n', k=rng.randrange(6))) for _ in range(3)]
        written = io.StringIO()
        csv.writer(
            written, quoting=rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), lineterminator="\n"
        ).writerow(record)
        (tmp_path / f"{number}").write_text(written.getvalue())
        if any("\n" in value for value in record):
            several.add(str(number))
    lines = texts.list_misread_lines(spark, [f"file:{tmp_path}"])
    assert {row[0] for row in lines.select("_metadata.file_name").distinct().collect()} == several


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32"])
def test_an_encoding_whose_lines_spark_does_not_find_is_refused(spark, tmp_path, encoding):
    content = "k,v\n1,aä\n2,€\n".encode(encoding.lower())
    with pytest.raises(WatersmeetError) as caught:
        run(spark, tmp_path, content, f", 'encoding' = '{encoding}'")
    assert caught.value.code == "wrong-option"
    rows = {(1, "aä".encode()): 1, (2, "€".encode()): 1}
    said = ", 'multiLine' = 'true'" if encoding in ("UTF-16", "UTF-32") else ", 'lineSep' = '\n'"
    assert run(spark, tmp_path, content, f", 'encoding' = '{encoding}'{said}") == rows
    assert not value_problems({"encoding": encoding}, "csv", Use.WRITE)
