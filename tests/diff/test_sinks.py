"""What sinks have put out, read from where they put it, without Spark: tables of Delta, Iceberg and
PostgreSQL, a topic of Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.cli.diff.outputs import EmittedRows, Wanted, output_of
from watersmeet.diff.bags import differences, fetch_rows, open_database
from watersmeet.errors import WatersmeetError
from watersmeet.spec.model import OutputMode, Sink

NAMES = ["id", "at", "price", "amount"]
ANSWER = """(SELECT 1::BIGINT AS __ws_c0, TIMESTAMP '2022-03-01 10:00:00.000001' AS __ws_c1,
    1.5::DOUBLE AS __ws_c2, 7.25::DECIMAL(10, 2) AS __ws_c3, FALSE AS __ws_pending
  UNION ALL SELECT 2, NULL, -0.0::DOUBLE, NULL, FALSE UNION ALL SELECT 2, NULL, 'NaN'::DOUBLE, 0, FALSE)"""
AT = 1_646_128_800_000_001
ROWS = [(1, AT, 1.5, "7.25"), (2, None, 0.0, None), (2, None, float("nan"), "0.00")]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    connection = open_database(str(tmp_path))
    yield connection
    connection.close()


def build_wanted_output(connector: str, options: dict[str, str], **more: Any) -> Wanted:
    key = more.pop("key", ())
    sink = Sink("out", connector, options, None, key)
    return Wanted("out", sink, NAMES, **({"mode": OutputMode.APPEND, "tick": 3} | more))


def differing(db: Any, what: Wanted, folder: Path) -> tuple[EmittedRows, dict[tuple[str, str], int]]:
    output = output_of(db, what, ANSWER, str(folder))
    found = differences(db, NAMES, ANSWER, output.relation, [], whole=None, limit=10)
    return output, dict(found.counts)


def arrow(rows: list[Any]) -> pa.Table:
    ids, times, prices, amounts = (list(column) for column in zip(*rows, strict=True))
    decimals = [None if amount is None else Decimal(amount) for amount in amounts]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "price": pa.array(prices, pa.float64()),
            "amount": pa.array(decimals, pa.decimal128(10, 2)),
        }
    )


def test_a_table_of_delta(db: Any, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    options = {"path": str(tmp_path / "delta")}
    write_deltalake(options["path"], arrow(ROWS[:1]))
    write_deltalake(options["path"], arrow(ROWS[1:]), mode="append")
    output, counts = differing(db, build_wanted_output("delta", options), tmp_path)
    assert (counts, output.may_be_later, output.is_later) == ({}, True, False)
    write_deltalake(options["path"], arrow(ROWS[:1]), mode="append")
    assert differing(db, build_wanted_output("delta", options), tmp_path)[1] == {("extra", "unexplained"): 1}
    with pytest.raises(WatersmeetError, match="its table cannot be read") as raised:
        differing(db, build_wanted_output("delta", {"path": str(tmp_path / "nowhere")}), tmp_path)
    assert raised.value.code == "not-compared"


def test_a_table_of_iceberg(db: Any, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    made = load_catalog("default", **catalog)
    made.create_namespace("shop")
    made.create_table("shop.delivered", arrow(ROWS).schema).append(arrow(ROWS[1:]))
    options = {"table": "shop.delivered"} | {f"catalog.{name}": value for name, value in catalog.items()}
    assert differing(db, build_wanted_output("iceberg", options), tmp_path)[1] == {
        ("missing", "unexplained"): 1
    }


def test_a_table_of_postgres(db: Any, tmp_path: Path, postgres: Any) -> None:
    from watersmeet.postgres_server import Server
    from watersmeet.sinks.postgres.ledger import PostgresLedger

    postgres.run(
        "CREATE SCHEMA diff; CREATE TABLE diff.delivered (more text, id bigint, at timestamptz, price float8,"
        " amount numeric(10, 2)); INSERT INTO diff.delivered VALUES ('x', 1, '2022-03-01 10:00:00.000001Z',"
        " 1.5, 7.25), (NULL, 2, NULL, 0.0, NULL), (NULL, 2, NULL, 'NaN', 0)"
    )
    options = {"url": postgres.url, "table": "diff.delivered"}
    output, counts = differing(db, build_wanted_output("postgres", options), tmp_path)
    assert (counts, output.may_be_later, output.is_later) == ({}, True, False)

    ledger, server = PostgresLedger("out", "diff", "delivered"), Server(postgres.url, "out", 5)
    server.run(ledger.make)
    for insert, tick in (("out", 3), ("other", 4)):
        server.run(lambda cursor, of=(insert, tick): ledger.add(cursor, *of, {"rows": "x"}, 1))
    assert not differing(db, build_wanted_output("postgres", options), tmp_path)[0].is_later
    server.run(lambda cursor: ledger.add(cursor, "out", 4, {"rows": "x"}, 1))
    server.close()
    assert differing(db, build_wanted_output("postgres", options), tmp_path)[0].is_later

    postgres.run(
        "DELETE FROM diff.delivered WHERE id = 1;"
        " ALTER TABLE diff.delivered ALTER amount TYPE numeric USING amount::numeric(20, 5)"
    )
    upserted = build_wanted_output("postgres", options, key=("id",))
    assert differing(db, upserted, tmp_path)[1] == {("missing", "unexplained"): 1}, "0.00000 is 0.00"


@pytest.mark.parametrize(
    ("sql", "table", "said"),
    [
        ("SELECT 1", "nowhere", 'there is no table "public"."nowhere"'),
        (
            "CREATE TABLE odd1 (id bigint, at timestamptz, price float8, amount jsonb)",
            "odd1",
            "jsonb does not preserve",
        ),
        (
            "CREATE TABLE odd2 (id bigint, at timestamptz, price float8, amount numeric);"
            " INSERT INTO odd2 VALUES (1, NULL, 1, 7.255)",
            "odd2",
            'column "amount" has 7.255, and is DECIMAL',
        ),
    ],
)
def test_what_postgres_has_is_refused(
    db: Any, tmp_path: Path, postgres: Any, sql: str, table: str, said: str
) -> None:
    postgres.run(sql)
    with pytest.raises(WatersmeetError, match=said.replace("(", r"\(")) as raised:
        differing(db, build_wanted_output("postgres", {"url": postgres.url, "table": table}), tmp_path)
    assert raised.value.code == "not-compared"
    assert postgres.password not in str(raised.value)


def test_changes_in_postgres_count(db: Any, tmp_path: Path, postgres: Any) -> None:
    postgres.run(
        "CREATE TABLE changed (id bigint, at timestamptz, price float8, amount numeric(10, 2), _diff bigint,"
        " _tick bigint); INSERT INTO changed VALUES (1, '2022-03-01 10:00:00.000001Z', 1.5, 7.25, 1, 1),"
        " (2, NULL, 0, NULL, 2, 1), (2, NULL, 0, NULL, -1, 2), (2, NULL, 'NaN', 0, 1, 2)"
    )
    what = build_wanted_output(
        "postgres", {"url": postgres.url, "table": "changed"}, mode=OutputMode.CHANGELOG, alone=True
    )
    assert differing(db, what, tmp_path)[1] == {}
    with pytest.raises(WatersmeetError, match="contains the rows of several queries"):
        differing(db, build_wanted_output("postgres", what.sink.options, alone=False), tmp_path)


def lines(rows: list[Any]) -> list[str]:
    said = []
    for number, at, price, amount in rows:
        time = None if at is None else "2022-03-01T10:00:00.000001Z"
        shown = "NaN" if price != price else price
        value = {"id": number, "at": time, "price": shown, "amount": amount and float(amount)}
        said.append(json.dumps(value))
    return said


@pytest.mark.kafka
def test_a_topic(db: Any, tmp_path: Path, kafka_broker: Any) -> None:
    from confluent_kafka import Producer

    servers = kafka_broker.bootstrap_servers
    kafka_broker.create_topic("diff-out", partitions=3)
    options = {"bootstrap.servers": servers, "topic": "diff-out"}
    assert differing(db, build_wanted_output("kafka", options), tmp_path)[1] == {
        ("missing", "unexplained"): 3
    }

    kafka_broker.produce("diff-out", [(n, None, line) for n, line in enumerate(lines(ROWS[:2]))])
    of_a_run = Producer({"bootstrap.servers": servers, "transactional.id": "diff", "linger.ms": 0})
    of_a_run.init_transactions(30)
    for finish, row in ((of_a_run.abort_transaction, ROWS[0]), (of_a_run.commit_transaction, ROWS[2])):
        of_a_run.begin_transaction()
        of_a_run.produce("diff-out", lines([row])[0], partition=0)
        of_a_run.flush(30)
        finish(30)
    output, counts = differing(db, build_wanted_output("kafka", options), tmp_path)
    assert (counts, output.may_be_later) == ({}, True), "what was aborted is not there"
    kafka_broker.produce("diff-out", [(2, None, line) for line in lines(ROWS[:1])])
    assert differing(db, build_wanted_output("kafka", options), tmp_path)[1] == {("extra", "unexplained"): 1}

    refused = [
        ({"topic": "diff-none"}, "its topic cannot be read"),
        ({"format": "csv"}, "records of format csv"),
    ]
    for other, said in refused:
        with pytest.raises(WatersmeetError, match=said):
            differing(db, build_wanted_output("kafka", options | other), tmp_path)
    kafka_broker.produce("diff-out", [(1, "k", None)])
    with pytest.raises(WatersmeetError, match="at offset 1 of partition 1 has no value"):
        differing(db, build_wanted_output("kafka", options), tmp_path)


def test_decimals_of_json_are_read_to_the_last_digit(db: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"m": 12345678901234567890.5}\n{"m": null}\n')
    what = Wanted(
        "out", Sink("out", "memory", {}), ["m"], OutputMode.APPEND, None, str(tmp_path / "rows.json")
    )
    answer = "(SELECT 1::DECIMAL(38, 18) AS __ws_c0, FALSE AS __ws_pending)"
    relation = output_of(db, what, answer, str(tmp_path)).relation
    rows = fetch_rows(db, f"SELECT __ws_c0::VARCHAR FROM {relation} r ORDER BY 1 NULLS LAST")
    assert rows == [("12345678901234567890.500000000000000000",), (None,)]
    nested = "(SELECT [1::DECIMAL(38, 18)] AS __ws_c0, FALSE AS __ws_pending)"
    with pytest.raises(WatersmeetError):
        output_of(db, what, nested, str(tmp_path))
