"""How rows of joins over changes are dealt to tasks: evenly, whatever they hold, equal ones to one task."""

from __future__ import annotations

import numpy as np
import pytest

from watersmeet.parser.case_file import case_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.messages.reports import NodeReport
from watersmeet.runtime.operators.repartition import FIRST, LAST, Border, choose_borders
from watersmeet.runtime.operators.task import NodeTask
from watersmeet.state.store import MemoryStore

TASKS = 4
BAND = "r.t BETWEEN l.t - 5 AND l.t + 5"
DAYS = "r.d BETWEEN l.d AND l.d"
HOT = "r.k = l.k AND r.n < l.n"


def job(on: str, kind: str = "INNER", hint: str = "") -> LocalJob:
    columns = {"columns": dict.fromkeys(("k", "t", "d", "n"), "BIGINT")}
    case = {
        "case": "dealt",
        "tables": {"l": columns, "r": columns},
        "options": {"output_mode": "changelog"},
        "query": f"SELECT {hint} l.n AS ln, r.n AS rn FROM l {kind} JOIN r ON {on}",
    }
    return LocalJob(plan_job(case_job(case)), MemoryStore(), partitions=TASKS)


@pytest.fixture
def reports(monkeypatch):
    """Of the tasks of each tick."""
    found: list[NodeReport] = []
    run = NodeTask.run

    def run_and_record_report(self, partition, partitions):
        batches = list(run(self, partition, partitions))
        found.append(batches[-1])
        yield from batches

    monkeypatch.setattr(NodeTask, "run", run_and_record_report)
    return found


def rows(count, first=0, small=None):
    return [({"k": 1, "t": n, "d": 7, "n": n % 500}, 1) for n in range(first, first + (small or count))]


@pytest.mark.parametrize(
    ("on", "hint", "small", "kind"),
    [
        (BAND, "", 2000, "FULL"),
        (DAYS, "", 30, "INNER"),
        (HOT, "/*+ BROADCAST(r) */", 30, "FULL"),
        pytest.param(BAND, "", 2000, "INNER", marks=pytest.mark.full),
        pytest.param(DAYS, "", 30, "FULL", marks=pytest.mark.full),
        pytest.param(HOT, "/*+ BROADCAST(r) */", 30, "INNER", marks=pytest.mark.full),
    ],
)
def test_the_work_of_a_tick_is_spread_evenly(on, hint, small, kind, reports):
    running = job(on, kind, hint)
    for tick in range(3):
        reports.clear()
        running.tick({"l": rows(2000, 2000 * tick), "r": rows(small, 2000 * tick)})
        kept = [sum(live.run.rows for side in report.sides for live in side.inserted) for report in reports]
        matches = [report.matches for report in reports]
        assert max(matches) < 0.5 * sum(matches), matches
        assert max(kept) < 0.5 * sum(kept), kept


def test_equal_rows_are_one_tasks_rows():
    running = job(DAYS)
    same = [({"k": 1, "t": 0, "d": 7, "n": n % 3}, 1) for n in range(60)]
    running.tick({"l": same, "r": same[:3]})
    runs = running.driver.manifest.queries["q"].nodes[0].arrangements["l"].runs
    assert len(runs) == 3  # rows of three kinds, those of one kind in one task
    assert sum(live.run.rows for live in runs) == 60
    output = running.tick({"l": [(row, -1) for row, _ in same], "r": []})
    assert sum(row["_diff"] for row in output.rows["q"]) == -180
    assert running.state["q"] == {"l": 0, "r": 3}


def test_borders_halve_the_work_and_cut_what_is_hot():
    values, work = np.array([1, 2, 3, 4]), np.ones(4)
    assert choose_borders(values, work, 2) == [FIRST, Border(3, 0.0), LAST]
    assert choose_borders(np.array([7]), np.ones(1), 4) == [
        FIRST,
        *(Border(7, part) for part in (0.25, 0.5, 0.75)),
        LAST,
    ]
    cut = choose_borders(np.array([1, 5, 5, 9]), np.array([1.0, 49.0, 49.0, 1.0]), 2)
    assert cut == [FIRST, Border(5, 0.5), LAST]
    assert choose_borders(np.zeros(0, np.int64), np.zeros(0), 3) == [FIRST, LAST, LAST, LAST]
