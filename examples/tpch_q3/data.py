"""TPC-H's customers, orders and their lines: half come in the first tick; then others come, and of those
that are there 2 % go and 2 % are updated in every tick. Column ``d`` says whether a row comes or goes.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.tpch import Tpch
from examples.arrivals import Tick

TABLES = ("customer", "orders", "lineitem")
ROWS_PER_SCALE = 7_650_000


def ticks(rows: int, ticks: int, seed: int) -> list[Tick]:
    """Of tables that have about ``rows`` rows at last. The data are always the same, whatever the seed."""
    with TemporaryDirectory() as folder:
        tpch = Tpch(rows / ROWS_PER_SCALE, Path(folder), ticks)
        made = [tpch.changes(number) for number in range(1, ticks + 1)]
    return [{name: of_tick[name] for name in TABLES} for of_tick in made]
