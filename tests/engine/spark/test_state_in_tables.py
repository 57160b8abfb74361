"""Jobs on Spark whose state is in tables of PostgreSQL: any machine goes on with them."""

from __future__ import annotations

import shutil

import pytest

from tests.engine.spark.running import until_caught_up
from tests.engine.spark.test_state_in_objects import Orders, compute_expected_rows
from tests.support.postgres_proxy import PostgresProxy
from tests.support.tables import new_pipeline, tables_at
from watersmeet.errors import StateError
from watersmeet.objects.cache import Cache
from watersmeet.objects.postgres_store import TablesStore
from watersmeet.state.commits import Commits

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.mark.full
def test_a_job_goes_on_on_another_machine(spark, tmp_path, postgres):
    """Each run has an empty checkpoint directory and an empty cache, and sessions end now and then; the
    database is all that they share."""
    orders, pipeline = Orders(tmp_path / "job"), new_pipeline()
    with PostgresProxy(postgres, lambda n: "terminated" if n % 97 == 96 else None) as proxy:
        for number in range(3):
            orders.come(number * 10, number * 10 + 10)
            place = tables_at(proxy.url, pipeline).place
            store = TablesStore(place, Cache(place.url, root=str(tmp_path / f"cache{number}")))
            until_caught_up(
                spark, orders.text, tmp_path / f"machine{number}", store=store, finish=number == 2
            )
        print(proxy.messages, proxy.connections, proxy.faults)
    assert orders.rows() == compute_expected_rows(30)
    assert not (tmp_path / "machine0" / "state").exists()
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert postgres.password.encode() not in file.read_bytes()


@pytest.mark.full
@pytest.mark.parametrize("first", [True, False])
def test_a_tick_that_was_killed_when_it_was_out_is_repeated_as_it_was(
    spark, tmp_path, postgres, monkeypatch, first
):
    """More rows have come before another machine takes over: they are in the tick after it."""
    orders, store = Orders(tmp_path / "job"), tables_at(postgres.url, new_pipeline())
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


def test_job_refuses_to_start_when_its_state_is_in_other_tables(spark, tmp_path, postgres):
    orders, store = Orders(tmp_path / "job"), tables_at(postgres.url, new_pipeline())
    orders.come(0, 3)
    until_caught_up(spark, orders.text, tmp_path / "remote", store=store)
    for other in (None, tables_at(postgres.url, new_pipeline())):
        with pytest.raises(StateError, match="SET state_store") as raised:
            until_caught_up(spark, orders.text, tmp_path / "remote", store=other)
        assert raised.value.code == "state-elsewhere"
