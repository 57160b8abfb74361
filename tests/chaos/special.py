"""What has to be there of jobs whose result is no batch join: some of their rows were shed, or put aside."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.simulation.jobs import SHEDDING, Log, compute_expected_rows
from tests.support.ticks import PLACES_OF_A_ROW

Result = Counter[tuple[Any, ...]]


def check_shed(
    query: str,
    got: Result,
    shed_rows: list[tuple[Any, ...]],
    logs: Mapping[str, Log],
    account: Mapping[str, Mapping[str, int]],
) -> None:
    """Of a LEFT join that sheds rows at a limit, into ticks cut anyhow: each shed row is told of once, as
    often as it is counted, and never padded; pairs come once, and of those that are missing one side was
    shed; a left row that was not has its pairs, or is padded, once.

    Raises: AssertionError.
    """
    told = Counter((of.rpartition("/")[2], json.loads(record)["i"]) for of, _, record in shed_rows)
    assert set(told.values()) <= {1}, f"shed more than once: {told}"
    assert {reason for _, reason, _ in shed_rows} <= {SHEDDING[query]["at_limit"]}
    for alias, counts in account.items():
        of_alias = sum(1 for name, _ in told if name == alias)
        assert of_alias == counts.get("shed", 0), f"{alias}: {of_alias} rows in shed_output, {counts}"
        assert counts["in"] == sum(counts.get(place, 0) for place in PLACES_OF_A_ROW), (alias, counts)
    cuts = {side: [(0, len(log.rows))] for side, log in logs.items()}
    pairs = Counter(
        {row: n for row, n in compute_expected_rows(query, logs, cuts).items() if row[1] is not None}
    )
    met = Counter({row: n for row, n in got.items() if row[1] is not None})
    assert met <= pairs, f"too many {dict(met - pairs)}"
    lost = [row for row in pairs - met if not {("l", row[0]), ("r", row[1])} & told.keys()]
    assert not lost, f"lost {lost}, shed {told}"
    with_pairs = {left for left, _ in met}
    for row, _ in logs["l"].rows:
        pads, is_shed = got[row["i"], None], ("l", row["i"]) in told
        assert pads == int(row["i"] not in with_pairs and not is_shed), f"{row}: {pads} pads, shed {is_shed}"


def with_those_aside(url: str, table: str, got: Result) -> Result:
    """The rows of a table, and those that it refused, which are aside; both of them once."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(url) as connected, connected.cursor() as cursor:
        cursor.execute("SELECT record::text FROM public._watersmeet_refused WHERE target = $1", (table,))
        aside = Counter((row["a"], row["b"]) for row in (json.loads(text) for (text,) in cursor.fetchall()))
    assert all(left % 3 == 0 for left, _ in aside), aside
    assert all(left is None or left % 3 for left, _ in got), got
    return got + aside
