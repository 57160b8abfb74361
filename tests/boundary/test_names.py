"""Names say what they hold: a column, a probe row, an option, not what was done to it."""

from __future__ import annotations

import ast

from tests.support.package_paths import PACKAGE, find_paths
from tests.support.syntax import nodes_of, tree_of

EMPTY = {"found", "each", "known"}
"""Words that fit any value, and so say nothing of one."""


def names(tree: ast.AST) -> list[str]:
    """Variables, parameters, keywords, attributes and functions, as often as they are mentioned."""
    fields = ("id", "arg", "attr", "name")
    mentioned = (getattr(node, field, None) for node in nodes_of(tree) for field in fields)
    return [name for name in mentioned if isinstance(name, str)]


def test_names_are_no_empty_words():
    uses = {
        str(path.relative_to(PACKAGE)): sorted(EMPTY.intersection(names(tree_of(path.read_text()))))
        for path in find_paths(PACKAGE, "**/*.py")
    }
    assert {path: words for path, words in uses.items() if words} == {}, "say what the value is"


def test_every_kind_of_name_is_seen():
    source = "def found(each): return [known.each for known in each if g(found=1)]"
    assert sum(name in EMPTY for name in names(tree_of(source))) == 7
