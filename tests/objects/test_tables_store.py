"""A store in tables of PostgreSQL: the contract of every store, and sessions that end at any message."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from tests.support.postgres_proxy import FAULTS, PostgresProxy
from tests.support.tables import new_pipeline, tables_at
from watersmeet import postgres_server as client_module
from watersmeet.errors import SpecError, StateError
from watersmeet.objects import postgres_store
from watersmeet.objects.cache import Cache
from watersmeet.objects.postgres_location import TablesPlace
from watersmeet.objects.postgres_store import TablesStore, rows_from
from watersmeet.objects.settings import store_of
from watersmeet.parser.statements import run_settings
from watersmeet.postgres_server import words
from watersmeet.spec.secrets import Secret
from watersmeet.state.store import Section

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(client_module, "RETRY_WAIT_S", 0.01)
    monkeypatch.setattr(client_module, "MAX_RETRY_WAIT_S", 0.2)


@pytest.fixture
def pipeline():
    return new_pipeline()


@pytest.fixture
def store(postgres, pipeline):
    return tables_at(postgres.url, pipeline)


def test_nothing_is_there_before_something_is_written():
    from tests.support.postgres import Postgres

    with Postgres() as server:
        store = tables_at(server.url, "first")
        assert not store.has("job/id")
        assert store.names("manifests") == []
        store.delete("job/id")
        assert store.delete_all(["runs/a"]) == 0
        with pytest.raises(StateError, match="is missing"):
            store.read("runs/a")
        with ThreadPoolExecutor(6) as threads:  # the tables are made once
            assert sum(threads.map(lambda n: store.create("job/id", b"%d" % n), range(6))) == 1
        other = tables_at(server.url, "second")
        other.write("runs/a", b"x")
        other.check()
        assert store.names("runs") == []


def test_what_is_written_is_read(store):
    store.write("runs/a", pa.py_buffer(b"abc"))
    store.write("runs/empty", b"")
    store.write("work/b", b"passing", lasting=False)
    store.write("runs/deep/er", b"x")
    assert bytes(store.read("runs/a")) == b"abc"
    assert bytes(store.read("runs/empty")) == b""
    assert store.has("work/b")
    assert not store.has("work/c")
    assert store.names("runs") == ["runs/a", "runs/empty"]
    assert store.names("run") == []


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("parts", [1, 4, 9])
def test_files_of_many_rows_are_whole(store, monkeypatch, parts, extra):
    monkeypatch.setattr(postgres_store, "PART_BYTES", 1000)
    data = random.Random(parts).randbytes(parts * 1000 + extra)
    store.write("runs/a", data)
    assert bytes(store.read("runs/a")) == data
    assert store.create("manifests/1", data)
    assert store.create("manifests/1", data)
    assert not store.create("manifests/1", data[:-1] + b"?")
    assert bytes(store.read("manifests/1")) == data


def test_sections_are_read_of_the_rows_that_have_them(store, monkeypatch):
    monkeypatch.setattr(postgres_store, "PART_BYTES", 1000)
    draw = random.Random(1)
    data = draw.randbytes(7777)
    ends = [
        (0, 7777),
        (999, 1001),
        (1000, 2000),
        (6999, 7777),
        (3, 3),
        *(sorted((draw.randrange(7778), draw.randrange(7778))) for _ in range(40)),
    ]
    names = [Section("runs/a-1-0f.arrow", low, high - low).name for low, high in ends]
    store.write("runs/a-1-0f.arrow", data, sections=names)
    store.traffic.take()
    for (low, high), content in zip(ends, store.read_all(names), strict=True):
        assert bytes(content) == data[low:high]
    assert store.traffic.take().fetched == sum(high - low for low, high in ends)
    assert store.has(names[0])
    with pytest.raises(StateError) as raised:
        store.read(Section("runs/none.arrow", 0, 5).name)
    assert raised.value.code == "state-missing"


@pytest.mark.parametrize("at_once", [1, 7, 100, 1 << 20])
def test_what_is_read_together_comes_whole_whatever_one_statement_gives(
    store, postgres, pipeline, monkeypatch, at_once, seed
):
    monkeypatch.setattr(postgres_store, "PART_BYTES", 10)
    monkeypatch.setattr(postgres_store, "FETCH_BYTES", at_once)
    draw = random.Random(seed)
    files = {
        f"runs/{number}.arrow": draw.randbytes(draw.choice([0, 1, 9, 10, 11, 50])) for number in range(12)
    }
    for name, content in files.items():
        store.write(name, content)
    tables_at(postgres.url, f"{pipeline}-other").write("runs/0.arrow", b"of another pipeline")
    asked = {}
    for _ in range(40):
        name = draw.choice(list(files))
        low, high = sorted(draw.randrange(len(files[name]) + 1) for _ in range(2))
        section = draw.random() < 0.6
        asked[Section(name, low, high - low).name if section else name] = (
            files[name][low:high] if section else files[name]
        )
    names = draw.choices(list(asked), k=60)
    store.traffic.take()
    assert [bytes(content) for content in store.read_all(names)] == [asked[name] for name in names]
    traffic = store.traffic.take()
    assert traffic.fetched == sum(len(asked[name]) for name in set(names))
    # rows drawn this small may fit into one statement of 100 bytes
    assert (traffic.requests == 1) is (at_once > 10_000 or traffic.fetched <= at_once)
    assert store.read_all([]) == []


def test_of_several_that_are_read_together_one_is_told_that_is_not_as_it_was(
    store, postgres, pipeline, monkeypatch
):
    monkeypatch.setattr(postgres_store, "PART_BYTES", 10)
    for name in "abc":
        store.write(f"runs/{name}.arrow", bytes(35))
    for part, name, named in (
        (3, "runs/b.arrow", ["runs/a.arrow", "runs/b.arrow", "runs/c.arrow"]),
        (1, "runs/c.arrow", ["runs/a.arrow", "runs/c.arrow@12+5"]),
    ):
        postgres.run(
            "DELETE FROM watersmeet_state.files"
            f" WHERE pipeline = '{pipeline}' AND name = '{name}' AND part = {part}"
        )
        with pytest.raises(StateError, match=f'"{name}".* rows of it are gone') as raised:
            store.read_all(named)
        assert raised.value.code == "state-damaged"
    with pytest.raises(StateError, match="runs/none") as raised:
        store.read_all(["runs/a.arrow", "runs/none.arrow"])
    assert raised.value.code == "state-missing"


def test_what_is_read_together_takes_few_messages(postgres, pipeline):
    names = [f"runs/{number}" for number in range(40)]
    with PostgresProxy(postgres) as proxy:
        store = tables_at(proxy.url, pipeline)
        for name in names:
            store.write(name, name.encode())
        proxy.forget()
        assert [bytes(content) for content in store.read_all(names)] == [name.encode() for name in names]
        assert proxy.messages <= 8
        assert proxy.connections == 0


def test_a_section_that_lost_a_row_is_damaged(store, postgres, pipeline, monkeypatch):
    monkeypatch.setattr(postgres_store, "PART_BYTES", 10)
    store.write("runs/a.arrow", bytes(75))
    postgres.run(
        "DELETE FROM watersmeet_state.files"
        f" WHERE pipeline = '{pipeline}' AND name = 'runs/a.arrow' AND part = 3"
    )
    assert bytes(store.read("runs/a.arrow@40+20")) == bytes(20)
    for lost in ("runs/a.arrow@25+10", "runs/a.arrow@32+2", "runs/a.arrow@70+9"):
        with pytest.raises(StateError, match="rows of it are gone") as raised:
            store.read(lost)
        assert raised.value.code == "state-damaged"


def test_a_file_that_lost_a_row_is_damaged(store, postgres, pipeline, monkeypatch):
    monkeypatch.setattr(postgres_store, "PART_BYTES", 10)
    for part in (0, 1, 7):
        store.write(f"runs/{part}", bytes(75))
        postgres.run(
            "DELETE FROM watersmeet_state.files"
            f" WHERE pipeline = '{pipeline}' AND name = 'runs/{part}' AND part = {part}"
        )
        with pytest.raises(StateError, match="rows of it are gone") as raised:
            store.read(f"runs/{part}")
        assert raised.value.code == "state-damaged"


def test_create_never_overwrites(store):
    assert store.create("manifests/1", b"first")
    assert not store.create("manifests/1", b"second")
    assert bytes(store.read("manifests/1")) == b"first"


def test_of_many_that_create_one_name_one_does(store):
    with ThreadPoolExecutor(8) as threads:
        created = list(threads.map(lambda n: store.create("manifests/1", b"%d" % n), range(8)))
    assert created.count(True) == 1
    assert bytes(store.read("manifests/1")) == b"%d" % created.index(True)


def test_what_is_written_together_goes_in_one_transaction_and_is_read_before(postgres, pipeline):
    with PostgresProxy(postgres) as proxy:
        store = tables_at(proxy.url, pipeline)
        store.write("runs/a", b"x")
        proxy.forget()
        with store.together(), store.together():
            for number in range(500):
                store.write(f"runs/{number}", b"%d" % number)
            assert bytes(store.read("runs/7")) == b"7"
            assert store.has("runs/8")
            assert proxy.messages == 0
        assert proxy.messages < 14  # two of them say what holds in the transaction
    assert len(store.names("runs")) == 501


def test_of_what_is_written_together_little_is_held(store, monkeypatch):
    monkeypatch.setattr(postgres_store, "MAX_PENDING_BYTES", 1000)
    with store.together():
        for number in range(30):
            store.write(f"runs/{number}", bytes(100))
        assert store._held_bytes < 1000
        assert len(store._held) < 10
        assert bytes(store.read("runs/0")) == bytes(100)
    assert len(store.names("runs")) == 30


def test_what_fails_together_is_not_there(store):
    def fails():
        with store.together():
            store.write("runs/a", b"x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert not store.has("runs/a")


def test_pipelines_of_a_database_are_apart(postgres):
    one, two = (tables_at(postgres.url, new_pipeline()) for _ in range(2))
    one.write("runs/a", b"one")
    two.write("runs/a", b"two")
    two.create("job/reset", b"{}")
    two.clear({"runs", "job"}, last="job/reset")
    assert bytes(one.read("runs/a")) == b"one"
    assert [two.names("runs"), two.names("job")] == [[], []]


def test_what_is_written_while_all_is_removed_is_said(store, monkeypatch):
    store.write("runs/a", b"x")
    store.write("others/a", b"x")
    store.create("job/reset", b"{}")
    real = postgres_store.rows_of

    def with_one_more(cursor, sql, *values):
        if sql.startswith("SELECT name"):  # what is left
            store.write(f"runs/{random.random()}", b"x")
        return real(cursor, sql, *values)

    with monkeypatch.context() as patch:
        patch.setattr(postgres_store, "rows_of", with_one_more)
        with pytest.raises(StateError, match="cannot be emptied"):
            store.clear({"runs", "job"}, last="job/reset")
    assert store.has("job/reset")
    store.clear({"runs", "job"}, last="job/reset")
    assert store.names("others") == ["others/a"]


def steps(store):
    """One of each call, with what it has to come to."""
    assert store.create("manifests/1", b"mine")
    assert not store.create("manifests/1", b"another's")
    store.write("runs/a", b"abc" * 100)
    with store.together():
        store.write("runs/b", b"b")
        store.write("runs/c", b"c" * 5000)
    assert bytes(store.read("runs/a")) == b"abc" * 100
    assert bytes(store.read("runs/c")) == b"c" * 5000
    names = ["runs/c", "runs/a@3+6", "runs/b", "runs/c@1999+2"]
    assert [bytes(c) for c in store.read_all(names)] == [b"c" * 5000, b"abcabc", b"b", b"cc"]
    assert store.has("runs/b")
    assert store.names("runs") == ["runs/a", "runs/b", "runs/c"]
    store.delete("runs/a")
    assert store.delete_all(["runs/b", "runs/a"]) == 0
    assert store.names("runs") == ["runs/c"]
    store.check()


@pytest.mark.parametrize("fault", FAULTS)
def test_session_lost_at_any_message_changes_nothing(postgres, fault, monkeypatch):
    """Of all calls, one message after the other: before it arrives, before its answer does, and by the
    server. Answers to a COMMIT are among those that are lost."""
    monkeypatch.setattr(postgres_store, "PART_BYTES", 2000)
    monkeypatch.setattr(postgres_store, "FETCH_BYTES", 4000)
    rounds = 0
    stride = at_effort(quick=19, full=1 if fault == "lost" else 2)
    for number in itertools.count(0, stride):
        with PostgresProxy(postgres, lambda n, at=number: fault if n == at else None) as proxy:
            store = tables_at(proxy.url, new_pipeline())
            steps(store)
            client_module.close_idle(store.place.client_url, "state")
            rounds += proxy.faults[fault]
            if not proxy.faults[fault]:
                break
    assert rounds > at_effort(quick=3, full=30)


@pytest.mark.parametrize("seed", range(at_effort(quick=1, full=3)))
def test_two_that_race_through_faults_agree_on_who_created(postgres, pipeline, seed):
    random_of = random.Random(seed)

    def fault(number):
        return random_of.choice(FAULTS) if random_of.random() < 0.04 else None

    with PostgresProxy(postgres, fault) as proxy, ThreadPoolExecutor(2) as threads:
        stores = [tables_at(proxy.url, pipeline) for _ in range(2)]
        for number in range(15):
            name = f"manifests/{number}"
            created = list(
                threads.map(lambda of, name=name: stores[of].create(name, b"by %d" % of), range(2))
            )
            assert sorted(created) == [False, True], (seed, number)
            found = bytes(tables_at(postgres.url, pipeline).read(name))
            assert found == b"by %d" % created.index(True), (seed, number)
        assert proxy.faults


@pytest.mark.parametrize("crash", [True, False])
def test_a_server_that_restarts_is_waited_for_and_has_lost_nothing(crash):
    from tests.support.postgres import Postgres

    with Postgres() as server:
        store = tables_at(server.url, "one")
        store.write("runs/a", b"x" * 10_000)
        assert store.create("manifests/1", b"mine")
        server.stop(crash=crash)
        back = threading.Timer(0.5, server.start)
        back.start()
        assert not store.create("manifests/1", b"another's")
        back.join()
        assert bytes(store.read("runs/a")) == b"x" * 10_000


def test_a_server_that_stays_away_is_said(postgres, pipeline):
    url = postgres.url.replace(f":{postgres.port}", ":1")
    began = time.monotonic()
    with pytest.raises(StateError, match="did not take") as raised:
        tables_at(url, pipeline, patience_s=0.3).write("runs/a", b"x")
    assert time.monotonic() - began < 5
    assert raised.value.code == "store-away"
    assert postgres.password not in str(raised.value)


def backend(postgres, what="state = 'active'"):
    """The process of the session that waits."""
    sql = f"SELECT pid FROM pg_stat_activity WHERE application_name = 'watersmeet' AND {what}"
    for _ in range(100):
        if (pids := postgres.run(sql).split()) != []:
            return int(pids[0])
        time.sleep(0.05)
    raise AssertionError("nothing waits")


@pytest.fixture
def no_standby(postgres):
    """COMMIT waits for a standby that is not there, as for one that is gone."""

    def waits(who):
        postgres.run(f"ALTER SYSTEM SET synchronous_standby_names = '{who}'")
        postgres.run("SELECT pg_reload_conf()")
        while postgres.run("SHOW synchronous_standby_names").strip() != who:
            time.sleep(0.05)
        postgres.run("CHECKPOINT")  # by the process that tells all others that COMMIT has to wait

    yield lambda: waits("nobody")
    waits("")


def test_a_commit_that_is_not_answered_is_given_up_and_unclear(
    postgres, store, no_standby, monkeypatch, caplog
):
    monkeypatch.setattr(client_module, "MIN_ANSWER_S", 1.0)
    monkeypatch.setattr(client_module, "NOTICE_S", 0.3)
    store.check()
    impatient = TablesStore(TablesPlace(store.place.given, patience_s=0.3))
    no_standby()
    began = time.monotonic()
    with pytest.raises(StateError, match=r"did not take .* no answer for 1 s \(to COMMIT\)") as raised:
        impatient.create("manifests/1", b"mine")
    assert 1.0 < time.monotonic() - began < 4
    assert raised.value.code == "store-away"
    assert "the server has not answered to COMMIT" in "\n".join(caplog.messages)
    waiting = "wait_event = 'SyncRep'"
    pid = backend(postgres, waiting)
    with client_module.client().connect(postgres.url) as connection, connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '100ms'")
        connection.commit()
        with pytest.raises(client_module.client().Error) as timed_out:
            store.create_in_transaction(cursor, "manifests/1", b"another's")
        assert timed_out.value.sqlstate == "55P03"
        said = postgres_store._StateServer(store.place, "take it").away(1, words(timed_out.value, ""))
    assert "another run has an open transaction" in str(said)
    assert backend(postgres, waiting) == pid  # nobody cancelled it, which would have made it count


def test_a_server_that_stands_still_is_given_up_and_nothing_comes_of_it_later(postgres, store, monkeypatch):
    monkeypatch.setattr(postgres_store, "ANSWER_S", 1.0)
    store.check()
    impatient = TablesStore(TablesPlace(store.place.given, patience_s=0.3))
    ((pid,),) = store._rows_of("ask", "SELECT pg_backend_pid()")
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(StateError, match="no answer"):
            impatient.create("manifests/1", b"mine")
    finally:
        os.kill(pid, signal.SIGCONT)
    for _ in range(100):
        if not postgres.run(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"):
            break
        time.sleep(0.05)
    assert not store.has("manifests/1")


@pytest.mark.parametrize("in_commit", [True, pytest.param(False, marks=pytest.mark.full)])
def test_ctrl_c_ends_what_a_server_does_not_answer(postgres, store, no_standby, in_commit):
    store.check()
    client_module.close_idle(store.place.client_url, "state")
    if in_commit:
        no_standby()
    work = (
        "store.create('manifests/1', b'x')" if in_commit else "store._rows_of('wait', 'SELECT pg_sleep(60)')"
    )
    script = f"""
from tests.support.tables import tables_at
store = tables_at({postgres.url!r}, {store.place.pipeline!r})
{work}
"""
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        pid = backend(postgres, "wait_event IN ('SyncRep', 'PgSleep')")
        time.sleep(0.3)
        os.kill(pid, signal.SIGSTOP)  # asked to cancel, it would not answer
        process.send_signal(signal.SIGINT)
        try:
            assert b"KeyboardInterrupt" in process.communicate(timeout=5)[1]
        finally:
            process.kill()
            os.kill(pid, signal.SIGCONT)
            postgres.run(f"SELECT pg_terminate_backend({pid}, 5000)")


def test_many_small_files_take_as_long_as_they_are_many():
    files = {f"runs/{number}": pa.py_buffer(b"x") for number in range(30_000)}
    began = time.process_time()
    batches = list(rows_from("p", files))
    assert time.process_time() - began < 3
    assert sum(batch.num_rows for batch in batches) == 30_000
    assert len(batches) == 3


def test_one_that_holds_a_name_and_is_gone_does_not_stop_others_for_ever(postgres, pipeline, store):
    """Its transaction ends when the server notices; until then whoever comes waits."""
    store.check()
    with client_module.client().connect(postgres.url) as connection, connection.cursor() as cursor:
        assert store.create_in_transaction(cursor, "manifests/1", b"never committed")
        waiting = ThreadPoolExecutor(1).submit(store.create, "manifests/1", b"mine")
        time.sleep(0.3)
        assert not waiting.done()
        connection.rollback()
        assert waiting.result()


def test_refusals_are_said_at_once_without_the_password(postgres, pipeline):
    wrong = postgres.url.replace(postgres.password, "secret-word")
    for url, code in (
        (wrong, "store-denied"),
        (postgres.url.replace("/postgres", "/nowhere"), "no-database"),
    ):
        began = time.monotonic()
        with pytest.raises(StateError) as raised:
            tables_at(url, pipeline).read("runs/a")
        assert raised.value.code == code
        assert time.monotonic() - began < 2
        for secret in ("secret-word", postgres.password):
            assert secret not in str(raised.value)


def test_rights_that_lack_are_said(postgres, pipeline, store):
    store.check()
    postgres.run("CREATE ROLE nobody_here LOGIN PASSWORD 'a-secret'")
    url = postgres.url.replace(f"watersmeet:{postgres.password}", "nobody_here:a-secret")
    with pytest.raises(StateError, match="permission denied") as raised:
        tables_at(url, pipeline).check()
    assert raised.value.code == "store-denied"
    assert "GRANT" in raised.value.hint


def test_tables_that_drop_rows_are_refused(postgres, pipeline, store):
    store.check()
    postgres.run(
        """CREATE FUNCTION watersmeet_state.dropping() RETURNS trigger LANGUAGE plpgsql
             AS $$ BEGIN RETURN CASE WHEN NEW.name LIKE '.probe%' THEN NULL ELSE NEW END; END $$;
           CREATE TRIGGER dropping BEFORE INSERT ON watersmeet_state.files
             FOR EACH ROW EXECUTE FUNCTION watersmeet_state.dropping()"""
    )
    try:
        with pytest.raises(StateError):
            tables_at(postgres.url, pipeline, patience_s=0.3).check()
    finally:
        postgres.run("DROP FUNCTION watersmeet_state.dropping CASCADE")


def test_a_server_that_commits_before_it_is_safe_is_told_otherwise(postgres, pipeline, store):
    postgres.run("ALTER ROLE watersmeet SET synchronous_commit = off")
    try:
        client_module.close_idle(store.place.client_url, "state")

        def seen(cursor):
            return client_module.rows_of(cursor, "SELECT current_setting('synchronous_commit')")

        assert store._run_in_transaction("say it", seen, writes=True) == [("on",)]
        assert store._run_in_transaction("say it", seen) == [
            ("off",)
        ]  # a session may be others', by a pooler
    finally:
        postgres.run("ALTER ROLE watersmeet RESET synchronous_commit")


def test_connections_are_few_and_kept(postgres, pipeline):
    with PostgresProxy(postgres) as proxy:
        store = tables_at(proxy.url, pipeline)
        for number in range(30):
            store.write(f"runs/{number}", b"x")
            pickle.loads(pickle.dumps(store)).read(f"runs/{number}")
        assert proxy.connections <= 2  # the client asks for the server's types in one of its own


def test_what_was_written_or_read_is_not_fetched_again(postgres, pipeline, tmp_path):
    with PostgresProxy(postgres) as proxy:
        place = tables_at(proxy.url, pipeline).place
        store = TablesStore(place, Cache(place.url, 1 << 20, str(tmp_path / "cache")))
        with store.together():
            store.write("runs/a", b"abc" * 1000)
        tables_at(postgres.url, pipeline).write("runs/other", b"another's")
        assert bytes(store.read("runs/other")) == b"another's"
        store.create("manifests/1", b"first")
        proxy.forget()
        assert bytes(pickle.loads(pickle.dumps(store)).read("runs/a")) == b"abc" * 1000
        assert bytes(store.read("runs/other")) == b"another's"
        assert proxy.messages == 0
        store.read("manifests/1")
        assert proxy.messages
    assert len(list(Path(tmp_path / "cache").glob("*.object"))) == 2


def test_nothing_shows_the_password(postgres, pipeline):
    text = f"SET state_store = '{postgres.url}?pipeline={pipeline}'"
    settings = run_settings(text, {})
    store = store_of(settings)
    for shown in (repr(settings), repr(store), repr(store.place), store.place.url, str(vars(store.place))):
        assert postgres.password not in shown
    assert bytes(postgres.password, "ascii") in pickle.dumps(store)  # tasks need it


def test_settings_name_tables():
    text = """SET state_store = 'postgresql://me@DB:6000/shop?sslmode=require&pipeline=orders.1';
              SET state_cache = '64 MB'"""
    store = store_of(run_settings(text, {}))
    assert store.place.url == "postgresql://db:6000/shop?pipeline=orders.1"
    assert "sslmode=require" in str.__str__(store.place.client_url)
    assert "pipeline" not in str.__str__(store.place.client_url)
    assert store.cache.limit == 64 << 20
    assert store_of({"state_store": "postgres://db/shop?pipeline=a", "state_cache": "none"}).cache is None


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/shop",
        "postgresql://db/shop?pipeline=",
        "postgresql://db/shop?pipeline=a/b",
        "postgresql://db/shop?pipeline=a&pipeline=b",
        "postgresql://db?pipeline=a",
        "postgresql:///shop?pipeline=a",
        "postgresql://me:secret-word@db/a/b?pipeline=a",
        "postgresql://me:secret-word@db@/shop?pipeline=a",
        "postgresql://db:port/shop?pipeline=a",
        "postgresql://db/shop?pipeline=a&client_encoding=latin1",
        f"postgresql://db/shop?pipeline={'a' * 101}",
        *(f"postgresql://db/shop?pipeline=a&{name}=x" for name in ("dbname", "host", "hostaddr", "service")),
        "postgresql://db/shop?port=1&pipeline=a",
        "postgresql://db/shop?h%6Fst=x&pipeline=a",
    ],
)
def test_urls_that_lack_something_are_refused(url):
    with pytest.raises(SpecError) as raised:
        store_of({"state_store": url})
    assert raised.value.code == "bad-store"
    assert "pipeline=name" in raised.value.hint
    assert "secret-word" not in str(raised.value)


def test_of_several_servers_the_one_that_takes_writes_is_meant():
    url = "postgresql://one,two/shop?pipeline=a"
    with pytest.raises(SpecError, match="several servers"):
        TablesPlace(Secret(url))
    with pytest.raises(SpecError, match="several servers"):
        TablesPlace(Secret(f"{url}&target_session_attrs=any"))
    assert TablesPlace(Secret(f"{url}&target_session_attrs=read-write")).pipeline == "a"


def test_what_a_url_says_goes_to_the_client_as_it_is_written():
    place = TablesPlace(Secret("postgresql://me@db/shop?password=a+b%2Fc&pipeline=a&sslmode=require"))
    assert str.__str__(place.client_url).startswith(
        "postgresql://me@db/shop?password=a+b%2Fc&sslmode=require&"
    )


@pytest.mark.parametrize(
    ("spoiling", "mending", "said"),
    [
        ("SET UNLOGGED", "SET LOGGED", "is UNLOGGED"),
        ("DROP CONSTRAINT files_pkey", "ADD PRIMARY KEY (pipeline, name, part)", "has no PRIMARY KEY"),
    ],
)
def test_a_table_that_would_lose_rows_or_take_two_is_refused(postgres, store, spoiling, mending, said):
    store.check()
    postgres.run(f"ALTER TABLE watersmeet_state.files {spoiling}")
    try:
        with pytest.raises(StateError, match="files") as raised:
            store.check()
    finally:
        postgres.run(f"ALTER TABLE watersmeet_state.files {mending}")
    assert raised.value.code == "store-refused"
    assert said in str(raised.value)
    store.check()


def test_tables_that_were_there_are_not_made_anew(postgres, pipeline, store):
    store.write("runs/a", b"x")
    postgres.run("ALTER SCHEMA watersmeet_state RENAME TO away")
    try:
        for asked in (
            lambda: store.create("manifests/1", b"x"),
            lambda: store.read("runs/a"),
            lambda: store.names("runs"),
        ):
            with pytest.raises(StateError, match="no longer exists"):
                asked()
        assert postgres.run("SELECT 1 FROM pg_namespace WHERE nspname = 'watersmeet_state'") == ""
    finally:
        postgres.run("DROP SCHEMA IF EXISTS watersmeet_state CASCADE")
        postgres.run("ALTER SCHEMA away RENAME TO watersmeet_state")
    assert bytes(store.read("runs/a")) == b"x"


def test_settings_of_object_stores_are_refused():
    with pytest.raises(SpecError, match="state_store_region"):
        store_of({"state_store": "postgresql://db/shop?pipeline=a", "state_store_region": "x"})


@pytest.mark.full
def test_store_reads_back_a_gigabyte(postgres, pipeline, store):
    """Takes 3 GB of memory: the file is sent and read in rows, and little more than it is held."""
    block = os.urandom(1 << 20)
    data = pa.py_buffer(block * 1100)
    began = time.monotonic()
    store.write("runs/large", data)
    written = time.monotonic()
    assert store.read("runs/large").equals(data)
    print(f"{written - began:.1f} s written, {time.monotonic() - written:.1f} s read")


def test_a_place_is_the_same_whoever_asks():
    one, two = (
        TablesPlace(Secret(f"postgresql://{who}db/shop?pipeline=a")) for who in ("me:word@", "you:other@")
    )
    assert one.url == two.url == "postgresql://db:5432/shop?pipeline=a"


def test_transactions_are_of_their_own_isolation_and_durable_whatever_the_role_says(postgres, store):
    store.check()
    role = "ALTER ROLE watersmeet"
    for setting in ("default_transaction_isolation = serializable", "synchronous_commit = off"):
        postgres.run(f"{role} SET {setting}")
    try:
        client_module.close_idle(store.place.client_url, "state")

        def asked(cursor):
            names = ("transaction_isolation", "synchronous_commit", "lock_timeout")
            return [
                client_module.rows_of(cursor, f"SELECT current_setting('{name}')")[0][0] for name in names
            ]

        for _ in range(2):
            assert store._run_in_transaction("ask", asked, writes=True) == ["read committed", "on", "20s"]
            assert store.create(f"manifests/{uuid.uuid4().hex}", b"x")
    finally:
        postgres.run(f"{role} RESET ALL")
        client_module.close_idle(store.place.client_url, "state")
