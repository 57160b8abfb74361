"""Joins over files whose records say what becomes of rows: inserts, deletes, diffs, and what says nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.engine.spark.running import until_caught_up
from watersmeet.errors import EngineError
from watersmeet.observe.row_accounting import InputAccount

pytestmark = pytest.mark.spark

JOB = """
SET output_mode = changelog; SET broken_output = broken;
CREATE TABLE c (ck BIGINT, seg STRING, op STRING)
    WITH ('connector' = 'file', 'path' = '{folder}/c', 'format' = 'json', 'op.column' = 'op');
CREATE TABLE o (ok BIGINT, ck BIGINT, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/o', 'format' = 'csv', 'diff.column' = 'd');
CREATE TABLE l (op SMALLINT, ok BIGINT, price DECIMAL(10,2))
    WITH ('connector' = 'file', 'path' = '{folder}/l', 'format' = 'json',
    'op.column' = 'op', 'op.insert' = '1, 11', 'op.delete' = '2');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'json');
CREATE TABLE broken WITH ('connector' = 'file', 'path' = '{folder}/broken', 'format' = 'json');
INSERT INTO out SELECT c.ck, o.ok, l.price FROM c JOIN o ON c.ck = o.ck LEFT JOIN l ON l.ok = o.ok;
"""

TICKS: list[dict[str, list[Any]]] = [
    {
        "c": [{"ck": 1, "seg": "x", "op": "c"}, {"ck": 2, "seg": "y", "op": "c"}],
        "o": ["100,1,1", "101,2,2"],
        "l": [{"ok": 100, "price": "10.50", "op": 1}],
    },
    {
        "c": [{"ck": 1, "seg": "x", "op": "d"}, {"ck": 1, "seg": "z", "op": "c"}, {"ck": 3, "op": "?"}],
        "o": ["101,2,-1", "7,7,-1", "8,8,"],
        "l": [{"ok": 101, "price": "3", "op": 11}, {"ok": 100, "price": "10.5", "op": 2}, {"ok": 5}],
    },
]
SUMS = [
    {(1, 100, "10.50"): 1, (2, 101, None): 2},
    {(1, 100, None): 1, (2, 101, "3.00"): 1},
]


def sums(folder: Path) -> dict[tuple[Any, ...], int]:
    """The rows of the sink, with the sums of their diffs."""
    total: Counter[tuple[Any, ...]] = Counter()
    seen = set()
    for file in folder.glob("out/**/*.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line, parse_float=str)
            values = row.get("ck"), row.get("ok"), row.get("price")
            assert row["_diff"] != 0
            assert (row["_tick"], values) not in seen, "summed per row and tick"
            seen.add((row["_tick"], values))
            total[values] += row["_diff"]
    return {row: diff for row, diff in total.items() if diff}


def test_sums_of_changes_across_restarts(spark, tmp_path):
    for name in ("c", "o", "l"):
        (tmp_path / name).mkdir()
    for number, (tick, wanted) in enumerate(zip(TICKS, SUMS, strict=True)):
        for name, rows in tick.items():
            lines = ["ok,ck,d", *rows] if name == "o" else [json.dumps(row) for row in rows]
            (tmp_path / name / f"{number}.{'csv' if name == 'o' else 'json'}").write_text(
                "\n".join(lines) + "\n"
            )
        running = until_caught_up(spark, JOB.format(folder=tmp_path), tmp_path / "checkpoint")
        assert sums(tmp_path) == wanted
    counts = running.ticks[-1].queries["out"].account
    told = {name: InputAccount.of(name, of, of["retained"]) for name, of in counts.items()}
    assert (told["o"].deleted, told["o"].missing_deletes, told["c"].deleted) == (2, 1, 2)
    broken = [file.read_text() for file in tmp_path.glob("broken/**/*.json")]
    assert sum('"c"' in text for text in broken) >= 1


HOSTILE = """
SET output_mode = changelog;
CREATE TABLE a (k BIGINT, what STRING, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/a', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE b (k BIGINT, d INT)
    WITH ('connector' = 'file', 'path' = '{folder}/b', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE out WITH ('connector' = 'file', 'path' = '{folder}/out', 'format' = 'parquet');
INSERT INTO out SELECT CAST(a.what AS DOUBLE) AS r, array(CAST(a.what AS DOUBLE)) AS list,
    named_struct('f', CAST(a.what AS FLOAT)) AS struct,
    CASE WHEN a.k % 2 = 0 THEN map('x', 1, 'y', 2) ELSE map('y', 2, 'x', 1) END AS map
    FROM a JOIN b ON a.k = b.k;
"""


def write_rows(folder: Path, table: str, tick: int, rows: list[dict[str, Any]]) -> None:
    (folder / table).mkdir(exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / table / f"{tick}.json").write_text(text)


def test_rows_of_all_tasks_are_summed_by_what_sql_takes_for_equal(spark, tmp_path):
    """100 keys in all tasks; what differs between them is no difference."""
    words = {0: "0.0", 1: "-0.0", 2: "NaN", 3: "NaN", 4: None}
    rows = [{"k": k, "what": words[k % 5], "d": 1} for k in range(100)]
    write_rows(tmp_path, "a", 1, rows)
    write_rows(tmp_path, "b", 1, [{"k": k, "d": 1} for k in range(100)])
    until_caught_up(spark, HOSTILE.format(folder=tmp_path), tmp_path / "checkpoint")
    # Those of one zero go, and as many of the other come.
    write_rows(tmp_path, "a", 2, [{**row, "d": -1} for row in rows if row["what"] == "0.0"])
    more = [{"k": k, "what": "-0.0", "d": 1} for k in range(100) if k % 5 == 0]
    write_rows(tmp_path, "a", 3, [*more, {"k": 4, "what": None, "d": -1}])
    until_caught_up(spark, HOSTILE.format(folder=tmp_path), tmp_path / "checkpoint")
    found = sorted(
        (
            str(row["r"]),
            str(row["list"]),
            str(row["struct"]),
            str(sorted(row["map"])),
            row["_diff"],
            row["_tick"],
        )
        for file in (tmp_path / "out").glob("**/*.parquet")
        for row in pq.read_table(file).to_pylist()
    )
    entries = "[('x', 1), ('y', 2)]"
    assert found == [
        ("0.0", "[0.0]", "{'f': 0.0}", entries, 40, 1),
        ("None", "[None]", "{'f': None}", entries, -1, 2),
        ("None", "[None]", "{'f': None}", entries, 20, 1),
        ("nan", "[nan]", "{'f': nan}", entries, 40, 1),
    ]


def test_values_that_nothing_tells_to_be_equal_are_refused_before_the_first_tick(spark, tmp_path):
    for table in ("a", "b"):
        write_rows(tmp_path, table, 1, [{"k": 1, "d": 1}])
    text = HOSTILE.format(folder=tmp_path).replace(
        "CAST(a.what AS DOUBLE) AS r", "array(parse_json(a.what)) AS r"
    )
    with pytest.raises(EngineError, match='column "r" is ARRAY<VARIANT>, whose values cannot be compared'):
        until_caught_up(spark, text, tmp_path / "checkpoint")


BOTH = """
CREATE TABLE l (t BIGINT, k STRING, WATERMARK FOR t AS t - 5)
    WITH ('connector' = 'file', 'path' = '{folder}/l', 'format' = 'json');
CREATE TABLE r (t BIGINT, k STRING, WATERMARK FOR t AS t - 5)
    WITH ('connector' = 'file', 'path' = '{folder}/r', 'format' = 'json');
CREATE SINK final WITH ('connector' = 'file', 'path' = '{folder}/final', 'format' = 'json');
CREATE SINK eager WITH ('connector' = 'file', 'path' = '{folder}/eager', 'format' = 'json');
INSERT INTO final SELECT l.k, r.t FROM l LEFT JOIN r ON l.k = r.k AND l.t = r.t EMIT FINAL;
INSERT INTO eager SELECT l.k, r.t FROM l LEFT JOIN r ON l.k = r.k AND l.t = r.t EMIT CHANGES;
"""


def test_a_job_with_final_rows_and_changes_of_the_same_streams(spark, tmp_path):
    ticks = [
        {"l": [{"t": 1, "k": "a"}, {"t": 1, "k": "b"}], "r": []},
        {"l": [{"t": 99, "k": "c"}], "r": [{"t": 1, "k": "a"}, {"t": 99, "k": "z"}]},
    ]
    for number, given in enumerate(ticks):
        for table, rows in given.items():
            write_rows(tmp_path, table, number, rows)
        until_caught_up(spark, BOTH.format(folder=tmp_path), tmp_path / "checkpoint")

    def written(sink: str) -> list[str]:
        files = (tmp_path / sink).glob("**/*.json")
        return sorted(line for file in files for line in file.read_text().splitlines())

    assert written("final") == ['{"k":"a","t":1}', '{"k":"b","t":null}']
    assert written("eager") == [
        '{"k":"a","t":1,"_diff":1,"_tick":2}',
        '{"k":"a","t":null,"_diff":-1,"_tick":2}',
        '{"k":"a","t":null,"_diff":1,"_tick":1}',
        '{"k":"b","t":null,"_diff":1,"_tick":1}',
        '{"k":"c","t":null,"_diff":1,"_tick":2}',
    ]
