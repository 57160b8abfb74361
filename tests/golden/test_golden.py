"""Each ``*.sql`` beside its ``*.explain``: the text of EXPLAIN, or of the refusal after ``-- fail=<code>``.

After a wanted change: ``WATERSMEET_GOLDEN=write pytest tests/golden``, then read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.package_paths import find_paths
from watersmeet.errors import SeveralErrors, WatersmeetError
from watersmeet.parser.statements import parse_job
from watersmeet.plan.explain import explain
from watersmeet.plan.explain.graph import mermaid
from watersmeet.plan.planner import plan_job

HERE = Path(__file__).parent
FAIL = "-- fail="


@pytest.mark.parametrize("path", find_paths(HERE, "*.sql"), ids=lambda path: path.stem)
def test_golden(path):
    sql = path.read_text()
    if sql.startswith(FAIL):
        code = sql.splitlines()[0].removeprefix(FAIL)
        with pytest.raises(WatersmeetError) as caught:
            plan_job(parse_job(sql))
        error = caught.value
        assert {e.code for e in (error.errors if isinstance(error, SeveralErrors) else [error])} == {code}
        got = f"{error}\n"
    else:
        got = explain(plan_job(parse_job(sql)))
    golden = path.with_suffix(".explain")
    if os.environ.get("WATERSMEET_GOLDEN") == "write":
        golden.write_text(got)
    assert got == golden.read_text()


@pytest.mark.parametrize("path", find_paths(HERE, "*.mermaid"), ids=lambda path: path.stem)
def test_golden_mermaid(path):
    """Each ``*.mermaid`` beside a ``*.sql``: the flowchart."""
    got = mermaid(plan_job(parse_job(path.with_suffix(".sql").read_text())))
    if os.environ.get("WATERSMEET_GOLDEN") == "write":
        path.write_text(got)
    assert got == path.read_text()
