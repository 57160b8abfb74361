"""Jobs on Spark whose state is in an object store: any machine goes on with them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.engine.spark.running import until_caught_up
from tests.support.s3 import KEYS, Proxy, make_bucket, s3_server, store_at
from watersmeet.errors import StateError
from watersmeet.objects.cache import Cache
from watersmeet.objects.object_store import ObjectStore
from watersmeet.state.commits import Commits
from watersmeet.state.manifest import is_manifest, load_newest, manifest_name, manifest_names
from watersmeet.state.store import section_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def endpoint():
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(spark, endpoint, monkeypatch):
    """The keys are in the environment of the driver and of the workers, as a deployment has to see to."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return make_bucket(endpoint)


class Orders:
    """Orders and deliveries in files, and the job over them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files = folder, 0
        for name in ("orders", "deliveries"):
            (folder / name).mkdir(parents=True)

    @property
    def text(self) -> str:
        return f"""
            CREATE TABLE orders (id BIGINT, at BIGINT, WATERMARK FOR at AS at - 0)
              WITH ('connector' = 'File', 'path' = '{self.folder}/orders', 'format' = 'json');
            CREATE TABLE deliveries (id BIGINT, at BIGINT, WATERMARK FOR at AS at - 0)
              WITH ('connector' = 'File', 'path' = '{self.folder}/deliveries', 'format' = 'json');
            CREATE TABLE out WITH ('connector' = 'File', 'path' = '{self.folder}/out', 'format' = 'json');
            INSERT INTO out SELECT o.id, d.at FROM orders o LEFT JOIN deliveries d
              ON o.id = d.id AND d.at BETWEEN o.at AND o.at + 1000"""

    def come(self, first: int, last: int) -> None:
        self.files += 1
        for name, every in (("orders", 1), ("deliveries", 2)):
            rows = [json.dumps({"id": n, "at": n + (every - 1) * 3}) for n in range(first, last, every)]
            (self.folder / name / f"{self.files}.json").write_text("\n".join(rows) + "\n")

    def rows(self) -> list[tuple[int, int | None]]:
        lines = [
            line for part in (self.folder / "out").rglob("*.json") for line in part.read_text().splitlines()
        ]
        return sorted((row["id"], row.get("at")) for row in map(json.loads, lines) if "id" in row)


def compute_expected_rows(count: int) -> list[tuple[int, int | None]]:
    return [(n, n + 3 if n % 2 == 0 else None) for n in range(count)]


def test_a_job_goes_on_on_another_machine(spark, tmp_path, endpoint, bucket):
    """Each run has an empty checkpoint directory and an empty cache; the store is all that they share."""
    orders = Orders(tmp_path / "job")
    with Proxy(endpoint) as proxy:
        for number in range(3):
            orders.come(number * 10, number * 10 + 10)
            place = store_at(proxy.endpoint, bucket, timeout_s=5.0).place
            store = ObjectStore(place, Cache(place.url, root=str(tmp_path / f"cache{number}")))
            until_caught_up(
                spark, orders.text, tmp_path / f"machine{number}", store=store, finish=number == 2
            )
        print(dict(proxy.requests), proxy.sent, proxy.given)
    assert orders.rows() == compute_expected_rows(30)
    assert not (tmp_path / "machine0" / "state").exists()


def test_a_run_whose_last_manifest_may_not_stay_does_not_end_well(
    spark, tmp_path, endpoint, bucket, monkeypatch
):
    """No tick comes after it that would ask."""
    orders, store = Orders(tmp_path / "job"), store_at(endpoint, bucket, timeout_s=5.0)
    orders.come(0, 10)
    until_caught_up(spark, orders.text, tmp_path / "one", store=store)
    create = ObjectStore.create

    def create_after_competing_commit(self, name, data):
        if is_manifest(name):
            self.delete(manifest_name(1))  # as others do who are further on
            create(self, manifest_name(4), data)
        return create(self, name, data)

    orders.come(10, 20)
    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "create", create_after_competing_commit)
        with pytest.raises(StateError, match="tick 2 has been committed by another process") as raised:
            until_caught_up(spark, orders.text, tmp_path / "one", store=store)
    assert raised.value.code == "state-fenced"
    assert manifest_names(store) == [manifest_name(4)], "theirs stays"


def test_a_task_fetches_its_half_of_what_came(spark, tmp_path, endpoint, bucket):
    """Two tasks, each in a worker that has no cache; what they fetched is told."""
    orders, store = Orders(tmp_path / "job"), store_at(endpoint, bucket, timeout_s=30.0)
    orders.come(0, 80_000)
    (tick,) = until_caught_up(spark, orders.text, tmp_path / "one", store=store).ticks
    runs = [live.run for live in load_newest(store).runs()]
    assert {section_of(run.name) is not None for run in runs} == {True}
    assert len(runs) == 4
    assert [name for name in store.names("runs") if section_of(name)] == []
    (query,) = tick.queries
    fetched = [of_task.fetched for of_task in tick.traffic[f"{query}/0"]]
    stored = sum(run.nbytes for run in runs)
    assert len(fetched) == 2
    assert all(0.4 * stored < of_task < 0.6 * stored for of_task in fetched), (fetched, stored)
    assert sum(of_task.written for of_task in tick.traffic["ingest"]) >= stored
    orders.come(80_000, 80_010)
    until_caught_up(spark, orders.text, tmp_path / "two", store=store, finish=True)
    assert orders.rows() == compute_expected_rows(80_010)


@pytest.mark.full
def test_returning_machine_recreates_spark_files(spark, tmp_path, endpoint, bucket):
    orders, store = Orders(tmp_path / "job"), store_at(endpoint, bucket, timeout_s=5.0)
    for number, machine in enumerate(("one", "two", "one")):
        orders.come(number * 10, number * 10 + 10)
        until_caught_up(spark, orders.text, tmp_path / machine, store=store, finish=number == 2)
    assert orders.rows() == compute_expected_rows(30)
    assert list((tmp_path / "one").glob("spark.old-*"))


@pytest.mark.parametrize("first", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_tick_that_was_killed_when_it_was_out_is_repeated_as_it_was(
    spark, tmp_path, endpoint, bucket, monkeypatch, first
):
    """More rows have come before another machine takes over: they are in the tick after it."""
    orders, store = Orders(tmp_path / "job"), store_at(endpoint, bucket, timeout_s=5.0)
    if not first:
        orders.come(100, 110)
        until_caught_up(spark, orders.text, tmp_path / "one", store=store)
    orders.come(110, 120)

    def interrupt_commit(*_args, **_settings):
        raise KeyboardInterrupt("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Commits, "commit", interrupt_commit)
        with pytest.raises(BaseException):  # noqa: B017, PT011
            until_caught_up(spark, orders.text, tmp_path / "one", store=store)
    shutil.rmtree(tmp_path / "one")
    orders.come(120, 130)
    running = until_caught_up(spark, orders.text, tmp_path / "two", store=store, finish=True)
    whole = [(n, n + 3 if n % 2 == 0 else None) for n in range(110 if first else 100, 130)]
    assert orders.rows() == whole
    assert len(running.ticks) == 3


@pytest.mark.full
def test_job_refuses_to_start_when_its_state_is_in_another_store(spark, tmp_path, endpoint, bucket):
    orders, store = Orders(tmp_path / "job"), store_at(endpoint, bucket, timeout_s=5.0)
    orders.come(0, 3)
    until_caught_up(spark, orders.text, tmp_path / "local")
    with pytest.raises(StateError, match="state_store is s3://") as raised:
        until_caught_up(spark, orders.text, tmp_path / "local", store=store)
    assert raised.value.code == "state-elsewhere"
    shutil.rmtree(tmp_path / "job" / "out")
    until_caught_up(spark, orders.text, tmp_path / "remote", store=store)
    for other in (None, store_at(endpoint, bucket, "another", timeout_s=5.0)):
        with pytest.raises(StateError, match="SET state_store") as raised:
            until_caught_up(spark, orders.text, tmp_path / "remote", store=other)
        assert raised.value.code == "state-elsewhere"


def test_rows_go_into_the_store_too(spark, tmp_path, endpoint, bucket):
    """Spark reads from the objects what it reads from its own files."""
    orders, store = Orders(tmp_path / "job"), store_at(endpoint, bucket, timeout_s=5.0)
    local = f"'path' = '{orders.folder}/out', 'format' = 'json'"
    remote = f"'path' = 's3://{bucket}/out', 'endpoint' = '{endpoint}', 'region' = 'us-east-1'"
    columns = """
        o.id, d.at, named_struct('a', array(o.id, NULL), 'm', map('k', d.at)) AS nested,
        timestamp_micros(o.at - 1) AS t, timestamp_ntz'0001-01-01 00:00:00.000001' AS n,
        CAST(o.id AS DECIMAL(38, 9)) AS x, CAST('NaN' AS DOUBLE) AS f, date'9999-12-31' AS day,
        X'00ff' AS b"""
    both = f"""; CREATE TABLE plain WITH ('connector' = 'File', {remote.replace("/out", "/plain")});
        INSERT INTO plain SELECT o.id, d.at FROM orders o LEFT JOIN deliveries d
              ON o.id = d.id AND d.at BETWEEN o.at AND o.at + 1000"""
    beside = f"""; CREATE TABLE files WITH ('connector' = 'File', 'path' = '{orders.folder}/files');
        INSERT INTO files SELECT {columns} FROM orders o LEFT JOIN deliveries d
              ON o.id = d.id AND d.at BETWEEN o.at AND o.at + 1000"""
    text = orders.text.replace(local, remote).replace("o.id, d.at FROM", f"{columns} FROM") + both + beside
    orders.come(0, 20)
    until_caught_up(spark, text, tmp_path / "machine", store=store, finish=True)

    client = store_at(endpoint, bucket, "", timeout_s=5.0).place.client()
    names = [entry["path"] for batch in client.list() for entry in batch]
    for name in names:
        if name.endswith(".parquet"):
            file = tmp_path / "got" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(client.get(name).bytes()))
    assert not [name for name in names if "_attempts" in name]

    def read(folder):
        return spark.read.option("recursiveFileLookup", "true").parquet(str(folder))

    got, wanted = read(tmp_path / "got" / "out"), read(orders.folder / "files")
    assert got.schema.simpleString() == wanted.schema.simpleString()
    assert sorted(map(str, got.collect())) == sorted(map(str, wanted.collect()))
    plain = read(tmp_path / "got" / "plain").collect()
    assert sorted((row.id, row.at) for row in plain) == compute_expected_rows(20)
    assert got.count() == 20
