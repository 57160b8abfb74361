"""What runs a tick is built whole: nobody sets an attribute of it from outside, or after it is made.

The modules below hold the tick, its phases, the driver and the run. What changes from tick to tick has a
class of its own that holds nothing else: `Ledger` (what is committed), `LastTick`, `Failure` and `Telling`.
"""

from __future__ import annotations

import ast

import pytest

from tests.support.package_paths import PACKAGE
from tests.support.syntax import tree_of

WHOLE = (
    "runtime/tick.py",
    "runtime/coordinator/run_context.py",
    "runtime/coordinator/driver.py",
    "runtime/coordinator/tick_phases.py",
    "runtime/coordinator/run_context.py",
    "runtime/coordinator/commit.py",
    "runtime/local/job.py",
    "runtime/local/tick.py",
    "runtime/spark/job/restore.py",
    "runtime/spark/job/run.py",
    "runtime/spark/job/stream.py",
    "runtime/spark/job/stream.py",
    "runtime/spark/tick/outputs.py",
    "runtime/spark/tick/tick.py",
)
ALLOWED = {
    # an error that passes is told of which INSERT it is
    ("runtime/coordinator/commit.py", "error"),
    # what the tasks of a node are told is filled in step by step until it is written
    ("runtime/coordinator/tick_phases.py", "work"),
    # the number of shares is public, and may be another one in each tick
    ("runtime/local/job.py", "self._partitions"),
}


def find_outside_assignments(source: str) -> list[str]:
    """The objects of which an attribute is set, but for ``self`` in a constructor."""
    outside: list[str] = []

    def look(node: ast.AST, constructs: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                look(child, child.name in ("__init__", "__post_init__"))
                continue
            if isinstance(child, ast.Attribute) and isinstance(child.ctx, (ast.Store, ast.Del)):
                of_self = isinstance(child.value, ast.Name) and child.value.id == "self"
                if not (of_self and constructs):
                    outside.append(ast.unparse(child if of_self else child.value))
            if isinstance(child, ast.Call) and ast.unparse(child.func) in ("setattr", "object.__setattr__"):
                outside.append(ast.unparse(child.args[0]))
            look(child, constructs)

    look(tree_of(source), False)
    return outside


@pytest.mark.parametrize("name", WHOLE)
def test_no_attribute_is_set_from_outside_or_later(name: str) -> None:
    named = {(name, target) for target in find_outside_assignments((PACKAGE / name).read_text())}
    assert named - ALLOWED == set(), "build the object whole, or give the next value"


def test_what_is_allowed_is_needed() -> None:
    named = {
        (name, target) for name in WHOLE for target in find_outside_assignments((PACKAGE / name).read_text())
    }
    assert named >= ALLOWED


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class A:\n    def __init__(self): self.a, self.b = 1, 2", []),
        ("class A:\n    def f(self): self.a = 1", ["self.a"]),
        ("class A:\n    def __init__(self, other): other.a += 1", ["other"]),
        ("def f(driver): driver.owner: str = ''", ["driver"]),
        ("def f(driver): del driver.owner", ["driver"]),
        ("def f(driver):\n    for driver.tick in ticks: pass", ["driver"]),
        ("def f(driver): setattr(driver, 'a', 1)", ["driver"]),
    ],
)
def test_every_kind_of_assignment_is_seen(source: str, found: list[str]) -> None:
    assert find_outside_assignments(source) == found
