"""File sinks in an object store: parts are whole, there once, and this job's, whatever goes wrong."""

from __future__ import annotations

import errno
import itertools
import json
import os
import time

import pyarrow as pa
import pytest
from obstore.store import S3Store
from pyarrow import parquet

from tests.support.effort import at_effort
from tests.support.s3 import FAULTS, FULL, KEYS, TIMEOUT_S, FullBucket, Proxy, make_bucket, s3_server
from watersmeet import parse_job, plan_job
from watersmeet.errors import EngineError, SpecError, WatersmeetError
from watersmeet.objects import object_store
from watersmeet.objects.object_store import ObjectLocation
from watersmeet.sinks import object_store as module
from watersmeet.sinks import object_store as places
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.registry import make_sink, part_from, plain_part
from watersmeet.spec.model import Column, Sink
from watersmeet.types.parser import sql_type

COLUMNS = (Column("k", sql_type("BIGINT")), Column("v", sql_type("STRING")))
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
OWNER = "job-1"
INSERT = "out b/ä_1"
WAITS = {"timeout_s": 20.0, "patience_s": 60.0}


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def server():
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    patient = places.stored_place

    def place(url, endpoint, region):
        made = patient(url, endpoint, region)
        return ObjectLocation(made.url, made.options, allow_http=made.allow_http, **WAITS)

    for where in ("watersmeet.sinks.object_store", "watersmeet.sinks.object_store"):
        monkeypatch.setattr(f"{where}.stored_place", place)
    monkeypatch.setattr(places, "extend_timeout", lambda place, size: place)


@pytest.fixture
def bucket(server):
    return make_bucket(server)


def options(endpoint, bucket):
    return {"path": f"s3://{bucket}/out/rows", "endpoint": endpoint, "region": "us-east-1"}


def open_sink(endpoint, bucket, owner=OWNER, **more):
    sink = make_sink(Sink("out", "file", options(endpoint, bucket) | more))
    sink.prepare(COLUMNS, owner)
    return sink


def rows_of(tick):
    return [] if tick == 2 else [(n, f"t{tick}") for n in range(tick * 3)]


def identity(tick, of="a"):
    return {"rows": f"{of}{tick}", "clock": str(tick)}


def stage(sink, tick, attempt, rows=None):
    """By two tasks, the first of which runs twice."""
    rows = rows_of(tick) if rows is None else rows
    part = part_from(json.loads(json.dumps(plain_part(sink.arrow_part(SCHEMA, INSERT, tick, attempt)))))
    said = []
    for number in (0, 0, 1):
        batch = (
            pa.record_batch(
                [pa.array(c) for c in zip(*rows[number::2], strict=True)] or [[], []], schema=SCHEMA
            )
            if rows[number::2]
            else None
        )
        said.append(part.write(number, SCHEMA, iter([] if batch is None else [batch])))
    sink.take_parts(INSERT, tick, attempt, [staged for staged in said[1:] if staged is not None])


def write(sink, tick, attempt="x", of="a", rows=None):
    stage(sink, tick, attempt, rows)
    assert sink.staged_rows(INSERT, tick, attempt) == len(rows_of(tick) if rows is None else rows)
    sink.check(INSERT, tick, identity(tick, of))
    return sink.publish(INSERT, tick, attempt, identity(tick, of))


class Bucket:
    """What is in it, as another client sees it."""

    def __init__(self, endpoint, bucket):
        self.client = S3Store(
            bucket, endpoint=endpoint, region="us-east-1", client_options={"allow_http": True}
        )

    def names(self):
        return sorted(entry["path"] for batch in self.client.list() for entry in batch)

    def seen(self):
        """What a reader of path/*.parquet sees, that leaves out what begins with ``_``."""
        names = [name.split("/") for name in self.names()]
        return ["/".join(n) for n in names if len(n) == 3 and n[2][0] != "_" and n[2].endswith(".parquet")]

    def rows(self):
        tables = [parquet.read_table(pa.BufferReader(bytes(self.client.get(n).bytes()))) for n in self.seen()]
        return sorted((row["k"], row["v"]) for table in tables for row in table.to_pylist())


def compute_expected_rows(last):
    return sorted(row for tick in range(1, last + 1) for row in rows_of(tick))


def test_ticks_are_objects_of_their_own(server, bucket):
    sink, there = open_sink(server, bucket), Bucket(server, bucket)
    assert [write(sink, tick) for tick in (1, 2, 3)] == [True, False, True]
    assert there.rows() == compute_expected_rows(3)
    assert sink.parts() == [(INSERT, 1), (INSERT, 3)]
    assert [sink.has_part(INSERT, tick) for tick in (1, 2, 3, 4)] == [True, False, True, False]
    assert [name for name in there.names() if "_attempts" in name and "-000000000002" not in name] != []
    sink = open_sink(server, bucket)  # what attempts of tasks left that counted nothing is gone
    assert len(there.names()) == 3


def test_nobody_sees_what_is_staged(server, bucket):
    sink, there = open_sink(server, bucket), Bucket(server, bucket)
    stage(sink, 1, "x")
    assert there.seen() == []
    sink.discard("x")
    sink.discard("never")
    with pytest.raises(EngineError, match="staged-rows-gone"):
        sink.publish(INSERT, 1, "x", identity(1))


def test_parts_in_folders_of_their_own_are_moved_up(server, bucket):
    """As versions before kept them; the move may be killed at any time."""
    sink, there = open_sink(server, bucket), Bucket(server, bucket)
    for tick in (1, 3):
        write(sink, tick)
    for name in there.seen():
        there.client.copy(name, f"{name.removesuffix('.parquet')}/rows.parquet")
    there.client.delete(there.seen()[1])
    with pytest.raises(EngineError, match="sink-of-another-run"):
        open_sink(server, bucket, "job-2")
    assert write(open_sink(server, bucket), 3, "y")
    assert there.rows() == compute_expected_rows(3)
    assert not [name for name in there.names() if name.endswith("/rows.parquet")]


def test_a_tick_that_is_there_stays_if_it_is_the_same(server, bucket):
    sink, there = open_sink(server, bucket), Bucket(server, bucket)
    write(sink, 1)
    assert write(open_sink(server, bucket), 1, "y")
    assert there.rows() == compute_expected_rows(1)
    for attempt in ("check", "publish"):
        other = open_sink(server, bucket)
        stage(other, 1, "z")
        with pytest.raises(EngineError, match=r"sink-of-another-tick.*other rows"):
            getattr(other, attempt)(*(INSERT, 1, *(["z"] if attempt == "publish" else []), identity(1, "b")))
    with pytest.raises(EngineError, match="sink-of-another-tick"):
        write(open_sink(server, bucket), 1, "w", "b", rows=[])
    assert there.rows() == compute_expected_rows(1)


def test_a_run_that_slept_puts_nothing_over_another_s(server, bucket):
    asleep = open_sink(server, bucket)
    stage(asleep, 1, "x")
    write(open_sink(server, bucket), 1, "y", "b", rows=[(7, "other")])
    with pytest.raises(EngineError, match=r"sink-of-another-tick|staged-rows-gone"):
        asleep.publish(INSERT, 1, "x", identity(1))
    assert Bucket(server, bucket).rows() == [(7, "other")]


@pytest.mark.parametrize("fault", at_effort(quick=["reset", "unavailable but done", "cut"], full=FAULTS))
def test_failed_requests_are_repeated(server, fault, monkeypatch):
    """Fail some requests in turn, at quick effort every ninth: the rows of each cycle are right."""
    if fault == "slow":
        monkeypatch.setitem(WAITS, "timeout_s", TIMEOUT_S)
    with Proxy(server) as proxy:
        asked, at = itertools.count(), -1

        def fault_at(method, path, number):
            return fault if next(asked) == at else None

        proxy.fault = fault_at
        cycles = 0
        while True:
            asked, cycle = itertools.count(), make_bucket(server)
            at = cycles if cycles else -1
            sink = open_sink(proxy.endpoint, cycle)
            assert write(sink, 1)
            assert not write(sink, 2)
            assert (
                open_sink(proxy.endpoint, cycle).resume(
                    [INSERT], Resumed(1, last_parts={INSERT: (1, identity(1))})
                )
                == []
            )
            assert Bucket(server, cycle).rows() == compute_expected_rows(1)
            total = next(asked)
            cycles += at_effort(quick=9, full=2 if fault in ("lost", "unavailable but done") else 5)
            if cycles > total:
                break
    assert proxy.faults[fault] >= at_effort(quick=2, full=5)


def test_killed_at_each_request(server, monkeypatch):
    """And the one that comes after it repeats the tick."""
    real, count, at = object_store.send_request, itertools.count(), -1

    def killing(*args, **named):
        if next(count) == at:
            raise Killed
        return real(*args, **named)

    for where in ("watersmeet.sinks.object_store", "watersmeet.objects.object_store"):
        monkeypatch.setattr(f"{where}.send_request", killing)
    killed, stride = 0, at_effort(quick=5, full=1)
    for at_request in itertools.count(0, stride):
        bucket, count, at = make_bucket(server), itertools.count(), at_request
        committed, last_parts, ended = 0, {}, False
        for attempt in ("x", "y"):
            try:
                sink = open_sink(server, bucket)
                pending = attempt == "y"
                assert sink.resume([INSERT], Resumed(committed, pending, last_parts)) == []
                for tick in range(committed + 1, 4):
                    if write(sink, tick, f"{attempt}{tick}"):
                        last_parts[INSERT] = (tick, identity(tick))
                    committed = tick
                ended = attempt == "x"
                break
            except Killed:
                killed += 1
                at = -1
        assert Bucket(server, bucket).rows() == compute_expected_rows(3), at_request
        if ended:
            break
    assert killed * stride >= 25


def test_whose_parts(server, bucket):
    sink, there = open_sink(server, bucket), Bucket(server, bucket)
    with pytest.raises(EngineError, match="sink-of-another-run"):
        open_sink(server, bucket, "job-2")
    write(sink, 1)
    with pytest.raises(EngineError, match=r"sink-of-another-run.*rows of another job"):
        open_sink(server, bucket, "job-2")
    there.client.put("out/rows/_owner", b"job-2")
    with pytest.raises(EngineError, match="sink-taken"):
        write(sink, 3)
    there.client.delete("out/rows/_owner")
    with pytest.raises(EngineError, match="sink-taken"):
        write(sink, 3)
    with pytest.raises(EngineError, match="sink-of-another-run"):
        open_sink(server, bucket)
    assert there.rows() == compute_expected_rows(1)


def test_a_place_with_something_else_is_refused(server, bucket):
    Bucket(server, bucket).client.put("out/rows/mine.csv", b"1")
    with pytest.raises(EngineError, match=r'sink-not-empty.*"mine.csv"'):
        open_sink(server, bucket)


def test_parts_of_later_ticks_are_refused_or_set_aside(server, bucket):
    sink, there = open_sink(server, bucket), Bucket(server, bucket)
    for tick in (1, 3, 4):
        write(sink, tick)
    known = {INSERT: (1, identity(1))}
    sink = open_sink(server, bucket)
    with pytest.raises(EngineError, match="sink-ahead"):
        sink.resume([INSERT], Resumed(2, last_parts=known))
    with pytest.raises(EngineError, match="sink-of-another-history"):
        sink.resume([INSERT], Resumed(4, last_parts={INSERT: (4, identity(4, "b"))}))
    (said,) = sink.resume([INSERT], Resumed(2, last_parts=known, set_aside=True))
    assert "tick 3" in said
    assert there.rows() == compute_expected_rows(1)
    assert len([name for name in there.names() if "_set_aside" in name]) == 2
    assert write(sink, 3, "y", "b")
    assert there.rows() == compute_expected_rows(3)


def test_a_store_without_conditions_is_refused(server, bucket):
    with Proxy(server) as proxy:
        proxy.ignores = "if-none-match"
        with pytest.raises(EngineError, match="no-conditional-put"):
            open_sink(proxy.endpoint, bucket)


def test_store_rejection_names_the_sink(server):
    with pytest.raises(EngineError, match=r'sink "out".*no-bucket|no-bucket.*sink "out"'):
        open_sink(server, "there-is-no-such-bucket")


@pytest.mark.parametrize("compression", ["zstd", "none", "GZIP", "snappy"])
def test_compression(server, bucket, compression):
    sink, there = open_sink(server, bucket, compression=compression), Bucket(server, bucket)
    write(sink, 3)
    footer = parquet.read_metadata(pa.BufferReader(bytes(there.client.get(there.seen()[0]).bytes())))
    wanted = {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert footer.row_group(0).column(0).compression == wanted


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"path": "s3://bucket"}, "wrong-option"),
        ({"path": "s3://user:secret@bucket/x"}, "wrong-option"),
        ({"path": "s3://bucket/a//b"}, "wrong-option"),
        ({"path": "s3://bucket/a/../b"}, "wrong-option"),
        ({"path": "s3://bucket/a?x=1"}, "wrong-option"),
        ({"path": "s3://bucket/x", "format": "csv"}, "format-not-supported"),
        ({"path": "s3://bucket/x", "format": "orc"}, "unknown-format"),
        ({"path": "s3://bucket/x", "secret_key": "abc"}, "unknown-option"),
        ({"path": "s3://bucket/x", "compression": "zip"}, "wrong-option"),
        ({"path": "s3://bucket/x", "endpoint": "localhost:9000"}, "wrong-option"),
        ({"path": "gs://bucket/x", "region": "here"}, "wrong-option"),
    ],
)
def test_options_are_checked_at_once(given, code):
    with pytest.raises(SpecError, match=code) as raised:
        make_sink(Sink("out", "file", given))
    assert "secret@" not in str(raised.value)


def test_types_that_parquet_would_not_give_back(server, bucket):
    sink = make_sink(Sink("out", "file", options(server, bucket)))
    with pytest.raises(SpecError, match="column-type"):
        sink.prepare((Column("i", sql_type("INTERVAL DAY TO SECOND")),), OWNER)


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"no Parquet at all", b"PAR1" + b"\0" * 20 + b"\x0c\0\0\0PAR1"]
)
def test_a_part_that_is_damaged_is_refused(server, bucket, content):
    Bucket(server, bucket).client.put("out/rows/_owner", OWNER.encode())
    Bucket(server, bucket).client.put(f"out/rows/{module._final(INSERT, 1)}", content)
    with pytest.raises(EngineError, match=r"sink-of-another-tick.*cannot be read"):
        write(open_sink(server, bucket), 1)


def test_a_staged_object_that_is_damaged_is_refused(server, bucket):
    sink = open_sink(server, bucket)
    stage(sink, 1, "x")
    staged = next(name for name in Bucket(server, bucket).names() if "_attempts" in name)
    for part in sink._staged[INSERT, 1, "x"]:
        Bucket(server, bucket).client.put(f"out/rows/{part['name']}", b"damaged")
    assert staged
    with pytest.raises(EngineError, match="staged-rows-gone"):
        sink.publish(INSERT, 1, "x", identity(1))


def test_full_disk_is_reported_at_once(server, bucket, monkeypatch):
    sink = open_sink(server, bucket)
    stage(sink, 1, "x")
    real = places.Path.open

    def full(path, *args, **named):
        if "watersmeet-stored-" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, *args, **named)

    monkeypatch.setattr(places.Path, "open", full)
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"(?s)disk-full.*TMPDIR"):
        sink.publish(INSERT, 1, "x", identity(1))
    assert time.monotonic() - began < 3


def test_what_killed_processes_left_on_disk_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(places.tempfile, "tempdir", str(tmp_path))
    for name, age_s in (("watersmeet-stored-old", 90_000), ("watersmeet-stored-new", 60), ("others", 90_000)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    with places.temporary_folder() as folder:
        assert folder.is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["others", "watersmeet-stored-new"]


JOB = """
    CREATE TABLE a (id BIGINT, t BIGINT, WATERMARK FOR t AS t - 0)
      WITH ('connector' = 'File', 'path' = '{a}');
    CREATE TABLE out WITH ('connector' = 'File', 'path' = '{out}');
    CREATE TABLE more WITH ('connector' = 'File', 'path' = '{more}');
    INSERT INTO out SELECT x.id FROM a x JOIN a y ON x.id = y.id AND x.t BETWEEN y.t - 5 AND y.t + 5;
    INSERT INTO more SELECT x.id FROM a x JOIN a y ON x.id = y.id AND x.t BETWEEN y.t - 5 AND y.t + 5"""


@pytest.mark.parametrize(
    ("paths", "code"),
    [
        ({"a": "s3a://b/rows", "out": "s3://b/rows/", "more": "s3://b/x"}, "sink-in-source"),
        ({"a": "s3://b/*", "out": "s3a://b/rows/of/it", "more": "s3://c/x"}, "sink-in-source"),
        ({"a": "s3://a/rows", "out": "s3://b/rows", "more": "s3a://b/rows/"}, "shared-place"),
        ({"a": "s3://a/rows", "out": "s3://b/rows/of", "more": "s3a://b/rows"}, "shared-place"),
        ({"a": "in/rows", "out": "s3://b/rows", "more": "s3://b/rows2"}, None),
    ],
)
def test_places_of_a_job_do_not_overlap(paths, code):
    def plan_paths():
        return plan_job(parse_job(JOB.format(**paths)))

    if code is None:
        plan_paths()
        return
    with pytest.raises(WatersmeetError) as raised:
        plan_paths()
    raised_all = getattr(raised.value, "exceptions", [raised.value])
    assert code in str(raised.value) or code in [error.code for error in raised_all]


@pytest.mark.parametrize("says", FULL)
def test_a_bucket_without_room(server, bucket, monkeypatch, says):
    """At each of the two puts of a tick: refused in a line, and put once when there is room."""
    monkeypatch.setitem(WAITS, "patience_s", 0.05)
    full, there = FullBucket(), Bucket(server, bucket)
    with Proxy(server, full) as proxy:
        sink = open_sink(proxy.endpoint, bucket)
        for tick, only in ((1, "_attempts"), (3, "-000000000003.parquet")):
            full.says, full.only = says, only
            with pytest.raises(WatersmeetError) as raised:
                write(sink, tick)
            assert raised.value.code == "store-full"
            assert f"s3://{bucket}/out/rows" in raised.value.message
            assert "make room" in raised.value.hint
            full.says = None
            sink = open_sink(proxy.endpoint, bucket)
            assert write(sink, tick, "y")
    assert there.rows() == sorted([*rows_of(1), *rows_of(3)])
