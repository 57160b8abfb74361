"""Two executors that have only an S3 server in common, with the driver.

A driver is killed, and its job resumes on another cluster. Cases with each kind of node have the results that
they have in one process. Each task goes to the executor that ran it before, whose cache has its state.
"""

from __future__ import annotations

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.test_cases_on_spark import CHOSEN, QUERIES, build_case
from tests.engine.spark.test_state_in_objects import Orders, compute_expected_rows
from tests.support.case_files import cases_by_name
from tests.support.forked import run_forked
from tests.support.s3 import KEYS, Proxy, make_bucket, s3_server

pytestmark = [pytest.mark.spark, pytest.mark.full]

ROOT = Path(__file__).resolve().parents[3]
SECONDS_EACH = 60


def chosen_cases() -> list[dict[str, Any]]:
    """Return the cases chosen for Spark, each sixth one, delta joins, keyed tables, and each kind of join."""
    cases = [
        case
        for number, case in enumerate(cases_by_name().values())
        if case["case"] in CHOSEN
        or number % 6 == 0
        or case.get("options", {}).get("plan") == "delta"
        or any("primary_key" in table for table in case.get("tables", {}).values())
    ]
    return [*cases, *(build_case(query) for query in QUERIES.values())]


KILLED = """
import json, os, signal, sys
from watersmeet.state.commits import Commits
import watersmeet
from tests.support.jvm_options import OF_CLUSTERS

Commits.commit = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
own = {"master": "local-cluster[2,1,1024]", "spark.executor.extraJavaOptions": OF_CLUSTERS}
watersmeet.run(sys.argv[1], {**json.loads(sys.argv[2]), **own})
"""


@dataclass
class Told:
    """How the driver that was to be killed ended; what the next one said, which went on with the job and then
    played the cases; the job, and what it asked of the store."""

    killed: int
    words: list[str]
    cases: list[dict[str, Any]]
    orders: Orders
    requests: int
    proxy: Proxy

    def after(self, word: str) -> list[str]:
        return [line.removeprefix(f"{word} ") for line in self.words if line.startswith(f"{word} ")]


@pytest.fixture(scope="module")
def cluster_results(tmp_path_factory: Any) -> Told:
    """One cluster for both tests but for the one of the driver that is killed."""
    folder = tmp_path_factory.mktemp("cluster")
    cases = chosen_cases()
    assert len(cases) > 60
    environment = {**os.environ, **KEYS, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    orders = Orders(folder / "job")
    orders.come(0, 20)
    with s3_server() as server, Proxy(server) as proxy, (folder / "said").open("w+b") as out:
        bucket = make_bucket(server)

        def settings(machine: str) -> dict[str, Any]:
            return {
                "checkpoint": str(folder / machine), "partitions": 4, "until_caught_up": True, "finish": True,
                "state_store": f"s3://{bucket}/jobs/one", "state_store_endpoint": proxy.endpoint,
                "state_store_region": "us-east-1", "state_store_allow_http": True, "state_cache": "none",
            }  # fmt: skip

        killed, _ = run_forked(["-c", KILLED, orders.text, json.dumps(settings("one"))], 150, env=environment)
        orders.come(20, 30)
        proxy.forget()
        job = {"text": orders.text, "settings": settings("two")}
        (folder / "asked").write_text("".join(f"{json.dumps(each)}\n" for each in [job, *cases]))
        asked = [folder / "asked", server, make_bucket(server), folder / "local"]
        status, errors = run_forked(
            ["-m", "tests.support.cases_on_cluster", *asked],
            240 + SECONDS_EACH * len(cases),
            env=environment,
            stdout=out,
        )
        assert status == 0, errors[-3000:]
        words = (folder / "said").read_text().splitlines()
        return Told(killed, words, cases, orders, sum(proxy.requests.values()), proxy)


def test_killed_driver_resumes_on_another_cluster(cluster_results: Told) -> None:
    """Its executors have nothing of it."""
    assert cluster_results.killed == -signal.SIGKILL
    assert cluster_results.after("ticks") == ["3"]
    assert any("which the next run repeats" in said for said in cluster_results.after("notice"))
    assert cluster_results.orders.rows() == compute_expected_rows(30)
    print(
        f"{cluster_results.requests} requests, {cluster_results.proxy.sent:,} bytes sent,",
        f"{cluster_results.proxy.given:,} given",
        end="",
    )
    print(", for a start and 3 ticks")
    assert cluster_results.requests < 300
    assert cluster_results.proxy.given < 400_000


def test_cases_on_executors_without_a_directory(cluster_results: Told) -> None:
    each = [json.loads(line) for line in cluster_results.after("told")]
    assert [one["case"] for one in each] == [case["case"] for case in cluster_results.cases]
    assert [one for one in each if one["problems"]] == []
    (places,) = map(json.loads, cluster_results.after("places"))
    assert len(places) >= 12
    assert all(there == places[0] for there in places), "tasks change places"
    assert len({name.split(" in ")[1] for name in places[0]}) == 2, "both are in one executor"
    print(f"{len(each)} cases on two executors, {sum(one['seconds'] for one in each):.0f} s")
