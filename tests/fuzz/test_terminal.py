"""What hostile values may do to whoever looks at a terminal: nothing. Rows on the console, and messages of
jobs that fail on a value."""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fuzz.values import INVALID, Drawer
from watersmeet.cli.main import main

pytestmark = pytest.mark.spark

STREAM = """
CREATE TABLE l (id BIGINT, t BIGINT, s STRING, at TIMESTAMP, WATERMARK FOR t AS t - 5)
  WITH ('connector' = 'file', 'path' = '{folder}/in', 'format' = 'parquet');
CREATE TABLE r (id BIGINT, t BIGINT, s STRING, at TIMESTAMP, WATERMARK FOR t AS t - 5)
  WITH ('connector' = 'file', 'path' = '{folder}/in', 'format' = 'parquet');
CREATE TABLE shown WITH ('connector' = 'console', 'rows' = '10000');
"""
JOIN = "FROM l JOIN r ON l.id = r.id AND l.t BETWEEN r.t AND r.t"


@pytest.fixture
def texts(tmp_path: Path, seed: int, canary: Path) -> list[bytes]:
    """All hostile texts, and bytes that are none, as a stream of Parquet."""
    drawer = Drawer(random.Random(seed), str(canary))
    found = [text.encode() for text in drawer.texts] + INVALID
    stored = pa.array(found, pa.binary())
    strings = pa.StringArray.from_buffers(len(found), stored.buffers()[1], stored.buffers()[2])
    (tmp_path / "in").mkdir()
    ends = pa.array([(-(2**63), 2**63 - 1)[n % 2] for n in range(len(found))]).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"id": range(len(found)), "t": [1] * len(found), "s": strings, "at": ends})
    pq.write_table(table, tmp_path / "in" / "1.parquet", use_dictionary=False)
    return found


def run(tmp_path: Path, text: str, *more: str) -> int:
    job = tmp_path / "job.sql"
    job.write_text(STREAM.replace("{folder}", str(tmp_path)) + text)
    checkpoint = tmp_path / f"state{len(list(tmp_path.iterdir()))}"
    return main(["run", str(job), "--checkpoint", str(checkpoint), "--until-caught-up", *more])


def is_of_the_start(warned: str) -> bool:
    """Whether these are the two lines of a run's start, and no other."""
    return warned.startswith("Starting Spark") and warned.count("\n") == 2


def unsafe(said: str) -> set[str]:
    """Characters that a terminal takes for commands, or that turn texts around."""
    return {
        each for each in said if each != "\n" and unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp", "Cs")
    }


def test_rows_on_the_console(spark, tmp_path, texts, capfd):
    assert (
        run(tmp_path, f'INSERT INTO shown SELECT l.id, l.s, r.s AS "a\x1b[31m`b" {JOIN};', "--no-live") == 0
    )
    said, warned = capfd.readouterr()
    assert not unsafe(said) | unsafe(warned)
    assert is_of_the_start(warned)
    assert run(tmp_path, f"INSERT INTO shown SELECT l.id, l.s, l.at {JOIN};", "--json") == 0
    said, warned = capfd.readouterr()
    assert is_of_the_start(warned)
    lines = [json.loads(line) for line in said.split("\n") if line]
    rows = [row for line in lines if "columns" in line for row in line["rows"]]
    assert {row[0]: row[1] for row in rows} == {
        n: text.decode(errors="replace") for n, text in enumerate(texts)
    }
    assert {row[2] for row in rows} == {"-290308-12-21T19:59:05.224192Z", "+294247-01-10T04:00:54.775807Z"}


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT CAST(l.s AS BIGINT) AS x {JOIN}",
        f"SELECT l.id {JOIN} AND CAST(l.s AS TIMESTAMP) = CAST(r.s AS TIMESTAMP)",
    ],
)
def test_a_value_that_fails_the_job(spark, tmp_path, texts, query, capfd):
    """One message, no stack, nothing that steers a terminal."""
    assert run(tmp_path, f"INSERT INTO shown {query};", "--no-live") == 2
    said = capfd.readouterr().err
    assert said.count("Error[") == 1
    assert "Traceback" not in said
    assert "at org.apache" not in said
    assert not unsafe(said)
