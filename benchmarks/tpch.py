"""TPC-H's queries 3 and 5 as changes: orders, lineitems and customers come, go and are updated, tick by tick.

    python -m benchmarks.tpch [--scale 0.1] [--ticks 8] [--query q3] [--folder DIR]

On Spark over Parquet files, a file of each table per tick. After every tick the sums of all that was put out
are compared with DuckDB's answer over what the tables hold then. ORDER BY and LIMIT are left out: there is no
last row of what goes on. The rows are those of ``tpchgen-cli``; half of them come in the first tick.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

TABLES = {
    "customer": "c_custkey BIGINT, c_nationkey BIGINT, c_mktsegment STRING",
    "orders": "o_orderkey BIGINT, o_custkey BIGINT, o_orderdate DATE, o_shippriority INT",
    "lineitem": "l_orderkey BIGINT, l_linenumber INT, l_suppkey BIGINT, l_extendedprice DECIMAL(15,2),"
    " l_discount DECIMAL(15,2), l_shipdate DATE",
    "supplier": "s_suppkey BIGINT, s_nationkey BIGINT",
    "nation": "n_nationkey BIGINT, n_name STRING, n_regionkey BIGINT",
    "region": "r_regionkey BIGINT, r_name STRING",
}
KEYS = {"customer": "c_custkey", "orders": "o_orderkey", "lineitem": "(l_orderkey, l_linenumber)"}
"""Of the tables that change after the first tick."""
UPDATES = {
    "customer": "CASE c_mktsegment WHEN 'BUILDING' THEN 'MACHINERY' ELSE 'BUILDING' END AS c_mktsegment",
    "orders": "CAST(o_orderdate + INTERVAL 40 DAY AS DATE) AS o_orderdate",
    "lineitem": "CAST((l_discount + 0.03) % 0.1 AS DECIMAL(15,2)) AS l_discount",
}
QUERIES = {
    "q3": """SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate,
          o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
          AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority""",
    "q5": """SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
          AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
          AND r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01'
          AND o_orderdate < DATE '1994-01-01' + INTERVAL '1' YEAR
        GROUP BY n_name""",
}

Changes = Mapping[str, pa.Table]
"""Per table its columns, and ``d``: +1 or -1."""


class Tpch:
    """The tables' rows, what of them is there, and what the queries make of that."""

    def __init__(self, scale: float, folder: Path, ticks: int) -> None:
        self._ticks = ticks
        self._database = duckdb.connect()
        command = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
        asked = [
            str(command),
            "parquet",
            "-s",
            str(scale),
            f"--output-dir={folder}",
            f"--tables={','.join(TABLES)}",
        ]
        subprocess.run(asked, check=True, capture_output=True)
        for name in TABLES:
            names = ", ".join(self._columns(name))
            self._database.execute(
                f"CREATE TABLE all_{name} AS SELECT {names} FROM '{folder / name}.parquet'"
            )
            self._database.execute(f"CREATE TABLE {name} AS FROM all_{name} LIMIT 0")

    def _columns(self, name: str) -> list[str]:
        return [column.split()[0] for column in TABLES[name].split(", ")]

    def changes(self, tick: int) -> Changes:
        """Of the tick, from 1; the tables hold them from then on. Half of the rows, then equal parts of the
        others come; of those that are there 2 % go, and 2 % are updated, which is a row that goes and one
        that comes."""
        return {name: self._changes_of(name, tick) for name in TABLES}

    def _changes_of(self, name: str, tick: int) -> pa.Table:
        names, run = ", ".join(self._columns(name)), self._database.execute
        if name not in KEYS:
            come = "true" if tick == 1 else "false"
            run(
                f"CREATE OR REPLACE TEMP TABLE changed AS SELECT {names}, 1 AS d FROM all_{name} WHERE {come}"
            )
        else:
            key = KEYS[name]
            first = f"hash({key}) % 100 < 50"
            later = f"hash({key}) % 100 >= 50 AND 2 + hash({key}, 7) % {max(1, self._ticks - 1)} = {tick}"
            updated = f"SELECT * REPLACE ({UPDATES[name]}) FROM {name}"
            go, become = (f"hash({key}, {tick}) % 50 = {n}" for n in (0, 1))
            run(
                f"CREATE OR REPLACE TEMP TABLE changed AS"
                f" SELECT {names}, 1 AS d FROM all_{name} WHERE {first if tick == 1 else later}"
                f" UNION ALL SELECT {names}, -1 FROM {name} WHERE {go} OR {become}"
                f" UNION ALL SELECT {names}, 1 FROM ({updated} WHERE {become})"
            )
            run(f"DELETE FROM {name} WHERE {go} OR {become}")
        run(f"INSERT INTO {name} SELECT {names} FROM changed WHERE d > 0")
        return self._database.sql("FROM changed").to_arrow_table()

    def answer(self, query: str) -> Counter[tuple[Any, ...]]:
        """What a query makes of what the tables hold."""
        return Counter(self._database.execute(QUERIES[query]).fetchall())


def job_text(query: str, options: Mapping[str, str], sink: str) -> str:
    """The job as a user would write it. ``options``: of the sources, by table; ``sink``: of the sink."""
    lines = ["SET output_mode = changelog;"]
    for name, columns in TABLES.items():
        lines.append(f"CREATE TABLE {name} ({columns}, d INT) WITH ({options[name]}, 'diff.column' = 'd');")
    lines.append(f"CREATE TABLE result WITH ({sink});\nINSERT INTO result {QUERIES[query]};")
    return "\n".join(lines)


def written(tpch: Tpch, query: str, folder: Path, ticks: int) -> Iterator[Counter[tuple[Any, ...]]]:
    """Write the changes as files, one of each table per tick; what the query's answer is after each."""
    for tick in range(1, ticks + 1):
        for name, rows in tpch.changes(tick).items():
            (folder / name).mkdir(exist_ok=True, parents=True)
            pq.write_table(rows, folder / name / f"{tick:04}.parquet")
        yield tpch.answer(query)


def differences(out: Path, answers: list[Counter[tuple[Any, ...]]]) -> list[str]:
    """The ticks after which the sums of what was put out are not the answer."""
    rows = duckdb.execute(
        f"SELECT * EXCLUDE (_diff, _tick), _tick, _diff FROM '{out}/**/*.parquet'"
    ).fetchall()
    wrong = []
    for tick, wanted in enumerate(answers, 1):
        sums: Counter[tuple[Any, ...]] = Counter()
        for *values, of, diff in rows:
            if of <= tick:
                sums[tuple(values)] += diff
        found = Counter({row: total for row, total in sums.items() if total})
        if found != wanted:
            wrong.append(
                f"tick {tick}: {len(found - wanted)} rows too many, {len(wanted - found)} are missing"
            )
    return wrong


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--ticks", type=int, default=8)
    parser.add_argument("--query", choices=sorted(QUERIES), default="q3")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=asked.folder) as made:
        return _run(asked.query, asked.scale, asked.ticks, Path(made))


def _run(query: str, scale: float, ticks: int, folder: Path) -> int:
    from watersmeet.engine.spark.job.job import run_job
    from watersmeet.front.sql import parse_job
    from watersmeet.plan.planner import plan_job

    tpch = Tpch(scale, folder / "generated", ticks)
    answers = list(written(tpch, query, folder, ticks))
    options = {
        name: f"'connector' = 'file', 'path' = '{folder / name}', 'format' = 'parquet',"
        " 'maxFilesPerTrigger' = '1'"
        for name in TABLES
    }
    sink = f"'connector' = 'file', 'path' = '{folder / 'out'}', 'format' = 'parquet'"
    job = parse_job(job_text(query, options, sink))

    def on_tick(result: Any, seconds: float, parts: Mapping[str, float]) -> None:
        done = result.queries["result"]
        kept = sum(done.state.values())
        out = f"{done.rows_out:,} changes out, {kept:,} rows of tables kept"
        print(f"tick {result.tick}: {seconds:.2f} s, {out}", flush=True)

    run_job(job, plan_job(job), checkpoint=str(folder / "checkpoint"), until_caught_up=True, on_tick=on_tick)
    wrong = differences(folder / "out", answers)
    print(
        "\n".join(wrong) or f"after each of {ticks} ticks as DuckDB has it: {len(answers[-1]):,} rows at last"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
