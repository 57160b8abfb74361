"""A PostgreSQL server with few connections: a job waits for one, says so, and needs no more than it says."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi

from tests.chaos.killed import Job, in_a_process, run
from tests.sinks.test_postgres import ORIGIN, prepare_sink, stage
from tests.support.postgres import Postgres
from watersmeet import postgres_server as client
from watersmeet.errors import EngineError

pytestmark = pytest.mark.postgres

OF_A_RUN = 6
"""One of the sink, up to three of the state, and of a task one for rows and one for the state."""


@pytest.fixture(scope="module")
def small():
    with Postgres(connections=OF_A_RUN) as server:
        yield server


@contextlib.contextmanager
def occupy_all_connections(server):
    """No connection is left, nor comes free: those that were closed just before take the server a moment."""
    with contextlib.ExitStack() as taken:
        refused_s = time.monotonic()
        while time.monotonic() < refused_s + 0.7:
            try:
                taken.enter_context(contextlib.closing(dbapi.connect(server.url)))
                refused_s = time.monotonic()
            except dbapi.Error:
                time.sleep(0.05)
        yield


def rows_of_tick(tick):
    return pa.table({"id": pa.array([10 * tick, 10 * tick + 1], pa.int64())})


def test_a_connection_is_waited_for_and_nothing_is_lost(small, caplog):
    sink = prepare_sink(small, "waited", {"id": "BIGINT"})
    client.close_idle(sink._url)
    ended = threading.Event()

    def others():
        with occupy_all_connections(small):
            begun.set()
            time.sleep(2)
            ended.set()  # from now on they are given back, one after the other

    begun = threading.Event()
    thread = threading.Thread(target=others)
    thread.start()
    begun.wait()
    stage(sink, rows_of_tick(1), 1)
    assert ended.is_set()
    thread.join()
    assert sink.publish("q", 1, "a", ORIGIN)
    assert "no connection left" in "\n".join(caplog.messages)
    assert "the server is away" not in "\n".join(caplog.messages)
    assert small.password not in "\n".join(caplog.messages)
    sink.close()
    assert small.run("SELECT string_agg(id::text, ' ' ORDER BY id) FROM waited").strip() == "10 11"


def test_one_that_is_never_free_ends_the_wait_with_what_to_do(small):
    sink = prepare_sink(small, "never", {"id": "BIGINT"}, max_wait="1 s")
    client.close_idle(sink._url)
    with (
        occupy_all_connections(small),
        pytest.raises(EngineError, match="had no free connection for") as caught,
    ):
        stage(sink, rows_of_tick(1), 1)
    assert caught.value.code == "sink-unreachable"
    assert "max_connections" in (caught.value.hint or "")
    sink.close()


def run_counting_waits(job: Job, connections: int) -> None:
    waits = []
    client.LOG.warning = lambda *said: waits.append(said)  # type: ignore[method-assign]
    run(job)
    assert not waits or connections < OF_A_RUN, waits


@pytest.mark.parametrize("connections", [OF_A_RUN, 3])
def test_a_run_with_rows_and_state_there_needs_no_more_than_it_says(tmp_path, connections):
    """With half of that it waits for itself now and then, and comes to the same."""
    with Postgres(connections=connections) as server:
        job = Job(str(tmp_path), "full", "postgres", "tables", 7, url=server.url)

        assert in_a_process(partial(run_counting_waits, job, connections)) is None
