"""A query that runs as one task puts its rows out in the order in which Spark read them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.spark.running import Running

pytestmark = pytest.mark.spark

ROWS = 300


def test_left_rows_leave_as_they_came_and_then_pads(spark, tmp_path, seed):
    rng = np.random.default_rng(seed)
    keys = {"l": rng.integers(0, 100, ROWS), "r": rng.integers(50, 150, ROWS)}
    texts = []
    for side in "lr":
        (tmp_path / side).mkdir()
        times = pa.array(rng.integers(0, 60_000_000, ROWS), pa.timestamp("us", tz="UTC"))
        rows = {"k": pa.array(keys[side]), "t": times, "i": pa.array(np.arange(ROWS))}
        parquet.write_table(pa.table(rows), tmp_path / side / "a.parquet")
        texts.append(f"""
            CREATE MAPPING {side}_in (k BIGINT, t TIMESTAMP, i BIGINT) TYPE File
                OPTIONS ('path' = '{tmp_path / side}', 'format' = 'parquet');
            CREATE VIEW {side} AS SELECT * FROM TABLE(
                IMPOSE_ORDER(TABLE {side}_in, DESCRIPTOR(t), INTERVAL '1' HOUR));""")
    job = f"""{"".join(texts)}
        CREATE MAPPING joined TYPE File OPTIONS ('path' = '{tmp_path / "out"}', 'format' = 'parquet');
        INSERT INTO joined SELECT l.i AS li, r.i AS ri FROM l FULL JOIN r
            ON l.k = r.k AND l.t BETWEEN r.t - INTERVAL '1' HOUR AND r.t + INTERVAL '1' HOUR"""
    settings = {"until_caught_up": True, "finish": True, "partitions": 1}
    Running(spark, job, tmp_path / "checkpoint", **settings).to_the_end()
    parts = sorted((tmp_path / "out").glob("*.parquet"))
    writers = {parquet.read_metadata(part).created_by.split()[0] for part in parts}
    assert writers == {"parquet-cpp-arrow"}, "rows that leave as they are go from the tasks into the files"
    rows = [tuple(row.values()) for part in parts for row in parquet.read_table(part).to_pylist()]
    partners = [np.flatnonzero(keys["r"] == key).tolist() for key in keys["l"]]
    pairs = rows[: sum(len(each) for each in partners)]
    assert [li for li, _ in pairs] == [number for number, each in enumerate(partners) for _ in each]
    assert set(pairs) == {(number, ri) for number, each in enumerate(partners) for ri in each}
    alone = [(li, None) for li, each in enumerate(partners) if not each]
    alone += [(None, ri) for ri, key in enumerate(keys["r"]) if key not in keys["l"]]
    assert sorted(rows[len(pairs) :], key=str) == sorted(alone, key=str)
