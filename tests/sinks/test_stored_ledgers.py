"""What sinks hold to know that a tick is out is read as it was written once, by every later version.

``stored_ledgers.json`` has, per system, the texts that a job left there at tick 7. They are never changed: a
version that does not find tick 7 in them writes the rows of a user's tick a second time. A new system gets
them with WATERSMEET_GOLDEN=write.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from confluent_kafka import KafkaError

from tests.sinks import function_frames, given_functions
from tests.sinks.lake.lake_runs import COLUMNS, stage_in_two_tasks
from tests.sinks.lake.lake_tables import Delta, Iceberg
from tests.sinks.test_files import Frame
from watersmeet.errors import EngineError
from watersmeet.objects.object_store import ObjectLocation
from watersmeet.sinks.kafka.control_topic import Control, ProducerRun, TickMarks
from watersmeet.sinks.kafka.sink import KafkaSink
from watersmeet.sinks.lake.commits import Writer
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.postgres.ledger import PostgresLedger
from watersmeet.sinks.registry import make_sink
from watersmeet.spec.model import Sink

STORED = Path(__file__).with_name("stored_ledgers.json")
OWNER, OTHER = "0123456789abcdef0123456789abcdef", "f" * 32
INSERT, TICK = "out b/ä_1", 7
PARTS = ("ticks before it", "clock", "offsets", "settings", "rows", "tables")
IDENTITY = {name: f"{number:032x}" for number, name in enumerate(PARTS, 1)}
OTHER_IDENTITY = IDENTITY | {"rows": "0" * 32}
RESUMED = Resumed(TICK, False, {INSERT: (TICK, IDENTITY)})
ROWS = [(1, "one", False), (2, "two", False)]

Texts = dict[str, Any]


def load_stored_texts(system: str, write: Callable[[], Texts]) -> Texts:
    """The texts of a system; they are written if there are none yet."""
    every: dict[str, Texts] = json.loads(STORED.read_text()) if STORED.exists() else {}
    if system not in every and os.environ.get("WATERSMEET_GOLDEN") == "write":
        every[system] = write()
        STORED.write_text(json.dumps(every, indent=1, ensure_ascii=False) + "\n")
    return every[system]


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def lay_out(texts: Texts, folder: Path) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(text) if path.suffix == ".arrow" else text.encode())


def texts_in(folder: Path) -> Texts:
    """All files; those with rows are not looked into, and are empty here."""
    return {
        path.relative_to(folder).as_posix(): "" if path.suffix == ".parquet" else path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in ("", ".json", ".parquet")
    }


def check_is_out(make: Callable[[str], Any], owner_is_of_table: bool = True) -> None:
    """Assert that a sink finds its tick 7, as it was made, and no later one; and that others do not have it.

    Args:
        make: returns a sink that is prepared for the job of this id.
        owner_is_of_table: of two jobs one alone may write there; else each has ticks of its own.
    """
    sink = make(OWNER)
    assert sink.has_part(INSERT, TICK, OWNER)
    assert not sink.has_part(INSERT, TICK + 1, OWNER)
    assert not sink.has_part("another insert", TICK, OWNER)
    assert sink.resume([INSERT], RESUMED) == []
    sink.check(INSERT, TICK, IDENTITY)
    assert catch_error_code(lambda: sink.check(INSERT, TICK, OTHER_IDENTITY)) == "sink-of-another-tick"
    assert catch_error_code(lambda: sink.resume([INSERT], Resumed(TICK - 1))) == "sink-ahead"
    sink.close()
    if owner_is_of_table:
        assert catch_error_code(lambda: make(OTHER)) == "sink-of-another-run"
    else:
        assert not make(OTHER).has_part(INSERT, TICK, OTHER)


def catch_error_code(call: Callable[[], Any]) -> str:
    with pytest.raises(EngineError) as raised:
        call()
    return raised.value.code


def test_files(tmp_path):
    def make_file_sink(owner: str, folder: Path = tmp_path / "out") -> Any:
        sink = make_sink(Sink("out", "file", {"path": str(folder)}))
        sink.prepare(COLUMNS, owner)
        return sink

    def write() -> Texts:
        sink = make_file_sink(OWNER, tmp_path / "written")
        sink.write(Frame([{"k": "one", "v": 1}]), INSERT, TICK, "attempt")
        assert sink.publish(INSERT, TICK, "attempt", IDENTITY)
        sink.close()
        return texts_in(tmp_path / "written")

    texts = load_stored_texts("file", write)
    assert write() == texts
    lay_out(texts, tmp_path / "out")
    check_is_out(make_file_sink)


def test_objects(monkeypatch):
    from obstore.store import MemoryStore

    client = MemoryStore()
    monkeypatch.setattr(ObjectLocation, "client", lambda place: client)

    def make_object_sink(owner: str) -> Any:
        sink = make_sink(Sink("out", "file", {"path": "s3://bucket/out", "region": "x"}))
        sink.prepare(COLUMNS, owner)
        return sink

    def write() -> Texts:
        sink = make_object_sink(OWNER)
        stage_in_two_tasks(sink, INSERT, TICK, "attempt", ROWS, keyed=False)
        assert sink.publish(INSERT, TICK, "attempt", IDENTITY)
        names = [str(entry["path"]) for entries in client.list() for entry in entries]
        there = sorted(name for name in names if not name.startswith("_attempts/"))
        return {name: encode_base64(bytes(client.get(name).bytes())) for name in there}

    texts = load_stored_texts("objects", write)
    client = MemoryStore()
    assert set(write()) == set(texts)
    client = MemoryStore()
    for name, text in texts.items():
        client.put(name, base64.b64decode(text))
    check_is_out(make_object_sink)


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_tables(kind, tmp_path):
    def make_table_sink(owner: str, table: Any) -> Any:
        sink = make_sink(Sink("out", table.connector, table.options, COLUMNS))
        sink.prepare(COLUMNS, owner)
        return sink

    def write(folder: str = "written") -> Texts:
        table = kind(tmp_path / folder)
        sink = make_table_sink(OWNER, table)
        sink.resume([INSERT], Resumed(TICK - 1))
        stage_in_two_tasks(sink, INSERT, TICK, "attempt", ROWS, keyed=False)
        assert sink.publish(INSERT, TICK, "attempt", IDENTITY)
        if kind is Iceberg:
            summary = table.table().current_snapshot().summary.additional_properties
            every = {**table.table().properties, **{f"snapshot: {n}": t for n, t in summary.items()}}
            return {name: text for name, text in every.items() if "watersmeet." in name}
        return {n: t.replace(str(table.path), "/table") for n, t in texts_in(table.path).items() if t}

    texts = load_stored_texts(kind.connector, write)
    table = kind(tmp_path / "stored")
    if kind is Iceberg:
        now = write("again")
        assert {name for name in now if now[name] != texts.get(name)} == set(filter(is_random, texts))
        make_table_sink(OWNER, table).close()
        with table.table().transaction() as transaction:
            transaction.set_properties({n: t for n, t in texts.items() if not n.startswith("snapshot: ")})
    else:
        lay_out(texts, table.path)
    assert make_table_sink(OWNER, table).table.tick_identity(Writer(OWNER, INSERT), TICK) == IDENTITY
    check_is_out(lambda owner: make_table_sink(owner, table), owner_is_of_table=False)


def is_random(name: str) -> bool:
    return name.endswith(".fence")


def test_functions(tmp_path):
    number = count()

    def make_function_sink(owner: str, folder: Path = tmp_path / "state") -> Any:
        return function_frames.prepare_sink(function_frames.sink_of("keep"), folder, owner)

    def write() -> Texts:
        folder = tmp_path / f"written {next(number)}"
        sink = make_function_sink(OWNER, folder)
        attempt = function_frames.stage(sink, TICK, [("k1", "v1"), ("k2", None)], 1, INSERT)
        sink.publish(INSERT, TICK, attempt, IDENTITY)
        (record,) = (folder / "parts").iterdir()
        ((rows, _),) = json.loads(record.read_text())["parts"]
        return {f"parts/{record.name}": record.read_text(), rows: encode_base64((folder / rows).read_bytes())}

    texts = load_stored_texts("function", write)
    assert next(iter(write())) == next(iter(texts)), "the name of the record"
    lay_out(texts, tmp_path / "state")
    given_functions.CALLS.clear()
    sink = make_function_sink(OWNER)
    assert sink.has_part(INSERT, TICK)
    assert catch_error_code(lambda: sink.check(INSERT, TICK, OTHER_IDENTITY)) == "sink-of-another-tick"
    attempt = function_frames.stage(sink, TICK, [("other", "rows")], 1, INSERT)
    assert sink.publish(INSERT, TICK, attempt, IDENTITY)
    ((part, rows),) = given_functions.CALLS
    assert (part.tick, rows.to_pydict()) == (TICK, {"k": ["k1", "k2"], "v": ["v1", None]})


class Topic:
    """A control topic with these records, as the client reads it."""

    sink = "out"

    def __init__(self, records: list[list[str]]) -> None:
        self._records = records

    def reader(self) -> Any:
        messages = [message(key.encode(), value.encode()) for key, value in self._records]
        end = message(None, None, offset=len(messages), error=KafkaError._PARTITION_EOF)
        told = lambda *asked, **how: [*messages, end]  # noqa: E731
        return SimpleNamespace(assign=lambda places: None, consume=told, close=lambda: None)

    def admin(self) -> Any:
        answer = SimpleNamespace(result=lambda wait_s: SimpleNamespace(offset=len(self._records)))
        return SimpleNamespace(list_offsets=lambda asked, **how: dict.fromkeys(asked, answer))


def message(key: bytes | None, value: bytes | None, offset: int = 0, error: int | None = None) -> Any:
    failed = None if error is None else SimpleNamespace(code=lambda: error)
    return SimpleNamespace(key=lambda: key, value=lambda: value, offset=lambda: offset, error=lambda: failed)


def test_kafka():
    run = ProducerRun("a" * 32, "watersmeet-before")

    def control(owner: str, records: list[list[str]]) -> Control:
        return Control(Topic(records), "watersmeet-ticks", "the topic", owner)

    def write() -> Texts:
        own = control(OWNER, [])
        marks = TickMarks(ticks={INSERT: (TICK - 1, IDENTITY)})
        records = [
            own.run_record(run, marks, has_all=True, topic_id="id of the topic"),
            own.tick_record(INSERT, TICK, IDENTITY),
        ]
        options = {"bootstrap.servers": "nowhere:1", "topic": "the topic", "format": "json"}
        sink = KafkaSink(Sink("out", "kafka", options))
        return {
            "records": [[key.decode(), value.decode()] for key, value in records],
            "transactional.id": sink._build_producer(OWNER)._run.transactional_id,
        }

    texts = load_stored_texts("kafka", write)
    assert write() == texts
    marks = control(OWNER, texts["records"]).read(1)
    assert marks.ticks == {INSERT: (TICK, IDENTITY)}
    assert marks.run == run
    assert marks.has_all
    assert (marks.ticks_before, marks.topic_id) == ({INSERT: TICK - 1}, "id of the topic")
    assert control(OTHER, texts["records"]).read(1).ticks == {}


class Cursor:
    """DuckDB as far as a ledger's statements go; it has no locks of rows."""

    def __init__(self) -> None:
        self._db = duckdb.connect()
        self._db.execute(
            "CREATE MACRO pg_advisory_xact_lock(x) AS TABLE SELECT 1; CREATE MACRO pg_backend_pid() AS 42"
        )
        self.statements: list[str] = []

    def execute(self, sql: str, parameters: Any = None) -> None:
        self.statements.append(sql)
        known = sql.removesuffix(" FOR UPDATE").replace(" at timestamptz", ' "at" timestamptz')
        self._db.execute(known, parameters or ())

    def fetchall(self) -> list[Any]:
        return self._db.fetchall()


def test_postgres():
    ledger = PostgresLedger("out", "main", "the table")
    tables = {"_watersmeet_sinks": "target, owner, run, written_to"}
    tables["_watersmeet_ticks"] = "target, insert_name, tick, identity, rows"

    def write() -> Texts:
        cursor = Cursor()
        ledger.make(cursor)
        ledger.take(cursor, OWNER, "a" * 32, "1/2/3", accepts=False)
        ledger.record_table(cursor, "1/2/3")
        ledger.add(cursor, INSERT, TICK, IDENTITY, 2)
        rows = {}
        made = [sql for sql in cursor.statements if sql.startswith("CREATE")]
        for table, columns in tables.items():
            cursor.execute(f"SELECT {columns} FROM {table}")
            rows[table] = [list(row) for row in cursor.fetchall()]
        return {"made": made, "rows": rows, "lock": ledger.lock, "staging": ledger.staging}

    texts = load_stored_texts("postgres", write)
    assert write() == texts
    cursor = Cursor()
    for sql in texts["made"]:
        cursor.execute(sql)
    for table, rows in texts["rows"].items():
        for row in rows:
            marks = ", ".join(f"${n}" for n in range(1, len(row) + 1))
            cursor.execute(f"INSERT INTO {table} ({tables[table]}) VALUES ({marks})", row)
    assert ledger.ticks(cursor) == {(INSERT, TICK): IDENTITY}
    assert ledger.tick(cursor, INSERT, TICK) == IDENTITY
    assert ledger.last_ticks(cursor, INSERT, TICK + 1) == (TICK, None)
    assert ledger.last_ticks(cursor, INSERT, TICK) == (None, IDENTITY)
    assert ledger.fence(cursor, OWNER, "a" * 32) == 42
    assert not ledger.take(cursor, OWNER, "b" * 32, "1/2/3", accepts=False)
    assert (
        catch_error_code(lambda: ledger.take(cursor, OWNER, "b" * 32, "1/2/4", accepts=False))
        == "sink-replaced"
    )
    assert catch_error_code(lambda: ledger.take(cursor, OTHER, "b" * 32, "1/2/3", accepts=False)) == (
        "sink-of-another-run"
    )
