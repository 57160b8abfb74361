"""Join two Kafka topics of four partitions into Kafka topics while the broker restarts.

Quick effort: an inner and a full join over two waves of rows. Full effort: every kind of join, four waves.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.engine.spark.running import Running, until_caught_up
from tests.support.effort import at_effort
from tests.support.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

START = datetime(2024, 1, 1, tzinfo=UTC)
PARTITIONS = 4
WAVES = at_effort(quick=2, full=4)
WAVE_S, WAVE_ROWS = 300, 240
DISORDER_S = 30
KINDS = at_effort(quick=("inner", "full"), full=("inner", "left", "right", "full"))

JOB = """
SET late_output = 'aside'; SET broken_output = 'broken';
CREATE MAPPING orders (id BIGINT, item STRING, qty INT, ordered TIMESTAMP,
    WATERMARK FOR ordered AS ordered - INTERVAL '30' SECONDS)
  TYPE Kafka OPTIONS ('bootstrap.servers' = '{servers}', 'topic' = 'joined-orders',
    'maxOffsetsPerTrigger' = '{per_tick}');
CREATE MAPPING deliveries (id BIGINT, item STRING, by STRING, delivered TIMESTAMP,
    WATERMARK FOR delivered AS delivered - INTERVAL '30' SECONDS)
  TYPE Kafka OPTIONS ('bootstrap.servers' = '{servers}', 'topic' = 'joined-deliveries');
CREATE MAPPING aside TYPE File OPTIONS ('path' = '{folder}/aside', 'format' = 'json');
CREATE MAPPING broken TYPE File OPTIONS ('path' = '{folder}/broken', 'format' = 'json');
""" + "".join(
    f"""
CREATE MAPPING "{kind}" TYPE Kafka
  OPTIONS ('bootstrap.servers' = '{{servers}}', 'topic' = 'joined-{kind}', 'key' = 'item');
INSERT INTO "{kind}"
SELECT o.id AS o_id, d.id AS d_id, COALESCE(o.item, d.item) AS item, o.qty, d.by
FROM orders o {kind} JOIN deliveries d
  ON o.item = d.item
 AND d.delivered BETWEEN o.ordered - INTERVAL '10' SECONDS AND o.ordered + INTERVAL '60' SECONDS
 AND (o.qty IS NULL OR o.qty <> 3);
"""
    for kind in KINDS
)

Row = dict[str, Any]


def make_rows(draw: random.Random, wave: int, time: str, more: Any) -> list[tuple[int, Row, datetime]]:
    """A wave's rows with their partition. Partition 3 is a whole wave behind the others."""
    found = []
    for number in range(WAVE_ROWS):
        partition = draw.randrange(PARTITIONS)
        behind = 1 if partition == 3 else 0
        seconds = (wave - behind) * WAVE_S + number * WAVE_S // WAVE_ROWS - draw.randrange(DISORDER_S)
        moment = START + timedelta(seconds=seconds)
        row = {"id": wave * 1000 + number, "item": None if draw.random() < 0.03 else f"i{draw.randrange(30)}"}
        found.append((partition, {**row, **more(), time: moment.isoformat()}, moment))
    return found


def compute_expected_join(orders: list[Any], deliveries: list[Any], kind: str) -> Counter[tuple[Any, ...]]:
    """The join, said again in plain Python."""
    rows: Counter[tuple[Any, ...]] = Counter()
    met_orders, met_deliveries = set(), set()
    for n, (_, o, ordered) in enumerate(orders):
        for m, (_, d, delivered) in enumerate(deliveries):
            if (
                o["item"] is not None
                and o["item"] == d["item"]
                and timedelta(seconds=-10) <= delivered - ordered <= timedelta(seconds=60)
                and o["qty"] != 3
            ):
                rows[o["id"], d["id"], o["item"], o["qty"], d["by"]] += 1
                met_orders.add(n)
                met_deliveries.add(m)
    if kind in ("left", "full"):
        rows.update(
            (o["id"], None, o["item"], o["qty"], None)
            for n, (_, o, _t) in enumerate(orders)
            if n not in met_orders
        )
    if kind in ("right", "full"):
        rows.update(
            (None, d["id"], d["item"], None, d["by"])
            for m, (_, d, _t) in enumerate(deliveries)
            if m not in met_deliveries
        )
    return rows


def send(broker: KafkaBroker, topic: str, rows: list[tuple[int, Row, datetime]]) -> None:
    broker.produce(topic, [(partition, row["item"], json.dumps(row)) for partition, row, _ in rows])


def lines_of(folder: Any) -> list[Row]:
    return [json.loads(line) for file in folder.glob("*.json") for line in file.read_text().splitlines()]


def test_join_results_are_exact_while_the_broker_restarts(spark, stoppable_broker, seed, tmp_path):
    draw = random.Random(seed)
    orders = [
        make_rows(draw, wave, "ordered", lambda: {"qty": draw.choice([None, 1, 2, 3])})
        for wave in range(WAVES)
    ]
    deliveries = [make_rows(draw, wave, "delivered", lambda: {"by": "bike"}) for wave in range(WAVES)]
    broker = stoppable_broker
    for topic in ("joined-orders", "joined-deliveries", *(f"joined-{kind}" for kind in KINDS)):
        broker.create_topic(topic, partitions=PARTITIONS)
    per_tick = at_effort(quick=400, full=150)
    text = JOB.format(servers=broker.bootstrap_servers, folder=tmp_path, per_tick=per_tick)

    def count_ingested_rows(query: str = "full") -> int:
        return sum(job.total("in", query, alias) for alias in "od")

    send(broker, "joined-orders", orders[0])
    send(broker, "joined-deliveries", deliveries[0])
    broker.produce(
        "joined-orders",
        [
            (0, "x", "not json"),
            (1, "x", '{"id": "not a number", "ordered": "2024-01-01T00:00:00Z"}'),
            (2, "x", json.dumps({"id": 1, "item": "i1", "ordered": None})),
            (2, "x", json.dumps({"id": 2, "item": "i1", "ordered": "5000-01-01T00:00:00Z"})),
        ],
    )
    with Running(spark, text, tmp_path / "state", trigger="500 milliseconds") as job:
        job.wait_for(lambda: count_ingested_rows() >= 480)
        send(broker, "joined-orders", orders[1])
        broker.restart()
        send(broker, "joined-deliveries", deliveries[1])
        job.wait_for(lambda: count_ingested_rows() >= 960)
        too_late = {"id": -1, "item": "i1", "qty": 1, "ordered": (START - timedelta(hours=1)).isoformat()}
        broker.produce("joined-orders", [(0, "x", json.dumps(too_late))])
        for wave in range(2, WAVES):
            send(broker, "joined-deliveries", deliveries[wave])
            send(broker, "joined-orders", orders[wave])
    last = until_caught_up(spark, text, tmp_path / "state", finish=True)

    assert last.ticks[-1].finished
    flat_orders = [row for wave in orders for row in wave]
    flat_deliveries = [row for wave in deliveries for row in wave]
    for kind in KINDS:
        assert last.total("late", kind, "o") == 1
        values = [json.loads(value) for _, _, value in broker.consume_all(f"joined-{kind}")]
        got = Counter((r["o_id"], r["d_id"], r["item"], r["qty"], r["by"]) for r in values)
        want = compute_expected_join(flat_orders, flat_deliveries, kind)
        assert got.keys() == want.keys()
        assert got == want, "no tick was repeated: nothing came twice"
        keys = {(key, json.loads(value)["item"]) for _, key, value in broker.consume_all(f"joined-{kind}")}
        assert all((key and key.decode()) == item for key, item in keys)
    for kind in KINDS:
        for what, rows in {"broken": 2, "null_time": 1, "ahead": 1, "late": 1, "retained": 0}.items():
            assert last.total(what, kind, "o") == rows, what
    assert Counter(row["record"] for row in lines_of(tmp_path / "broken")) == {
        "not json": 1,
        '{"id": "not a number", "ordered": "2024-01-01T00:00:00Z"}': 1,
    }
    aside = lines_of(tmp_path / "aside")
    assert Counter(row["reason"] for row in aside) == dict.fromkeys(
        ("late", "null_time", "ahead"), len(KINDS)
    )
    assert {json.loads(row["record"])["id"] for row in aside} == {-1, 1, 2}
