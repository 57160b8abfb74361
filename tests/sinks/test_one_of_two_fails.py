"""A job with two INSERTs into two sinks, one of which fails: the message names that INSERT and that sink; put
right and run again, each row is there once."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.chaos.killed import _Inline, _Points, in_a_process
from tests.simulation import run as runs
from tests.simulation.jobs import INSERTS, Log, compute_expected_rows
from tests.support.columns import column
from tests.support.kafka import consume_all
from watersmeet.errors import EngineError, WatersmeetError
from watersmeet.sinks.base import StagesInState
from watersmeet.sinks.postgres.sink import PostgresSink, publish_together
from watersmeet.sinks.registry import make_sink, part_from, plain_part
from watersmeet.spec.model import Sink
from watersmeet.state.store import LocalStore

NAMES = ("joined", "padded")
"""Of the INSERTs' sinks, which have other names than the INSERTs."""


def attempt(folder, logs, kafka, postgres):
    """One run of two INSERTs, into a topic and into a table; what it said."""
    random.seed()
    short = {"max_wait": "20 s", "transaction.timeout.ms": "5000"}
    topics = {"topic": folder.name, "control.topic": f"{folder.name}-ticks"}
    sinks = [
        make_sink(Sink(NAMES[0], "kafka", {"bootstrap.servers": kafka, **topics, **short})),
        make_sink(Sink(NAMES[1], "postgres", {"url": postgres, "table": folder.name})),
    ]
    store = LocalStore(folder / "state")
    for sink in sinks:
        if isinstance(sink, StagesInState):
            sink.stage_in(store)
    runs.Threads = _Inline
    world = _Points(random.randrange(1 << 30), None, 0)
    one = runs.Run(
        world, ("inner", "left"), store, dict(zip(INSERTS, sinks, strict=True)), logs, runs.Trouble(),
        random.Random(),
    )  # fmt: skip
    try:
        assert one.execute()
    except WatersmeetError as error:
        (folder / "said").write_text(error.message)
        raise


def limit_records(broker, topic, nbytes):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    of_topic = ConfigResource(ConfigResource.Type.TOPIC, topic)
    of_topic.add_incremental_config(
        ConfigEntry("max.message.bytes", str(nbytes), incremental_operation=AlterConfigOpType.SET)
    )
    for done in admin.incremental_alter_configs([of_topic]).values():
        done.result(30)


@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.parametrize("fails", [0, pytest.param(1, marks=pytest.mark.full)])
def test_the_message_is_of_the_one_that_failed(kafka_broker, postgres, tmp_path, seed, fails):
    folder = tmp_path / f"one_fails_{fails}"
    folder.mkdir()
    draw = random.Random(seed)
    logs = {side: Log(draw, side, False, late=False) for side in "lr"}
    kafka_broker.create_topic(folder.name, partitions=2)
    postgres.run(f"CREATE TABLE {folder.name} (a bigint, b bigint)")
    if fails == 0:
        limit_records(kafka_broker, folder.name, 80)  # less has no room for the end of a transaction
    else:
        postgres.run(f"ALTER TABLE {folder.name} ADD CONSTRAINT few CHECK (a IS NULL)")
    asked = partial(attempt, folder, logs, kafka_broker.bootstrap_servers, postgres.url)
    assert "EngineError" in (in_a_process(asked) or "")
    said = (folder / "said").read_text()
    assert f'"{INSERTS[fails]}"' in said, said
    assert f'sink "{NAMES[fails]}"' in said, said
    assert f'"{INSERTS[1 - fails]}"' not in said, said
    assert f'"{NAMES[1 - fails]}"' not in said, said
    limit_records(kafka_broker, folder.name, 1_000_000)
    postgres.run(f"ALTER TABLE {folder.name} DROP CONSTRAINT IF EXISTS few")
    assert in_a_process(asked) is None
    cuts = {side: [(0, len(log.rows))] for side, log in logs.items()}
    records = Counter(value for _, _, value in consume_all(kafka_broker.bootstrap_servers, folder.name))
    assert set(records.values()) <= {1}
    assert records.total() == compute_expected_rows("inner", logs, cuts).total()
    there = Counter(postgres.run(f"SELECT a || ' ' || coalesce(b::text, '') FROM {folder.name}").splitlines())
    wanted = compute_expected_rows("left", logs, cuts)
    assert there == Counter({f"{a} {'' if b is None else b}": n for (a, b), n in wanted.items()})


@pytest.mark.postgres
@pytest.mark.parametrize("fails", [0, 1])
def test_error_at_transaction_end_names_its_own_sink(postgres, fails):
    """One transaction of two tables: the server looks at a deferred constraint of either at its end."""
    sinks = []
    for number in range(2):
        table = f"ends_{fails}_{number}"
        unique = ", UNIQUE (n) DEFERRABLE INITIALLY DEFERRED" if number == fails else ""
        postgres.run(f"CREATE TABLE {table} (n bigint{unique})")
        sink = PostgresSink(
            Sink(f"sink{number}", "postgres", {"url": postgres.url, "table": table}, None, ())
        )
        sink.prepare([column("n", "BIGINT")], "job")
        rows = pa.table({"n": pa.array([1, 1], pa.int64())})
        part = part_from(plain_part(sink.arrow_part(rows.schema, f"q{number}", 1, "a")), sink.secrets)
        sink.take_parts(f"q{number}", 1, "a", [part.write(0, rows.schema, iter(rows.to_batches()))])
        sinks.append((sink, f"q{number}"))
    with pytest.raises(EngineError) as caught:
        publish_together(sinks, 1, "a", {"rows": "1"}, lambda cursor, inserts: None)
    assert f'"q{fails}"' in caught.value.message
    assert f'sink "sink{fails}"' in caught.value.message
    for sink, _ in sinks:
        sink.close()
