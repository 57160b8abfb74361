"""What is imported of the package is there, also by imports within functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.package_paths import PACKAGE, REPOSITORY, find_paths

FOLDERS = ("src", "tests", "examples", "benchmarks", "docs")


def module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def defined(tree: ast.Module) -> set[str]:
    """All names that a module has, those of its functions' bodies among them: a few too many do no harm."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def nowhere(source: str, modules: Mapping[str, set[str]]) -> Iterator[str]:
    """What a source imports of the package that is not there."""
    for node in ast.walk(ast.parse(source)):
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


def modules_of_the_package() -> dict[str, set[str]]:
    files = find_paths(PACKAGE, "**/*.py")
    return {module_name(file): defined(ast.parse(file.read_text())) for file in files}


def test_imports_lead_somewhere():
    modules = modules_of_the_package()
    files = find_paths(REPOSITORY, *(f"{folder}/**/*.py" for folder in FOLDERS))
    found = [
        f"{file.relative_to(REPOSITORY)}: {name}"
        for file in files
        for name in nowhere(file.read_text(), modules)
    ]
    assert not found, "\n".join(found)


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
