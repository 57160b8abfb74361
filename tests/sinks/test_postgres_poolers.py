"""Behind PgBouncer, a real one: what works by transactions works, and what needs a session is refused."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from tests.sinks.test_postgres import prepare_sink, stage
from tests.support.pgbouncer import PgBouncer
from tests.support.tables import new_pipeline, tables_at
from watersmeet.errors import EngineError, StateError
from watersmeet.postgres_server import close_idle
from watersmeet.sinks.postgres import sink as postgres_sink
from watersmeet.sinks.postgres.ledger import session_of

pytestmark = pytest.mark.postgres
COLUMNS = {"k": "BIGINT"}
ROWS = pa.table({"k": [1, 2, 3]})


def locks(postgres):
    return postgres.run("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").strip()


def test_state_goes_by_transactions(postgres):
    with PgBouncer(postgres, "transaction") as pooler:
        one, other = (tables_at(pooler.url, new_pipeline()) for _ in range(2))
        one.check()
        for number in range(20):
            one.write(f"runs/{number}", b"x" * 1000)
            assert other.create("manifests/1", b"1")
            assert not other.create("manifests/1", b"2")
            assert one.read(f"runs/{number}").to_pybytes() == b"x" * 1000
        said = "SELECT current_setting('lock_timeout'), current_setting('synchronous_commit')"
        assert one._rows_of("say it", said) == [("0", "on")]  # nothing of ours stays in a session of the pool
        close_idle(one.place.client_url, "state")


def test_a_sink_s_lock_is_not_left_in_a_pool(postgres):
    with PgBouncer(postgres, "transaction") as pooler:
        before = locks(postgres)
        for _ in range(2):  # the second one is not told that another run writes
            with pytest.raises(EngineError) as raised:
                prepare_sink(pooler, "pooled", COLUMNS, max_wait="5 s")
            assert raised.value.code == "sink-pooled"
            assert "pool_mode = session" in raised.value.hint
            assert locks(postgres) == before


def test_a_session_that_becomes_another_is_noticed(postgres, monkeypatch):
    """Where the pooler had another session to give when the lock was taken."""
    with monkeypatch.context() as patched:
        patched.setattr(postgres_sink, "session_of", lambda cursor: session_of(cursor) + 1)
        sink = prepare_sink(postgres, "becomes_another", COLUMNS, max_wait="5 s")
    stage(sink, ROWS, 1)
    with pytest.raises(EngineError) as raised:
        sink.check("q", 1, {"rows": "1"})
    assert raised.value.code == "sink-pooled"
    assert postgres.run("SELECT count(*) FROM becomes_another").strip() == "0"
    sink.close()


def test_a_pool_of_sessions_is_as_good_as_the_server(postgres):
    with PgBouncer(postgres, "session") as pooler:
        sink = prepare_sink(pooler, "by_sessions", COLUMNS, max_wait="5 s")
        for tick in (1, 2):
            stage(sink, ROWS, tick)
            assert sink.publish("q", tick, "a", {"rows": str(tick)})
        sink.close()
        assert postgres.run("SELECT count(*) FROM by_sessions").strip() == "6"


def test_a_pool_of_statements_is_refused_at_once(postgres):
    with PgBouncer(postgres, "statement") as pooler:
        began = time.monotonic()
        with pytest.raises(EngineError, match="statement pooling mode") as raised:
            prepare_sink(pooler, "by_statements", COLUMNS, max_wait="60 s")
        assert "pool_mode = session" in raised.value.hint
        with pytest.raises(StateError, match="statement pooling mode"):
            tables_at(pooler.url, new_pipeline(), patience_s=60.0).check()
        assert time.monotonic() - began < 10
