"""Names and texts are in the field's English. Counts of words that are not may only fall.

A name is a riddle if it is a participle alone, or before a preposition (``built``, ``left_from``), or has a
word of `VAGUE`. `PHRASES` are turns that readers had to decode. Both are aids: a name that passes may still
be obscure. When a figure falls, lower its entry in `CEILINGS` with the change.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.package_paths import PACKAGE, REPOSITORY, find_paths
from tests.support.syntax import nodes_of, tree_of

VAGUE = {
    *("told", "said", "asked", "kept", "held", "taken", "gone", "put"),
    *("heard", "elsewhere", "beneath", "beside", "behind", "anew", "meanwhile"),
}
PARTICIPLE = re.compile(
    r"(made|built|given|left|met|sent|found|begun|done|seen|shown|known|ran|[a-z]{3,}ed)"
    r"(_(on|from|of|by|in|at|to|as|again|before|after|first|there|so|with|for))?"
)
NOT_PARTICIPLES = {"need", "feed", "seed", "embed", "shed", "speed", "exceed", "proceed"}
ADJECTIVES = {
    *("unbounded", "nested", "reused", "retained", "sampled", "shared", "indexed", "sorted", "closed"),
}
PHRASES = re.compile(
    r"\b(is told|are told|was told|told of|tells of|is said|are said|so many|so much as|of whom|comes? to"
    r"|goes by|that is no|that are no|by then|in whatever|in words|such a one|is asked|are asked|it is looked"
    r"|for it is"
    r"|beneath|behind it|put out|at the most|not told|the very|others than)\b",
    re.IGNORECASE,
)
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
CEILINGS = {
    "modules with riddles for names": 0,
    "functions with riddles for names": 120,
    "functions of tests with riddles for names": 164,
    "class names that stand for several things": 20,
    "phrases to decode, in docstrings": 77,
    "phrases to decode, in pages": 2,
}
SLACK = 10
"""How far a figure may be below its ceiling before that must be lowered."""


def is_riddle(name: str) -> bool:
    bare = name.strip("_").lower()
    if bare in NOT_PARTICIPLES | ADJECTIVES:
        return False
    return bool(VAGUE & set(bare.split("_"))) or PARTICIPLE.fullmatch(bare) is not None


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    marks = (getattr(mark, "attr", getattr(mark, "id", "")) for mark in function.decorator_list)
    return bool({"property", "cached_property", "setter"} & set(marks))


def find_functions(folder: Path) -> Iterator[str]:
    """Yield the names of functions and methods; a property is a noun, and may be an adjective."""
    for path in find_paths(folder, "**/*.py"):
        for node in nodes_of(tree_of(path.read_text())):
            if isinstance(node, FUNCTION) and not is_property(node) and not node.name.startswith("__"):
                yield node.name


def find_class_names() -> Counter[str]:
    trees = (tree_of(path.read_text()) for path in find_paths(PACKAGE, "**/*.py"))
    return Counter(node.name for tree in trees for node in nodes_of(tree) if isinstance(node, ast.ClassDef))


def find_docstrings() -> Iterator[str]:
    for path in find_paths(PACKAGE, "**/*.py"):
        for node in nodes_of(tree_of(path.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTION)):
                yield ast.get_docstring(node) or ""


def find_prose() -> Iterator[str]:
    """Yield the pages without their code; generated ones and the changelog are left out."""
    for path in [*find_paths(REPOSITORY, "*.md"), *find_paths(REPOSITORY / "docs", "**/*.md")]:
        text = path.read_text(encoding="utf-8")
        if path.name != "CHANGELOG.md" and not text.lstrip().startswith("<!-- generated"):
            yield re.sub(r"```.*?```", " ", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def figures() -> dict[str, int]:
    return {
        "modules with riddles for names": sum(
            is_riddle(path.stem) for path in find_paths(PACKAGE, "**/*.py")
        ),
        "functions with riddles for names": sum(map(is_riddle, find_functions(PACKAGE))),
        "functions of tests with riddles for names": sum(
            map(is_riddle, find_functions(REPOSITORY / "tests"))
        ),
        "class names that stand for several things": sum(
            count > 1 and not name.startswith("_") for name, count in find_class_names().items()
        ),
        "phrases to decode, in docstrings": sum(len(PHRASES.findall(text)) for text in find_docstrings()),
        "phrases to decode, in pages": sum(len(PHRASES.findall(text)) for text in find_prose()),
    }


@pytest.mark.parametrize("figure", CEILINGS)
def test_riddles_only_become_fewer(figure: str, figures: dict[str, int]) -> None:
    ceiling = CEILINGS[figure]
    assert figures[figure] <= ceiling, "use the words of the glossary, or of Flink, Spark and Kafka"
    assert figures[figure] > ceiling - SLACK, f"lower the ceiling to {figures[figure]}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_joined", True),
        ("left_from", True),
        ("rows_told", True),
        ("joined_rows", False),
        ("feed", False),
        ("sorted", False),
        ("load_manifest", False),
    ],
)
def test_a_participle_alone_is_a_riddle(name: str, expected: bool) -> None:
    assert is_riddle(name) is expected
