"""watersmeet's join over a workload's files, in a process of its own: SQL in, rows out, on Spark.

Variants: ``default``; ``profile`` has the tasks write what they did (see `benchmarks.tick_profile`; slower).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from benchmarks.child import Arguments, Report, bytes_in, commit_times, parse
from benchmarks.workloads import KINDS
from watersmeet.parser.statements import parse_job
from watersmeet.plan.planner import plan_job
from watersmeet.runtime.coordinator.results import TickResult
from watersmeet.runtime.spark.job import session
from watersmeet.runtime.spark.job.run import run_job
from watersmeet.runtime.spark.job.settings import RunSettings
from watersmeet.state.manifest import load_newest
from watersmeet.state.store import LocalStore

VARIANTS = ("default", "profile")


def job_text(arguments: Arguments) -> str:
    """The job as a user would write it."""
    workload, kind = arguments.workload, KINDS[arguments.kind]
    statements = []
    for side in kind.sides:
        if (topics := arguments.topics) is None:
            source = f"File OPTIONS ('path' = '{arguments.data / side}', 'format' = 'parquet', "
            source += f"'maxFilesPerTrigger' = '{workload.files}')"
        else:
            source = f"Kafka OPTIONS ('bootstrap.servers' = '{topics.servers}', "
            source += f"'topic' = '{topics.of(side)}', 'startingOffsets' = 'earliest', "
            source += f"'maxOffsetsPerTrigger' = '{workload.rows}')"
        statements.append(
            f"CREATE MAPPING {side}_in (k BIGINT, t TIMESTAMP, v BIGINT, s STRING) TYPE {source}"
        )
        statements.append(
            f"CREATE VIEW {side} AS SELECT * FROM TABLE(IMPOSE_ORDER("
            f"TABLE {side}_in, DESCRIPTOR(t), INTERVAL '{workload.lag_s}' SECONDS))"
        )
    statements.append(
        f"CREATE MAPPING joined TYPE File OPTIONS ('path' = '{arguments.out}', 'format' = 'parquet')"
    )
    statements.append(f"INSERT INTO joined {kind.select({side: side for side in kind.sides})}")
    return ";\n".join(statements) + ";\n"


def main() -> None:
    arguments = parse(__doc__ or "", VARIANTS)
    if arguments.variant == "profile":
        from benchmarks import tick_profile  # loads what would count as memory of this process

        tick_profile.install(arguments.work / "profile")
    spark = session.start(session.build_session_settings(conf=arguments.conf()))
    ticks = arguments.workload.all_ticks
    report = Report(started=time.time(), ended=[])
    job = parse_job(job_text(arguments))
    plan = plan_job(job)
    (query,) = plan.queries

    def on_tick(result: TickResult, seconds: float, parts: Mapping[str, float]) -> None:
        if result.tick > ticks:
            return
        report.parts.append({**parts, "tick": seconds})
        if result.tick == ticks:
            found = result.queries[query.name]
            manifest = load_newest(LocalStore(arguments.checkpoint / "state"))
            assert manifest is not None
            nodes = manifest.queries[query.name].nodes
            report.retained = sum(a.retained for node in nodes for a in node.arrangements.values())
            report.late = sum(counts.get("late", 0) for counts in found.account.values())
            report.state_bytes = bytes_in(arguments.checkpoint / "state")

    run_job(  # in the session that runs
        job, plan, RunSettings(str(arguments.checkpoint), until_caught_up=True, on_tick=on_tick)
    )
    report.ended = commit_times(arguments.checkpoint / "spark" / "commits", ticks)
    report.write(arguments.work)
    spark.stop()


if __name__ == "__main__":
    main()
