"""What counts as silence: only time in which the engine looked at its sources, and once for each tick.

A partition goes idle by the clocks of ticks (`watermark.tracker`). Time in which the job did not run, a long
tick and a machine that slept are no silence, and a clock that is set back takes none away. What a tick
decided goes into its first work file: an attempt that repeats it, with another clock of its own, decides the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from watersmeet.engine.messages.work import read_work
from watersmeet.state.store import Store
from watersmeet.watermark import tracker

Inputs = Mapping[str, tracker.InputState]
Rules = Mapping[str, Sequence[tracker.BranchRules]]
Decided = dict[str, dict[str, list[dict[str, bool]]]]
"""Per query, alias and branch: all partitions, and which of them are idle."""


FIRST_WORK = "-0-0.json"
"""How the name of the work file of a tick's first node ends: it says what was decided."""


class Idleness:
    """Of one driver.

    Args:
        started_us: the clock when the job was started; None: that of the first tick.
        timeouts_us: the idle timeouts of all sources.
    """

    def __init__(self, started_us: int | None, timeouts_us: Iterable[int | None]) -> None:
        self._started_us = self._looked_us = self._own_from_us = started_us
        self._harmless_us = min((timeout_us // 2 for timeout_us in timeouts_us if timeout_us), default=None)
        self._pauses: list[int] = []
        self._decided: Decided | None = None
        self._woken = False

    def look(self, clock_us: int) -> None:
        """The engine looks at its sources, at this clock."""
        if self._looked_us is not None and self._harmless_us is not None:
            length_us = clock_us - self._looked_us
            if length_us > self._harmless_us or length_us < 0:
                self._pauses.append(length_us)
            if self._own_from_us is not None:
                self._own_from_us += min(0, length_us)
        self._looked_us = clock_us

    def repeat(self, store: Store, tick: int) -> None:
        """``tick`` was begun by an earlier run: what that one decided counts."""
        for name in store.names("work"):
            if name.startswith(f"work/{tick}-") and name.endswith(FIRST_WORK):
                self._decided = read_work(store, name).idle

    @property
    def is_decided(self) -> bool:
        return self._decided is not None

    def started_us(self, clock_us: int) -> int:
        return clock_us if self._started_us is None else self._started_us

    def settle(self, inputs: Inputs, rules: Rules, clock_us: int) -> None:
        """Bring the committed state of a query, in place, to what this run knows of pauses."""
        if not self._woken:
            tracker.wake(inputs.values(), self.started_us(clock_us))
        for length_us in self._pauses:
            tracker.pause(inputs, rules, length_us)
        tracker.not_ahead(inputs.values(), clock_us)

    def apply(self, query: str, seen: Mapping[tuple[str, int], tracker.Seen]) -> None:
        """Tell what an earlier attempt decided, if there was one."""
        if self._decided is not None:
            for (alias, number), branch_seen in seen.items():
                branch_seen.decided = self._decided[query][alias][number]

    def committed(self, clock_us: int) -> None:
        """A tick is done: pauses are in its state now, and nobody repeats it. One with a clock of before the
        start (the batch of a run that was killed) leaves states that are still to be woken."""
        self._woken = self._woken or self._own_from_us is None or clock_us >= self._own_from_us
        self._decided = None
        if self._woken:
            self._pauses = []


def decisions(inputs: Mapping[str, Inputs]) -> Decided:
    """What a tick decided, per query, from the states after it."""
    return {
        query: {
            alias: [{name: p.idle for name, p in branch.partitions.items()} for branch in state.branches]
            for alias, state in states.items()
        }
        for query, states in inputs.items()
    }
