"""Modules that are imported or named of the package are there, also in functions, strings and comments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support.package_paths import PACKAGE, REPOSITORY, find_paths
from tests.support.syntax import nodes_of, tree_of

FOLDERS = ("src", "tests", "examples", "benchmarks", "docs")
NAME = re.compile(r"(?<![\w./@-])watersmeet(?:\.[A-Za-z_]\w*){2,}")
"""A module of the package, or a name in one. With one dot only, loggers and settings look the same."""


def module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def collect_defined_names(tree: ast.Module) -> set[str]:
    """All names that a module has, those of its functions' bodies among them: a few too many do no harm."""
    names: set[str] = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def nowhere(source: str, modules: Mapping[str, set[str]]) -> Iterator[str]:
    """What a source imports of the package that is not there."""
    for node in nodes_of(tree_of(source)):
        wanted: list[tuple[str, str | None]] = []
        if isinstance(node, ast.Import):
            wanted = [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            wanted = [(node.module, alias.name) for alias in node.names]
        for module, name in wanted:
            if module.partition(".")[0] != "watersmeet":
                continue
            there = modules.get(module)
            if there is None:
                yield module
            elif name is not None and f"{module}.{name}" not in modules and not there & {name, "__getattr__"}:
                yield f"{module}.{name}"


def find_unknown_names(text: str, modules: Mapping[str, set[str]]) -> list[str]:
    """Return the modules, and names in modules, that a text mentions and the package lacks."""
    return [name for name in NAME.findall(text) if not _is_there(name, modules)]


def _is_there(name: str, modules: Mapping[str, set[str]]) -> bool:
    """Return whether a name is a module, or begins with one and what that defines."""
    module, _, attribute = name.rpartition(".")
    while module and module not in modules:
        module, _, attribute = module.rpartition(".")
    return name in modules or attribute in modules.get(module, ())


@cache
def modules_of_the_package() -> dict[str, set[str]]:
    files = find_paths(PACKAGE, "**/*.py")
    return {module_name(file): collect_defined_names(tree_of(file.read_text())) for file in files}


def test_imports_lead_somewhere():
    modules = modules_of_the_package()
    files = find_paths(REPOSITORY, *(f"{folder}/**/*.py" for folder in FOLDERS))
    found = [
        f"{file.relative_to(REPOSITORY)}: {name}"
        for file in files
        for name in nowhere(file.read_text(), modules)
    ]
    assert not found, "\n".join(found)


def test_names_in_texts_lead_somewhere():
    modules = modules_of_the_package()
    files = find_paths(REPOSITORY, *(f"{folder}/**/*.py" for folder in FOLDERS))
    found = [
        f"{file.relative_to(REPOSITORY)}: {name}"
        for file in files
        if file != Path(__file__)
        for name in find_unknown_names(file.read_text(), modules)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("watersmeet.here.gone", ["watersmeet.here.gone"]),
        ("see `watersmeet.moved.there`.", ["watersmeet.moved.there"]),
        ("watersmeet.here.Class.method is at watersmeet.here.there", []),
        ("watersmeet.logger", []),
    ],
)
def test_a_name_that_leads_nowhere_is_seen(text, expected):
    modules = {"watersmeet": {"__getattr__"}, "watersmeet.here": {"there", "Class"}}
    assert find_unknown_names(text, modules) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f():\n    from watersmeet.moved import g", ["watersmeet.moved"]),
        ("from watersmeet.here import gone", ["watersmeet.here.gone"]),
        ("import watersmeet.moved", ["watersmeet.moved"]),
        ("from watersmeet.here import there\nfrom watersmeet import here\nimport os.path", []),
    ],
)
def test_one_that_leads_nowhere_is_seen(source, expected):
    modules = {"watersmeet": set(), "watersmeet.here": {"there"}}
    assert list(nowhere(source, modules)) == expected
