"""Cases of all kinds of nodes on two executors that have only an S3 server in common, with the driver: what
they come to is what they come to in one process. A few of them where `make cluster` was not asked for. And
each task goes to the executor that had it before, whose cache has its state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.spark.test_cases_on_spark import CASES, CHOSEN, QUERIES, compared
from tests.support.s3 import KEYS, make_bucket, s3_server
from watersmeet.testing.cases import load_cases

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]
FEW = (
    "rescale-keeps-state",
    "hz-F2-full",
    "table-as-of-left",
    "broadcast-full-join-over-a-rescale",
)
"""In every run of the tests."""
SECONDS_EACH = 60


def chosen() -> list[dict[str, Any]]:
    """Those that are played on one machine, delta joins, and tables by their keys."""
    cases = []
    for path in sorted(CASES.glob("*.json")):
        for case in load_cases(path):
            wanted = case["case"] in CHOSEN.get(path.stem, ())
            delta = case.get("options", {}).get("plan") == "delta"
            keyed = any("primary_key" in table for table in case.get("tables", {}).values())
            if wanted or delta or keyed:
                cases.append(case)
    return [*cases, *(compared(query) for query in QUERIES.values())]


def test_cases_on_executors_without_a_directory(tmp_path: Path) -> None:
    whole = "WATERSMEET_CLUSTER" in os.environ
    cases = [case for case in chosen() if whole or case["case"] in FEW]
    assert len(cases) >= (60 if whole else len(FEW))
    environment = {**os.environ, **KEYS, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with s3_server() as endpoint:
        asked = [endpoint, make_bucket(endpoint), str(tmp_path)]
        ran = subprocess.run(
            [sys.executable, "-m", "tests.support.cases_on_cluster", *asked],
            input="".join(f"{json.dumps(case)}\n" for case in cases),
            env=environment,
            capture_output=True,
            text=True,
            timeout=120 + SECONDS_EACH * len(cases),
        )
    told = [json.loads(line[5:]) for line in ran.stdout.splitlines() if line.startswith("told ")]
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert [each["case"] for each in told] == [case["case"] for case in cases]
    assert [each for each in told if each["problems"]] == []
    (places,) = (json.loads(line[7:]) for line in ran.stdout.splitlines() if line.startswith("places "))
    assert len(places) >= 12
    assert all(there == places[0] for there in places), "tasks change places"
    assert len({name.split(" in ")[1] for name in places[0]}) == 2, "both are in one executor"
    print(f"{len(told)} cases on two executors, {sum(each['seconds'] for each in told):.0f} s")
