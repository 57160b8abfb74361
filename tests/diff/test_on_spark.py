"""Changing tables that Spark has read, with DECIMALs as keys, in a zone whose clocks go forward, and several
files in a tick: what the job put out is the answer, and what was lost of it is seen."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

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


def said(capsys: Any) -> tuple[int, list[dict[str, Any]]]:
    """What is said of both queries."""
    capsys.readouterr()
    status = main(["diff", "job.sql", "--json"])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_what_a_job_has_put_out(spark: Any, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.sql").write_text(TEXT)
    for at, (name, text) in enumerate(FILES):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
        os.utime(name, (1_700_000_000 + at,) * 2)
    assert main(["run", "job.sql", "--json", "--until-caught-up"]) == 0
    status, (line, met) = said(capsys)
    assert (status, line["equal"], line["answered"], line["engine"]) == (0, True, 2, "duckdb"), line
    assert (met["equal"], met["answered"], met["engine"]) == (True, 3, "ticks"), met
    (part,) = (path for path in Path("out").rglob("*.json") if path.read_text())
    rows = part.read_text().splitlines()
    part.write_text("".join(f"{row}\n" for row in rows[1:]))
    shutil.rmtree(max(path.parent for path in Path("met").rglob("*.parquet")))
    status, (line, met) = said(capsys)
    assert (status, met["equal"]) == (1, False)
    assert (status, [row["side"] for row in line["rows"]]) == (1, ["missing"])
    assert line["rows"][0]["row"][:2] == ["1.50", "2026-03-29T00:30:00"]
