"""Command `replay`: run case files through an engine and check the results.

The command prints one JSON line per case and step, or a trace, and compares with ``expect``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from watersmeet.errors import SpecError

Lines = list[dict[str, Any]]
Run = Callable[[dict[str, Any], int], Lines]


def replay_file(path: Path, *, engine: str, partitions: int, check: bool, trace: bool = False) -> int:
    """Replay the cases of a file and return the exit status.

    The status is 1 if a case is rejected, or if with ``check`` a case differs from what is expected. A
    case that waits for something that does not exist yet is reported separately and is no difference.
    """
    from watersmeet.testing.cases import check_case, is_compared, load_cases, waits_for

    cases = load_cases(path)
    run = _trace_steps(engine) if trace else _print_steps(_engine(engine))
    status = 0
    differences = waiting = 0
    for case in cases:
        lines = run(case, partitions)
        if check and (wanted := waits_for(case, lines)) is not None:
            waiting += 1
            print(f"{case['case']}: waiting: {wanted}", file=sys.stderr)
        elif check:
            problems = check_case(case, lines)
            differences += bool(problems)
            for problem in problems:
                print(problem, file=sys.stderr)
        elif any("error" in line for line in lines):
            status = 1
    if check:
        more = f", {waiting} waiting for what is not there yet" if waiting else ""
        unseen = sum(not is_compared(case) for case in cases)
        more += f" ({unseen} without expectations for all steps)" if unseen else ""
        good = len(cases) - differences - waiting
        print(f"{good} of {len(cases)} cases as expected{more}", file=sys.stderr)
        return 1 if differences else 0
    return status


def _print_steps(run: Run) -> Run:
    """Return a function that runs a case and prints the output of each step."""

    def run_and_print(case: dict[str, Any], partitions: int) -> Lines:
        lines = run(case, partitions)
        for line in lines:
            print(json.dumps(line, ensure_ascii=False))
        return lines

    return run_and_print


def _trace_steps(engine: str) -> Run:
    """Return a function that runs a case in this process and prints a trace of each step."""
    if engine != "local":
        raise SpecError(
            "--trace shows the state of the in-process engine",
            code="wrong-option",
            hint="remove --engine: both engines run the same ticks",
        )
    from watersmeet.runtime.local import Tracer, replay_case
    from watersmeet.trace.view import trace_text

    first = True

    def run_and_trace(case: dict[str, Any], partitions: int) -> Lines:
        nonlocal first
        tracer = Tracer()
        lines = replay_case(case, partitions=partitions, tracer=tracer)
        print("" if first else "\n", trace_text(case, lines, tracer.trace), sep="", end="")
        first = False
        return lines

    return run_and_trace


def _engine(name: str) -> Run:
    """Select the engine; Spark is loaded only if it is selected."""
    if name == "local":
        from watersmeet.runtime.local import replay_case as replay_locally

        return lambda case, partitions: replay_locally(case, partitions=partitions)
    from watersmeet.runtime.spark.start_failures import check_pyspark

    check_pyspark("watersmeet replay --engine spark")
    from watersmeet.runtime.spark.replay import replay_case as replay_on_spark

    return lambda case, partitions: replay_on_spark(case, partitions=partitions)
