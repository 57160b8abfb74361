"""TPC-H's queries 3 and 5, and a join of its six tables, as changes: rows come, go and are updated.

    python -m benchmarks.tpch [--scale 0.1] [--ticks 8] [--query q3] [--orders 1000] [--folder DIR]

On Spark over Parquet files, a file of each table that changes per tick. After every tick the sums of all that
was put out are compared with DuckDB's answer over what the tables hold then. ORDER BY and LIMIT are left out:
there is no last row of what goes on. The rows are those of ``tpchgen-cli``; half of them come in the first
tick. With ``--orders`` nearly all come in the first tick, and each later one changes so many orders and their
lines; then the same is computed anew after every tick by DuckDB on one thread and by Spark, and run as a
cascade: what each takes and keeps is set against the bars (`benchmarks.tpch_bars`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workloads import dated

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
    "six": """SELECT c_custkey, o_orderkey, l_linenumber, s_suppkey, n_name, r_name,
          l_extendedprice * (1 - l_discount) AS price
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
          AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'""",
}

Changes = Mapping[str, pa.Table]
"""Per table its columns, and ``d``: +1 or -1."""


class Tpch:
    """The tables' rows, what of them is there, and what the queries make of that. ``orders``: about how many
    of them change in each tick after the first, with their lines (None: parts of all tables do)."""

    def __init__(self, scale: float, folder: Path, ticks: int, orders: int | None = None) -> None:
        self._ticks = ticks
        self._orders = orders
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
        if self._orders is None:
            return {name: self._changes_of(name, tick) for name in TABLES}
        if tick == 1:
            return {name: self._first_of(name) for name in TABLES}
        return self._changed_orders(tick, self._orders)

    def _first_of(self, name: str) -> pa.Table:
        """All rows but those of the orders that come later: half of those that change."""
        column = {"orders": "o_orderkey", "lineitem": "l_orderkey"}.get(name)
        later = (self._ticks - 1) * (self._orders or 0) // 2
        where = "true" if column is None else f"{_place(column)} >= {later}"
        self._database.execute(f"INSERT INTO {name} FROM all_{name} WHERE {where}")
        return self._database.sql(f"SELECT *, 1 AS d FROM {name}").to_arrow_table()

    def _changed_orders(self, tick: int, orders: int) -> Changes:
        """A quarter of the orders goes, a quarter is updated (the lines, too), the others come."""
        run = self._database.execute
        run(
            "CREATE OR REPLACE TEMP TABLE picked AS"
            f" SELECT o_orderkey AS k, row_number() OVER () <= {orders // 4} AS goes"
            f" FROM (FROM orders ORDER BY hash(o_orderkey, {tick}) LIMIT {orders // 2})"
        )
        first = (tick - 2) * orders // 2
        run(
            "CREATE OR REPLACE TEMP TABLE come AS SELECT o_orderkey AS k FROM all_orders"
            f" WHERE {_place('o_orderkey')} BETWEEN {first} AND {first + orders // 2 - 1}"
        )
        changes = {}
        for name, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            names = ", ".join(self._columns(name))
            run(
                f"CREATE OR REPLACE TEMP TABLE changed AS"
                f" SELECT {names}, -1 AS d FROM {name} WHERE {key} IN (SELECT k FROM picked)"
                f" UNION ALL SELECT {names}, 1 FROM (SELECT * REPLACE ({UPDATES[name]}) FROM {name}"
                f" WHERE {key} IN (SELECT k FROM picked WHERE NOT goes))"
                f" UNION ALL SELECT {names}, 1 FROM all_{name} WHERE {key} IN (SELECT k FROM come)"
            )
            run(f"DELETE FROM {name} WHERE {key} IN (SELECT k FROM picked)")
            run(f"INSERT INTO {name} SELECT {names} FROM changed WHERE d > 0")
            changes[name] = self._database.sql("FROM changed").to_arrow_table()
        return changes

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

    def seconds(self, query: str, times: int = 5) -> float:
        """How long DuckDB takes for that on one thread: the median. The answer stays in Arrow's form."""
        self._database.execute("SET threads = 1")
        taken = []
        for _ in range(times):
            before = time.perf_counter()
            self._database.execute(QUERIES[query]).to_arrow_table()
            taken.append(time.perf_counter() - before)
        self._database.execute("RESET threads")
        return median(taken)

    def keep(self, folder: Path) -> None:
        """What the tables hold, as Parquet files ``folder/table.parquet``."""
        folder.mkdir(parents=True)
        for name in TABLES:
            self._database.execute(f"COPY {name} TO '{folder / name}.parquet'")


def _place(key: str) -> str:
    """Of an order: one of as many as there are orders, drawn by its key."""
    return f"hash({key}, 3) % (SELECT count(*) FROM all_orders)"


def job_text(query: str, options: Mapping[str, str], sink: str, plan: str = "auto") -> str:
    """The job as a user would write it. ``options``: of the sources, by table; ``sink``: of the sink."""
    lines = [f"SET output_mode = changelog; SET plan = {plan};"]
    for name, columns in TABLES.items():
        lines.append(f"CREATE TABLE {name} ({columns}, d INT) WITH ({options[name]}, 'diff.column' = 'd');")
    lines.append(f"CREATE TABLE result WITH ({sink});\nINSERT INTO result {QUERIES[query]};")
    return "\n".join(lines)


def write_changes(tpch: Tpch, tick: int, folder: Path) -> None:
    """Write a tick's changes as files, one of each table that changes."""
    for name, rows in tpch.changes(tick).items():
        if rows.num_rows:
            (folder / name).mkdir(exist_ok=True, parents=True)
            path = folder / name / f"{tick:04}.parquet"
            pq.write_table(rows, path)
            dated(path, tick)


def differences(out: Path, answers: list[Counter[tuple[Any, ...]]]) -> list[str]:
    """The ticks after which the sums of what was put out are not the answer."""
    rows = duckdb.execute(
        f"SELECT * EXCLUDE (_diff, _tick), _tick, _diff FROM '{out}/**/*.parquet' ORDER BY _tick"
    ).fetchall()
    wrong, sums, place = [], Counter[tuple[Any, ...]](), 0
    for tick, wanted in enumerate(answers, 1):
        while place < len(rows) and rows[place][-2] <= tick:
            *values, _, diff = rows[place]
            sums[tuple(values)] += diff
            place += 1
        found = Counter({row: total for row, total in sums.items() if total})
        if found != wanted:
            wrong.append(
                f"tick {tick}: {len(found - wanted)} rows too many, {len(wanted - found)} are missing"
            )
    return wrong


@dataclass(frozen=True)
class Ran:
    """What became of a job: per tick its seconds and those from the end of the tick before on; ``rows``: kept
    at last, of inputs, of copies of them under further keys, of joins beneath, of groups; ``nbytes``: of all
    files of rows; ``wrong``: what is not DuckDB's answer."""

    seconds: list[float]
    since: list[float]
    rows: Mapping[str, int]
    nbytes: int
    wrong: list[str]


def ran(
    query: str,
    folder: Path,
    answers: list[Counter[tuple[Any, ...]]],
    plan: str = "auto",
    *,
    tell: bool = True,
) -> Ran:
    """Run the job over the files of changes in ``folder``."""
    from watersmeet.parser.statements import parse_job
    from watersmeet.plan.planner import plan_job
    from watersmeet.runtime.spark.job.run import run_job
    from watersmeet.runtime.spark.job.settings import RunSettings
    from watersmeet.state.manifest import load_newest
    from watersmeet.state.store import LocalStore

    options = {
        name: f"'connector' = 'file', 'path' = '{folder / name}', 'format' = 'parquet',"
        " 'maxFilesPerTrigger' = '1'"
        for name in TABLES
    }
    out, checkpoint = folder / f"out-{plan}", folder / f"checkpoint-{plan}"
    sink = f"'connector' = 'file', 'path' = '{out}', 'format' = 'parquet'"
    job = parse_job(job_text(query, options, sink, plan))
    planned, seconds, ends, nbytes = plan_job(job), list[float](), [time.perf_counter()], list[int]()

    def on_tick(result: Any, taken: float, parts: Mapping[str, float]) -> None:
        done = result.queries["result"]
        seconds.append(taken)
        ends.append(time.perf_counter())
        nbytes.append(done.state_bytes)
        if tell:
            told = f"{done.rows_out:,} changes out, {sum(done.state.values()):,} rows of tables kept"
            print(f"tick {result.tick}: {taken:.2f} s, {told}", flush=True)

    run_job(job, planned, RunSettings(str(checkpoint), until_caught_up=True, on_tick=on_tick))
    manifest = load_newest(LocalStore(checkpoint / "state"))
    assert manifest is not None
    rows = Counter[str]()
    for node, state in zip(planned.queries[0].nodes, manifest.queries["result"].nodes, strict=True):
        sides = {side.name: side for side in node.sides}
        for name, kept in state.arrangements.items():
            side = sides.get(name)
            if side is None or type(node).__name__ == "GroupPlan":
                kind = "groups"
            elif side.copy_of is not None:
                kind = "copies"
            else:
                kind = "inputs" if side.feed is None else "joins"
            rows[kind] += kept.stored
    since = [after - before for before, after in pairwise(ends)]
    return Ran(seconds, since, rows, nbytes[-1], differences(out, answers))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--ticks", type=int, default=8)
    parser.add_argument("--query", choices=sorted(QUERIES), default="q3")
    parser.add_argument("--orders", type=int)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=asked.folder) as made:
        folder = Path(made)
        if asked.orders is not None:
            from benchmarks.tpch_bars import against_bars

            tpch = Tpch(asked.scale, folder / "generated", asked.ticks, asked.orders)
            return against_bars(tpch, asked.query, folder, asked.ticks)
        return _run(Tpch(asked.scale, folder / "generated", asked.ticks), asked.query, folder, asked.ticks)


def _run(tpch: Tpch, query: str, folder: Path, ticks: int) -> int:
    answers = []
    for tick in range(1, ticks + 1):
        write_changes(tpch, tick, folder)
        answers.append(tpch.answer(query))
    done = ran(query, folder, answers)
    right = f"after each of {ticks} ticks as DuckDB has it: {len(answers[-1]):,} rows at last"
    print("\n".join(done.wrong) or right)
    return 1 if done.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
