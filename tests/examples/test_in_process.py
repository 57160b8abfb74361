"""The examples' jobs in this process, tick by tick, against answers that are computed without watersmeet."""

from __future__ import annotations

from collections import Counter

import pytest

import watersmeet
from examples.catalog import EXAMPLES
from examples.nexmark.answer import CHANGES, INTERVAL
from examples.nexmark.queries import only
from examples.orders.answer import late
from examples.running import differences, in_process, plan_of, text_of
from examples.sensors.spec import BEFORE

JOBS = [(name, job) for name, example in EXAMPLES.items() for job in example.answers]
ROWS = {"tpch_q3": 30_000, "nexmark": 12_000}
"""Where fewer than 3,000 would come to too few rows of the result."""
TICKS = {"orders": 40}
"""Of half a day, or hardly a payment would be late."""


@pytest.mark.parametrize(("name", "job"), JOBS, ids=[f"{name}/{job}" for name, job in JOBS])
def test_the_answer_is_that_of_the_whole(name, job, seed):
    example = EXAMPLES[name]
    ticks = example.given(ROWS.get(name, 3_000), TICKS.get(name, 5), seed)
    wanted = example.answers[job](ticks)
    outcome = in_process(plan_of(name, job), ticks, partitions=2)
    assert differences(outcome.results, wanted) == []
    assert set(outcome.results) == set(wanted)
    assert all(wanted.values())


def test_a_join_as_data_gives_the_same(seed):
    example = EXAMPLES["sensors"]
    ticks = example.given(3_000, 4, seed)
    (wanted,) = example.answers["job.py"](ticks).values()
    assert in_process(BEFORE, ticks).results["joined"] == wanted
    assert any(row[3] is None for row in wanted), "a failure without readings"


def test_every_state_of_an_order_is_seen_and_late_payments_are_counted(seed):
    from watersmeet import local

    ticks = EXAMPLES["orders"].given(3_000, TICKS["orders"], seed)
    (wanted,) = EXAMPLES["orders"].answers["followed.sql"](ticks).values()
    assert {row[-1] for row in wanted} == {
        "paid, sent",
        "paid, not sent",
        "not paid, sent",
        "not paid, not sent",
    }
    job = local.job(text_of("orders", "followed.sql"))
    counted = 0
    for tick in ticks:
        for source, rows in tick.items():
            job.push(source, rows)
        output = job.tick()
        counted += sum(table.num_rows for table in output.late_tables.values())
    assert counted == late(ticks) > 5


def test_each_query_of_nexmark_is_a_job_of_its_own():
    for form, queries in (("interval", INTERVAL), ("changes", CHANGES)):
        for name in queries:
            plan = watersmeet.plan_job(watersmeet.parse_job(only(form, name)))
            assert [query.name for query in plan.queries] == [name]


def test_differences_are_seen():
    wanted = {"out": Counter({(1, None): 1, (2, "b"): 2})}
    assert differences(wanted, wanted) == []
    (missing,) = differences({"out": Counter({(2, "b"): 2})}, wanted)
    assert missing == "out: 1 rows missing and 0 too many of 3, such as (1, None)"
    (doubled,) = differences({"out": Counter({(1, None): 2, (2, "b"): 2})}, wanted)
    assert "0 rows missing and 1 too many" in doubled
    assert len(differences({}, wanted)) == 1
