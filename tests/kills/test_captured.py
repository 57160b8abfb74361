"""Three tables of a real PostgreSQL, their changes as Debezium tells them through a real Kafka, joined, and
out as upserts: what the compacted topic holds in the end is what PostgreSQL joins by itself.

Meanwhile the broker restarts once, the job is killed three times, and events come again, as they do after a
crash of Debezium.
"""

from __future__ import annotations

import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.kills.jobs import Process
from tests.support.debezium import Capture, Captured, Event
from tests.support.kafka import KafkaBroker
from tests.support.postgres import Postgres

pytestmark = [pytest.mark.kill, pytest.mark.spark, pytest.mark.kafka, pytest.mark.full]

TRANSACTIONS = 12
MORE = ("--conf", "spark.sql.shuffle.partitions=2")
LEAST = {"id": 5, "name": 3, "rate": 1}
"""So many rows of the result have a value there."""

SCHEMA = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, amount numeric(12,2), placed timestamp, due date,
    note text);
CREATE TABLE customers (id bigint PRIMARY KEY, name text, level text, about text, since timestamptz);
CREATE TABLE levels (name text PRIMARY KEY, rate double precision, seen timestamp(3));
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE levels REPLICA IDENTITY FULL;
INSERT INTO customers SELECT n, 'first ' || n, 'gold', NULL, '2024-01-01Z' FROM generate_series(1, 4) n;
INSERT INTO levels VALUES ('gold', 1.5, '2024-02-29 12:00:00.123');
"""
TABLES = [
    Captured(
        "orders", ("id",),
        {"id": "bigint", "customer": "bigint", "amount": "numeric", "placed": "timestamp", "due": "date",
         "note": "text"},
        partitions=3,
    ),
    Captured(
        "customers", ("id",),
        {"id": "bigint", "name": "text", "level": "text", "about": "text", "since": "timestamptz"},
        partitions=2,
    ),
    Captured(
        "levels", ("name",), {"name": "text", "rate": "double precision", "seen": "timestamp(3)"},
        enveloped=True, partitions=2,
    ),
]  # fmt: skip

JOB = """
CREATE TABLE orders (id BIGINT PRIMARY KEY NOT ENFORCED, customer BIGINT, amount DECIMAL(12,2),
    placed TIMESTAMP, due DATE, note STRING) WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}',
    'topic' = 'orders', 'format' = 'debezium-json', 'debezium.timestamps' = 'micros',
    'debezium.decimals' = 'string', 'maxOffsetsPerTrigger' = '150');
CREATE TABLE customers (id BIGINT PRIMARY KEY NOT ENFORCED, name STRING, level STRING, about STRING,
    since TIMESTAMP) WITH ('connector' = 'kafka', 'bootstrap.servers' = '{servers}', 'topic' = 'customers',
    'format' = 'debezium-json', 'maxOffsetsPerTrigger' = '100');
CREATE TABLE levels (name STRING, rate DOUBLE, seen TIMESTAMP_NTZ) WITH ('connector' = 'kafka',
    'bootstrap.servers' = '{servers}', 'topic' = 'levels', 'format' = 'debezium-json',
    'debezium.timestamps' = 'millis');
CREATE SINK joined (PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'kafka',
    'bootstrap.servers' = '{servers}', 'topic' = 'joined', 'format' = 'upsert-json');
INSERT INTO joined
SELECT o.id, o.amount, o.placed, o.due, o.note, c.name, c.about, c.since, l.rate, l.seen
FROM orders o LEFT JOIN customers c ON c.id = o.customer LEFT JOIN levels l ON l.name = c.level;
"""

FULL = """
UPDATE customers SET level = 'gold' WHERE id % 2 = 0;
INSERT INTO customers SELECT n, 'last', 'gold', NULL, now() FROM generate_series(0, 3) n
    ON CONFLICT DO NOTHING;
INSERT INTO levels VALUES ('gold', 0.5, now()) ON CONFLICT DO NOTHING;
INSERT INTO orders SELECT n, n, n FROM generate_series(0, 7) n
    ON CONFLICT (id) DO UPDATE SET customer = excluded.id;
"""

WANTED = """
SELECT json_build_object('id', o.id, 'amount', o.amount, 'placed', to_char(o.placed, '{us}"Z"'),
    'due', o.due, 'note', o.note, 'name', c.name, 'about', c.about, 'since', to_char(c.since, '{us}"Z"'),
    'rate', l.rate, 'seen', to_char(l.seen, '{us}'))
FROM orders o LEFT JOIN customers c ON c.id = o.customer LEFT JOIN levels l ON l.name = c.level
""".format(us='YYYY-MM-DD"T"HH24:MI:SS.US')


class Shop:
    """The tables while they change, and the topics that tell it."""

    def __init__(self, draw: random.Random, server: Postgres, broker: KafkaBroker) -> None:
        self._draw, self._server, self._broker = draw, server, broker
        for table in TABLES:
            broker.create_topic(table.name, table.partitions)
        server.run(SCHEMA)
        self._capture = Capture(server, TABLES)
        self._last: dict[str, list[Event]] = {}
        self._send(self._capture.snapshot())

    def step(self) -> None:
        """Some transactions, and their events."""
        ends = self._draw.choices(["COMMIT", "ROLLBACK"], [9, 1], k=TRANSACTIONS)
        self._server.run("".join(f"BEGIN; {self._statements()} {end};" for end in ends))
        self._send(self._capture.take())

    def fill(self) -> None:
        """A last transaction, after which some rows of all tables meet."""
        self._server.run("".join(f"BEGIN; {text} COMMIT;" for text in (self._statements(), FULL)))
        self._send(self._capture.take())

    def rows(self) -> list[dict[str, Any]]:
        """The join, by PostgreSQL."""
        return [json.loads(row, parse_float=Decimal) for row in self._server.run(WANTED).splitlines()]

    def _send(self, events: dict[str, list[Event]]) -> None:
        """Of a table with a primary key, what was sent last may come again: Debezium sends at least once."""
        for name, fresh in events.items():
            last = self._last.get(name, [])
            again = self._draw.randrange(len(last) + 1) if self._draw.random() < 0.3 else len(last)
            self._broker.produce(name, [*(last[again:] if name != "levels" else []), *fresh])
            self._last[name] = fresh

    def _statements(self) -> str:
        return " ".join(self._statement() for _ in range(self._draw.randint(1, 5)))

    def _statement(self) -> str:
        draw = self._draw
        order, other = draw.sample(range(40), 2)
        customer, further = draw.sample(range(8), 2)
        level, successor = draw.sample(["gold", "tin", "", "it''s \\ \"new-tuple: a\""], 2)
        amount = draw.choice(["NULL", "0", "-0.01", f"{draw.randrange(10**12) / 100:.2f}", "-9999999999.99"])
        placed = draw.choice(["NULL", "'1969-12-31 23:59:59.999999'", "'0001-01-01'", "now()::timestamp"])
        due = draw.choice(["NULL", "'1899-12-31'", "'9999-12-31'", "'2024-02-29'", "'1975-07-18'"])
        note = draw.choice(["NULL", "''", "'ü ''quoted'' \\ \"x\"\nline'", f"'{draw.random()}'"])
        # large: kept outside of the row, and not in the log of an update that leaves it alone
        large = (
            f"(SELECT string_agg(md5({draw.randrange(99)} || n::text), '') FROM generate_series(1, 200) n)"
        )
        about = draw.choice(["NULL", "'short'", large, large])
        return draw.choice(
            [
                f"INSERT INTO orders VALUES ({order}, {customer}, {amount}, {placed}, {due}, {note})"
                " ON CONFLICT (id) DO UPDATE SET customer = excluded.customer, due = excluded.due;",
                f"INSERT INTO orders VALUES ({order}, {customer}, {amount}, {placed}, {due}, {note})"
                " ON CONFLICT DO NOTHING;",
                f"DELETE FROM orders WHERE id = {order};",
                f"UPDATE orders SET amount = {amount}, note = {note} WHERE id IN ({order}, {other});",
                f"UPDATE orders SET id = {other} WHERE id = {order}"
                f" AND NOT EXISTS (SELECT FROM orders WHERE id = {other});",
                f"UPDATE orders SET customer = NULL WHERE id = {order};",
                f"INSERT INTO customers VALUES ({customer}, 'n{draw.randrange(9)}', '{level}', {about},"
                " now()) ON CONFLICT (id) DO UPDATE SET name = excluded.name;",
                f"UPDATE customers SET level = '{level}' WHERE id = {customer};",
                f"UPDATE customers SET about = {about}, level = NULL WHERE id = {customer};",
                f"UPDATE customers SET id = {further} WHERE id = {customer}"
                f" AND NOT EXISTS (SELECT FROM customers WHERE id = {further});",
                f"DELETE FROM customers WHERE id = {customer} AND {draw.random()} < 0.4;",
                f"INSERT INTO levels VALUES ('{level}', {draw.randrange(8) / 4}, {placed})"
                " ON CONFLICT (name) DO UPDATE SET rate = excluded.rate;",
                f"DELETE FROM levels WHERE name = '{level}' AND {draw.random()} < 0.4;",
                f"UPDATE levels SET name = '{successor}' WHERE name = '{level}'"
                f" AND NOT EXISTS (SELECT FROM levels WHERE name = '{successor}');",
            ]
        )


def read_compacted_topic(broker: KafkaBroker, topic: str) -> list[dict[str, Any]]:
    """What a reader of the compacted topic holds."""
    latest = {key: value for _, key, value in broker.consume_all(topic)}
    for key, value in latest.items():
        assert key is not None
        assert value is None or json.loads(key) == {"id": json.loads(value)["id"]}
    return [json.loads(value, parse_float=Decimal) for value in latest.values() if value is not None]


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def test_what_is_joined_in_the_end_is_what_the_database_joins(seed, tmp_path: Path, postgres):
    draw = random.Random(seed)
    with KafkaBroker() as broker:
        broker.create_topic("joined", partitions=2)
        shop = Shop(draw, postgres, broker)
        (tmp_path / "job.sql").write_text(JOB.format(servers=broker.bootstrap_servers))
        runs: list[Process] = []
        restarted_in = draw.randrange(3)
        try:
            kills = zip(draw.sample(["python", "jvm", "both"], 3), draw.sample([0, 1, 1], 3), strict=True)
            for number, (whom, ticks) in enumerate(kills):
                trigger = ("--trigger", "100 milliseconds")
                runs.append(run := Process(tmp_path, *trigger, *MORE, own_jvm=whom != "python"))
                for seen in range(1, ticks + 1):
                    shop.step()
                    run.await_ticks(seen)
                shop.step()
                if number == restarted_in:
                    broker.restart()
                    shop.step()
                delay_s = (
                    draw.uniform(0, 1.5) if ticks else draw.uniform(2, 12)
                )  # anywhere up to a first tick
                run.look_for(delay_s)
                print(
                    f"kill {number} (seed {seed}): {whom}, {run.age_s:.1f} s old, tick {run.ticks} was seen"
                )
                run.kill(whom)
            shop.fill()
            runs.append(last := Process(tmp_path, "--until-caught-up", *MORE))
            assert last.await_end() == 0, last.errors.read_text()
        finally:
            for run in runs:
                run.clean_up()
        told = {side["input"]: side for side in last.account["inputs"]}
        assert {name: side["broken"] for name, side in told.items() if side.get("broken")} == {}
        assert last.account["adds_up"]
        rows = shop.rows()
        assert all(sum(row[name] is not None for row in rows) >= least for name, least in LEAST.items())
        assert in_order(read_compacted_topic(broker, "joined")) == in_order(rows)
