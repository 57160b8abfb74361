"""Iceberg tables: what is made, what is refused, and hostile values and names, read by another reader."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.sinks.lake.lake_tables import Iceberg
from tests.sinks.lake.test_delta import ARROW, EDGES, NAMES, TYPES, columns, publish_rows, refusals
from watersmeet.errors import EngineError
from watersmeet.names import DELETED
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.spec.secrets import wrap_secret


def prepare_sink(table, shown, key=()):
    sink = make_sink(SinkSpec("out", "iceberg", table.options, shown, key))
    sink.prepare(shown, "job-1")
    sink.resume(["a"], Resumed(0))
    return sink


def catalog(table):
    from pyiceberg.catalog import load_catalog

    options = {name.removeprefix("catalog."): value for name, value in table.options.items()}
    found = load_catalog("default", **options)
    found.create_namespace_if_not_exists("shop")
    return found


@pytest.mark.parametrize("keyed", [False, True])
def test_values_of_all_types_come_back(tmp_path, keyed):
    table = Iceberg(tmp_path)
    rows = pa.Table.from_pylist(EDGES[:2], ARROW)
    shown = columns(**TYPES)
    sink = prepare_sink(table, shown, ("i1", "i8", "t", "n", "day", "s", "x") if keyed else ())
    for tick in (1, 2):
        publish_rows(sink, rows.append_column(DELETED, pa.array([False] * 2)) if keyed else rows, tick)
    back = table.arrow().select(list(TYPES))
    assert back.num_rows == (2 if keyed else 4)
    same = pa.Table.from_pylist(EDGES[:2], back.schema).to_pylist()
    assert sorted(map(str, back.to_pylist())) == sorted(map(str, same if keyed else same * 2))


@pytest.mark.parametrize("keyed", [False, True])
def test_hostile_names(tmp_path, keyed):
    table = Iceberg(tmp_path)
    names = [*NAMES, "a b", "a=b;", "{}"]
    key = "k'\"`" if keyed else "k'\"`."
    shown = columns(**{key: "BIGINT"}, **dict.fromkeys(names, "STRING"))
    sink = prepare_sink(table, shown, (key,) if keyed else ())
    for tick in (1, 2):
        row = {key: 1, **{name: f"{name} {tick}" for name in names}}
        publish_rows(sink, pa.Table.from_pylist([{**row, DELETED: False} if keyed else row]), tick)
    back = table.arrow().to_pylist()
    assert sorted(row["select"] for row in back) == (["select 2"] if keyed else ["select 1", "select 2"])
    assert all(row[name].startswith(name) for row in back for name in names)


def test_a_key_with_a_dot_in_its_name_is_refused(tmp_path):
    """Of more rows than one those of a key would not be found."""
    shown = columns(**{"a.b": "BIGINT", "v": "STRING"})
    codes, said = refusals(lambda: prepare_sink(Iceberg(tmp_path), shown, ("a.b",)))
    assert codes == {"column-name"}
    assert 'the PRIMARY KEY column "a.b"' in said


NESTED = {
    "i": "BIGINT", "v": "STRING", "r": "STRUCT<a: INT, l: ARRAY<STRUCT<b: STRING>>>", "m": "MAP<STRING, INT>",
}  # fmt: skip


def nested(number):
    row = {"i": number, "v": f"v{number}", "r": {"a": number, "l": [{"b": "x"}, None]}, "m": [("k", number)]}
    inner = pa.list_(pa.struct({"b": pa.string()}))
    types = {"i": pa.int64(), "v": pa.string(), "r": pa.struct({"a": pa.int32(), "l": inner})}
    return pa.Table.from_pylist([row], pa.schema({**types, "m": pa.map_(pa.string(), pa.int32())}))


@pytest.mark.parametrize("how", ["renamed", "dropped"])
@pytest.mark.parametrize("column", list(NESTED))
def test_a_column_that_takes_the_name_of_another(tmp_path, column, how):
    """Values stay those of the column to which they were written."""
    table = Iceberg(tmp_path)
    sink = prepare_sink(table, columns(**NESTED))
    publish_rows(sink, nested(1), 1)
    kind = table.table().schema().find_field(column).field_type
    with table.table().update_schema() as update:
        update.rename_column(column, "before") if how == "renamed" else update.delete_column(column)
    with table.table().update_schema() as update:
        update.add_column(column, kind)
    with pytest.raises(EngineError) as raised:  # files of the tick are written by then
        publish_rows(sink, nested(2), 2)
    assert (raised.value.code, f"“{column}”" in raised.value.message) == ("table-changed", True)
    publish_rows(sink, nested(2), 2)
    back = {row["i"] or 0: row for row in table.arrow().to_pylist()}
    first, second = back[0 if column == "i" else 1], back[2]
    assert [first[name] for name in NESTED] == [
        None if name == column else value for name, value in nested(1).to_pylist()[0].items()
    ]
    assert [second[name] for name in NESTED] == list(nested(2).to_pylist()[0].values())
    if how == "renamed":
        assert (first["before"], second["before"]) == (nested(1).to_pylist()[0][column], None)


def test_a_key_of_one_column_with_many_values(tmp_path):
    table = Iceberg(tmp_path)
    sink = prepare_sink(table, columns(k="BIGINT", j="INT", v="STRING"), ("k", "j"))
    keys = list(range(700))
    for tick in (1, 2):
        sevens, odd = pa.array([k % 7 for k in keys], pa.int32()), [k % 2 == 1 for k in keys]
        publish_rows(sink, pa.table({"k": keys, "j": sevens, "v": [str(tick)] * 700, DELETED: odd}), tick)
    back = table.arrow()
    assert sorted(back.column("k").to_pylist()) == keys[::2]
    assert set(back.column("v").to_pylist()) == {"2"}


def test_a_table_that_does_not_fit_is_refused_with_all_reasons(tmp_path):
    table = Iceberg(tmp_path)
    there = pa.schema({"K": pa.int64(), "v": pa.int32()}).append(pa.field("w", pa.int32(), nullable=False))
    with catalog(table).create_table("shop.delivered", there).update_spec() as update:
        update.add_identity("v")
    codes, text = refusals(lambda: prepare_sink(table, columns(k="BIGINT", v="STRING", z="INT")))
    assert codes == {"table-columns", "table-not-supported"}
    for said in ("partitioned by v", '"K"', 'int32 for "v"', 'no column "z"', 'no NULL for "w"'):
        assert said in text


def test_a_table_with_more_columns_takes_the_rows(tmp_path):
    table = Iceberg(tmp_path)
    there = pa.schema({"w": pa.int32(), "v": pa.string(), "k": pa.int64()})
    catalog(table).create_table("shop.delivered", there)
    publish_rows(prepare_sink(table, columns(k="BIGINT", v="STRING")), pa.table({"k": [1], "v": ["x"]}))
    assert table.arrow().to_pylist() == [{"w": None, "v": "x", "k": 1}]


def test_a_merge_without_rows_is_seen_by_others(tmp_path):
    """Of keys that all go: the commit has a snapshot, by which another run's commit is overtaken."""
    table = Iceberg(tmp_path)
    sink = prepare_sink(table, columns(k="BIGINT", v="STRING"), ("k",))
    publish_rows(sink, pa.table({"k": [1], "v": ["x"], DELETED: [True]}))
    assert len(table.table().snapshots()) == 2  # the first one is the fence of the run
    assert table.arrow().num_rows == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"table": "t", "catalog.type": "sql"}, "wrong-option"),
        ({"catalog.type": "sql"}, "missing-option"),
        ({"table": "a.t"}, "missing-option"),
        ({"table": "a.t", "catalog.type": "sql", "catalog": "x"}, "unknown-option"),
        (
            {"table": "a.t", "catalog.type": "rest", "catalog.s3.secret-access-key": "hunter2"},
            "unknown-option",
        ),
    ],
)
def test_wrong_options(options, code):
    codes, text = refusals(lambda: make_sink(SinkSpec("out", "iceberg", options)))
    assert codes == {code}
    assert "hunter2" not in text


def test_a_catalog_that_cannot_be_reached_shows_no_password():
    options = {
        "table": "a.t",
        "catalog.type": "sql",
        "catalog.uri": wrap_secret("catalog.uri", "postgresql+psycopg2://me:hunter2@localhost:1/x"),
    }
    assert "hunter2" not in repr(SinkSpec("out", "iceberg", options))
    with pytest.raises(EngineError) as raised:
        make_sink(SinkSpec("out", "iceberg", options)).prepare(columns(k="BIGINT"), "job-1")
    assert raised.value.code == "sink-not-writable"
    assert "hunter2" not in str(raised.value)
