"""Changing tables that Spark has read, with DECIMALs as keys, in a zone whose clocks go forward, and several
files in a tick: what the job put out is the answer, and what was lost of it is seen."""

from __future__ import annotations

import json
import os
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
"""  # noqa: E501
FILES = [  # the first two are of one tick, and count by their times of change
    ("customers/2.json", '{"id": 1.5, "since": "2026-03-29 00:00:00", "op": "I"}\n{"id": 2, "op": "I"}\n'),
    ("customers/1.json", '{"id": 1.50, "since": "2026-03-29 01:30:00", "op": "I"}\n'),
    ("customers/3.json", '{"id": 2.00, "op": "D"}\n'),
    (
        "orders/1.json",  # from 03:30 on there it is an hour after 01:30
        "".join(f'{{"customer": 1.5, "at": "2026-03-29 03:{m}:00", "d": 1}}\n' for m in (29, 30, 45))
        + '{"customer": 1.5001, "at": "2026-03-29 04:00:00", "d": 1}\n',
    ),
]


def said(capsys: Any) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    status = main(["diff", "job.sql", "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_what_a_job_has_put_out(spark: Any, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.sql").write_text(TEXT)
    for at, (name, text) in enumerate(FILES):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
        os.utime(name, (1_700_000_000 + at,) * 2)
    assert main(["run", "job.sql", "--json", "--until-caught-up"]) == 0
    status, line = said(capsys)
    assert (status, line["equal"], line["answered"], line["engine"]) == (0, True, 2, "duckdb"), line
    (part,) = (path for path in Path("out").rglob("*.json") if path.read_text())
    rows = part.read_text().splitlines()
    part.write_text("".join(f"{row}\n" for row in rows[1:]))
    status, line = said(capsys)
    assert (status, [row["side"] for row in line["rows"]]) == (1, ["missing"])
    assert line["rows"][0]["row"][:2] == ["1.50", "2026-03-29T00:30:00"]
