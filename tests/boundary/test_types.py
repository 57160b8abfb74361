"""Types have one home: nobody beside it reads their texts, keeps tables of them, or makes one of several."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.boundary.test_import_edges import imports
from tests.support.package_paths import PACKAGE, find_paths
from tests.support.syntax import nodes_of, tree_of
from watersmeet.types import intervals
from watersmeet.types.sql_type import INTEGER_BITS, PLAIN

HOME = find_paths(PACKAGE, "types/**/*.py")

TABLES = {
    "parser/text/source_position.py": "names that people may have meant",
    "sinks/postgres/target.py": "which of PostgreSQL's types each is",
    "diff/duckdb_sql.py": "which of DuckDB's types each is",
    "runtime/spark/catalog/result_types.py": "with which functions are tried",
}
"""Modules that list types, and why."""

NAMES = {*map(str, PLAIN), "DECIMAL", "INTERVAL", "ARRAY", "MAP", "STRUCT", "VOID", "UNKNOWN"}
COMPARED = {
    "parser/query/joins.py": "TIMESTAMP is a word of AS OF there",
    "spec/literals.py": "words before literals, of which not all are types",
    "testing/cases.py": "texts of case files, which are read by themselves",
    "diff/bags.py": "types of DuckDB's",
    "cli/diff/outputs.py": "types of DuckDB's",
}
"""Modules that compare texts with names of types, and why. Not counted are `SqlType.name` and families."""

KEPT = {
    "kernel/aggregate.py": "types of DuckDB's",
    "diff/bags.py": "types of DuckDB's",
    "diff/duckdb_sql.py": "types of DuckDB's",
    "runtime/spark/sources/scan.py": "what Spark answers, for Spark's SQL",
    **{
        f"sinks/postgres/{module}.py": "types of PostgreSQL's"
        for module in ("copy", "publishing", "sink", "staging", "target")
    },
}
"""Modules in which something that is called a type is a text, and why."""

WRITTEN = {"kernel/aggregate.py": "types of DuckDB's"}
"""Modules that write a DECIMAL of digits, and why."""

READ = re.compile(r"""DECIMAL\\\(|(ARRAY|MAP|STRUCT)\\?<.*[*+]|startswith\(\(?["'](DECIMAL|INTERVAL )""")
WROTE = re.compile(r"""f["'][^"']*DECIMAL\(\{(?!digits\},\{scale\}\)")""")


@cache
def modules() -> tuple[tuple[str, str, ast.AST], ...]:
    """Name, text and tree of each."""
    others = [file for file in find_paths(PACKAGE, "**/*.py") if file not in HOME]
    texts = [(file.relative_to(PACKAGE).as_posix(), file.read_text("utf-8")) for file in others]
    return tuple((name, text, tree_of(text)) for name, text in texts)


def lists_of_types(tree: ast.AST) -> Iterator[int]:
    """Lines of tuples, lists, sets and dicts by all integers."""
    for node in nodes_of(tree):
        inner = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
        named = {each.value for each in inner if isinstance(each, ast.Constant)}
        if named >= set(INTEGER_BITS):
            yield node.lineno


def compared_texts(tree: ast.AST) -> Iterator[int]:
    """Lines where something is compared with the name of a type, looked for among such, or by them."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Compare) and not _is_of_names(node):
            sides = [node.left, *node.comparators]
            if any(_names_a_type(side) for side in sides):
                yield node.lineno
        if isinstance(node, ast.BinOp) and any(
            isinstance(side, ast.Set) and _names_a_type(side) for side in (node.left, node.right)
        ):
            yield node.lineno


def _is_of_names(node: ast.Compare) -> bool:
    """Of `SqlType.name`, which is a text, or of families (`spec.functions`)."""
    text = ast.unparse(node)
    return re.search(r"\.name\b|\bfamil(y|ies)\b|\bfamily_of\(", text) is not None and ".upper()" not in text


def _names_a_type(node: ast.AST) -> bool:
    inner = getattr(node, "elts", None)
    if isinstance(inner, list):
        return any(map(_names_a_type, inner))
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    return node.value in NAMES or node.value.startswith(
        ("DECIMAL(", "ARRAY<", "MAP<", "STRUCT<", "INTERVAL ")
    )


def find_text_types(tree: ast.AST) -> Iterator[int]:
    """Lines of fields, arguments and results that are called types, and are texts."""
    for node in nodes_of(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            named: list[tuple[str, ast.expr | None]] = [(node.target.id, node.annotation)]
        elif isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            named = [*((each.arg, each.annotation) for each in arguments), (node.name, node.returns)]
        else:
            continue
        for name, annotation in named:
            if annotation is not None and CALLED.fullmatch(name) and TEXT.search(ast.unparse(annotation)):
                yield node.lineno


CALLED = re.compile(r"(.*_)?types?(_|_of)?")
TEXT = re.compile(r"^str\b|\[str\]|, str\]|\bstr, \.\.\.")


def definitions(tree: ast.AST) -> set[str]:
    return {node.name for node in nodes_of(tree) if isinstance(node, ast.FunctionDef)}


def test_only_the_grammar_reads_the_text_of_a_type():
    assert [name for name, source, _ in modules() if READ.search(source)] == []


def test_a_decimal_of_digits_is_written_in_one_place():
    found = {name for name, source, _ in modules() if WROTE.search(source)}
    assert found == set(WRITTEN)


def test_there_is_one_table_of_types():
    assert {name for name, _, tree in modules() if any(lists_of_types(tree))} == set(TABLES)


def test_types_are_compared_as_values():
    assert {name for name, _, tree in modules() if any(compared_texts(tree))} == set(COMPARED)


def test_types_are_annotated_as_values():
    assert {name for name, _, tree in modules() if any(find_text_types(tree))} == set(KEPT)


def test_each_rule_has_one_home():
    rules = {
        *("common_type", "common_of", "tightest_type", "parse_type", "sql_type"),
        *("result_type", "computed_type", "result_of"),
    }
    assert [name for name, _, tree in modules() if rules & definitions(tree)] == []
    at_home = set().union(*(definitions(tree_of(file.read_text())) for file in HOME))
    assert rules - at_home == set(), "no such functions: correct the names"


def test_tasks_load_no_grammar_of_sql():
    """Of types only what reads intervals out of a query's trees knows sqlglot."""
    knows = {
        file.name
        for file in HOME
        if any(name.startswith("sqlglot") for _, name, _ in imports(tree_of(file.read_text())))
    }
    assert knows == {Path(intervals.__file__).name}
    users = {PACKAGE / name for name, source, _ in modules() if intervals.__name__ in source}
    asking = ("parser", "expressions", "plan", "local", "runtime", "relations", "whatif", "diff", "cli")
    assert users <= {*find_paths(PACKAGE, *(f"{part}/**/*.py" for part in asking))}
    tasks = ("runtime/tasks", "runtime/operators", "runtime/messages")
    assert not users & {*find_paths(PACKAGE, *(f"{part}/**/*.py" for part in tasks))}


@pytest.mark.parametrize(
    "source",
    [
        '_DECIMAL = re.compile(r"DECIMAL\\((\\d+),(\\d+)\\)")',
        're.fullmatch(r"ARRAY<(.*)>", type_)',
        'type_.startswith("DECIMAL")',
        'kind.startswith(("INTERVAL ", "DATE"))',
    ],
)
def test_a_second_reader_is_seen(source):
    assert READ.search(source)


@pytest.mark.parametrize(
    "source",
    [
        'column.type == "BIGINT"',
        'found.type not in ("STRING", "BINARY")',
        '{each.type for each in found} == {"DATE"}',
        'frozenset(PLAIN) - {"FLOAT"}',
        'kind != "DECIMAL(20,0)"',
        '"DATE" in kinds',
        'expr.name.upper() == "TIMESTAMP"',
    ],
)
def test_a_text_that_is_compared_is_seen(source):
    assert list(compared_texts(tree_of(source)))


@pytest.mark.parametrize(
    "source",
    [
        "class Column:\n    type: str",
        "types: dict[str, str] = {}",
        "def widened(found: Exact, type_: str) -> Exact: ...",
        "def type_of(expr: Expr) -> str | None: ...",
        "types: tuple[str, ...] = ()",
    ],
)
def test_type_annotated_as_text_is_found(source):
    assert list(find_text_types(tree_of(source)))


@pytest.mark.parametrize("source", ['type_.name == "DECIMAL"', 'family == "MAP"', "column.type == BIGINT"])
def test_what_is_no_text_of_a_type_is_let_be(source):
    assert not list(compared_texts(tree_of(source)))


def test_a_second_table_is_seen():
    assert list(lists_of_types(tree_of('_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}')))
    assert WROTE.search('return f"DECIMAL({precision},{max(scale, 0)})"')
