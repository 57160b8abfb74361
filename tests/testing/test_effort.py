"""Quick effort leaves tests out; the slices of full effort run each of them, and each random test, once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.expressions import checking
from tests.support import effort

SLICES = 12


class Item:
    """A test: marked ``full``, random (takes the seed), in a module with `at_effort`, or none of these."""

    def __init__(self, number: int) -> None:
        self.nodeid = f"tests/test_it.py::test_{number}"
        self.full, self.fixturenames = number % 3 == 0, ["seed"] if number % 5 == 0 else []
        self.module = effort if number % 7 == 0 else pytest

    def get_closest_marker(self, name: str) -> object:
        return object() if name == "full" and self.full else None


def config(chosen_slice: str | None = None) -> Any:
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    return SimpleNamespace(hook=hook, getoption=lambda name: chosen_slice)


def select_test_ids(monkeypatch: pytest.MonkeyPatch, name: str, chosen_slice: str | None = None) -> list[str]:
    monkeypatch.setattr(effort, "EFFORT", name)
    items: list[Any] = [Item(number) for number in range(300)]
    effort.check_options(config(chosen_slice))
    effort.select(config(chosen_slice), items)
    return [item.nodeid for item in items]


def test_quick_effort_leaves_marked_tests_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert select_test_ids(monkeypatch, "quick") == [Item(n).nodeid for n in range(300) if n % 3]
    assert len(select_test_ids(monkeypatch, "full")) == 300


def test_slices_run_each_test_that_full_effort_adds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [select_test_ids(monkeypatch, "full", f"{number}/{SLICES}") for number in range(SLICES)]
    added = [Item(n).nodeid for n in range(300) if n % 3 == 0 or n % 5 == 0 or n % 7 == 0]
    assert sorted(name for part in parts for name in part) == sorted(added)
    assert max(map(len, parts)) < len(added) / 4


def test_a_module_that_takes_something_from_one_that_asks_is_in_a_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The slices together have all tests whose number of cases a helper decides."""
    monkeypatch.setattr(effort, "EFFORT", "full")
    items: list[Any] = [Item(1), Item(2)]
    items[0].module = SimpleNamespace(a_helper=checking.covering)
    effort.select(config("0/1"), items)
    assert [item.nodeid for item in items] == [Item(1).nodeid]


@pytest.mark.parametrize(
    ("name", "chosen_slice", "problem"),
    [
        ("ful", None, "WATERSMEET_EFFORT is quick or full, not 'ful'"),
        ("full", "12/12", "--slice takes K/N"),
        ("full", "x", "--slice takes K/N"),
        ("quick", "1/12", "--slice needs WATERSMEET_EFFORT=full"),
    ],
)
def test_wrong_options_are_rejected(
    monkeypatch: pytest.MonkeyPatch, name: str, chosen_slice: str | None, problem: str
) -> None:
    with pytest.raises(pytest.UsageError, match=problem):
        select_test_ids(monkeypatch, name, chosen_slice)
