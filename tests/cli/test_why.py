"""``watersmeet why``: a job whose rows came to every end, and what is said of each."""

from __future__ import annotations

import json
import os

import pytest

from tests.support.recorded import OPEN
from tests.support.recorded_files import FileJob
from watersmeet.cli.main import main
from watersmeet.runtime.spark.checkpoint.directory import Checkpoint

JOB = """
CREATE TABLE orders (order_id BIGINT, order_time TIMESTAMP, item_id BIGINT,
    WATERMARK FOR order_time AS order_time - INTERVAL '10' SECONDS)
  WITH ('connector' = 'file', 'path' = 'in/orders', 'format' = 'json');
CREATE TABLE deliveries (delivery_id BIGINT, order_id BIGINT, delivery_time TIMESTAMP, address STRING,
    WATERMARK FOR delivery_time AS delivery_time - INTERVAL '1' MINUTE)
  WITH ('connector' = 'file', 'path' = 'in/deliveries', 'format' = 'json');
CREATE SINK delivered WITH ('connector' = 'memory');
INSERT INTO delivered
SELECT o.order_id, o.order_time, d.delivery_time, d.address
FROM orders o LEFT JOIN deliveries d
  ON d.order_id = o.order_id
 AND d.delivery_time BETWEEN o.order_time AND o.order_time + INTERVAL '1' HOUR
 AND d.address <> 'nowhere'
WHERE o.item_id > 10 AND coalesce(d.address, 'none') <> 'secret';
"""


def order(number, at, item=100):
    return {"order_id": number, "order_time": None if at is None else f"2026-03-01 {at}", "item_id": item}


def delivery(number, order_id, at, address="Pier 7"):
    return {
        "delivery_id": number,
        "order_id": order_id,
        "delivery_time": f"2026-03-01 {at}",
        "address": address,
    }


TICKS = [
    {
        "orders": [order(17, "10:00:00"), order(18, "11:00:00"), order(19, "10:58:00", 7)],
        "deliveries": [delivery(1, 17, "10:40:00")],
    },
    {
        "orders": [
            order(20, "12:05:00"),
            order(21, "10:30:00"),
            order(None, "12:00:00"),
            '{"order_id": 22, broken',
            order(25, None),
            order(26, "12:06:00"),
        ],
        "deliveries": [
            delivery(2, 18, "12:03:00"),
            delivery(4, 24, "12:20:00"),
            delivery(5, 26, "12:10:00", "nowhere"),
            delivery(6, 20, "10:10:00"),
            delivery(8, 20, "12:21:00", "secret"),
        ],
    },
    {"orders": [order(23, "14:20:00")], "deliveries": [delivery(3, 9, "13:30:00")]},
]


@pytest.fixture(scope="module")
def job_folder(tmp_path_factory):
    """The job's directory, after three ticks, and a file that none has read."""
    root = tmp_path_factory.mktemp("why")
    (root / "job.sql").write_text(JOB)
    folders = {name: root / "in" / name for name in ("orders", "deliveries")}
    job = FileJob(JOB, Checkpoint(root / ".watersmeet" / "job"), folders)
    with job.run(OPEN):
        for tick in TICKS:
            job.read(tick)
    job.write("orders", [order(30, "15:00:00")])
    return root


@pytest.fixture
def why(job_folder, capsys, monkeypatch):
    monkeypatch.chdir(job_folder)

    def run_why(*words):
        status = main(["why", "job.sql", "--input", *words])
        said = capsys.readouterr()
        assert status == 0, said.err
        return said.out

    return run_why


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("17", "joined with d (delivery_id 1, order_id 17, delivery_time 2026-03-01T10:40:00Z"),
        ("17", "Pier 7) in tick 1"),
        ("18", "emitted unmatched, with NULLs, in tick 2, because it met no row: the watermark of"),
        ("18", "d.delivery_time, 2026-03-01 12:20:00, is above 2026-03-01 12:00:00"),
        ("18", "2026-03-01 12:03:00 against 2026-03-01 12:00:00, missed by 3 min"),
        ("19", "filtered by o.item_id > 10: 7 against 10"),
        ("20", "joined with d (delivery_id 8, order_id 20, delivery_time 2026-03-01T12:21:00Z"),
        ("20", "left out by COALESCE(d.address, 'none') <> 'secret': both are secret"),
        (
            "21",
            "late by 29 min 50 s: o.order_time is 2026-03-01 10:30:00, and rows below 2026-03-01 10:59:50",
        ),
        ("NULL", "in tick 2, at once, because it can match nothing: order_id is NULL"),
        ("22", "a record that was not read here: it is broken, or only Spark knows what it is"),
        ("23", "stays until the watermark of d.delivery_time is above 2026-03-01 15:20:00"),
        ("25", "without an event time: order_time is NULL"),
        ("26", "d.address <> 'nowhere': both are nowhere"),
        ("30", "not read yet"),
        ("99", "note: no such row is among the 10 rows of orders"),
    ],
)
def test_what_became_of_an_order(why, key, said):
    assert said in why("o", "--key", key)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            "order_id=20",
            "late by 29 min: d.delivery_time is 2026-03-01 10:10:00, and rows below 2026-03-01 10:39:00",
        ),
        ("24", "none of the rows of o that can be read again met it, and not all can be"),
        ("address=nowhere", "filtered by d.address <> 'nowhere': both are nowhere"),
    ],
)
def test_what_became_of_a_delivery(why, key, said):
    assert said in why("d", "--key", key)


def test_a_time_says_which_row(why):
    said = why("d", "--key", "20", "--time", "2026-03-01 12:21:00")
    assert 'delivery_id": 8' in said
    assert 'delivery_id": 6' not in said


def test_json_has_the_same(why):
    (line,) = why("o", "--key", "18", "--json").splitlines()
    answer = json.loads(line)
    (fate,) = answer["rows"]
    assert (answer["query"], answer["input"], answer["ticks"]) == ("delivered", "o", [1, 3])
    assert (fate["outcome"], fate["left_in"]) == ("padded", {"number": 2, "exact": True})
    assert fate["near_misses"][0]["row"]["delivery_id"] == 2


def test_why_without_a_key_lists_rows_up_to_the_limit(why):
    said = why("o", "--limit", "3")
    assert "… and 7 more rows" in said


def test_why_without_an_input_lists_the_aliases(job_folder, capsys, monkeypatch):
    monkeypatch.chdir(job_folder)
    assert main(["why", "job.sql", "--key", "17"]) == 2
    assert "--input is missing Hint: use an alias of the query: --input o, d" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["x"], 'no query has an input "x"'),
        (["o", "--query", "deliverd"], 'there is no query "deliverd"'),
        (["o", "--key", "17", "--key", "18"], '--key "18" does not match a key'),
        (["o", "--key", "seventeen"], '"seventeen" is not a value of order_id (BIGINT)'),
        (["o", "--key", "order=18"], 'input "o" has no column "order" (--key order=18) Hint: did you mean'),
        (["o", "--time", "noon"], '"noon" is not a value of o.order_time (TIMESTAMP)'),
    ],
)
def test_why_rejects_invalid_arguments(job_folder, capsys, monkeypatch, words, said):
    monkeypatch.chdir(job_folder)
    assert main(["why", "job.sql", "--input", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_of_a_source_that_cannot_be_read_again_a_time_is_judged(job_folder, why):
    gone = job_folder / "in" / "orders" / "000.json"
    content = gone.read_bytes()
    stat = gone.stat()
    try:
        gone.unlink()
        said = why("o", "--key", "17", "--time", "2026-03-01 10:00:00")
        assert "000.json no longer exists" in said
        assert "a row whose o.order_time is 2026-03-01 10:00:00 was late from tick 2 on" in said
        assert "joined with a row of o that cannot be read again" in why("d", "--key", "17")
        gone.write_bytes(content + b"\n")
        assert "000.json was changed after it was read" in why("o", "--key", "17")
    finally:
        gone.write_bytes(content)
        os.utime(gone, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert "joined with d" in why("o", "--key", "17")
