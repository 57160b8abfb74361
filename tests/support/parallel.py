"""The order of tests in several processes: those that use one server, or take long, run in one of them.

``--dist worksteal`` deals out equal parts, in order, and an idle process takes tests from the end of a busy
one's part. So each part begins with such a group and ends with short tests, which any process may run.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, islice

import pytest

from tests.support.package_paths import REPOSITORY, find_paths

GROUPS = ("spark", "kafka", "long")
LONG = {folder.name for folder in find_paths(REPOSITORY / "tests", "oracle", "laws", "simulation", "testing")}
"""Folders whose tests take longest, of those without a JVM."""


def order_for_processes(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return all tests in the order in which ``processes`` equal parts of them each begin with a group."""
    by_group: dict[str | None, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_group[_group_of(item)].append(item)
    parts: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for number, group in enumerate(GROUPS):
        parts[number % processes] += by_group[group]
    short = iter(by_group[None])
    for part in parts:
        part += islice(short, max(0, len(items) // processes - len(part)))
    return [*chain(*parts), *short]


def _group_of(item: pytest.Item) -> str | None:
    """Return the group of a test, or None for a short one without a JVM. One of Kafka may use Spark, too."""
    if item.get_closest_marker("kill") or item.path.relative_to(REPOSITORY / "tests").parts[0] in LONG:
        return "long"
    return next((name for name in ("kafka", "spark") if item.get_closest_marker(name)), None)
