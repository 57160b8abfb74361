"""Cases run in this process with a history of their ticks, and their rows as `why` reads them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from watersmeet.history.points import Points, figures_of
from watersmeet.history.reader import JobHistory
from watersmeet.observe.reports import report_of
from watersmeet.parser.case_file import case_job
from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.local import LocalJob
from watersmeet.runtime.replay import QUERY, CaseOutput, CaseStep, replay
from watersmeet.runtime.values import to_table
from watersmeet.spec.model import Job
from watersmeet.state.store import MemoryStore
from watersmeet.why.rows import Portion, Reread

Reached = dict[str, dict[str, int]]


class RecordedCase:
    """A case that has been run: ``job``, ``plan``, ``past``, and ``reread`` per source; ``problem``: what it
    failed with."""

    job: Job
    plan: JobPlan

    def __init__(self, case: Mapping[str, Any]) -> None:
        self._store, self._points = MemoryStore(), Points()
        self._portions: dict[str, list[Portion]] = {}
        self.problem = next((out["error"] for out in replay(case, self._open, 1) if "error" in out), None)
        if self.problem is None:
            self.job = case_job(case)
            self.past = JobHistory(self._points.table())
            self.reread = {
                source.name: Reread(source, self._portions[source.name]) for source in self.plan.sources
            }

    def _open(self, plan: JobPlan) -> RecordedCase:
        self.plan = plan
        self._portions = {source.name: [] for source in plan.sources}
        return self

    def open(self, partitions: int, clock_us: int) -> None:
        self._local = LocalJob(self.plan, self._store, partitions=partitions, clock_us=clock_us)

    @property
    def state(self) -> Mapping[str, int]:
        return self._local.state[QUERY]

    def tick(self, step: CaseStep) -> CaseOutput:
        local = self._local
        output = local.tick(
            step.rows, clock_us=step.clock_us, advances=step.advances, idle=step.idle, end=step.end
        )
        for source in self.plan.sources:
            own, rows = self._portions[source.name], step.rows.get(source.name, [])
            table = to_table(source.columns, [row for row, _ in rows], [diff for _, diff in rows])
            own.append(Portion(table, "steps", len(own), f"step {len(own)}"))
        began, read = self._reached(step)
        result = replace(output.result, began=began, read=read)
        self._points.add(result.tick, step.clock_us, figures_of(report_of(result, 0.1), result))
        return CaseOutput(output.rows[QUERY], output.late, output.result.queries[QUERY])

    def _reached(self, step: CaseStep) -> tuple[Reached, Reached]:
        """From where on its rows stood where reading began, and how far it was read by now, per source and
        part; told where it changes, as by a recording."""
        return {}, {
            name: {"steps": len(own)}
            for name, own in self._portions.items()
            if len(own) == 1 or own[-1].rows.num_rows
        }
