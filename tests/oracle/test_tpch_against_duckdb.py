"""TPC-H's queries 3 and 5 over tables that change: after every tick DuckDB's answer over them."""

from __future__ import annotations

import datetime
import decimal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet
from benchmarks.tpch import QUERIES, TABLES, Tpch, job_text
from watersmeet import LocalJob, MemoryStore

TICKS = 4
SCALE = 0.01


def build_input_rows(table: pa.Table) -> list[tuple[dict[str, Any], int]]:
    return [({name: _written(value) for name, value in row.items()}, 1) for row in table.to_pylist()]


def _written(value: Any) -> Any:
    if isinstance(value, datetime.date):
        return value.isoformat()
    return str(value) if isinstance(value, decimal.Decimal) else value


@pytest.mark.parametrize(
    "query", [pytest.param(name, marks=() if name == "q5" else pytest.mark.full) for name in sorted(QUERIES)]
)
def test_changes_add_up_to_the_answer(query: str, tmp_path: Path) -> None:
    """Restarted after every tick, in another number of partitions."""
    tpch, store = Tpch(SCALE, tmp_path, TICKS), MemoryStore()
    memory = dict.fromkeys(TABLES, "'connector' = 'memory'")
    plan = watersmeet.plan_job(watersmeet.parse_job(job_text(query, memory, "'connector' = 'memory'")))
    sums: Counter[tuple[Any, ...]] = Counter()
    changes = 0
    for tick in range(1, TICKS + 1):
        rows = {name: build_input_rows(table) for name, table in tpch.changes(tick).items()}
        for row in LocalJob(plan, store, partitions=tick).tick(rows).rows["result"]:
            diff = row.pop("_diff")
            del row["_tick"]
            sums[tuple(row.values())] += diff
            changes += 1
        wanted = Counter({tuple(map(_written, row)): times for row, times in tpch.answer(query).items()})
        assert Counter({row: total for row, total in sums.items() if total}) == wanted
        assert wanted
    assert changes > len(wanted)
