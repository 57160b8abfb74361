"""What several queries over the same streams keep, against each of them alone.

    python -m benchmarks.shared [--rows N] [--ticks N]

Three streams with one key, in this process with files as on Spark: an INNER join of all three, a LEFT join of
two, an INNER join of two; then a fourth, by other aliases and another interval, and the LEFT join again, by
other aliases and of rows without a partner alone. The largest keeps all columns that the others do.

Likewise over three changing tables, customers, orders and lines: the rows of their join, sums of it by groups
that few rows have, counts of it; then a fourth, the same join by other aliases with other columns; a fifth
reads one of the tables alone, a sixth joins two of them, a seventh looks one up by another key, and an eighth
asks for fewer rows of the third, which it keeps for itself.

State is the bytes of the files of runs, marks and places that the newest manifest names, the greatest after
any tick. The bars: three keep at most 1.1 times what the largest of them keeps alone, and a fourth adds under
5 %.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import watersmeet
from watersmeet import LocalJob
from watersmeet.state.store import LocalStore

Rows = dict[str, list[tuple[dict[str, Any], int]]]

BAR, BAR_OF_FOURTH = 1.1, 1.05
OWN = {"another key": 1.1, "another condition": 1.5}
"""Queries that need a further key, or have to keep rows of their own, and how much they may add."""

WITHIN = "INTERVAL '20' MINUTES"
SOURCES = "".join(
    f"CREATE MAPPING {name} (k BIGINT, t TIMESTAMP, n BIGINT, s STRING,"
    f" WATERMARK FOR t AS t - INTERVAL '1' MINUTE)"
    f" TYPE File OPTIONS ('path' = 'in/{name}', 'format' = 'json');\n"
    for name in "abc"
)
QUERIES = {
    "all three": "SELECT a.n, a.s, b.n AS bn, b.s AS bs, c.s AS cs FROM a"
    f" JOIN b ON a.k = b.k AND b.t BETWEEN a.t - {WITHIN} AND a.t + {WITHIN}"
    f" JOIN c ON b.k = c.k AND c.t BETWEEN b.t - {WITHIN} AND b.t + {WITHIN}",
    "left": "SELECT a.n, a.s, b.t FROM a"
    f" LEFT JOIN b ON a.k = b.k AND b.t BETWEEN a.t - {WITHIN} AND a.t + {WITHIN}",
    "inner": f"SELECT b.n, c.s FROM b JOIN c ON b.k = c.k AND c.t BETWEEN b.t - {WITHIN} AND b.t + {WITHIN}",
    "fourth": "SELECT p.k, p.s, q.n FROM a AS p JOIN b AS q ON p.k = q.k AND p.n <> q.n"
    " AND q.t BETWEEN p.t - INTERVAL '15' MINUTES AND p.t + INTERVAL '10' MINUTES",
    "left again": "SELECT x.k, x.s AS name, y.n FROM a AS x"
    f" LEFT JOIN b AS y ON x.k = y.k AND y.t BETWEEN x.t - {WITHIN} AND x.t + {WITHIN} WHERE y.n IS NULL",
}


TABLES = """SET output_mode = changelog;
CREATE TABLE customers (id BIGINT PRIMARY KEY NOT ENFORCED, segment STRING, name STRING, op STRING)
    WITH ('connector' = 'file', 'path' = 'in/customers', 'format' = 'json', 'op.column' = 'op');
CREATE TABLE orders (number BIGINT, customer BIGINT, day INT, d INT)
    WITH ('connector' = 'file', 'path' = 'in/orders', 'format' = 'json', 'diff.column' = 'd');
CREATE TABLE lines (number BIGINT, item STRING, price INT, d INT)
    WITH ('connector' = 'file', 'path' = 'in/lines', 'format' = 'json', 'diff.column' = 'd');
"""
JOINED = "customers {0} JOIN orders {1} ON {1}.customer = {0}.id JOIN lines {2} ON {2}.number = {1}.number"
CHANGING = {
    "rows": "SELECT c.name, c.segment, o.number, o.day, l.item, l.price FROM " + JOINED.format(*"col"),
    "sums": "SELECT c.segment, o.day, sum(l.price) AS total FROM "
    + JOINED.format(*"col")
    + " GROUP BY c.segment, o.day",
    "counts": "SELECT l.item, count(*) AS times FROM " + JOINED.format(*"col") + " GROUP BY l.item",
    "other aliases": "SELECT x.id, z.price * 2 AS twice FROM " + JOINED.format(*"xyz"),
    "one table": "SELECT k.id, k.name FROM customers k WHERE k.segment = 's1'",
    "other partners": "SELECT x.day, z.price FROM orders x JOIN lines z ON z.number = x.number",
    "another key": "SELECT x.number, y.name FROM orders x JOIN customers y ON y.id = x.day",
    "another condition": "SELECT x.id FROM " + JOINED.format(*"xyz") + " WHERE z.price > 500",
}


@dataclass(frozen=True)
class Jobs:
    """Queries over the same sources, and the rows of a tick: of a source, how many of each."""

    sources: str
    queries: Mapping[str, str]
    rows_of: Callable[[random.Random, int, int], Rows]


def job_of(jobs: Jobs, names: Sequence[str]) -> str:
    return jobs.sources + "".join(
        f"CREATE MAPPING out{number} TYPE File OPTIONS ('path' = 'out/{number}', 'format' = 'json');\n"
        f"INSERT INTO out{number} {jobs.queries[name]};\n"
        for number, name in enumerate(names)
    )


def changes_of(rng: random.Random, tick: int, rows: int) -> Rows:
    """New orders with three lines each, and customers that change."""
    first = tick * rows
    customers = [
        {
            "id": rng.randrange(rows * 5),
            "segment": f"s{rng.randrange(5)}",
            "name": f"{rng.randrange(10**9)}",
            "op": "I",
        }
        for _ in range(rows)
    ]
    orders = [
        {"number": first + n, "customer": rng.randrange(rows * 5), "day": tick, "d": 1} for n in range(rows)
    ]
    lines = [
        {
            "number": first + n // 3,
            "item": f"item {rng.randrange(50)}",
            "price": rng.randrange(1_000),
            "d": 1,
        }
        for n in range(3 * rows)
    ]
    return {
        name: [(row, 1) for row in given]
        for name, given in (("customers", customers), ("orders", orders), ("lines", lines))
    }


def rows_of(rng: random.Random, tick: int, rows: int) -> Rows:
    """A minute of event time of each stream."""
    return {
        name: [
            (
                {
                    "k": rng.randrange(rows * 20),
                    "t": f"2024-01-01T{tick // 60:02d}:{tick % 60:02d}:{rng.randrange(60):02d}Z",
                    "n": rng.randrange(1_000),
                    "s": f"{rng.randrange(10**9):09d}",
                },
                1,
            )
            for _ in range(rows)
        ]
        for name in "abc"
    }


def kept(jobs: Jobs, names: Sequence[str], rows: int, ticks: int) -> tuple[int, float]:
    """(the most bytes after a tick, CPU seconds)."""
    rng, most = random.Random(7), 0
    with tempfile.TemporaryDirectory(prefix="shared-") as folder:
        job = LocalJob(
            watersmeet.plan_job(watersmeet.parse_job(job_of(jobs, names))),
            LocalStore(Path(folder)),
            partitions=2,
        )
        spent = time.process_time()
        for tick in range(ticks):
            job.tick(jobs.rows_of(rng, tick, rows))
            manifest = job.driver.manifest
            assert manifest is not None
            files = {live.run.name: live.run.nbytes for live in manifest.runs()}
            files |= {
                f"{segment.file} {segment.offset}": segment.nbytes
                for live in manifest.runs()
                for marks in live.marks.values()
                for segment in marks
            }
            files |= {
                live.merged_from.file: (Path(folder) / live.merged_from.file).stat().st_size
                for live in manifest.runs()
                if live.merged_from is not None
            }
            most = max(most, sum(files.values()))
        return most, time.process_time() - spent


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shared", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000, help="of each stream in a tick")
    parser.add_argument("--ticks", type=int, default=80)
    parser.add_argument("--only", choices=["streams", "changes"])
    asked = parser.parse_args(argv)
    met = []
    if asked.only != "changes":
        met.append(compared(Jobs(SOURCES, QUERIES, rows_of), asked.rows, asked.ticks))
    if asked.only != "streams":
        met.append(compared(Jobs(TABLES, CHANGING, changes_of), asked.rows // 4, asked.ticks // 4))
    return 0 if all(met) else 1


def compared(jobs: Jobs, rows: int, ticks: int) -> bool:
    """Whether the bars are met: of the first three queries, and of each that comes to them."""
    names, sizes = list(jobs.queries), dict[tuple[str, ...], int]()
    together = [tuple(names[:count]) for count in range(3, len(names) + 1)]
    for chosen in [*((name,) for name in names[:3]), *together]:
        sizes[chosen], cpu = kept(jobs, chosen, rows, ticks)
        print(f"{', '.join(chosen)}: at most {sizes[chosen]:,} bytes, {cpu:.1f} CPU seconds", flush=True)
    alone = [sizes[name,] for name in names[:3]]
    print(f"three against each for itself: {sizes[together[0]] / sum(alone):.2f} x")
    ratios = [("three against the largest", sizes[together[0]] / max(alone), BAR)]
    ratios += [
        (f"{more[-1]} more", sizes[more] / sizes[less], OWN.get(more[-1], BAR_OF_FOURTH))
        for less, more in pairwise(together)
    ]
    for what, ratio, bar in ratios:
        print(f"{what}: {ratio:.3f} x; bar {bar} x: {'met' if ratio <= bar else 'not met'}")
    return all(ratio <= bar for _, ratio, bar in ratios)


if __name__ == "__main__":
    sys.exit(main())
