"""Nothing makes code or objects of text or files: no pickle, no eval, no shell.

Spark pickles the functions of tasks; that is between its own processes, and none of our business here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.package_paths import REPOSITORY, find_paths
from tests.support.syntax import nodes_of, tree_of

FOLDERS = ("src", "scripts", "benchmarks", "examples", "tests/kills")

MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "jsonpickle",
    "code",
}
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
METHODS = {
    "os.system",
    "os.popen",
    "os.spawnl",
    "os.spawnv",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "np.load",
    "numpy.load",
    "np.fromfile",
    "pd.read_pickle",
    "pandas.read_pickle",
    "pa.deserialize",
    "pyarrow.deserialize",
    "pa.deserialize_pandas",
    "torch.load",
}
TYPES_OF_ARROW = {"PyExtensionType", "UnknownExtensionType"}
"""Arrow's types that are made by unpickling what stands in a file."""


def findings(source: str) -> Iterator[tuple[int, str]]:
    """Line and what stands there."""
    for node in nodes_of(tree_of(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, n.name) for n in node.names if n.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in MODULES:
                yield node.lineno, node.module or ""
            yield from ((node.lineno, n.name) for n in node.names if f"{node.module}.{n.name}" in METHODS)
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CALLS or called in METHODS:
                yield node.lineno, called
            for keyword in node.keywords:
                unwanted = keyword.arg in ("shell", "allow_pickle")
                if unwanted and not (
                    isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                ):
                    yield node.lineno, f"{called}({keyword.arg}=…)"
        elif isinstance(node, ast.Attribute) and node.attr in TYPES_OF_ARROW:
            yield node.lineno, node.attr


def python_files() -> Iterator[Path]:
    for file in find_paths(REPOSITORY, *(f"{folder}/**/*" for folder in FOLDERS)):
        if file.is_file() and (file.suffix == ".py" or _is_script(file)):
            yield file


def _is_script(file: Path) -> bool:
    if file.suffix:
        return False
    with file.open("rb") as opened:
        first = opened.readline()
    return first.startswith(b"#!") and b"python" in first


def test_no_code_is_made_of_text():
    found = [
        f"{file.relative_to(REPOSITORY)}:{line}: {what}"
        for file in python_files()
        for line, what in findings(file.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from pickle import loads",
        "import cloudpickle.compat",
        "eval('1')",
        "exec(text)",
        "import marshal as m",
        "subprocess.run(text, shell=True)",
        "subprocess.run(text, shell=asked)",
        "os.system(text)",
        "from os import system",
        "np.load(file)",
        "np.lib.format.read_array(file, allow_pickle=True)",
        "yaml.load(text)",
        "pa.PyExtensionType.__init__(self, kind)",
    ],
)
def test_what_makes_code_is_seen(source):
    assert list(findings(source))


def test_what_makes_none_is_let_be():
    assert not list(
        findings("import json\njson.loads(text)\nsubprocess.run([a], shell=False)\nre.compile(text)")
    )
