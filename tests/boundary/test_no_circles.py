"""No module of the package imports one that imports it, by however long a way.

Imports inside of functions and under ``TYPE_CHECKING`` count: modules that name each other are one module.
"""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.boundary.test_import_edges import imports, module_name
from tests.support.package_paths import PACKAGE, find_paths
from tests.support.syntax import tree_of

FILES = {module_name(file): file for file in find_paths(PACKAGE, "**/*.py")}


def find_imported_modules(source: str, module: str, known: Mapping[str, object]) -> set[str]:
    """The modules of ``known`` that the source imports; of a package only itself, not all that is in it."""
    found = set()
    for _, name, _ in imports(tree_of(source)):
        found |= {name} & known.keys()
    return found - {module}


def circle(graph: Mapping[str, set[str]]) -> list[str] | None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_there_is_no_circle():
    graph = {
        name: find_imported_modules(file.read_text(encoding="utf-8"), name, FILES)
        for name, file in FILES.items()
    }
    assert sum(map(len, graph.values())) > len(FILES), "imports are seen"
    assert circle(graph) is None


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("from watersmeet.parser import statements", True),
        ("def f():\n    from watersmeet.parser.statements import parse_job", True),
        ("if TYPE_CHECKING:\n    from watersmeet.parser import statements", True),
        ("import watersmeet.errors", False),
    ],
)
def test_a_circle_is_seen(other, expected):
    sources = {
        "watersmeet.parser.statements": "from watersmeet.plan import planner",
        "watersmeet.plan.planner": other,
    }
    known = {**sources, "watersmeet.errors": ""}
    graph = {name: find_imported_modules(source, name, known) for name, source in sources.items()}
    assert (circle(graph) is not None) == expected
