"""Reports and accounts from the in-process engine's real results."""

from __future__ import annotations

from watersmeet.observe.reports import Reporter, account_of, integer_times, report_of
from watersmeet.parser.case_file import case_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local.job import LocalJob
from watersmeet.state.store import MemoryStore

STREAM = {"columns": {"t": "BIGINT", "k": "STRING", "v": "BIGINT"}, "time": {"t": {"lag": 2}}}
CASE = {
    "case": "account",
    "streams": {"l": STREAM, "r": STREAM},
    "query": "SELECT l.t AS lt, r.t AS rt FROM l LEFT JOIN r"
    " ON l.k = r.k AND r.t BETWEEN l.t - 1 AND l.t + 1 AND r.v > 0",
}


def row(t, k="a", v=1):
    return ({"t": t, "k": k, "v": v}, 1)


def results():
    """Three ticks in which something lands in most places of the account."""
    plan = plan_job(case_job(CASE))
    job = LocalJob(plan, MemoryStore(), partitions=2)
    ticks = [
        {"l": [row(10), row(11, "b"), row(None), row(12, None)], "r": [row(10), row(10, v=0), row(9, "z")]},
        {"l": [row(100, "far")], "r": [row(100)]},
        {"l": [row(3)], "r": [row(101, "far"), row(5, v=1)]},
    ]
    return plan, [job.tick(rows, clock_us=n).result for n, rows in enumerate(ticks)]


def test_the_account_of_real_ticks_adds_up():
    _, ticks = results()
    for tick in ticks:
        assert account_of(tick).adds_up(), account_of(tick)
    left, right = account_of(ticks[-1]).inputs
    assert (left.input, left.rows_in, left.null_time, left.late, left.matched) == ("l", 6, 1, 1, 1)
    assert left.padded == 2, "the unmatched row and the one whose key is NULL"
    assert (right.filtered + right.unmatchable, right.late) == (1, 1)


def test_reports_have_the_tick_s_rows_and_the_watermarks():
    plan, ticks = results()
    report = report_of(ticks[1], 0.5)
    assert [(row.input, row.rows_in) for row in report.inputs] == [("l", 1), ("r", 1)]
    assert report.inputs[0].watermarks == {"t": 98}
    assert report.rows_in == {"l": 1, "r": 1}
    assert integer_times(plan) == {"l.t", "r.t"}


def test_reporter_keeps_the_last_result():
    _, ticks = results()
    shown = []
    reporter = Reporter(shown.append)
    for tick in ticks:
        reporter(tick, 0.25, {})
    assert [report.tick for report in shown] == [tick.tick for tick in ticks]
    assert reporter.last is ticks[-1]
    assert {report.seconds for report in shown} == {0.25}


def test_a_union_has_its_own_watermarks_and_not_those_of_its_branches():
    case = {
        "case": "union",
        "streams": {"l": STREAM, "r": STREAM},
        "query": "SELECT u.at"
        " FROM (SELECT l.t AS at FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t AND l.t + 1"
        " UNION ALL SELECT t FROM l) u",
    }
    job = LocalJob(plan_job(case_job(case)), MemoryStore())
    report = report_of(job.tick({"l": [row(10)], "r": [row(20)]}, clock_us=0).result, 0.5)
    marks = {each.input: set(each.watermarks) for each in report.inputs}
    assert marks["u"] == {"at"}
    assert marks["u.1.l"] == marks["u.1.r"] == {"t"}
