"""Columns with hostile names through every format, and tables of a database with hostile values and names."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engine.spark.running import until_caught_up
from tests.fuzz.rows import bag, csv_rows, difference, json_rows, parquet_rows
from tests.fuzz.values import Drawer

pytestmark = pytest.mark.spark

NAMES = [
    "a b", "a.b", 'a"b', "a`b", "\u00fcn\u00ef\U0001d54f", "_id", "_event_ts", "a'b", "a;b", "a\\b", "a/b",
    "${x}", "select", "*", "%s", "{0}", "l.id", "#slot", "--", "/*", "#order:t", "x=y", "(a)", "late:id",
    "value", "a,b", "\u202eab", "e\u0301",
]  # fmt: skip
"""Of columns."""


def quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def test_columns_of_hostile_names(spark, seed, tmp_path, canary):
    drawer = Drawer(random.Random(seed), str(canary))
    rows = [{name: f"{number} {drawer.text()}" for name in NAMES} for number in range(20)]
    for row in rows:
        row["a.b"] = "key"
    columns = ", ".join(f"{quote_name(name)} STRING" for name in NAMES)
    (tmp_path / "json").mkdir()
    (tmp_path / "parquet").mkdir()
    lines = "".join(json.dumps({"id": n, "t": 5, **row}) + "\n" for n, row in enumerate(rows))
    (tmp_path / "json" / "1.json").write_text(lines)
    table = {"id": range(20), "t": [5] * 20, **{name: [row[name] for row in rows] for name in NAMES}}
    pq.write_table(pa.table(table), tmp_path / "parquet" / "1.parquet")
    text = ""
    for wanted in ("json", "parquet"):
        for side in "lr":
            text += f"""CREATE TABLE {wanted}_{side}
              (id BIGINT, t BIGINT, {columns}, WATERMARK FOR t AS t - 5)
              WITH ('connector' = 'file', 'path' = '{tmp_path}/{wanted}', 'format' = '{wanted}');\n"""
    chosen = ", ".join(f"l.{quote_name(name)} AS {quote_name(name + ' out')}" for name in NAMES)
    on = "ON l.`a.b` = r.`a.b` AND l.id = r.id AND l.t = r.t AND l.`a``b` <> concat(r.`a b`, 'x')"
    for name, given, wanted in (
        ("o1", "json", "parquet"),
        ("o2", "parquet", "json"),
        ("o3", "parquet", "csv"),
    ):
        path = tmp_path / "out" / name
        text += f"""CREATE TABLE {name} WITH ('connector' = 'file', 'path' = '{path}', 'format' = '{wanted}');
          INSERT INTO {name} SELECT {chosen} FROM {given}_l l LEFT JOIN {given}_r r {on};\n"""
    until_caught_up(spark, text, tmp_path / "state", finish=True)
    want = bag(row.values() for row in rows)
    outputs = {f"{name} out": "STRING" for name in NAMES}
    assert not difference(bag(parquet_rows(tmp_path / "out" / "o1")), want)
    for file in (tmp_path / "out" / "o1").glob("*.parquet"):
        assert pq.read_schema(file).names == list(outputs)
    assert not difference(bag(json_rows(tmp_path / "out" / "o2", outputs)), want)
    assert not difference(bag(csv_rows(tmp_path / "out" / "o3", outputs)), want)


def literal(value: Any) -> str:
    """A value for PostgreSQL, whatever it holds."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'::bytea"
    return (
        f"convert_from('\\x{value.encode().hex()}'::bytea, 'UTF8')" if isinstance(value, str) else str(value)
    )


def test_a_table_of_hostile_values_in_a_database(spark, postgres, seed, tmp_path, canary):
    """Texts as they are but for NUL, which PostgreSQL does not hold; numbers and times at their ends."""
    drawer = Drawer(random.Random(seed), str(canary))
    texts = [text for text in dict.fromkeys(drawer.texts) if "\x00" not in text]
    rows = [
        (text, drawer.value("BINARY"), drawer.value("BIGINT"), drawer.value("DECIMAL(38,18)"))
        for text in texts
    ]
    name = "hostile \"t`able'; --"
    known = '"' + name.replace('"', '""') + '"'
    postgres.run(
        f'CREATE TABLE {known} ("k e""y;" text, b bytea, n bigint, d numeric(38,18), x float8, at timestamp)'
    )
    ends = [("'NaN'", "'0001-01-01'"), ("'-Infinity'", "'9999-12-31 23:59:59.999999'"), ("'5e-324'", "NULL")]
    for first in range(0, len(rows), 40):
        values = ", ".join(
            f"({', '.join(map(literal, row))}, {', '.join(ends[number % 3])})"
            for number, row in enumerate(rows[first : first + 40], first)
        )
        postgres.run(f"INSERT INTO {known} VALUES {values}")
    (tmp_path / "in").mkdir()
    stream = pa.table({"id": range(len(texts)), "t": [1] * len(texts), "s": texts})
    pq.write_table(stream, tmp_path / "in" / "1.parquet")
    dbtable = known.replace("\\", "\\\\").replace("'", "\\'")
    text = f"""
      CREATE TABLE l (id BIGINT, t BIGINT, s STRING, WATERMARK FOR t AS t - 5)
        WITH ('connector' = 'file', 'path' = '{tmp_path}/in', 'format' = 'parquet');
      CREATE TABLE looked (`k e"y;` STRING, b BINARY, n BIGINT, d DECIMAL(38,18), x DOUBLE, at TIMESTAMP)
        WITH ('connector' = 'jdbc', 'url' = '{postgres.jdbc_url}', 'user' = 'watersmeet',
              'password' = '{postgres.password}', 'dbtable' = '{dbtable}');
      CREATE TABLE o WITH ('connector' = 'file', 'path' = '{tmp_path}/out', 'format' = 'parquet');
      INSERT INTO o SELECT l.id, l.s, r.b, r.n, r.d, r.x, r.at FROM l
        LEFT JOIN looked FOR SYSTEM_TIME AS OF PROCTIME() AS r ON l.s = r.`k e"y;`;"""
    until_caught_up(spark, text, tmp_path / "state")
    times = (-62_135_596_800_000_000, 253_402_300_799_999_999, None)
    floats = (float("nan"), float("-inf"), 5e-324)
    want = bag((number, *row, floats[number % 3], times[number % 3]) for number, row in enumerate(rows))
    assert not difference(bag(parquet_rows(tmp_path / "out")), want)
