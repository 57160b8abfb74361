"""Find what holds a watermark back: silent partitions, and sources paused for alignment.

The slowest source is never paused, so at least one source proceeds unless it is silent. No source waits for
an idle one, as in `watermark.tracker`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from watersmeet.event_time import ENDED, NEVER, Watermark, shift
from watersmeet.watermark.tracker import BranchRules, BranchState, InputState, PartitionState


@dataclass(frozen=True)
class SourcePosition:
    """The position of a source as of a tick.

    ``watermark``: the least over its event times. ``idle``: True if all of its partitions are idle.
    """

    watermark: Watermark
    idle: bool = False


@dataclass(frozen=True)
class SourceDrift:
    """The distance of a source ahead of source ``behind``.

    ``by`` None: no rows of that source have arrived yet.
    """

    behind: str
    by: int | None


def find_sources_ahead(
    groups: Iterable[Collection[str]],
    standings: Mapping[str, SourcePosition],
    max_drift: int,
    used_up: Collection[str] = (),
) -> dict[str, SourceDrift]:
    """Find the sources to pause until others catch up, with the source each is compared with.

    Args:
        groups: names of sources whose rows meet. A source without an entry in ``standings`` has no
            watermark.
        used_up: sources that have no more rows, now or later: no source waits for them, nor do they
            wait for others.
    """
    held: dict[str, SourceDrift] = {}
    for group in groups:
        marks = {
            name: standings[name].watermark
            for name in group
            if name in standings and not standings[name].idle and name not in used_up
        }
        if not marks:
            continue
        behind = min(sorted(marks), key=lambda name: marks[name])
        least = marks[behind]
        for name, mark in marks.items():
            if NEVER < mark < ENDED and mark - least > max_drift:
                by = None if least == NEVER else int(mark - least)
                if name not in held or _is_further(by, held[name].by):
                    held[name] = SourceDrift(behind, by)
    return held


def _is_further(by: int | None, than: int | None) -> bool:
    return than is not None and (by is None or by > than)


SILENT_US = 10_000_000
"""A partition is called silent when its last row is so long ago."""


@dataclass(frozen=True)
class WatermarkHolder:
    """A partition without rows that holds a watermark back.

    Attributes:
        partition: Name of the partition; "" if the source has none.
        since_us: Clock of its last row, in µs; None: it has had none.
        idle_timeout_us: Idle timeout of the source, in µs.
    """

    source: str
    partition: str
    since_us: int | None
    idle_timeout_us: int | None


def find_holders(
    state: InputState, rules: Sequence[BranchRules], sources: Sequence[str], clock_us: int
) -> tuple[WatermarkHolder, ...]:
    """Find the silent partitions that hold back an input's watermark.

    A partition counts only if a branch or partition is ahead of it. For a stage, the holders are
    reported on its own inputs.

    Args:
        rules: the rules of each branch.
        sources: the source names of each branch.
    """
    holdings: dict[tuple[int, str], WatermarkHolder] = {}
    for column in rules[0].lags:
        marks = [
            shift(branch.watermarks.get(column, NEVER), -rule.lateness)
            for branch, rule in zip(state.branches, rules, strict=True)
        ]
        active = [mark for mark, branch in zip(marks, state.branches, strict=True) if not branch.idle]
        for number, (branch, mark) in enumerate(zip(state.branches, marks, strict=True)):
            if branch.idle or rules[number].lags[column] is None or mark > min(active):
                continue
            for name, partition in _least(branch, column, ahead=max(active) > mark):
                if partition.heard_at_us is None or clock_us - partition.heard_at_us >= SILENT_US:
                    holdings[number, name] = _make_holder(number, name, partition, rules, sources)
    return tuple(holdings[key] for key in sorted(holdings))


def find_unheard_partitions(
    state: InputState,
    rules: Sequence[BranchRules],
    sources: Sequence[str],
    unread: Mapping[str, Collection[str]],
) -> tuple[WatermarkHolder, ...]:
    """Find the declared partitions that never had a row and have none to read.

    Args:
        unread: per source, the partitions with unread rows. The search ignores sources not in it.
    """
    return tuple(
        _make_holder(number, name, partition, rules, sources)
        for number, branch in enumerate(state.branches)
        for name in rules[number].partitions
        for partition in [branch.partitions.get(name, PartitionState())]
        if sources[number] in unread
        and name not in unread[sources[number]]
        and not partition.greatest
        and partition.heard_at_us is None
        and not partition.idle
    )


def _least(branch: BranchState, column: str, ahead: bool) -> Iterator[tuple[str, PartitionState]]:
    """Yield the active partitions with the least time, if another partition is above.

    With ``ahead``, yield them also if another branch is above.
    """
    if not branch.partitions:
        if ahead:
            yield "", PartitionState()
        return
    active = {name: p for name, p in branch.partitions.items() if not p.idle}
    times = [p.greatest.get(column, NEVER) for p in active.values()]
    if ahead or max(times) > min(times):
        yield from ((n, p) for n, p in active.items() if p.greatest.get(column, NEVER) == min(times))


def _make_holder(
    number: int, name: str, partition: PartitionState, rules: Sequence[BranchRules], sources: Sequence[str]
) -> WatermarkHolder:
    since_us = partition.heard_at_us
    if since_us is None and partition.greatest:  # the state is of a version that did not note it
        since_us = partition.active_at_us
    return WatermarkHolder(sources[number], name, since_us, rules[number].idle_timeout_us)
