"""There is one list of the kinds of node, and nobody beside it asks a node what kind it is.

What is asked of a plan node is a property of it, or a function that dispatches on it; what is asked of a
shape is a property of that. A test on the class is where the next kind of node would be forgotten.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import cache

import pytest

from tests.boundary.test_import_edges import module_name
from tests.support.package_paths import PACKAGE, find_paths
from tests.support.syntax import nodes_of, tree_of
from watersmeet import plan as planner
from watersmeet.plan.checks.unbounded_state import _check
from watersmeet.plan.conditions.placement import _push_down
from watersmeet.plan.identity.fingerprint import _by_kind
from watersmeet.plan.model.nodes import NodePlan
from watersmeet.plan.nodes.tree import QueryNode
from watersmeet.runtime.coordinator.operators import registry
from watersmeet.runtime.coordinator.operators.base import NodeDriver
from watersmeet.runtime.coordinator.operators.registry import NODE_KINDS
from watersmeet.runtime.messages.shapes import NodeShape

MOST_IN_PLAN = 6
"""How many tests on the class of a node the planner has: to be lowered."""


def kinds(base: type) -> set[type]:
    """The classes beneath ``base`` of which there are objects: those that nothing inherits from."""
    found = {each for sub in base.__subclasses__() for each in kinds(sub)}
    return found or {base}


def family(base: type) -> set[type]:
    return {base}.union(*(family(sub) for sub in base.__subclasses__()))


NAMES = {each.__name__ for base in (NodePlan, NodeShape, QueryNode) for each in family(base) - {base}}


def names_in(node: ast.AST) -> set[str]:
    """Kinds of node that an expression names."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return NAMES & (found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)})


def class_tests(tree: ast.AST) -> Iterator[int]:
    """Lines that ask for the class of a node: by isinstance, by ``type(node) is``, by a pattern."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            if names_in(node.args[1]):
                yield node.lineno
        elif isinstance(node, ast.Compare) and any(
            isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "type"
            for part in (node.left, *node.comparators)
        ):
            if names_in(node):
                yield node.lineno
        elif isinstance(node, ast.MatchClass) and names_in(node.cls):
            yield node.cls.lineno


def lists_of_kinds(tree: ast.AST) -> Iterator[int]:
    """Lines of dicts by, and of rows beginning with, several kinds of node: lists of what there is."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Dict):
            firsts: list[ast.AST | None] = [*node.keys]
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            calls = (each for each in node.elts if isinstance(each, ast.Call | ast.Tuple))
            firsts = [
                next(iter(each.args if isinstance(each, ast.Call) else each.elts), None) for each in calls
            ]
        else:
            continue
        named = [each.id for each in firsts if isinstance(each, ast.Name)]
        if len(NAMES.intersection(named)) > 1:
            yield node.lineno


@cache
def modules() -> dict[str, ast.Module]:
    return {
        module_name(file): tree_of(file.read_text(encoding="utf-8"))
        for file in find_paths(PACKAGE, "**/*.py")
    }


def test_every_kind_of_node_is_in_the_registry_once():
    plans = [kind.plan for kind in NODE_KINDS]
    assert len(plans) == len(set(plans))
    assert set(plans) == kinds(NodePlan)
    assert {kind.shape for kind in NODE_KINDS} == kinds(NodeShape)


def test_there_is_one_registry():
    found = {name: list(lists_of_kinds(tree)) for name, tree in modules().items()}
    stored_names = "watersmeet.plan.identity.fingerprint"  # a row for every class that is stored
    assert {name: len(lines) for name, lines in found.items() if lines} == {
        registry.__name__: 1,
        stored_names: 1,
    }


def test_nobody_outside_of_the_planner_asks_for_the_class_of_a_node():
    found = {name: list(class_tests(tree)) for name, tree in modules().items()}
    outside = {
        name: lines for name, lines in found.items() if lines and not name.startswith(f"{planner.__name__}.")
    }
    assert outside == {}
    inside = sum(map(len, found.values()))
    assert inside <= MOST_IN_PLAN, "ask for a property, or dispatch"
    assert inside == MOST_IN_PLAN, "there are fewer: lower MOST_IN_PLAN"


@pytest.mark.parametrize("kind", NODE_KINDS, ids=lambda kind: kind.plan.__name__)
def test_a_kind_is_whole(kind):
    """Its driver is one; workers find its task by name; somebody said on what its state depends."""
    assert isinstance(kind.driver, NodeDriver)
    module = sys.modules[kind.task.__module__]
    assert module.__name__.startswith("watersmeet.runtime.operators.")
    assert getattr(module, kind.task.__name__) is kind.task
    assert kind.driver.build_shape.__annotations__["return"] == kind.shape.__name__
    assert _by_kind.dispatch(kind.plan) is not _by_kind.dispatch(NodePlan)


@pytest.mark.parametrize("kind", sorted(kinds(QueryNode), key=lambda kind: kind.__name__))
@pytest.mark.parametrize("rule", [_check, _push_down], ids=["what is kept for ever", "where filters go"])
def test_the_planner_has_a_rule_for_every_kind(rule, kind):
    """Its default refuses to guess."""
    assert rule.dispatch(kind) is not rule.dispatch(QueryNode)


def test_tasks_load_no_plan():
    """In an interpreter of its own: what a worker imports to run any kind of node."""
    tasks = sorted({kind.task.__module__ for kind in NODE_KINDS} | {"watersmeet.runtime.operators.task"})
    code = (
        f"import sys, {', '.join(tasks)};"
        f"print([n for n in sys.modules if n.startswith({planner.__name__!r})])"
    )
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert (run.returncode, run.stdout) == (0, "[]\n"), run.stderr


def test_no_field_of_a_plan_hides_a_property_of_its_base():
    """A dataclass takes an inherited property for the default of a field without one."""
    for kind in family(NodePlan) | family(NodeShape):
        assert not [f.name for f in fields(kind) if isinstance(f.default, property)]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("isinstance(node, JoinPlan)", True),
        ("isinstance(shape, shapes.LookupShape | None)", True),
        ("type(node) is PassPlan", True),
        ("match node:\n    case AggregatePlan(size=1): pass", True),
        ("isinstance(branch, FeedPlan)", False),
        ("query.every(JoinPlan)", False),
    ],
)
def test_a_question_for_the_class_is_seen(source, found):
    assert bool(list(class_tests(tree_of(source)))) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("KINDS = {JoinPlan: 1, PassPlan: 2}", True),
        ("KINDS = (Kind(JoinShape, f), Kind(PassShape, g))", True),
        ("KINDS = [(JoinPlan, f), (PassPlan, g)]", True),
        ("KINDS = {'join': 1}", False),
        ("f(JoinPlan, PassPlan)", False),
    ],
)
def test_a_second_registry_is_seen(source, found):
    assert bool(list(lists_of_kinds(tree_of(source)))) == found
