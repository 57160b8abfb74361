"""Fields of JSON fill the columns whose names they have in any case, or their record is broken."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.running import until_caught_up
from tests.engine.spark.test_run_on import account, job, read_output
from tests.engine.spark.test_text_by_tasks import json_reader, read_rows_or_reason
from tests.engine.spark.test_whole_json import parse_records
from tests.support.effort import at_effort
from watersmeet.names import DIFF
from watersmeet.runtime.spark.sources.columns import BROKEN

pytestmark = pytest.mark.spark

TOPIC = "WITH ('connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'x:1', 'format' = '{}')"
PLAIN = f"CREATE TABLE c (order_id INT, s STRING, `a$b` INT) {TOPIC.format('json')}; SELECT * FROM c"
NESTED = (
    "CREATE TABLE c (id INT, meta STRUCT<ts: INT, k: STRUCT<u: INT>>, l ARRAY<STRUCT<v: INT>>) "
    f"{TOPIC.format('json')}; SELECT * FROM c"
)
REPEATED = f"CREATE TABLE c (id INT, meta STRUCT<id: INT>) {TOPIC.format('json')}; SELECT * FROM c"
KEYED = (
    "SET output_mode = changelog; CREATE TABLE c (id INT PRIMARY KEY NOT ENFORCED, s STRING, d DECIMAL(9,2)) "
    f"{TOPIC}; SELECT * FROM c"
)


def rows(spark: Any, job: str, *records: Any) -> list[Any]:
    """Of each record (a text, or what JSON makes of it) its columns, or "broken"."""
    texts = [record if isinstance(record, str) else json.dumps(record) for record in records]
    found = parse_records(spark, job, [(None, text.encode()) for text in texts])
    return ["broken" if row[BROKEN] is not None else tuple(row)[: len(row) - 2] for row in found]


def test_a_field_in_another_case_fills_the_column(spark):
    quoting = 'in a text "ORDER_ID": 9'
    assert rows(spark, PLAIN, {"ORDER_ID": 1, "S": "x", "A$B": 7}, '{"Order_Id" : 2}', {"s": quoting}) == [
        (1, "x", 7),
        (2, None, None),
        (None, quoting, None),
    ]


def test_exact_field_name_takes_precedence(spark):
    both = [{"order_id": 1, "ORDER_ID": 2}, {"ORDER_ID": 2, "order_id": 1}, {"ORDER_ID": 2, "order_id": None}]
    assert rows(spark, PLAIN, *both) == [(1, None, None), (1, None, None), (None, None, None)]


def test_two_names_that_differ_by_case_alone_break_the_record(spark):
    assert rows(spark, PLAIN, {"ORDER_ID": 1, "Order_Id": 1}) == ["broken"]


def test_a_value_that_holds_such_a_name_is_never_changed(spark):
    assert rows(spark, PLAIN, {"s": {"ORDER_ID": 1}}, {"S": {"ORDER_ID": 1}}, {"x": {"ORDER_ID": 1}}) == [
        (None, '{"ORDER_ID":1}', None),
        (None, '{"ORDER_ID":1}', None),
        (None, None, None),
    ]
    both = {"ORDER_ID": 2, "s": {"ORDER_ID": 1}}
    assert rows(spark, PLAIN, both, both | {"s": "x"}) == ["broken", (2, "x", None)]
    columns = "id INT, m MAP<STRING, INT>, p STRUCT<id: INT, q: INT>"
    maps = f"CREATE TABLE c ({columns}) {TOPIC.format('json')}; SELECT id, m FROM c"
    held = {"ID": 1, "Q": 2}
    assert rows(spark, maps, {"m": held}, {"id": 1, "m": held}, {"ID": 1, "m": held}, {"ID": 1}) == [
        (None, held, None),
        (1, held, None),
        "broken",
        (1, None, None),
    ]


def test_fields_within_structs_are_found_too(spark):
    assert rows(spark, NESTED, {"ID": 1, "Meta": {"TS": 2, "K": {"U": 3}}, "l": [{"V": 4}]}) == [
        (1, (2, (3,)), [(4,)])
    ]
    record = {"id": 1, "meta": {"ts": 2, "k": {"U": 3}}, "l": [{"v": 4}]}
    assert rows(spark, NESTED, record) == [(1, (2, (3,)), [(4,)])]


def test_nan_literal_does_not_affect_name_matching(spark):
    floats = f"CREATE TABLE c (id INT, p DOUBLE) {TOPIC.format('json')}; SELECT * FROM c"
    (row,) = rows(spark, floats, '{"ID": 7, "p": NaN}')
    assert row[0] == 7
    assert row[1] != row[1]


def test_nested_field_names_do_not_hide_top_level_fields(spark):
    columns = "id INT, addr STRUCT<zip: INT>, tags ARRAY<STRING>"
    text = f"CREATE TABLE c ({columns}) {TOPIC.format('json')}; SELECT * FROM c"
    record = {"ID": 1, "addr": {"zip": 2}, "x": {"id": 9}, "tags": ["a"]}
    assert rows(spark, text, record, {"ID": 1, "tags": [{"ID": 2}]}) == [(1, (2,), ["a"]), "broken"]
    lists = f"CREATE TABLE c (l ARRAY<STRUCT<v: INT>>) {TOPIC.format('json')}; SELECT * FROM c"
    assert rows(spark, lists, {"l": [{"v": 1}, {"V": 2}]}) == ["broken"]


def test_a_name_of_two_levels_has_one_case_or_the_record_is_broken(spark):
    assert rows(spark, REPEATED, {"id": 1, "meta": {"ID": 2}}, {"ID": 1, "META": {"ID": 2}}) == [
        "broken",
        (1, (2,)),
    ]


@pytest.mark.parametrize("wrapped", [pytest.param(False, marks=pytest.mark.full), True])
def test_debezium_finds_columns_in_any_case(spark, wrapped):
    def event(**parts: Any) -> tuple[bytes | None, bytes]:
        key, value = parts.pop("key", None), parts | {"source": {"name": "n", "s": 1, "id": 9}}
        if wrapped:
            fields = [{"field": "ID", "type": "int32", "optional": False, "name": "s", "id": 7}]
            key, value = {"payload": key}, {"schema": {"fields": fields}, "payload": value}
        return json.dumps(key).encode(), json.dumps(value).encode()

    found = parse_records(
        spark,
        KEYED.format("debezium-json"),
        [
            event(op="c", before=None, after={"ID": 1, "S": "x", "D": 1.5}, key={"ID": 1}),
            event(op="d", before=None, after=None, key={"Id": 2}),
            event(op="u", before={"ID": 3}, after={"ID": 4, "s": "y", "d": 2}, key={"ID": 4}),
            event(op="c", before=None, after={"ID": 5, "s": "x", "D": "1234"}, key={"ID": 5}),
        ],
    )
    told = [(row["id"], row["s"], None if row["d"] is None else float(row["d"]), row[DIFF]) for row in found]
    assert told[:4] == [(1, "x", 1.5, 1), (2, None, None, -1), (3, None, None, -1), (4, "y", 2.0, 1)]
    assert [row[BROKEN] is not None for row in found] == [False, False, False, False, True]


def test_upserts_find_keys_in_any_case(spark):
    found = parse_records(
        spark,
        KEYED.format("upsert-json"),
        [(b'{"ID": 1}', b'{"S": "x", "D": 2.5}'), (b'{"Id": 2}', None), (b'{"id": 3}', b'{"ID": 4}')],
    )
    assert [(row["id"], row["s"], row[DIFF]) for row in found[:2]] == [(1, "x", 1), (2, None, -1)]
    assert [row[BROKEN] is not None for row in found] == [False, False, True]


def test_random_records_are_read_as_python_reads_them(spark, seed):
    rng = random.Random(seed)
    records, expected = [], []
    for _ in range(at_effort(quick=300, full=3000)):
        fields = [
            (rng.choice([name, name.upper(), name.title(), f"{name}x"]), rng.choice([None, 1, 2]))
            for name in rng.choices(["order_id", "a$b", "other"], k=rng.randrange(4))
        ]
        record = dict(fields)
        records.append(record)
        expected.append(_read(record))
    assert rows(spark, PLAIN, *records) == expected


def _read(record: dict[str, Any]) -> Any:
    row = []
    for name in ("order_id", "s", "a$b"):
        others = [key for key in record if key.lower() == name and key != name]
        if name in record:
            row.append(record[name])
        elif len(others) > 1:
            return "broken"
        else:
            row.append(record[others[0]] if others else None)
    return tuple(row)


def of_files(spark: Any, path: Path, columns: str, select: str, lines: Any, options: str = "") -> Any:
    """What a job puts out of one file: rows, and the texts of broken records."""
    text = job(path, columns, select, options)
    folder = path / "in" / "part=7"
    folder.mkdir(parents=True)
    content = lines if isinstance(lines, bytes) else "\n".join(lines).encode()
    (folder / "f").write_bytes(content)
    run = until_caught_up(spark, text, path / "state")
    rows, broken = read_output(path)
    assert account(run).get("broken", 0) == broken.total()
    return set(rows), set(broken)


LINES = [
    '{"order_id": 1, "n": 5}',
    '{"ORDER_ID": 2, "n": 6}',
    '{"Order_Id": 3, "x": {"N": 9}}',
    '{"order_id": 4, "ORDER_ID": 9, "N": null}',
]


@pytest.mark.parametrize("reader", ["auto", pytest.param("spark", marks=pytest.mark.full)])
def test_files_of_a_stream_are_read_in_any_case(spark, tmp_path, reader):
    rows, broken = of_files(
        spark,
        tmp_path,
        "order_id INT, n INT, part INT",
        "SELECT order_id, n, part FROM l",
        [*LINES, '{"ORDER_ID": 5, "Order_Id": 5}', '{"n": 8}'],
        f"); SET file_reader = '{reader}'; CREATE TABLE u (i INT) WITH ('connector' = 'memory'",
    )
    assert rows == {(1, 5, 7), (2, 6, 7), (3, None, 7), (4, None, 7), (None, 8, 7)}
    assert broken == {'{"ORDER_ID": 5, "Order_Id": 5}'}


def test_tasks_read_files_in_any_case_and_leave_two_readings_to_spark(tmp_path):
    columns = {"order_id": "INT", "n": "INT", "größe": "INT"}
    (tmp_path / "f").write_text("\n".join([*LINES, '{"GRÖSSE": 1, "Größe": 2}']))
    assert read_rows_or_reason(json_reader(columns), tmp_path / "f", columns) == [
        (1, 5, None),
        (2, 6, None),
        (3, None, None),
        (4, None, None),
        (None, None, 2),
    ]
    (tmp_path / "f").write_text("\n".join([*LINES, '{"ORDER_ID": 5, "Order_Id": 5}']))
    assert "differ only in case" in read_rows_or_reason(json_reader(columns), tmp_path / "f", columns)


@pytest.mark.parametrize(
    ("options", "content"),
    [
        ("'multiLine' = 'true'", b'[{"order_id": 1},\n {"order_id": 2, "s": 5.50}]'),
        ("'multiLine' = 'true'", b'[{"ORDER_ID": 1},\n {"ORDER_ID": 2, "S": "x"}]'),
        pytest.param(
            "'multiLine' = 'true'",
            '[{"ORDER_ID": 1}, {"ORDER_ID": 2}]'.encode("utf-16"),
            marks=pytest.mark.full,
        ),
        pytest.param(
            "'encoding' = 'UTF-16LE', 'lineSep' = ';;'",
            '{"ORDER_ID": 1};;{"order_Id": 2}'.encode("utf-16-le"),
            marks=pytest.mark.full,
        ),
    ],
    ids=str,
)
def test_arrays_and_wide_encodings_are_read_in_any_case(spark, tmp_path, options, content):
    rows, broken = of_files(
        spark, tmp_path, "order_id INT, s STRING", "SELECT order_id FROM l", content, f", {options}"
    )
    assert (rows, broken) == ({(1,), (2,)}, set())


def test_an_array_with_names_in_two_cases_is_broken(spark, tmp_path):
    lines = ['[{"order_id": 1}, {"ORDER_ID": 2}]', '[{"Order_id": 3}, {"ORDER_ID": 4}]', '[{"ORDER_ID": 5}]']
    rows, broken = of_files(spark, tmp_path, "order_id INT, n INT", "SELECT order_id FROM l", lines)
    assert (rows, broken) == ({(5,)}, set(lines[:2]))


def test_columns_that_files_have_exactly_stay_as_they_are_written(spark, tmp_path):
    rows, broken = of_files(
        spark,
        tmp_path,
        "s STRING, m STRUCT<a: INT, b: INT>, o INT",
        "SELECT s, m.a AS a, m.b AS b, o FROM l",
        ['{"s": 5.50, "M": {"A": 1, "b": 2}, "O": 3}', '{"s": {"O": 1}, "m": {"a": 1}}'],
    )
    assert rows == {(b"5.50", 1, 2, 3), (b'{"O": 1}', 1, None, None)}
    assert broken == set()


def test_a_table_is_read_in_any_case(spark, tmp_path):
    text = job(
        tmp_path,
        "id INT, t BIGINT, WATERMARK FOR t AS t",
        "SELECT l.id, r.s FROM l LEFT JOIN r FOR SYSTEM_TIME AS OF PROCTIME() AS r ON l.id = r.id",
    )
    (tmp_path / "in" / "f").write_text('{"ID":1,"T":1}')
    (tmp_path / "r" / "part=1").mkdir(parents=True)
    (tmp_path / "r" / "part=1" / "f").write_text('{"Id":1,"S":"a"}')
    table = f"""CREATE TABLE r (id INT, s STRING) WITH
        ('connector' = 'file', 'path' = '{tmp_path}/r', 'format' = 'json'); """
    until_caught_up(spark, text.replace("INSERT INTO", table + "INSERT INTO"), tmp_path / "state")
    assert read_output(tmp_path)[0] == {(1, b"a"): 1}
