"""What a tick of TPC-H's changes takes and keeps, set against computing the query anew and against a cascade.

The bars: a tick takes 20 times less than Spark computing the query anew over the same contents, and 5 times
less than DuckDB on one thread; a delta join keeps no row beyond those of its inputs' arrangements, fewer than
a cascade, and takes at most 1.5 times as long. Used by `benchmarks.tpch`.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.tpch import QUERIES, TABLES, Ran, Tpch, ran, write_changes

WARM = 3
"""Ticks before that many are not counted: what runs for the first time is compiled."""


def against_bars(tpch: Tpch, query: str, folder: Path, ticks: int) -> int:
    """Run the query in all these ways and print what came of it; 1 if some answer was wrong."""
    answers: list[Counter[tuple[Any, ...]]] = []
    duckdb_s: list[float] = []
    for tick in range(1, ticks + 1):
        write_changes(tpch, tick, folder)
        tpch.keep(folder / f"contents-{tick}")
        answers.append(tpch.answer(query))
        duckdb_s.append(tpch.seconds(query))
    delta, cascade = ran(query, folder, answers), ran(query, folder, answers, "cascade", tell=False)
    spark_s = _spark_anew(query, folder, ticks)
    print(
        "\n".join(delta.wrong) or f"after each of {ticks} ticks as DuckDB has it: {len(answers[-1]):,} rows"
    )
    own = median(delta.seconds[WARM:])
    other = median(cascade.seconds[WARM:])
    spark, duck = median(spark_s[WARM:]), median(duckdb_s[WARM:])
    print(f"a tick: {own:.3f} s ({median(delta.since[WARM:]):.3f} s with what Spark does between ticks)")
    _bar(f"Spark anew: {spark:.3f} s, {spark / own:.2f} x", spark >= 20 * own, "20 x")
    _bar(f"DuckDB anew, one thread: {duck:.3f} s, {duck / own:.3f} x", duck >= 5 * own, "5 x")
    _bar(f"cascade: {other:.3f} s; delta takes {own / other:.2f} x of it", own <= 1.5 * other, "1.5 x")
    print(f"delta keeps {_kept(delta)}; cascade keeps {_kept(cascade)}")
    _bar(f"rows of joins beneath in delta: {delta.rows['joins']:,}", not delta.rows["joins"], "0")
    _bar("bytes of delta against cascade", delta.nbytes < cascade.nbytes, "less")
    print("\n".join(f"cascade: {said}" for said in cascade.wrong))
    return 1 if delta.wrong or cascade.wrong else 0


def _kept(done: Ran) -> str:
    rows = ", ".join(f"{rows:,} of {kind}" for kind, rows in sorted(done.rows.items()))
    return f"{rows} ({done.nbytes / 1e6:.1f} MB)"


def _bar(said: str, met: bool, bar: str) -> None:
    print(f"{said} (bar: {bar}, {'met' if met else 'not met'})")


def _spark_anew(query: str, folder: Path, ticks: int) -> list[float]:
    """Seconds per tick for what the tables hold after it, read from Parquet, in a session that is warm."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    taken = []
    for tick in range(1, ticks + 1):
        before = time.perf_counter()
        for name in TABLES:
            spark.read.parquet(str(folder / f"contents-{tick}" / f"{name}.parquet")).createOrReplaceTempView(
                name
            )
        spark.sql(QUERIES[query]).write.format("noop").mode("overwrite").save()
        taken.append(time.perf_counter() - before)
    return taken
