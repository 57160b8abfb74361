"""A job whose state is in tables of PostgreSQL gives the same rows as one in a directory, whatever goes wrong
on the way; of two that run it one is stopped; and a tick takes few messages."""

from __future__ import annotations

import itertools
import json
import random
import threading
from functools import partial

import pytest

from tests.cli.test_state_commands import JOB
from tests.objects.test_job_over_objects import QUERY, outputs, ticks_of
from tests.objects.test_looking_after import command
from tests.support.effort import at_effort
from tests.support.postgres import Postgres
from tests.support.postgres_proxy import FAULTS, PostgresProxy
from tests.support.s3 import KEYS, make_bucket, s3_server
from tests.support.tables import new_pipeline, tables_at
from tests.support.ticks import bag, plan_of
from watersmeet import parse_job, plan_job
from watersmeet import postgres_server as client_module
from watersmeet.errors import StateError
from watersmeet.objects.cache import Cache
from watersmeet.objects.postgres_store import TablesStore
from watersmeet.objects.settings import store_of
from watersmeet.runtime.coordinator.driver import TickDriver
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint, Intent, check_reset_finished
from watersmeet.state import garbage_collection
from watersmeet.state.commits import commit
from watersmeet.state.garbage_collection import TickRetention, tick_of
from watersmeet.state.manifest import BEGUN, Manifest, load_newest, manifest_name, manifest_names
from watersmeet.state.store import LocalStore

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(client_module, "RETRY_WAIT_S", 0.01)
    monkeypatch.setattr(client_module, "MAX_RETRY_WAIT_S", 0.2)


@pytest.fixture
def store(postgres):
    return tables_at(postgres.url, new_pipeline())


def run_on(open_store, ticks, anew_every=3):
    """The job, begun anew by another driver after every third tick."""
    given = []
    for number, rows in enumerate(ticks):
        if number % anew_every == 0:
            job = LocalJob(plan_of(QUERY), open_store(), partitions=1 + number % 4)
        given.append(bag(job.tick(rows)))
    given.append(bag(job.tick({}, end=True)))
    job.driver.ledger.settle()
    return given


@pytest.mark.parametrize("seed", range(at_effort(quick=1, full=2)))
def test_a_job_through_faults_is_the_job_in_a_directory(postgres, tmp_path, seed):
    expected = outputs(LocalStore(tmp_path / "state"), ticks_of(seed, 9))
    random_of, pipeline = random.Random(seed), new_pipeline()

    def fault(number):
        return random_of.choice(FAULTS) if random_of.random() < 0.02 else None

    with PostgresProxy(postgres, fault) as proxy:
        given = run_on(lambda: tables_at(proxy.url, pipeline), ticks_of(seed, 9))
        assert len(proxy.faults) >= 2, proxy.faults
    assert given == expected


@pytest.mark.full
@pytest.mark.parametrize("fault", ["lost", "terminated"])
def test_session_lost_at_any_message_of_a_tick_changes_nothing(postgres, tmp_path, fault):
    ticks = ticks_of(3, 3)
    expected = outputs(LocalStore(tmp_path / "state"), ticks)
    met = 0
    for number in itertools.count(random.Random(fault).randrange(19), 19):
        with PostgresProxy(postgres, lambda n, at=number: fault if n == at else None) as proxy:
            store = tables_at(proxy.url, new_pipeline())
            assert run_on(lambda store=store: store, ticks, 2) == expected, number
            client_module.close_idle(store.place.client_url, "state")
            met += proxy.faults[fault]
            if not proxy.faults[fault]:
                break
    assert met > 5


def test_a_server_that_restarts_between_and_within_ticks_loses_nothing(tmp_path):
    ticks = ticks_of(4, 8)
    expected = outputs(LocalStore(tmp_path / "state"), ticks)
    with Postgres() as server:
        job = LocalJob(plan_of(QUERY), tables_at(server.url, "one"), partitions=2)
        given = []
        for number, rows in enumerate(ticks):
            if number % 3 == 1:
                server.stop(crash=number % 2 == 1)
                threading.Timer(0.2, server.start).start()
            given.append(bag(job.tick(rows)))
        given.append(bag(job.tick({}, end=True)))
        job.driver.ledger.settle()
    assert given == expected


def test_of_two_drivers_one_is_stopped_and_nothing_of_the_other_is_lost(store, tmp_path):
    ticks = ticks_of(5, 6)
    first, second = (LocalJob(plan_of(QUERY), store, partitions=2) for _ in range(2))
    given = [bag(first.tick(ticks[0]))]
    with pytest.raises(StateError, match="committed by another process") as raised:
        second.tick(ticks[0])
    assert raised.value.code == "state-fenced"
    given += [bag(first.tick(rows)) for rows in ticks[1:]]
    given.append(bag(first.tick({}, end=True)))
    assert given == outputs(LocalStore(tmp_path / "state"), ticks)


@pytest.mark.parametrize("behind", [1, pytest.param(2, marks=pytest.mark.full), 5])
def test_one_that_slept_is_stopped_though_its_manifest_is_deleted(store, behind):
    ticks = ticks_of(6, 3 + behind)
    for rows in ticks[:2]:
        LocalJob(plan_of(QUERY), store).tick(rows)
    sleeper, other = LocalJob(plan_of(QUERY), store), LocalJob(plan_of(QUERY), store)
    for rows in ticks[2 : 2 + behind]:
        other.tick(rows)
        other.driver.ledger.settle()
    before = manifest_names(store)
    with pytest.raises(StateError) as raised:
        sleeper.tick(ticks[2])
    assert raised.value.code in ("state-fenced", "state-missing")
    assert manifest_names(store) == before
    other.tick(ticks[-1])
    other.driver.ledger.settle()
    assert load_newest(store).tick == 3 + behind


@pytest.mark.parametrize(
    "behind", [0, 4, *(pytest.param(ticks, marks=pytest.mark.full) for ticks in (1, 2, 3))]
)
def test_a_manifest_whose_name_is_free_again_is_not_created(store, behind):
    def manifest(tick):
        return Manifest(tick=tick, clock_us=0, fingerprints={}, sources=[], queries={})

    kept = TickRetention(store)
    for tick in range(1, 7):
        kept.commit(commit(store, manifest(tick)))
        kept.settle()
    with pytest.raises(StateError, match="committed by another process"):
        commit(store, manifest(6 - behind))
    assert manifest_names(store) == [manifest_name(5), manifest_name(6)]


@pytest.mark.parametrize("cached", [True, False])
def test_messages_of_a_tick_are_few(postgres, cached, tmp_path):
    with PostgresProxy(postgres) as proxy:
        place = tables_at(proxy.url, new_pipeline()).place
        store = TablesStore(place, Cache(place.url, root=str(tmp_path / "cache")) if cached else None)
        job = LocalJob(plan_of(QUERY), store, partitions=2)
        ticks = ticks_of(7, 12)
        job.tick(ticks[0])
        job.driver.ledger.settle()
        proxy.forget()
        for rows in ticks[1:]:
            job.tick(rows)
            job.driver.ledger.settle()
        count = len(ticks) - 1
        print(f"a tick: {proxy.messages / count:.1f} messages, {proxy.connections / count:.1f} connections,")
        print(f"{proxy.sent // count:,} bytes sent, {proxy.given // count:,} given")
        assert proxy.messages / count < (60 if cached else 130)
        assert proxy.connections <= count + 2
        assert proxy.sent / count < 60_000


def test_files_that_no_manifest_names_are_deleted(store, monkeypatch):
    monkeypatch.setattr(garbage_collection, "SEARCH_TICKS", 8)
    store.write("runs/q.l-1-00ff.arrow", b"of an attempt that came to nothing")
    job, ticks = LocalJob(plan_of(QUERY), store), ticks_of(8, 5)
    for rows in ticks:
        job.tick(rows)
        job.driver.ledger.settle()
    assert "runs/q.l-1-00ff.arrow" not in store.names("runs")
    assert manifest_names(store) == [manifest_name(4), manifest_name(5)]
    assert load_newest(store).files() <= {*store.names("runs"), *store.names("marks")}
    store.write("marks/3-00ff", b"x")
    store.write("marks/900-00ff", b"of a tick that is under way")
    while job.driver.tick < 9:
        job.tick({})
        job.driver.ledger.settle()
    left = [name for folder in ("runs", "marks", "work") for name in store.names(folder)]
    assert "marks/900-00ff" in left
    assert "marks/3-00ff" not in left
    assert all(tick_of(name) >= job.driver.tick for name in left if name not in load_newest(store).files())


def test_what_makes_a_job_the_same_is_in_the_tables(tmp_path, store):
    one, two = (Checkpoint(tmp_path / name, store) for name in ("one", "two"))
    with one.lock(), two.lock():
        assert one.owner() == two.owner()
        one.keep_settings("d1", {"lag": "1"})
        assert two.settings("d1") == ("d1", {"lag": "1"})
        one.intend(Intent(7, 99, False))
        with pytest.raises(StateError, match="another process has started tick"):
            two.intend(Intent(7, 100, False))
    for file in (tmp_path / "one").iterdir():
        assert "password" not in file.read_text()
    assert json.loads((tmp_path / "one" / "store").read_text().splitlines()[0])["url"] == store.place.url
    one.stored_job.remove()
    check_reset_finished(one, "watersmeet reset")
    assert [store.names(folder) for folder in ("manifests", "job", "begun")] == [[], [], []]


class Ran:
    """A job of seven ticks whose state is in tables."""

    def __init__(self, folder, postgres, endpoint):
        self.given = {
            "state_store": f"{postgres.url}?pipeline={new_pipeline()}",
            "state_cache": "none",
        }
        self.endpoint = endpoint
        sets = f"SET state_store = '{self.given['state_store']}';\n"
        (folder / "job.sql").write_text(sets + JOB)
        self.checkpoint = Checkpoint(folder / ".watersmeet" / "job", store_of(self.given))
        with self.checkpoint.lock():
            self.owner = self.checkpoint.owner()
        self.out = self.run(7)

    def at(self, url, folder):
        return Checkpoint(folder, store_of({**self.given, "state_store": url}))

    def run(self, until, checkpoint=None):
        store = (checkpoint or self.checkpoint).store
        job = LocalJob(
            plan_job(parse_job(JOB)),
            store,
            settings=TickSettings(keep_ticks=4),
            drive=partial(TickDriver, owner=self.owner),
        )
        out = {}
        for tick in range(job.driver.tick + 1, until + 1):
            rows = [({"k": n, "t": tick * 20 + n}, 1) for n in range(6)]
            out[tick] = job.tick({"a": rows, "b": rows[tick % 3 :]}, clock_us=tick).rows
            job.driver.ledger.settle()
        return out


@pytest.fixture
def finished_run(tmp_path, monkeypatch, postgres):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with s3_server() as endpoint:
        yield Ran(tmp_path, postgres, endpoint)


def test_it_is_listed_and_checked(finished_run, capsys, postgres):
    assert command("state", "show", "job.sql") == 0
    assert command("state", "ls", "job.sql", "--json") == 0
    out = capsys.readouterr().out
    assert postgres.password not in out
    assert [tick["tick"] for tick in json.loads(out[out.index("\n[") :])] == [4, 5, 6, 7]
    assert command("state", "check", "job.sql") == 0
    run = sorted(load_newest(finished_run.checkpoint.store).files())[0]
    finished_run.checkpoint.store.delete(run)
    capsys.readouterr()
    assert command("state", "check", "job.sql") == 1
    assert run in capsys.readouterr().out
    assert command("state", "gc", "job.sql") == 2
    assert "cannot tell whether the job runs" in capsys.readouterr().err


def test_copies_go_on_as_the_original_would(finished_run, capsys, postgres, tmp_path, monkeypatch):
    """To a directory, to another pipeline, and by way of an object store."""
    bucket = make_bucket(finished_run.endpoint)
    other, back, last = (f"{postgres.url}?pipeline={new_pipeline()}" for _ in range(3))
    assert command("state", "copy", "job.sql", "copy") == 0
    assert command("state", "copy", "job.sql", other) == 0
    assert command("state", "copy", "copy", back) == 0
    in_s3 = {
        "state_store": f"s3://{bucket}/job",
        "state_store_endpoint": finished_run.endpoint,
        "state_store_allow_http": "true",
    }
    with monkeypatch.context() as patch:  # the job's settings are of the other store
        patch.setenv("AWS_ENDPOINT_URL", finished_run.endpoint)
        patch.setenv("AWS_ALLOW_HTTP", "true")
        assert command("state", "copy", "job.sql", in_s3["state_store"]) == 0
    sets = "".join(f"SET {name} = '{value}';\n" for name, value in in_s3.items())
    (tmp_path / "s3.sql").write_text(sets + JOB)
    assert command("state", "copy", "s3.sql", last) == 0
    said = capsys.readouterr().out
    assert said.count("copied tick 7") == 5
    assert postgres.password not in said
    expected = finished_run.run(10)
    for number, checkpoint in enumerate(
        (
            Checkpoint("copy"),
            *(finished_run.at(url, f"scratch{n}") for n, url in enumerate((other, back, last), 3)),
        )
    ):
        assert checkpoint.owner() == finished_run.owner
        assert finished_run.run(10, checkpoint) == expected, number
    for place in ("copy", other):
        assert command("state", "copy", "job.sql", place) == 2
        assert "is not empty" in capsys.readouterr().err


def test_it_goes_back(finished_run, capsys):
    finished_run.checkpoint.intend(Intent(8, 1, False))
    left = f"{BEGUN}/{6:012d}.json"  # as a kill leaves it, between the manifest and its removal
    finished_run.checkpoint.store.create(left, b'{"clock_us": 1, "end": false}')
    assert command("state", "restore", "job.sql", "--tick", "5", "--yes") == 0
    assert "a run on another machine can commit no more" in capsys.readouterr().out
    assert [finished_run.checkpoint.intent(tick) for tick in (6, 8)] == [None, None]
    assert not finished_run.checkpoint.store.has(left)
    assert finished_run.run(7) == {tick: out for tick, out in finished_run.out.items() if tick > 5}
    assert command("state", "check", "job.sql") == 0
