"""The first load of a job over tables that change, beside the same join in Spark as a batch.

    python -m benchmarks.first_load [--rows 1000000] [--rounds 3] [--folder DIR]

Three tables of so many rows in Parquet, each row of the third with one partner in the others: all come in the
first tick, which is joined as a delta join and as a cascade; Spark reads, joins and writes the same into
Parquet. Each in a process of its own, from when its session is up (the same settings for all) to the end of
what was written. The aim is at most 3 times Spark's time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import duckdb

WAYS = ("spark", "delta", "cascade")
TABLES = {
    "customers": "id BIGINT, name STRING",
    "orders": "number BIGINT, customer BIGINT, day DATE",
    "lines": "number BIGINT, item BIGINT, price DECIMAL(15,2)",
}
QUERY = """SELECT c.name, o.number, o.day, l.item, l.price FROM customers c
    JOIN orders o ON o.customer = c.id JOIN lines l ON l.number = o.number"""


def write_tables(folder: Path, rows: int) -> None:
    """A file per table."""
    columns = {
        "customers": "i AS id, 'customer ' || i AS name",
        "orders": f"i AS number, hash(i) % {rows} AS customer, DATE '1995-01-01' + (i % 2000)::INT AS day",
        "lines": f"hash(i, 1) % {rows} AS number, i AS item, (i % 100000 / 100)::DECIMAL(15,2) AS price",
    }
    for name, values in columns.items():
        (folder / name).mkdir(parents=True)
        typed = [column.split() for column in TABLES[name].replace("STRING", "VARCHAR").split(", ")]
        casts = ", ".join(f"CAST({column} AS {kind}) AS {column}" for column, kind in typed)
        duckdb.execute(
            f"COPY (SELECT {casts}, 1::INT AS d FROM (SELECT {values} FROM range({rows}) t(i)))"
            f" TO '{folder}/{name}/1.parquet'"
        )


def seconds(way: str, folder: Path) -> float:
    """How long it takes in this process."""
    from watersmeet.parser.statements import parse_job
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.spark.job.run import run_job
    from watersmeet.runtime.spark.job.session import build_session_settings, start
    from watersmeet.runtime.spark.job.settings import RunSettings

    with tempfile.TemporaryDirectory(dir=folder) as made:
        lines = [f"SET output_mode = changelog; SET plan = {'auto' if way == 'spark' else way};"]
        for name, columns in TABLES.items():
            options = f"'connector' = 'file', 'path' = '{folder / name}', 'format' = 'parquet'"
            lines.append(f"CREATE TABLE {name} ({columns}, d INT) WITH ({options}, 'diff.column' = 'd');")
        lines.append(f"CREATE TABLE out WITH ('connector' = 'file', 'path' = '{made}/out');")
        job = parse_job("\n".join([*lines, f"INSERT INTO out {QUERY};"]))
        spark = start(build_session_settings())
        before = time.perf_counter()
        if way == "spark":
            spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
            for name in TABLES:
                spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
            spark.sql(QUERY).write.parquet(f"{made}/out/1")
        else:
            run_job(job, plan_job(job), RunSettings(f"{made}/checkpoint", until_caught_up=True))
        taken = time.perf_counter() - before
        (written,) = duckdb.execute(f"SELECT count(*) FROM '{made}/out/*/*.parquet'").fetchall()
        (wanted,) = duckdb.execute(f"SELECT count(*) FROM '{folder}/lines/*.parquet'").fetchall()
        assert written == wanted, (way, written, wanted)
    return taken


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.only:
        print(seconds(asked.only, asked.folder))
        return 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as made:
        folder = Path(made)
        write_tables(folder, asked.rows)
        taken: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(asked.rounds):
            for way in WAYS:
                command = [sys.executable, "-m", "benchmarks.first_load", "--only", way, "--folder", made]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                taken[way].append(float(done.stdout.split()[-1]))
    for way, times in taken.items():
        ratio = median(own / spark for own, spark in zip(times, taken["spark"], strict=True))
        shown = ", ".join(f"{time_s:.1f}" for time_s in times)
        print(f"{way}: {median(times):.1f} s ({shown}), {ratio:.2f} x Spark's in the same round")
    return 0


if __name__ == "__main__":
    sys.exit(main())
