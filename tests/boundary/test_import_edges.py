"""Who may import whom. The allow-list below is the picture in the architecture page, as code.

A part of the package is a folder or a module right under ``watersmeet``; ``runtime`` is several parts. A
part, an edge or a guarded library that is not listed here fails. Imports inside functions and
under ``TYPE_CHECKING`` count as well; the one exception is ``NAMED_IN_TYPES``.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.package_paths import PACKAGE, REPOSITORY, find_paths
from tests.support.syntax import nodes_of, tree_of

BASE = {
    *(
        "errors",
        "conditions",
        "durable_files",
        "deprecated_names",
        "event_time",
        "measure",
        "names",
        "regular_files",
        "time_texts",
    ),
    *("types", "zones"),
}
CORE = {"plan", "watermark", "kernel", "state"}
TASK_CORE = CORE - {"plan"}
TICK = {"runtime.messages", "runtime.tasks", "runtime.operators", "runtime.coordinator"}

ALLOWED: dict[str, set[str]] = {
    # what is asked
    "errors": set(),
    "conditions": {"event_time", "measure"},
    "durable_files": {"parallel"},
    "deprecated_names": set(),
    "event_time": {"errors"},
    "measure": {"names"},
    "names": set(),
    "regular_files": {"errors"},
    "time_texts": {"zones"},
    "types": {"errors"},
    "zones": set(),
    "parallel": set(),
    "postgres_server": {"errors"},  # its client: of sinks, and of state
    "spec": BASE,
    "parser": BASE | {"spec"},
    # how it is done: none of these knows the text of a job, an engine, or each other's neighbours
    "plan": BASE | {"spec", "expressions"},
    "watermark": BASE,
    "kernel": BASE,
    # what tasks compute as Spark does: from the text of an expression to its values
    "expressions": BASE | {"spec", "kernel"},
    "state": BASE | {"kernel", "watermark"},  # a manifest stores the tracker's states as they are
    "objects": BASE | {"parallel", "spec", "state", "postgres_server"},
    # one tick: what is said, and who says it. Tasks know no plan, no folder of files and no expression's text
    "runtime.messages": BASE | TASK_CORE | {"spec", "expressions"},
    "runtime.tasks": BASE | TASK_CORE | {"spec", "runtime.messages"},
    "runtime.operators": BASE | TASK_CORE | {"parallel", "spec", "runtime.messages", "runtime.tasks"},
    "runtime.coordinator": BASE
    | CORE
    | {"parallel", "spec", "expressions", "runtime.messages", "runtime.tasks", "runtime.operators"},
    # the one order of a tick's steps, on any engine
    "runtime.tick": BASE | {"plan", "runtime.coordinator", "runtime.messages"},
    # files as columns, as Spark reads them
    "runtime.files": BASE | {"spec", "expressions", "kernel", "state", "runtime.values"},
    "runtime.records": BASE | {"spec", "kernel"},  # from bytes to columns, by a schema
    "runtime.values": BASE | {"spec"},  # values of case files as Arrow, and back
    # the two places where it runs
    "runtime.local": BASE
    | {"spec", "expressions", "trace", "runtime.tick", "runtime.replay", "runtime.values", "runtime.files"}
    | TICK
    | CORE,
    "runtime.spark": BASE
    | {
        "parallel",
        "expressions",
        "objects",
        "spec",
        "sinks",
        "runtime.tick",
        "runtime.replay",
        "runtime.values",
        "runtime.files",
        "runtime.records",
    }
    | TICK
    | CORE,
    # a case file is a job's text and its steps: the one part of an engine that knows `parser`
    "runtime.replay": BASE | {"spec", "parser", "plan", "runtime.coordinator"},
    "trace": BASE | {"spec", "runtime.replay", "runtime.values"} | TICK | CORE,
    "sinks": BASE | {"parallel", "spec", "objects", "postgres_server"},
    # helpers for the command line and for tests; nothing of the above imports them
    "observe": BASE | {"spec", "plan"},
    # what is kept of past ticks, for people
    "history": BASE | {"spec", "plan", "state", "observe"},
    # what a browser shows of it; what became of rows it asks a process of the command line
    "page": BASE | {"watermark", "observe", "history", "spec", "state"},
    "testing": BASE | {"spec", "plan", "state", "sinks", "runtime.local", "runtime.values", "local"},
    # what packages with sinks, sources and functions of their own import
    "extensions": BASE | {"spec", "sinks"},
    # a sample of rows, judged by the rules of the engine: for the command line
    "whatif": BASE
    | {"spec", "expressions", "plan", "kernel", "state", "watermark"}
    | {"runtime.coordinator", "runtime.files", "runtime.tasks", "runtime.local"},
    # what a job has put out, and the batch answer of its queries: for the command line
    "diff": BASE | {"spec", "state"},
    # topics, looked at once more by the client of sinks: for the command line
    "topics": BASE | {"spec", "sinks"},
    # what became of rows: by the history, and by rows that were read again
    "why": BASE
    | {"spec", "expressions", "plan", "kernel", "state"}
    | {"runtime.coordinator", "runtime.local", "runtime.values", "history", "whatif"},
    "cli": BASE
    | {
        "spec",
        "parser",
        "plan",
        "kernel",
        "state",
        "trace",
        "runtime.coordinator",
        "runtime.files",
        "runtime.local",
        "runtime.records",
        "runtime.spark",
        "runtime.values",
        "sinks",
        "observe",
        "testing",
        "running",
        "objects",
        "pipelines",
        "history",
        "page",
        "whatif",
        "diff",
        "topics",
        "why",
        "watersmeet",  # its version
    },
    # a job's text to its end: what the command line and the public names share
    "running": BASE
    | {
        "spec",
        "parser",
        "plan",
        "runtime.coordinator",
        "runtime.spark",
        "sinks",
        "objects",
        "observe",
        "history",
        "page",
    },
    # the same in a thread of its own
    "background_job": BASE | {"spec", "plan", "observe", "running", "sinks"},
    # a job from calls instead of a text
    "relations": BASE | {"spec", "parser", "plan", "observe", "running", "background_job"},
    # joins as data, which make relations, and jobs over iterables
    "local": BASE
    | {"spec", "parser", "plan", "relations", "state", "objects", "runtime.local", "runtime.values"},
    # joins as data, of TOML too: relations from what a file or calls say
    "pipelines": BASE | {"spec", "parser", "plan", "observe", "relations", "running", "background_job"},
    # the public names
    "watersmeet": BASE
    | {
        "spec",
        "parser",
        "plan",
        "state",
        "runtime.local",
        "local",
        "running",
        "sinks",
        "background_job",
        "relations",
        "pipelines",
    },
    "__main__": {"cli"},
    # the folder itself is empty
    "runtime": set(),
}

LIBRARIES: dict[str, set[str]] = {
    "pyspark": {"runtime.spark"},
    "py4j": {"runtime.spark"},
    # a plan's expressions are its trees; the Spark engine renders them as Spark SQL
    "sqlglot": {
        "types",
        "spec",
        "expressions",
        "parser",
        "relations",
        "plan",
        "local",
        "pipelines",
        "whatif",
        "diff",
        "why",
        "runtime.spark",
    },
    "confluent_kafka": {"sinks", "topics"},
    "matplotlib": {"cli"},
    "typer": {"cli"},
    "starlette": {"page"},
    "uvicorn": {"page"},
    "prometheus_client": {"observe"},
    "opentelemetry": {"observe"},
    "rich": {"cli", "observe"},
}
"""Libraries that only some parts may import; the others are free."""

NAMED_IN_TYPES: dict[str, set[str]] = {"pyspark": {"relations"}}
"""Parts that may name a library's types (under ``TYPE_CHECKING``) but not load it: a call gets a Column."""


def part_of(module: str) -> str:
    """The part that a module belongs to: ``watersmeet.runtime.tasks.side`` is of ``runtime.tasks``."""
    names = module.split(".")[1:]
    if not names:
        return "watersmeet"
    first, second = names[0], ".".join(names[1:2])
    if first == "runtime" and second:
        return f"runtime.{second}"
    return first


def module_name(file: Path) -> str:
    names = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imports(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Line, name, and whether it is for types only; the name is that of a module, as far as one is seen."""
    for_types = {
        id(inner)
        for node in nodes_of(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, id(node) in for_types
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                base = "." * node.level + (node.module or "")
                full = f"{base}.{alias.name}"
                yield node.lineno, full if is_own_module(full) else base, id(node) in for_types


def is_own_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return name.startswith("watersmeet") and (path.is_dir() or path.with_suffix(".py").is_file())


def violations(source: str, module: str) -> list[str]:
    """What in the module's source goes against the lists, as ``part -> part (module:line)``."""
    part = part_of(module)
    found = []
    for line, name, for_types in imports(tree_of(source)):
        top = name.split(".")[0]
        if name.startswith("."):
            found.append(f"{module}:{line}: relative import")
        elif top == "watersmeet":
            target = part_of(name)
            if target != part and target not in ALLOWED.get(part, set()):
                found.append(f"{part} -> {target} ({module}:{line})")
        elif part not in LIBRARIES.get(top, {part}) and not (
            for_types and part in NAMED_IN_TYPES.get(top, ())
        ):
            found.append(f"{part} -> {top} ({module}:{line})")
    return found


def test_the_list_has_every_part_and_no_other():
    parts = {part_of(module_name(file)) for file in find_paths(PACKAGE, "**/*.py")}
    assert parts - set(ALLOWED) == set(), "new parts: say in ALLOWED what they may import"
    assert set(ALLOWED) - parts == set(), "the package has no such parts: correct ALLOWED"


def test_every_part_with_a_library_imports_it():
    listed = {
        (part, library)
        for lists in (LIBRARIES, NAMED_IN_TYPES)
        for library in lists
        for part in lists[library]
    }
    imported = {
        (part_of(module_name(file)), name)
        for file in find_paths(PACKAGE, "**/*.py")
        for name in re.findall(r"^\s*(?:from|import) (\w+)", file.read_text(), re.MULTILINE)
    }
    assert listed - imported == set(), "not imported there: correct LIBRARIES or NAMED_IN_TYPES"


def test_only_allowed_edges():
    found = [
        problem
        for file in find_paths(PACKAGE, "**/*.py")
        for problem in violations(file.read_text(encoding="utf-8"), module_name(file))
    ]
    assert not found, "\n".join(["edges that the architecture does not have:", *found])


def test_the_oracle_shares_nothing_with_what_it_judges():
    files = find_paths(REPOSITORY, "tests/support/oracle/*.py")
    names = {name for file in files for _, name, _ in imports(tree_of(file.read_text()))}
    of_tests = {name for name in names if name.startswith("tests.")}
    assert {name for name in names if name.startswith("watersmeet")} == set()
    assert of_tests
    assert {name for name in of_tests if not name.startswith("tests.support.oracle.")} == set()


def test_the_list_has_no_cycle():
    """Parts can be put in an order in which each imports only earlier ones."""
    placed: set[str] = set()
    while len(placed) < len(ALLOWED):
        ready = {part for part in ALLOWED.keys() - placed if ALLOWED[part] <= placed}
        assert ready, f"a cycle among {sorted(ALLOWED.keys() - placed)}"
        placed |= ready


@pytest.mark.parametrize(
    ("module", "source", "edge"),
    [
        ("watersmeet.kernel.match.probe", "from watersmeet.plan import model", "kernel -> plan"),
        ("watersmeet.kernel.match.probe", "def f():\n    import watersmeet.state.runs", "kernel -> state"),
        ("watersmeet.plan.passes", "from watersmeet import parser", "plan -> parser"),
        ("watersmeet.runtime.local", "import watersmeet.runtime.spark.job", "runtime.local -> runtime.spark"),
        ("watersmeet.runtime.tasks", "from pyspark.sql import types", "runtime.tasks -> pyspark"),
        ("watersmeet.cli.run", "import pyspark.sql as sql", "cli -> pyspark"),
        ("watersmeet.sinks.file_sink", "import pyspark", "sinks -> pyspark"),
        ("watersmeet.plan.model", "if TYPE_CHECKING:\n    import pyspark", "plan -> pyspark"),
        ("watersmeet.spec.model", "from . import other", "relative import"),
    ],
)
def test_a_forbidden_edge_is_seen(module, source, edge):
    (problem,) = violations(source, module)
    assert edge in problem


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        (
            "import watersmeet.runtime.local, watersmeet.sinks, watersmeet.parser, watersmeet.local.batches,"
            " watersmeet.local.join_spec",
            {"pyspark", "py4j", "typer", "rich", "pandas"},
        ),
        ("import watersmeet.cli.main", {"pyspark", "py4j", "pandas", "pyarrow", "duckdb"}),
        ("import watersmeet.runtime.spark.job.run", {"duckdb"}),
        (
            "import watersmeet.cli.diff.command, watersmeet.runtime.coordinator.restore.plan_for_state,"
            " watersmeet.runtime.spark.job.column_inference, watersmeet.cli.why.sources",
            {"pyspark", "py4j"},
        ),
    ],
)
def test_heavy_libraries_stay_out(statement, unwanted):
    """In an interpreter of its own: the in-process engine needs no Spark, and `--help` is quick."""
    code = f"{statement}, sys; print(*sorted({unwanted!r} & sys.modules.keys()))"
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == []
