"""Derive the watermarks of partitions, inputs, outputs and windows from the rows that arrived.

TUMBLE and HOP windows begin at multiples of ``slide`` and close when the watermark reaches their end. A
session closes when the watermark is beyond its end: a row at exactly its end still belongs to it. Window
times are Python integers, exact at any size. The watermark of a window is that of its time column, less
``allowed_lateness``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from watersmeet.event_time import ENDED, NEVER, Watermark, shift

# From rows seen to watermarks: per source partition, per branch, per input (semantics.md, section 4).
#
# A partition's watermark is the greatest time seen minus the lag; a branch's is the least over its
# partitions that are not idle, or the highest of them once all are; an input's is the least over its
# branches by the same rule. None ever goes back. This module has no clock of its own: the tick's clock is
# an argument.
#
# A branch that is a stage has one partition, whose watermarks are those that leave the stage: they are
# told (`advance_stages`) when the stage has settled. Inputs with such branches move then, others with
# `advance`.


@dataclass
class PartitionState:
    """State of one partition.

    Attributes:
        greatest: Greatest time seen per event-time column.
        active_at_us: Its silence counts from this clock on, or later.
        heard_at_us: Clock of its last row, in µs; None: it has had none.
    """

    greatest: dict[str, Watermark] = field(default_factory=dict)
    idle: bool = False
    active_at_us: int | None = None
    heard_at_us: int | None = None

    def copy(self) -> PartitionState:
        return PartitionState(dict(self.greatest), self.idle, self.active_at_us, self.heard_at_us)


@dataclass
class BranchState:
    partitions: dict[str, PartitionState] = field(default_factory=dict)
    watermarks: dict[str, Watermark] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """All partitions that are known are idle. A branch that has shown none is not."""
        return bool(self.partitions) and all(p.idle for p in self.partitions.values())

    def copy(self) -> BranchState:
        partitions = {name: partition.copy() for name, partition in self.partitions.items()}
        return BranchState(partitions, dict(self.watermarks))


@dataclass
class InputState:
    branches: list[BranchState]
    watermarks: dict[str, Watermark] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        return all(branch.idle for branch in self.branches)

    def copy(self) -> InputState:
        """Return a state that moves by itself."""
        return InputState([branch.copy() for branch in self.branches], dict(self.watermarks))


@dataclass(frozen=True)
class BranchRules:
    """The rules that determine a branch's watermarks.

    ``lags``: per event-time column; None: explicit advances only. ``is_stage``: the watermarks come
    from a stage. ``lateness``: the amount to lower a source's watermarks by before they are combined
    with those of stages, which already include allowed_lateness.
    """

    lags: Mapping[str, int | None]
    idle_timeout_us: int | None = None
    follow_when_idle: bool = False
    partitions: tuple[str, ...] = ()
    is_stage: bool = False
    lateness: int = 0


@dataclass
class BranchProgress:
    """A tick's progress of one branch.

    ``greatest``: per partition and column, the greatest time of all rows that arrived. ``advances``:
    explicit watermarks per column. ``idle``: partitions declared idle, None for none, empty for the
    whole branch. ``busy``: partitions known to have unread rows; they are never idle. ``decided``: all
    partitions and whether they are idle after the tick, as an earlier attempt found; then rows and
    clocks do not decide.
    """

    greatest: dict[str, dict[str, int]] = field(default_factory=dict)
    advances: dict[str, int] = field(default_factory=dict)
    idle: Collection[str] | None = None
    busy: Collection[str] = ()
    decided: Mapping[str, bool] | None = None


def fresh_input(rules: Sequence[BranchRules], clock_us: int) -> InputState:
    """Return the state before the first row; declared partitions hold the watermark at once."""
    return InputState(
        [
            BranchState({name: PartitionState(active_at_us=clock_us) for name in branch.partitions})
            for branch in rules
        ]
    )


def wake(states: Iterable[InputState], clock_us: int) -> None:
    """Restart the idle time of active partitions after a restart."""
    for state in states:
        for branch in state.branches:
            for partition in branch.partitions.values():
                if not partition.idle:
                    partition.active_at_us = clock_us


def pause(
    inputs: Mapping[str, InputState], rules: Mapping[str, Sequence[BranchRules]], length_us: int
) -> None:
    """Exclude time in which the job did not read its sources from their idle time.

    At most half of an idle timeout of the pause counts as silence. So one pause alone (a long tick, a
    machine that slept) makes no partition idle, however long it is. A negative pause is a clock set
    back: silence counted earlier stays counted.

    Args:
        length_us: the length of the pause in µs.
    """
    for alias, state in inputs.items():
        for branch, rule in zip(state.branches, rules[alias], strict=True):
            if rule.idle_timeout_us is None:
                continue
            excess = length_us if length_us < 0 else max(0, length_us - rule.idle_timeout_us // 2)
            for partition in branch.partitions.values():
                if partition.active_at_us is not None:
                    partition.active_at_us += excess


def clamp_to_clock(states: Iterable[InputState], clock_us: int) -> None:
    """Move times of last activity that lie after the clock to the clock.

    If the clock was set back, silence counts from this point.
    """
    for state in states:
        for branch in state.branches:
            for partition in branch.partitions.values():
                if partition.active_at_us is not None:
                    partition.active_at_us = min(partition.active_at_us, clock_us)
                if partition.heard_at_us is not None:
                    partition.heard_at_us = min(partition.heard_at_us, clock_us)


def branches_going_idle(
    inputs: Mapping[str, InputState],
    rules: Mapping[str, Sequence[BranchRules]],
    seen: Mapping[tuple[str, int], BranchProgress],
    clock_us: int,
) -> list[tuple[str, int]]:
    """Find the branches in which `advance` would time out a partition as idle.

    Returns:
        (alias, branch number) of each.
    """
    return [
        (alias, number)
        for alias, state in inputs.items()
        for number, (branch, rule) in enumerate(zip(state.branches, rules[alias], strict=True))
        if any(
            not partition.idle
            and _is_silent(partition, rule, clock_us)
            and name not in seen.get((alias, number), BranchProgress()).greatest
            for name, partition in branch.partitions.items()
        )
    ]


def _is_silent(partition: PartitionState, rule: BranchRules, clock_us: int) -> bool:
    return (
        rule.idle_timeout_us is not None
        and partition.active_at_us is not None
        and clock_us - partition.active_at_us >= rule.idle_timeout_us
    )


def advance(
    inputs: Mapping[str, InputState],
    rules: Mapping[str, Sequence[BranchRules]],
    seen: Mapping[tuple[str, int], BranchProgress],
    clock_us: int,
) -> None:
    """Move all watermarks of a query by one tick, in place; those of inputs with stages come later.

    Args:
        inputs, rules: per alias.
        seen: per (alias, branch number) what the tick brought.
    """
    for alias, state in inputs.items():
        for number, (branch, rule) in enumerate(zip(state.branches, rules[alias], strict=True)):
            if not rule.is_stage:
                _advance_branch(branch, rule, seen.get((alias, number), BranchProgress()), clock_us)
    _follow(inputs, rules)
    for alias, state in inputs.items():
        if not any(rule.is_stage for rule in rules[alias]):
            _advance_input(state, rules[alias])


def advance_stages(
    state: InputState,
    rules: Sequence[BranchRules],
    told: Mapping[int, tuple[Mapping[str, Watermark], bool]],
) -> None:
    """Move the watermarks of an input with stages, in place; those of its sources have moved.

    Args:
        told: per branch that is a stage, its watermarks by the input's columns, and whether it is idle.
    """
    for number, (watermarks, idle) in told.items():
        branch = state.branches[number]
        partition = branch.partitions.setdefault("", PartitionState())
        partition.idle = idle
        for column, watermark in watermarks.items():
            _raise(partition.greatest, column, watermark)
            _raise(branch.watermarks, column, watermark)
    _advance_input(state, rules)


def _advance_input(state: InputState, rules: Sequence[BranchRules]) -> None:
    for column in rules[0].lags:
        branches = [
            ({column: shift(branch.watermarks.get(column, NEVER), -rule.lateness)}, branch.idle)
            for branch, rule in zip(state.branches, rules, strict=True)
        ]
        _raise(state.watermarks, column, _coalesce(branches, column))


def end(inputs: Mapping[str, InputState], rules: Mapping[str, Sequence[BranchRules]]) -> None:
    """End of input: every watermark becomes +∞."""
    for alias, state in inputs.items():
        for column in rules[alias][0].lags:
            state.watermarks[column] = ENDED


def _advance_branch(branch: BranchState, rule: BranchRules, seen: BranchProgress, clock_us: int) -> None:
    for name, times in seen.greatest.items():
        partition = branch.partitions.setdefault(name, PartitionState())
        partition.idle, partition.active_at_us, partition.heard_at_us = False, clock_us, clock_us
        for column, time in times.items():
            _raise(partition.greatest, column, time)
    if seen.decided is None:
        _find_idle(branch, rule, seen, clock_us)
    else:
        before = branch.partitions
        branch.partitions = {
            name: before.get(name, PartitionState(active_at_us=clock_us)) for name in seen.decided
        }
        for name, idle in seen.decided.items():
            branch.partitions[name].idle = idle
    if seen.advances:
        for partition in branch.partitions.values():
            partition.idle, partition.active_at_us = False, clock_us
    for column, lag in rule.lags.items():
        if column in seen.advances:
            _raise(branch.watermarks, column, seen.advances[column])
        if lag is not None and branch.partitions:
            partitions = [(p.greatest, p.idle) for p in branch.partitions.values()]
            _raise(branch.watermarks, column, shift(_coalesce(partitions, column), -lag))


def _find_idle(branch: BranchState, rule: BranchRules, seen: BranchProgress, clock_us: int) -> None:
    for name in rule.partitions:
        branch.partitions.setdefault(name, PartitionState(active_at_us=clock_us))
    if seen.idle is not None:
        if not branch.partitions:
            branch.partitions[""] = PartitionState()
        for name in seen.idle or list(branch.partitions):
            branch.partitions.setdefault(name, PartitionState()).idle = True
    if rule.idle_timeout_us is not None:
        for name, partition in branch.partitions.items():
            if name in seen.busy:
                partition.idle, partition.active_at_us = False, clock_us
            elif _is_silent(partition, rule, clock_us):
                partition.idle = True


def _follow(inputs: Mapping[str, InputState], rules: Mapping[str, Sequence[BranchRules]]) -> None:
    pairs = [
        (branch, rule)
        for alias, state in inputs.items()
        for branch, rule in zip(state.branches, rules[alias], strict=True)
        if not rule.is_stage
    ]
    active = [
        branch.watermarks.get(column, NEVER)
        for branch, rule in pairs
        if not branch.idle
        for column in rule.lags
    ]
    if not active:
        return
    for branch, rule in pairs:
        if rule.follow_when_idle and branch.idle:
            for column in rule.lags:
                _raise(branch.watermarks, column, min(active))


def _coalesce(partitions: Sequence[tuple[Mapping[str, Watermark], bool]], column: str) -> Watermark:
    """Compute the least watermark over non-idle partitions; the greatest if all are idle."""
    active = [times.get(column, NEVER) for times, idle in partitions if not idle]
    return (
        min(active) if active else max((times.get(column, NEVER) for times, _ in partitions), default=NEVER)
    )


def _raise(watermarks: dict[str, Watermark], column: str, value: Watermark) -> None:
    watermarks[column] = max(watermarks.get(column, NEVER), value)


# What a join promises of its output: the output watermark of each key (semantics.md, section 2.7).


def output_watermarks(
    watermarks: Mapping[str, Watermark],
    limits: Mapping[str, Watermark],
    least_retained: Mapping[str, int],
    emitted: Mapping[str, Watermark],
    *,
    tight: bool,
) -> dict[str, Watermark]:
    """Compute the output watermark of every key that has one, never below ``emitted``.

    Args:
        watermarks: per key ``alias.column``, with allowed_lateness already subtracted.
        limits: per key ``alias.column``, with allowed_lateness already subtracted.
        least_retained: per key, the least time among its input's retained rows; absent without rows.
        tight: True for the rule ``tight``, else the rule ``limit``.
    """
    output: dict[str, Watermark] = dict(emitted)
    for key, watermark in watermarks.items():
        if tight:
            value = min(watermark, least_retained.get(key, watermark))
        elif key in limits:
            value = min(watermark, limits[key])
        else:
            continue
        value = max(value, emitted.get(key, NEVER))
        if value > NEVER:
            output[key] = value
    return output


def risen_watermarks(before: Mapping[str, Watermark], after: Mapping[str, Watermark]) -> dict[str, Watermark]:
    """Return the watermarks that rose."""
    return {key: value for key, value in after.items() if value > before.get(key, NEVER)}


def release_limit(size: int, slide: int, watermark: Watermark) -> Watermark:
    """Compute the time below which rows are in no open window.

    >>> release_limit(10, 10, 25), release_limit(10, 4, 25), release_limit(10, 4, -3)
    (20, 16, -12)
    """
    if isinstance(watermark, float):
        return watermark
    return (watermark - size) // slide * slide + slide


def last_row_limit(gap: int, watermark: Watermark) -> Watermark:
    """Compute the time below which a row is its session's last, unless a later row exists.

    >>> last_row_limit(5, 20), last_row_limit(5, float("-inf"))
    (15, -inf)
    """
    return watermark if isinstance(watermark, float) else watermark - gap


def start_watermark(size: int, watermark: Watermark, least_open: int | None) -> Watermark:
    """Compute the watermark to emit for window_start; no later result has a lesser one.

    Args:
        size: the size of TUMBLE and HOP windows; 0 for sessions.
        least_open: for sessions, the least time of a retained row.
    """
    if watermark in (NEVER, ENDED):
        return watermark if least_open is None else min(watermark, least_open)
    start = shift(watermark, -size)
    return start if least_open is None else min(start, least_open)
