"""What the architecture page keeps out of the parts, beside other parts: folders, clocks, arrays, rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.boundary.test_import_edges import ALLOWED, module_name, part_of
from tests.support.package_paths import PACKAGE, find_paths
from tests.support.syntax import nodes_of, tree_of

FOLDERS = {"os.walk", ".listdir", ".scandir", ".iterdir", ".glob", ".iglob", ".rglob"}
"""Calls that look at what a folder holds; with a dot before it, a method of whatever."""
CLOCKS = {
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "monotonic",
}
FILES = {"open", "io.open", ".read_text", ".read_bytes", ".write_text", ".write_bytes", ".unlink", ".mkdir"}
ARRAYS = {"pyarrow", "numpy", "pandas", "duckdb"}
TREES = {"sqlglot"}

PURE = {"errors", "conditions", "event_time", "measure", "names"}
BENEATH = {"kernel", "watermark"}
TASKS = {"runtime.tasks", "runtime.operators"}
DRIVER = {"runtime.messages", "runtime.coordinator"}
TEXT = {"spec", "parser", "plan"}

OUT: dict[str, tuple[set[str], set[str]]] = {
    "a folder's contents": (BENEATH | TASKS | DRIVER | PURE | {"spec", "expressions", "plan"}, FOLDERS),
    "a clock": (BENEATH | TASKS | DRIVER | PURE | TEXT | {"expressions", "state"}, CLOCKS),
    "files": (BENEATH | TASKS | DRIVER | PURE | {"expressions", "plan"}, FILES),
}
"""What must not be called, and where."""
LIBRARIES_OUT: dict[str, tuple[set[str], set[str]]] = {
    "arrays": ({"errors", "conditions", "names", "spec", "parser"}, ARRAYS),
    "expressions": (TASKS | DRIVER | BENEATH | {"state"}, TREES),
}


def find_calls(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Line, last name, last two names of what is called."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.lineno, node.func.id, node.func.id
            elif isinstance(node.func, ast.Attribute):
                parts = ast.unparse(node.func).split(".")
                yield node.lineno, parts[-1], ".".join(parts[-2:])


def trespasses(source: str, module: str) -> list[str]:
    part, tree = part_of(module), tree_of(source)
    found = []
    for line, last, two in find_calls(tree):
        for what, (parts, names) in OUT.items():
            if part in parts and (f".{last}" in names or two in names):
                found.append(f"{what}: {two} ({module}:{line})")
    for node in nodes_of(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for what, (parts, libraries) in LIBRARIES_OUT.items():
            if part in parts and any(name.split(".")[0] in libraries for name in names):
                found.append(f"{what}: {', '.join(names)} ({module}:{node.lineno})")
    return found


def test_nothing_enters_that_must_not():
    found = []
    for file in find_paths(PACKAGE, "**/*.py"):
        found += trespasses(file.read_text(), module_name(file))
    assert found == []


def test_every_guarded_part_is_a_part_of_the_package():
    """`test_import_edges` compares ALLOWED with the package."""
    guarded = set.union(*(parts for parts, _ in (*OUT.values(), *LIBRARIES_OUT.values())))
    assert guarded - set(ALLOWED) == set(), "the package has no such parts"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("watersmeet.runtime.tasks.side", "import os\nos.scandir('/')"),
        ("watersmeet.runtime.operators.join", "import pathlib\n[*pathlib.Path('/').rglob('*')]"),
        ("watersmeet.runtime.coordinator.driver", "import time\nnow = time.time()"),
        ("watersmeet.kernel.match.pairs", "open('x')"),
        ("watersmeet.runtime.tasks.side", "def f():\n    from sqlglot import exp"),
        ("watersmeet.plan.planner", "from datetime import datetime\ndatetime.now()"),
    ],
)
def test_what_enters_is_seen(module, source):
    assert len(trespasses(source, module)) == 1
