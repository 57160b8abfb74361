"""Options of CSV and JSON: headers with quotes and blanks, quotes written twice, and patterns of times. What
is read without Spark is what Spark reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up
from tests.engine.spark.test_first_rows_on_spark import compare_first_rows
from tests.support.columns import column
from watersmeet.errors import EngineError
from watersmeet.parser.statements import parse_job
from watersmeet.runtime.files.first_rows import read_first_rows
from watersmeet.runtime.spark.job.column_inference import ColumnInference
from watersmeet.spec.model import Source

pytestmark = pytest.mark.spark

PATTERNS = [
    "dd/MM/yyyy HH:mm:ss",
    "d/M/yyyy H:m:s",
    "yyyyMMdd HHmmss",
    "yyyy-MM-dd'T'HH:mm:ss.SSS",
    "yyyy-MM-dd HH:mm:ss.SSSSSS",
    "dd.MM.yyyy",
    "MM/yyyy",
]
TIMES = [
    "01/03/2026 00:00:13", "1/3/2026 0:0:13", "29/02/2023 10:00:00", "31/12/9999 23:59:59", "20260301 101112",
    "2026-03-01T10:11:12.123", "2026-03-01T10:11:12.1", "2026-03-01t10:11:12.123",
    "2026-03-01 10:11:12.123456", "2026-03-01 10:11:12", "2026-03-01T10:11:12Z", "01.03.2026", "1.3.2026",
    "32.01.2026", "03/2026", "13/2026", "01/03/2026 24:00:00", "01/03/2026 00:00:60",
    " 01/03/2026 00:00:13", "01/03/0000 00:00:13",
    "01/03/26 00:00:13", "01/03/12026 00:00:13", "noon", "29/03/2026 02:30:00", "25/10/2026 02:30:00",
]  # fmt: skip


def source_of(folder: Path, wanted: str, **options: str) -> Source:
    columns = (column("t", "TIMESTAMP"), column("d", "DATE"), column("z", "TIMESTAMP_NTZ"))
    return Source("a", columns, "file", {"path": str(folder), "format": wanted, **options})


@pytest.mark.parametrize("wanted", ["csv", "json"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_times_by_a_pattern_are_those_of_spark(spark: Any, tmp_path: Path, wanted: str, pattern: str) -> None:
    rows = [(number, name, text) for number, (name, text) in enumerate((n, t) for n in "tdz" for t in TIMES)]
    if wanted == "csv":
        lines = [
            "id,t,d,z",
            *(f"{n}," + ",".join(text * (name == own) for own in "tdz") for n, name, text in rows),
        ]
    else:
        lines = [json.dumps({"id": number, name: text}) for number, name, text in rows]
    (tmp_path / "1.txt").write_text("\n".join(lines) + "\n")
    source = source_of(
        tmp_path, wanted, timestampFormat=pattern, dateFormat=pattern, timestampNTZFormat=pattern
    )
    taken = compare_first_rows(spark, source, 0.8)  # Spark has years that Python has not
    assert any(row["t"] is not None for row in taken.rows)
    assert any(row["d"] is not None for row in taken.rows)


def test_a_pattern_that_only_spark_knows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("t,d,z\n1 March 2026,,\n")
    with pytest.raises(EngineError, match="only Spark supports"):
        read_first_rows(source_of(tmp_path, "csv", timestampFormat="d MMMM yyyy"), 10)


QUOTED = """"id ", s ,"n""o",other
1,plain,5,x
2,"with, comma",6,x
3,"a ""quoted"" word",7,x
4,"",8,x
5,"back\\slash",9,x
6,back\\slash,10,x
7,"ends with ""\",11,x
8,two ""doubled"" bare,12,x
9,"ope"n,13,x
"""


def test_quotes_that_are_written_twice_are_those_of_spark(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text(QUOTED.replace('"id "', '"id"'))
    columns = (column("s", "STRING"), column('n"o', "INT"))
    options = {"path": str(tmp_path), "format": "csv", "escape": '"'}
    taken = compare_first_rows(spark, Source("a", columns, "file", options), 0.6)
    texts = {row["id"]: row["s"] for row in taken.rows}
    assert texts[3] == 'a "quoted" word'
    assert texts[5] == texts[6] == "back\\slash"


@pytest.mark.parametrize("reader", ["auto", "spark"])
def test_a_header_with_quotes_and_blanks_names_its_columns(spark: Any, tmp_path: Path, reader: str) -> None:
    """In the first file and in later ones; the blanks are no part of the names."""
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    (folder / "1.csv").write_text(QUOTED)
    job = f"""CREATE TABLE a (s STRING, `n"o` INT, id BIGINT)
            WITH ('connector' = 'file', 'path' = '{folder}', 'format' = 'csv', 'escape' = '"');
        CREATE SINK out WITH ('connector' = 'file', 'path' = '{out}', 'format' = 'json');
        SET file_reader = {reader};
        INSERT INTO out SELECT id, s, `n"o` AS n FROM a"""
    until_caught_up(spark, job, tmp_path / "state")
    (folder / "2.csv").write_text('"id ", s ,"n""o",other\n10,"late ""one""",14,x\n')
    until_caught_up(spark, job, tmp_path / "state")
    rows = [json.loads(line) for path in out.rglob("*.json") for line in path.read_text().splitlines()]
    assert {(row["id"], row["n"]) for row in rows} == {(n, n + 4) for n in range(1, 11)}
    assert {row["id"]: row.get("s") for row in rows}[3] == 'a "quoted" word'
    assert {row["id"]: row.get("s") for row in rows}[10] == 'late "one"'


def test_blanks_and_patterns_in_files_whose_columns_are_inferred(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text(' id , at ,"na""me",day,other\n1,01/03/2026 00:00:13,x,1.3.2026,noon\n')
    text = f"""CREATE TABLE a WITH ('connector' = 'file', 'path' = '{tmp_path}', 'format' = 'csv',
        'escape' = '"', 'timestampFormat' = 'dd/MM/yyyy HH:mm:ss', 'dateFormat' = 'd.M.yyyy');
        SELECT * FROM a"""
    (given,) = parse_job(text, infer=ColumnInference()).inserts[0].query.inputs
    assert [(c.name, str(c.type)) for c in given.columns] == [
        ("id", "BIGINT"), ("at", "TIMESTAMP"), ('na"me', "STRING"), ("day", "DATE"), ("other", "STRING"),
    ]  # fmt: skip
