"""Rows, state and offsets in one transaction, where a sink's table is in the database of the state: without a
JVM at any message, and on Spark."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from tests.engine.spark.running import until_caught_up
from tests.engine.spark.test_state_in_objects import Orders, compute_expected_rows
from tests.support.columns import column
from tests.support.effort import at_effort
from tests.support.postgres_proxy import FAULTS, PostgresProxy
from tests.support.tables import new_pipeline, tables_at
from watersmeet import postgres_server as client_module
from watersmeet.errors import EngineError, StateError
from watersmeet.runtime.spark.tick.tick import create_manifest_with_rows, find_atomic_commit
from watersmeet.sinks.file_sink import FileSink
from watersmeet.sinks.postgres.sink import PostgresSink
from watersmeet.sinks.registry import part_from, plain_part
from watersmeet.spec.model import Sink
from watersmeet.spec.options.postgres import database_of
from watersmeet.state.commits import commit
from watersmeet.state.manifest import Manifest, load_newest, manifest_names
from watersmeet.state.store import MemoryStore

pytestmark = pytest.mark.postgres
NUMBER = itertools.count(1)
IDENTITY = {"rows": "of one tick"}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(client_module, "RETRY_WAIT_S", 0.01)
    monkeypatch.setattr(client_module, "MAX_RETRY_WAIT_S", 0.2)


def sink_at(url, table=None, owner="job-1", kind="BIGINT"):
    table = table or f"together{next(NUMBER)}"
    sink = PostgresSink(Sink(table, "postgres", {"url": url, "table": table}, None, ()))
    sink.prepare([column("n", kind)], owner)
    return sink, table


def stage(sink, insert, tick, values):
    rows = pa.table({"n": pa.array(values, pa.int64())})
    part = part_from(plain_part(sink.arrow_part(rows.schema, insert, tick, "a")), sink.secrets)
    sink.take_parts(insert, tick, "a", [part.write(0, rows.schema, iter(rows.to_batches()))])


def manifest_after(before, tick=1):
    follows = "" if before is None else before.writer
    return Manifest(tick=tick, clock_us=0, fingerprints={}, sources=[], queries={}, follows=follows)


def rows_of(postgres, table):
    return [int(line) for line in postgres.run(f"SELECT n FROM {table} ORDER BY 1").split()]


def transactions(postgres, table, pipeline):
    """Of the last tick's row in the ledger, and of the newest manifest."""
    ticks = postgres.run(
        f"SELECT xmin FROM _watersmeet_ticks WHERE target = '{table}' ORDER BY tick DESC LIMIT 1"
    )
    manifests = postgres.run(
        f"SELECT xmin FROM watersmeet_state.files WHERE pipeline = '{pipeline}'"
        " AND name LIKE 'manifests/%' ORDER BY name DESC LIMIT 1"
    )
    return ticks, manifests


def test_rows_and_state_come_together_or_not_at_all(postgres):
    pipeline = new_pipeline()
    store = tables_at(postgres.url, pipeline)
    store.check()
    (one, table), (two, other) = sink_at(postgres.url), sink_at(postgres.url)
    stage(one, "p", 1, [1, 2])
    stage(two, "q", 1, [3])
    stage(two, "r", 1, [])
    both = [(one, "p"), (two, "q"), (two, "r")]
    made = create_manifest_with_rows(store, manifest_after(None), both, "a", IDENTITY)
    assert (rows_of(postgres, table), rows_of(postgres, other)) == ([1, 2], [3])
    assert load_newest(store) == made
    assert made.parts.keys() == {"p", "q"}
    ticks, manifests = transactions(postgres, table, pipeline)
    assert ticks == manifests
    assert ticks == transactions(postgres, other, pipeline)[0]
    stage(one, "p", 2, [4])
    stage(two, "q", 2, [5])
    stage(two, "r", 2, [])
    postgres.run(f"ALTER TABLE {other} ADD CHECK (n < 5)")
    with pytest.raises(EngineError, match="rejects a row") as raised:
        create_manifest_with_rows(store, manifest_after(made, 2), both, "a", IDENTITY)
    assert raised.value.code == "sink-refused-row"
    assert f'sink "{other}"' in raised.value.message
    assert (rows_of(postgres, table), rows_of(postgres, other)) == ([1, 2], [3])
    assert load_newest(store) == made
    for sink in (one, two):
        sink.close()


@pytest.mark.parametrize("how", ["created", "gone on", "went back"])
def test_rows_of_a_driver_that_was_passed_do_not_come(postgres, how):
    store = tables_at(postgres.url, new_pipeline())
    store.check()
    sink, table = sink_at(postgres.url)
    before = commit(store, manifest_after(None))
    if how == "created":
        commit(store, manifest_after(before, 2))
    else:
        store.delete(manifest_names(store)[0])
        if how == "went back":
            commit(store, manifest_after(None))
    names = manifest_names(store)
    stage(sink, "p", 2, [1])
    with pytest.raises(StateError) as raised:
        create_manifest_with_rows(store, manifest_after(before, 2), [(sink, "p")], "a", IDENTITY)
    assert raised.value.code == "state-fenced"
    assert rows_of(postgres, table) == []
    assert manifest_names(store) == names
    assert postgres.run(f"SELECT count(*) FROM _watersmeet_ticks WHERE target = '{table}'") == "0\n"
    sink.close()


@pytest.mark.parametrize("fault", at_effort(quick=["lost"], full=FAULTS))
def test_a_session_that_ends_at_any_message_leaves_both_once(postgres, fault):
    met = 0
    for number in itertools.count(0, at_effort(quick=9, full=1)):
        with PostgresProxy(postgres) as proxy:
            store = tables_at(postgres.url, new_pipeline())
            store.check()
            sink, table = sink_at(proxy.url)
            stage(sink, "p", 1, [1, 2, 3])
            last = proxy.messages + number
            proxy.fault = lambda n, last=last: fault if n == last else None
            made = create_manifest_with_rows(store, manifest_after(None), [(sink, "p")], "a", IDENTITY)
            proxy.fault = lambda n: None
            assert rows_of(postgres, table) == [1, 2, 3], number
            assert load_newest(store) == made
            sink.close()
            met += proxy.faults[fault]
            if not proxy.faults[fault]:
                break
    assert met > at_effort(quick=3, full=5)


def test_one_that_is_killed_before_the_end_leaves_neither(postgres, monkeypatch):
    store = tables_at(postgres.url, new_pipeline())
    store.check()
    sink, table = sink_at(postgres.url)
    stage(sink, "p", 1, [1])

    def interrupt_commit(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("watersmeet.runtime.spark.tick.tick.commit", interrupt_commit)
        with pytest.raises(KeyboardInterrupt):
            create_manifest_with_rows(store, manifest_after(None), [(sink, "p")], "a", IDENTITY)
    sink.server.close()
    assert rows_of(postgres, table) == []
    assert load_newest(store) is None
    sink.close()


def test_which_sinks_are_together(postgres, tmp_path):
    store = tables_at(postgres.url, new_pipeline())
    near, _ = sink_at(postgres.url)
    far = PostgresSink(Sink("x", "postgres", {"url": "postgresql://else/db", "table": "t"}, None, ()))
    file = FileSink(Sink("f", "File", {"path": str(tmp_path / "out")}, "json", ()))
    published = [(near, "p"), (far, "q"), (file, "r")]
    assert find_atomic_commit(store, published).inserts == {"p"}
    assert find_atomic_commit(store, published[1:]) is None
    assert find_atomic_commit(MemoryStore(), published) is None
    near.close()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("postgresql://me:a@db:5432/shop", "postgres://me:b@DB:5432/shop?sslmode=require", True),
        ("postgresql://me@db/shop", "postgresql://me@db:5432/shop", False),  # PGPORT may say another
        ("postgresql://me@db/shop", "postgresql://me@db/shop?options=-crole%3Downer", False),
        ("postgresql://db/shop?options=-crole%3Downer", "postgresql://db/shop?options=-crole%3Downer", True),
        ("postgresql://db/shop?user=me", "postgresql://me@db/shop", True),
        ("postgresql://db/shop", "postgresql://me@db/shop", False),
        ("postgresql://db/shop", "postgresql://db:5433/shop", False),
        ("postgresql://db/shop", "postgresql://db/shops", False),
        ("postgresql://db/shop?host=else", "postgresql://db/shop", False),
        ("postgresql:///shop", "postgresql:///shop", None),
    ],
)
def test_which_databases_are_the_same(one, other, same):
    if same is None:
        assert database_of(one) is None
    else:
        assert (database_of(one) == database_of(other)) is same


@pytest.mark.spark
def test_a_job_s_rows_and_state_are_of_one_transaction(spark, tmp_path, postgres, monkeypatch):
    """A second sink, of files, is elsewhere; a run that is killed as it commits leaves nothing there."""
    orders, pipeline, table = Orders(tmp_path / "job"), new_pipeline(), f"together{next(NUMBER)}"
    text = (
        orders.text
        + f"""
        ; CREATE TABLE rows_too
            WITH ('connector' = 'postgres', 'url' = '{postgres.url}', 'table' = '{table}');
        INSERT INTO rows_too SELECT o.id, d.at FROM orders o JOIN deliveries d
          ON o.id = d.id AND d.at BETWEEN o.at AND o.at + 1000"""
    )
    store = tables_at(postgres.url, pipeline)
    orders.come(0, 10)
    until_caught_up(spark, text, tmp_path / "one", store=store)
    ticks, manifests = transactions(postgres, table, pipeline)
    assert ticks == manifests
    orders.come(10, 20)

    def interrupt_commit(*_):
        raise KeyboardInterrupt("killed")

    before = postgres.run(f"SELECT count(*) FROM {table}")
    with monkeypatch.context() as patch:
        patch.setattr("watersmeet.runtime.spark.tick.tick.commit", interrupt_commit)
        with pytest.raises(BaseException):  # noqa: B017, PT011
            until_caught_up(spark, text, tmp_path / "one", store=store)
    assert postgres.run(f"SELECT count(*) FROM {table}") == before
    until_caught_up(spark, text, tmp_path / "two", store=store, finish=True)
    assert orders.rows() == compute_expected_rows(20)
    assert postgres.run(f"SELECT id, at FROM {table} ORDER BY 1").split() == [
        f"{n}|{n + 3}" for n in range(0, 20, 2)
    ]
    assert load_newest(store).parts.keys() == {"out", "rows_too"}
