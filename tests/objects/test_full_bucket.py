"""A bucket in which there is no room: waited for, then told; with room again all goes on, and nothing is lost
or comes twice."""

from __future__ import annotations

import itertools
import threading

import pytest

from tests.objects.test_job_over_objects import QUERY, outputs, ticks_of
from tests.support.effort import at_effort
from tests.support.s3 import FULL, FullBucket, Proxy, store_at
from tests.support.ticks import bag, plan_of
from watersmeet.errors import StateError
from watersmeet.runtime.local import LocalJob
from watersmeet.state.store import MemoryStore

TICKS = 3


def test_nothing_is_lost_wherever_the_room_ends(endpoint, bucket):
    """From each put in turn (at quick effort from every fifth) on there is no room until the job fails."""
    ticks, expected = ticks_of(11, TICKS), outputs(MemoryStore(), ticks_of(11, TICKS))
    steps = [*((rows, False) for rows in ticks), ({}, True)]
    full, errors, stride = FullBucket(), list[StateError](), at_effort(quick=5, full=1)
    with Proxy(endpoint) as proxy:
        for puts in range(0, 1_000, stride):
            failed = len(errors)
            store = store_at(proxy.endpoint, bucket, f"state{puts}", timeout_s=5.0, patience_s=0.05)
            left = itertools.count()

            def fault(method, path, number, left=left, puts=puts):
                says = full(method, path, number)
                return says if says is not None and next(left) >= puts else None

            proxy.fault, full.says = fault, FULL[puts % len(FULL)]
            given, job = list[object](), None
            while len(given) < len(steps):
                rows, end = steps[len(given)]
                try:
                    job = job or LocalJob(plan_of(QUERY), store, partitions=2)
                    given.append(bag(job.tick(rows, end=end)))
                except StateError as error:
                    errors.append(error)
                    full.says = job = None
            assert given == expected, f"without room from put {puts} on"
            if len(errors) == failed:  # there are no more puts than that
                break
    assert {error.code for error in errors} == {"store-full"}
    assert all(bucket in error.message and "<" not in error.message for error in errors)
    assert len(errors) * stride > 2 * TICKS


def test_room_that_comes_in_time_is_waited_for(endpoint, bucket):
    ticks, expected = ticks_of(12, 3), outputs(MemoryStore(), ticks_of(12, 3))
    full = FullBucket()
    with Proxy(endpoint, full) as proxy:
        job = LocalJob(plan_of(QUERY), store_at(proxy.endpoint, bucket), partitions=2)
        given = []
        for number, rows in enumerate(ticks):
            full.says = FULL[number]
            there_is_room = threading.Timer(0.3, lambda: setattr(full, "says", None))
            there_is_room.start()
            given.append(bag(job.tick(rows)))
            there_is_room.join()
        given.append(bag(job.tick({}, end=True)))
        assert sum(proxy.faults.values()) >= 3
    assert given == expected


def test_a_name_that_speaks_of_quotas_is_no_full_bucket(endpoint, bucket):
    with Proxy(endpoint) as proxy:
        store = store_at(proxy.endpoint, bucket, "QuotaExceeded/StorageFull", timeout_s=5.0)
        proxy.status = 403
        with pytest.raises(StateError) as raised:
            store.write("runs/a", b"x")
    assert raised.value.code == "store-denied"
