"""Runs in sections, over an S3 server: a task fetches what is its own, through faults; what is damaged is
found; an object stays for as long as one of its sections is named; a copy has all of them."""

from __future__ import annotations

import pickle
import random
from collections import defaultdict

import pyarrow as pa
import pytest

from tests.support.effort import at_effort
from tests.support.far_store import FarStore, cut_small
from tests.support.s3 import FAULTS, Proxy, store_at
from tests.support.ticks import arriving, bag, plan_of
from watersmeet.errors import StateError
from watersmeet.objects.cache import Cache
from watersmeet.objects.object_store import ObjectStore
from watersmeet.runtime.local import LocalJob
from watersmeet.state.copy import copy_newest, damage_in
from watersmeet.state.manifest import load, load_newest, manifest_names
from watersmeet.state.runs import writer as written
from watersmeet.state.store import LocalStore, MemoryStore, Section, object_of, section_of

QUERY = "SELECT l.i AS a, r.i AS b FROM l LEFT JOIN r ON l.k = r.k AND r.t BETWEEN l.t - 5 AND l.t + 5"
OBJECT = "runs/q.l-1-0f3a.arrow"


def sent(value):
    """As it comes to another machine."""
    return pickle.loads(pickle.dumps(value))


class Elsewhere:
    """Each task is run by a process of its own, as far as that shows: with a store of its own."""

    def run(self, task, *arguments):
        task, arguments = sent((task, arguments))
        return task(*arguments)


def wide_ticks(seed, count, rows):
    """Keys are long and many, so that runs have some bytes."""
    draw = random.Random(seed)

    def row(tick, number):
        time, key = 4 * tick + draw.randrange(4), f"{draw.randrange(rows // 2)}".rjust(200, "k")
        return {"t": time, "k": key, "v": number, "i": rows * tick + number}

    return [
        arriving(**{side: [row(tick, number) for number in range(rows)] for side in "lr"})
        for tick in range(count)
    ]


def fetched_by(result, step):
    return [of_task.fetched for of_task in result.traffic[step]]


@pytest.mark.parametrize("tasks", [pytest.param(2, marks=pytest.mark.full), 4])
def test_a_task_fetches_its_share_of_the_bytes(endpoint, bucket, monkeypatch, tasks):
    """Of what came and of what is kept; without sections each fetches all of what came."""
    ticks, fetched = wide_ticks(1, 3, 1500), {}
    for section_bytes in (1 << 12, 1 << 30):
        monkeypatch.setattr(written, "SECTION_BYTES", section_bytes)
        with Proxy(endpoint) as proxy:
            store = store_at(proxy.endpoint, bucket, f"state-{section_bytes}", timeout_s=10)
            job = LocalJob(plan_of(QUERY), store, partitions=tasks, tasks=Elsewhere())
            outputs, fetched[section_bytes] = [], []
            for rows in ticks:
                out = job.tick(rows)
                outputs.append(bag(out))
                names = [live.run.name for live in job.driver.manifest.runs()]
                assert all(section_of(name) for name in names) == (section_bytes == 1 << 12)
                fetched[section_bytes].append(fetched_by(out.result, "q/0"))
            job.driver.ledger.settle()
            assert outputs == [bag(out) for out in outputs_in_memory(ticks, tasks)]
    few, all_of_it = fetched[1 << 12], fetched[1 << 30]
    for of_tick, whole in zip(few, all_of_it, strict=True):
        for own, before in zip(of_tick, whole, strict=True):
            assert 0.7 / tasks < own / before < 1.3 / tasks
        assert sum(of_tick) < 1.1 * max(whole)


def outputs_in_memory(ticks, tasks):
    job = LocalJob(plan_of(QUERY), MemoryStore(), partitions=tasks)
    return [job.tick(rows) for rows in ticks]


def test_what_is_fetched_is_counted_as_the_server_sees_it(endpoint, bucket, monkeypatch):
    monkeypatch.setattr(written, "SECTION_BYTES", 1 << 12)
    with Proxy(endpoint) as proxy:
        store = store_at(proxy.endpoint, bucket, timeout_s=10)
        job = LocalJob(plan_of(QUERY), store, partitions=4, tasks=Elsewhere())
        job.tick(wide_ticks(2, 1, 800)[0])
        job.driver.ledger.settle()
        store.traffic.take()
        proxy.forget()
        result = job.tick(wide_ticks(2, 2, 800)[1]).result
        job.driver.ledger.settle()
        every = [of_task for of_tasks in result.traffic.values() for of_task in of_tasks]
        every.append(store.traffic.take())  # the manifest, and what is looked at before deletes
        assert sum(of_task.fetched for of_task in every) <= proxy.given
        assert sum(of_task.fetched for of_task in every) > 0.95 * proxy.given
        assert sum(of_task.written for of_task in every) == proxy.sent
        gets = sum(of_task.requests for of_task in every)
        assert gets <= sum(proxy.requests.values()) + 2
        assert {step: len(of_tasks) for step, of_tasks in result.traffic.items()} == {
            "ingest": 2,
            "q/0": 4,
            "driver": 1,
        }


def stored_sections(store, lengths=(1000, 1, 700, 3000)):
    """Some sections of one object, one behind the other; their contents by name."""
    draw, content, sections = random.Random(5), b"", {}
    for length in lengths:
        content += bytes(-len(content) % 64)
        own = draw.randbytes(length)
        sections[Section(OBJECT, len(content), length).name] = own
        content += own
    store.write(OBJECT, pa.py_buffer(content), sections=list(sections))
    return sections


@pytest.mark.parametrize("names", ["all", "every other", "with others"])
def test_sections_are_read_as_they_were_written(endpoint, bucket, names):
    with Proxy(endpoint) as proxy:
        store = store_at(proxy.endpoint, bucket)
        sections = stored_sections(store)
        store.write("runs/other.arrow", b"other")
        sections["runs/other.arrow"] = b"other"
        asked = list(sections)[:: 2 if names == "every other" else 1]
        asked = asked if names == "with others" else [name for name in asked if section_of(name)]
        proxy.forget()
        random.Random(names).shuffle(asked)
        assert [bytes(content) for content in store.read_all(asked)] == [sections[name] for name in asked]
        wanted = {"all": 1, "every other": 2, "with others": 2}[names]
        assert sum(proxy.requests.values()) == wanted
        assert store.has(asked[0])
        assert store.names("runs") == ["runs/other.arrow", OBJECT]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_range_is_asked_for_again_after_a_fault(endpoint, bucket, fault):
    faults = iter(())
    with Proxy(endpoint, lambda method, path, n: next(faults, None)) as proxy:
        store = store_at(proxy.endpoint, bucket)
        sections = stored_sections(store, (200_000, 100, 200_000))
        names = list(sections)[::2]
        faults = iter([fault])
        assert [bytes(content) for content in store.read_all(names)] == [sections[name] for name in names]
        assert proxy.faults[fault] == 1


def test_a_service_that_is_away_is_said(endpoint, bucket):
    with Proxy(endpoint, lambda method, path, n: "unavailable" if method == "GET" else None) as proxy:
        store = store_at(proxy.endpoint, bucket, patience_s=0.3)
        sections = stored_sections(store)
        with pytest.raises(StateError) as raised:
            store.read_all(list(sections))
        assert raised.value.code == "store-away"


def test_an_object_that_is_gone_is_missing(store):
    with pytest.raises(StateError, match=OBJECT) as raised:
        store.read_all([f"{OBJECT}@0+10", f"{OBJECT}@64+10"])
    assert raised.value.code == "state-missing"


def test_what_was_written_is_in_the_cache_by_sections(endpoint, bucket, tmp_path):
    with Proxy(endpoint) as proxy:
        place = store_at(proxy.endpoint, bucket).place
        writer = ObjectStore(place, Cache("here", root=str(tmp_path / "cache")))
        sections = stored_sections(writer)
        reader = ObjectStore(place, Cache("here", root=str(tmp_path / "cache")))
        other = ObjectStore(place, Cache("here", root=str(tmp_path / "other")))
        proxy.forget()
        for store, requests in ((reader, 0), (other, 1), (other, 0)):
            got = store.read_all(list(sections))
            assert [bytes(content) for content in got] == list(sections.values())
            assert sum(proxy.requests.values()) == requests
            assert store.traffic.take().requests == requests
            proxy.forget()


def test_with_uploads_under_way_sections_are_read(store):
    with store.together():
        sections = stored_sections(store)
        for name, content in sections.items():
            assert bytes(store.read(name)) == content


@pytest.mark.parametrize(
    "cut", [0, 900, None, *(pytest.param(cut, marks=pytest.mark.full) for cut in (1, 2000, 40_000))]
)
def test_of_an_object_that_is_cut_off_runs_are_damaged(endpoint, bucket, monkeypatch, tmp_path, cut):
    """Nobody waits for it, and what is left is told from what is not. ``cut``: None: all of it."""
    written_by, _ = job_in_sections(endpoint, bucket, monkeypatch)
    store = ObjectStore(written_by.place, Cache("here", root=str(tmp_path / "cache")))
    manifest = load_newest(store)
    name = next(object_of(live.run.name) for live in manifest.runs())
    content = bytes(written_by.read(name))
    cut = len(content) if cut is None else cut
    store.place.client().put(name, content[: len(content) - cut])
    problems = list(damage_in(manifest, store))
    gone = [
        live.run.name
        for live in manifest.runs()
        if object_of(live.run.name) == name and section_of(live.run.name).end > len(content) - cut
    ]
    assert len(problems) == len(gone)
    assert bool(gone) == (cut > 0)
    assert all(problem.code == "state-damaged" for problem in problems), problems
    if gone:
        with pytest.raises(StateError) as raised:
            store.read_all([live.run.name for live in manifest.runs()])
        assert raised.value.code == "state-damaged"
    store.place.client().put(name, content)
    assert list(damage_in(manifest, store)) == [], "a cache has kept what was there meanwhile"


def job_in_sections(endpoint, bucket, monkeypatch, ticks=1):
    monkeypatch.setattr(written, "SECTION_BYTES", 1 << 10)
    store = store_at(endpoint, bucket, timeout_s=10)
    job = LocalJob(plan_of(QUERY), store, partitions=4)
    for rows in wide_ticks(3, ticks, 300):
        job.tick(rows)
    job.driver.ledger.settle()
    return store, job


def test_a_section_that_is_not_what_was_written_is_found(endpoint, bucket, monkeypatch):
    store, _ = job_in_sections(endpoint, bucket, monkeypatch)
    manifest = load_newest(store)
    run = [live.run for live in manifest.runs()][2]
    section = section_of(run.name)
    content = bytearray(store.read(section.object))
    content[section.offset + section.length // 2] ^= 1
    store.place.client().put(section.object, bytes(content))
    (problem,) = damage_in(manifest, store)
    assert problem.code == "state-damaged"
    assert run.name in problem.message


def test_a_copy_has_all_sections_and_the_job_goes_on_with_it(endpoint, bucket, monkeypatch, tmp_path):
    ticks = wide_ticks(3, 4, 300)
    _, job = job_in_sections(endpoint, bucket, monkeypatch, ticks=2)
    wanted = [bag(job.tick(rows)) for rows in ticks[2:]] + [bag(job.tick({}, end=True))]
    other = store_at(endpoint, bucket, "first")
    first = LocalJob(plan_of(QUERY), other, partitions=4)
    for rows in ticks[:2]:
        first.tick(rows)
    first.driver.ledger.settle()
    targets = [LocalStore(tmp_path / "copy"), MemoryStore(), store_at(endpoint, bucket, "copied")]
    for target in at_effort(quick=targets[::2], full=targets):
        manifest = copy_newest(other, target, lambda _: None)
        assert any(section_of(name) for name in manifest.names())
        assert not any(section_of(name) for name in manifest.files())
        assert list(damage_in(manifest, target)) == []
        going_on = LocalJob(plan_of(QUERY), target, partitions=3)
        got = [bag(going_on.tick(rows)) for rows in ticks[2:]] + [bag(going_on.tick({}, end=True))]
        assert got == wanted
        going_on.driver.ledger.settle()


def test_an_object_stays_for_as_long_as_a_section_is_named(monkeypatch):
    """Keys of one range of hashes come late in each tick, so that sections leave at different times."""
    cut_small(monkeypatch)
    store, draw = FarStore(), random.Random(7)
    job = LocalJob(plan_of(QUERY), store, partitions=4)
    keys = [f"{number}" for number in range(40)]
    times = {key: draw.randrange(40) for key in keys}
    partly = 0
    for tick in range(40):
        rows = [{"t": 4 * tick + times[key], "k": key, "v": 0, "i": tick} for key in keys]
        job.tick(arriving(l=rows, r=rows[::3]))
        job.driver.ledger.settle()
        kept = [load(store, name) for name in manifest_names(store)]
        named = defaultdict(set)
        for manifest in kept:
            for name in manifest.names():
                named[object_of(name)].add(name)
        there = {name for folder in ("runs", "marks") for name in store.names(folder)}
        assert named.keys() == there
        for manifest in kept:
            assert list(damage_in(manifest, store)) == []
        partly += sum(
            0 < len({name for name in names if section_of(name)}) < 3
            for name, names in named.items()
            if name.startswith("runs/")
        )
    assert partly > 0
