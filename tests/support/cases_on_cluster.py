"""Jobs and cases on executors that are processes of their own, with state in an S3 server: a program, for a
JVM has one session. Takes them from a file, one a line. Of a job, its text and its settings, it tells the
ticks that it had; of a case what was wrong with it.

    python -m tests.support.cases_on_cluster FILE ENDPOINT BUCKET FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import watersmeet
from tests.support.jvm_options import OF_CLUSTERS
from watersmeet.objects.cache import Cache
from watersmeet.objects.object_store import ObjectLocation, ObjectStore
from watersmeet.runtime.local import replay_case as replay_locally
from watersmeet.runtime.spark.job import session
from watersmeet.runtime.spark.replay import replay_case
from watersmeet.runtime.spark.tick.task_placement import TaskPlacement
from watersmeet.testing.cases import check_case

EXECUTORS = 2
PATIENCE_S = 120
OWN = "./"
"""Temporary files of an executor, its cache among them, are in its own working directory."""
EVALUATED = 12
"""So often numbers of tasks are: at random they would stay where they are once in 2,000 runs."""
COMPARED = ("rows", "watermarks", "late", "state")


def begin(folder: str) -> Any:
    """A session with all executors there."""
    conf = {
        "spark.executor.memory": "512m",
        "spark.local.dir": folder,
        "spark.sql.shuffle.partitions": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.locality.wait": "0s",
        "spark.executorEnv.TMPDIR": OWN,
        "spark.executor.extraJavaOptions": OF_CLUSTERS,
    }
    spark = session.start(
        session.build_session_settings(master=f"local-cluster[{EXECUTORS},1,1024]", conf=conf)
    )
    until = time.monotonic() + PATIENCE_S
    jvm: Any = spark.sparkContext._jsc
    while jvm.sc().getExecutorMemoryStatus().size() <= EXECUTORS:  # the driver is one
        assert time.monotonic() < until, "the executors did not come"
        time.sleep(0.05)
    return spark


def problems_of(case: dict[str, Any], store: ObjectStore) -> list[str]:
    """Where there is nothing that it is to come to, it is to come to what it does in this process."""
    if "expect" not in case:
        told = replay_locally(case, partitions=1)
        case = {**case, "expect": [{key: line[key] for key in COMPARED} for line in told]}
    return check_case(case, replay_case(case, partitions=EXECUTORS, store=store))


def places_of(spark: Any) -> list[list[str]]:
    """In which executor each task is run, each time that they are, as (number, working directory)."""

    def label_task_numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names = [f"{number} in {os.getcwd()}" for number in batch.column(0).to_pylist()]
            yield pa.record_batch({"name": pa.array(names, pa.string())})

    frame = TaskPlacement(spark).numbers(EXECUTORS).mapInArrow(label_task_numbers, "name STRING")
    return [sorted(row[0] for row in frame.collect()) for _ in range(EVALUATED)]


def main() -> None:
    file, endpoint, bucket, folder = sys.argv[1:]
    spark = begin(folder)
    options = (("endpoint", endpoint), ("region", "us-east-1"))
    for number, line in enumerate(Path(file).read_text().splitlines()):
        case = json.loads(line)
        if "text" in case:
            ran = watersmeet.run(case["text"], case["settings"], on_notice=lambda said: print("notice", said))
            print("ticks", ran.ticks)
            continue
        place = ObjectLocation(f"s3://{bucket}/{number}", options, allow_http=True)
        cache = Cache(place.url) if number % 2 else None
        began = time.perf_counter()
        problems = problems_of(case, ObjectStore(place, cache))
        told = {"case": case["case"], "problems": problems, "seconds": time.perf_counter() - began}
        print("told", json.dumps(told), flush=True)
    print("places", json.dumps(places_of(spark)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
