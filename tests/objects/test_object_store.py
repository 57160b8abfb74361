"""A store of objects: the contract of every store, over an S3 server, and whatever goes wrong on the way."""

from __future__ import annotations

import itertools
import pickle
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest

from tests.support.s3 import FAULTS, ClientWith, Proxy, store_at
from watersmeet.errors import SpecError, StateError
from watersmeet.objects import object_store as store_module
from watersmeet.objects.object_store import ObjectLocation, ObjectStore, _client


def test_what_is_written_is_read(store):
    store.write("runs/a", pa.py_buffer(b"abc"))
    store.write("runs/empty", b"")
    store.write("work/b", b"passing", lasting=False)
    assert bytes(store.read("runs/a")) == b"abc"
    assert bytes(store.read("runs/empty")) == b""
    assert store.has("work/b")
    assert not store.has("work/c")
    assert store.names("runs") == ["runs/a", "runs/empty"]
    assert store.names("nothing") == []


def test_create_never_overwrites(store):
    assert store.create("manifests/1", b"first")
    assert not store.create("manifests/1", b"second")
    assert bytes(store.read("manifests/1")) == b"first"


def test_deleting_twice_is_deleting_once(store):
    store.write("runs/a", b"x")
    store.write("runs/b", b"x")
    store.delete("runs/a")
    store.delete("runs/a")
    store.delete_all(["runs/b", "runs/none"])
    assert store.names("runs") == []


def test_what_is_missing_is_a_state_error_with_a_hint(store):
    with pytest.raises(StateError, match="runs/gone") as raised:
        store.read("runs/gone")
    assert raised.value.code == "state-missing"
    assert raised.value.hint


def test_store_check_leaves_no_objects(store):
    store.check()
    assert store.names("") == []


def test_a_pickled_store_is_the_same_place_without_keys(store):
    store.write("runs/a", b"abc")
    pickled = pickle.dumps(store)
    assert b"of-the-tests" not in pickled
    assert "of-the-tests" not in repr(store)
    assert bytes(pickle.loads(pickled).read("runs/a")) == b"abc"


def test_what_is_written_together_is_there_when_that_ends_and_is_read_before(store):
    with store.together():
        with store.together():
            for number in range(20):
                store.write(f"runs/{number}", b"%d" % number)
        assert bytes(store.read("runs/7")) == b"7"
    assert len(store.names("runs")) == 20


def test_what_fails_together_is_raised_at_the_end(endpoint, bucket):
    with Proxy(endpoint, lambda method, path, n: "unavailable" if path.endswith("/b") else None) as proxy:
        store = store_at(proxy.endpoint, bucket, patience_s=0.2)
        together = store.together()
        together.__enter__()
        store.write("runs/a", b"a")
        store.write("runs/b", b"b")
        with pytest.raises(StateError, match='take "runs/b"') as raised:
            together.__exit__(None, None, None)
    assert raised.value.code == "store-away"


def test_of_many_that_create_one_name_one_does(store):
    with ThreadPoolExecutor(8) as threads:
        created = list(threads.map(lambda n: store.create("manifests/1", b"%d" % n), range(8)))
    assert created.count(True) == 1
    assert bytes(store.read("manifests/1")) == b"%d" % created.index(True)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_call_gets_over_one_fault(endpoint, bucket, fault):
    """With the fault at the first request of each call: also where what was asked for is done already."""
    faults = iter(())

    with Proxy(endpoint, lambda method, path, n: next(faults, None)) as proxy:
        store = store_at(proxy.endpoint, bucket)
        faults = iter([fault])
        assert store.create("manifests/1", b"mine")
        faults = iter([fault])
        assert not store.create("manifests/1", b"another's")
        faults = iter([None, fault])  # the one that reads what is there
        assert not store.create("manifests/1", b"another's")
        faults = iter([fault])
        store.write("runs/a", b"abc" * 1000)
        faults = iter([fault])
        assert bytes(store.read("runs/a")) == b"abc" * 1000
        faults = iter([fault])
        assert store.has("runs/a")
        faults = iter([fault])
        assert store.names("runs") == ["runs/a"]
        faults = iter([fault])
        store.delete("runs/a")
        faults = iter([fault])
        assert not store.has("runs/a")
        faults = iter([fault])
        store.check()
        assert proxy.faults[fault] == 10
    assert bytes(store_at(endpoint, bucket).read("manifests/1")) == b"mine"


@pytest.mark.parametrize("seed", range(4))
def test_two_that_race_through_faults_agree_on_who_created(endpoint, bucket, seed):
    random_of = random.Random(seed)

    def fault(method, path, number):
        return random_of.choice(FAULTS[:4]) if random_of.random() < 0.3 else None

    with Proxy(endpoint, fault) as proxy, ThreadPoolExecutor(2) as threads:
        stores = [store_at(proxy.endpoint, bucket) for _ in range(2)]
        for number in range(8):
            name = f"manifests/{number}"
            created = list(
                threads.map(lambda of, name=name: stores[of].create(name, b"by %d" % of), range(2))
            )
            assert sorted(created) == [False, True], (seed, number)
            found = bytes(store_at(endpoint, bucket).read(name))
            assert found == b"by %d" % created.index(True), (seed, number)


def test_a_create_whose_end_nobody_knows_says_so(endpoint, bucket):
    with Proxy(endpoint, lambda method, path, n: "lost") as proxy:
        store = store_at(proxy.endpoint, bucket, patience_s=0.2)
        with pytest.raises(StateError, match="did not take") as raised:
            store.create("manifests/1", b"mine")
    assert raised.value.code == "store-away"
    assert "resumes after its last tick" in raised.value.hint


def test_a_store_that_ignores_the_condition_is_refused(endpoint, bucket, monkeypatch):
    """As some did for years: the second put is answered like the first."""
    with Proxy(endpoint) as proxy:
        proxy.ignores = "if-none-match"
        with pytest.raises(StateError, match="does not support conditional writes") as raised:
            store_at(proxy.endpoint, bucket).check()
    assert raised.value.code == "no-conditional-put"


def test_store_without_conditional_writes_is_refused(endpoint, bucket, monkeypatch):
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    _client.cache_clear()
    try:
        with pytest.raises(StateError) as raised:
            store_at(endpoint, bucket).check()
    finally:
        _client.cache_clear()
    assert raised.value.code == "no-conditional-put"


def test_missing_bucket_is_reported_immediately(endpoint):
    store = store_at(endpoint, "bucket-nowhere")
    for call in (
        store.check,
        lambda: store.write("runs/a", b"x"),
        lambda: store.read("runs/a"),
        lambda: store.names("runs"),
    ):
        with pytest.raises(StateError, match="NoSuchBucket") as raised:
            call()
        assert raised.value.code == "no-bucket"
        assert "\n" not in raised.value.message


def test_denied_access_is_reported_without_retry_or_keys(endpoint, bucket):
    with Proxy(endpoint) as proxy:
        proxy.status = 403
        with pytest.raises(StateError) as raised:
            store_at(proxy.endpoint, bucket).write("runs/a", b"x")
        assert sum(proxy.requests.values()) == 1
    assert raised.value.code == "store-denied"
    assert "AWS_ACCESS_KEY_ID" in raised.value.hint
    assert "of-the-tests" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///prefix",
        "http://bucket/prefix",
        "ftp://bucket/prefix",
        "bucket/prefix",
        "s3://me:secret-word@bucket/prefix",
        "s3://bucket/prefix?secret_access_key=secret-word",
    ],
)
def test_urls_that_name_no_bucket_or_hold_keys_are_refused(url):
    with pytest.raises(SpecError) as raised:
        ObjectLocation(url)
    assert raised.value.code == "bad-store"
    assert "secret-word" not in str(raised.value)


def test_options_that_the_client_does_not_know_are_refused():
    with pytest.raises(StateError, match="nonsense") as raised:
        ObjectStore(ObjectLocation("s3://bucket/a", (("nonsense", "x"),))).read("a")
    assert raised.value.code == "store-refused"


def test_without_the_library_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "obstore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    with pytest.raises(StateError) as raised:
        ObjectStore(ObjectLocation("s3://bucket/never-used")).read("a")
    assert raised.value.code == "missing-library"
    assert "pip install 'watersmeet[objects]'" in raised.value.hint


def test_faults_of_the_seeded_kind_really_come():
    random_of = random.Random(0)
    assert {random_of.choice(FAULTS) for _ in itertools.repeat(None, 99)} == set(FAULTS)


def test_conflicting_conditional_write_is_retried(endpoint, bucket):
    """S3 answers 409 while another conditional put of the name is under way, and then there may be none."""
    with Proxy(endpoint, lambda method, path, n: "conflict" if method == "PUT" and n < 12 else None) as proxy:
        assert store_at(proxy.endpoint, bucket).create("manifests/1", b"mine")
        assert proxy.faults["conflict"] > 3
    with Proxy(endpoint, lambda method, path, n: "conflict" if method == "PUT" else None) as proxy:
        store = store_at(proxy.endpoint, bucket, patience_s=0.3)
        with pytest.raises(StateError, match="did not take") as raised:
            store.create("manifests/2", b"mine")
    assert raised.value.code == "store-away"


def test_create_resumed_after_a_long_pause_reports_the_current_state(store, monkeypatch):
    """What was in the way is gone by then, as after a run that was frozen for longer than requests are
    repeated for."""
    store.create("begun/1", b"of another")
    client = store.place.client()

    def get(name):
        with suppress(FileNotFoundError):
            client.delete([name])
        later = time.monotonic() + 10_000
        monkeypatch.setattr(time, "monotonic", lambda: later)
        return client.get(name)

    monkeypatch.setattr(ObjectLocation, "client", lambda _: ClientWith(client, get=get))
    assert store.create("begun/1", b"mine")
    assert bytes(client.get("begun/1").bytes()) == b"mine"


def test_of_many_deletes_one_that_is_missing_stops_none(store, monkeypatch):
    """As with a store that deletes them one after the other, and stops at the first that is not there."""
    client = store.place.client()

    def delete(names):
        for name in names:
            client.head(name)
            client.delete(name)

    names = [f"runs/{number}" for number in range(6)]
    for name in names[1:]:
        store.write(name, b"x")
    with monkeypatch.context() as patch:
        patch.setattr(ObjectLocation, "client", lambda _: ClientWith(client, delete=delete))
        assert store.delete_all(names) == 0
    assert store.names("runs") == []


def test_batched_writes_limit_pending_uploads(store, monkeypatch):
    monkeypatch.setattr(store_module, "MOST_WAITING", 4)
    most = 0
    with store.together():
        for number in range(20):
            store.write(f"runs/{number}", b"%d" % number)
            most = max(most, len(store._uploads.waiting))
        assert bytes(store.read("runs/0")) == b"0"
    assert most == 4
    assert len(store.names("runs")) == 20


def test_what_is_written_while_all_is_removed_goes_too(store, monkeypatch):
    """By a run on another machine, say; what goes on writing for ever is said."""
    store.write("runs/a", b"x")
    store.create("job/reset", b"{}")
    client, late = store.place.client(), iter(["runs/b", "runs/c"])

    def with_one_more(names):
        client.delete(names)
        if (name := next(late, None)) is not None:
            store.write(name, b"x")

    with monkeypatch.context() as patch:
        patch.setattr(ObjectLocation, "client", lambda _: ClientWith(client, delete=with_one_more))
        store.clear({"runs", "job"}, last="job/reset")
        assert store.names("runs") == []
        assert store.names("job") == []
        late = (f"runs/{number}" for number in range(100))
        store.write("runs/a", b"x")
        with pytest.raises(StateError, match="cannot be emptied"):
            store.clear({"runs", "job"}, last="job/reset")


def test_plain_http_store_requires_aws_allow_http(endpoint, bucket, monkeypatch):
    """For who names a store alone, as `state copy` does; the client's settings do not hide it."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(StateError) as refused:
        ObjectStore(ObjectLocation(f"s3://{bucket}/refused")).has("a")
    assert refused.value.code == "store-refused"
    assert "SET state_store_allow_http = true" in str(refused.value.hint)
    assert "AWS_ALLOW_HTTP=true" in str(refused.value.hint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    store = ObjectStore(ObjectLocation(f"s3://{bucket}/allowed"))
    store.create("a", b"x")
    assert store.has("a")
