"""What several queries over the same streams keep, against each of them alone.

    python -m benchmarks.shared [--rows N] [--ticks N]

Three streams with one key, in this process with files as on Spark: an INNER join of all three, a LEFT join of
two, an INNER join of two; then a fourth, by other aliases and another interval. The largest keeps all columns
that the others do. State is the bytes of the files of runs, marks and places that the newest manifest names,
the greatest after any tick. The bars: three keep at most 1.1 times what the largest of them keeps alone, and
a fourth adds under 5 %.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import watersmeet
from watersmeet import LocalJob
from watersmeet.state.store import LocalStore

BAR, BAR_OF_FOURTH = 1.1, 1.05

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
}


def job_of(names: Sequence[str]) -> str:
    return SOURCES + "".join(
        f"CREATE MAPPING out{number} TYPE File OPTIONS ('path' = 'out/{number}', 'format' = 'json');\n"
        f"INSERT INTO out{number} {QUERIES[name]};\n"
        for number, name in enumerate(names)
    )


def rows_of(rng: random.Random, tick: int, rows: int) -> dict[str, list[tuple[dict[str, Any], int]]]:
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


def kept(names: Sequence[str], rows: int, ticks: int) -> tuple[int, float]:
    """(the most bytes after a tick, CPU seconds)."""
    rng, most = random.Random(7), 0
    with tempfile.TemporaryDirectory(prefix="shared-") as folder:
        job = LocalJob(
            watersmeet.plan_job(watersmeet.parse_job(job_of(names))), LocalStore(Path(folder)), partitions=2
        )
        spent = time.process_time()
        for tick in range(ticks):
            job.tick(rows_of(rng, tick, rows))
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
    asked = parser.parse_args(argv)
    told = {}
    for names in (["all three"], ["left"], ["inner"], ["all three", "left", "inner"], list(QUERIES)):
        told[tuple(names)] = kept(names, asked.rows, asked.ticks)
        size, cpu = told[tuple(names)]
        print(f"{', '.join(names)}: at most {size:,} bytes, {cpu:.1f} CPU seconds", flush=True)
    largest = max(size for names, (size, _) in told.items() if len(names) == 1)
    alone = sum(size for names, (size, _) in told.items() if len(names) == 1)
    three, four = (size for names, (size, _) in told.items() if len(names) > 1)
    print(f"three against each for itself: {three / alone:.2f} x")
    ratios = [
        ("three against the largest", three / largest, BAR),
        ("four against three", four / three, BAR_OF_FOURTH),
    ]
    for what, ratio, bar in ratios:
        print(f"{what}: {ratio:.3f} x; bar {bar} x: {'met' if ratio <= bar else 'not met'}")
    return 0 if all(ratio <= bar for _, ratio, bar in ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
