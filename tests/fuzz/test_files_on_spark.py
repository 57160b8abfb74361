"""Hostile values through files on Spark: every format in and out, keys of types, malformed records, names."""

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
    of_json,
    parquet_rows,
    write_parquet,
)
from tests.fuzz.values import Drawer, malformed_csv, malformed_json
from tests.support.json_records import runs_on
from watersmeet.errors import WatersmeetError
from watersmeet.observe.row_accounting import InputAccount
from watersmeet.runtime.spark.sources import frames

pytestmark = pytest.mark.spark

WITHIN = 3
KEYS = ("b", "f64", "d38", "ts")
"""Columns that are keys here; those of the other types are in the tests without Spark."""
BASE = {"id": "BIGINT", "t": "BIGINT"}
RESIDUAL = "(l.o IS NULL OR r.o IS NULL OR l.o <> r.o OR l.s <> r.s)"
OF_CSV = {"multiLine": "true", "escape": '"'}


def ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in columns.items())


def source(
    name: str, path: Path, wanted: str, columns: Mapping[str, str], more: Mapping[str, str] = {}
) -> str:
    options = {"connector": "file", "path": str(path), "format": wanted, **more}
    given = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TABLE {name} ({ddl(columns)}, WATERMARK FOR t AS t - 100) WITH ({given});\n"


def sink(name: str, path: Path, wanted: str) -> str:
    return f"CREATE TABLE {name} WITH ('connector' = 'file', 'path' = '{path}', 'format' = '{wanted}');\n"


def read_with_spark(
    spark: Any, wanted: str, path: Path, columns: Mapping[str, str], more: Mapping[str, str] = {}
) -> Any:
    """What Spark's batch reader makes of files: rows, and the bag of records that it calls corrupt."""
    reader = spark.read.format(wanted).option("columnNameOfCorruptRecord", "corrupt").options(**more)
    if wanted == "csv":
        reader = (
            reader.option("header", "true").option("enforceSchema", "false").option("columnPruning", "false")
        )
    frame = reader.schema(f"{ddl(columns)}, corrupt STRING").load(str(path))
    rows, corrupt = [], Counter()
    for found in native_rows(frame.toArrow()):
        if found[-1] is None:
            rows.append(dict(zip(columns, found, strict=False)))
        else:
            corrupt[found[-1]] += 1
    return rows, corrupt


def residual(row: Row, other: Row) -> bool:
    """`RESIDUAL`, for equal texts."""
    return row["o"] is None or other["o"] is None or row["o"] != other["o"]


def both(left: Row, right: Row | None, names: Mapping[str, str]) -> tuple[Any, ...]:
    """A joined row as the jobs here project it."""
    return (
        *(left[name] for name in names),
        *(None if right is None else right[n] for n in ("id", "s", "f64")),
    )


def test_values_of_all_types_in_every_format(spark, seed, count, tmp_path, canary):
    drawer = Drawer(random.Random(seed), str(canary))
    columns = BASE | ALL
    wide = columns | NESTED
    left = draw_rows(drawer, count, ALL | NESTED)
    right = draw_rows(drawer, count, ALL | NESTED, first=10_000)
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
        ("pp", "parquet", "parquet", wide),
        ("pj", "parquet", "json", wide),
        ("pc", "parquet", "csv", flat),
        ("jj", "json", "json", wide),
        ("jp", "json", "parquet", wide),
        ("cc", "csv", "csv", flat),
        ("cp", "csv", "parquet", flat),
    ):
        inserts[name] = (given, wanted, names)
        text += sink(name, tmp_path / "out" / name, wanted)
        chosen = ", ".join(f"l.{column}" for column in names)
        text += f"""INSERT INTO {name} SELECT {chosen}, r.id AS rid, r.s AS rs, r.f64 AS rf
            FROM {given}_l l LEFT JOIN {given}_r r
            ON l.s = r.s {on} AND {RESIDUAL};\n"""
    for name in KEYS:
        text += sink(f"k_{name}", tmp_path / "out" / f"k_{name}", "parquet")
        text += f"""INSERT INTO k_{name} SELECT l.id, r.id AS rid
            FROM parquet_l l LEFT JOIN parquet_r r ON l.{name} = r.{name} {on};\n"""
    until_caught_up(spark, text, tmp_path / "state", finish=True)
    from_csv = [read_with_spark(spark, "csv", tmp_path / f"csv_{side}", flat, OF_CSV) for side in "lr"]
    assert not from_csv[0][1]
    inputs = {"parquet": (left, right), "json": (left, right), "csv": (from_csv[0][0], from_csv[1][0])}
    wrong = {}
    for name, (given, wanted, names) in inserts.items():
        want = bag(both(row, other, names) for row, other in join(*inputs[given], "s", WITHIN, residual))
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
        want = bag((row["id"], other and other["id"]) for row, other in join(left, right, name, WITHIN))
        wrong[f"k_{name}"] = difference(got, want)
    found = "\n".join(f"{name}: {what}" for name, what in wrong.items() if what)
    assert not found, found


@pytest.mark.full
def test_malformed_records_are_counted_and_late_rows_reach_side_output(spark, seed, count, tmp_path, canary):
    """Two ticks: malformed records among good ones, then rows that are too late. What is broken is what
    Spark's batch reader calls corrupt, and JSON that runs on behind its value, which Spark's does not tell;
    the texts of both arrive in the side outputs."""
    rng = random.Random(seed)
    drawer = Drawer(rng, str(canary))
    columns = BASE | {"s": "STRING", "f64": "DOUBLE", "ts": "TIMESTAMP"}
    good = draw_rows(drawer, count // 2, columns)
    late = draw_rows(drawer, 40, columns, first=5_000)
    for row in late:
        row["t"] = -10_000
    text = "SET late_output = aside; SET broken_output = bad;\n"
    run_on: list[str] = []
    text += sink("aside", tmp_path / "out" / "aside", "json") + sink("bad", tmp_path / "out" / "bad", "json")
    for wanted, line, malformed in (("json", json_line, malformed_json), ("csv", csv_line, malformed_csv)):
        clean = [row for row in good if wanted == "json" or not set("\r\n") & set(row["s"] or "")]
        lines = [line(row, columns) for row in clean]
        lines += [
            each for each in malformed(rng, lines[: count // 4], str(canary)) if not set("\r\n") & set(each)
        ]
        rng.shuffle(lines)
        head = [] if wanted == "json" else [",".join(columns)]
        folder, whole = tmp_path / wanted, tmp_path / f"whole_{wanted}"
        folder.mkdir()
        whole.mkdir()
        ends = {"json": "\r\n", "csv": "\n"}[wanted]
        cut = len(lines) // 2
        for number, part in enumerate((lines[:cut], lines[cut:])):
            content = ends.join([*head, *part]).encode() + b"\n" * number
            (folder / f"{number}.{wanted}").write_bytes((b"", b"\xef\xbb\xbf")[number] + content)
            if wanted == "json":
                run_on += [each for each in part if runs_on(each.encode())]
                part = [each for each in part if not runs_on(each.encode())]
            content = ends.join([*head, *part]).encode()
            (whole / f"{number}.{wanted}").write_bytes((b"", b"\xef\xbb\xbf")[number] + content)
            os.utime(folder / f"{number}.{wanted}", (1_700_000_000, 1_700_000_000 + number))
        (folder / f"empty.{wanted}").write_bytes(b"")
        os.utime(folder / f"empty.{wanted}", (1_700_000_000, 1_700_000_000))
        more = {"escape": '"'} if wanted == "csv" else {}
        for side in "lr":
            text += source(f"{wanted}_{side}", folder, wanted, columns, more | {"maxFilesPerTrigger": "3"})
        text += sink(f"o_{wanted}", tmp_path / "out" / wanted, "parquet")
        text += f"""INSERT INTO o_{wanted} SELECT l.id, l.t, l.s, l.f64, l.ts, r.id AS rid
            FROM {wanted}_l l LEFT JOIN {wanted}_r r
            ON l.id = r.id AND l.t BETWEEN r.t - 1 AND r.t + 1;\n"""
    want, corrupt = {}, {}
    for wanted in ("json", "csv"):
        folder = tmp_path / wanted
        more = {"escape": '"'} if wanted == "csv" else {}
        rows, corrupt[wanted] = read_with_spark(spark, wanted, tmp_path / f"whole_{wanted}", columns, more)
        if wanted == "json":
            corrupt[wanted].update(each.encode() for each in run_on)
        want[wanted] = rows
        lines = "\n".join(
            ([",".join(columns)] if wanted == "csv" else [])
            + [
                {"json": json_line, "csv": csv_line}[wanted](row, columns)
                for row in late
                if wanted == "json" or not set("\r\n") & set(row["s"] or "")
            ]
        )
        (folder / f"late.{wanted}").write_text(lines, encoding="utf-8", newline="")
        os.utime(folder / f"late.{wanted}", (1_700_000_100, 1_700_000_100))
    run = until_caught_up(spark, text, tmp_path / "state", finish=True)
    for wanted in ("json", "csv"):
        timed = [row for row in want[wanted] if row["t"] is not None]
        came = [row for row in late if wanted == "json" or not set("\r\n") & set(row["s"] or "")]
        for alias in "lr":
            counts = run.ticks[-1].queries[f"o_{wanted}"].account[alias]
            account = InputAccount.of(alias, counts, counts["retained"])
            assert account.adds_up()
            assert account.broken == sum(corrupt[wanted].values())
            assert account.null_time == len(want[wanted]) - len(timed)
            assert account.late == len(came)
        pairs = join(timed, timed, "id", 1)
        expected = bag((*(row[name] for name in columns), r and r["id"]) for row, r in pairs)
        assert not difference(bag(parquet_rows(tmp_path / "out" / wanted)), expected), wanted
    names = ("stream", "input", "reason", "record", "watermark_key", "watermark", "late_by")
    broken = json_rows(tmp_path / "out" / "bad", dict.fromkeys(names, "STRING"))
    for wanted in ("json", "csv"):
        records = Counter(row[3].encode() for row in broken if row[0] == f"{wanted}_l")
        assert not difference(records, corrupt[wanted]), wanted
    aside = json_rows(tmp_path / "out" / "aside", dict.fromkeys(names, "STRING"))
    missed = [json.loads(row[3]) for row in aside if row[2] == "late" and row[0] == "json_l"]
    got = bag([of_json(row[name], type_) for name, type_ in columns.items()] for row in missed)
    assert not difference(got, bag([row[name] for name in columns] for row in late))


HOSTILE_NAMES = [
    "a b",
    "100%",
    "%41",
    "%",
    "it's",
    'q"q',
    "\u00fcn\u0131\U0001d54f",
    "new\nline",
    "tab\t",
    "co:lon",
    "a=b",
    "#x",
    "a,b",
    ";",
    " lead",
    "$(touch x)",
    "`touch x`",
    "-rf",
    "\x1bc",
    "\u202etxt",
    "e\u0301",
    "\u00e9",
    "a+b",
    "%2F..%2F",
    "~",
    "x.json.gz",
    "x.crc",
    "x._COPYING_",
    "watersmeet-error:e30=:",
    "$",
    "'; DROP",
    "",
]
"""Of files, all of which are to be read."""


def test_names_of_files_and_folders(spark, tmp_path, canary):
    """Every file once, also in the next run; in a folder whose path has it all but a pattern's characters."""
    base = tmp_path / "a b%41'q\"\u00fc\U0001d54f\n:#;$(x)"
    (base / "in").mkdir(parents=True)

    def write_hostile_files(first: int) -> None:
        for number, name in enumerate(HOSTILE_NAMES):
            row = json.dumps({"id": first + number, "t": 5})
            (base / "in" / f"{name}{first}.json").write_text(row + "\n")

    path = str(base).replace("'", "\\'")
    text = f"""CREATE TABLE l (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 5)
        WITH ('connector' = 'file', 'path' = '{path}/in', 'format' = 'json');
      CREATE TABLE looked (id BIGINT, t BIGINT)
        WITH ('connector' = 'file', 'path' = '{path}/in', 'format' = 'json');
      CREATE TABLE o WITH ('connector' = 'file', 'path' = '{path}/out', 'format' = 'parquet');
      INSERT INTO o SELECT l.id, r.id AS rid
        FROM l LEFT JOIN looked FOR SYSTEM_TIME AS OF PROCTIME() AS r ON l.id = r.id;"""
    for first in (0, 1_000):
        write_hostile_files(first)
        until_caught_up(spark, text, base / "state")
        want = {
            (first + number,) * 2: 1
            for first in range(0, first + 1, 1_000)
            for number in range(len(HOSTILE_NAMES))
        }
        assert not difference(bag(parquet_rows(base / "out")), Counter(want))


@pytest.mark.parametrize("name", ["n[x]", "n{a,b}", "n*", "n?", "n\\b"])
def test_a_path_that_is_a_pattern_for_spark_is_refused(spark, tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / "nx").mkdir()
    with pytest.raises(WatersmeetError) as caught:
        frames.check_path(spark, "file source", str(tmp_path / name))
    assert caught.value.code == "path-is-pattern"
    frames.check_path(spark, "file source", str(tmp_path / "n[xyz]"))


@pytest.mark.parametrize("name", ["*.json", "[a].json", "{a,b}.json"])
def test_a_file_whose_name_is_a_pattern_for_spark_is_refused(spark, tmp_path, name):
    """Spark would read the others of its batch again: rows would come twice."""
    (tmp_path / "in").mkdir()
    for number, each in enumerate(("a.json", "b.json", name)):
        (tmp_path / "in" / each).write_text(json.dumps({"id": number, "t": 5}) + "\n")
    text = "".join(source(side, tmp_path / "in", "json", BASE) for side in "lr")
    text += sink("o", tmp_path / "out", "parquet")
    text += "INSERT INTO o SELECT l.id, r.id AS rid FROM l JOIN r ON l.id = r.id AND l.t = r.t;"
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, text, tmp_path / "state")
    assert caught.value.code == "file-name"
    assert not parquet_rows(tmp_path / "out")
