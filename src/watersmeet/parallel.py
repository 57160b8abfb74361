"""The same done for several things at once, each in a thread of its own; how many cores there are for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def own_cores() -> int:
    """How many cores this process may use, or the machine has where that is not known, as on macOS."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(do: Callable[[T], R], things: Sequence[T]) -> list[R]:
    """What ``do`` gives for each of the things, in order; one thing alone is done in the caller's thread.

    Raises: what the first of them in order raised, when all have ended.
    """
    if len(things) <= 1:
        return [do(thing) for thing in things]
    with ThreadPoolExecutor(len(things)) as threads:
        asked = [threads.submit(do, thing) for thing in things]
        wait(asked)
    return [one.result() for one in asked]
