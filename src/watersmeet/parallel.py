"""Call a function in parallel threads, and count the cores that this process may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def own_cores() -> int:
    """Return the number of cores that this process may use.

    Where that is unknown, as on macOS, it is the number of cores of the machine.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(do: Callable[[T], R], things: Collection[T], max_threads: int | None = None) -> list[R]:
    """Call ``do`` for each thing in parallel and return the results in order.

    A single thing is processed in the caller's thread. If calls fail, the function waits for all that
    have begun, begins no other, and raises the error of the first one in order.

    Args:
        max_threads: Maximum number of threads; None: one per thing.
    """
    if len(things) <= 1:
        return [do(thing) for thing in things]
    with ThreadPoolExecutor(min(len(things), max_threads or len(things))) as threads:
        return list(threads.map(do, things))
