"""Joins over changing tables: at every tick the sum of all diffs is the join of what the tables hold then.

DuckDB joins the contents anew after every tick; it shares nothing with the engine, nor with the oracle.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import duckdb
import pytest

from tests.support.duckdb_batch import answer_up_to, connect_duckdb, fill
from tests.support.effort import at_effort
from tests.support.random_multiway import random_multiway_case
from watersmeet.runtime.local import replay_case
from watersmeet.testing.cases import row_multiset

CASES = at_effort(quick=10, full=460)
CHUNKS = at_effort(quick=1, full=4)
PARTITIONS = (1, 2, 3, 7)
MOST_ROWS = 100_000
"""Of a case, over all its steps: a few in a thousand have millions, and take as long as all others."""


def problems(
    case: dict[str, Any], partitions: int, connection: duckdb.DuckDBPyConnection
) -> list[str] | None:
    """Where the sums are not the join; None: DuckDB does not take the query, or has more than `MOST_ROWS`."""
    joined = after_each_step(case, connection)
    if joined is None:
        return None
    sums: Counter[Any] = Counter()
    for wanted, line in zip(joined, replay_case(case, partitions=partitions), strict=True):
        for row, diff in row_multiset(line["rows"], changelog=True).items():
            sums[row] += diff
        found = Counter({row: total for row, total in sums.items() if total})
        if found != wanted:
            more = [row for row in {*found, *wanted} if found[row] != wanted[row]]
            return [f"step {line['step']}: {row}: {found[row]}, wanted {wanted[row]}" for row in more]
    return []


def after_each_step(case: dict[str, Any], connection: duckdb.DuckDBPyConnection) -> list[Counter[Any]] | None:
    """What the tables' join holds then."""
    contents: dict[str, Counter[str]] = {name: Counter() for name in case["tables"]}
    joined, count = [], 0
    changed = set(contents)
    for step in case["steps"]:
        for name, row, *diff in step.get("rows", []):
            contents[name][json.dumps(row, sort_keys=True)] += diff[0] if diff else 1
            changed.add(name)
        try:
            for name in changed:
                rows = [json.loads(row) for row in contents[name].elements()]
                fill(connection, name, case["tables"][name]["columns"], rows)
            changed.clear()
            rows_now = answer_up_to(connection, case["query"], MOST_ROWS - count)
            if rows_now is None:
                return None
            count += len(rows_now)
            joined.append(row_multiset(rows_now, changelog=False))
        except (duckdb.BinderException, duckdb.InvalidInputException, duckdb.ConversionException):
            # half a character is no text there, and its timestamps end before its dates
            return None
    return joined


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_sums_of_changes_are_the_join(seed: int, chunk: int) -> None:
    """Two to five tables, joins of every kind, self joins, bands; deletes, duplicates and restarts."""
    connection, compared = connect_duckdb(), 0
    for number in range(seed + chunk, seed + CASES, CHUNKS):
        drawn: dict[str, Any] = {} if number % 5 else {"inputs": 5}
        drawn |= {"semi": True} if number % 3 == 0 else {}
        case = random_multiway_case(number, changes=True, tables=True, **drawn)
        case["options"].pop("max_rows", None)
        found = problems(case, PARTITIONS[number % len(PARTITIONS)], connection)
        compared += found is not None
        assert not found, (found, json.dumps(case))
    connection.close()
    assert compared > CASES // CHUNKS // 2
