"""Run Nexmark's queries on Spark, one after the other, each compared with DuckDB over all events, and their
speed.

    python -m examples.nexmark [--events 1000000] [--rate 10000] [--ticks 10]
        [--query q3 …] [--form interval …]

Speed is events per second, of the kinds that the query reads, from Parquet files to Parquet files, without
Spark's start. ``--rate`` is events per second of event time: the intervals fit 1,000 and more.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from examples.arrivals import in_ticks
from examples.catalog import EXAMPLES
from examples.nexmark.answer import CHANGES, INTERVAL
from examples.nexmark.generator import Nexmark
from examples.nexmark.queries import only
from examples.running import PLACE, differences, on_spark

FORMS = {"interval": INTERVAL, "changes": CHANGES}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--ticks", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--query", action="append", choices=sorted(INTERVAL))
    parser.add_argument("--form", action="append", choices=FORMS)
    parser.add_argument("--folder", type=Path, default=Path(PLACE))
    asked = parser.parse_args(argv)
    if asked.rate < 1_000:
        parser.error("--rate: below 1,000 the intervals of interval.sql are too short for the data")
    example = EXAMPLES["nexmark"]
    ticks = in_ticks(Nexmark(asked.events, asked.rate, asked.seed).streams(), asked.ticks)
    wrong = False
    for form, queries in FORMS.items():
        if asked.form and form not in asked.form:
            continue
        wanted = example.answers[f"{form}.sql"](ticks)
        for name in queries:
            if asked.query and name not in asked.query:
                continue
            outcome = on_spark(example, f"{form}.sql", ticks, asked.folder, only(form, name))
            different = differences(outcome.results, {name: wanted[name]})
            wrong |= bool(different)
            told = (
                f"{wanted[name].total():,} rows, as DuckDB has them"
                if not different
                else "; ".join(different)
            )
            print(f"{name:4} {form:9} {outcome.speed}: {told}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
