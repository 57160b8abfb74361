"""Types have one home: nobody beside it reads their texts, keeps tables of them, or makes one of several."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.boundary.test_import_edges import PACKAGE, imports
from watersmeet.types.sql_type import INTEGERS

HOME = "types/"
ORACLE = "testing/oracle/"
"""It shares nothing with what it judges."""

TABLES = {
    "front/text/place.py": "names that people may have meant",
    "engine/spark/sources/files/parquet_types.py": "as which types Spark reads columns of Parquet files",
}
"""Modules that list types, and why."""

WRITTEN = {"kernel/aggregate.py": "types of DuckDB's"}
"""Modules that write a DECIMAL of digits, and why."""

READ = re.compile(r"""DECIMAL\\\(|(ARRAY|MAP|STRUCT)\\?<.*[*+]|startswith\(\(?["'](DECIMAL|INTERVAL )""")
WROTE = re.compile(r"""f["'][^"']*DECIMAL\(\{(?!digits\},\{scale\}\)")""")


@cache
def modules() -> tuple[tuple[str, str, ast.AST], ...]:
    """Name, text and tree of each."""
    named = [(file.relative_to(PACKAGE).as_posix(), file) for file in sorted(PACKAGE.rglob("*.py"))]
    texts = [(name, file.read_text("utf-8")) for name, file in named if not name.startswith((HOME, ORACLE))]
    return tuple((name, text, ast.parse(text)) for name, text in texts)


def lists_of_types(tree: ast.AST) -> Iterator[int]:
    """Lines of tuples, lists, sets and dicts by all integers."""
    for node in ast.walk(tree):
        inner = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
        named = {each.value for each in inner if isinstance(each, ast.Constant)}
        if named >= set(INTEGERS):
            yield node.lineno


def definitions(tree: ast.AST) -> set[str]:
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_only_the_grammar_reads_the_text_of_a_type():
    assert [name for name, source, _ in modules() if READ.search(source)] == []


def test_a_decimal_of_digits_is_written_in_one_place():
    found = {name for name, source, _ in modules() if WROTE.search(source)}
    assert found - {"front/query/operators.py"} == set(WRITTEN)  # which shows what is no type


def test_there_is_one_table_of_types():
    assert {name for name, _, tree in modules() if any(lists_of_types(tree))} == set(TABLES)


def test_each_rule_has_one_home():
    rules = {"common_type", "common_of", "tightest_type", "result_type", "parse_type", "sql_type"}
    assert [name for name, _, tree in modules() if rules & definitions(tree)] == []


def test_tasks_load_no_grammar_of_sql():
    """Of types only what reads intervals out of a query's trees knows sqlglot."""
    knows = {
        file.name
        for file in (PACKAGE / HOME).glob("*.py")
        if any(name.startswith("sqlglot") for _, name, _ in imports(ast.parse(file.read_text())))
    }
    assert knows == {"intervals.py"}
    users = {name for name, source, _ in modules() if "watersmeet.types.intervals" in source}
    assert {name.split("/")[0] for name in users} <= {"front", "plan", "engine"}
    assert not any(name.startswith(("engine/tasks", "engine/nodes", "engine/messages")) for name in users)


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


def test_a_second_table_is_seen():
    assert list(lists_of_types(ast.parse('_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}')))
    assert WROTE.search('return f"DECIMAL({precision},{max(scale, 0)})"')
