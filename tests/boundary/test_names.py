"""Names say what they hold: a column, a probe row, an option, not what was done to it."""

from __future__ import annotations

import ast
from collections import Counter

from tests.boundary.test_import_edges import PACKAGE

EMPTY = {"found", "each", "known"}
"""Words that fit any value, and so say nothing of one."""
AT_MOST = {"front": 471, "plan": 917, "types": 89}
"""Uses that are left per folder; a folder that is not listed has none."""


def names(tree: ast.AST) -> list[str]:
    """Variables, parameters, keywords, attributes and functions, as often as they are mentioned."""
    fields = ("id", "arg", "attr", "name")
    mentioned = (getattr(node, field, None) for node in ast.walk(tree) for field in fields)
    return [name for name in mentioned if isinstance(name, str)]


def uses() -> Counter[str]:
    """How often the package's folders (and modules beside them) use an empty word."""
    counts: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        folder = path.relative_to(PACKAGE).parts[0]
        counts[folder] += sum(name in EMPTY for name in names(ast.parse(path.read_text())))
    return counts


def test_names_are_no_empty_words():
    too_many = {folder: count for folder, count in uses().items() if count > AT_MOST.get(folder, 0)}
    assert not too_many, f"{', '.join(sorted(EMPTY))}: say what the value is"


def test_every_kind_of_name_is_seen():
    source = "def found(each): return [known.each for known in each if g(found=1)]"
    assert sum(name in EMPTY for name in names(ast.parse(source))) == 7
