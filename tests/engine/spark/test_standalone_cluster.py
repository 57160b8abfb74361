"""A standalone cluster whose machines have only an S3 server in common: executors are killed, a worker comes,
is decommissioned and goes, tasks are run twice where one is slow, and the driver is killed and started
elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.engine.spark.test_state_in_objects import Orders, compute_expected_rows
from tests.support.s3 import KEYS, make_bucket, s3_server, store_at
from tests.support.standalone import standalone

pytestmark = [pytest.mark.spark, pytest.mark.full]

PATIENCE_S = 200
"""Three Java processes start for each driver, and a Python one for each of those."""
ROOT = Path(__file__).resolve().parents[3]

RUN = """
import sys
import watersmeet

text, checkpoint, endpoint, bucket = sys.argv[1:]
ran = watersmeet.run(text, {
    "checkpoint": checkpoint, "partitions": 4, "trigger": "200 ms",
    "state_store": f"s3://{bucket}/jobs/one", "state_store_endpoint": endpoint,
    "state_store_region": "us-east-1", "state_store_allow_http": True, "state_cache": "none",
}, on_tick=lambda result, *_: print("tick", result.tick, flush=True), on_notice=print)
print("ticks", ran.ticks)
"""

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "20ms",
    "spark.decommission.enabled": "true",
    "spark.task.maxFailures": "8",
    "spark.executor.memory": "512m",
}


class Driver:
    """One, by ``spark-submit``, of which the output is read on."""

    def __init__(self, cluster, script, text, machine, endpoint, bucket, environment):
        submit = Path(sys.executable).with_name("spark-submit")
        conf = [word for pair in SPECULATION.items() for word in ("--conf", "=".join(pair))]
        self.log = machine.with_suffix(".log")
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [
                    str(submit),
                    "--master",
                    cluster.url,
                    *conf,
                    str(script),
                    text,
                    str(machine),
                    endpoint,
                    bucket,
                ],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def await_tick(self, number):
        until = time.monotonic() + PATIENCE_S
        while f"tick {number}\n" not in self.log.read_text(errors="replace"):
            assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < until, self.log.read_text(errors="replace")[-3000:]
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Kill it, and the Java process that started it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def test_machines_come_and_go(tmp_path, monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    orders = Orders(tmp_path / "job")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "LC_ALL": "C.UTF-8", "PYSPARK_PYTHON": sys.executable}
    script = tmp_path / "job.py"
    script.write_text(RUN)
    with s3_server() as endpoint, standalone(tmp_path / "cluster", environment) as cluster:
        bucket = make_bucket(endpoint)
        local = f"'path' = '{orders.folder}/out', 'format' = 'json'"
        assert local in orders.text
        remote = f"'path' = 's3://{bucket}/out', 'endpoint' = '{endpoint}', 'region' = 'us-east-1'"
        text = orders.text.replace(local, remote)
        orders.come(0, 2000)
        with Driver(cluster, script, text, tmp_path / "one", endpoint, bucket, environment) as driver:
            driver.await_tick(1)
            executor, _ = cluster.executors()
            executor.kill()
            orders.come(2000, 4000)
            driver.await_tick(2)
            worker = cluster.add_worker()
            orders.come(4000, 6000)
            driver.await_tick(3)

        orders.come(6000, 8000)
        with Driver(cluster, script, text, tmp_path / "two", endpoint, bucket, environment) as driver:
            driver.await_tick(4)
            assert len(cluster.executors()) == 3
            worker.send_signal(
                signal.SIGPWR
            )  # decommissioned: its executor takes no tasks any more, and goes
            orders.come(8000, 10_000)
            driver.await_tick(5)
            until = time.monotonic() + PATIENCE_S
            while len(cluster.executors()) > 2:
                assert time.monotonic() < until, "the executor of a decommissioned worker goes on"
                time.sleep(0.1)
            assert worker.poll() is None
            worker.send_signal(signal.SIGTERM)
            orders.come(10_000, 11_000)
            driver.await_tick(6)
            os.kill(driver.process.pid, signal.SIGTERM)
            assert driver.process.wait(PATIENCE_S) in (0, 143), driver.log.read_text()[-3000:]

        client = store_at(endpoint, bucket, "", timeout_s=5.0).place.client()
        names = [entry["path"] for batch in client.list() for entry in batch]
        parts = [name for name in names if name.endswith("rows.parquet")]
        tables = [parquet.read_table(pa.BufferReader(bytes(client.get(name).bytes()))) for name in parts]
    rows = sorted((row["id"], row["at"]) for table in tables for row in table.to_pylist())
    whole = compute_expected_rows(11_000)
    assert len(rows) == len(set(rows))
    assert rows == [row for row in whole if row in set(rows)]
    assert {row for row in whole if row[1] is not None} <= set(rows)  # the rest waits for its padding
    assert len(rows) > 8000
