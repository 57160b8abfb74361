"""Changing tables that Spark has read, with DECIMALs as keys, in a zone whose clocks go forward, and several
files in a tick: what the job put out is the answer, and what was lost of it is seen."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from watersmeet.cli.main import main

pytestmark = pytest.mark.spark

TEXT = """
SET time_zone = 'Europe/Berlin';
CREATE TABLE customers (id DECIMAL(9,2) PRIMARY KEY NOT ENFORCED, since TIMESTAMP, op STRING)
    WITH ('connector' = 'file', 'path' = 'customers', 'format' = 'json', 'op.column' = 'op', 'maxFilesPerTrigger' = '2');
CREATE TABLE orders (customer DECIMAL(12,4), at TIMESTAMP, d INT)
    WITH ('connector' = 'file', 'path' = 'orders', 'format' = 'json', 'diff.column' = 'd');
CREATE SINK sales WITH ('connector' = 'file', 'path' = 'out', 'format' = 'json');
INSERT INTO sales SELECT c.id, c.since, o.at, o.customer * 2 AS twice FROM orders o
    JOIN customers c ON c.id = o.customer AND o.at >= c.since + INTERVAL '1' HOUR EMIT CHANGES;
CREATE TABLE a (at TIMESTAMP, id DECIMAL(9,2), WATERMARK FOR at AS at - INTERVAL '1' MINUTE)
    WITH ('connector' = 'file', 'path' = 'a', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE TABLE b (at TIMESTAMP, id DECIMAL(9,2), WATERMARK FOR at AS at - INTERVAL '1' MINUTE)
    WITH ('connector' = 'file', 'path' = 'b', 'format' = 'json', 'maxFilesPerTrigger' = '1');
CREATE SINK met WITH ('connector' = 'file', 'path' = 'met', 'format' = 'parquet');
INSERT INTO met SELECT a.id, a.at, c.since FROM a JOIN b ON b.id = a.id AND b.at BETWEEN a.at AND a.at + INTERVAL '1' HOUR
    JOIN customers c ON c.id = a.id EMIT CHANGES;
"""  # noqa: E501
FILES = [  # the first two are of one tick, and count by their times of change
    ("customers/2.json", '{"id": 1.5, "since": "2026-03-29 00:00:00", "op": "I"}\n{"id": 2, "op": "I"}\n'),
    ("customers/1.json", '{"id": 1.50, "since": "2026-03-29 01:30:00", "op": "I"}\n'),
    ("customers/4.json", '{"id": 7, "op": "I"}\n'),
    ("customers/5.json", '{"id": 8, "op": "I"}\n'),
    # of the third tick, when rows of id 2 have been let go
    ("customers/3.json", '{"id": 2.00, "op": "D"}\n'),
    (
        "orders/1.json",  # from 03:30 on there it is an hour after 01:30
        "".join(f'{{"customer": 1.5, "at": "2026-03-29 03:{m}:00", "d": 1}}\n' for m in (29, 30, 45))
        + '{"customer": 1.5001, "at": "2026-03-29 04:00:00", "d": 1}\n',
    ),
    ("a/1.json", '{"id": 2, "at": "2026-03-29 01:55:00"}\n'),
    ("a/2.json", '{"id": 1.5, "at": "2026-03-29 08:00:00"}\n'),
    ("b/1.json", '{"id": 2, "at": "2026-03-29 03:05:00"}\n{"id": 2, "at": "2026-03-29 03:55:00"}\n'),
    ("b/2.json", '{"id": 1.5, "at": "2026-03-29 08:30:00"}\n'),
]


def run_diff(capsys: Any) -> tuple[int, list[dict[str, Any]]]:
    """What is said of both queries."""
    capsys.readouterr()
    status = main(["diff", "job.sql", "--json"])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_diff_reports_rows_lost_from_an_equal_output(
    spark: Any, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.sql").write_text(TEXT)
    for at, (name, text) in enumerate(FILES):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
        os.utime(name, (1_700_000_000 + at,) * 2)
    assert main(["run", "job.sql", "--json", "--until-caught-up"]) == 0
    status, (line, met) = run_diff(capsys)
    assert (status, line["equal"], line["batch_rows"], line["engine"]) == (0, True, 2, "duckdb"), line
    assert (met["equal"], met["batch_rows"], met["engine"]) == (True, 3, "ticks"), met
    (part,) = (path for path in Path("out").rglob("*.json") if path.read_text())
    rows = part.read_text().splitlines()
    part.write_text("".join(f"{row}\n" for row in rows[1:]))
    shutil.rmtree(max(path.parent for path in Path("met").rglob("*.parquet")))
    status, (line, met) = run_diff(capsys)
    assert (status, met["equal"]) == (1, False)
    assert (status, [row["side"] for row in line["rows"]]) == (1, ["missing"])
    assert line["rows"][0]["row"][:2] == ["1.50", "2026-03-29T00:30:00"]


BROKEN = """
CREATE TABLE c (id INT, v VARCHAR(3), unused VARCHAR(3), at TIMESTAMP, WATERMARK FOR at AS at)
    WITH ('connector' = 'file', 'path' = 'c', 'format' = 'csv', 'header' = 'false');
CREATE TABLE j (id INT, n TINYINT, v VARCHAR(3), at TIMESTAMP, WATERMARK FOR at AS at)
    WITH ('connector' = 'file', 'path' = 'j', 'format' = 'json');
CREATE TABLE p (id INT, v VARCHAR(3), unused VARCHAR(3), at TIMESTAMP, WATERMARK FOR at AS at)
    WITH ('connector' = 'file', 'path' = 'p', 'format' = 'parquet');
CREATE TABLE q (id INT, n SMALLINT, l ARRAY<VARCHAR(3)>, at TIMESTAMP, WATERMARK FOR at AS at)
    WITH ('connector' = 'file', 'path' = 'q', 'format' = 'parquet');
CREATE SINK met WITH ('connector' = 'file', 'path' = 'met', 'format' = 'json');
INSERT INTO met SELECT id, v AS a, 0 AS n, at FROM c UNION ALL SELECT id, v, n, at FROM j
    UNION ALL SELECT id, concat_ws(',', l), n, at FROM q;
CREATE SINK all_p WITH ('connector' = 'file', 'path' = 'all_p', 'format' = 'json');
INSERT INTO all_p SELECT id, v, at FROM p;
"""
AT, AHEAD = datetime(2026, 3, 1, 10, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)


def test_records_that_the_job_counts_as_broken_are_in_no_answer(
    spark: Any, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    """And neither are rows too far ahead of the clock. A text that is too long counts where the job looks at
    its column."""
    monkeypatch.chdir(tmp_path)
    for name in "cjpq":
        Path(name).mkdir()
    Path("job.sql").write_text(BROKEN)
    rows = [(1, "abc", AT), (2, "abcd", AT), (3, "xyz", AHEAD), (4, "x", AT)]
    lines = [f"{n},{text},longer,{at:%Y-%m-%d %H:%M:%S}" for n, text, at in rows]
    Path("c/a").write_text("\n".join(lines) + "\n")
    numbers = [(1, 1, "a"), (4, 200, "a"), (4, 2, "long")]
    of_json = ({"id": n, "n": own, "v": text, "at": f"{AT:%Y-%m-%d %H:%M:%S}"} for n, own, text in numbers)
    Path("j/a").write_text("".join(f"{json.dumps(row)}\n" for row in of_json))
    of_p = [{"id": n, "v": text, "unused": "longer", "at": at} for n, text, at in rows]
    of_q = [{"id": 1, "n": 7, "l": ["a"]}, {"id": 4, "n": 70_000, "l": []}, {"id": 4, "n": 1, "l": ["long"]}]
    schema = pa.schema([("id", pa.int32()), ("n", pa.int32()), ("l", pa.list_(pa.string()))])
    times = pa.array([AT] * 3, pa.timestamp("us", "UTC"))
    parquet.write_table(pa.Table.from_pylist(of_q, schema).append_column("at", times), "q/a.parquet")
    schema = pa.schema([("id", pa.int32()), ("v", pa.string()), ("unused", pa.string())])
    times = pa.array([row["at"] for row in of_p], pa.timestamp("us", "UTC"))
    parquet.write_table(pa.Table.from_pylist(of_p, schema).append_column("at", times), "p/a.parquet")
    assert main(["run", "job.sql", "--json", "--until-caught-up"]) == 0
    status, (met, all_p) = run_diff(capsys)
    assert (met["engine"], met["equal"], met["batch_rows"]) == ("spark", True, 4), met
    assert (all_p["engine"], all_p["equal"], all_p["batch_rows"]) == ("duckdb", True, 2), all_p
    assert status == 0
