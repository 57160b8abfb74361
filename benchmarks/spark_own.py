"""Spark's own stream-stream joins over a workload's files, in a process of its own.

Variants: the state store, ``default`` (in memory, backed by files) or ``rocksdb``; ``default-plain`` leaves
the file system as Spark makes it. Tuned as one would for two cores:

* as many shuffle partitions as cores (Spark's default, 200, makes it several times slower),
* local files without checksum files and without a ``chmod`` process per file, as in watersmeet's own session.
  Not with RocksDB: Spark's store for it cannot work so (ClassCastException in 4.2).
"""

from __future__ import annotations

import json
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.child import CORES, Arguments, Report, bytes_in, commit_times, parse
from benchmarks.workloads import BANDS, KINDS

VARIANTS = ("default", "rocksdb", "default-plain")
COLUMNS = "k BIGINT, t TIMESTAMP, v BIGINT, s STRING"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}


def settings(arguments: Arguments) -> dict[str, str]:
    conf = {**arguments.conf(), "spark.sql.shuffle.partitions": str(CORES)}
    if arguments.variant == "rocksdb":
        conf["spark.sql.streaming.stateStore.providerClass"] = ROCKSDB
    elif arguments.variant == "default":
        conf |= LOCAL_FILES
    return conf


def _read(spark: SparkSession, arguments: Arguments, side: str) -> DataFrame:
    workload, topics = arguments.workload, arguments.topics
    if topics is None:
        files = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", workload.files)
        return files.parquet(str(arguments.data / side))
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", topics.servers)
        .option("subscribe", topics.of(side))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", max(workload.rows, 1))
        .load()
    )
    return records.select(F.from_json(F.col("value").cast("string"), COLUMNS).alias("r")).select("r.*")


def query(spark: SparkSession, arguments: Arguments) -> StreamingQuery:
    """The streaming query, started."""
    workload, kind = arguments.workload, KINDS[arguments.kind]
    rows, *others = (
        _read(spark, arguments, side).withWatermark("t", f"{workload.lag_s} seconds").alias(side)
        for side in kind.sides
    )
    held: list[str] = []
    for side, other in zip(kind.sides[1:], others, strict=True):
        band = f"{side}.t >= l.t AND {side}.t <= l.t + INTERVAL {BANDS[side]} MINUTES"
        rows = rows.join(other, F.expr(f"{side}.k = l.k AND {band}"), kind.word.lower().replace(" ", "_"))
        # at most one event time may go into a join: this side's stays as a plain timestamp
        plain = f"timestamp_micros(unix_micros({side}.t)) AS {side}t"
        rows = rows.selectExpr("l.*", *held, plain, f"{side}.v AS {side}v", f"{side}.s AS {side}s").alias("l")
        held += [f"{side}t", f"{side}v", f"{side}s"]
    rows = rows.selectExpr("k", "t AS lt", "v AS lv", "s AS ls", *held)
    writer = rows.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    return writer.option("checkpointLocation", str(arguments.checkpoint)).start(str(arguments.out))


def main() -> None:
    arguments = parse(__doc__ or "", VARIANTS)
    builder: Any = SparkSession.builder.appName("spark-own")
    for name, value in settings(arguments).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    started = time.time()
    running = query(spark, arguments)
    running.awaitTermination()
    ticks = arguments.workload.all_ticks
    progress = [json.loads(each.json) for each in running.recentProgress]
    states = (each["stateOperators"] for each in progress if each["batchId"] == ticks - 1)
    last: list[dict[str, Any]] = next(states, [])
    Report(
        started=started,
        ended=commit_times(arguments.checkpoint / "commits", ticks),
        retained=sum(each["numRowsTotal"] for each in last),
        state_bytes=bytes_in(arguments.checkpoint / "state"),
        late=sum(o["numRowsDroppedByWatermark"] for each in progress for o in each["stateOperators"]),
        parts=[each["durationMs"] for each in progress if each["batchId"] < ticks],
    ).write(arguments.work)
    spark.stop()


if __name__ == "__main__":
    main()
