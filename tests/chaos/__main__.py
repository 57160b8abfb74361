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
from pathlib import Path

from tests.chaos.killed import POINTS, SINKS, STORES, Job, forked
from tests.simulation.jobs import QUERIES
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
                for query in QUERIES:
                    for number, point in enumerate(POINTS * asked.rounds):
                        name = f"{store}-{sink}-{query}-{point}-{number}"
                        if asked.only not in name:
                            continue
                        place = Path(folder) / f"j{table.total()}-{name}"
                        place.mkdir()
                        job = Job(str(place), query, sink, store, draw.randrange(1 << 32), *places)
                        again = (draw.choice(POINTS), 1)
                        kills, said = killed_at(job, [(point, 1 + draw.randrange(2)), again])
                        table[store, sink] += len(kills)
                        table.update(("point", killed) for killed in kills)
                        if said is not None:
                            wrong += 1
                            print(f"WRONG {name}, {job}: {said}", flush=True)
    print(f"{'kills':12}" + "".join(f"{sink:>10}" for sink in SINKS))
    for store in STORES:
        print(f"{store:12}" + "".join(f"{table[store, sink]:10}" for sink in SINKS))
    print("at " + ", ".join(f"{point} {table['point', point]}" for point in POINTS))
    total = sum(table[store, sink] for store in STORES for sink in SINKS)
    print(f"{total} kills in {time.monotonic() - began:.0f} s, {wrong} jobs wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
