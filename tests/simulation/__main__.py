"""Play one simulated schedule again, with a line for each of its points: ``python -m tests.simulation SEED``.

``--planted NAME`` plays it with a bug of `planted.PLANTED` in the package.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext

from tests.simulation.planted import PLANTED
from tests.simulation.schedule import play


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int)
    parser.add_argument("--planted", choices=PLANTED)
    arguments = parser.parse_args()
    with PLANTED[arguments.planted]() if arguments.planted else nullcontext():
        outcome = play(arguments.seed, log=print)
    print(f"seed {arguments.seed}: {outcome.wrong or 'right'}")
    return int(bool(outcome.wrong))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # threads that wait for fibers would be waited for
