"""Hostile values through files on Spark: every format in and out, keys of every type, and malformed records."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up
from tests.fuzz.rows import (
    ALL,
    NESTED,
    Row,
    bag,
    csv_line,
    csv_rows,
    difference,
    draw_rows,
    join,
    json_line,
    json_rows,
    native_rows,
    parquet_rows,
    write_parquet,
)
from tests.fuzz.values import Drawer, malformed_csv, malformed_json

pytestmark = pytest.mark.spark

ROWS = int(os.environ.get("WATERSMEET_RANDOM_CASES", "0")) or 400
WITHIN = 3
KEYS = ("b", "f64", "d38", "ts")
"""Columns that are keys here; those of the other types are in the tests without Spark."""
BASE = {"id": "BIGINT", "t": "BIGINT"}
OF_CSV = {"multiLine": "true", "escape": '"'}


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A directory that nothing may write into; a file in it is what hostile values would make."""
    folder = tmp_path / "canary"
    folder.mkdir()
    return folder / "file"


def ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in columns.items())


def source(name: str, path: Path, wanted: str, columns: Mapping[str, str], more: Mapping[str, str] = {}) -> str:
    options = {"connector": "file", "path": str(path), "format": wanted, **more}
    given = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TABLE {name} ({ddl(columns)}, WATERMARK FOR t AS t - 100) WITH ({given});\n"


def sink(name: str, path: Path, wanted: str) -> str:
    return f"CREATE TABLE {name} WITH ('connector' = 'file', 'path' = '{path}', 'format' = '{wanted}');\n"


def judged(spark: Any, wanted: str, path: Path, columns: Mapping[str, str], more: Mapping[str, str] = {}) -> Any:
    """What Spark's batch reader makes of files: rows, and the bag of records that it calls corrupt."""
    reader = spark.read.format(wanted).option("columnNameOfCorruptRecord", "corrupt").options(**more)
    if wanted == "csv":
        reader = reader.option("header", "true").option("enforceSchema", "false").option("columnPruning", "false")
    frame = reader.schema(f"{ddl(columns)}, corrupt STRING").load(str(path))
    rows, corrupt = [], Counter()
    for found in native_rows(frame.toArrow()):
        if found[-1] is None:
            rows.append(dict(zip(columns, found, strict=False)))
        else:
            corrupt[found[-1]] += 1
    return rows, corrupt


def both(left: Row, right: Row | None, names: Mapping[str, str]) -> tuple[Any, ...]:
    """A joined row as the jobs here project it."""
    return (*(left[name] for name in names), *(None if right is None else right[n] for n in ("id", "s", "f64")))


def test_values_of_all_types_in_every_format(spark, seed, tmp_path, canary):
    drawer = Drawer(random.Random(seed), str(canary))
    columns = BASE | ALL
    wide = columns | NESTED
    left = draw_rows(drawer, ROWS, ALL | NESTED)
    right = draw_rows(drawer, ROWS, ALL | NESTED, first=10_000)
    text = ""
    for side, rows in (("l", left), ("r", right)):
        for wanted in ("parquet", "json", "csv"):
            (tmp_path / f"{wanted}_{side}").mkdir()
        write_parquet(tmp_path / f"parquet_{side}" / "1.parquet", rows, wide)
        lines = "".join(json_line(row, wide) + "\n" for row in rows)
        (tmp_path / f"json_{side}" / "1.json").write_bytes(lines.encode())
        flat = {name: type_ for name, type_ in columns.items() if type_ != "BINARY"}
        lines = "".join(csv_line(row, flat) + "\n" for row in rows)
        (tmp_path / f"csv_{side}" / "1.csv").write_bytes((",".join(flat) + "\n" + lines).encode())
        text += source(f"parquet_{side}", tmp_path / f"parquet_{side}", "parquet", wide)
        text += source(f"json_{side}", tmp_path / f"json_{side}", "json", wide)
        text += source(f"csv_{side}", tmp_path / f"csv_{side}", "csv", flat, OF_CSV)
    on = f"AND l.t BETWEEN r.t - {WITHIN} AND r.t + {WITHIN}"
    inserts = {}
    for name, given, wanted, names in (
        ("pp", "parquet", "parquet", wide), ("pj", "parquet", "json", wide), ("pc", "parquet", "csv", flat),
        ("jj", "json", "json", wide), ("jp", "json", "parquet", wide), ("cc", "csv", "csv", flat), ("cp", "csv", "parquet", flat),
    ):
        inserts[name] = (given, wanted, names)
        text += sink(name, tmp_path / "out" / name, wanted)
        chosen = ", ".join(f"l.{column}" for column in names)
        text += f"""INSERT INTO {name} SELECT {chosen}, r.id AS rid, r.s AS rs, r.f64 AS rf FROM {given}_l l LEFT JOIN {given}_r r
            ON l.s = r.s {on} AND (l.o IS NULL OR r.o IS NULL OR l.o <> r.o OR l.s <> r.s);\n"""
    for name in KEYS:
        text += sink(f"k_{name}", tmp_path / "out" / f"k_{name}", "parquet")
        text += f"INSERT INTO k_{name} SELECT l.id, r.id AS rid FROM parquet_l l LEFT JOIN parquet_r r ON l.{name} = r.{name} {on};\n"
    run = until_caught_up(spark, text, tmp_path / "state", finish=True)
    print(len(run.ticks))
    from_csv = [judged(spark, "csv", tmp_path / f"csv_{side}", flat, OF_CSV) for side in "lr"]
    assert not from_csv[0][1]
    inputs = {"parquet": (left, right), "json": (left, right), "csv": (from_csv[0][0], from_csv[1][0])}
    wrong = {}
    for name, (given, wanted, names) in inserts.items():
        pairs = join(*inputs[given], "s", WITHIN, lambda l, r: l["o"] is None or r["o"] is None or l["o"] != r["o"])
        want = bag(both(l, r, names) for l, r in pairs)
        folder = tmp_path / "out" / name
        outputs = {**names, "rid": "BIGINT", "rs": "STRING", "rf": "DOUBLE"}
        try:
            if wanted == "parquet":
                got = bag(parquet_rows(folder))
            else:
                got = bag((json_rows if wanted == "json" else csv_rows)(folder, outputs))
        except Exception as error:
            wrong[name] = repr(error)[:600]
            continue
        wrong[name] = difference(got, want)
    for name in KEYS:
        got = bag(parquet_rows(tmp_path / "out" / f"k_{name}"))
        want = bag((l["id"], None if r is None else r["id"]) for l, r in join(left, right, name, WITHIN))
        wrong[f"k_{name}"] = difference(got, want)
    found = "\n".join(f"{name}: {what}" for name, what in wrong.items() if what)
    assert not found, found
    assert not list(canary.parent.iterdir())
