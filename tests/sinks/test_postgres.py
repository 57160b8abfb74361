"""The sink for tables of PostgreSQL, on a real server, without Spark."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import random
import sys
import threading
import time
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.sinks.postgres_frames import ArrowFrame
from tests.support.columns import column
from watersmeet import parse_job, plan_job
from watersmeet import postgres_server as client
from watersmeet.errors import EngineError, SpecError, WatersmeetError
from watersmeet.names import DELETED, SHOWN_DIFF, SHOWN_TICK
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.postgres import copy, ledger
from watersmeet.sinks.postgres import ledger as postgres_lock
from watersmeet.sinks.postgres.sink import PostgresSink
from watersmeet.sinks.registry import part_from, plain_part
from watersmeet.spec.model import Sink

pytestmark = pytest.mark.postgres

OWNER, ORIGIN = "job-1", {"rows": "of one tick"}
NUMBER = itertools.count(1)


_OPENED: list[PostgresSink] = []


@pytest.fixture(autouse=True)
def _close_what_a_test_leaves_open():
    yield
    while _OPENED:
        with contextlib.suppress(WatersmeetError):
            _OPENED.pop().close()


@pytest.fixture
def table(postgres):
    """A name that no other test has."""
    return f"t{next(NUMBER)}"


def sink_of(postgres, table, key=(), **options):
    spec = Sink("out", "postgres", {"url": postgres.url, "table": table, **options}, None, tuple(key))
    sink = PostgresSink(spec)
    _OPENED.append(sink)
    return sink


def prepare_sink(postgres, table, columns, key=(), owner=OWNER, accepts=False, **options):
    sink = sink_of(postgres, table, key, **options)
    if accepts:
        sink.accept_target()
    sink.prepare([column(name, kind) for name, kind in columns.items()], owner)
    return sink


def stage(sink, rows, tick, attempt="a", insert="q"):
    """As tasks do it: two of them, and of the first one two attempts."""
    made = sink.arrow_part(rows.schema, insert, tick, attempt)
    in_task = part_from(plain_part(made), sink.secrets)
    half = rows.num_rows // 2
    in_task.write(0, rows.schema, iter(rows.slice(0, half).to_batches()))
    told = [
        in_task.write(number, rows.schema, iter(piece.to_batches()))
        for number, piece in enumerate([rows.slice(0, half), rows.slice(half)])
    ]
    sink.take_parts(insert, tick, attempt, told)


def publish_rows(sink, rows, tick, attempt="a", insert="q", identity=ORIGIN):
    stage(sink, rows, tick, attempt, insert)
    return sink.publish(insert, tick, attempt, identity)


def numbers(*values):
    return pa.table({"n": pa.array(values, pa.int64())})


def read_table_rows(postgres, table, columns="*", order="1"):
    return postgres.run(f"SELECT {columns} FROM {table} ORDER BY {order}").splitlines()


EVERY = {
    "b": ("BOOLEAN", pa.bool_(), [True, None, False], ["t", "", "f"], "boolean"),
    "i8": ("TINYINT", pa.int8(), [-128, None, 127], ["-128", "", "127"], "smallint"),
    "i16": ("SMALLINT", pa.int16(), [-(2**15), None, 0], ["-32768", "", "0"], "smallint"),
    "i32": ("INT", pa.int32(), [-(2**31), None, 0], ["-2147483648", "", "0"], "integer"),
    "i64": ("BIGINT", pa.int64(), [-(2**63), None, 0], ["-9223372036854775808", "", "0"], "bigint"),
    "f": ("FLOAT", pa.float32(), [float("nan"), None, -0.0], ["NaN", "", "-0"], "real"),
    "d": ("DOUBLE", pa.float64(), [float("-inf"), None, -0.0], ["-Infinity", "", "-0"], "double precision"),
    "dec": (
        "DECIMAL(38,10)", pa.decimal128(38, 10),
        [Decimal("-9999999999999999999999999999.9999999999"), None, Decimal("1.5")],
        ["-9999999999999999999999999999.9999999999", "", "1.5000000000"], "numeric(38,10)",
    ),
    "s": ("STRING", pa.string(), ["", None, "ö\"'\\"], ["", "", "ö\"'\\"], "text"),
    "bin": ("BINARY", pa.binary(), [b"\x00\xff", None, b""], ["\\x00ff", "", "\\x"], "bytea"),
    "day": (
        "DATE", pa.date32(), [datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)],
        ["0001-01-01", "", "9999-12-31"], "date",
    ),
    "at": (
        "TIMESTAMP", pa.timestamp("us", "Europe/Berlin"),
        [datetime.datetime(1, 1, 2, tzinfo=datetime.UTC), None,
         datetime.datetime(9999, 12, 30, 23, 59, 59, 999999, tzinfo=datetime.UTC)],
        ["0001-01-02 00:00:00+00", "", "9999-12-30 23:59:59.999999+00"], "timestamp with time zone",
    ),
    "local": (
        "TIMESTAMP_NTZ", pa.timestamp("us"),
        [datetime.datetime(1, 1, 1), None, datetime.datetime(9999, 12, 31)],
        ["0001-01-01 00:00:00", "", "9999-12-31 00:00:00"], "timestamp without time zone",
    ),
    "texts": (
        "ARRAY<STRING>", pa.list_(pa.string()), [["a", None], None, []], ["{a,NULL}", "", "{}"], "text[]",
    ),
    "ints": ("ARRAY<INT>", pa.list_(pa.int32()), [[1], None, [None]], ["{1}", "", "{NULL}"], "integer[]"),
    "decs": (
        "ARRAY<DECIMAL(5,2)>", pa.list_(pa.decimal128(5, 2)), [[Decimal("1.25")], None, []],
        ["{1.25}", "", "{}"], "numeric(5,2)[]",
    ),
}  # fmt: skip


def test_values_of_every_type_arrive_as_they_are(postgres, table):
    columns = {name: kind for name, (kind, *_) in EVERY.items()}
    before = postgres.staging()
    sink = prepare_sink(postgres, table, columns)
    rows = pa.table({name: pa.array(values, kind) for name, (_, kind, values, *_) in EVERY.items()})
    assert publish_rows(sink, rows, 1)
    assert sink.publish("q", 1, "a", ORIGIN)
    for name, (*_, texts, type_) in EVERY.items():
        assert Counter(read_table_rows(postgres, table, name)) == Counter(texts), name
        said = postgres.run(
            f"SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = '{table}'::regclass"
            f" AND attname = '{name}'"
        )
        assert said.strip() == type_
    sink.close()
    assert postgres.staging() <= before


def test_nested_values_become_json_on_their_way_through_spark(postgres, table):
    columns = {"s": "STRUCT<x: INT>", "m": "MAP<STRING, ARRAY<INT>>", "a": "ARRAY<ARRAY<INT>>", "n": "INT"}
    sink = prepare_sink(postgres, table, columns)
    nested = pa.schema([("s", pa.struct([("x", pa.int32())]))])
    assert sink.arrow_part(nested, "q", 1, "a") is None

    class AsSpark(ArrowFrame):
        def selectExpr(self, *texts):
            assert [text.partition("(")[0] for text in texts] == ["to_json", "to_json", "to_json", "`n`"]
            return self

    texts = {"s": ['{"x":1}', None], "m": ['{"a":[1]}', None], "a": ["[[1]]", None]}
    sink.write(
        AsSpark(pa.table({**texts, "n": pa.array([1, 2], pa.int32())}), [*columns.values()]), "q", 1, "a"
    )
    sink.publish("q", 1, "a", ORIGIN)
    assert read_table_rows(postgres, table, order="n") == ['{"x": 1}|{"a": [1]}|[[1]]|1', "|||2"]
    sink.close()


def test_odd_names(postgres):
    postgres.run('CREATE SCHEMA "Od""d.ö"')
    columns = {'A"b': "INT", "ö": "INT", "a": "INT", "A": "INT", "select": "INT", "x" * 63: "INT"}
    with pytest.raises(SpecError, match="two columns"):
        prepare_sink(postgres, "x", columns)
    del columns["A"]
    sink = prepare_sink(postgres, '"Od""d.ö"."T.a"', columns, key=("select", 'A"b'))
    table = pa.table({name: pa.array([1], pa.int32()) for name in columns})
    write_keyed(sink, table, [False], 1)
    sink.publish("q", 1, "a", ORIGIN)
    assert read_table_rows(postgres, '"Od""d.ö"."T.a"') == ["1|1|1|1|1"]
    sink.close()


def write_keyed(sink, rows, deleted, tick, attempt="a", insert="q"):
    table = rows.append_column(DELETED, pa.array(deleted, pa.bool_()))
    names = {pa.int32(): "INT", pa.int64(): "BIGINT", pa.string(): "STRING", pa.bool_(): "BOOLEAN"}
    sink.write(ArrowFrame(table, [names[field.type] for field in table.schema]), insert, tick, attempt)


def test_rows_by_key_take_places_and_go(postgres, table):
    seed = 20261123
    draw = random.Random(seed)
    sink = prepare_sink(postgres, table, {"k": "BIGINT", "v": "STRING"}, key=("k",))
    held = {}
    for tick in range(1, 9):
        keys = draw.sample(range(20), 9)
        values = [draw.choice(["a", "b", None]) for _ in keys]
        gone = [draw.random() < 0.4 for _ in keys]
        write_keyed(sink, pa.table({"k": keys, "v": pa.array(values, pa.string())}), gone, tick)
        assert sink.staged_rows("q", tick, "a") == 9
        assert sink.publish("q", tick, "a", ORIGIN | {"tick": str(tick)})
        for key, value, is_gone in zip(keys, values, gone, strict=True):
            held.pop(key, None)
            if not is_gone:
                held[key] = value
        wanted = [f"{key}|{value or ''}" for key, value in sorted(held.items())]
        assert read_table_rows(postgres, table) == wanted, f"seed {seed}, tick {tick}"
    sink.close()


def test_keys_alone(postgres, table):
    sink = prepare_sink(postgres, table, {"k": "BIGINT"}, key=("k",))
    for tick, gone in enumerate(([False, False], [False, True]), 1):
        write_keyed(sink, pa.table({"k": [1, 2]}), gone, tick)
        sink.publish("q", tick, "a", ORIGIN)
    assert read_table_rows(postgres, table) == ["1"]
    sink.close()


def test_changes_without_a_key_are_rows(postgres, table):
    sink = prepare_sink(postgres, table, {"n": "BIGINT", SHOWN_DIFF: "BIGINT", SHOWN_TICK: "BIGINT"})
    publish_rows(sink, pa.table({"n": [1, 1], SHOWN_DIFF: [-1, 1], SHOWN_TICK: [4, 4]}), 4)
    assert read_table_rows(postgres, table, order="2") == ["1|-1|4", "1|1|4"]
    sink.close()


def test_a_tick_comes_once(postgres, table):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    assert publish_rows(sink, numbers(1, 2, 3), 1)
    assert sink.has_part("q", 1)
    assert not sink.has_part("q", 2)
    assert sink.publish("q", 1, "a", ORIGIN)
    assert publish_rows(sink, numbers(1, 2, 3), 1, "b")
    assert read_table_rows(postgres, table) == ["1", "2", "3"]
    for wrong in (sink.check, lambda *of: sink.publish(*of[:2], "c", of[2])):
        stage(sink, numbers(4), 1, "c")
        with pytest.raises(EngineError, match="made from other rows") as caught:
            wrong("q", 1, {"rows": "of another"})
        assert "--set-aside" not in (caught.value.hint or "")
    assert read_table_rows(postgres, table) == ["1", "2", "3"]
    sink.discard("c")
    sink.discard("never was")
    with pytest.raises(EngineError, match="nothing was staged"):
        sink.publish("q", 2, "c", ORIGIN)
    sink.close()


def test_an_empty_tick_is_no_part(postgres, table):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    assert not publish_rows(sink, numbers(), 1)
    assert not sink.has_part("q", 1)
    assert publish_rows(sink, numbers(1), 2)
    assert sink.resume(["q"], Resumed(2, last_parts={"q": (2, ORIGIN)})) == []
    sink.close()


def test_rows_of_attempts_that_do_not_count_stay_out(postgres, table, monkeypatch):
    """And so do pieces that were sent, and whose answer was lost."""
    monkeypatch.setattr(copy, "CHUNK_ROWS", 2)
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    made = sink.arrow_part(numbers().schema, "q", 1, "a")
    once = client.Server.run_once
    lost = iter([False, True, False, True])

    def answer_is_lost(self, work):
        result = once(self, work)
        if work.__name__ == "copy" and next(lost, False):
            raise client.client().OperationalError(
                "server closed the connection unexpectedly", status_code=_io(), vendor_code=None
            )
        return result

    monkeypatch.setattr(client.Server, "run_once", answer_is_lost)
    told = made.write(0, numbers().schema, iter(numbers(*range(7)).to_batches()))
    assert [rows for _, rows in told["parts"]] == [2, 2, 2, 1]
    sink.take_parts("q", 1, "a", [told])
    assert sink.publish("q", 1, "a", ORIGIN)
    assert read_table_rows(postgres, table) == [*map(str, range(7))]
    sink.close()


def _io():
    from adbc_driver_manager import AdbcStatusCode

    return AdbcStatusCode.IO


def test_missing_staged_rows_fail_the_publish(postgres, table):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    stage(sink, numbers(1, 2), 1)
    (staging,) = sink._stages.tables.values()
    postgres.run(f"DELETE FROM {staging.sql} WHERE c0 = 1")
    with pytest.raises(EngineError, match="has only 1 of 2 staged rows") as caught:
        sink.publish("q", 1, "a", ORIGIN)
    assert caught.value.code == "staged-rows-gone"
    assert read_table_rows(postgres, table) == []
    sink.close()


def test_the_table_is_one_jobs(postgres, table, monkeypatch):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    publish_rows(sink, numbers(1), 1)
    monkeypatch.setattr(postgres_lock, "LOCK_WAIT_S", 0.3)
    with pytest.raises(EngineError, match="another run is writing"):
        prepare_sink(postgres, table, {"n": "BIGINT"})
    monkeypatch.undo()
    sink.close()
    with pytest.raises(EngineError, match="rows of another job"):
        prepare_sink(postgres, table, {"n": "BIGINT"}, owner="job-2")
    again = prepare_sink(postgres, table, {"n": "BIGINT"})
    again.close()


def test_a_table_without_ticks_changes_hands(postgres, table):
    prepare_sink(postgres, table, {"n": "BIGINT"}).close()
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, owner="job-2")
    assert publish_rows(sink, numbers(1), 1)
    sink.close()


def test_a_run_that_lost_its_lock_is_fenced(postgres, table):
    """Its connection broke, and another run took the table: what it staged stays out."""
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    stage(sink, numbers(1), 1)
    postgres.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'watersmeet'"
    )
    other = prepare_sink(postgres, table, {"n": "BIGINT"})
    publish_rows(other, numbers(2), 1)
    for late in (sink.check, lambda insert, tick, identity: sink.publish(insert, tick, "a", identity)):
        with pytest.raises(EngineError, match="now belongs to another run"):
            late("q", 1, ORIGIN)
    assert read_table_rows(postgres, table) == ["2"]
    sink.close()
    other.close()


def test_leftovers_of_this_target_alone_go(postgres, table):
    of_others = postgres.staging()
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    other = prepare_sink(postgres, f"{table}b", {"n": "BIGINT"})
    for used in (sink, other):
        stage(used, numbers(1), 1)
    assert len(postgres.staging() - of_others) == 2
    (kept,) = [staging.table for staging in other._stages.tables.values()]
    sink.server.close()  # as a kill does
    again = prepare_sink(postgres, table, {"n": "BIGINT"})
    assert postgres.staging() - of_others == {kept}
    again.close()
    other.close()
    assert postgres.staging() <= of_others


def test_what_the_state_knows_is_compared(postgres, table):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    for tick in (1, 2, 4):
        publish_rows(sink, numbers(tick), tick, identity={"tick": str(tick)})
    last = {"q": (4, {"tick": "4"})}
    assert sink.resume(["q"], Resumed(5, last_parts=last)) == []
    with pytest.raises(EngineError, match=r'has a part of "q" tick 4, but the checkpoint is at tick 2'):
        sink.resume(["q"], Resumed(2, last_parts={"q": (2, {"tick": "2"})}))
    with pytest.raises(EngineError, match="which cannot be removed"):
        sink.resume(["q"], Resumed(2, last_parts={"q": (2, {"tick": "2"})}, set_aside=True))
    assert sink.resume(["q"], Resumed(3, True, {"q": (2, {"tick": "2"})})) == []
    with pytest.raises(EngineError, match=r"from different runs"):
        sink.resume(["q"], Resumed(4, last_parts={"q": (4, {"tick": "x"})}))
    with pytest.raises(EngineError, match=r"no longer has .* tick 6"):
        sink.resume(["q"], Resumed(6, last_parts={"q": (6, {"tick": "6"})}))
    sink.close()


def test_target_without_known_ticks_needs_acceptance(postgres, table):
    """A restored database looks the same, so nobody but the user can tell."""
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    known = {"it's": (6, {"tick": "6", "a": "'\\"}), "q": (5, {"tick": "5"})}
    with pytest.raises(EngineError, match='has no ticks of "it\'s" and "q"') as caught:
        sink.resume(["q", "it's"], Resumed(500, last_parts=known))
    assert caught.value.code == "sink-behind"
    assert caught.value.hint.endswith("--accept-target out")
    sink.accept_target()
    assert sink.resume(["q", "it's"], Resumed(500, last_parts=known)) == []
    assert publish_rows(sink, numbers(1), 501)
    sink.close()
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    postgres.run(f"DELETE FROM _watersmeet_ticks WHERE target = '{table}'")
    with pytest.raises(EngineError, match="has no ticks"):
        sink.resume(["q"], Resumed(500, last_parts=known))
    sink.close()


def lose_tick_2(postgres, table):
    postgres.run(f"DELETE FROM {table} WHERE n = 2")
    postgres.run(f"DELETE FROM _watersmeet_ticks WHERE target = '{table}' AND tick = 2")


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("rows", [(3,), ()])
def test_a_server_that_loses_a_confirmed_tick_is_noticed(postgres, table, resumed, rows):
    """As after a failover to a server that lagged behind: the next tick stays out."""
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    publish_rows(sink, numbers(1), 1, identity={"tick": "1"})
    publish_rows(sink, numbers(2), 2, identity={"tick": "2"})
    publish_rows(sink, numbers(), 3, identity={"tick": "3"})
    if resumed:
        sink.close()
        sink = prepare_sink(postgres, table, {"n": "BIGINT"})
        sink.resume(["q"], Resumed(3, last_parts={"q": (2, {"tick": "2"})}))
    lose_tick_2(postgres, table)
    stage(sink, numbers(*rows), 4)
    for late in (sink.check, lambda insert, tick, identity: sink.publish(insert, tick, "a", identity)):
        with pytest.raises(EngineError, match=r'no longer has "q", tick 2') as caught:
            late("q", 4, ORIGIN)
        assert caught.value.code == "sink-behind"
    assert read_table_rows(postgres, table) == ["1"]
    sink.close()


def test_the_last_tick_may_be_made_again(postgres, table):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    publish_rows(sink, numbers(1), 1)
    publish_rows(sink, numbers(2), 2)
    assert publish_rows(sink, numbers(2), 2, "b")
    lose_tick_2(postgres, table)
    assert publish_rows(sink, numbers(2), 2, "c")
    assert read_table_rows(postgres, table) == ["1", "2"]
    sink.close()


def test_a_tick_that_comes_while_another_job_asks_keeps_it_out(postgres, table):
    prepare_sink(postgres, table, {"n": "BIGINT"}).close()
    own = ledger.PostgresLedger("out", "public", table)
    said = []

    def take():
        server = client.Server(postgres.url, "out", 5)
        try:
            server.run(lambda cursor: own.take(cursor, "job-2", "r2", "1", accepts=False))
        except EngineError as error:
            said.append(error.code)
        server.close()

    with client.client().connect(postgres.url) as connection, connection.cursor() as cursor:
        own.take(cursor, OWNER, "r1", "1", accepts=False)
        connection.commit()
        own.fence(cursor, OWNER, "r1")
        own.add(cursor, "q", 1, ORIGIN, 1)
        other = threading.Thread(target=take)
        other.start()
        waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        until = time.monotonic() + 10
        while postgres.run(waits).strip() == "0" and time.monotonic() < until:
            time.sleep(0.02)
        connection.commit()
        other.join()
    assert said == ["sink-of-another-run"]


def test_staging_tables_without_rows_are_left_alone(postgres, table):
    """The server keeps the rows of a table in another file once it was emptied."""
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    begin = ledger.PostgresLedger("out", "public", table).staging
    asked = f"SELECT relname, relfilenode FROM pg_class WHERE relkind = 'r' AND relname LIKE '{begin}%'"
    files = set()
    for tick, rows in enumerate([(), (1,), (), ()], 1):
        publish_rows(sink, numbers(*rows), tick)
        publish_rows(sink, numbers(), tick, insert="r")
        files |= {*postgres.run(asked).split()}
    assert len({file.split("|")[0] for file in files}) == 2
    assert len(files) == 3, "one was emptied, once"
    sink.close()


def test_old_ticks_are_forgotten(postgres, table, monkeypatch):
    monkeypatch.setattr(ledger, "RETAINED_TICKS", 2)
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    for tick in range(1, 6):
        publish_rows(sink, numbers(tick), tick)
    kept = postgres.run(f"SELECT tick FROM _watersmeet_ticks WHERE target = '{table}' ORDER BY 1").split()
    assert kept == ["3", "4", "5"]
    sink.close()


def test_all_table_problems_are_reported_together(postgres, table):
    postgres.run(
        f"CREATE TABLE {table} (k text, v varchar(3), amount numeric(5,2),"
        " made bigint GENERATED ALWAYS AS (1)"
        " STORED, needed int NOT NULL, filled int NOT NULL DEFAULT 1, UNIQUE (v))"
    )
    columns = {"k": "BIGINT", "v": "STRING", "amount": "DECIMAL(6,2)", "made": "BIGINT", "lacks": "DATE"}
    with pytest.raises(SpecError) as caught:
        prepare_sink(postgres, table, columns, key=("k",))
    message = str(caught.value)
    for said in (
        '"k" is text there, and BIGINT in the result',
        '"amount" is numeric(5,2) there, and DECIMAL(6,2)',
        '"made" is generated',
        'it has no column "lacks"',
        '"needed" is NOT NULL without a default',
        'no unique index of ("k")',
    ):
        assert said in message
    assert '"v"' not in message
    assert "filled" not in message
    assert 'ADD COLUMN "lacks" date' in caught.value.hint


def test_an_existing_table_takes_what_fits(postgres, table):
    postgres.run(
        f"CREATE TABLE {table} (id varchar PRIMARY KEY, n numeric, j json, big bigint, short varchar(3),"
        f" more int, u uuid); INSERT INTO {table} (id, more) VALUES ('k', 7)"
    )
    columns = {"id": "STRING", "n": "INT", "j": "STRING", "big": "INT", "short": "STRING", "u": "STRING"}
    sink = prepare_sink(postgres, table, columns, key=("id",))
    row = {
        "id": ["k"], "n": pa.array([5], pa.int32()), "j": ["[1]"],
        "big": pa.array([6], pa.int32()), "short": ["abc"],
        "u": ["00000000-0000-0000-0000-00000000000A"],
    }  # fmt: skip
    write_keyed(sink, pa.table(row), [False], 1)
    sink.publish("q", 1, "a", ORIGIN)
    assert read_table_rows(postgres, table) == ["k|5|[1]|6|abc|7|00000000-0000-0000-0000-00000000000a"]
    write_keyed(sink, pa.table(row), [True], 2)
    sink.publish("q", 2, "a", ORIGIN)
    assert read_table_rows(postgres, table) == []
    sink.close()


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("k varchar(3) PRIMARY KEY", "is character varying(3) there, where different texts"),
        ("k uuid PRIMARY KEY", "is uuid there, where different texts"),
        ("k jsonb PRIMARY KEY", "is jsonb there, where different texts"),
        ("k text COLLATE {loose} PRIMARY KEY", '"k" has a collation by which'),
        ("k text COLLATE {loose} PRIMARY KEY", "unique index of the PRIMARY KEY has a collation"),
        ("k text", None),
        ("k text PRIMARY KEY", None),
        ('k varchar COLLATE "C" PRIMARY KEY', None),
    ],
)
def test_texts_of_keys_stay_apart(postgres, table, ddl, said):
    loose = f"loose_{table}"
    postgres.run(
        f"CREATE COLLATION {loose} (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    postgres.run(f"CREATE TABLE {table} ({ddl.format(loose=loose)})")
    if ddl == "k text":
        said = "unique index of the PRIMARY KEY has a collation"
        postgres.run(f"CREATE UNIQUE INDEX ON {table} (k COLLATE {loose})")
    if said is None:
        prepare_sink(postgres, table, {"k": "STRING"}, key=("k",)).close()
        return
    with pytest.raises(SpecError) as caught:
        prepare_sink(postgres, table, {"k": "STRING"}, key=("k",))
    assert said in str(caught.value)


def test_blanks_are_not_cut(postgres, table):
    postgres.run(f"CREATE TABLE {table} (short varchar(3))")
    sink = prepare_sink(postgres, table, {"short": "STRING"})
    publish_rows(sink, pa.table({"short": pa.array(["ab ", "éöü", None, ""])}), 1)
    assert read_table_rows(postgres, table, "short || '|'") == ["ab |", "|", "éöü|", ""]
    stage(sink, pa.table({"short": ["abc", "abc  ", "abd"]}), 2)
    with pytest.raises(EngineError, match=r"too long for type .*the row: short: 'abc  '"):
        sink.publish("q", 2, "a", ORIGIN)
    assert not sink.has_part("q", 2)
    sink.close()
    postgres.run(f"CREATE TABLE {table}b (l varchar(3)[])")
    with pytest.raises(SpecError, match=r"character varying\(3\)\[\] there"):
        prepare_sink(postgres, f"{table}b", {"l": "ARRAY<STRING>"})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("ALTER TABLE {t} ALTER n TYPE smallint", "table-changed"),
        ("DROP TABLE {t}; CREATE TABLE {t} (n bigint)", "sink-replaced"),
        ("ALTER TABLE {t} DROP n", "table-changed"),
        ("ALTER TABLE {t} ADD more int DEFAULT 7", None),
        ("CREATE FUNCTION drops_{t}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.n = 3 THEN RETURN"
         " NULL; END IF; RETURN NEW; END $$; CREATE TRIGGER t BEFORE INSERT ON {t} FOR EACH ROW EXECUTE"
         " FUNCTION drops_{t}()", "sink-refused-row"),
        ("CREATE RULE r AS ON INSERT TO {t} WHERE NEW.n = 3 DO INSTEAD NOTHING", "sink-failed"),
    ],
)  # fmt: skip
def test_a_table_that_is_changed_while_the_job_runs(postgres, table, change, code):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    publish_rows(sink, numbers(1), 1)
    stage(sink, numbers(2, 3), 2)
    postgres.run(change.format(t=table))
    if code is None:
        assert sink.publish("q", 2, "a", ORIGIN)
        assert read_table_rows(postgres, table, "n") == ["1", "2", "3"]
    else:
        with pytest.raises(EngineError) as caught:
            sink.publish("q", 2, "a", ORIGIN)
        assert caught.value.code == code
        assert not sink.has_part("q", 2)
    sink.close()


@pytest.mark.parametrize(
    ("ddl", "values", "said"),
    [
        ("n bigint CHECK (n < 5)", (1, 7, 2), [r"Failing row contains \(7", "constraint"]),
        ("n bigint UNIQUE", (1, 2, 1), [r"Key \(n\)=\(1\) already exists", "constraint"]),
        ("n bigint NOT NULL", (1, None, 2), ["null value in column", "Failing row"]),
        ("n smallint", None, None),
    ],
)
def test_a_row_that_the_table_refuses_is_named(postgres, table, ddl, values, said):
    postgres.run(f"CREATE TABLE {table} ({ddl})")
    if values is None:
        with pytest.raises(SpecError, match="smallint there, and BIGINT"):
            prepare_sink(postgres, table, {"n": "BIGINT"})
        return
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    stage(sink, numbers(*values), 3)
    with pytest.raises(EngineError, match=f"(?s){said[0]}") as caught:
        sink.publish("q", 3, "a", ORIGIN)
    assert caught.value.code == "sink-refused-row"
    assert said[1] in caught.value.message
    assert read_table_rows(postgres, table) == []
    assert not sink.has_part("q", 3)
    sink.close()


def test_a_row_that_the_server_does_not_name_is_looked_for(postgres, table):
    postgres.run(f"CREATE TABLE {table} (n bigint, short varchar(3))")
    sink = prepare_sink(postgres, table, {"n": "BIGINT", "short": "STRING"})
    texts = ["abcd" if number == 777 else "abc" for number in range(1000)]
    stage(sink, pa.table({"n": range(1000), "short": texts}), 1)
    with pytest.raises(EngineError, match=r"too long for type .*the row: n: '777', short: 'abcd'"):
        sink.publish("q", 1, "a", ORIGIN)
    assert read_table_rows(postgres, table) == []
    sink.close()


@pytest.mark.parametrize("nested", [False, True])
def test_a_nul_character_stops_the_job_and_names_the_row(postgres, table, nested):
    kind = pa.list_(pa.string()) if nested else pa.string()
    sink = prepare_sink(postgres, table, {"n": "BIGINT", "s": "ARRAY<STRING>" if nested else "STRING"})
    values = [["a", None], ["b\0c", "d"], None] if nested else ["a", "b\0c", None]
    made = sink.arrow_part(pa.schema([("n", pa.int64()), ("s", kind)]), "q", 1, "a")
    rows = pa.table({"n": [7, 8, 9], "s": pa.array(values, kind)})
    with pytest.raises(EngineError, match=r'"s" has a NUL character.*the row: n: 8') as caught:
        made.write(0, rows.schema, iter(rows.to_batches()))
    assert caught.value.code == "sink-refused-row"
    sink.close()


@pytest.mark.parametrize("nested", [False, True])
def test_a_text_that_is_no_utf_8_stops_the_job_and_is_shown_as_bytes(postgres, table, nested):
    sink = prepare_sink(postgres, table, {"s": "ARRAY<STRING>" if nested else "STRING"})
    texts = pa.array([b"ok", b"a\xffb"]).view(pa.string())
    rows = pa.table({"s": pa.ListArray.from_arrays([0, 1, 2], texts) if nested else texts})
    made = sink.arrow_part(rows.schema, "q", 1, "a")
    with pytest.raises(EngineError) as caught:
        made.write(0, rows.schema, iter(rows.to_batches()))
    assert caught.value.code == "sink-refused-row"
    assert "the row: s: " in caught.value.message
    sink.close()


def test_texts_arrive_in_a_database_of_another_encoding(postgres, table, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    name = f"latin_{table}"
    postgres.run(f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    url = postgres.url.replace("/postgres", f"/{name}")
    for used in (url, f"{url}?client_encoding=utf-8"):
        sink = prepare_sink(postgres, table, {"s": "STRING"}, url=used)
        publish_rows(sink, pa.table({"s": ["é"]}), 1 if used == url else 2)
        sizes = sink.server.run(
            lambda cursor: client.rows_of(cursor, f"SELECT octet_length(s), length(s) FROM {table}")
        )
        assert set(sizes) == {(1, 1)}
        stage_error = "has no equivalent in encoding"
        with pytest.raises(EngineError, match=stage_error) as caught:
            stage(sink, pa.table({"s": ["日"]}), 3)
        assert caught.value.code == "sink-refused-row"
        sink.close()


def test_connections_set_keepalives_to_detect_dead_drivers(postgres, table):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    wanted = {"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3"}
    wanted["tcp_user_timeout"] = "60000"
    for setting, value in wanted.items():
        told = sink.server.run(
            lambda cursor, name=setting: client.rows_of(
                cursor, f"SELECT setting FROM pg_settings WHERE name = '{name}'"
            )
        )
        assert told == [(value,)], setting
    sink.close()


def test_wide_rows_and_large_values(postgres, table):
    columns = {f"c{number}": "STRING" for number in range(1590)} | {"n": "BIGINT"}
    sink = prepare_sink(postgres, table, columns)
    rows = pa.table({**{f"c{n}": ["x", None] for n in range(1590)}, "n": [1, 2]})
    assert publish_rows(sink, rows, 1)
    assert read_table_rows(postgres, table, "n, c1589") == ["1|x", "2|"]
    sink.close()
    sink = prepare_sink(postgres, f"{table}b", {"s": "STRING"})
    assert publish_rows(sink, pa.table({"s": ["y" * (40 << 20), "z"]}), 1)
    assert read_table_rows(postgres, f"{table}b", "length(s)") == ["1", str(40 << 20)]
    sink.close()


@pytest.mark.parametrize("crash", [False, True])
def test_a_server_that_goes_and_comes_is_waited_for(postgres, table, crash, caplog):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, staging="logged")
    publish_rows(sink, numbers(1), 1)
    stage(sink, numbers(2), 2)
    postgres.stop(crash=crash)
    timer = threading.Timer(1.5, postgres.start)
    timer.start()
    began = time.monotonic()
    assert sink.publish("q", 2, "a", ORIGIN)
    assert time.monotonic() - began > 1
    timer.join()
    assert "the server is away" in "\n".join(caplog.messages)
    assert postgres.password not in "\n".join(caplog.messages)
    assert read_table_rows(postgres, table) == ["1", "2"]
    sink.close()


def test_a_crash_that_empties_what_was_staged_is_noticed(postgres, table):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    stage(sink, numbers(1), 1)
    postgres.stop(crash=True)
    postgres.start()
    with pytest.raises(EngineError) as caught:
        sink.publish("q", 1, "a", ORIGIN)
    assert caught.value.code == "staged-rows-gone"
    assert publish_rows(sink, numbers(1), 1, "b")
    assert read_table_rows(postgres, table) == ["1"]
    sink.close()


def test_a_server_that_stays_away_ends_the_wait(postgres, table):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"}, max_wait="1 s")
    stage(sink, numbers(1), 1)
    postgres.stop()
    try:
        with pytest.raises(EngineError, match="did not answer for") as caught:
            sink.publish("q", 1, "a", ORIGIN)
        assert caught.value.code == "sink-unreachable"
        sink.discard("a")
        sink.close()
    finally:
        postgres.start()


def test_a_commit_whose_answer_is_lost_is_looked_for(postgres, table, monkeypatch):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    stage(sink, numbers(1, 2), 1)
    once = client.Server.run_once
    calls = []

    def answer_is_lost(self, work):
        result = once(self, work)
        if work.__name__ == "show" and not calls:
            calls.append(work)
            self.close()
            raise client.client().OperationalError(
                "server closed the connection unexpectedly", status_code=_io(), vendor_code=None
            )
        return result

    monkeypatch.setattr(client.Server, "run_once", answer_is_lost)
    assert sink.publish("q", 1, "a", ORIGIN)
    assert calls
    assert read_table_rows(postgres, table) == ["1", "2"]
    sink.close()


def test_wrong_password_fails_fast_and_is_never_shown(postgres, table):
    url = postgres.url.replace(postgres.password, "not-the-password")
    sink = PostgresSink(Sink("out", "postgres", {"url": url, "table": table}))
    began = time.monotonic()
    with pytest.raises(EngineError, match="password authentication failed") as caught:
        sink.prepare([column("n", "BIGINT")], OWNER)
    assert time.monotonic() - began < 5
    assert "not-the-password" not in str(caught.value)


def test_nothing_shows_the_password(postgres, table):
    sink = prepare_sink(postgres, table, {"n": "BIGINT"})
    made = sink.arrow_part(numbers().schema, "q", 1, "a")
    assert postgres.password not in f"{made!r} {sink.secrets!r} {json.dumps(plain_part(made))}"
    sink.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": ""}, 'needs the option "url"'),
        ({"table": " "}, 'needs the option "table"'),
        ({"url": "postgresql://me:hunter2@ss@db/x"}, "its 'url' is not a PostgreSQL URL"),
        ({"url": "postgresql://me:hunter2@db/x?client_encoding=LATIN1"}, "UTF-8"),
        ({"url": "mysql://me:hunter2@db/x"}, "its 'url' is not a PostgreSQL URL"),
        ({"url": "postgresql://me:hun/ter2@db/x"}, "its 'url' is not a PostgreSQL URL"),
        (
            {"url": "postgresql://me:hunter2@db/x", "password": "hunter2"},
            "'password' is set both as an option and in the url",
        ),
        ({"table": "a.b.c"}, "option 'table' is"),
        ({"table": "x" * 64}, "option 'table' is"),
        ({"table": 'a."b'}, "option 'table' is"),
        ({"staging": "none"}, "option 'staging' is"),
        ({"max_wait": "10"}, "option 'max_wait' is"),
        ({"tabel": "x"}, 'no option "tabel"'),
    ],
)
def test_options_that_cannot_be(options, said):
    with pytest.raises(WatersmeetError) as caught:
        PostgresSink(Sink("out", "postgres", {"url": "postgresql://db/x", "table": "t", **options}))
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_two_sinks_of_one_table_are_refused_before_anything_runs():
    text = """
    CREATE TABLE a (k BIGINT, d INT) WITH ('connector' = 'memory', 'diff.column' = 'd');
    CREATE SINK x WITH ('connector' = 'postgres', 'url' = 'postgresql://me:hunter2@db/s', 'table' =
        'public.t');
    CREATE SINK y WITH ('connector' = 'postgresql', 'url' = 'postgres://DB:5432/s?sslmode=require', 'table' =
        '"public".t');
    INSERT INTO x SELECT k FROM a EMIT CHANGES;
    INSERT INTO y SELECT k FROM a EMIT CHANGES;
    """
    with pytest.raises(WatersmeetError, match='"x" and "y" write to the same table') as caught:
        plan_job(parse_job(text))
    assert "hunter2" not in str(caught.value)


def test_results_that_no_table_takes():
    sink = PostgresSink(Sink("out", "postgres", {"url": "postgresql://db/x", "table": "t"}, None, ("k",)))
    columns = {"x" * 64: "INT", "span": "INTERVAL DAY TO SECOND", "void": "VOID"}
    with pytest.raises(WatersmeetError) as caught:
        sink.prepare([column(name, kind) for name, kind in columns.items()], OWNER)
    for said in ("63 bytes at most", 'the type of "span"', 'the type of "void"', 'no column "k"'):
        assert said in str(caught.value)


def test_a_schema_that_is_not_there(postgres):
    with pytest.raises(SpecError, match='the schema "nowhere" does not exist'):
        prepare_sink(postgres, "nowhere.t", {"n": "BIGINT"})


def test_without_the_client_library(monkeypatch, postgres, table):
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    with pytest.raises(EngineError) as caught:
        prepare_sink(postgres, table, {"n": "BIGINT"})
    assert "pip install 'watersmeet[postgres]'" in caught.value.hint
