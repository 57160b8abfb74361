"""Case files on the in-process engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watersmeet.plan.model.job import JobPlan
from watersmeet.runtime.coordinator.run_context import TickSettings
from watersmeet.runtime.local.evaluate import move_to_borders
from watersmeet.runtime.local.job import LocalJob
from watersmeet.runtime.replay import QUERY, CaseOutput, CaseStep, replay
from watersmeet.runtime.tasks.run_writer import PlaceHashes
from watersmeet.runtime.values import InMemoryTables
from watersmeet.state.store import LocalStore, MemoryStore, Store
from watersmeet.trace.recorder import Tracer


def replay_case(
    case: Mapping[str, Any],
    partitions: int = 1,
    hash_seed: str | None = None,
    state_dir: str | None = None,
    tracer: Tracer | None = None,
) -> list[dict[str, Any]]:
    """Replay a case and return the output of each step; see `runtime.replay.replay`.

    Args:
        partitions: the number of hash ranges; ``rescale`` steps change it.
        hash_seed: ``borders`` moves keys' hashes next to the borders of ranges.
        state_dir: a directory for the state; None stores it in memory.
        tracer: gathers the actions of each step, one entry per step.

    >>> from watersmeet.testing import replay_case
    >>> case = {
    ...     "case": "a pair",
    ...     "streams": {"a": {"columns": {"t": "BIGINT"}, "time": {"t": {"lag": 5}}}},
    ...     "query": "SELECT x.t, y.t AS u FROM a x JOIN a y ON y.t = x.t + 1",
    ...     "steps": [{"rows": [["a", {"t": 1}], ["a", {"t": 2}]]}],
    ...     "expect": [{"rows": [{"t": 1, "u": 2}]}]}
    >>> [step["rows"] for step in replay_case(case)]
    [[{'t': 1, 'u': 2}]]
    """
    store: Store = MemoryStore() if state_dir is None else LocalStore(state_dir)
    placing = move_to_borders if hash_seed == "borders" else None
    return replay(
        case,
        lambda plan: _LocalCase(plan, store, placing, tracer),
        partitions,
        join_by_join=tracer is not None,
    )


class _LocalCase:
    def __init__(
        self, plan: JobPlan, store: Store, placing: PlaceHashes | None, tracer: Tracer | None
    ) -> None:
        self._plan, self._store, self._placing, self._tracer = plan, store, placing, tracer
        self._tables = InMemoryTables()

    def open(self, partitions: int, clock_us: int) -> None:
        self._job = LocalJob(
            self._plan,
            self._store,
            partitions=partitions,
            settings=TickSettings(placing=self._placing),
            clock_us=clock_us,
            watcher=self._tracer,
            tables=self._tables,
        )
        if self._tracer is not None:
            self._tracer.opened(self._job.driver)

    @property
    def state(self) -> Mapping[str, int]:
        return self._job.state[QUERY]

    def tick(self, step: CaseStep) -> CaseOutput:
        output = self._job.tick(
            step.rows, clock_us=step.clock_us, advances=step.advances, idle=step.idle, end=step.end
        )
        case_output = CaseOutput(output.rows[QUERY], output.late, output.result.queries[QUERY])
        if self._tracer is not None:
            self._tracer.committed(step, case_output)
        return case_output
