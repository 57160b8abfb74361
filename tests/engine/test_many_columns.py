"""Process rows of 10,000 columns (2,000 at quick effort) in all of a tick but Spark."""

from __future__ import annotations

from tests.support.effort import at_effort
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.local.job import LocalJob
from watersmeet.state.store import MemoryStore

COLUMNS = at_effort(quick=2_000, full=10_000)


def test_rows_of_thousands_of_columns():
    listed = ", ".join(f"c{number} BIGINT" for number in range(COLUMNS))
    declared = "".join(
        f"CREATE MAPPING {name} (k BIGINT, t BIGINT, {columns}WATERMARK FOR t AS t - 10) TYPE Memory;\n"
        for name, columns in (("l", listed + ", "), ("r", ""))
    )
    text = declared + "SELECT l.*, r.t AS rt FROM l LEFT JOIN r ON l.k = r.k AND l.t BETWEEN r.t - 5 AND r.t;"
    job = LocalJob(plan_job(parse_job(text)), MemoryStore())
    wide = [{"k": k, "t": k, **{f"c{number}": k * number for number in range(COLUMNS)}} for k in range(3)]
    job.tick({"l": [(row, 1) for row in wide]}, clock_us=1)
    output = job.tick({"r": [({"k": 2, "t": 4}, 1)]}, clock_us=2)
    (rows,) = output.rows.values()
    assert rows == [{**wide[2], "rt": 4}]
