"""``python -m tests.chaos``: jobs killed at every point, with every query, sink and store, each run again;
what is there at the end has to be the batch answer.

    --rounds N   how often each point is killed in each job (1), in another tick each time
    --only TEXT  those whose names have this in them
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.chaos.killed import POINTS, SINKS, STORES, Job, forked
from tests.simulation.jobs import ALIKE, QUERIES, SHEDDING
from tests.support.kafka import KafkaBroker
from tests.support.postgres import Postgres
from tests.support.s3 import KEYS, make_bucket

IMPORTED = (
    "deltalake", "deltalake.transaction", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "duckdb",
    "obstore", "adbc_driver_postgresql.dbapi", "watersmeet.sinks.files", "watersmeet.sinks.lake.delta",
    "watersmeet.sinks.lake.iceberg", "watersmeet.sinks.postgres.sink", "watersmeet.sinks.kafka.sink",
    "watersmeet.sinks.stored.sink", "watersmeet.sinks.function.sink", "watersmeet.objects.tables_store",
)  # fmt: skip

_S3 = "from tests.support.s3 import s3_server\nwith s3_server() as at: print(at, flush=True); input()"


@contextmanager
def objects() -> Iterator[tuple[str, str]]:
    """Endpoint and bucket of an S3 server in a process of its own."""
    os.environ.update(KEYS)
    pipe = subprocess.PIPE
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
    """Those of `objects`, the URL of PostgreSQL, Kafka's servers."""
    with objects() as of_objects, Postgres() as postgres, KafkaBroker() as kafka:
        yield *of_objects, postgres.url, kafka.bootstrap_servers


KINDS = ("plain", "shed", "aside", "changed")
"""``plain``: the queries of simulations; ``shed``: rows are shed at a limit, into a sink of their own;
``aside``: the table refuses some rows; ``changed``: the job goes on with a narrower query."""


def jobs_of(kind: str, store: str, sink: str) -> list[dict[str, Any]]:
    """What jobs of this kind there are with that store and sink: arguments of `Job`."""
    if kind == "plain":
        return [{"query": query} for query in QUERIES]
    if kind == "shed":
        return [{"query": query} for query in SHEDDING]
    if kind == "aside":
        return [{"query": query, "aside": True} for query in ALIKE] if sink == "postgres" else []
    return [{"query": "inner", "then": "narrow"}]


def killed_twice(
    job: Job, points: list[tuple[str, int]], draw: random.Random
) -> tuple[list[str], str | None]:
    """As `killed_at`. A job that goes on with another query is killed once more before, between two ticks."""
    if not job.then:
        return killed_at(job, points)
    said = forked(replace(job, then=""), draw.choice(["committed", "ticked"]), 1 + draw.randrange(2))
    if said not in ("killed", None):
        return [], f"before its query was changed: {said}"
    return killed_at(job, points)


def killed_at(job: Job, points: list[tuple[str, int]]) -> tuple[list[str], str | None]:
    """Kill a job at these points, one run after the other, and let it come to its end; the points at which it
    was killed (a run may be at its end before), and what is wrong."""
    kills: list[str] = []
    for at, tick in [*points, (None, 0)]:
        said = forked(job, at, tick)
        if said == "killed" and at is not None:
            kills.append(at)
        elif said is not None:
            return kills, f"killed at {points}, run to {at}: {said}"
    return kills, None


def job_in(
    place: Path,
    given: dict[str, Any],
    sink: str,
    store: str,
    draw: random.Random,
    places: tuple[str, str, str, str],
) -> Job:
    """Of `jobs_of`, in a folder of its own."""
    job = Job(str(place), given["query"], sink, store, draw.randrange(1 << 32), *places)
    return replace(job, **given)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    asked = parser.parse_args()
    for module in IMPORTED:
        importlib.import_module(module)
    print("seed", asked.seed)
    draw, began = random.Random(asked.seed), time.monotonic()
    table, wrong = Counter[tuple[str, str]](), 0
    with servers() as places, tempfile.TemporaryDirectory() as folder:
        for store in STORES:
            for sink in SINKS:
                kinds = [(kind, given) for kind in KINDS for given in jobs_of(kind, store, sink)]
                for kind, given in kinds:
                    for number, point in enumerate(POINTS * asked.rounds):
                        name = f"{store}-{sink}-{kind}-{given['query']}-{point}-{number}"
                        if asked.only not in name:
                            continue
                        place = Path(folder) / f"j{table.total()}-{name}"
                        place.mkdir()
                        job = job_in(place, given, sink, store, draw, places)
                        again = (draw.choice(POINTS), 1)
                        kills, said = killed_twice(job, [(point, 1 + draw.randrange(2)), again], draw)
                        table[store, sink] += len(kills)
                        table.update(("point", killed) for killed in kills)
                        table["kind", kind] += len(kills)
                        if said is not None:
                            wrong += 1
                            print(f"WRONG {name}, {job}: {said}", flush=True)
    print(f"{'kills':12}" + "".join(f"{sink:>10}" for sink in SINKS))
    for store in STORES:
        print(f"{store:12}" + "".join(f"{table[store, sink]:10}" for sink in SINKS))
    print("at " + ", ".join(f"{point} {table['point', point]}" for point in POINTS))
    print("of " + ", ".join(f"{kind} {table['kind', kind]}" for kind in KINDS))
    total = sum(table[store, sink] for store in STORES for sink in SINKS)
    print(f"{total} kills in {time.monotonic() - began:.0f} s, {wrong} jobs wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
