"""Groups over changing tables: at every tick the sum of all diffs is what the query makes of the tables then.

DuckDB aggregates the contents anew after every tick; the engine has its functions, but keeps sums.
Rows that are taken back have to be equal, to the last bit, to rows that were put out. Floating numbers are
summed exactly by Python, for what DuckDB makes of them depends on their order.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import math
from collections import Counter
from typing import Any

import pytest

import watersmeet
from tests.support.duckdb_batch import as_duckdb, connect_duckdb, fill
from tests.support.effort import at_effort
from tests.support.random_groups import COLUMNS, TABLES, GroupCase, random_group_case
from watersmeet import LocalJob, MemoryStore

CASES = at_effort(quick=4, full=60)
CHUNKS = 4

DECLARED = "SET output_mode = changelog;\n" + "\n".join(
    f"CREATE TABLE {name} ({', '.join(f'{c} {t}' for c, t in COLUMNS.items())}, d INT)"
    " WITH ('connector' = 'memory', 'diff.column' = 'd');"
    for name in TABLES
)


def plain(value: Any) -> Any:
    """The value as both sides have it."""
    if isinstance(value, dict):
        value = exactly(value["function"], value["of"])
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, bool) or value is None:
        return value
    if value == "NaN":
        return value
    if isinstance(value, str):
        try:
            value = decimal.Decimal(value)
        except decimal.InvalidOperation:
            return value
    if isinstance(value, int):
        return value
    number = float(value)
    return "NaN" if math.isnan(number) else float(f"{number:.11e}") + 0.0


def exactly(function: str, numbers: list[float | None] | None) -> float | None:
    """The sum or mean of floating numbers, rounded once (the mean: once more)."""
    there = [number for number in numbers or () if number is not None]
    if not there:
        return None
    try:
        total = math.fsum(there)
    except ValueError:  # both infinities
        total = math.nan
    return total if function == "sum" else total / len(there)


def build_row_key(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row to the last bit; zeros and NaNs are equal."""
    return tuple("NaN" if value != value else value for value in row.values())


def _in_duckdb(value: Any) -> Any:
    """One zero, and NaN as a number."""
    return float("nan") if value == "NaN" else value + 0.0 if isinstance(value, float) else value


class Judge:
    """What the tables hold, and what a query makes of it."""

    def __init__(self) -> None:
        self.connection = connect_duckdb()
        self.rows: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in TABLES}

    def take(self, step: list[tuple[str, dict[str, Any], int]]) -> None:
        net: Counter[tuple[str, tuple[Any, ...]]] = Counter()
        for table, row, diff in step:
            net[table, build_row_key(row)] += diff
        for (table, row), diff in net.items():
            self.rows[table][row] = max(0, self.rows[table][row] + diff)

    def answer(self, query: str) -> Counter[tuple[Any, ...]]:
        for name, rows in self.rows.items():
            values = [dict(zip(COLUMNS, map(_in_duckdb, row), strict=True)) for row in rows.elements()]
            fill(self.connection, name, COLUMNS, values)
        found = self.connection.execute(as_duckdb(query)).fetchall()
        return Counter(tuple(map(plain, row)) for row in found)


def problems(case: GroupCase, partitions: tuple[int, ...]) -> list[str]:
    plan = watersmeet.plan_job(watersmeet.parse_job(DECLARED + case.query))
    store, judge = MemoryStore(), Judge()
    sums: Counter[tuple[Any, ...]] = Counter()
    for number, step in enumerate(case.steps, 1):
        given = {
            table: [({**row, "d": diff}, 1) for name, row, diff in step if name == table] for table in TABLES
        }
        again = copy.deepcopy(store)
        job = LocalJob(plan, store, partitions=partitions[number % len(partitions)])
        rows = job.tick(given).rows["console"]
        repeated = LocalJob(plan, again, partitions=partitions[(number + 1) % len(partitions)])
        if Counter(map(build_row_key, rows)) != Counter(
            map(build_row_key, repeated.tick(given).rows["console"])
        ):
            return [f"step {number}: repeated, it gives other rows"]
        for row in rows:
            diff = {name: row.pop(name) for name in ("_diff", "_tick")}["_diff"]
            sums[build_row_key(row)] += diff
        below = [row for row, total in sums.items() if total < 0]
        if below:
            return [f"step {number}: {below} taken back, never put out"]
        judge.take(step)
        wanted = judge.answer(case.judged)
        left: Counter[tuple[Any, ...]] = Counter()
        for row, total in sums.items():
            left[tuple(map(plain, row))] += total
        left = +left
        if left != wanted:
            more = [row for row in {*left, *wanted} if left[row] != wanted[row]]
            return [f"step {number}: {row}: {left[row]}, wanted {wanted[row]}" for row in more]
    return []


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_sums_of_changes_are_the_groups(seed: int, chunk: int) -> None:
    """Every aggregate, over joins, unions and groups; every tick in another number of partitions, in a job
    that begins anew, and repeated."""
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        case = random_group_case(number)
        found = problems(case, ((1, 2), (3, 7), (2, 5))[number % 3])
        assert not found, (number, found, case.query)
