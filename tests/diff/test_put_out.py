"""What the ticks of a query have put out, run again by the history over streams that change, or that stand
beside changing tables, is what the oracle says of the case; and it is not told where it does not follow."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.support.changing_fates import numbered_changes
from tests.support.effort import at_effort
from tests.support.oracle.case import run_case
from tests.support.oracle.windowed import run_windowed_case
from tests.support.random_cases import random_case
from tests.support.random_multiway import random_multiway_case
from tests.support.random_window_changes import random_changing_windows
from tests.support.recorded_cases import RecordedCase
from tests.why.test_random_changes import with_deletes_of_nothing
from watersmeet.cli.diff.replay import UnknownOutput, replay_output
from watersmeet.names import CHANGE_COLUMNS, SHOWN_DIFF
from watersmeet.runtime.local.output import format_case_rows
from watersmeet.spec.model import Lateness
from watersmeet.why.question import record_queries, sources_of
from watersmeet.why.rows import QueryRows
from watersmeet.why.ticks import tick_history

CASES = at_effort(quick=8, full=24)


def drawn(number: int) -> dict[str, Any]:
    """Every third case has windows, which put out final rows, or changes; every fourth of the others deletes
    of what is not there."""
    if number % 3 == 0:
        case = random_changing_windows(number)
        options = {**case["options"], "output_mode": ("append", "changelog")[number % 2]}
        return {**case, "options": options}
    if number % 3 == 1:
        case = random_case(number, changes=True)
    else:
        case = random_multiway_case(number, changes=True, inputs=3, tables=number % 2 == 0)
    if number % 4 == 0:
        with_deletes_of_nothing(case, random.Random(number))
    return numbered_changes(case)


def of_oracle(case: dict[str, Any]) -> Counter[str] | None:
    """Of its rows that are there in the end, how often each is; None: the case is refused, or fails."""
    rows: list[dict[str, Any]] = []
    played = run_windowed_case if "GROUP BY" in case["query"] else run_case
    for line in played(case):
        if "error" in line:
            return None
        rows += line["rows"]
    return sum_changes(rows)


def sum_changes(rows: list[dict[str, Any]]) -> Counter[str]:
    """How often each row is there, of those that are."""
    sums: Counter[str] = Counter()
    for row in rows:
        own = {name: value for name, value in row.items() if name not in CHANGE_COLUMNS}
        sums[json.dumps(own, sort_keys=True).replace("+00:00", "").replace("-0.0", "0.0")] += row.get(
            SHOWN_DIFF, 1
        )
    return Counter({row: diff for row, diff in sums.items() if diff})


def again(run: RecordedCase) -> pa.Table:
    (insert,), (query,) = run.job.inserts, record_queries(run.job, run.plan)
    rows = QueryRows.of(query, insert, tick_history(run.past), run.reread)
    return replay_output(rows, run.job, sources_of(run.job), run.plan.queries[0])


def sums_of(table: pa.Table) -> Counter[str]:
    return sum_changes(format_case_rows(table))


def test_replayed_output_equals_the_oracle(seed: int) -> None:
    seen: Counter[str] = Counter()
    number = seed
    while seen["cases"] < CASES:
        number += 1
        case = drawn(number)
        wanted = of_oracle(case)
        run = RecordedCase(case) if wanted is not None and case["steps"] else None
        if run is None or run.problem is not None or not len(tick_history(run.past)):
            continue
        seen["cases"] += 1
        try:
            found = again(run)
        except UnknownOutput as why:
            seen[str(why).split(" made ")[-1].split('" were ')[-1].partition(",")[0]] += 1
            continue
        assert sums_of(found) == wanted, (number, case)
        seen["rows"] += bool(wanted)
        seen["windows"] += bool(wanted) and number % 3 == 0
    assert seen["rows"] > CASES // 3, seen
    assert seen["windows"], seen
    print(seen)


def test_replay_refuses_output_that_history_does_not_determine() -> None:
    stream = {"columns": {"t": "BIGINT", "k": "BIGINT"}, "time": {"t": {"lag": 1}}, "changes": True}
    both = {"case": "both", "streams": {"l": stream, "r": stream}, "options": {"output_mode": "changelog"}}
    both["query"] = "SELECT l.t, r.t AS u FROM l JOIN r ON l.k = r.k AND l.t BETWEEN r.t - 1 AND r.t + 1"
    both["steps"] = [{"rows": [["l", {"t": 1, "k": 1}], ["r", {"t": 1, "k": 1}]]}, {"rows": []}]
    run = RecordedCase(both)
    assert again(run).num_rows == 1
    nothing = RecordedCase(both | {"steps": [{"rows": []}, {"rows": [["l", {"t": None, "k": 1}]]}]})
    assert (again(nothing).num_rows, again(nothing).column_names[:2]) == (0, ["t", "u"])
    (insert,), (query,) = run.job.inserts, record_queries(run.job, run.plan)
    rows = QueryRows.of(query, insert, tick_history(run.past), run.reread)
    by_joins = replace(query, options=replace(query.options, lateness=Lateness.JOIN))
    (kept,) = run.plan.queries
    for own, of_job, words in (
        (replace(rows, shed=True), kept, "were shed"),
        (replace(rows, query=by_joins), kept, "late by joins"),
        (replace(rows, unseen={"l": [0], "r": []}), kept, "not all rows"),
        (rows, replace(kept, nodes=()), "in another way"),
    ):
        with pytest.raises(UnknownOutput, match=words):
            replay_output(own, run.job, sources_of(run.job), of_job)
    query_of_both = "SELECT x.t FROM (SELECT * FROM l UNION ALL SELECT * FROM r) x JOIN l ON x.t = l.t"
    union = dict(both, query=query_of_both)
    union["steps"] = [*both["steps"], {"rows": [["r", {"t": 1, "k": 1}, -1]]}]
    with pytest.raises(UnknownOutput, match="several branches"):
        again(RecordedCase(union))
