"""Each ``*.trace``: what ``replay --trace`` prints of the case of that name, step by step.

After a wanted change: ``WATERSMEET_GOLDEN=write pytest tests/golden``, then read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.case_files import cases_by_name
from watersmeet.runtime.local import Tracer, replay_case
from watersmeet.testing.cases import check_case
from watersmeet.trace.view import trace_text

HERE = Path(__file__).parent
CASES = cases_by_name()

TRACED = [
    "doc-S1-orders-deliveries-returns-tight",  # a join whose left side has two event times
    "hz-M3-cascade-tight",  # three streams: two joins in one tick
    "ematix-E9-lateness-readmits",
    "restart-after-every-step-left",
    "asof-waits-for-the-right-watermark",  # a left row that is decided, right rows that nobody will take
    "aggregation-join-aggregation",  # windows over a join of windows
    "reopen-rows-are-kept-and-taken-so-much-longer",  # lateness goes by the join
    "branch-that-was-idle-comes-back",  # a UNION ALL of a join and a stream, and too late rows of the join
]


def trace_case(name: str, partitions: int = 1) -> str:
    tracer = Tracer()
    outputs = replay_case(CASES[name], partitions=partitions, tracer=tracer)
    assert check_case(CASES[name], outputs) == []
    return trace_text(CASES[name], outputs, tracer.trace)


@pytest.mark.parametrize("name", TRACED)
def test_trace(name):
    golden = HERE / f"{name}.trace"
    got = trace_case(name)
    if os.environ.get("WATERSMEET_GOLDEN") == "write":
        golden.write_text(got)
    assert got == golden.read_text()
