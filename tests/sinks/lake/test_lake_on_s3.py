"""The same tables in S3, on a server over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sinks.lake import test_lake_sinks as local
from tests.sinks.lake.lake_runs import COLUMNS, compute_expected_rows, identity, rows_of, stage_in_two_tasks
from tests.sinks.lake.lake_tables import Delta, Iceberg
from tests.support.s3 import FULL, KEYS, make_bucket
from watersmeet.errors import EngineError
from watersmeet.sinks.lake import commits
from watersmeet.sinks.lake.storage import Storage
from watersmeet.sinks.part_mark import Resumed
from watersmeet.sinks.registry import make_sink, plain_part
from watersmeet.spec.model import Sink as SinkSpec

SERVER = """
import sys
from pathlib import Path
from tests.support.s3 import FullBucket, Proxy, s3_server


class Told(FullBucket):
    def __call__(self, *request):
        told = Path(sys.argv[1])
        self.says = told.read_text() if told.exists() else None
        return super().__call__(*request)


with s3_server() as endpoint, Proxy(endpoint, Told()) as proxy:
    print(endpoint, proxy.endpoint, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def there_is_no_room(tmp_path_factory):
    """A file: what the server says behind its other endpoint; if it is not there, there is room."""
    return tmp_path_factory.mktemp("full") / "says"


@pytest.fixture(scope="module")
def endpoints(there_is_no_room):
    """In a process of its own: `deltalake` waits for answers while no other thread of this one can run."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, there_is_no_room],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    yield server.stdout.readline().split()
    server.stdin.close()
    server.stdout.close()
    server.wait(20)


@pytest.fixture(scope="module")
def endpoint(endpoints):
    return endpoints[0]


@pytest.fixture(autouse=True)
def _keys(monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(commits.time, "sleep", lambda seconds: None)


class InS3:
    """Files of a table are those in its bucket."""

    def files(self):
        paths = Storage(True, self.endpoint, "us-east-1").files_in(self.bucket)
        return len([path for path in paths if "/ws-" in path])


class S3Delta(InS3, Delta):
    def __init__(self, folder, endpoint):
        super().__init__(folder)
        self.endpoint, self.bucket = endpoint, make_bucket(endpoint)
        self.uri = f"s3://{self.bucket}/tables/delivered"
        self.options = {"path": self.uri, "endpoint": endpoint, "region": "us-east-1"}
        self.storage = {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}

    def arrow(self):
        from deltalake import DeltaTable

        return DeltaTable(self.uri, storage_options=self.storage).to_pyarrow_table()


class S3Iceberg(InS3, Iceberg):
    def __init__(self, folder, endpoint):
        super().__init__(folder)
        self.endpoint, self.bucket = endpoint, make_bucket(endpoint)
        self.options |= {
            "catalog.warehouse": f"s3://{self.bucket}/warehouse",
            "catalog.s3.endpoint": endpoint,
            "catalog.s3.region": "us-east-1",
        }


@pytest.fixture(params=[S3Delta, S3Iceberg], ids=lambda made: made.connector)
def table(request, tmp_path, endpoint):
    return request.param(tmp_path, endpoint)


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.full), True])
def test_ticks_come_out_once(table, keyed):
    local.test_ticks_come_out_once(table, keyed)


def test_nothing_is_seen_before_it_is_published(table):
    local.test_nothing_is_seen_before_it_is_published(table)


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.full), True])
def test_a_run_that_was_overtaken(table, keyed, monkeypatch):
    local.test_a_run_that_was_overtaken_while_it_committed(table, keyed, monkeypatch)


@pytest.mark.full
def test_run_whose_staged_files_were_deleted_commits_nothing(table):
    local.test_run_whose_staged_files_were_deleted_commits_nothing(table)


def test_task_part_contains_no_credentials(table):
    sink = make_sink(SinkSpec("out", table.connector, table.options, COLUMNS))
    sink.prepare(COLUMNS, "job-1")
    told = json.dumps(plain_part(sink.arrow_part(None, "a", 1, "x")))
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in told
    assert KEYS["AWS_ACCESS_KEY_ID"] not in told


def test_a_bucket_that_is_not_there(tmp_path, endpoint):
    table = S3Delta(tmp_path, endpoint)
    options = {**table.options, "path": "s3://there-is-none/t"}
    with pytest.raises(EngineError) as raised:
        make_sink(SinkSpec("out", "delta", options, COLUMNS)).prepare(COLUMNS, "job-1")
    assert raised.value.code == "sink-not-writable"


@pytest.mark.parametrize(
    ("made", "at"),
    [
        (S3Delta, "commit"),
        (S3Iceberg, "staging"),
        pytest.param(S3Delta, "staging", marks=pytest.mark.full),
        pytest.param(S3Iceberg, "commit", marks=pytest.mark.full),
    ],
    ids=lambda value: getattr(value, "connector", value),
)
def test_a_bucket_without_room(tmp_path, endpoints, there_is_no_room, made, at):
    """Told as that, in one line; with room again the tick is there once. (Not 507, which
    Delta's client repeats ten times by itself.)"""
    table = made(tmp_path, endpoints[1])
    sink = make_sink(SinkSpec("out", table.connector, table.options, COLUMNS))
    sink.prepare(COLUMNS, "job-1")
    sink.resume(["a"], Resumed(0, True, {}))

    def publish_attempt(attempt: str, refused: str = "") -> None:
        if refused and at == "staging":
            there_is_no_room.write_text(refused)
        stage_in_two_tasks(sink, "a", 1, attempt, rows_of("a", 1, False), False)
        if refused:
            there_is_no_room.write_text(refused)
        sink.check("a", 1, identity(1))
        sink.publish("a", 1, attempt, identity(1))

    for number, says in enumerate(each for each in FULL if " 507 " not in each):
        with pytest.raises(EngineError) as raised:
            publish_attempt(f"refused{number}", says)
        there_is_no_room.unlink()
        assert raised.value.code == "store-full", raised.value
        assert "\n" not in raised.value.message
        assert "\x1b" not in raised.value.message
        assert table.bucket in raised.value.message
        sink.discard(f"refused{number}")
    publish_attempt("taken")
    assert table.rows() == compute_expected_rows(["a"], False, 1)
