"""Tests patch public names only: a private one is nobody's promise, and changes with the code around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.conftest import REPOSITORY
from tests.support.package_paths import find_paths
from tests.support.syntax import nodes_of, tree_of

PATCHES = {"setattr", "delattr", "setitem", "delitem", "object", "dict", "multiple", "patch"}
"""Functions of pytest and of `unittest.mock` that replace what their first argument names."""
READS = {"getattr", "hasattr"}


def is_private(name: str) -> bool:
    return name.isidentifier() and name.startswith("_") and name.strip("_") != "" and name[:2] != "__"


def private_in(node: ast.AST) -> list[str]:
    """Private names on the way to an object; a test's own object may have some, as ``self._x``."""
    return [
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and is_private(part.attr)
        and not (isinstance(part.value, ast.Name) and part.value.id in ("self", "cls"))
    ]


def private_parts(node: ast.AST) -> list[str]:
    """Private names in a text such as ``watersmeet.kernel.duckdb._close``."""
    text = node.value if isinstance(node, ast.Constant) else None
    return [part for part in text.split(".") if is_private(part)] if isinstance(text, str) else []


def find_private_patches(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of every patch of a private name."""
    for node in nodes_of(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            names = private_in(node)
        elif isinstance(node, ast.Call) and node.args:
            function, (owner, *more) = ast.unparse(node.func).split(".")[-1], node.args
            if function in PATCHES:
                names = [*private_in(owner), *private_parts(owner)]
            if function not in READS and not isinstance(owner, ast.Constant):
                names += [name for argument in more[:1] for name in private_parts(argument)]
        yield from ((node.lineno, name) for name in names)


def test_no_test_patches_a_private_name():
    places = [
        f"{path.relative_to(REPOSITORY)}:{line}: {name}"
        for path in find_paths(REPOSITORY, "tests/**/*.py")
        for line, name in find_private_patches(tree_of(path.read_text()))
    ]
    assert places == [], "observe what comes out, use a parameter, or make the name public"


@pytest.mark.parametrize(
    "source",
    [
        "monkeypatch.setattr(module, '_x', 1)",
        "monkeypatch.setattr(\n    module,\n    '_x',\n    1,\n    raising=False,\n)",
        "monkeypatch.setattr('watersmeet.kernel.duckdb._close', 1)",
        "monkeypatch.setattr(sink._table, 'look', 1)",
        "monkeypatch.delattr(module, '_x')",
        "monkeypatch.setitem(module._x, 1, 2)",
        "with patch.object(module, '_x'): ...",
        "with patch('watersmeet.kernel.duckdb._close'): ...",
        "after(Sink, '_x', stop)",
        "job._x = 1",
        "job._x, job.y = 1, 2",
        "self.job._x += 1",
        "del job._x",
        "sink._x[1] = 2",
    ],
)
def test_a_patch_of_a_private_name_is_seen(source):
    assert [name for _, name in find_private_patches(tree_of(source))] in (["_x"], ["_table"], ["_close"])


def test_other_names_are_no_patches():
    source = "monkeypatch.setattr(module, 'x', 1)\nself._x = 1\nself._x.y = 1\ngetattr(job, '_x')\nx = job._x"
    assert list(find_private_patches(tree_of(source))) == []
