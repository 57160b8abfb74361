"""A cluster of processes that have only an S3 server in common: its driver is killed, and the job goes on
elsewhere, with executors that have nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.spark.test_state_in_objects import Orders, expected
from tests.support.s3 import KEYS, Proxy, make_bucket, s3_server

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]

RUN = """
import os, signal, sys
from watersmeet.state.commits import Commits
import watersmeet
from tests.support.jvm_options import OF_CLUSTERS

text, checkpoint, endpoint, bucket, killed = sys.argv[1:]
if killed == "killed":
    Commits.commit = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
ran = watersmeet.run(text, {
    "checkpoint": checkpoint, "master": "local-cluster[2,1,1024]", "partitions": 4,
    "until_caught_up": True, "finish": True,
    "state_store": f"s3://{bucket}/jobs/one", "state_store_endpoint": endpoint,
    "state_store_region": "us-east-1", "state_store_allow_http": True, "state_cache": "none",
    "spark.executor.extraJavaOptions": OF_CLUSTERS,
}, on_notice=print)
print("ticks", ran.ticks)
"""


def test_a_driver_that_was_killed_goes_on_elsewhere(tmp_path):
    orders = Orders(tmp_path / "job")
    orders.come(0, 20)
    environment = {**os.environ, **KEYS, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with s3_server() as server, Proxy(server) as proxy:
        bucket = make_bucket(server)

        def run(machine, killed):
            asked = [orders.text, str(tmp_path / machine), proxy.endpoint, bucket, killed]
            command = [sys.executable, "-c", RUN, *asked]
            return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)

        assert run("one", "killed").returncode == -signal.SIGKILL
        orders.come(20, 30)
        proxy.forget()
        ended = run("two", "whole")
        requests = sum(proxy.requests.values())
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "ticks 3" in ended.stdout
    assert "as it was begun" in ended.stdout
    assert orders.rows() == expected(30)
    print(f"{requests} requests, {proxy.sent:,} bytes sent, {proxy.given:,} given, for a start and 3 ticks")
    assert requests < 300
    assert proxy.given < 400_000
