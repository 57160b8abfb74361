"""Values of 10 MB: through files as they are; what a Kafka topic does not take is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.engine.spark.running import until_caught_up
from tests.fuzz.rows import bag, csv_rows, difference, json_rows, parquet_rows
from watersmeet.errors import WatersmeetError

pytestmark = pytest.mark.spark

LARGE = 10 << 20
TEXTS = ["x" * LARGE, '"\\\u00e9,' * (LARGE // 5), "small", None]


def stream(folder: Path, wanted: str) -> str:
    (folder / wanted).mkdir()
    if wanted == "parquet":
        table = pa.table({"id": range(len(TEXTS)), "t": [5] * len(TEXTS), "s": TEXTS})
        pq.write_table(table, folder / wanted / "1.parquet")
    else:
        lines = (json.dumps({"id": number, "t": 5, "s": text}) for number, text in enumerate(TEXTS))
        (folder / wanted / "1.json").write_text("\n".join(lines))
    return "".join(
        f"""CREATE TABLE {wanted}_{side} (id BIGINT, t BIGINT, s STRING, WATERMARK FOR t AS t - 5)
          WITH ('connector' = 'file', 'path' = '{folder}/{wanted}', 'format' = '{wanted}');\n"""
        for side in "lr"
    )


@pytest.mark.full
def test_through_files(spark, tmp_path):
    """As values, and as keys of the join."""
    text = stream(tmp_path, "parquet") + stream(tmp_path, "json")
    for name, given, wanted in (
        ("o1", "json", "parquet"),
        ("o2", "parquet", "json"),
        ("o3", "parquet", "csv"),
    ):
        text += f"""CREATE TABLE {name}
            WITH ('connector' = 'file', 'path' = '{tmp_path}/out/{name}', 'format' = '{wanted}');
          INSERT INTO {name} SELECT l.id, r.s FROM {given}_l l LEFT JOIN {given}_r r
            ON l.s = r.s AND l.t = r.t AND (l.id <> r.id OR l.s <> concat(r.s, 'x'));\n"""
    until_caught_up(spark, text, tmp_path / "state", finish=True)
    want = bag(enumerate(TEXTS))
    outputs = {"id": "BIGINT", "s": "STRING"}
    assert not difference(bag(parquet_rows(tmp_path / "out" / "o1")), want)
    assert not difference(bag(json_rows(tmp_path / "out" / "o2", outputs)), want)
    assert not difference(bag(csv_rows(tmp_path / "out" / "o3", outputs)), want)


@pytest.mark.kafka
def test_a_record_that_a_topic_does_not_take(spark, kafka_broker, tmp_path):
    kafka_broker.create_topic("fuzz-large")
    text = stream(tmp_path, "parquet")
    text += f"""CREATE TABLE o WITH ('connector' = 'kafka', 'topic' = 'fuzz-large',
        'bootstrap.servers' = '{kafka_broker.bootstrap_servers}');
      INSERT INTO o SELECT l.id, r.s FROM parquet_l l JOIN parquet_r r ON l.id = r.id AND l.t = r.t;"""
    with pytest.raises(WatersmeetError) as caught:
        until_caught_up(spark, text, tmp_path / "state")
    assert "max.request.size" in str(caught.value)
    assert len(str(caught.value)) < 1_000
