"""Hostile values through a real broker: JSON, CSV and raw records in and out, hostile keys, bytes that are no
UTF-8, tombstones, and malformed records."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.engine.spark.running import until_caught_up
from tests.fuzz.rows import (
    ALL,
    bag,
    csv_line,
    difference,
    draw_rows,
    join,
    json_line,
    native_rows,
    of_json,
    of_text,
    parquet_rows,
    parse_csv,
)
from tests.fuzz.values import INVALID, Drawer, malformed_csv, malformed_json
from tests.support.effort import at_effort
from watersmeet.observe.row_accounting import InputAccount

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TYPES = at_effort(
    quick={n: own for k, (n, own) in enumerate(ALL.items()) if k % 2 == 0 or n in ("s", "f64")}, full=ALL
)
"""Plans of more columns take long."""
COLUMNS = {"id": "BIGINT", "t": "BIGINT", **TYPES}
NEAR = 40
FLAT = {name: type_ for name, type_ in COLUMNS.items() if type_ != "BINARY"}


def declare_topic(name: str, servers: str, columns: Mapping[str, str], wanted: str, more: str = "") -> str:
    ddl = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
    time = "t" if "t" in columns else "offset"
    return f"""CREATE TABLE {name} ({ddl}, WATERMARK FOR {time} AS {time} - 100000)
        WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}',
         'topic' = 'fuzz-{name}', 'format' = '{wanted}'{more});\n"""


def goes_on(value: bytes) -> bool:
    """Whether there is something behind the first value: Spark's functions pass over it."""
    text = value.decode("utf-8", "replace").lstrip(" \t\r\n")
    try:
        _, end = json.JSONDecoder(strict=False).raw_decode(text)
    except ValueError:
        return False
    return bool(text[end:].strip(" \t\r\n"))


def parse_with_spark(spark: Any, values: list[bytes | None], wanted: str, columns: Mapping[str, str]) -> Any:
    """What Spark's functions make of records, one value each: rows, and the bag of those that are corrupt."""
    options = "'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', 'corrupt'"
    if wanted == "csv":
        options += """, 'escape', '"'"""
    ddl = ", ".join(f"{column} {type_}" for column, type_ in columns.items())
    frame = spark.createDataFrame(pa.table({"value": pa.array(values, pa.binary())}))
    parse = f"from_{wanted}(CAST(value AS STRING), '{ddl}, corrupt STRING', map({options}))"
    frame = frame.selectExpr("value", f"{parse} AS p").selectExpr("value", "p IS NULL AS none", "p.*")
    rows, corrupt = [], Counter()
    for value, none, *found, bad in native_rows(frame.toArrow()):
        if none or bad is not None or (wanted == "json" and goes_on(value)):
            corrupt[value or b""] += 1
        else:
            rows.append(dict(zip(columns, found, strict=True)))
    return rows, corrupt


def test_values_keys_and_malformed_records(spark, kafka_broker, seed, count, tmp_path, canary):
    rng = random.Random(seed)
    drawer = Drawer(rng, str(canary))
    servers = kafka_broker.bootstrap_servers
    left, right = draw_rows(drawer, count // 2, TYPES), draw_rows(drawer, count // 2, TYPES, first=10_000)
    strange = [*INVALID, b"", None, "\ufeff{}".encode(), '{"id":1,"t":5}'.encode("utf-16")]
    sent: dict[str, list[bytes | None]] = {}
    for wanted, line, malformed, names in (
        ("json", json_line, malformed_json, COLUMNS), ("csv", csv_line, malformed_csv, FLAT),
    ):  # fmt: skip
        good = [line(row, names) for row in left]
        bad = [*malformed(rng, good[: count // 4], str(canary)), "\n", "\r\n", f"{good[0]}\n{good[1]}"]
        sent[f"{wanted}_l"] = [each.encode("utf-8", "surrogatepass") for each in (*good, *bad)] + strange
        sent[f"{wanted}_r"] = [line(row, names).encode() for row in right]
    sent["raw_l"] = [text.encode() for text in drawer.texts] + strange
    sent["raw_r"] = list(sent["raw_l"])
    keys: dict[str, list[bytes | None]] = {}
    for topic, values in sent.items():
        rng.shuffle(values)
        keys[topic] = [rng.choice([None, drawer.binary()]) for _ in values]
        kafka_broker.create_topic(f"fuzz-{topic}", partitions=2 if "raw" not in topic else 1)
        parts = [rng.randrange(2) if "raw" not in topic else 0 for _ in values]
        kafka_broker.produce(f"fuzz-{topic}", zip(parts, keys[topic], values, strict=True))
    raw = {"key": "BINARY", "offset": "BIGINT", "value": "STRING"}
    text = "SET broken_output = bad;\n"
    for side in "lr":
        text += declare_topic(f"json_{side}", servers, COLUMNS, "json")
        text += declare_topic(f"csv_{side}", servers, FLAT, "csv", """, 'csv.escape' = '"'""")
        text += declare_topic(f"raw_{side}", servers, raw, "raw")
    for name, wanted, key in (("jj", "json", "s"), ("cc", "csv", "f64"), ("rr", "raw", "key")):
        kafka_broker.create_topic(f"fuzz-{name}", partitions=2)
        text += f"""CREATE TABLE {name} WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}',
            'topic' = 'fuzz-{name}', 'format' = '{wanted}', 'key' = '{key}');\n"""
    for name, wanted in (("bad", "json"), ("rp", "parquet")):
        path = tmp_path / "out" / name
        given = f"'connector' = 'file', 'path' = '{path}', 'format' = '{wanted}'"
        text += f"CREATE TABLE {name} WITH ({given});\n"
    on = "ON l.s = r.s AND l.t BETWEEN r.t - 3 AND r.t + 3"
    for wanted, name, names in (("json", "jj", COLUMNS), ("csv", "cc", FLAT)):
        chosen = ", ".join(f"l.{column}" for column in names)
        text += f"""INSERT INTO {name} SELECT {chosen}, r.id AS rid
            FROM {wanted}_l l LEFT JOIN {wanted}_r r {on};\n"""
    on = f"ON l.value = r.value AND l.offset BETWEEN r.offset - {NEAR} AND r.offset + {NEAR}"
    text += f"INSERT INTO rr SELECT l.key, r.value FROM raw_l l JOIN raw_r r {on};\n"
    more = "l.offset AS o, l.key, l.value AS v, r.offset AS ro"
    text += f"INSERT INTO rp SELECT {more} FROM raw_l l LEFT JOIN raw_r r {on};\n"
    run = until_caught_up(spark, text, tmp_path / "state", finish=True)
    for wanted, name, names in (("json", "jj", COLUMNS), ("csv", "cc", FLAT)):
        rows, corrupt = parse_with_spark(spark, sent[f"{wanted}_l"], wanted, names)
        others, _ = parse_with_spark(spark, sent[f"{wanted}_r"], wanted, names)
        timed = [row for row in rows if row["t"] is not None]
        counts = run.ticks[-1].queries[name].account["l"]
        account = InputAccount.of("l", counts, counts["retained"])
        assert account.adds_up()
        assert account.rows_in == len(sent[f"{wanted}_l"])
        assert (account.broken, account.null_time) == (sum(corrupt.values()), len(rows) - len(timed))
        want = bag((*(row[n] for n in names), o and o["id"]) for row, o in join(timed, others, "s", 3))
        outputs = {**names, "rid": "BIGINT"}
        values = [value for _, _, value in kafka_broker.consume_all(f"fuzz-{name}")]
        got = bag((of_json_record if wanted == "json" else of_csv_record)(value, outputs) for value in values)
        assert not difference(got, want), wanted
    raws = [
        {"o": number, "k": key, "v": value}
        for number, (key, value) in enumerate(zip(keys["raw_l"], sent["raw_l"], strict=True))
    ]
    others = [{"o": number, "v": value} for number, value in enumerate(sent["raw_r"])]
    pairs = [
        (row, other)
        for row in raws
        for other in others
        if row["v"] is not None and row["v"] == other["v"] and abs(row["o"] - other["o"]) <= NEAR
    ]
    met = {row["o"] for row, _ in pairs}
    padded = [(row["o"], row["k"], row["v"], None) for row in raws if row["o"] not in met]
    want = bag([*((row["o"], row["k"], row["v"], other["o"]) for row, other in pairs), *padded])
    assert not difference(bag(parquet_rows(tmp_path / "out" / "rp")), want)
    copied = bag((key, value) for _, key, value in kafka_broker.consume_all("fuzz-rr"))
    assert not difference(copied, bag((row["k"], row["v"]) for row, _ in pairs))


def of_json_record(value: bytes, outputs: Mapping[str, str]) -> tuple[Any, ...]:
    found = json.loads(value, parse_float=Decimal)
    return tuple(of_json(found[name], type_) for name, type_ in outputs.items())


def of_csv_record(value: bytes, outputs: Mapping[str, str]) -> tuple[Any, ...]:
    (fields,) = parse_csv(value.decode())
    return tuple(of_text(field, type_) for field, type_ in zip(fields, outputs.values(), strict=True))
