"""Ticks of one job in pairs, one with something and one without: which is which, and what they tell."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median
from typing import TypeVar

import psutil

Cost = TypeVar("Cost")


def has_it(tick: int) -> bool:
    """Whether the tick is the one with it: of ticks 0 and 1 the first, of 2 and 3 the second, and so on."""
    return (tick % 2 == 0) == (tick // 2 % 2 == 0)


def in_pairs(costs: Sequence[Cost], first: int) -> list[tuple[Cost, Cost]]:
    """Per pair of ticks, from an even one on, what they cost: (with it, without)."""
    return [
        (costs[n], costs[n + 1]) if has_it(n) else (costs[n + 1], costs[n])
        for n in range(first, len(costs), 2)
    ]


def compared(pairs: Sequence[tuple[float, float]], digits: int) -> str:
    """Medians of both and of the differences, and of these the mean and quartiles."""
    with_it, without = zip(*pairs, strict=True)
    apart = sorted(a - b for a, b in pairs)
    low, high = apart[len(apart) // 4], apart[-1 - len(apart) // 4]
    medians = " ".join(f"{median(values):8.{digits}f}" for values in (with_it, without, apart))
    return f"{medians} ({mean(apart):.{digits}f}; {low:.{digits}f} to {high:.{digits}f})"


def cpu_seconds(but: int | None = None) -> float:
    """Of this process, the JVM and all workers, so far. ``but``: a process that does not count."""
    here = psutil.Process()
    return sum(cpu_of(process) for process in [here, *here.children(recursive=True)] if process.pid != but)


def cpu_of(process: psutil.Process) -> float:
    """CPU seconds of a process so far; 0 when it is gone."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
