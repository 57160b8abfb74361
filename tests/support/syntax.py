"""Syntax trees of sources. Many tests look through the whole package: each file is parsed and walked once."""

from __future__ import annotations

import ast
from functools import cache


@cache
def tree_of(source: str) -> ast.Module:
    """Return the tree of a source, which nobody changes."""
    return ast.parse(source)


@cache
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return all nodes of a tree, in the order of `ast.walk`."""
    return tuple(ast.walk(tree))
