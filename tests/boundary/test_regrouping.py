"""Tables become batches, and batches become one, in `kernel.batches` alone: whoever does it by hand may take
the first of several parts for all of them, for Arrow splits a column at 2 GiB."""

from __future__ import annotations

import ast

from tests.support.package_paths import PACKAGE, find_paths
from tests.support.syntax import nodes_of, tree_of

HOME = "kernel/batches.py"
PARTS = ("kernel", "state", "runtime", "sinks", "observe", "cli")

RAW = {
    "combine_chunks",
    "to_batches",
    "chunk",
    "iterchunks",
    "chunks",
    "concat_arrays",
    "concat_batches",
    "concat_tables",
    "get_batch",
    "unify_dictionaries",
}


def raw_uses(text):
    """Lines and names of raw calls in a module's text."""
    return [
        (node.lineno, node.attr)
        for node in nodes_of(tree_of(text))
        if isinstance(node, ast.Attribute) and node.attr in RAW
    ]


def test_raw_calls_are_seen():
    assert raw_uses("table.combine_chunks().to_batches()[0]") == [(1, "to_batches"), (1, "combine_chunks")]


def test_rows_are_regrouped_in_one_place():
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in find_paths(PACKAGE, *(f"{part}/**/*.py" for part in PARTS))
        if str(path.relative_to(PACKAGE)) != HOME
        for line, name in raw_uses(path.read_text())
    ]
    assert not found, f"use {HOME} instead: {found}"
    assert raw_uses((PACKAGE / HOME).read_text())
