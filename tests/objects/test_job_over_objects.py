"""A job whose state is in an object store gives the same rows as one in memory, whatever goes wrong on the
way; of two that run it one is stopped; and a tick makes few requests."""

from __future__ import annotations

import random

import pytest

from tests.support.effort import at_effort
from tests.support.s3 import FAULTS, Proxy, store_at
from tests.support.ticks import arriving, bag, plan_of
from watersmeet.errors import StateError
from watersmeet.objects.cache import Cache
from watersmeet.objects.object_store import ObjectStore
from watersmeet.runtime.coordinator import merge_policy
from watersmeet.runtime.local import LocalJob
from watersmeet.state import garbage_collection
from watersmeet.state.commits import commit
from watersmeet.state.garbage_collection import TickRetention, tick_of
from watersmeet.state.manifest import Manifest, load_newest, manifest_name, manifest_names
from watersmeet.state.store import MemoryStore

QUERY = "SELECT l.i AS a, r.i AS b FROM l LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5"


def ticks_of(seed, count):
    drawn = random.Random(seed)

    def row(tick, number):
        time, key = 4 * tick + drawn.randrange(4), drawn.choice("abcd")
        return {"t": time, "k": key, "v": number, "i": 10 * tick + number}

    def rows(tick):
        return [row(tick, number) for number in range(drawn.randrange(6))]

    return [arriving(l=rows(tick), r=rows(tick)) for tick in range(count)]


def outputs(store, ticks, partitions=2):
    job = LocalJob(plan_of(QUERY), store, partitions=partitions)
    return [*(bag(job.tick(given)) for given in ticks), bag(job.tick({}, end=True))]


@pytest.mark.parametrize("seed", range(at_effort(quick=1, full=4)))
def test_a_job_through_faults_is_the_job_in_memory(endpoint, bucket, seed):
    """Begun anew after every third tick, by another driver, with faults at any call."""
    ticks, expected = ticks_of(seed, 9), outputs(MemoryStore(), ticks_of(seed, 9))
    random_of = random.Random(seed)

    def fault(method, path, number):
        return random_of.choice([f for f in FAULTS if f != "slow"]) if random_of.random() < 0.12 else None

    given = []
    with Proxy(endpoint, fault) as proxy:
        for number, rows in enumerate(ticks):
            if number % 3 == 0:
                store = store_at(proxy.endpoint, bucket)
                job = LocalJob(plan_of(QUERY), store, partitions=1 + number % 4)
            given.append(bag(job.tick(rows)))
        given.append(bag(job.tick({}, end=True)))
        job.driver.ledger.settle()
        assert len(proxy.faults) >= 3, proxy.faults
    assert given == expected


def test_of_two_drivers_one_is_stopped_and_nothing_of_the_other_is_lost(store):
    ticks, expected = ticks_of(5, 6), outputs(MemoryStore(), ticks_of(5, 6))
    first, second = (LocalJob(plan_of(QUERY), store, partitions=2) for _ in range(2))
    given = [bag(first.tick(ticks[0]))]
    with pytest.raises(StateError, match="committed by another process") as raised:
        second.tick(ticks[0])
    assert raised.value.code == "state-fenced"
    given += [bag(first.tick(rows)) for rows in [*ticks[1:], {}][:-1]]
    given.append(bag(first.tick({}, end=True)))
    assert given == expected


@pytest.mark.parametrize("behind", [1, pytest.param(2, marks=pytest.mark.full), 5])
def test_one_that_slept_is_stopped_though_its_manifest_is_deleted(store, behind):
    """It would create the manifest of a tick that is long done, whose name is free again."""
    ticks = ticks_of(6, 3 + behind)
    LocalJob(plan_of(QUERY), store).tick(ticks[0])
    LocalJob(plan_of(QUERY), store).tick(ticks[1])
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
def test_requests_of_a_tick_are_few_and_none_is_a_list(endpoint, bucket, cached, tmp_path):
    """Over many ticks: what each costs on its way, and what is deleted behind it."""
    with Proxy(endpoint) as proxy:
        cache = Cache("here", root=str(tmp_path / "cache")) if cached else None
        store = ObjectStore(store_at(proxy.endpoint, bucket).place, cache)
        job = LocalJob(plan_of(QUERY), store, partitions=2)
        ticks = ticks_of(7, 12)
        job.tick(ticks[0])
        job.driver.ledger.settle()
        proxy.forget()
        for rows in ticks[1:]:
            job.tick(rows)
            job.driver.ledger.settle()
        requests, count = dict(proxy.requests), len(ticks) - 1
        print({f"{m} {f}": round(n / count, 2) for (m, f), n in sorted(requests.items())})
        print(f"bytes a tick: {proxy.sent // count:,} sent, {proxy.given // count:,} given")
        assert not [asked for asked in requests if asked[1] == "list"]
        assert requests["PUT", "manifests"] == count
        assert requests["GET", "manifests"] <= 2 * count  # by the fence, and behind it before deletes
        assert requests["PUT", "runs"] <= 2 * count + 4
        deletes = sum(n for (method, folder), n in requests.items() if method in ("POST", "DELETE"))
        assert deletes <= 2 * count
        assert proxy.sent / count < 40_000
        if cached:
            assert not [asked for asked in requests if asked[0] == "GET" and asked[1] != "manifests"]


def test_files_that_no_manifest_names_are_deleted(store, monkeypatch):
    """Work files and what dead attempts left: now and then, and when a driver begins."""
    monkeypatch.setattr(garbage_collection, "SEARCH_TICKS", 8)
    store.write("runs/q.l-1-00ff.arrow", b"of an attempt that came to nothing")
    job, ticks = LocalJob(plan_of(QUERY), store), ticks_of(8, 5)
    job.tick(ticks[0])
    assert "runs/q.l-1-00ff.arrow" not in store.names("runs")
    for rows in ticks[1:]:
        job.tick(rows)
    job.driver.ledger.settle()
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


def test_files_are_named_by_the_tick_that_makes_them(store, monkeypatch):
    """Of merged rows, too, which are older: else a driver that slept, and then looks for what nobody named,
    would take what another one merged meanwhile for garbage of its own ticks."""
    monkeypatch.setattr(merge_policy, "FAN_IN", at_effort(quick=2, full=merge_policy.FAN_IN))
    wider = QUERY.replace("5", "500")
    job, known, merged = LocalJob(plan_of(wider), store), set[str](), 0
    for number, rows in enumerate(ticks_of(5, at_effort(quick=8, full=40)), 1):
        job.tick(rows)
        manifest = load_newest(store)
        new = {name for name in manifest.files() if name.startswith(("runs/", "marks/"))} - known
        assert {tick_of(name) for name in new} <= {number}
        known |= new
        merged += sum(live.run.level > 0 and live.run.name in new for live in manifest.runs())
    assert merged > 2
