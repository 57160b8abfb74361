"""What a manifest says of a run: enough to pass it over unread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from watersmeet.event_time import NEVER, Watermark
from watersmeet.state.record import FrozenRecord
from watersmeet.state.runs.heavy import HeavyKey


class Run(FrozenRecord):
    """What a manifest says of a run. ``index``: the name of what its rows are sorted by (within a hash);
    ``spans``: least and greatest of each event time and of each index that it could have; ``base``,
    ``shift``: of its slots; ``low``, ``high``: least and greatest slot; ``tick``: when its rows (the newest
    of them) arrived; ``level``: how often its rows were merged; ``group``: runs of one merge share it.
    ``origin``: of rows that ASOF joins look for, as ingest wrote them: (branch, source partition, ingest
    task). ``stands_for``: how many rows of its side, where the run's are partial aggregates, or deletes that
    are remembered: none. ``keys``: how many different keys its rows have, and of each further key by which
    they are found, where that is counted (by 32 bits of hashes). ``heavy``: see `state.runs.heavy`."""

    name: str
    rows: int
    nbytes: int
    checksum: int
    tick: int
    index: str | None
    base: int
    shift: int
    low: int
    high: int
    spans: dict[str, tuple[int, int]]
    group: str
    level: int = 0
    origin: tuple[int, str, int] | None = None
    offset: int = 0
    stands_for: int | None = None
    keys: tuple[int, ...] = ()
    heavy: tuple[HeavyKey, ...] = ()


def whole_run_released(run: Run, releasing: Sequence[str], limits: Mapping[str, Watermark]) -> bool:
    """Whether every row of the run is below the limit of one column: the run can be dropped unread."""
    return any(run.spans[column][1] < limits.get(column, NEVER) for column in releasing)
