"""Run examples on Spark and compare each result with an answer that is computed without watersmeet.

    python -m examples [NAME …] [--rows 200000] [--ticks 8] [--seed 1] [--folder .examples]

Without names all of them are run; of flights and weather the whole year, as by ``watersmeet demo``. The
data and the result stay in the folder, and ``watersmeet`` can be asked about the job there: ``watersmeet
report .examples/NAME/state``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from examples.catalog import EXAMPLES
from examples.running import PLACE, differences, on_spark
from watersmeet.cli.demo import DEMOS, run_demo


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(EXAMPLES))
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--ticks", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(PLACE))
    asked = parser.parse_args(argv)
    unknown = [name for name in asked.names if name not in EXAMPLES]
    if unknown:
        parser.error(f"no example {', '.join(unknown)}; there are {', '.join(EXAMPLES)}")
    wrong = False
    for name in asked.names or EXAMPLES:
        if name == "flights_weather":
            wrong |= sum(run_demo(demo, asked.folder / name, live=False) for demo in DEMOS) > 0
            continue
        example = EXAMPLES[name]
        ticks = example.given(asked.rows, asked.ticks, asked.seed)
        for job, answer in example.answers.items():
            outcome = on_spark(example, job, ticks, asked.folder)
            wanted = answer(ticks)
            different = differences(outcome.results, wanted)
            wrong |= bool(different)
            right = ", ".join(f"{rows.total():,} rows of {sink}" for sink, rows in wanted.items())
            told = "; ".join(different) or f"{right}, as computed without watersmeet"
            print(f"{name}/{job}: {outcome.speed}: {told}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
