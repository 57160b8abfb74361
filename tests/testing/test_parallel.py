"""The order in which several processes share the tests."""

from __future__ import annotations

import random
from itertools import chain
from pathlib import Path

import pytest

from tests.support.package_paths import REPOSITORY
from tests.support.parallel import order_for_processes


class Item:
    """A test with a marker, or in a folder."""

    def __init__(self, marker: str = "", folder: str = "plan") -> None:
        self.marker, self.path = marker, Path(REPOSITORY / "tests" / folder / "test_it.py")

    def get_closest_marker(self, name: str) -> object:
        return object() if name == self.marker else None


GROUPS = [
    [Item("spark") for _ in range(5)],
    [Item("kafka") for _ in range(3)],
    [Item("kill"), Item(folder="laws")],
]


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("short", [0, 1, 40])
def test_each_test_is_there_once(processes, short):
    items = [*chain(*GROUPS), *(Item() for _ in range(short))]
    random.Random(short).shuffle(items)
    ordered = order_for_processes(items, processes)
    assert sorted(map(id, ordered)) == sorted(map(id, items))


def test_each_of_three_equal_parts_begins_with_a_group():
    items = [*(Item() for _ in range(20)), *chain(*GROUPS)]
    ordered = order_for_processes(items, 3)
    for part, group in enumerate(GROUPS):
        assert ordered[part * 10 : part * 10 + len(group)] == group
