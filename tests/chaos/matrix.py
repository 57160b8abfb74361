"""The jobs that are killed: each store, sink and kind of job, and the servers that they need.

A job is killed at two points of a tick, in two runs; a third run goes to the end of the input.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.chaos.killed import POINTS, SINKS, STORES, Job, run_in_fork
from tests.simulation.jobs import ALIKE, QUERIES, SHEDDING
from tests.support.kafka import KafkaBroker
from tests.support.postgres import Postgres
from tests.support.s3 import KEYS, make_bucket

_S3 = "from tests.support.s3 import s3_server\nwith s3_server() as at: print(at, flush=True); input()"


@contextmanager
def object_store() -> Iterator[tuple[str, str]]:
    """Start an S3 server in a process of its own; yield its endpoint and a bucket.

    Its keys are variables of this process meanwhile.
    """
    pipe = subprocess.PIPE
    with patch.dict(os.environ, KEYS):
        s3 = subprocess.Popen([sys.executable, "-c", _S3], stdin=pipe, stdout=pipe, text=True)
        try:
            assert s3.stdout is not None
            endpoint = s3.stdout.readline().strip()
            yield endpoint, make_bucket(endpoint)
        finally:
            s3.kill()
            s3.communicate()


@contextmanager
def servers() -> Iterator[tuple[str, str, str, str]]:
    """Start all servers; yield endpoint and bucket, the URL of PostgreSQL, Kafka's bootstrap servers."""
    with object_store() as objects, Postgres() as postgres, KafkaBroker() as kafka:
        yield *objects, postgres.url, kafka.bootstrap_servers


def job_kinds(sink: str) -> list[dict[str, Any]]:
    """Return the arguments of `Job` for each kind of job with that sink.

    Plain queries; queries that shed rows at a limit, into a sink of their own; tables that refuse some
    rows; a job that resumes with a narrower query.
    """
    refusing = [{"query": query, "aside": True} for query in ALIKE] if sink == "postgres" else []
    return [
        *({"query": query} for query in (*QUERIES, *SHEDDING)),
        *refusing,
        {"query": "inner", "then": "narrow"},
    ]


MATRIX = [(store, sink, kind) for store in STORES for sink in SINKS for kind in job_kinds(sink)]
"""Each job; at full effort each is killed at each of `POINTS` first."""


def job_id(job: tuple[str, str, dict[str, Any]]) -> str:
    """Return a name for a job of `MATRIX`, of letters, digits and hyphens."""
    store, sink, kind = job
    return "-".join((store, sink, *(str(value) for value in kind.values()))).replace("_", "-").lower()


def kill_twice(
    folder: Path,
    job: tuple[str, str, dict[str, Any]],
    point: str,
    draw: random.Random,
    places: tuple[str, str, str, str],
) -> int:
    """Run a job of `MATRIX` in a new folder, kill it at a point and at a drawn one, run it to the end.

    The name of the folder is that of the job in stores and sinks: no other job of these servers has it.

    A job that resumes with another query is killed once more before that, between two ticks.

    Return the number of kills: a run may end before its point.

    Raises: AssertionError: a run failed, or the result is not the expected one.
    """
    store, sink, kind = job
    folder.mkdir()
    killed = replace(Job(str(folder), kind["query"], sink, store, draw.randrange(1 << 32), *places), **kind)
    kills = 0
    if killed.then:
        outcome = run_in_fork(
            replace(killed, then=""), draw.choice(["committed", "ticked"]), 1 + draw.randrange(2)
        )
        assert outcome in ("killed", None), f"{killed}, before its query changed: {outcome}"
        kills += outcome == "killed"
    for at, tick in [(point, 1 + draw.randrange(2)), (draw.choice(POINTS), 1), (None, 0)]:
        outcome = run_in_fork(killed, at, tick)
        assert outcome in (("killed", None) if at else (None,)), f"{killed}, killed at {point}: {outcome}"
        kills += outcome == "killed"
    return kills
