"""Delta tables: what is made, what is refused, and hostile values and names, read by others."""

from __future__ import annotations

import datetime
import json
import math

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow.dataset import field

from tests.sinks.lake.test_lake_sinks import identity
from watersmeet.errors import SeveralErrors, SpecError, WatersmeetError
from watersmeet.names import DELETED
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.model import Column
from watersmeet.spec.model import Sink as SinkSpec
from watersmeet.types.parser import sql_type

UTC = datetime.UTC
TYPES = {
    "b": "BOOLEAN", "i1": "TINYINT", "i2": "SMALLINT", "i4": "INT", "i8": "BIGINT", "f4": "FLOAT",
    "f8": "DOUBLE",
    "d": "DECIMAL(38,10)", "s": "STRING", "x": "BINARY", "day": "DATE", "t": "TIMESTAMP",
    "n": "TIMESTAMP_NTZ",
    "r": "STRUCT<a: INT, u: TIMESTAMP>", "l": "ARRAY<STRUCT<q: TIMESTAMP_NTZ>>", "m": "MAP<STRING, DOUBLE>",
}  # fmt: skip
BERLIN = pa.timestamp("us", "Europe/Berlin")
ARROW = pa.schema({
    "b": pa.bool_(), "i1": pa.int8(), "i2": pa.int16(), "i4": pa.int32(), "i8": pa.int64(),
    "f4": pa.float32(),
    "f8": pa.float64(), "d": pa.decimal128(38, 10), "s": pa.string(), "x": pa.binary(), "day": pa.date32(),
    "t": BERLIN, "n": pa.timestamp("us"), "r": pa.struct({"a": pa.int32(), "u": BERLIN}),
    "l": pa.list_(pa.struct({"q": pa.timestamp("us")})), "m": pa.map_(pa.string(), pa.float64()),
})  # fmt: skip


def columns(**types):
    return tuple(Column(name, sql_type(kind)) for name, kind in types.items())


def prepare_sink(path, shown, key=(), **options):
    sink = make_sink(SinkSpec("out", "delta", {"path": str(path), **options}, shown, key))
    sink.prepare(shown, "job-1")
    sink.resume(["a"], Resumed(0))
    return sink


def publish_rows(sink, rows, tick=1):
    """The rows of an Arrow table, as one task stages them."""
    part = sink.arrow_part(rows.schema, "a", tick, f"attempt-{tick}")
    said = part.write(0, rows.schema, iter(rows.to_batches()))
    sink.take_parts("a", tick, f"attempt-{tick}", [said])
    return sink.publish("a", tick, f"attempt-{tick}", identity(tick))


def refusals(call):
    with pytest.raises(WatersmeetError) as raised:
        call()
    errors = raised.value.errors if isinstance(raised.value, SeveralErrors) else [raised.value]
    assert all(isinstance(error, SpecError) and error.hint for error in errors)
    return {error.code for error in errors}, " / ".join(error.message for error in errors)


EDGES = [
    {
        "b": True, "i1": -128, "i2": -32768, "i4": -(2**31), "i8": -(2**63), "f4": math.inf, "f8": -0.0,
        "d": None, "s": "", "x": b"\0", "day": datetime.date(1, 1, 1),
        "t": datetime.datetime(1, 1, 2, tzinfo=UTC),
        "n": datetime.datetime(1, 1, 1, 0, 0, 0, 1), "r": {"a": None, "u": None}, "l": [], "m": [],
    },
    {
        "i1": 127, "i8": 2**63 - 1, "f4": -math.inf, "f8": math.nan, "s": "ä\U0010ffff" * 50_000, "x": b"",
        "day": datetime.date(9999, 12, 31), "t": datetime.datetime(9999, 12, 30, 23, 59, 59, 999_999, UTC),
        "n": datetime.datetime(9999, 12, 31), "r": {"a": 1, "u": datetime.datetime(2022, 1, 1, tzinfo=UTC)},
        "l": [None, {"q": datetime.datetime(2022, 1, 1)}], "m": [("a", math.nan), ("b", None)],
    },
    {},
]  # fmt: skip


def test_values_of_all_types_come_back(tmp_path):
    rows = pa.Table.from_pylist(EDGES, ARROW)
    sink = prepare_sink(tmp_path, columns(**TYPES))
    assert publish_rows(sink, rows)
    back = DeltaTable(str(tmp_path)).to_pyarrow_table().select(list(TYPES))
    assert str(back.to_pylist()) == str(pa.Table.from_pylist(EDGES, back.schema).to_pylist())
    assert back.schema.field("t").type == pa.timestamp("us", "UTC")
    assert back.schema.field("n").type == pa.timestamp("us")


def statistics(path):
    """Of the first tick's file, as the log has it."""
    lines = (path / "_delta_log" / f"{2:020d}.json").read_text().splitlines()
    (stats,) = [action["add"]["stats"] for line in lines if "add" in (action := json.loads(line))]
    return json.loads(stats)


def test_statistics_say_nothing_wrong(tmp_path):
    publish_rows(prepare_sink(tmp_path, columns(**TYPES)), pa.Table.from_pylist(EDGES, ARROW))
    stats = statistics(tmp_path)
    assert stats["numRecords"] == 3
    assert stats["nullCount"]["f8"] == 1
    assert "minValues" not in stats  # not all columns can have them


def test_statistics_of_columns_with_an_order(tmp_path):
    names = ["i1", "i2", "i4", "i8", "day", "t", "n"]
    schema = pa.schema([ARROW.field(name) for name in names])
    publish_rows(
        prepare_sink(tmp_path, columns(**{name: TYPES[name] for name in names})),
        pa.Table.from_pylist(EDGES, schema),
    )
    stats = statistics(tmp_path)
    assert stats["minValues"]["i8"] == -(2**63)
    assert stats["maxValues"]["i8"] == 2**63 - 1
    assert stats["minValues"]["n"] == "0001-01-01T00:00:00.000001"
    assert stats["maxValues"]["t"] == "9999-12-30T23:59:59.999999Z"
    assert stats["maxValues"]["day"] == "9999-12-31"


def test_readers_pass_over_files_and_miss_nothing(tmp_path):
    sink = prepare_sink(tmp_path, columns(**TYPES))
    publish_rows(sink, pa.Table.from_pylist(EDGES, ARROW))
    publish_rows(sink, pa.Table.from_pylist([{"i8": 5, "s": "m", "f8": 1.0}], ARROW), 2)
    seen = DeltaTable(str(tmp_path)).to_pyarrow_dataset()
    assert seen.to_table(filter=field("i8") == 5).num_rows == 1
    assert seen.to_table(filter=field("i8") == 2**63 - 1).num_rows == 1
    assert seen.to_table(filter=field("s") == "ä\U0010ffff" * 50_000).num_rows == 1
    assert seen.to_table(filter=field("s") == "m").num_rows == 1
    assert seen.to_table(filter=field("f8") == 1.0).num_rows == 1


NAMES = [
    "a.b",
    'a"b',
    "a`b",
    "é",
    "select",
    "a'b",
    "a-b",
    "1a",
    "Upper",
    "s",
    "t",
    "x" * 300,
    "€",
    "a/b",
    "%25",
]


@pytest.mark.parametrize("keyed", [False, True])
def test_hostile_names(tmp_path, keyed):
    shown = columns(**{"k'\"`.": "BIGINT"}, **dict.fromkeys(NAMES, "STRING"))
    sink = prepare_sink(tmp_path, shown, ("k'\"`.",) if keyed else ())
    for tick in (1, 2):
        row = {"k'\"`.": 1, **{name: f"{name} {tick}" for name in NAMES}}
        if keyed:
            row[DELETED] = False
        publish_rows(sink, pa.Table.from_pylist([row]), tick)
    back = DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()
    assert sorted(row["select"] for row in back) == (["select 2"] if keyed else ["select 1", "select 2"])
    assert all(row[name].startswith(name) for row in back for name in NAMES)


def test_all_unsupported_names_and_types_are_reported(tmp_path):
    shown = columns(**{"a b": "INT", "c": "INTERVAL DAY", "d": "STRUCT<`e=`: INT>"})
    codes, text = refusals(lambda: prepare_sink(tmp_path / "new", shown))
    assert codes == {"column-name", "column-type"}
    assert all(name in text for name in ("a b", "INTERVAL DAY", '"d"'))
    assert not (tmp_path / "new" / "_delta_log").exists()


def test_a_table_that_does_not_fit_is_refused_with_all_reasons(tmp_path):
    there = pa.schema(
        [pa.field("K", pa.int64()), pa.field("v", pa.int32()), pa.field("w", pa.int32(), nullable=False)]
    )
    DeltaTable.create(str(tmp_path), there, partition_by=["v"])
    codes, text = refusals(lambda: prepare_sink(tmp_path, columns(k="BIGINT", v="STRING", z="INT")))
    assert codes == {"table-columns", "table-not-supported"}
    for said in ("partitioned by v", '"K"', 'int32 for "v"', 'no column "z"', 'no NULL for "w"'):
        assert said in text


def test_a_table_with_more_columns_takes_the_rows(tmp_path):
    DeltaTable.create(str(tmp_path), pa.schema({"w": pa.int32(), "v": pa.string(), "k": pa.int64()}))
    publish_rows(prepare_sink(tmp_path, columns(k="BIGINT", v="STRING")), pa.table({"k": [1], "v": ["x"]}))
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist() == [{"w": None, "v": "x", "k": 1}]


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        ({"delta.constraints.positive": "k > 0"}, "CHECK"),
        ({"delta.setTransactionRetentionDuration": "interval 1 days"}, "forgets which ticks"),
        ({"delta.enableDeletionVectors": "true"}, "deletionVectors"),
        ({"delta.columnMapping.mode": "name"}, "maps the names"),
    ],
)
def test_unsupported_table_features_are_rejected(tmp_path, configuration, said):
    try:
        DeltaTable.create(str(tmp_path), pa.schema({"k": pa.int64()}), configuration=configuration)
    except Exception:
        DeltaTable.create(str(tmp_path), pa.schema({"k": pa.int64()}))
        log = tmp_path / "_delta_log" / f"{0:020d}.json"
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            if "metaData" in action:
                action["metaData"]["configuration"] = configuration
        log.write_text("\n".join(map(json.dumps, actions)) + "\n")
    codes, text = refusals(lambda: prepare_sink(tmp_path, columns(k="BIGINT")))
    assert codes == {"table-not-supported"}
    assert said in text


def test_a_table_that_others_change_while_a_job_runs(tmp_path):
    sink = prepare_sink(tmp_path, columns(k="BIGINT"))
    publish_rows(sink, pa.table({"k": [1]}))
    DeltaTable(str(tmp_path)).alter.add_constraint({"positive": "k > 0"})
    _, text = refusals(lambda: publish_rows(sink, pa.table({"k": [-1]}), 2))
    assert "CHECK" in text
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 1


def test_keys_that_tables_do_not_compare_as_sql(tmp_path):
    codes, text = refusals(lambda: prepare_sink(tmp_path, columns(k="DOUBLE"), ("k", "z")))
    assert codes == {"primary-key", "unknown-column"}
    assert "DOUBLE" in text


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "missing-option"),
        ({"path": "gs://bucket/x"}, "file-system-not-supported"),
        ({"path": "s3://bucket"}, "wrong-option"),
        ({"path": "s3://bucket/a%20b"}, "wrong-option"),
        ({"path": "x", "endpoint": "http://localhost"}, "wrong-option"),
        ({"path": "s3://b/x", "endpoint": "http://me:hunter2@localhost"}, "wrong-option"),
        ({"path": "x", "secret_access_key": "hunter2"}, "unknown-option"),
        ({"path": "x", "format": "json"}, "unknown-option"),
    ],
)
def test_wrong_options(options, code):
    codes, text = refusals(lambda: make_sink(SinkSpec("out", "delta", options)))
    assert codes == {code}
    assert "hunter2" not in text


def test_without_the_library(monkeypatch):
    from watersmeet.spec.options import lake

    monkeypatch.setattr(lake, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match="pip install 'watersmeet") as raised:
        make_sink(SinkSpec("out", "delta", {"path": "x"}))
    assert raised.value.code == "missing-library"


@pytest.mark.parametrize(
    ("name", "value"), [("AWS_S3_ALLOW_UNSAFE_RENAME", "true"), ("aws_conditional_put", "disabled")]
)
def test_an_environment_without_safe_commits(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    codes, text = refusals(lambda: prepare_sink("s3://bucket/table", columns(k="BIGINT")))
    assert codes == {"no-conditional-put"}
    assert name.upper() in text


def test_a_table_that_only_takes_rows(tmp_path):
    there = pa.schema({"k": pa.int64()})
    DeltaTable.create(str(tmp_path), there, configuration={"delta.appendOnly": "true"})
    prepare_sink(tmp_path, columns(k="BIGINT"))
    codes, text = refusals(lambda: prepare_sink(tmp_path, columns(k="BIGINT"), ("k",)))
    assert codes == {"table-not-supported"}
    assert "appendOnly" in text
